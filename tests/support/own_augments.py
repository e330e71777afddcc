"""Augmentations as a user writes them, in a module of their own."""

from collections.abc import Callable
from typing import Any

import torch

from svea.augment import register


def draw_gamma(x: torch.Tensor, generator: torch.Generator | None = None) -> dict[str, Any]:
    return {"exponent": 0.5 + torch.rand(len(x), generator=generator, device=x.device)}


@register(draw_gamma)
def own_gamma(x: torch.Tensor, *, exponent: torch.Tensor) -> torch.Tensor:
    return x ** exponent.to(x.dtype).view(-1, 1, 1, 1)


def own_dim(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """A plain function, without a draw."""
    return x / 2


NOT_AN_AUGMENTATION = 3


def draw_nothing() -> dict[str, Any]:
    return {}


def changed(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """An augmentation that always does the same."""

    def augment(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return change(x)

    return augment


cut_off = changed(lambda x: x[:, :, :10])
in_bytes = changed(lambda x: (255 * x).byte())
too_bright = changed(lambda x: 3 * x)
not_finite = changed(lambda x: x * torch.nan)
unseeded = changed(lambda x: x * torch.rand(()))


def forgets(x: torch.Tensor, generator: torch.Generator | None = None) -> None:
    """Without a return."""


def raises(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    raise RuntimeError("no lamp")
