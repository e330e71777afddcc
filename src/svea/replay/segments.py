"""A replay buffer on disk: segments of what came since a cursor, and the buffer rebuilt from them.

An unbroken chain of segments, together with the counters, rebuilds the buffer.
"""

from typing import Any

import torch
from torch import Tensor

from svea.replay import Replay

Cursor = tuple[int, int]
"""How many frames and transitions had ever been written."""

RINGS = ("windows", "actions", "rewards", "terminated", "last")
"""What a buffer holds of every transition on its device."""


def cursor(replay: Replay) -> Cursor:
    """Where the buffer is now."""
    return replay.frames_seen, replay.transitions_seen


def since(replay: Replay, cursor: Cursor) -> dict[str, Tensor]:
    """A segment: what was written after the cursor and is still in the rings."""
    replay.flush()
    first_frame = max(cursor[0], replay.frames_seen - replay.slots)
    first_row = max(cursor[1], replay.transitions_seen - replay.capacity)
    slots = torch.arange(first_frame, replay.frames_seen, device=replay.device) % replay.slots
    rows = torch.arange(first_row, replay.transitions_seen, device=replay.device) % replay.capacity
    span = [first_frame, replay.frames_seen, first_row, replay.transitions_seen, replay.slots]
    return {
        **{name: getattr(replay, name)[slots].cpu() for name in replay.of_frames},
        "first_frames": torch.from_numpy(replay.first_frames[rows.cpu().numpy()]),
        **{name: getattr(replay, name)[rows].cpu() for name in RINGS},
        "span": torch.tensor(span),
    }


def extend(replay: Replay, segment: dict[str, Tensor]) -> None:
    """Put back what `since` returned; windows are renumbered if this ring is larger."""
    for name in (*replay.of_frames, *RINGS):
        if segment[name].shape[1:] != getattr(replay, name).shape[1:]:
            raise ValueError(f"{name} in a segment are {list(segment[name].shape)}")
    first_frame, end_frame, first_row, end_row, slots = segment["span"].tolist()
    where = torch.arange(first_frame, end_frame) % replay.slots
    for name in replay.of_frames:
        getattr(replay, name)[where.to(replay.device)] = segment[name].to(replay.device)
    # A window holds slots of the ring it was written in; its first number identifies it.
    first, windows = segment["first_frames"], segment["windows"]
    numbers = first[:, None] + (windows - windows[:, :1]) % slots
    rows = torch.arange(first_row, end_row) % replay.capacity
    for name, values in (segment | {"windows": numbers % replay.slots}).items():
        if name in RINGS:
            getattr(replay, name)[rows.to(replay.device)] = values.to(replay.device)
    replay.first_frames[rows.numpy()] = first.numpy()
    replay.frames_seen, replay.transitions_seen = end_frame, end_row


def counters(replay: Replay) -> dict[str, object]:
    """What is not in the segments, for JSON."""
    stacks = {str(environment): stack for environment, stack in replay.stacks.items()}
    return {"first_transition": replay.first_transition, "stacks": stacks}


def restore_counters(replay: Replay, state: dict[str, Any]) -> None:
    """Take over the counters, after every segment has been put back."""
    replay.first_transition = state["first_transition"]
    replay.stacks = {int(env): list(stack) for env, stack in state["stacks"].items()}
    replay.forget()
