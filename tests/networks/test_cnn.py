from __future__ import annotations

import pytest
import torch
from torch import nn

from svea.core.errors import UserError
from svea.networks import CNN, HeadCNN
from svea.networks.parts import without_last


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


def test_no_activation_after_the_last_convolution() -> None:
    trunk = CNN(image_size=16, layers=2, filters=8)
    kinds = [type(layer) for layer in trunk.layers]
    assert kinds == [nn.Conv2d, nn.ReLU, nn.Conv2d]
    with torch.no_grad():
        assert (trunk(torch.rand(4, 9, 16, 16)) < 0).any()


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


def test_too_small_images_are_refused_with_a_cure() -> None:
    with pytest.raises(UserError, match=r"16 pixels are too small for 11 layers.*--image-size"):
        CNN(image_size=16)


# A head of its own (PAD), and DrQ-v2's form ----------------------------------------------------


@pytest.mark.parametrize("drqv2", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_trunk_and_head_are_the_unsplit_network(heads: int, drqv2: bool) -> None:
    torch.manual_seed(1)
    whole = CNN(image_size=24, layers=4, filters=4, drqv2=drqv2)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    trunk = CNN(image_size=24, layers=4 - heads, filters=4, drqv2=drqv2)
    head = HeadCNN(trunk.maps, heads, drqv2)
    split = [
        layer for part in (trunk, head) for layer in part.layers if isinstance(layer, nn.Conv2d)
    ]
    for mine, its in zip(split, convolutions(whole), strict=True):
        mine.load_state_dict(its.state_dict())
    images = torch.rand(3, 9, 24, 24)
    assert head.features == whole.features
    torch.testing.assert_close(head(trunk(images)), whole(images))


def test_pads_split_of_the_papers_encoder() -> None:
    trunk = without_last(CNN(), 3)
    head = HeadCNN(trunk.maps, 3)
    assert trunk.maps == CNN(layers=8).maps and trunk.features == CNN(layers=8).features
    assert head.features == CNN().features == 14_112
    parameters = [p for network in (trunk, head) for p in network.parameters()]
    assert sum(p.numel() for p in parameters) == 95_104


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
