"""The trunk's CUDA kernels against plain convolutions: on a GPU, and on any machine emulated."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from emulated import emulator, needs_compiler
from torch import Tensor

from svea.kernels import chain, nvrtc, trunk
from svea.kernels.trunk import FusedTrunk
from svea.networks import CNN

torch.set_num_threads(1)
CUDA = torch.device("cuda")
cuda = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
    reason="needs an NVIDIA GPU of compute capability 9 or above",
)


def no_kernel(*_: object) -> None:
    """A launcher for when no kernel may run."""
    raise AssertionError("no kernel of ours")


class Rounded(torch.autograd.Function):
    """bfloat16's rounding, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.bfloat16().float()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient.bfloat16().float()


def network(channels: int, side: int, layers: int, drqv2: bool, device: str = "cpu") -> CNN:
    torch.manual_seed(0)
    made = CNN(channels, side, layers, 32, 1, drqv2).to(device)
    for parameter in made.parameters():
        noise = 0.1 * torch.randn(parameter.shape)
        parameter.data = (parameter.data.cpu() + noise).to(device).contiguous()
    return made


def plainly(net: CNN, images: Tensor) -> Tensor:
    """Features with the library's convolutions, rounded where the kernels round."""
    x = Rounded.apply(images - net.centre)
    layers = chain.convolutions_of(net)
    for number, layer in enumerate(layers):
        weight = layer.weight + (layer.weight.bfloat16().float() - layer.weight).detach()
        x = F.conv2d(x, weight, layer.bias, layer.stride)
        x = Rounded.apply(x if number == len(layers) - 1 and not net.drqv2 else x.relu())
    return x.flatten(1)


def error(found: Tensor, wanted: Tensor) -> float:
    found, wanted = found.detach().float(), wanted.detach().float()
    return float((found - wanted).norm() / wanted.norm())


@needs_compiler
@pytest.mark.parametrize(
    ("channels", "side", "layers", "drqv2", "batch", "blocks", "wide"),
    [
        (9, 20, 3, False, 2, 5, False),
        (9, 20, 3, False, 2, 5, True),
        (3, 24, 2, True, 3, 2, False),
        (16, 42, 4, True, 1, 7, True),  # a warp takes pixels twice
        (9, 24, 3, False, 7, 2, False),  # 14 strips for a block: every stage is filled three times
        (3, 84, 2, False, 1, 6, True),  # the paper's largest layer: the widest products
    ],
)
def test_emulated_kernels_are_plain_convolutions(
    tmp_path: Path,
    channels: int,
    side: int,
    layers: int,
    drqv2: bool,
    batch: int,
    blocks: int,
    wide: bool,
) -> None:
    net = network(channels, side, layers, drqv2)
    shape = {"LAYERS": layers, "SIDE": side, "CHANNELS": channels, "RELU_LAST": int(drqv2)}
    fused = FusedTrunk(net, no_kernel, blocks, wide)
    assert fused.chain.wide == wide
    assert shape.items() <= fused.chain.macros().items()
    fused.chain.launch = emulator(tmp_path, chain.SOURCES, fused.chain.macros())
    images = torch.rand(batch, channels, side, side).bfloat16().float().requires_grad_(True)
    wanted = plainly(net, images)
    gradient = torch.randn_like(wanted).bfloat16().float()
    wanted_gradients = torch.autograd.grad(wanted, [images, *fused.parameters], gradient)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fused(images)
        with torch.no_grad():
            assert torch.equal(fused(images), found), "with and without what a gradient needs"
        two = (images.detach()[: batch // 2], images.detach()[batch // 2 :])
        apart = fused(two if batch > 1 else two[1:])  # two views that were not copied together
        assert torch.equal(apart, found)
    given = [images, *fused.parameters]
    found_gradients = torch.autograd.grad(found, given, gradient.bfloat16())
    again = torch.autograd.grad(apart, fused.parameters, gradient.bfloat16())
    for one, other in zip(again, found_gradients[1:], strict=True):
        assert torch.equal(one, other)
    assert error(found, wanted) < 1e-3
    for one, other in zip(found_gradients, wanted_gradients, strict=True):
        assert one.shape == other.shape and error(one, other) < 5e-3


@needs_compiler
def test_what_wrong_weights_make_of_the_features_is_noticed(tmp_path: Path) -> None:
    net = network(3, 16, 2, False)
    fused = FusedTrunk(net, no_kernel, 2, wide=True)
    launch = emulator(tmp_path, chain.SOURCES, fused.chain.macros())
    fused.chain.launch = launch
    assert fused.error() < 0.4 * trunk.MOST_ERROR

    def without_two_taps(kernel: str, *given: Any) -> None:
        launch(kernel, *given)
        if kernel == "pack":
            given[4][-1024:] = 0

    fused.chain.launch = without_two_taps
    assert fused.error() > trunk.MOST_ERROR

    def without_a_number(kernel: str, *given: Any) -> None:
        launch(kernel, *given)
        if kernel == "total":
            given[-1][-1] = float("nan")

    fused.chain.launch = without_a_number
    assert not fused.error() <= trunk.MOST_ERROR


def test_kernels_are_used_where_they_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_kernels(self: FusedTrunk, network: CNN, wide: bool = True) -> None:
        self.parameters = list(network.parameters())
        self.chain: Any = SimpleNamespace(wide=wide, macros=lambda: {"WIDE": int(wide)})

    errors: list[float] = []
    monkeypatch.setattr(FusedTrunk, "__init__", without_kernels)
    monkeypatch.setattr(FusedTrunk, "error", lambda self: errors.pop(0))
    monkeypatch.setattr(trunk, "_checked", set())
    nan = float("nan")
    for wide, other, said in ((nan, 0.2, "off by 20%"), (0.2, nan, "off by nan%")):
        errors += [wide, other]
        with (
            pytest.warns(UserWarning, match="wide products are off"),
            pytest.raises(nvrtc.BuildError, match=said),  # then a layer at a time is computed
        ):
            trunk.fused_trunk(CNN())
    errors += [0.9, 0.01]
    with pytest.warns(UserWarning, match="wide products are off by 90%"):
        assert not trunk.fused_trunk(CNN()).chain.wide
    errors.append(0.01)
    assert trunk.fused_trunk(CNN()).chain.wide and not errors
    assert trunk.fused_trunk(CNN()).chain.wide, "it is asked once"


def test_in_full_precision_the_library_computes() -> None:
    net = network(9, 20, 3, False)
    images = torch.rand(2, 9, 20, 20)
    torch.testing.assert_close(FusedTrunk(net, no_kernel, 2)(images), net(images))


def test_which_networks_fit() -> None:
    assert trunk.has_right_shape(CNN())
    assert trunk.has_right_shape(CNN(layers=4, drqv2=True))
    assert not trunk.has_right_shape(CNN(filters=16, layers=4, image_size=48))
    assert not trunk.has_right_shape(CNN(strided_layers=2))
    assert not trunk.has_right_shape(CNN(image_size=85))
    assert not trunk.has_right_shape(CNN(channels=18))
    assert not FusedTrunk.fits(CNN()), "it lies on a CPU"
    assert not FusedTrunk.fits(torch.nn.Linear(2, 2))
    assert chain.chain_memory(41) <= 227 * 1024 < chain.chain_memory(49)  # the paper's; 100 pixels
    assert chain.chain_memory(23) < 99 * 1024 < chain.gradient_memory(23)  # 48 px, RTX 5090


@pytest.mark.parametrize(
    ("version", "room", "lacks"),
    [
        ((9, 0), 227, ""),
        ((8, 0), 163, "compute capability 8.0, not 9.0 or above"),
        ((12, 0), 99, "99 KB of shared memory to a block, not 219"),
    ],
)
def test_it_is_said_what_a_gpu_lacks(
    version: tuple[int, int], room: int, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = SimpleNamespace(
        major=version[0], minor=version[1], shared_memory_per_block_optin=room * 1024
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(CNN, "parameters", lambda self: iter([SimpleNamespace(device=CUDA)]))
    assert FusedTrunk.obstacle(CNN()) == lacks


@pytest.mark.parametrize(("version", "wide"), [((9, 0), True), ((10, 0), False), ((12, 0), False)])
def test_which_gpus_have_wide_products(
    version: tuple[int, int], wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: version)
    assert chain.has_wide_products(CUDA) == wide
    assert not chain.has_wide_products(torch.device("cpu"))


@pytest.mark.parametrize("blocks", [10, 78, 132, 160])
def test_blocks_are_shared_out_by_work(blocks: int) -> None:
    sides = list(range(41, 19, -2))
    shares, ranges = chain.shared_out(sides, blocks)
    assert len(shares) == blocks and ranges[0] == [0, chain.FIRST_BLOCKS]
    for layer, (begin, end) in enumerate(ranges[1:], start=2):
        assert [share[0] for share in shares[begin:end]] == [layer] * (end - begin)
        assert [share[1] for share in shares[begin:end]] == list(range(end - begin))
        assert {share[2] for share in shares[begin:end]} == {end - begin}
    if blocks > 10:  # else one each
        counts = [end - begin for begin, end in ranges[1:]]
        most = max(side**2 / count for side, count in zip(sides[1:], counts, strict=True))
        assert most < 1.25 * sum(side**2 for side in sides[1:]) / blocks


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch brings the compiler along")
def test_a_missing_compiler_is_named() -> None:
    with pytest.raises(nvrtc.BuildError, match=r"libnvrtc\.so.* is not installed"):
        nvrtc.library()


@cuda
@pytest.mark.parametrize("batch", [1, 20, 256])
def test_kernels_on_a_gpu_are_plain_convolutions_and_repeat(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    net = network(9, 84, 4, False, "cuda")
    fused = FusedTrunk(net)
    assert fused.error() < 0.6 * trunk.MOST_ERROR
    images = torch.rand(batch, 9, 84, 84, device="cuda").bfloat16().requires_grad_(True)
    wanted = plainly(net, images.float())
    gradient = torch.randn_like(wanted).bfloat16().float()
    given = [images, *fused.parameters]
    wanted_gradients = torch.autograd.grad(wanted, given, gradient)

    def outcome() -> list[Tensor]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = fused(images)
        return [found, *torch.autograd.grad(found, given, gradient.bfloat16())]

    first, second = outcome(), outcome()
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    for one, other in zip(first, (wanted, *wanted_gradients), strict=True):
        assert error(one, other) < 5e-3
