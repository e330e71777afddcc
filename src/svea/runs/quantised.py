"""Weights stored small: large matrices in 8 bits, everything else in half precision.

64 weights in a row are integers from -127 to 127 and share a scale. On agents of walker_walk and
finger_spin this moved actions by 0.003 on average (`benchmarks/stored.py`); 8 bits and one scale
per row for every matrix moved them by 0.01. Small layers hold few of the weights, and rounding them
costs most.
"""

from __future__ import annotations

import torch
from torch import Tensor

SCALE = ":scale"
"""End of the name of a matrix's scales; no parameter has a colon in its name."""
LARGEST = 127
BLOCK = 64
LARGE = 2**18
"""Weights from which a matrix is stored in 8 bits."""


def shrink(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What `restore` gives back nearly."""
    small: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if tensor.dtype != torch.float32:
            small[name] = tensor
        elif tensor.ndim == 2 and tensor.numel() >= LARGE and tensor.numel() % BLOCK == 0:
            blocks = tensor.reshape(-1, BLOCK)
            least = torch.finfo(torch.float32).tiny
            scale = (blocks.abs().amax(1) / LARGEST).clamp_min(least).bfloat16()
            steps = (blocks / scale.float()[:, None]).round().clamp(-LARGEST, LARGEST)
            small |= {name: steps.to(torch.int8).view_as(tensor), name + SCALE: scale}
        else:
            small[name] = tensor.half()
    return small


def restore(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything in float32 again; what was not stored small stays as it is."""
    whole: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if tensor.dtype == torch.int8:
            blocks = tensor.float().reshape(-1, BLOCK) * state[name + SCALE].float()[:, None]
            whole[name] = blocks.view_as(tensor)
        elif not name.endswith(SCALE):
            whole[name] = tensor.float() if tensor.dtype == torch.float16 else tensor
    return whole
