"""Checkpoints: atomic, hashed, without pickle; and the replay in segments that are written once.

A run folder holds

    checkpoints/000010000/   agent.safetensors, state.json, manifest.json
    replay/                  one immutable file of new frames and transitions per save

A checkpoint is written beside its place, synced and renamed, so that it is whole or absent. Its
manifest names every file it needs, replay segments included, with size and SHA-256; a damaged
checkpoint is passed over for the one before it, with a warning. Two generations are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor

from svea.errors import StorageError
from svea.replay import Replay

GENERATIONS = 2
FORMAT = 1


@dataclass
class Checkpoint:
    """What was read back."""

    decision: int
    agent: dict[str, Tensor]
    state: dict[str, Any]
    segments: list[dict[str, Any]]


def save(
    run: Path,
    decision: int,
    agent: dict[str, Tensor],
    state: dict[str, Any],
    replay: Replay,
    segments: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Write a checkpoint and return the replay segments it stands on.

    Args:
        run: the run folder.
        decision: how far the run is.
        agent: named tensors.
        state: everything else that draws or counts, JSON-able.
        replay: what came since the last segment is written, once.
        segments: those written so far.
    """
    place = run / "checkpoints" / f"{decision:09d}"
    with _storage(place):
        segments = _write_segment(run, replay, segments)
        beside = place.with_name(f".{place.name}.{os.getpid()}")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        save_file(
            {key: value.contiguous() for key, value in agent.items()}, beside / "agent.safetensors"
        )
        write_json(beside / "state.json", state)
        manifest = {
            "format": FORMAT,
            "decision": decision,
            "files": {
                name: _fingerprint(beside / name) for name in ("agent.safetensors", "state.json")
            },
            "segments": segments,
        }
        write_json(beside / "manifest.json", manifest | {"seal": _seal(manifest)})
        for file in beside.iterdir():
            _sync(file)
        _sync(beside)
        aside = place.with_name(f".old-{place.name}.{os.getpid()}")
        if place.exists():  # the same decision again, after a resume that went no further
            os.replace(place, aside)
        os.replace(beside, place)
        shutil.rmtree(aside, ignore_errors=True)
        _sync(place.parent)
        _forget_old(run)
    return segments


def load(run: Path, replay: bool = True) -> Checkpoint | None:
    """The newest whole checkpoint of a run, or None where there is none at all.

    Args:
        run: the run folder.
        replay: also verify the replay segments (not needed to evaluate).
    """
    places = _places(run)
    problems = []
    for place in reversed(places):
        try:
            checkpoint = _read(run, place, replay)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,  # JSON of another shape
            safetensors.SafetensorError,
        ) as error:
            problems.append(f"{place}: {error}")
            continue
        for problem in problems:
            print(f"warning: damaged checkpoint passed over: {problem}", file=sys.stderr)
        return checkpoint
    if problems:
        raise StorageError(
            "no checkpoint of this run is whole:\n  " + "\n  ".join(problems)
            + "\nRemove the run folder, or restore it from a copy, to go on"
        )  # fmt: skip
    return None


def remove_newer(run: Path, decision: int) -> None:
    """Remove checkpoints from after the one that a run resumes from: they were damaged."""
    for place in _places(run):
        if int(place.name) > decision:
            shutil.rmtree(place, ignore_errors=True)


def restore_replay(run: Path, checkpoint: Checkpoint, replay: Replay) -> None:
    """Fill a replay buffer from a checkpoint's segments."""
    for segment in checkpoint.segments:
        replay.extend(load_file(run / "replay" / segment["name"]))
    replay.load_state(checkpoint.state["replay"])


def write_json(path: Path, value: Any) -> None:
    """Write JSON in one go; NaN is refused, because JSON has none."""
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")


def replace_json(path: Path, value: Any) -> None:
    """Write JSON beside its place and rename it, so that readers see the old or the new file."""
    with _storage(path):
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        write_json(beside, value)
        _sync(beside)
        os.replace(beside, path)


def _write_segment(
    run: Path, replay: Replay, segments: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Write what is new in the replay; drop segments that the rings have wholly overwritten."""
    frames, transitions = (
        (segments[-1]["frames"], segments[-1]["transitions"]) if segments else (0, 0)
    )
    kept = [s for s in segments if s["frames"] > replay.frames_seen - replay.slots]
    if replay.mark() == (frames, transitions):
        return kept
    name = f"{frames:010d}-{replay.frames_seen:010d}.safetensors"
    path = run / "replay" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{name}.{os.getpid()}")
    save_file(replay.since((frames, transitions)), beside)
    _sync(beside)
    os.replace(beside, path)
    _sync(path.parent)
    written = {"name": name, "frames": replay.frames_seen, "transitions": replay.transitions_seen}
    return [*kept, written | _fingerprint(path)]


def _read(run: Path, place: Path, replay: bool) -> Checkpoint:
    """Read one checkpoint and check every byte of it."""
    manifest = json.loads((place / "manifest.json").read_text())
    seal = manifest.pop("seal", None)
    if seal is not None and seal != _seal(manifest):
        raise ValueError("manifest.json has changed since it was written")
    if manifest["format"] != FORMAT:
        raise ValueError(f"format {manifest['format']}, this version reads {FORMAT}")
    for name, wanted in manifest["files"].items():
        _verify(place / Path(name).name, wanted)
    for segment in manifest["segments"] if replay else []:
        _verify(run / "replay" / Path(segment["name"]).name, segment)
    return Checkpoint(
        decision=int(manifest["decision"]),
        agent=load_file(place / "agent.safetensors"),
        state=json.loads((place / "state.json").read_text()),
        segments=manifest["segments"],
    )


def _places(run: Path) -> list[Path]:
    """Checkpoint folders, oldest first."""
    folder = run / "checkpoints"
    return sorted(p for p in folder.glob("[0-9]*") if p.is_dir()) if folder.is_dir() else []


def _forget_old(run: Path) -> None:
    """Keep the newest generations, and the segments that any of them needs."""
    places = _places(run)
    for place in places[:-GENERATIONS]:
        shutil.rmtree(place)
    needed = set()
    for place in places[-GENERATIONS:]:
        with contextlib.suppress(OSError, ValueError, KeyError):
            manifest = json.loads((place / "manifest.json").read_text())
            needed |= {segment["name"] for segment in manifest["segments"]}
    for path in (run / "replay").glob("[0-9]*.safetensors"):
        if path.name not in needed:
            path.unlink()


def _seal(manifest: dict[str, Any]) -> str:
    """SHA-256 of a manifest's content."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _fingerprint(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {
            "size": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _verify(path: Path, wanted: dict[str, Any]) -> None:
    """Refuse a file that is not byte for byte what was written."""
    size = path.stat().st_size
    if size != wanted["size"]:
        raise ValueError(f"{path.name} has {size} bytes, {wanted['size']} were written")
    if _fingerprint(path)["sha256"] != wanted["sha256"]:
        raise ValueError(f"{path.name} has changed since it was written")


def _sync(path: Path) -> None:
    """Force a file or a folder's entries onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _storage(path: Path) -> Iterator[None]:
    """Turn the system's word on a failed write into ours, and leave nothing half-written."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        for folder in (path.parent, path.parent.parent / "replay"):
            for left in folder.glob(f".*.{os.getpid()}"):
                shutil.rmtree(left, ignore_errors=True)
                left.unlink(missing_ok=True)
        free = shutil.disk_usage(_existing(path)).free
        raise StorageError(
            f"cannot write {path}: {error} ({free / 1e9:.1f} GB are free there). The last "
            "checkpoint is intact: make room or mend the permissions, then run the command again"
        ) from error


def _existing(path: Path) -> Path:
    """The nearest folder above that exists."""
    return path if path.exists() else _existing(path.parent)
