"""Augmentations: pure functions on batches of stacked RGB frames.

Every augmentation is a pair of functions. `draw` makes the random parameters, one row per sample,
shared by the frames of its stack; `apply` uses them. Calling the augmentation does both:

>>> import torch
>>> x = torch.rand(2, 9, 84, 84)
>>> y = conv(x, torch.Generator().manual_seed(0))
>>> parameters = shift.draw(x, torch.Generator().manual_seed(0), pad=2)  # keep the draw ...
>>> torch.equal(shift.apply(x, parameters), shift.apply(x, parameters))  # ... to replay it
True

Nothing here waits for the device, so all of it may run inside a captured CUDA graph. Draws are
float32 or int64 whatever the dtype of the observations, so float32 and bfloat16 see the same draw.
"""

# ruff: noqa: F401
from svea.augment.distort import affine_jitter, amplitude_mix, blur, cutout, rotation, spectrum
from svea.augment.registry import (
    AUGMENTATIONS,
    Augment,
    Augmentation,
    Draw,
    Pictures,
    augmentation,
    none,
    register,
    transform,
)
from svea.augment.usual import centre_crop, conv, crop, overlay, overlay_drift, shift
