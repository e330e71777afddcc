"""The names in a run folder, and how large it gets: every reader and writer asks here.

    config.json                 the configuration, and how the run was made
    metrics.jsonl               one line per event of training
    eval.jsonl                  one line per evaluation episode (`runs.records`)
    incidents.jsonl             what went wrong (`runs.records`)
    checkpoints/000500000/      the newest two (`runs.checkpoint`)
    replay/                     the replay buffer, in segments that checkpoints name
    exports/000100000/          agents kept by --export-at, each as `svea export` writes it
    analysis/NAME.json          what `svea analyze` found
    media/MODE.mp4, MODE.png    what `svea watch` recorded
    media/factors/MODE.png      how worlds of `svea eval --vary` look
    tensorboard/, wandb/        with --tensorboard and --wandb

An export, which `svea export` makes, has config.json and ACTOR and CRITIC instead; with --small it
has no CRITIC unless it is asked for.
"""

import math
import reprlib
from pathlib import Path
from typing import Any

from svea.config import Config, milestones, options
from svea.config.parts import OBSERVATIONS, Parts
from svea.core.importing import is_import_path

CONFIG = "config.json"
METRICS = "metrics.jsonl"
EVALUATIONS = "eval.jsonl"
INCIDENTS = "incidents.jsonl"
CHECKPOINTS = "checkpoints"
REPLAY = "replay"
EXPORTS = "exports"
ANALYSIS = "analysis"
MEDIA = "media"

RUN_FILES = (CONFIG, METRICS, EVALUATIONS)  # a folder with none of these is not a run

ACTOR, CRITIC = "actor.safetensors", "critic.safetensors"  # of an export

GENERATIONS = 2  # checkpoints that are kept; while one is written there is another
AGENT, STATE, MANIFEST = "agent.safetensors", "state.json", "manifest.json"  # of a checkpoint

MIB, GIB = 2**20, 2**30
CONFIG_BYTES = 4 * MIB
LOG_BYTES = 16 * GIB  # of metrics.jsonl and of eval.jsonl: read line by line
MANIFEST_BYTES = 64 * MIB  # 200 bytes for a segment
STATE_BYTES = 256 * MIB  # has the actions of every open episode
WEIGHTS_BYTES = 4 * GIB  # networks and both moments of Adam; the paper's take 0.1 GiB
SEGMENT_BYTES = 256 * GIB  # of the replay, if all of it is written at once
ANALYSIS_BYTES = 16 * MIB
PICTURE_BYTES = 64 * MIB
"""The most that is read of each kind of file: beyond it, the file is refused, not opened."""

ACTIONS = 8  # dimensions of an action where no environment has been asked; hardly counts
LOG_LINE_BYTES = 500
OWN_FEATURES = 32 * 1024  # of a user's own encoder, which is not made here: twice the paper's CNN


FILE = {"size": int, "sha256": str}
MANIFEST_SHAPE = {
    "format": int,
    "decision": int,
    "files": {str: FILE},
    "segments": [FILE | {"name": str, "frames": int, "transitions": int}],
}
"""Of a checkpoint; frames and transitions were ever written, up to a segment's end."""
STATE_SHAPE = {
    "speed": str,
    "updates": int,
    "owed_updates": int,
    "next_evaluation": int,
    "next_save": int,
    "next_log": int,
    "log_offset": int,
    "seconds": float,
    "random": {
        "bit_generator": str,
        "state": {"state": int, "inc": int},
        "has_uint32": int,
        "uinteger": int,
    },
    "figures": {"sums": {str: float}, "counts": {str: int}},
    "episodes": [{"seed": int, "number": int, "actions": [[float]], "total": float}],
    "replay": ({"first_transition": int, "stacks": {str: [int]}}, None),
}
"""Of a run, in state.json: what counts and draws."""
_WORDS = {
    int: "a whole number from 0", float: "a finite number", str: "a text", list: "a list",
    dict: "an object",
}  # fmt: skip


def is_run(folder: Path) -> bool:
    """Whether a folder holds at least one file that only a run or an export has."""
    return any((folder / name).is_file() for name in RUN_FILES)


def is_export(folder: Path) -> bool:
    """Whether `svea export` made a folder: weights, and no log by design."""
    return (folder / ACTOR).exists()  # whatever it is: the one who reads it says what is wrong


def exported_files(config: Any) -> dict[str, dict[str, Any]]:
    """The weights of an export, each with `size` and `sha256`, as its config.json names them."""
    named = check(config, {"files": {str: FILE}}, CONFIG)["files"]
    if ACTOR not in named:
        raise ValueError(f"{CONFIG} does not name {ACTOR} under 'files', as that of an export does")
    return {Path(name).name: written for name, written in named.items()}


def is_taken(folder: Path) -> bool:
    """Whether an export cannot go somewhere: there is something else than an empty folder."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def analysis_file(run: Path, name: str) -> Path:
    """Where an analysis of a run lies."""
    return run / ANALYSIS / f"{name}.json"


def media_file(run: Path, mode: str, suffix: str) -> Path:
    """Where the video (.mp4) or the picture (.png) of a mode lies."""
    return run / MEDIA / f"{mode}{suffix}"


def factor_file(run: Path, mode: str) -> Path:
    """Where the picture of the world with a factor at a value lies."""
    return run / MEDIA / "factors" / f"{mode}.png"


def export_folder(run: Path, decision: int) -> Path:
    """Where the agent of a decision is kept, if it was asked for."""
    return run / EXPORTS / f"{decision:09d}"


def checkpoint_order(path: Path) -> tuple[int, ...]:
    """Decision and repetition of a checkpoint, as 000500000.2; empty for another name."""
    decision, dot, repetition = path.name.partition(".")
    if not decision.isdecimal() or (dot and not repetition.isdecimal()):
        return ()
    return int(decision), int(repetition or 0)


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; they may be damaged."""
    paths = (run / CHECKPOINTS).glob("[0-9]*")
    return sorted(filter(checkpoint_order, paths), key=checkpoint_order)


def newest_checkpoint(run: Path) -> int:
    """The decision of a run's newest checkpoint, -1 without one."""
    paths = checkpoints(run)
    return checkpoint_order(paths[-1])[0] if paths else -1


def next_checkpoint(run: Path, decision: int) -> Path:
    """Where the next checkpoint goes: after every one of the same decision."""
    taken = [order[1] for order in map(checkpoint_order, checkpoints(run)) if order[0] == decision]
    name = f"{decision:09d}" + (f".{max(taken) + 1}" if taken else "")
    return run / CHECKPOINTS / name


def replay_bytes(config: Config, actions: int = ACTIONS, parts: Parts | None = None) -> int:
    """Bytes of a run's replay, in memory and on disk.

    Which parts an environment of a user's shows is not known before it is made.
    """
    parts = parts or OBSERVATIONS[config.observation]
    slots = options.frame_slots(config.replay_capacity, config.envs, config.episode_length)
    frame = 3 * parts.count * config.rendered_size**2 + 4 * parts.numbers
    transition = options.WINDOW * 8 + actions * 4 + 3 * 4 + 8
    return slots * frame + config.replay_capacity * transition


def agent_bytes(config: Config) -> int:
    """Bytes of an agent in a checkpoint, at most: what is known without making the agent."""
    size = config.network
    side = options.output_size(config.image_size, size.layers, size.strided_layers)
    features = size.filters * side * side
    if config.encoder == "vit":
        features = size.width
    elif is_import_path(config.encoder):
        features = OWN_FEATURES
    projection = features * size.projection
    heads = 3 * (size.projection + size.hidden + 2) * size.hidden
    # Two projections and their target, weights and Adam's two moments: four times is enough.
    return 4 * 4 * (2 * projection + heads) + 16_000_000


def folder_bytes(config: Config, replay: int, agent: int) -> int:
    """Bytes of the large files in a run's folder: the replay, checkpoints of an agent, the log."""
    lines = config.decisions / config.episode_length
    lines += 2 * config.decisions / min(config.log_every, config.eval_every or config.log_every)
    copies = GENERATIONS + 1  # those that are kept, and the one being written
    copies += len(milestones(config.export_at))
    kept = replay if config.save_replay else 0
    return kept + copies * agent + round(LOG_LINE_BYTES * lines)


def check(value: Any, shape: Any, name: str) -> Any:
    """The value, if it has a shape; else an error that names it.

    A shape is a type; a list of one shape; an object by its keys, of which a value may have more,
    or of one shape under any key (`str`); a shape and None, for one that may be missing.

    >>> check({"seconds": "long"}, {"seconds": float}, "state")
    Traceback (most recent call last):
    ValueError: state.seconds is 'long'; allowed: a finite number
    """
    if isinstance(shape, tuple):
        return value if value is None else check(value, shape[0], name)
    kind = shape if isinstance(shape, type) else type(shape)
    right = type(value) in (int, float) if kind is float else type(value) is kind
    if right and kind in (int, float):
        right = math.isfinite(value) and (kind is float or value >= 0)
    if not right:
        raise ValueError(f"{name} is {reprlib.repr(value)}; allowed: {_WORDS[kind]}")
    if isinstance(shape, list):
        for each in value:
            check(each, shape[0], name)
    if isinstance(shape, dict):
        for key in value if str in shape else shape:
            if key not in value:
                raise ValueError(f"{name} has no {key!r}")
            check(value[key], shape.get(key, shape.get(str)), f"{name}.{key}")
    return value
