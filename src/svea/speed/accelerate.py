"""Fast versions of what an agent computes, put on from outside.

Agents, networks, views and augmentations are plain PyTorch and know nothing of this module. What it
assigns over are their seams, each marked where it stands: the function of an augmentation, `pixels`
and `join` of views, `forward` of networks, `Actor.sample`, `Replay.sample`, and of agents `step`,
`overlap`, `update_target`, `weighted_error` and `policy_losses`.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from svea import views
from svea.agents.agent import Agent
from svea.agents.auxiliary import PAD
from svea.augment import Augmentation, transform
from svea.speed.device import NO_KERNELS, wing


def accelerate(agent: Agent, speed: str, precision: torch.dtype = torch.bfloat16) -> None:
    """Put fast versions of its parts on an agent; with ``eager`` it stays as it was written.

    On a CPU these are kernels in C, compiled in a second; torch.compile takes most of a minute
    there and gains next to nothing (docs/lab-book.md). Elsewhere torch compiles networks and
    augmentations, and on an NVIDIA GPU our own kernels take the place of some, a few of them only
    where ``precision`` is bfloat16. Nothing that other agents use is touched.
    """
    if speed == "eager":
        return
    maker, device = agent.view_maker, agent.device
    maker.weak, maker.strong = (
        transform(augment, partial(fast_augmentation, device=device))
        for augment in (maker.weak, maker.strong)
    )
    if isinstance(maker.strong, Augmentation):  # in a chain, each checks what the others made
        maker.strong = replace(maker.strong, of_bytes=True)
    kernels = wing(device)
    if device.type == "cuda" and kernels is None:
        warnings.warn(f"updates take longer: {NO_KERNELS}", stacklevel=2)
    if device.type != "cpu":
        maker.pixels = lambda images: views.pixels(images, compiled(views.scaled))
    taken = kernels.accelerate(agent, precision) if kernels else set()
    if device.type != "cpu":
        compile_networks(agent, taken)


OF_SPECTRA = ("spectrum", "amplitude_mix")
"""Fourier transforms: for complex numbers torch.compile makes no code, it warns and gives up."""


def fast_augmentation(augment: Augmentation, device: torch.device) -> Augmentation:
    """The augmentation as an accelerated update computes it; its draws stay the same.

    Draws are not compiled: torch.compile does not take explicit generators.
    """
    fast = with_kernels(augment, device)
    if device.type == "cpu" or fast.function is not augment.function or augment.name in OF_SPECTRA:
        return fast  # nothing is left to compile
    return replace(fast, function=compiled(fast.function))


def with_kernels(augment: Augmentation, device: torch.device) -> Augmentation:
    """The augmentation with our own kernel for a device, where there is one."""
    kernels = wing(device)
    return kernels.fast_augmentation(augment, device) if kernels else augment


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function, once for all agents; torch compiles it again for every new shape."""
    return torch.compile(function, dynamic=False)


def compile_networks(agent: Agent, taken: set[nn.Module]) -> None:
    """Let torch compile the networks that no kernels have taken over, or at least lay them out."""
    on_gpu = agent.device.type == "cuda"
    for network in agent.networks.values():
        if network is agent.auxiliary:
            for part in set(further_trunks(network)) - taken if on_gpu else ():
                put_channels_last(part)
            continue
        if network in taken:
            continue
        if on_gpu and network is agent.masker:
            put_channels_last(network)
        # Several batch sizes for each network of each run side by side. At the default limits (8,
        # and 256 in all) torch stops compiling and computes slowly.
        torch._dynamo.config.recompile_limit = 512
        torch._dynamo.config.accumulated_recompile_limit = 4096
        network.compile(dynamic=False)


def further_trunks(network: nn.Module) -> Iterator[nn.Module]:
    """Networks in an auxiliary task that may be trunks: SODA's slow one, the part PAD shares."""
    yield from network.children()
    if isinstance(network, PAD) and network.own_layers:
        yield network.shared


def put_channels_last(network: nn.Module) -> None:
    """Let the library's convolutions have pixels whose channels lie together.

    That is what tensor cores take: else it turns every picture around, forward and backward.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def compute_in_c(networks: Iterable[nn.Module]) -> None:
    """Let kernels in C compute networks on a CPU, where they fit."""
    if kernels := wing(torch.device("cpu")):
        kernels.compute(networks)


def uncompiled(speed: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Nothing compiled by torch: acting sees other batch sizes, and each would be compiled."""
    if speed == "eager" or device.type == "cpu" or "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()  # importing the compiler takes seconds
    return torch.compiler.set_stance("force_eager")
