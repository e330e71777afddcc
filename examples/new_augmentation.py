"""Add your own augmentation: a function that draws, one that applies, and a decorator.

Run it to see a sheet of the result, alone and composed with `conv`:

    python examples/new_augmentation.py --out gamma.png

To train with it, name it by its module, from this folder:

    svea train walker_walk --augment "conv|new_augmentation:gamma"
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from torch import Generator, Tensor

from svea.augment import Draw, register
from svea.core.errors import UserError
from svea.evaluation import sheets


def draw_gamma(x: Tensor, generator: Generator | None = None, *, strongest: float = 3.0) -> Draw:
    """Draw one exponent per sample, as often above 1 (darker) as below 1 (brighter)."""
    if strongest < 1:
        raise UserError(f"gamma: strongest is {strongest}; expected 1 or more")
    unit = torch.rand(len(x), generator=generator, device=x.device)
    return {"exponent": torch.exp((2 * unit - 1) * math.log(strongest))}


@register(draw_gamma)
def gamma(x: Tensor, *, exponent: Tensor) -> Tensor:
    """Raise every value to the sample's exponent; [0, 1] stays [0, 1]."""
    return x ** exponent.to(x.dtype).view(-1, 1, 1, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gamma.png"))
    arguments = parser.parse_args()
    print(sheets.augmentations(arguments.out, rows=("none", "gamma", "conv+gamma", "conv|gamma")))
