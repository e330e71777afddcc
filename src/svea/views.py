"""The views of a batch that recipes name: clean, weak and strong, each drawn once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from svea.compilation import maybe_compiled


class Views:
    """The views of one batch of observations, each drawn once, when first asked for.

    Caching is part of the method: SVEA's unaugmented stream and its policy see the *same* shift.
    """

    def __init__(
        self,
        observations: Tensor,  # (B, 9, H, W) uint8
        clean: Callable[[Tensor], Tensor],
        weak: Callable[[Tensor], Tensor],
        strong: Callable[[Tensor], Tensor],
    ) -> None:
        """Take a batch and what makes its views: clean and weak of bytes, strong of weak pixels."""
        self._observations, self._clean, self._weak = observations, clean, weak
        self._strong = strong
        self._drawn: dict[tuple[str, int], Tensor] = {}

    def __getitem__(self, view: tuple[str, int]) -> Tensor:
        """One view, (B, 9, H, W), as pixels in [0, 1]."""
        if view not in self._drawn:
            self._drawn[view] = self._draw(*view)
        return self._drawn[view]

    def _draw(self, name: str, copy: int) -> Tensor:
        """Draw a view; shifting bytes before they become floats moves a quarter of the memory."""
        if name == "clean":
            return pixels(self._clean(self._observations))
        if name == "weak":
            return pixels(self._weak(self._observations))
        return self._strong(self["weak", copy])

    def stack(self, views: tuple[tuple[str, int], ...]) -> Tensor:
        """Several views behind one another on the batch axis, (V*B, 9, H, W)."""
        if len(views) == 1:  # the usual case for targets and policies needs no copy
            return self[views[0]]
        return torch.cat([self[view] for view in views])


def pixels(images: Tensor) -> Tensor:
    """Bytes as pixels in [0, 1], in the precision that the surrounding autocast region computes in.

    Bytes go straight to bfloat16 there: a float32 detour would move three times the memory.
    """
    device = images.device.type
    fast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if fast else torch.float32
    return maybe_compiled(_scaled)(images, dtype)


def _scaled(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes divided by 255."""
    return images.to(dtype).div_(255)
