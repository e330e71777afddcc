"""Cutout and blur against their definitions."""

from __future__ import annotations

import pytest
import torch
from augmented import (
    SIDE,
    observations,
    seeded,
)
from torch.nn import functional as F

from svea import augment


@pytest.mark.parametrize("colour", [False, True])
def test_cutout_covers_one_box_and_nothing_else(colour):
    x = observations(20).clamp(min=0.01)
    draw = augment.cutout.draw(x, seeded(1), smallest=5, largest=SIDE, colour=colour)
    y = augment.cutout.apply(x, draw)
    for sample, result, (top, left), (height, width), fill in zip(
        x, y, draw["corner"].tolist(), draw["size"].tolist(), draw["fill"], strict=True
    ):
        expected = sample.clone()
        box = fill.repeat(3)[:, None, None].expand(-1, height, width)
        assert expected[:, top : top + height, left : left + width].shape == box.shape
        expected[:, top : top + height, left : left + width] = box
        assert torch.equal(result, expected)
        assert colour or not fill.any()


def test_cutout_boxes_take_every_size_and_reach_every_edge():
    x = torch.zeros(1, 3, 84, 84).expand(20_000, -1, -1, -1)
    draw = augment.cutout.draw(x, seeded(0))
    assert draw["size"].unique().tolist() == list(range(10, 31))
    assert draw["corner"].min() == 0 and (draw["corner"] + draw["size"]).max() == 84


def test_blur_agrees_with_kornia():
    filters = pytest.importorskip("kornia.filters")
    x, sigma = observations(4), torch.tensor([0.3, 0.8, 1.4, 2.0])
    wide = 2 * SIDE - 1  # kornia cuts its kernel off: give it all that reaches into the image
    blurred, weight = (
        filters.gaussian_blur2d(
            image, wide, torch.stack([sigma, sigma], dim=1), border_type="constant"
        )
        for image in (F.pad(x, (SIDE,) * 4), F.pad(torch.ones_like(x), (SIDE,) * 4))
    )
    expected = (blurred / weight)[..., SIDE:-SIDE, SIDE:-SIDE]
    y = augment.blur.apply(x, {"sigma": sigma})
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=0)
