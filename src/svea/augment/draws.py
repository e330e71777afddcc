"""Random numbers, one row per sample."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def integers(x: Tensor, generator: Generator | None, count: int, *columns: int) -> Tensor:
    """Uniform integers 0..count-1, one row per sample."""
    return torch.randint(count, (len(x), *columns), generator=generator, device=x.device)


def uniform(
    x: Tensor, generator: Generator | None, low: float, high: float, *columns: int
) -> Tensor:
    """Uniform float32 numbers in [low, high), one row per sample."""
    unit = torch.rand((len(x), *columns), generator=generator, device=x.device)
    return low + (high - low) * unit
