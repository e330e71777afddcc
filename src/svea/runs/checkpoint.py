"""Checkpoints: atomic, hashed, without pickle; and the replay in segments that are written once.

Each save adds one file of new frames and transitions to replay/, which is never changed. A
checkpoint is written under another name, synced and renamed, so that it is whole or absent. Its
manifest names every file it needs, replay segments included, with size and SHA-256; a damaged
checkpoint is skipped for the one before it, with a warning. Two generations are kept. A second
checkpoint of one decision (a run that was resumed and made no progress) is named 000010000.1: there
is no moment without a whole one.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from svea.agents.learning import divergence, not_finite
from svea.core import files
from svea.core.errors import StorageError
from svea.core.terminal import warn
from svea.replay import Replay
from svea.replay import segments as replay_segments
from svea.runs import layout, tensors

FORMAT = 1
CURE = "Restore the run from a copy, or start again with another --out"
_LIMITS = {layout.AGENT: layout.WEIGHTS_BYTES, layout.STATE: layout.STATE_BYTES}


@dataclass
class Checkpoint:
    """What was read back."""

    decision: int
    agent: dict[str, Tensor]
    state: dict[str, Any]
    segments: list[dict[str, Any]]
    name: str  # of its folder


def save(
    run: Path,
    decision: int,
    agent: dict[str, Tensor],
    state: dict[str, Any],
    replay: Replay | None,
    segments: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Write a checkpoint and return the replay segments it needs, given those written so far.

    The state is for JSON: what else draws or counts. Of the replay, if it is kept, only what came
    since the last segment is written.
    """
    if bad := not_finite(agent):
        raise divergence(bad)
    new = replay_segments.since(replay, _cursor(segments)) if replay is not None else {}
    needed = sum(tensor.nbytes for tensor in (*agent.values(), *new.values()))
    path = layout.next_checkpoint(run, decision)
    with files.writing(path, needed, "Earlier checkpoints are whole. "), ExitStack() as stack:
        for part in (layout.CHECKPOINTS, layout.REPLAY):
            files.make_folder(run / part)
            files.sweep(run / part)  # what a killed process left, and what is left if this fails
            stack.callback(files.sweep, run / part)
        segments = _write_segment(run, replay, segments, new) if replay is not None else []
        unfinished = files.partial(path)
        files.make_folder(unfinished)
        contents = {layout.AGENT: tensors.blocks(agent), layout.STATE: [files.to_json(state)]}
        manifest = {
            "format": FORMAT,
            "decision": decision,
            "files": {n: files.write(unfinished / n, blocks) for n, blocks in contents.items()},
            "segments": segments,
        }
        sealed = manifest | {"seal": files.seal(manifest)}
        files.write(unfinished / layout.MANIFEST, [files.to_json(sealed)])
        files.sync(unfinished)
        files.rename(unfinished, path)
        _remove_old(run)
    return segments


def load(run: Path, replay: bool = True) -> Checkpoint | None:
    """The newest checkpoint that is whole, with its replay if that is needed; None without any."""
    problems = []
    for path in reversed(layout.checkpoints(run)):
        try:
            checkpoint = _read(run, path, replay)
        except tensors.DAMAGE as error:
            problems.append(f"{path}: {error or type(error).__name__}")
            continue
        for problem in problems:
            warn(f"damaged checkpoint skipped: {problem}")
        return checkpoint
    if not problems:
        return None
    problems.append("Remove the run folder, or restore it from a copy, to continue")
    raise StorageError("\n  ".join(["no checkpoint of this run is whole:", *problems]))


def remove_newer(run: Path, checkpoint: Checkpoint) -> None:
    """Remove checkpoints from after the one that a run resumes from: they were damaged."""
    order = layout.checkpoint_order
    for path in layout.checkpoints(run):
        if order(path) > order(Path(checkpoint.name)):
            with files.writing(path):
                files.remove(path)


def restore_replay(run: Path, checkpoint: Checkpoint, replay: Replay) -> None:
    """Fill a replay buffer from a checkpoint's segments."""
    what = f"the replay in {run / layout.REPLAY} does not fit its checkpoint"
    with tensors.whole(what, CURE):
        for segment in checkpoint.segments:
            content = tensors.read(segment_path(run, segment), layout.SEGMENT_BYTES)
            replay_segments.extend(replay, content)
        replay_segments.restore_counters(replay, checkpoint.state["replay"])


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
    path = run / layout.REPLAY / name
    written |= files.write(files.partial(path), tensors.blocks(new))
    files.rename(files.partial(path), path)
    return [*kept, written]


def _read(run: Path, path: Path, replay: bool) -> Checkpoint:
    """Read one checkpoint and check every byte of it."""
    manifest = files.read_json(path / layout.MANIFEST, layout.MANIFEST_BYTES)
    if manifest.pop("seal") != files.seal(manifest):
        raise ValueError("manifest.json has changed since it was written")
    if manifest["format"] != FORMAT:
        raise ValueError(f"format {manifest['format']}, this version reads {FORMAT}")
    layout.check(manifest, layout.MANIFEST_SHAPE, layout.MANIFEST)
    for name, limit in _LIMITS.items():
        files.verify(path / name, manifest["files"][name], limit)
    for segment in manifest["segments"] if replay else []:
        files.verify(segment_path(run, segment), segment, layout.SEGMENT_BYTES)
    state = files.read_json(path / layout.STATE, layout.STATE_BYTES)
    if not isinstance(state, dict):
        raise ValueError("state.json is not a JSON object")
    return Checkpoint(
        decision=manifest["decision"],
        agent=tensors.read(path / layout.AGENT, layout.WEIGHTS_BYTES),
        state=state,
        segments=manifest["segments"],
        name=path.name,
    )


def _remove_old(run: Path) -> None:
    """Keep the newest generations, and the segments that any of them needs."""
    paths = layout.checkpoints(run)
    for path in paths[: -layout.GENERATIONS]:
        files.remove(path)
    try:
        kept = [path / layout.MANIFEST for path in paths[-layout.GENERATIONS :]]
        manifests = [files.read_json(path, layout.MANIFEST_BYTES) for path in kept]
        needed = {segment["name"] for manifest in manifests for segment in manifest["segments"]}
    except tensors.DAMAGE:
        return  # which segments one needs is not known: all stay, until it is an old one
    for path in sorted((run / layout.REPLAY).glob("[0-9]*.safetensors")):
        if path.name not in needed:
            files.remove(path)


def segment_path(run: Path, segment: dict[str, Any]) -> Path:
    """Where a segment of the replay lies, by its entry in a manifest."""
    return run / layout.REPLAY / Path(segment["name"]).name
