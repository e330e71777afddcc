"""Checkpoints whose content is wrong and whose hashes are right: refused, and never a crash."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tiny_runs import tiny
from torch import Tensor

from faults.hostile import newest, open_within_limits
from faults.tally import Tally, expect
from svea.config import Config
from svea.core import files
from svea.core.errors import SveaError
from svea.runs import tensors

VALUES: tuple[Any, ...] = (
    None, True, "text", "7", -5, 0, 1, 10**9, 10**12, 10**30, -0.5, 1e300, [], {}, [[]], {"a": 1},
)  # fmt: skip
SHAPES = ("one element", "one more", "one less", "flat", "another axis", "empty")
TYPES = (torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool)
NUMBERS = (float("nan"), float("inf"), -1.0)


def make_run(run: Path) -> Path:
    """A run in the middle of an episode, with two segments of the replay."""
    from svea.training import train

    train(tiny(run, decisions=16))
    train(tiny(run, decisions=23))
    return run


def continued(run: Path) -> Config:
    """What continues it by a few decisions and updates."""
    return tiny(run, decisions=26)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON document."""
    if path:
        yield path
    keys = (
        value.keys()
        if isinstance(value, dict)
        else range(min(len(value), 2))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        yield from places(value[key], (*path, key))


def change_state(state: dict[str, Any], path: tuple[Any, ...], value: Any, drop: bool) -> Any:
    """A state with one value replaced, or left out."""
    changed = copy.deepcopy(state)
    *parents, last = path
    holder = changed
    for key in parents:
        holder = holder[key]
    if drop:
        del holder[last]
    else:
        holder[last] = value
    return changed


def change_tensor(tensor: Tensor, how: Any) -> Tensor | None:
    """A tensor of another shape, type or content; None where it is left out."""
    if how == "gone":
        return None
    if isinstance(how, torch.dtype):
        return tensor.to(how)
    if isinstance(how, float):
        changed = tensor.clone()
        changed.reshape(-1)[:1] = how if tensor.is_floating_point() else -1
        return changed
    flat = tensor.reshape(-1)
    return {
        "one element": flat[:1].clone(),
        "one more": torch.cat([flat, flat[:1]]),
        "one less": flat[:-1].clone(),
        "flat": flat.clone().reshape(1, -1),
        "another axis": tensor[None].clone(),
        "empty": torch.zeros(0, 7, dtype=tensor.dtype),
    }[how]


def tensor_changes() -> list[Any]:
    """Every way in which a tensor is changed."""
    return [*SHAPES, *TYPES, *NUMBERS, "gone"]


def seal(run: Path, name: str, content: bytes, segment: int | None = None) -> None:
    """Write a file of the newest checkpoint, or a segment, and seal the manifest again."""
    place = newest(run)
    manifest = json.loads((place / "manifest.json").read_text())
    manifest.pop("seal")
    if segment is None:
        manifest["files"][name] = files.write(place / name, [content])
    else:
        entry = manifest["segments"][segment]
        entry |= files.write(run / "replay" / entry["name"], [content])
    (place / "manifest.json").write_bytes(files.to_json(manifest | {"seal": files.seal(manifest)}))
    for other in (run / "checkpoints").iterdir():
        if other != place:
            shutil.rmtree(other)  # no generation to fall back to


def write_tensors(run: Path, changed: dict[str, Tensor], segment: int | None = None) -> None:
    """Seal tensors."""
    content = b"".join(bytes(block) for block in tensors.blocks(changed))
    seal(run, "agent.safetensors", content, segment)


def edit(run: Path, random: np.random.Generator) -> str:
    """Change one thing in a checkpoint, seal it, and say what was changed."""
    kind = random.choice(["state", "weights", "segment"])
    if kind == "state":
        state = json.loads((newest(run) / "state.json").read_text())
        ways = list(places(state))
        way = ways[random.integers(len(ways))]
        value, drop = VALUES[random.integers(len(VALUES))], bool(random.random() < 0.1)
        changed = change_state(state, way, value, drop)
        seal(run, "state.json", json.dumps(changed).encode())
        return f"state {way}: {'gone' if drop else value!r}"
    segment = None if kind == "weights" else 0
    path = newest(run) / "agent.safetensors" if segment is None else min((run / "replay").iterdir())
    content = {name: tensor.clone() for name, tensor in load_file(path).items()}
    name = sorted(content)[random.integers(len(content))]
    ways_of = tensor_changes()
    how = ways_of[random.integers(len(ways_of))]
    tensor = change_tensor(content.pop(name), how)
    if tensor is not None:
        content[name] = tensor
    write_tensors(run, content, segment)
    return f"{kind} {name}: {how}"


def sealed_edits(cases: range, seed: int, folder: Path) -> Tally:
    """One edit each; the same command then refuses with exit code 4, or trains to its end."""
    tally, whole, run = Tally(), make_run(folder / "whole"), folder / "run"
    for case in cases:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole, run)
        what = edit(run, np.random.default_rng([seed, 11, case]))
        with tally.case(f"{case}: {what}"):
            open_within_limits(lambda: train_or_refuse(run), tally)
    return tally


def train_or_refuse(run: Path) -> None:
    """As `svea train` does."""
    from svea.training import train

    try:
        train(continued(run))
    except SveaError as error:
        expect(error.exit_code == 4, f"exit code {error.exit_code}: {error}")
