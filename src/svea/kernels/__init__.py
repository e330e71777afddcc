"""Kernels of our own in C, CUDA and Triton: a wing that `svea.speed` works without, too.

`svea.speed.device.wing` is the one place that imports it, and only for accelerated updates. Its
door is `accelerate`; the other names are parts of it for one augmentation, one network, one replay.
Which attributes kernels are assigned over stands in `cpu.accelerate` and in the tables of `gpu`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import nn

from svea.augment import Augmentation
from svea.kernels import cpu, gpu
from svea.replay import Replay

if TYPE_CHECKING:
    from svea.agents.agent import Agent


def accelerate(agent: Agent, precision: torch.dtype) -> set[nn.Module]:
    """Put kernels on an agent; the networks that they compute, which torch is not to compile."""
    if agent.device.type == "cuda":
        return gpu.accelerate(agent, precision)
    cpu.accelerate(agent)
    return set()


def fast_augmentation(augment: Augmentation, device: torch.device) -> Augmentation:
    """The augmentation with our own kernel for a CPU or a GPU, where there is one."""
    of_device = gpu if device.type == "cuda" else cpu
    return of_device.fast_augmentation(augment)


def compute(networks: Iterable[nn.Module]) -> None:
    """Put kernels on networks that lie on a CPU."""
    cpu.compute(networks)


def sample(replay: Replay) -> None:
    """Put a kernel on a replay that lies on a GPU."""
    gpu.take_over(gpu.SAMPLING, replay)


def missing_for_compiling() -> str:
    """What is missing to compile kernels for a CPU, as half a sentence; empty if nothing is."""
    try:
        cpu.library()  # a trial: an unusable compiler shows here, not in the first update
    except cpu.BuildError as error:
        return f"kernels in C cannot be compiled, {error}"
    return ""
