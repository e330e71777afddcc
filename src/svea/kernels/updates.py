"""Batches and losses of an update, one launch each (updates.cu)."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from svea.replay import Batch, Replay

if TYPE_CHECKING:
    from svea.agents.agent import Agent, Losses

SOURCES = [Path(__file__).with_name(name) for name in ("tensor_cores.cu", "updates.cu")]
THREADS, MOST_VIEWS = 256, 16
Launch = Callable[..., None]


class Ring(ctypes.Structure):
    """A replay's tensors, as updates.cu has them."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in (
                "frames", "windows", "actions", "rewards", "terminated", "last", "draws", "oldest",
                "size",
            )
        ),
        ("discount", ctypes.c_float),
        *((name, ctypes.c_int) for name in ("steps", "environments", "capacity")),
    ]  # fmt: skip


class Streams(ctypes.Structure):
    """The weights of views."""

    _fields_ = [("weight", ctypes.c_float * MOST_VIEWS)]


class Goal(ctypes.Structure):
    """The entropy that a temperature holds."""

    _fields_ = [("entropy", ctypes.c_float)]


def kernels(device: torch.device) -> Launch:
    """The kernels on a GPU."""
    from svea.kernels import nvrtc

    return nvrtc.Kernels(SOURCES, {}, device)


class FusedSampling:
    """A replay's `sample`."""

    def __init__(self, replay: Replay, launch: Launch | None = None) -> None:
        """Take a replay that `fits`, and what launches kernels in place of its GPU."""
        self.replay, self.launch = replay, launch or kernels(replay.device)
        self.right: bool | None = None  # not known before there are transitions to compare

    @staticmethod
    def fits(replay: Replay) -> bool:
        """Whether frames can be copied 16 bytes at a time, on a GPU that this was tried on."""
        device = replay.device
        right = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
        return right and has_right_frames(replay)

    def __call__(self, batch_size: int) -> Batch:
        """Draw transitions uniformly, with replacement."""
        replay = self.replay
        if self.right is None:
            self.right = self.is_right(batch_size)
        if not self.right:
            return Replay.sample(replay, batch_size)
        draws = torch.rand(batch_size, generator=replay.generator, device=replay.device)
        return self.gather(draws)

    def is_right(self, batch_size: int) -> bool:
        """Compare the kernel with the replay itself, before the first batch; warn if it is off."""
        replay = self.replay
        draws = torch.linspace(0, 1, batch_size, device=replay.device)
        ages = torch.minimum((draws * replay._size).long(), replay._size - 1)
        found = dict(self.gather(draws))
        off = [name for name, wanted in replay.gather(ages) if not same(found[name], wanted)]
        if off:
            slow = f"sampling takes longer: our kernel's {', '.join(off)} are not the replay's"
            warnings.warn(slow, stacklevel=2)
        return not off

    def gather(self, draws: Tensor) -> Batch:
        """The transitions at these parts of the replay, from 0 for the oldest to 1."""
        replay, batch_size = self.replay, len(draws)
        replay.flush()
        _, channels, height, width = replay.frames.shape
        stacks = (batch_size, 3 * channels, height, width)
        batch = Batch(
            observations=replay.frames.new_empty(stacks),
            actions=replay.actions.new_empty(batch_size, replay.actions.shape[1]),
            rewards=replay.rewards.new_empty(batch_size),
            discounts=replay.rewards.new_empty(batch_size),
            next_observations=replay.frames.new_empty(stacks),
        )
        tensors = (
            replay.frames, replay.windows, replay.actions, replay.rewards, replay.terminated,
            replay.last, draws, replay._oldest, replay._size,
        )  # fmt: skip
        ring = Ring(
            *(tensor.data_ptr() for tensor in tensors), replay.discount,
            replay.n_step, replay.environments, replay.capacity,
        )  # fmt: skip
        self.launch(
            "sample", (6 * batch_size, 1), THREADS, 0, ring, batch.observations,
            batch.next_observations, batch.actions, batch.rewards, batch.discounts,
            channels * height * width // 16, batch.actions.shape[1],
        )  # fmt: skip
        return batch


def same(found: Tensor, wanted: Tensor) -> bool:
    """Whether numbers are equal, those of sums but for rounding."""
    if not wanted.is_floating_point():
        return torch.equal(found, wanted)
    return torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)


def has_right_frames(replay: Replay) -> bool:
    """Frames of one picture, of a multiple of 16 bytes, and no vectors."""
    plain = replay.parts.count == 1 and replay.vectors is None
    return plain and replay.frames[0].numel() % 16 == 0


class FusedLosses:
    """An agent's `weighted_error`, and SAC's `policy_losses`."""

    def __init__(self, agent: Agent, launch: Launch | None = None) -> None:
        """Take an agent, and what launches kernels in place of its GPU."""
        self.agent, self.launch = agent, launch or kernels(agent.device)

    @staticmethod
    def fits(agent: Agent) -> bool:
        """Whether its views are few enough, on a GPU that this was tried on."""
        few = len(agent.streams.prediction) <= MOST_VIEWS
        return few and torch.cuda.get_device_capability(agent.device) >= (9, 0)

    def weighted_error(self, q: Tensor, target: Tensor) -> Tensor:
        """What `Agent.weighted_error` computes."""
        return _WeightedError.apply(self, q, target)  # type: ignore[no-untyped-call]

    def policy_losses(self, q: Tensor, log_probability: Tensor) -> tuple[Tensor, Tensor, Losses]:
        """What `SAC.policy_losses` computes."""
        agent: Any = self.agent
        scalars = q.new_empty(4)
        loss = _PolicyLoss.apply(self, q, log_probability, scalars)  # type: ignore[no-untyped-call]
        of_temperature = _Known.apply(agent.log_temperature, scalars[1])  # type: ignore[no-untyped-call]
        return loss, of_temperature, {"temperature": scalars[2], "entropy": scalars[3]}


class _WeightedError(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, losses: FusedLosses, q: Tensor, target: Tensor) -> Tensor:
        streams = losses.agent.streams
        views, batch = len(streams.prediction), target.shape[-1]
        q, target = q.float().contiguous(), target.float().contiguous()
        loss, slopes = q.new_empty(()), torch.empty_like(q)
        losses.launch(
            "weighted_error", (1, 1), THREADS, 4 * 32, q, target,
            Streams((ctypes.c_float * MOST_VIEWS)(*streams.weights)), loss, slopes,
            len(q), views, batch, len(target),
        )  # fmt: skip
        ctx.save_for_backward(slopes)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return None, ctx.saved_tensors[0] * gradient, None


class _PolicyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, losses: FusedLosses, q: Tensor, probability: Tensor, scalars: Tensor
    ) -> Tensor:
        agent: Any = losses.agent
        q, probability = q.float().contiguous(), probability.float().contiguous()
        of_q, of_probability = torch.empty_like(q), torch.empty_like(probability)
        losses.launch(
            "policy_losses", (1, 1), THREADS, 2 * 4 * 32, q, probability, agent.log_temperature,
            Goal(agent.target_entropy), scalars, of_q, of_probability, *q.shape,
        )  # fmt: skip
        ctx.save_for_backward(of_q, of_probability)
        return scalars[0].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        of_q, of_probability = ctx.saved_tensors
        return None, of_q * gradient, of_probability * gradient, None


class _Known(torch.autograd.Function):
    """The temperature's loss, which is its own slope: it is proportional to the temperature."""

    @staticmethod
    def forward(ctx: Any, log_temperature: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(loss)
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return ctx.saved_tensors[0] * gradient, None
