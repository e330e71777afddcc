"""Checkpoints: atomic, hashed, without pickle; and the replay in segments that are written once.

A run folder holds

    checkpoints/000010000/   agent.safetensors, state.json, manifest.json
    replay/                  one immutable file of new frames and transitions per save

A checkpoint is written under another name, synced and renamed, so that it is whole or absent. Its
manifest names every file it needs, replay segments included, with size and SHA-256; a damaged
checkpoint is skipped for the one before it, with a warning. Two generations are kept. A second
checkpoint of one decision (a run that was resumed and made no progress) is named 000010000.1: there
is no moment without a whole one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from svea import files
from svea.agents.finite import divergence, not_finite
from svea.errors import StorageError
from svea.replay import Replay
from svea.replay import segments as replay_segments
from svea.runs import layout

FORMAT = 1
_FOLDERS = (layout.CHECKPOINTS, layout.REPLAY)
_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
DAMAGE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, IndexError),  # of another shape
    *(OverflowError, RecursionError, MemoryError, RuntimeError, safetensors.SafetensorError),
)
"""What reading a damaged or hostile file may raise."""


@dataclass
class Checkpoint:
    """What was read back."""

    decision: int
    agent: dict[str, Tensor]
    state: dict[str, Any]
    segments: list[dict[str, Any]]
    name: str
    """Of its folder."""


def save(
    run: Path,
    decision: int,
    agent: dict[str, Tensor],
    state: dict[str, Any],
    replay: Replay,
    segments: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Write a checkpoint and return the replay segments it needs.

    Args:
        run: the run folder.
        decision: how far the run is.
        agent: named tensors; all must be finite.
        state: everything else that draws or counts, JSON-able.
        replay: what came since the last segment is written, once.
        segments: those written so far.
    """
    if bad := not_finite(agent):
        raise divergence(bad)
    new = replay_segments.since(replay, _cursor(segments))
    needed = sum(tensor.nbytes for tensor in (*agent.values(), *new.values()))
    path = layout.next_checkpoint(run, decision)
    with files.writing(path, needed, "Earlier checkpoints are whole. "), _sweeping(run):
        for part in _FOLDERS:
            files.make_folder(run / part)
            files.sweep(run / part)  # what a killed process left
        segments = _write_segment(run, replay, segments, new)
        unfinished = files.partial(path)
        files.make_folder(unfinished)
        contents = {layout.AGENT: tensor_blocks(agent), layout.STATE: [files.to_json(state)]}
        manifest = {
            "format": FORMAT,
            "decision": decision,
            "files": {n: files.write(unfinished / n, blocks) for n, blocks in contents.items()},
            "segments": segments,
        }
        sealed = manifest | {"seal": files.seal(manifest)}
        files.write(unfinished / layout.MANIFEST, [files.to_json(sealed)])
        files.sync_folder(unfinished)
        files.rename(unfinished, path)
        _remove_old(run)
    return segments


def load(run: Path, replay: bool = True) -> Checkpoint | None:
    """The newest whole checkpoint of a run, or None where there is none at all.

    Args:
        run: the run folder.
        replay: also verify the replay segments (not needed to evaluate).
    """
    problems = []
    for path in reversed(layout.checkpoints(run)):
        try:
            checkpoint = _read(run, path, replay)
        except DAMAGE as error:
            problems.append(f"{path}: {error or type(error).__name__}")
            continue
        for problem in problems:
            print(f"warning: damaged checkpoint skipped: {problem}", file=sys.stderr)
        return checkpoint
    if problems:
        raise StorageError(
            "no checkpoint of this run is whole:\n  " + "\n  ".join(problems)
            + "\nRemove the run folder, or restore it from a copy, to continue"
        )  # fmt: skip
    return None


def remove_newer(run: Path, checkpoint: Checkpoint) -> None:
    """Remove checkpoints from after the one that a run resumes from: they were damaged."""
    order = layout.checkpoint_order
    for path in layout.checkpoints(run):
        if order(path) > order(Path(checkpoint.name)):
            with files.writing(path):
                files.remove(path)


def restore_replay(run: Path, checkpoint: Checkpoint, replay: Replay) -> None:
    """Fill a replay buffer from a checkpoint's segments."""
    try:
        for segment in checkpoint.segments:
            tensors = load_file(run / layout.REPLAY / Path(segment["name"]).name)
            _check_span(tensors)
            replay_segments.extend(replay, tensors)
        replay_segments.restore_counters(replay, checkpoint.state["replay"])
    except DAMAGE as error:
        raise StorageError(
            f"the replay in {run / layout.REPLAY} does not fit its checkpoint: {error}"
        ) from error


def tensor_blocks(tensors: dict[str, Tensor]) -> Iterator[memoryview | bytes]:
    """The bytes of a safetensors file, tensor by tensor, so that no copy of all is made."""
    # The widest types first: every tensor then begins at a multiple of its own width.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        if flat.numel():
            yield flat.view(torch.uint8).numpy().data


def _cursor(segments: list[dict[str, Any]]) -> tuple[int, int]:
    """Up to where the replay is on disk."""
    return (segments[-1]["frames"], segments[-1]["transitions"]) if segments else (0, 0)


def _write_segment(
    run: Path, replay: Replay, segments: list[dict[str, Any]], new: dict[str, Tensor]
) -> list[dict[str, Any]]:
    """Write what is new in the replay; drop segments that the rings have wholly overwritten."""
    kept = [s for s in segments if s["frames"] > replay.frames_seen - replay.slots]
    if replay_segments.cursor(replay) == _cursor(segments):
        return kept
    name = f"{_cursor(segments)[0]:010d}-{replay.frames_seen:010d}.safetensors"
    written = {"name": name, "frames": replay.frames_seen, "transitions": replay.transitions_seen}
    return [*kept, written | files.replace(run / layout.REPLAY / name, tensor_blocks(new))]


def _read(run: Path, path: Path, replay: bool) -> Checkpoint:
    """Read one checkpoint and check every byte of it."""
    manifest = json.loads((path / layout.MANIFEST).read_text())
    if manifest.pop("seal") != files.seal(manifest):
        raise ValueError("manifest.json has changed since it was written")
    if manifest["format"] != FORMAT:
        raise ValueError(f"format {manifest['format']}, this version reads {FORMAT}")
    for name, wanted in manifest["files"].items():
        verify(path / Path(name).name, wanted)
    for segment in manifest["segments"] if replay else []:
        verify(run / layout.REPLAY / Path(segment["name"]).name, segment)
    state = json.loads((path / layout.STATE).read_text())
    if not isinstance(state, dict):
        raise ValueError("state.json is not a JSON object")
    return Checkpoint(
        decision=int(manifest["decision"]),
        agent=load_file(path / layout.AGENT),
        state=state,
        segments=manifest["segments"],
        name=path.name,
    )


def _remove_old(run: Path) -> None:
    """Keep the newest generations, and the segments that any of them needs."""
    paths = layout.checkpoints(run)
    for path in paths[: -layout.GENERATIONS]:
        files.remove(path)
    needed = set()
    for path in paths[-layout.GENERATIONS :]:
        with contextlib.suppress(*DAMAGE):
            manifest = json.loads((path / layout.MANIFEST).read_text())
            needed |= {segment["name"] for segment in manifest["segments"]}
    for path in sorted((run / layout.REPLAY).glob("[0-9]*.safetensors")):
        if path.name not in needed:
            files.remove(path)


def _check_span(segment: dict[str, Tensor]) -> None:
    """Refuse a segment that says it is longer than it is."""
    first_frame, end_frame, first_row, end_row, slots = segment["span"].tolist()
    frames, rows = len(segment["frames"]), len(segment["actions"])
    if not (end_frame - first_frame == frames and end_row - first_row == rows and slots > 0):
        raise ValueError(f"a segment of {frames} frames claims to be {segment['span'].tolist()}")


def verify(path: Path, wanted: dict[str, Any]) -> None:
    """Refuse a file that is not byte for byte what was written."""
    size = path.stat().st_size
    if size != wanted["size"]:
        raise ValueError(f"{path.name} has {size} bytes, {wanted['size']} were written")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != wanted["sha256"]:
            raise ValueError(f"{path.name} has changed since it was written")


@contextlib.contextmanager
def _sweeping(run: Path) -> Iterator[None]:
    """Leave nothing half-written when a save fails."""
    try:
        yield
    except BaseException:
        for part in _FOLDERS:
            with contextlib.suppress(OSError):
                files.sweep(run / part)
        raise
