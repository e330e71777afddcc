"""How long augmentations take, next to a naive loop over the samples.

Times are the fastest of the repeats, which other work on the machine disturbs least.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from svea.augment import AUGMENTATIONS, Augment, Augmentation
from svea.augment.images import ImageBank
from svea.augment.registry import find
from svea.bench import Row, captured, times_ms
from svea.config.names import WITH_PICTURES
from svea.core.errors import UserError, at_least
from svea.speed import choose_speed
from svea.speed.accelerate import with_kernels

REFERENCE = "grouped convolution"
"""What all are compared with: padding, one grouped convolution and a sigmoid."""


def time_augmentations(
    names: Iterable[str] = (),
    device: str = "cpu",
    batch: int | None = None,
    size: int = 84,
    repeats: int = 50,
    bfloat16: bool = False,
    on_name: Callable[[str], None] = lambda name: None,
) -> list[Row]:
    """Time augmentations as updates run them, next to a reference; arguments as in `svea bench`.

    On a CPU they run in C where there is a kernel, on a GPU compiled and captured in a CUDA graph.
    `on_name` is called with each before it is timed. `relative` is the share of the reference's
    time, `loop` how many times as long a Python loop over the samples takes.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("bench augment: no CUDA device here; use --device cpu")
    batch = (256 if device == "cuda" else 64) if batch is None else batch
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    bank = ImageBank.procedural(device=device)
    special: dict[str, dict[str, Any]] = {name: {"images": bank} for name in WITH_PICTURES}
    special["crop"] = {"size": size}
    for what, given in (("repeats", repeats), ("batch", batch), ("size", size)):
        at_least(1).check(what, given)
    names = [name.replace("-", "_") for name in names]
    for name in names:
        find(name)  # an unknown one is named before anything is timed
    pixels = torch.rand(batch, 9, size, size, device=device, dtype=dtype)
    reference = _milliseconds(_convolution(pixels), pixels, repeats)
    first: Row = {"name": REFERENCE, "device": device, "batch": tuple(pixels.shape)}
    rows = [first | {"ms": reference, "relative": 1.0, "loop_ms": None, "loop": None}]
    for name in names or AUGMENTATIONS:
        on_name(name)
        side = size + 16 if name == "crop" else size
        x = torch.rand(batch, 9, side, side, device=device, dtype=dtype)
        plain = find(name).bind(**special.get(name.partition(":")[0], {}))
        rows.append({"name": name} | _measured(plain, x, repeats, reference))
        if name == "shift":  # the replay holds bytes: shifting those moves less memory
            of_bytes = _measured(plain, (x * 255).byte(), repeats, reference)
            rows.append({"name": f"{name} (uint8)"} | of_bytes)
    return rows


def _measured(plain: Augmentation, x: Tensor, repeats: int, reference: float) -> Row:
    """Time an augmentation and its loop over single samples."""
    eager = choose_speed("auto", x.device) == "eager"

    def loop(x: Tensor) -> Tensor:
        return torch.cat([plain(sample[None]) for sample in x])

    ms = _milliseconds(plain if eager else with_kernels(plain, x.device), x, repeats)
    loop_ms = _milliseconds(loop, x, max(3, repeats // 10), captures=False)
    what = {"device": x.device.type, "batch": tuple(x.shape), "ms": ms}
    return what | {"relative": ms / reference, "loop_ms": loop_ms, "loop": loop_ms / ms}


def _convolution(x: Tensor) -> Augment:
    """A bare grouped convolution with given weights, to compare with on this machine."""
    batch, channels, height, width = x.shape
    weight = torch.randn(batch * channels, 3, 3, 3, device=x.device, dtype=x.dtype)

    def convolve(x: Tensor) -> Tensor:
        padded = F.pad(x, (1, 1, 1, 1), mode="replicate").view(1, -1, height + 2, width + 2)
        return F.conv2d(padded, weight, groups=batch * channels // 3).sigmoid().view(x.shape)

    return convolve


def _milliseconds(function: Augment, x: Tensor, repeats: int, captures: bool = True) -> float:
    """The time of `function(x)`, from call to completion.

    On a GPU it is compiled and captured, and replays are timed, which leaves out the host.
    """
    if not captures or x.device.type != "cuda":
        return float(times_ms([lambda: function(x)], repeats, x.device).min())
    torch.compiler.reset()  # earlier functions must not count as recompilations
    compiled = torch.compile(function, dynamic=False, fullgraph=True)
    calls = 10  # per replay, so that the start of a replay does not count
    graph = captured(lambda: [compiled(x) for _ in range(calls)])
    return float(times_ms([graph.replay], repeats, x.device).min()) / calls
