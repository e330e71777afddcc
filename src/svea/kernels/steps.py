"""Optimiser steps and target networks by kernels that occupy a whole GPU (steps.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from svea.agents.agent import Agent, laid_out_as
from svea.agents.learning import parameters_of

if TYPE_CHECKING:
    from svea.agents.agent import Losses
    from svea.kernels.heads import FusedHead

SOURCES = [Path(__file__).with_name(name) for name in ("tensor_cores.cu", "steps.cu")]
MOST, CHUNK, THREADS = 48, 4096, 256  # as in steps.cu
AT_ONCE = MOST  # tensors of a launch
Launch = Callable[..., None]
Item = TypeVar("Item")
_POINTERS, _FIRST, _SIZES = ctypes.c_void_p * MOST, ctypes.c_int * (MOST + 1), ctypes.c_int * MOST


class Copies(ctypes.Structure):
    """Copies of weights in bfloat16."""

    _fields_ = [("at", _POINTERS), ("columns", _SIZES), ("stride", _SIZES)]


class Tensors(ctypes.Structure):
    """An optimiser's tensors, as steps.cu has them."""

    _fields_ = [
        *((name, _POINTERS) for name in ("parameter", "moment", "square", "step", "gradient")),
        ("first", _FIRST),
        ("size", _SIZES),
        *((name, ctypes.c_float) for name in ("rate", "beta1", "beta2", "epsilon")),
        ("copies", Copies),
    ]


class Pairs(ctypes.Structure):
    """Slow tensors and the ones that they follow."""

    _fields_ = [
        ("slow", _POINTERS), ("fast", _POINTERS), ("first", _FIRST), ("size", _SIZES),
        ("rate", ctypes.c_float * MOST), ("copies", Copies),
    ]  # fmt: skip


class FusedSteps:
    """An agent's `step` and `update_target`, for weights that lie together in float32."""

    def __init__(
        self, agent: Agent, launch: Launch | None = None, heads: Sequence[FusedHead] = ()
    ) -> None:
        """Compile the kernels.

        Args:
            agent: whose optimisers take the steps.
            launch: runs kernels, in place of the GPU that the agent lies on.
            heads: of the agent, whose weights in bfloat16 are written with every step.
        """
        self.agent = agent
        if launch is None:
            from svea.kernels import nvrtc

            launch = nvrtc.Kernels(SOURCES, {}, agent.device)
        self.launch = launch
        self.heads = heads
        self.copies: dict[int, Tensor] = {}  # by the weight's identity
        for head in heads:
            self.copies |= {id(weight): copy for weight, copy in head.keep_copies()}

    @staticmethod
    def fits(agent: Agent) -> bool:
        """Whether all tensors lie in float32 and without gaps, on a GPU that this was tried on."""
        device = agent.device
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
            return False
        return has_right_tensors(agent)

    def step(self, name: str, loss: Tensor, *others: str) -> Losses:
        """What `Agent.step` does, in three launches: norm, judgement, step.

        Three for every 48 tensors, that is.
        """
        if others:  # they are judged together
            losses = Agent.step(self.agent, name, loss, *others)
            self.pack_copies(name, *others)
            return losses
        optimiser = self.agent.optimisers[name]
        group = optimiser.param_groups[0]
        parameters = group["params"]
        gradients = gradients_of(loss, optimiser)
        tables, counts = [], []
        for some in pieces(range(len(parameters))):
            mine = [parameters[n] for n in some]
            states = [optimiser.state[parameter] for parameter in mine]
            blocks, first = layout(mine)
            table = Tensors(
                addresses(mine),
                *(addresses([s[key] for s in states]) for key in ("exp_avg", "exp_avg_sq", "step")),
                addresses([gradients[n] for n in some]), first, sizes(mine),
                group["lr"], *group["betas"], group["eps"], self.copies_of(mine),
            )  # fmt: skip
            tables.append((table, blocks, len(mine)))
            counts.append(blocks)
        partial, scalars = gradients[0].new_empty(sum(counts)), gradients[0].new_empty(4)
        for (table, blocks, _), own in zip(tables, partial.split(counts), strict=True):
            self.launch("squares", (blocks, 1), THREADS, 4 * 8, table, own)
        for table, _, count in tables:  # of the whole gradient's norm; each counts its own steps
            self.launch(
                "judge", (1, 1), THREADS, 4 * 8, table, partial, len(partial), count, scalars
            )
        for table, blocks, _ in tables:
            self.launch("adam", (blocks, 1), THREADS, 0, table, scalars)
        return {f"{name}_loss": loss.detach(), f"{name}_gradient": scalars[0]}

    @torch.no_grad()
    def update_target(self) -> None:
        """What `Agent.update_target` does, in one launch for every 48 tensors."""
        for some in pieces(followers(self.agent)):
            mine, leaders, rates = zip(*some, strict=True)
            blocks, first = layout(mine)
            table = Pairs(
                addresses(mine), addresses(leaders), first, sizes(mine),
                (ctypes.c_float * MOST)(*rates), self.copies_of(mine),
            )  # fmt: skip
            self.launch("follow", (blocks, 1), THREADS, 0, table)

    def pack_copies(self, *names: str) -> None:
        """Copy what torch's optimisers changed: fused ones do not count that as a change."""
        groups = [self.agent.optimisers[name].param_groups[0]["params"] for name in names]
        changed = {id(weight) for weights in groups for weight in weights}
        for head in self.heads:
            if any(id(weight) in changed for weight in head.parameters):
                head.pack_copies()

    def copies_of(self, weights: Sequence[Tensor]) -> Copies:
        """Where the weights' copies in bfloat16 lie, of those that have one."""
        found = [self.copies.get(id(weight)) for weight in weights]
        return Copies(
            _POINTERS(*(0 if copy is None else copy.data_ptr() for copy in found)),
            _SIZES(*(1 if copy is None else copy.shape[1] for copy in found)),
            _SIZES(*(1 if copy is None else copy.stride(0) for copy in found)),
        )


def followers(agent: Agent) -> list[tuple[Tensor, Tensor, float]]:
    """Every slow tensor, the one that it follows and how fast: what `update_target` moves."""
    return [
        (follower, leader, rate)
        for behind, ahead, rate in agent.followers()
        for follower, leader in zip(parameters_of(behind), parameters_of(ahead), strict=True)
    ]


def has_right_tensors(agent: Agent) -> bool:
    """Whether every optimiser is plain Adam, and its tensors and the targets' lie in one piece."""
    groups = [o.param_groups for o in agent.optimisers.values()]
    lists = [group[0]["params"] for group in groups]
    lists.append(parameters_of([agent.target_trunk, agent.target_critic]))
    plain = ("weight_decay", "amsgrad", "maximize")
    if any(len(group) > 1 or any(group[0][option] for option in plain) for group in groups):
        return False
    return all(t.dtype == torch.float32 and in_one_piece(t) for tensors in lists for t in tensors)


def in_one_piece(tensor: Tensor) -> bool:
    """Whether a tensor's numbers lie without gaps, in torch's own order or channels last."""
    last = tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return last or tensor.is_contiguous()


def gradients_of(loss: Tensor, optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """A loss's gradients, laid out as an optimiser's weights, which have a state from then on."""
    parameters = optimiser.param_groups[0]["params"]
    found = torch.autograd.grad(loss, parameters)
    for parameter in parameters:
        if not optimiser.state[parameter]:
            optimiser.state[parameter] = fresh_state(parameter)
    return [laid_out_as(p, g) for p, g in zip(parameters, found, strict=True)]


def fresh_state(parameter: Tensor) -> dict[str, Tensor]:
    """What torch's Adam begins with."""
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def pieces(items: Sequence[Item]) -> list[Sequence[Item]]:
    """As many as a launch's table has room for, at a time."""
    return [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]


def sizes(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_int]:
    """How many numbers each has."""
    return _SIZES(*(t.numel() for t in tensors))


def layout(tensors: Sequence[Tensor]) -> tuple[int, ctypes.Array[ctypes.c_int]]:
    """How many blocks, and each tensor's first; behind the last one stands their number."""
    ends = list(accumulate(-(-t.numel() // CHUNK) for t in tensors))
    return ends[-1], _FIRST(0, *ends)


def addresses(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """Where tensors lie."""
    return _POINTERS(*(t.data_ptr() for t in tensors))
