"""Random convolution and overlay against loops over samples."""

from __future__ import annotations

import torch
from augmented import (
    BANK,
    SIDE,
    observations,
    seeded,
)
from torch.nn import functional as F

from svea import augment


def test_conv_is_a_loop_of_convolutions():
    x = observations()
    draw = augment.conv.draw(x, seeded(3))
    assert draw["weight"].shape == (4, 3, 3, 3, 3)
    y = augment.conv.apply(x, draw)
    for sample, weight, result in zip(x, draw["weight"], y, strict=True):
        for frame in range(0, 9, 3):
            padded = F.pad(sample[None, frame : frame + 3], (1, 1, 1, 1), mode="replicate")
            expected = F.conv2d(padded, weight).sigmoid()[0]
            torch.testing.assert_close(result[frame : frame + 3], expected)


def test_conv_weights_are_standard_normal():
    weight = augment.conv.draw(torch.zeros(2000, 3, 8, 8), seeded(0))["weight"]
    assert abs(weight.mean()) < 0.01 and abs(weight.std() - 1) < 0.01


def test_overlay_is_half_observation_half_picture():
    x = observations()
    picture = BANK.draw(4, SIDE, SIDE, seeded(5))
    expected = 0.5 * x + 0.5 * picture.repeat(1, 3, 1, 1)
    torch.testing.assert_close(augment.overlay(x, seeded(5), images=BANK), expected)


def test_overlay_weight_runs_from_observation_to_picture():
    x = observations()
    torch.testing.assert_close(augment.overlay(x, seeded(5), images=BANK, weight=0.0), x)
    only = augment.overlay(x, seeded(5), images=BANK, weight=1.0)
    torch.testing.assert_close(only[:, 3:6], BANK.draw(4, SIDE, SIDE, seeded(5)))
