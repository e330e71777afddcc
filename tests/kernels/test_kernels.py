"""Our GPU kernels against the library: on a GPU, or in Triton's interpreter if it is there."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from augmented import triangles
from emulated import error
from interpreted import DEVICE
from torch import Tensor

from svea import views
from svea.augment import conv, crop, overlay_drift, shift
from svea.augment.images import ImageBank
from svea.kernels import convolutions, nvrtc
from svea.kernels import pictures as fast_pictures
from svea.kernels.attention import attention
from svea.kernels.gpu import fuse
from svea.kernels.pictures import resized_crops
from svea.kernels.random_convolution import random_convolution
from svea.kernels.trunk import FusedTrunk
from svea.kernels.windows import mixed_drifting, scaled, windows
from svea.networks import CNN


@pytest.fixture
def layer_and_tensors() -> tuple[convolutions.Layer, Tensor, Tensor, Tensor]:
    """A layer of 16 filters on 11 pixels, its input after a ReLU, its weights, a gradient."""
    torch.manual_seed(0)
    layer = convolutions.Layer(11, 9, 1, 16, 16, relu=True)
    x = torch.randn(2, 11, 11, 16, device=DEVICE).half().relu()
    weight = 0.1 * torch.randn(9, 16, 16, device=DEVICE).half()  # (tap, in, out)
    return layer, x, weight, torch.randn(2, 9, 9, 16, device=DEVICE).half()


def planes(x: Tensor) -> Tensor:
    return x.float().permute(0, 3, 1, 2)


def as_library_weight(weight: Tensor) -> Tensor:
    return weight.float().unflatten(0, (3, 3)).permute(3, 2, 0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_byte_is_divided_exactly(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and DEVICE == "cpu":
        pytest.skip("Triton's interpreter cuts bits off where a GPU rounds")
    images = torch.arange(256, dtype=torch.uint8, device=DEVICE).repeat(17).view(17, 1, 16, 16)
    wanted = views.scaled(images.cpu(), dtype)  # torch multiplies by 1 / 255 on a GPU
    assert torch.equal(scaled(images, dtype).cpu(), wanted)


@pytest.mark.parametrize("relu", [True, False])
def test_forward(layer_and_tensors, relu: bool) -> None:
    layer, x, weight, _ = layer_and_tensors
    layer = convolutions.Layer(**vars(layer) | {"relu": relu})
    bias = torch.randn(16, device=DEVICE)
    wanted = F.conv2d(planes(x), as_library_weight(weight), bias)
    wanted = wanted.relu() if relu else wanted
    found = convolutions.convolve(layer, x, weight, bias)
    assert error(planes(found), wanted) < 1e-3


def test_input_gradient_stops_at_the_relu(layer_and_tensors) -> None:
    layer, x, weight, g = layer_and_tensors
    wanted = torch.nn.grad.conv2d_input(planes(x).shape, as_library_weight(weight), planes(g))
    wanted = wanted * (planes(x) > 0)
    found = convolutions.input_gradient(layer, g, weight.mT.contiguous(), x)
    assert error(planes(found), wanted) < 1e-3


def test_weight_gradient(layer_and_tensors) -> None:
    layer, x, _, g = layer_and_tensors
    sums = convolutions.PartialSums([layer, layer], torch.device(DEVICE))
    for number in range(2):
        convolutions.weight_gradient(layer, g, x, *sums.of(number))
    gradients = sums.gradients(channels=16)
    wanted = torch.nn.grad.conv2d_weight(planes(x), (16, 16, 3, 3), planes(g))
    for found in gradients[::2]:
        assert found.is_contiguous(), "the fused optimiser wants the parameters' layout"
        assert error(found, wanted) < 1e-5
    for found in gradients[1::2]:
        assert error(found, planes(g).sum((0, 2, 3))) < 1e-5


def test_a_whole_network_with_its_strided_first_layer() -> None:
    torch.manual_seed(1)
    network = CNN(image_size=20, layers=4, filters=16).to(DEVICE)
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    images = torch.rand(3, 9, 20, 20, device=DEVICE, requires_grad=True)  # as behind a masker
    with torch.autocast(DEVICE, dtype=torch.float16, cache_enabled=False):
        found = convolutions.FusedConvolutions(network)(images)
    assert error(found, CNN.forward(network, images)) < 5e-3
    given = [images, *network.parameters()]
    gradients = torch.autograd.grad(found.float().sum(), given)
    exact = torch.autograd.grad(CNN.forward(network, images).sum(), given)
    for mine, wanted in zip(gradients[-2:], exact[-2:], strict=True):  # no ReLU in between
        assert error(mine, wanted) < 5e-3
    for mine, wanted in zip(gradients, exact, strict=True):  # rounding opens and closes some ReLUs
        assert mine.shape == wanted.shape and error(mine, wanted) < 0.3


def test_in_full_precision_the_library_computes() -> None:
    network = CNN(image_size=20, layers=2, filters=16).to(DEVICE)
    images = torch.rand(2, 9, 20, 20, device=DEVICE)
    assert torch.equal(
        convolutions.FusedConvolutions(network)(images), CNN.forward(network, images)
    )


@pytest.mark.parametrize("tokens", [26, 37, 145])
def test_attention_and_its_gradient(tokens: int) -> None:
    qkv = torch.randn(2, tokens, 3 * 2 * 16, device=DEVICE).half().requires_grad_()
    g = torch.randn(2, tokens, 32, device=DEVICE).half()

    def outcome(mix: Callable[[Tensor, Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in qkv.chunk(3, -1))
        mixed = mix(q, k, v).transpose(1, 2).flatten(2)
        return mixed, torch.autograd.grad(mixed, qkv, g.to(mixed.dtype))[0]

    found = outcome(attention)
    wanted = outcome(
        lambda q, k, v: F.scaled_dot_product_attention(q.float(), k.float(), v.float())
    )
    for mine, exact in zip(found, wanted, strict=True):
        assert error(mine, exact) < 1e-3


def test_random_convolution_is_the_librarys_with_a_repeated_border() -> None:
    x = torch.rand(3, 9, 20, 24)
    draw = conv.draw(x, torch.Generator().manual_seed(0))
    found = random_convolution(x.to(DEVICE), draw["weight"].to(DEVICE)).cpu()
    torch.testing.assert_close(found, conv.apply(x, draw), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("side", "height", "width"), [(48, 16, 18), (24, 20, 20), (16, 30, 24)])
def test_resized_crops_are_a_sum_over_the_pixels_they_cover(side, height, width):
    """Against float64: the same level of 255, or its neighbour where rounding was close."""
    pictures = torch.randint(0, 256, (5, 3, side, side), dtype=torch.uint8)
    bank = ImageBank(pictures.to(DEVICE))
    crops = bank.crops(7, torch.Generator(DEVICE).manual_seed(side))
    found = resized_crops(bank.pictures, list(crops), height, width).cpu().double() * 255
    plain = pictures[crops.chosen.cpu()].double()
    places = zip(*(column.tolist() for column in crops[1:]), plain, found, strict=True)
    for top, left, tall, wide, mirrored, picture, mine in places:
        rows, columns = (
            triangles(*axis) for axis in ((top, tall, height, side), (left, wide, width, side))
        )
        exact = torch.einsum("yr,crs,xs->cyx", rows, picture, columns)
        exact = exact.flip(-1) if mirrored else exact
        assert (mine - exact).abs().max() < 0.63  # half a level, and what float16 rounds


def test_fast_pictures_are_the_banks() -> None:
    bank = ImageBank(torch.randint(0, 256, (5, 3, 40, 40), dtype=torch.uint8).to(DEVICE))
    fast, generator = replace(bank, resize=fast_pictures.resize), torch.Generator(DEVICE)
    fast_pictures.check(fast)
    mine, plain = (each.draw(6, 30, 24, generator.manual_seed(2)) for each in (fast, bank))
    assert mine.dtype == torch.float16
    torch.testing.assert_close(mine.float(), plain.float(), rtol=0, atol=1.2 / 255)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (torch.uint8, torch.uint8),
        (torch.float32, torch.float32),
        (torch.uint8, torch.float32),  # bytes become pixels in the same pass
        (torch.uint8, torch.bfloat16),
    ],
)
def test_windows_are_the_shift_and_the_crop(kind: torch.dtype, asked: torch.dtype) -> None:
    if asked == torch.bfloat16 and DEVICE == "cpu":
        pytest.skip("Triton's interpreter cuts bits off where a GPU rounds")
    x = torch.randint(0, 256, (5, 9, 36, 40)).to(kind)
    generator = torch.Generator().manual_seed(0)

    def windows_are(wanted: Tensor, corner: Tensor, *shape: int) -> None:
        found = windows(x.to(DEVICE), corner.to(DEVICE), *shape, asked).cpu()
        assert torch.equal(found, wanted if kind == asked else views.scaled(wanted, asked))

    draw = shift.draw(x, generator, pad=4)
    windows_are(shift.apply(x, draw), draw["corner"], 36, 40, 4)
    draw = crop.draw(x, generator, size=33)
    windows_are(crop.apply(x, draw), draw["corner"], 33, 33, 0)


@pytest.mark.parametrize("weight", [0.5, 0.2, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_drifting_picture_is_mixed_in_as_by_the_library(dtype, weight):
    """Every frame sees another window; speeds of both signs, and none."""
    if dtype == torch.bfloat16 and DEVICE == "cpu":
        pytest.skip("Triton's interpreter cuts bits off where a GPU rounds")
    x = torch.rand(4, 9, 36, 40).to(dtype)
    picture = torch.rand(4, 3, 36 + 2 * 9, 40 + 2 * 9).half()
    speed = torch.tensor([[3, -3], [-2, 1], [0, 0], [-3, 3]])
    draw = {"picture": picture, "speed": speed, "margin": 9, "weight": weight}
    exact = overlay_drift.function(x.double(), **draw | {"picture": picture.to(dtype)})
    found = mixed_drifting(x.to(DEVICE), picture.to(DEVICE), speed.to(DEVICE), 9, weight).cpu()
    assert found.dtype == dtype
    step = torch.finfo(dtype).eps / 2  # half the distance of neighbours below 1
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1.01 * step)


def test_pictures_too_small_to_drift_are_refused_before_they_are_read() -> None:
    x, speed = torch.rand(2, 9, 16, 16, device=DEVICE), torch.zeros(2, 2, dtype=torch.int64)
    picture = torch.rand(2, 3, 16 + 2 * 5, 16 + 2 * 5, device=DEVICE)
    with pytest.raises(ValueError, match=r"\(2, 3, 26, 26\); allowed: \(2, 3, 28, 28\)"):
        mixed_drifting(x, picture, speed.to(DEVICE), 6, 0.5)


def test_without_nvidias_compiler_a_layer_at_a_time_is_computed_and_said(monkeypatch):
    def missing(self: FusedTrunk, network: CNN) -> None:
        raise nvrtc.BuildError("libnvrtc is not installed")

    monkeypatch.setattr(FusedTrunk, "fits", lambda network: True)
    monkeypatch.setattr(FusedTrunk, "__init__", missing)
    network = CNN().to(DEVICE)
    with pytest.warns(UserWarning, match=r"take longer: libnvrtc is not installed"):
        assert fuse(network)
    assert isinstance(network.forward, convolutions.FusedConvolutions)
