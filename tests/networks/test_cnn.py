from functools import partial

import pytest
import torch
from torch import nn

from svea.networks import CNN, FrameCNN
from svea.networks.parts import own_head, without_last


def convolutions(trunk: CNN) -> list[nn.Conv2d]:
    return [layer for layer in trunk.layers if isinstance(layer, nn.Conv2d)]


def test_the_papers_trunk() -> None:
    trunk = CNN()
    assert sum(p.numel() for p in trunk.parameters()) == 95_104
    assert trunk.features == 32 * 21 * 21 == 14_112
    with torch.no_grad():
        assert trunk(torch.rand(1, 9, 84, 84)).shape == (1, 14_112)
    layers = convolutions(trunk)
    assert [layer.stride[0] for layer in layers] == [2] + [1] * 10
    assert {layer.kernel_size for layer in layers} == {(3, 3)}
    assert {layer.padding for layer in layers} == {(0, 0)}


@pytest.mark.parametrize("layer", range(3))
def test_delta_orthogonal_initialisation(layer: int) -> None:
    weight = convolutions(CNN(image_size=32, layers=3))[layer].weight.detach()
    bias = convolutions(CNN(image_size=32, layers=3))[layer].bias
    centre = weight[:, :, 1, 1].clone()
    weight[:, :, 1, 1] = 0
    assert not weight.any(), "every tap but the centre is zero"
    assert bias is not None and not bias.any()
    outputs, inputs = centre.shape
    gram = centre.T @ centre if outputs >= inputs else centre @ centre.T
    torch.testing.assert_close(gram, 2 * torch.eye(len(gram)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [16, 17, 24, 40])
@pytest.mark.parametrize(("layers", "strided"), [(1, 0), (2, 2), (3, 1), (3, 2)])
def test_features_are_the_size_of_the_output(size: int, layers: int, strided: int) -> None:
    trunk = CNN(image_size=size, layers=layers, filters=4, strided_layers=strided)
    with torch.no_grad():
        assert trunk(torch.zeros(1, 9, size, size)).shape == (1, trunk.features)


def test_pads_split_of_the_papers_encoder() -> None:
    trunk, head = without_last(CNN(), 3), own_head(CNN(), 3)
    assert trunk.maps == CNN(layers=8).maps and trunk.features == CNN(layers=8).features
    assert head.features == CNN().features == 14_112
    parameters = [p for network in (trunk, head) for p in network.parameters()]
    assert sum(p.numel() for p in parameters) == 95_104


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(
    "whole", [CNN, partial(CNN, drqv2=True), partial(FrameCNN, frame_layers=2)]
)
def test_the_shared_part_and_a_head_with_the_trunks_weights_are_the_trunk(whole, heads):
    trunk = whole(image_size=36, layers=5, filters=4, strided_layers=2)
    for parameter in trunk.parameters():
        nn.init.normal_(parameter, 0, 0.3)
    shared, head = without_last(trunk, heads), own_head(trunk, heads)
    last = [layer for layer in trunk.modules() if isinstance(layer, nn.Conv2d)][-heads:]
    own = [layer for layer in head.modules() if isinstance(layer, nn.Conv2d)]
    for mine, its in zip(own, last, strict=True):
        mine.load_state_dict(its.state_dict())
    images = torch.rand(3, 9, 36, 36)
    assert shared(images).shape == (3, shared.features) and head.features == trunk.features
    torch.testing.assert_close(head(shared(images)), trunk(images))
    assert {id(p) for p in shared.parameters()} < {id(p) for p in trunk.parameters()}


@torch.no_grad()
def test_drqv2s_form_centres_pixels_and_ends_in_a_relu() -> None:
    encoder = CNN(layers=4, drqv2=True)
    assert encoder.features == 32 * 35 * 35 == 39_200, "DrQ-v2's own number"
    x = torch.rand(2, 9, 84, 84)
    features = encoder(x)
    assert features.min() == 0 < features.max()
    for layer in convolutions(encoder):
        first = layer is convolutions(encoder)[0]
        x = torch.relu(layer(x - 0.5 if first else x))
    torch.testing.assert_close(features, x.flatten(1))
