"""Special files in a run's place: named pipes, devices, and sparse files of a terabyte."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from faults.hostile import newest, open_within_limits
from faults.tally import Tally, expect
from tiny_runs import TINY, tiny

KINDS = ("a named pipe", "a device", "a terabyte of nothing")
CHECKPOINT = ("manifest.json", "state.json", "agent.safetensors")
READ: dict[str, tuple[str, ...]] = {  # which files each verb reads
    "report": ("config.json", "metrics.jsonl", "eval.jsonl", "media/train.png", "media/train.mp4",
               "analysis/q-gap.json"),
    "compare": ("config.json", "metrics.jsonl", "eval.jsonl", "analysis/q-gap.json"),
    "eval": ("config.json", "eval.jsonl", *CHECKPOINT),
    "export": ("config.json", *CHECKPOINT),
    "watch": ("config.json", *CHECKPOINT),
    "analyze": ("config.json", "replay", *CHECKPOINT),
    "train": ("config.json", "metrics.jsonl", "replay", *CHECKPOINT),
    "sweep": ("study.json",),
}  # fmt: skip
HARMLESS = {("train", "metrics.jsonl", KINDS[2]), ("report", "media/train.mp4", KINDS[2])}
"""The end of the log is cut off, and a video that does not fit into the page is named in it."""

CASES = [(verb, name, kind) for verb, names in READ.items() for name in names for kind in KINDS]


def special_files(cases: range, seed: int, folder: Path) -> Tally:
    """Put each kind in the place of each file, and let each verb that reads it meet it."""
    from svea.cli import main

    tally, whole = Tally(), make_run(folder / "whole")
    for verb, name, kind in (CASES[case] for case in cases if case < len(CASES)):
        run = folder / "runs" / "run"
        shutil.rmtree(folder / "runs", ignore_errors=True)
        shutil.copytree(whole, run)
        place = path_of(run, name)
        place.unlink(missing_ok=True)
        put(place, kind)
        words = command(verb, run, folder / "out")
        allowed = (0, 4) if (verb, name, kind) in HARMLESS else (4,)
        with tally.case(f"svea {verb}, {name}: {kind}"):

            def verb_ends(words: list[str] = words, allowed: tuple[int, ...] = allowed) -> None:
                code = main(words)
                expect(code in allowed, f"exit code {code}")

            open_within_limits(verb_ends, tally)
    return tally


def make_run(run: Path) -> Path:
    """A run with one checkpoint, an evaluation, media, an analysis, and a study's plan."""
    from fake_runs import add_media, write_analysis

    from svea.training import train

    train(tiny(run, decisions=20, save_every=100))
    record = '{"policy": "agent", "mode": "train", "decision": 20, "seed": 1, "return": 1.0}\n'
    (run / "eval.jsonl").write_text(record)
    add_media(run, ("train",))
    write_analysis(run, "q-gap", [{"augment": "conv", "gap": 1.0, "relative": 0.1}])
    (run / "study.json").write_text("{}")
    return run


def path_of(run: Path, name: str) -> Path:
    """Where a file of a run lies."""
    if name in CHECKPOINT:
        return newest(run) / name
    return next((run / "replay").iterdir()) if name == "replay" else run / name


def put(path: Path, kind: str) -> None:
    """Make a special file."""
    if kind == KINDS[0]:
        os.mkfifo(path)
    elif kind == KINDS[1]:
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 2**40)


def command(verb: str, run: Path, out: Path) -> list[str]:
    """The verb on the run."""
    flags: dict[str, Any] = {k: v for k, v in TINY.items() if k != "network"}
    flags |= {f"network.{k}": v for k, v in TINY["network"].items()}
    flags |= {"decisions": 26, "save_every": 100}
    options = [w for k, v in flags.items() for w in (f"--{k}".replace("_", "-"), str(v))]
    shutil.rmtree(out, ignore_errors=True)
    return {
        "report": ["report", str(run), "--out", f"{out}.html"],
        "compare": ["compare", str(run), str(run)],
        "eval": ["eval", str(run), "--modes", "train", "--episodes", "1", "--envs", "1"],
        "export": ["export", str(run), str(out)],
        "watch": ["watch", str(run), "--modes", "train", "--out", f"{out}.mp4"],
        "analyze": ["analyze", "q-gap", str(run), "--transitions", "4", "--draws", "2"],
        "train": ["train", "toy:make", "--out", str(run), *options],
        "sweep": ["sweep", "status", str(run)],
    }[verb]
