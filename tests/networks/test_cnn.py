"""The encoders of the paper, of DrQ-v2 and of SimGRL, and PAD's split of them."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


# Frame by frame ---------------------------------------------------------------------------------


def small(**changes: int) -> FrameCNN:
    sizes = {"image_size": 24, "layers": 4, "filters": 6, "frame_layers": 2} | changes
    return FrameCNN(**sizes).double().requires_grad_(False)


def images(batch: int = 2, side: int = 24) -> Tensor:
    return torch.rand(batch, 9, side, side, dtype=torch.float64)


def test_simgrls_encoder() -> None:
    trunk = FrameCNN()
    assert sum(p.numel() for p in trunk.parameters()) == 83_680
    assert trunk.features == 32 * 21 * 21 == 14_112
    assert trunk(torch.rand(1, 9, 84, 84)).shape == (1, 14_112)
    shapes = [tuple(p.shape) for p in trunk.parameters() if p.ndim == 4]
    single, joint = [(16, 3), (16, 16), (16, 16)], [(32, 48), *[(32, 32)] * 7]
    assert shapes == [(*shape, 3, 3) for shape in single + joint]


def test_it_is_the_same_layers_one_frame_at_a_time() -> None:
    """A loop over samples and frames, written out."""
    trunk, x = FrameCNN(image_size=48, filters=8).double(), images(side=48)
    weights = dict(trunk.named_parameters())
    single = [("single.layers.0", 2), ("single.layers.2", 1), ("single.layers.4", 1)]
    for sample, features in zip(x, trunk(x), strict=True):
        maps = []
        for frame in sample.split(3):
            y = frame[None]
            for name, stride in single:
                y = F.conv2d(y, weights[f"{name}.weight"], weights[f"{name}.bias"], stride).relu()
            maps.append(y)
        y = torch.cat(maps, dim=1)
        for number in range(8):
            name = f"joint.layers.{2 * number}"
            y = F.conv2d(y if number == 0 else y.relu(), weights[f"{name}.weight"],
                         weights[f"{name}.bias"])  # fmt: skip
        torch.testing.assert_close(features, y.flatten())
        assert (y < 0).any(), "no ReLU after the last layer"


@pytest.mark.parametrize(("strided", "frame_layers", "side"), [(1, 2, 5), (2, 1, 1), (2, 2, 1)])
def test_strides_run_over_both_parts(strided: int, frame_layers: int, side: int) -> None:
    """24 pixels: 11, 9, 7, 5 with one stride; 11, 5, 3, 1 with two."""
    trunk = small(strided_layers=strided, frame_layers=frame_layers)
    assert trunk.maps == (6, side, side) and trunk(images()).shape == (2, trunk.features)
