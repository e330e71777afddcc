"""Distortions against kornia, numpy and their definitions."""

import numpy as np
import pytest
import torch
from augmented import SIDE, call, few, observations, seeded, seeds
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from svea import augment
from svea.augment import distort
from svea.core.errors import UserError


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
    with pytest.raises(UserError, match="20x30"):
        augment.rotation(torch.zeros(1, 3, 20, 30))


@pytest.mark.parametrize("columns", [12, 15])
def test_spectrum_takes_a_square_band_out(columns):
    x = observations(side=15)[..., :columns].double()
    low, high = torch.tensor([0.0, 0.11, 0.29, 0.37]), torch.tensor([0.06, 0.23, 0.29, 0.48])
    y = augment.spectrum.apply(x, {"low": low, "high": high})
    for sample, a, b, result in zip(x.numpy(), low.tolist(), high.tolist(), y.numpy(), strict=True):
        for plane, found in zip(sample, result, strict=True):
            waves = np.fft.fft2(plane)
            for row, fy in enumerate(np.fft.fftfreq(15)):
                for column, fx in enumerate(np.fft.fftfreq(columns)):
                    inside_high = abs(fy) < b and abs(fx) < b
                    if inside_high and not (abs(fy) < a and abs(fx) < a):
                        waves[row, column] = 0
            wanted = np.fft.ifft2(waves)
            assert np.abs(wanted.imag).max() < 1e-12
            np.testing.assert_allclose(found, wanted.real.clip(0, 1), atol=1e-12)
    torch.testing.assert_close(y[2], x[2], rtol=0, atol=1e-12)  # an empty band
    assert augment.spectrum.apply(x, {"low": low, "high": high})[0].mean() < x[0].mean() / 2


def test_spectrum_draws_bands_in_hundredths_for_half_of_the_samples():
    draw = augment.spectrum.draw(torch.zeros(4000, 3, 8, 8), seeded(0))
    low, width = draw["low"], draw["high"] - draw["low"]
    for numbers, most in ((low, 0.5), (width, 0.05)):
        assert numbers.min() >= 0 and abs(numbers.max() - most) < 1e-6
        torch.testing.assert_close(100 * numbers, (100 * numbers).round(), rtol=0, atol=1e-4)
    changed = (width > 1e-4).float().mean()
    assert abs(changed - 0.5 * 0.9) < 0.03  # of those that are changed a tenth draws a width of 0


def test_amplitude_mix_keeps_phases_and_takes_amplitudes():
    x = observations(side=14).double()
    draw = augment.amplitude_mix.draw(x, seeded(3), probability=1.0)
    draw["share"] = torch.tensor([0.8, 1.0, 0.9, 0.0])
    y = augment.amplitude_mix.apply(x, draw)
    assert torch.equal(y[3], x[3]), "left alone"
    for index in range(3):
        share, partner = float(draw["share"][index]), x[index - 1]
        for frame in range(0, 9, 3):
            padded = F.pad(partner[None, frame : frame + 3], (1, 1, 1, 1), mode="replicate")
            other = F.conv2d(padded, draw["weight"][index].double()).sigmoid()[0]
            for colour in range(3):
                mine, its = (np.fft.fft2(each.numpy()) for each in (x[index, frame + colour],
                                                                    other[colour]))  # fmt: skip
                amplitude = (1 - share) * np.abs(mine) + share * np.abs(its)
                wanted = np.fft.ifft2(amplitude * np.exp(1j * np.angle(mine)))
                assert np.abs(wanted.imag).max() < 1e-12
                found = y[index, frame + colour].numpy()
                np.testing.assert_allclose(found, wanted.real.clip(0, 1), atol=1e-6)


def test_amplitude_mix_draws_shares_for_half_of_the_samples():
    draw = augment.amplitude_mix.draw(torch.zeros(4000, 3, 8, 8), seeded(0))
    assert draw["weight"].shape == (4000, 3, 3, 3, 3)
    some = draw["share"][draw["share"] > 0]
    assert abs(len(some) / 4000 - 0.5) < 0.03
    assert some.min() >= 0.8 and some.max() <= 1 and abs(some.mean() - 0.9) < 0.01
