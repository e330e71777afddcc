"""The spectra against loops over samples, planes and frequencies in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from augmented import observations, seeded
from torch.nn import functional as F

from svea import augment


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


def test_a_batch_of_one_is_its_own_partner():
    x = observations(1)
    same = augment.amplitude_mix.draw(x, seeded(0), probability=1.0)
    y = augment.amplitude_mix.apply(x, same)
    assert y.shape == x.shape and not torch.equal(x, y)
