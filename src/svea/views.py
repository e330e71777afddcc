"""What an agent sees of a stored observation: the clean, the weak and the strong view.

A recipe (recipes.py) says which of them feed the Q-prediction, the Q-target and the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from svea.augment import Augment, centre_crop, crop, none, shift
from svea.config import Config


def pixels(images: Tensor, scale: Callable[[Tensor, torch.dtype], Tensor] | None = None) -> Tensor:
    """Bytes as pixels in [0, 1], in the precision that the surrounding autocast region computes in.

    Bytes go straight to bfloat16 there: a float32 detour would move three times the memory.
    """
    device = images.device.type
    fast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if fast else torch.float32
    return (scale or scaled)(images, dtype)


def scaled(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes divided by 255."""
    return images.to(dtype).div_(255)


@dataclass
class Views:
    """The views of one batch of observations, each drawn once, when first asked for.

    Caching is part of the method: SVEA's unaugmented stream and its policy see the *same* shift.
    An agent keeps one without a batch, `Agent.view_maker`, whose `weak`, `strong`, `pixels` and
    `join` are seams: `speed` and `kernels` assign faster ones over them.

    Attributes:
        observations: uint8 (B, 9, H, W).
        clean: what acting and the clean view see of the bytes.
        weak: the weak augmentation, of the bytes.
        strong: the strong augmentation, of the weak view's pixels in [0, 1].
        pixels: makes pixels out of bytes.
        join: puts views one after the other on the batch axis, as the trunk takes them.
    """

    observations: Tensor | None
    clean: Callable[[Tensor], Tensor]
    weak: Callable[..., Tensor]
    strong: Callable[..., Tensor]
    pixels: Callable[[Tensor], Tensor] = pixels
    join: Callable[[list[Tensor]], Any] = torch.cat
    _drawn: dict[tuple[str, int], Tensor] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, config: Config, strong: Augment) -> Views:
        """The views that a configuration describes, of a batch that is still to come.

        - clean: the observation as stored, or its centre where the weak view is a crop;
        - weak: the observation after a random shift (DrQ), or a random crop (RAD);
        - strong: the weak view after the strong augmentation (random convolution, overlay, ...).
        """
        size = config.image_size
        if config.crop:
            return cls(None, partial(centre_crop, size=size), crop.bind(size=size), strong)
        return cls(None, none, shift.bind(pad=config.shift), strong)

    def __call__(self, observations: Tensor, generator: Generator | None) -> Views:
        """The same views of a batch, drawn from a generator."""
        return replace(
            self,
            observations=observations,
            weak=lambda images: self.weak(images, generator),
            strong=lambda images: self.strong(images, generator),
        )

    def __getitem__(self, view: tuple[str, int]) -> Tensor:
        """One view, (B, 9, H, W), as pixels in [0, 1]."""
        if view not in self._drawn:
            self._drawn[view] = self._draw(*view)
        return self._drawn[view]

    def _draw(self, name: str, copy: int) -> Tensor:
        """Draw a view; shifting bytes before they become floats moves a quarter of the memory."""
        assert self.observations is not None
        if name == "strong":
            return self.strong(self["weak", copy])
        return self.pixels((self.clean if name == "clean" else self.weak)(self.observations))

    def stack(self, views: tuple[tuple[str, int], ...]) -> Any:
        """Several views, one after the other on the batch axis, (V*B, 9, H, W)."""
        if len(views) == 1:  # the usual case for targets and policies needs no copy
            return self[views[0]]
        return self.join([self[view] for view in views])
