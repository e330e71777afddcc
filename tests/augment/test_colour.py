"""Random convolution and overlay against loops over samples."""

from __future__ import annotations

import torch
from augmented import (
    BANK,
    LARGE_BANK,
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


def drift_of(x, seed=5, drift=4):
    return augment.overlay_drift.draw(x, seeded(seed), images=LARGE_BANK, drift=drift)


def test_overlay_drift_moves_a_window_over_one_picture():
    x = observations()
    draw = drift_of(x)
    draw["speed"][:2] = torch.tensor([[4, -4], [0, 3]])  # rows, columns
    y = augment.overlay_drift.apply(x, draw)
    large = LARGE_BANK.draw(4, SIDE + 24, SIDE + 24, seeded(5))  # 3 frames, 4 pixels, both sides
    for sample in range(4):
        down, right = draw["speed"][sample].tolist()
        for frame in range(3):
            top, left = 12 + frame * down, 12 + frame * right
            window = large[sample, :, top : top + SIDE, left : left + SIDE]
            part = slice(3 * frame, 3 * frame + 3)
            torch.testing.assert_close(y[sample, part], 0.5 * x[sample, part] + 0.5 * window)


def test_overlay_drift_without_speed_is_overlay():
    x = observations()
    still = augment.overlay_drift.draw(x, seeded(5), images=LARGE_BANK, drift=0)
    expected = augment.overlay(x, seeded(5), images=LARGE_BANK)
    torch.testing.assert_close(augment.overlay_drift.apply(x, still), expected)


def test_overlay_drift_draws_every_speed_equally_often_on_each_axis():
    speed = augment.overlay_drift.draw(
        torch.zeros(4000, 9, 8, 8), seeded(0), images=LARGE_BANK, drift=2
    )["speed"]
    counts = torch.stack([(speed == step).sum(0) for step in range(-2, 3)])
    assert counts.sum() == 8000 and (counts - 800).abs().max() < 120  # 5 standard deviations
    assert abs(torch.corrcoef(speed.T.float())[0, 1]) < 0.1, "the axes are independent"


def test_overlay_drift_defaults_to_simgrls_six_pixels():
    speed = augment.overlay_drift.draw(torch.zeros(500, 3, 8, 8), seeded(0), images=LARGE_BANK)
    assert speed["margin"] == 6 and speed["speed"].aminmax() == (-6, 6)
