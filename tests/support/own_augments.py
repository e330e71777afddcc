"""Augmentations as a user writes them, in a module of their own."""

from __future__ import annotations

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


def cut_off(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    return x[:, :, :10]


def in_bytes(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    return (255 * x).byte()


def too_bright(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    return 3 * x


def not_finite(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    return x * torch.nan


def forgets(x: torch.Tensor, generator: torch.Generator | None = None) -> None:
    """Without a return."""


def raises(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    raise RuntimeError("no lamp")


def unseeded(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    return x * torch.rand(())
