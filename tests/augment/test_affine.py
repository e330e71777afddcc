"""Rotation, warp and jitter against kornia and their definitions."""

from __future__ import annotations

import pytest
import torch
from augmented import (
    SIDE,
    call,
    few,
    observations,
    seeded,
    seeds,
)
from hypothesis import given
from hypothesis import strategies as st

from svea import augment
from svea.augment import distort
from svea.core.errors import UserError


def test_warp_agrees_with_kornia():
    transform = pytest.importorskip("kornia.geometry.transform")
    x = observations(5, side=33)
    draw = augment.affine_jitter.draw(x, seeded(0), degrees=30.0, shear=20.0)
    degrees, scale, shear = draw["degrees"], draw["scale"], draw["shear"]
    y = distort.warp(x, *distort.inverse_affine(degrees, scale[:, 0], scale[:, 1], shear))
    centre = torch.full((5, 2), 16.0)
    matrix = transform.get_rotation_matrix2d(centre, degrees, torch.ones(5, 2))
    linear = torch.eye(3).repeat(5, 1, 1)
    linear[:, 0, 0], linear[:, 1, 1] = scale[:, 0], scale[:, 1]
    linear[:, 0, 1] = shear.deg2rad().tan() * scale[:, 1]
    linear[:, 0, 2] = 16 - (linear[:, 0, 0] + linear[:, 0, 1]) * 16
    linear[:, 1, 2] = 16 - linear[:, 1, 1] * 16
    expected = transform.warp_affine(x, matrix @ linear, (33, 33), padding_mode="border")
    torch.testing.assert_close(y, expected, atol=1e-4, rtol=0)


def test_jitter_agrees_with_kornia():
    enhance = pytest.importorskip("kornia.enhance")
    # muted colours, so that nothing is clipped on the way: kornia clips after every step
    x = 0.4 + 0.2 * observations(4, stack=1)
    b, c, s = (
        torch.tensor(v) for v in ([1.1, 0.8, 1.2, 1.0], [0.7, 1.3, 1.0, 1.2], [0.6, 1.4, 1.2, 0])
    )
    y = distort.jitter(x, b, c, s, torch.zeros(4))
    expected = x * b.view(-1, 1, 1, 1)
    expected = enhance.adjust_contrast_with_mean_subtraction(expected, c)
    expected = enhance.adjust_saturation_with_gray_subtraction(expected, s)
    torch.testing.assert_close(y, expected, atol=1e-3, rtol=0)


def test_hue_turns_the_chroma_plane_of_yiq():
    to_yiq = torch.tensor(
        [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]]
    )
    x = 0.45 + 0.1 * observations(6, stack=1)
    hue, one = torch.linspace(-0.5, 0.5, 6), torch.ones(6)
    y = distort.jitter(x, one, one, one, hue)
    before, after = (torch.einsum("ij,bjhw->bihw", to_yiq, image) for image in (x, y))
    torch.testing.assert_close(after[:, 0], before[:, 0], atol=2e-4, rtol=0)  # brightness stays
    chroma = torch.complex(before[:, 1], before[:, 2])
    chroma = chroma * torch.exp(2j * torch.pi * hue).view(-1, 1, 1)
    torch.testing.assert_close(after[:, 1], chroma.real, atol=2e-4, rtol=0)
    torch.testing.assert_close(after[:, 2], chroma.imag, atol=2e-4, rtol=0)


@few
@given(st.floats(0, 1), seeds)
def test_jitter_keeps_grey_images_grey(level, seed):
    y = call("affine_jitter", torch.full((2, 9, SIDE, SIDE), level), seed)
    torch.testing.assert_close(y[:, 0], y[:, 1], atol=1e-4, rtol=0)
    torch.testing.assert_close(y[:, 0], y[:, 2], atol=1e-4, rtol=0)


def test_affine_jitter_without_strength_changes_nothing():
    x = observations()
    off = dict.fromkeys(("degrees", "shear", "brightness", "contrast", "saturation", "hue"), 0)
    y = augment.affine_jitter(x, seeded(0), scale=(1, 1), **off)
    torch.testing.assert_close(y, x, atol=1e-5, rtol=0)


def test_rotation_turns_by_quarters_and_uses_all_four():
    x = observations(64)
    draw = augment.rotation.draw(x, seeded(0))
    assert draw["quarters"].unique().tolist() == [0, 1, 2, 3]
    y = augment.rotation.apply(x, draw)
    for sample, quarter, result in zip(x, draw["quarters"].tolist(), y, strict=True):
        assert torch.equal(result, sample.rot90(quarter, (1, 2)))


def test_rotation_by_any_angle_covers_the_range_and_meets_the_quarters():
    x = observations(1000, stack=1, side=4)
    degrees = augment.rotation.draw(x, seeded(0), max_degrees=180)["degrees"]
    assert degrees.min() < -178 and degrees.max() > 178
    assert torch.histc(degrees, 12, -180, 180).min() > 50
    x = observations(4)
    angles = {"degrees": torch.tensor([0.0, 90.0, 180.0, 270.0])}
    quarters = {"quarters": torch.arange(4)}
    expected = augment.rotation.apply(x, quarters)
    torch.testing.assert_close(augment.rotation.apply(x, angles), expected, atol=1e-4, rtol=0)


def test_quarter_turns_need_squares():
    with pytest.raises(UserError, match=r"got 20x30\. Pass max_degrees"):
        augment.rotation(torch.zeros(1, 3, 20, 30))
