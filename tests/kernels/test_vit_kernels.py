"""The ViT's kernels against plain PyTorch in float64: on a GPU, or in Triton's interpreter."""

import pytest
import torch
from emulated import error
from interpreted import DEVICE

from svea.kernels import attention, vit
from svea.kernels.gpu import VIT, take_over
from svea.kernels.vit import FusedViT
from svea.networks import CNN
from svea.networks.vit import ViT

KIND = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter multiplies no other
CLOSE = 0.03 if DEVICE == "cuda" else 4e-3


def small_vit(**changes: int) -> ViT:
    """26 tokens of 32 numbers; weights large enough that every part matters."""
    torch.manual_seed(0)
    network = ViT(**{"image_size": 40, "width": 32, "depth": 3, "heads": 2} | changes)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network.to(DEVICE)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles and shares also where there are few tokens, the last of them not full."""
    if DEVICE == "cpu":
        few = ("EMBED_ROWS", "SHARE_ROWS", "PATCH_ROWS", "CLASS_ROWS", "CLASS_TILE")
        tiles = ("NEXT_TILES", "LAST_TILES", "BACK_TILES", "QKV_TILES")
        values = dict.fromkeys(few, 16) | dict.fromkeys(tiles, (16, 4, 1)) | {"SHARES": 3}
        for name, value in values.items():
            monkeypatch.setattr(vit, name, value)


def autocast() -> torch.autocast:
    return torch.autocast(DEVICE, dtype=torch.bfloat16, cache_enabled=False)


@pytest.mark.parametrize("changes", [{}, {"width": 64, "heads": 4, "depth": 2}])
def test_features_and_gradients_of_two_views(changes: dict[str, int]) -> None:
    network = small_vit(**changes)
    exact = ViT(**{"image_size": 40, "width": 32, "depth": 3, "heads": 2} | changes).to(DEVICE)
    exact.double().load_state_dict(network.state_dict())
    images = [torch.rand(n, 9, 40, 40, device=DEVICE).to(KIND) for n in (2, 1)]
    with autocast():
        found = FusedViT(network, KIND)(tuple(images))
    wanted = ViT.forward(exact, torch.cat(images).double())
    assert error(found, wanted) < CLOSE
    slope = torch.randn_like(wanted)
    mine = torch.autograd.grad(found, [*network.parameters()], slope.to(found.dtype))
    theirs = torch.autograd.grad(wanted, [*exact.parameters()], slope)
    for (name, parameter), one, two in zip(network.named_parameters(), mine, theirs, strict=True):
        assert one.shape == parameter.shape
        assert error(one, two) < CLOSE, name


def test_without_gradients_the_features_are_the_same() -> None:
    network, images = small_vit(), torch.rand(2, 9, 40, 40, device=DEVICE)
    fused = FusedViT(network, KIND)
    with autocast():
        kept = fused(images)
        with torch.no_grad():
            assert torch.equal(fused(images), kept)
        assert torch.equal(fused((images[:1], images[1:])), kept)


def test_full_precision_and_gradients_of_images_are_the_librarys() -> None:
    network, images = small_vit(), torch.rand(2, 9, 40, 40, device=DEVICE)
    fused = FusedViT(network, KIND)
    assert torch.equal(fused((images[:1], images[1:])), ViT.forward(network, images))
    with autocast():
        given = images.clone().requires_grad_()
        (slopes,) = torch.autograd.grad(fused(given).float().sum(), given)
        assert slopes.shape == images.shape and float(slopes.abs().sum()) > 0


def test_the_check_passes_and_notices_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = FusedViT(small_vit(depth=2).requires_grad_(False), KIND)  # as a target's is
    fused.check(1)
    right = attention.of_packed_back
    monkeypatch.setattr(attention, "of_packed_back", lambda *given: -right(*given))
    with pytest.raises(ArithmeticError, match=r"off by \d+"):
        fused.check(1)


def test_what_fails_is_said_and_left_to_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FusedViT, images: int = 4) -> None:
        raise ArithmeticError("our kernels are off by 70.0% on this GPU")

    monkeypatch.setattr(FusedViT, "fits", lambda network: isinstance(network, ViT))
    monkeypatch.setattr(FusedViT, "check", broken)
    network = small_vit()
    with pytest.warns(UserWarning, match=r"takes longer: our kernels are off by 70\.0%"):
        assert not take_over(VIT, network)
    assert "forward" not in vars(network)
    assert not take_over(VIT, CNN(image_size=20, layers=2, filters=16))


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({}, True),
        ({"mlp_ratio": 2.0}, False),
        ({"image_size": 16}, False),  # 5 tokens
        ({"width": 96, "heads": 6}, False),
        ({"patch": 20}, False),
    ],
)
def test_which_networks_fit(changes: dict, right: bool) -> None:
    assert vit.has_right_shape(small_vit(**changes)) is right
