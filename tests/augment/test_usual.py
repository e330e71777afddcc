"""Shift and crop against padded images; random convolution and overlay against loops."""

import math

import pytest
import torch
from augmented import BANK, LARGE_BANK, SIDE, observations, seeded
from torch.nn import functional as F

from svea import augment
from svea.augment import usual


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
    gathered = usual.pick(x, rows[:, :, None] * shape[3] + columns[:, None])
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


@pytest.mark.parametrize("parameters", [{}, {"weight": 0.0}, {"weight": 0.3}, {"weight": 1.0}])
def test_overlay_is_a_weighted_mean_of_observation_and_picture(parameters):
    x, weight = observations(), parameters.get("weight", 0.5)
    picture = BANK.draw(4, SIDE, SIDE, seeded(5))
    expected = (1 - weight) * x + weight * picture.repeat(1, 3, 1, 1)
    torch.testing.assert_close(augment.overlay(x, seeded(5), images=BANK, **parameters), expected)


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
