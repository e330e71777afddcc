"""Observations to augment, and augmentations with parameters that fit them."""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from svea.augment import AUGMENTATIONS
from svea.augment.images import ImageBank

SIDE = 36
BANK = ImageBank(
    torch.randint(256, (5, 3, 40, 40), generator=Generator().manual_seed(0), dtype=torch.uint8)
)
LARGE_BANK = ImageBank(
    torch.randint(256, (5, 3, 64, 64), generator=Generator().manual_seed(1), dtype=torch.uint8)
)
PARAMETERS: dict[str, dict] = {
    "crop": {"size": 32},
    "overlay": {"images": BANK},
    "overlay_drift": {"images": LARGE_BANK, "drift": 4},
}
MOVING = {"overlay_drift"}  # frames of a stack are augmented differently
MIXING = {"amplitude_mix"}  # a sample gets something of another one

names = st.sampled_from(sorted(AUGMENTATIONS))
seeds = st.integers(0, 2**31)
batches = st.integers(1, 5)
frames = st.integers(1, 3)
dtypes = st.sampled_from([torch.float32, torch.bfloat16])
few = settings(max_examples=40, deadline=None)


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def observations(batch: int = 4, stack: int = 3, side: int = SIDE, seed: int = 0) -> Tensor:
    return torch.rand(batch, 3 * stack, side, side, generator=seeded(seed))


def call(name: str, x: Tensor, seed: int) -> Tensor:
    return AUGMENTATIONS[name](x, seeded(seed), **PARAMETERS.get(name, {}))


def draw_of(name: str, x: Tensor, seed: int) -> dict:
    return AUGMENTATIONS[name].draw(x, seeded(seed), **PARAMETERS.get(name, {}))


def rows_of(draw: dict, index: Tensor) -> dict:
    return {key: value[index] if torch.is_tensor(value) else value for key, value in draw.items()}


def triangles(start: float, length: float, size: int, side: int) -> Tensor:
    """Weights (size, side) of a triangle filter over [start, start + length)."""
    weights = torch.zeros(size, side, dtype=torch.float64)
    step = length / size
    for place in range(size):
        centre = start + (place + 0.5) * step - 0.5
        for pixel in range(int(start), int(start + length)):
            weights[place, pixel] = max(0.0, 1 - abs(pixel - centre) / max(step, 1.0))
    return weights / weights.sum(1, keepdim=True)
