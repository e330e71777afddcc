"""The replay buffer: every frame once, as uint8; stacks rebuilt by index.

Frames of all environments and episodes stand in one ring, in order of arrival. A transition is four
numbers that point into it: the three frames of its observation and the newest frame of the
successor (whose other two frames are the observation's last two). At an episode's start the first
frame is pointed to three times, which is what the frame stack shows there. So a transition never
mixes episodes, needs no flags, and survives the ring's wrap; it is forgotten when its first frame
is overwritten, or when ``capacity`` newer ones have come.

A frame of two pictures has the newest of both; vectors have a second ring of as many slots.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from svea.config.options import FRAMES, WINDOW, frame_slots
from svea.config.parts import PLAIN, Parts

Frame = NDArray[np.uint8] | Tensor
Vectors = Tensor | None
"""(B, numbers) float32, of observations that have them."""


@dataclass
class Batch:
    """Transitions on the learner's device."""

    observations: Tensor  # (B, 9, H, W) uint8; of two pictures (B, 18, H, W), one's frames first
    actions: Tensor  # (B, A) float32
    rewards: Tensor  # (B,) float32: of one decision, or the discounted sum over n of them
    discounts: Tensor  # (B,) float32: of the successor's value; 0 where the episode really ended
    next_observations: Tensor  # (B, 9, H, W) uint8
    vectors: Vectors = None
    next_vectors: Vectors = None

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(**{name: on_device(tensor, device) for name, tensor in self})

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors."""
        return ((name, tensor) for name, tensor in vars(self).items() if tensor is not None)


class Replay:
    """A ring of frames and a ring of transitions on one device.

    Sampling draws on that device from its own generator and never asks the host anything, so it can
    stand inside a captured graph: the number of valid transitions is itself a tensor there.
    """

    def __init__(
        self,
        capacity: int,
        image_size: int,
        actions: int,
        environments: int = 1,
        episode_length: int = 125,
        device: torch.device | str = "cpu",
        seed: int = 0,
        *,
        discount: float = 0.99,
        n_step: int = 1,
        parts: Parts = PLAIN,
    ) -> None:
        """Allocate everything now, so that a run that does not fit fails before it starts.

        ``capacity`` and ``episode_length`` are in decisions. An episode stores one frame more than
        it has decisions; if episodes turn out shorter, fewer than ``capacity`` are remembered.
        ``n_step`` decisions lie between an observation and its successor in a batch, unless the
        episode or the buffer ends before.
        """
        self.capacity = capacity
        self.slots = frame_slots(capacity, environments, episode_length)
        self.device = torch.device(device)
        self.discount, self.n_step, self.environments = discount, n_step, environments

        def ring(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        self.parts, side = parts, image_size
        self.frames = ring(self.slots, 3 * parts.count, side, side, dtype=torch.uint8)
        self.vectors = ring(self.slots, parts.numbers) if parts.numbers else None
        self.of_frames = ("frames", "vectors") if parts.numbers else ("frames",)
        self._pictures = torch.arange(parts.count, device=self.device)[:, None]
        self.windows = ring(capacity, WINDOW, dtype=torch.int64)
        self.actions = ring(capacity, actions)
        self.rewards = ring(capacity)
        self.terminated = ring(capacity)  # 1: the episode really ended here, not by a time limit
        self.last = ring(capacity)  # 1: of its episode, for whatever reason
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._oldest = torch.zeros((), dtype=torch.int64, device=self.device)
        self._size = torch.zeros((), dtype=torch.int64, device=self.device)
        self.frames_seen = 0  # ever written; frame n lies in slot n % slots
        self.transitions_seen = 0
        self.first_transition = 0  # the oldest one still valid
        # Host copies, for bookkeeping without asking the device: each environment's newest frames,
        # and the oldest frame each transition needs.
        self.stacks: dict[int, list[int]] = {}
        self._rounds = FRAMES * environments + 1
        self.first_frames = np.zeros(capacity, np.int64)
        self._staged_frames: list[tuple[int, Tensor]] = []
        self._staged_vectors: list[Tensor] = []  # of these frames
        self._staged_rows: list[tuple[int, dict[str, Tensor]]] = []

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return self.transitions_seen - self.first_transition

    def begin(self, environment: int, frame: Frame, vector: Any = None) -> None:
        """An episode starts in an environment, with this frame (3, H, W), and its vector if any."""
        self.stacks[environment] = [self._write(frame, vector)] * FRAMES
        self.forget()  # this frame, too, may have overwritten an old transition's first

    def append(
        self,
        environment: int,
        action: NDArray[np.float32] | Tensor,
        reward: float,
        terminated: bool,
        frame: Frame,
        last: bool = False,
        vector: Any = None,
    ) -> None:
        """Store a decision, and newest frame (3, H, W) and vector of the observation it led to.

        Environments take turns: n-step returns look for an environment's next decision as many
        rows further as there are environments.
        """
        if environment not in self.stacks:
            raise ValueError(f"environment {environment} has no episode: call begin() first")
        window = [*self.stacks[environment], self._write(frame, vector)]
        self.stacks[environment] = window[1:]
        row = self.transitions_seen % self.capacity
        values = {
            "windows": torch.tensor([number % self.slots for number in window]),
            "actions": torch.as_tensor(action).to("cpu", copy=True),
            "rewards": torch.tensor(float(reward)),
            "terminated": torch.tensor(float(terminated)),
            "last": torch.tensor(float(last or terminated)),
        }
        self._staged_rows.append((row, values))
        self.first_frames[row] = window[0]
        self.transitions_seen += 1
        self.forget()

    # A seam: `kernels` may assign a faster one over it.
    def sample(self, batch_size: int) -> Batch:
        """Draw transitions uniformly, with replacement."""
        draw = torch.rand(batch_size, generator=self.generator, device=self.device)
        # Rounding may lift the largest draws to `size` itself, hence the minimum.
        return self.gather(torch.minimum((draw * self._size).long(), self._size - 1))

    def gather(self, ages: Tensor) -> Batch:
        """Transitions by age: 0 is the oldest."""
        self.flush()
        rows = (self._oldest + ages) % self.capacity
        rewards, discounts, ends = self._returns(ages, rows)
        windows, later = self.windows[rows], self.windows[ends]  # (B, 4) each
        return Batch(
            observations=self._stacks_of(windows[:, :FRAMES]),
            actions=self.actions[rows],
            rewards=rewards,
            discounts=discounts,
            next_observations=self._stacks_of(later[:, -FRAMES:]),
            vectors=self._vectors_at(windows[:, FRAMES - 1]),
            next_vectors=self._vectors_at(later[:, -1]),
        )

    def _stacks_of(self, slots: Tensor) -> Tensor:
        """The frames in these slots (B, 3), stacked: (B, 9, H, W), in one pass over their bytes.

        index_select copies whole frames (0.9 ms for 512 of 84 px); plain indexing takes 9 ms.
        """
        ring = self.frames
        if self.parts.count > 1:  # the frames of each picture together, in the same one pass
            ring = ring.unflatten(1, (-1, 3)).flatten(0, 1)
            slots = slots[:, None] * self.parts.count + self._pictures  # (B, pictures, 3)
        frames = ring.index_select(0, slots.flatten())  # (B * 3, 3, H, W)
        return frames.unflatten(0, slots.shape).flatten(1, slots.ndim)

    def _vectors_at(self, slots: Tensor) -> Tensor | None:
        return None if self.vectors is None else self.vectors[slots]

    def _returns(self, ages: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Discounted rewards, the successor's discount, and the row that leads to the successor."""
        rewards, ends = self.rewards[rows], rows
        power = torch.full_like(rewards, self.discount)  # discount to the power of decisions taken
        unbroken = torch.ones_like(rewards, dtype=torch.bool)
        for step in range(1, self.n_step):
            later = ages + step * self.environments
            unbroken = unbroken & (self.last[ends] == 0) & (later < self._size)
            rows = (self._oldest + later) % self.capacity
            ends = torch.where(unbroken, rows, ends)
            rewards = rewards + power * self.rewards[rows] * unbroken
            power = torch.where(unbroken, power * self.discount, power)
        return rewards, power * (1 - self.terminated[ends]), ends

    def newest(self, environment: int) -> tuple[Tensor, Tensor | None]:
        """The last frame (3, H, W) that an environment showed, and its vector if there are any."""
        self.flush()
        slot = self.stacks[environment][-1] % self.slots
        vector = None if self.vectors is None else self.vectors[slot].cpu()
        return self.frames[slot].cpu(), vector

    def _write(self, frame: Frame, vector: Any) -> int:
        """Put a frame into the ring, with the vector if it has one, and return its number."""
        number = self.frames_seen
        # A copy, because the environments will draw into the same memory again.
        kept = torch.as_tensor(frame).to("cpu", copy=True)
        self._staged_frames.append((number % self.slots, kept))
        if self.vectors is not None:
            self._staged_vectors.append(torch.tensor(vector, dtype=torch.float32))
        self.frames_seen += 1
        return number

    def flush(self) -> None:
        """Write what is staged into the rings: one copy for each, pinned and without waiting.

        One step of many environments then costs a handful of host-to-device copies in all, not
        several each. It must be called before a captured graph samples; everything else here does.
        """
        if self._staged_frames:
            slots, frames = zip(*self._staged_frames, strict=True)
            self._put(self.frames, slots, frames)
            if self.vectors is not None:
                self._put(self.vectors, slots, self._staged_vectors)
            self._staged_frames, self._staged_vectors = [], []
        if self._staged_rows:
            rows, values = zip(*self._staged_rows, strict=True)
            for name in values[0]:
                self._put(getattr(self, name), rows, [value[name] for value in values])
            self._staged_rows = []

    def _put(self, ring: Tensor, positions: Sequence[int], values: Sequence[Tensor]) -> None:
        """Write rows into a ring."""
        index, rows = torch.tensor(positions), torch.stack(list(values)).to(ring.dtype)
        ring.index_copy_(0, on_device(index, self.device), on_device(rows, self.device))

    def forget(self) -> None:
        """Move past transitions that are too old or whose first frame is gone.

        Environments take turns and a stack spans three rounds, so a lost transition may follow a
        whole one, but at a distance of three rounds at most.
        """
        first = max(self.first_transition, self.transitions_seen - self.capacity)
        oldest_frame = self.frames_seen - self.slots
        number = first if oldest_frame > 0 else self.transitions_seen
        while number < min(first + self._rounds, self.transitions_seen):
            number += 1
            if self.first_frames[(number - 1) % self.capacity] < oldest_frame:
                first = number
        self.first_transition = first
        if self.device.type == "cpu" or len(self._staged_frames) > self.environments:
            self.flush()
        self._oldest.fill_(first % self.capacity)
        self._size.fill_(self.transitions_seen - first)


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; pinned before it is copied to a GPU, else the host waits for that."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
