"""Changes of an observation's spectrum: frequencies taken out, or amplitudes of another one."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from svea.augment.colour import conv
from svea.augment.registry import Draw, register, uniform
from svea.core.errors import UserError


def _draw_spectrum(
    x: Tensor,
    generator: Generator | None = None,
    *,
    highest: float = 0.5,
    widest: float = 0.05,
    probability: float = 0.5,
) -> Draw:
    check_probability("spectrum", probability)
    if not (0 < highest <= 0.5 and 0 < widest <= 0.5):
        raise UserError(
            f"spectrum: highest is {highest} and widest is {widest}; expected above 0 to 0.5 "
            "periods per pixel"
        )
    low = uniform(x, generator, 0, highest).round(decimals=2)
    width = uniform(x, generator, 0, widest).round(decimals=2)
    changed = uniform(x, generator, 0, 1) < probability
    return {"low": low, "high": low + width * changed}


@register(_draw_spectrum)
def spectrum(x: Tensor, *, low: Tensor, high: Tensor) -> Tensor:
    """Take a square band of frequencies, in periods per pixel, out of each sample (SRM)."""
    rows, columns = x.shape[2:]
    vertical = torch.fft.fftfreq(rows, device=x.device).abs()[:, None]
    horizontal = torch.fft.rfftfreq(columns, device=x.device)
    largest = torch.maximum(vertical, horizontal)  # (rows, columns / 2 + 1)
    low, high = (each[:, None, None, None] for each in (low, high))
    kept = (largest < low) | (largest >= high)
    waves = torch.fft.rfft2(_exact(x)) * kept
    return torch.fft.irfft2(waves, s=(rows, columns)).clamp(0, 1).to(x.dtype)


def _draw_amplitude_mix(
    x: Tensor,
    generator: Generator | None = None,
    *,
    share: tuple[float, float] = (0.8, 1.0),
    probability: float = 0.5,
) -> Draw:
    check_probability("amplitude_mix", probability)
    if not 0 <= share[0] <= share[1] <= 1:
        raise UserError(f"amplitude_mix: share is {share}; expected 0 to 1, the smaller one first")
    weight = conv.draw(x, generator)["weight"]
    drawn = uniform(x, generator, *share)
    changed = uniform(x, generator, 0, 1) < probability
    return {"weight": weight, "share": drawn * changed}


@register(_draw_amplitude_mix)
def amplitude_mix(x: Tensor, *, weight: Tensor, share: Tensor) -> Tensor:
    """Give each sample a share of another one's amplitudes, and keep its phases (Mix-Spectrum).

    The other one is the previous sample of the batch after a random convolution.
    """
    plain = _exact(x)
    waves = torch.fft.rfft2(plain)
    others = torch.fft.rfft2(conv.function(plain.roll(1, dims=0), weight=weight)).abs()
    amplitude = waves.abs().lerp(others, share[:, None, None, None].to(plain.dtype))
    mixed = torch.fft.irfft2(torch.polar(amplitude, waves.angle()), s=x.shape[2:])
    changed = (share > 0)[:, None, None, None]  # the others stay bit for bit
    return torch.where(changed, mixed.clamp(0, 1), plain).to(x.dtype)


def _exact(x: Tensor) -> Tensor:
    """In float32 at least: there are no transforms of bfloat16."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def check_probability(name: str, probability: float) -> None:
    """Raise if it is not one."""
    if not 0 <= probability <= 1:
        raise UserError(f"{name}: probability is {probability}; expected 0 to 1")
