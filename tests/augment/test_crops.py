"""Shift and crop against padded images."""

from __future__ import annotations

import math

import pytest
import torch
from augmented import (
    SIDE,
    observations,
    seeded,
)
from torch.nn import functional as F

from svea import augment
from svea.augment import crops


@pytest.mark.parametrize("pad", [0, 1, 4, 50])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
def test_shift_is_a_crop_of_the_padded_image(pad, dtype):
    x = (observations(6) * 255).byte()
    draw = augment.shift.draw(x, seeded(0), pad=pad)
    padded = F.pad(x.float(), (pad,) * 4, mode="replicate")
    expected = [
        sample[:, top : top + SIDE, left : left + SIDE]
        for sample, (top, left) in zip(padded, draw["corner"].tolist(), strict=True)
    ]
    x = x if dtype == torch.uint8 else x.to(dtype)
    assert torch.equal(augment.shift.apply(x, draw).float(), torch.stack(expected))


@pytest.mark.parametrize("shape", [(3, 9, 20, 31), (3, 9, 31, 20)])
def test_pixels_are_gathered_alike_by_both_ways(shape):
    """The copy of whole rows on a CPU against the gather that GPUs and compilers get."""
    x = torch.rand(shape, generator=seeded(0))
    corner = torch.tensor([[0, 8], [4, 4], [8, 0]])
    rows = (torch.arange(shape[2]) + corner[:, :1] - 4).clamp(0, shape[2] - 1)
    columns = (torch.arange(shape[3]) + corner[:, 1:] - 4).clamp(0, shape[3] - 1)
    gathered = crops.pick(x, rows[:, :, None] * shape[3] + columns[:, None])
    assert torch.equal(augment.shift.apply(x, {"corner": corner, "pad": 4}), gathered)


def test_every_shift_and_every_crop_occurs():
    x = torch.zeros(1, 3, 100, 100).expand(20_000, -1, -1, -1)
    for draw, count in (
        (augment.shift.draw(x, seeded(0)), 9),
        (augment.crop.draw(x, seeded(0)), 17),
    ):
        corners, occurrences = draw["corner"].unique(dim=0, return_counts=True)
        assert len(corners) == count**2
        assert corners.min() == 0 and corners.max() == count - 1
        expected = 20_000 / count**2
        assert (occurrences - expected).abs().max() < 6 * math.sqrt(expected)


def test_centre_crop_is_the_middle_offset_of_crop():
    x = observations(2, side=100)
    middle = {"corner": torch.tensor([[8, 8], [8, 8]]), "size": 84}
    assert torch.equal(augment.centre_crop(x), augment.crop.apply(x, middle))
