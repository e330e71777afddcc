"""Files made to do harm: none runs anything, takes the memory, or takes long."""

import io
import json
import os
import pickle
import resource
import shutil
import signal
import struct
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fake_runs import add_media, write_analysis
from faults.damage import quiet
from faults.disks import Saver
from faults.profiles import TOY, config, flags, memory, no_films
from faults.tally import Tally, expect
from small_media import put
from tiny_runs import TINY, tiny

from svea import cli
from svea.augment.images import ImageBank
from svea.config import to_dict
from svea.core import files
from svea.core.errors import SveaError
from svea.data import clips
from svea.replay import Replay
from svea.results.read import read_run
from svea.runs import checkpoint
from svea.runs.load import load_agent, load_config
from svea.training import train

MOST_BYTES = 256 * 2**20  # besides the file's own size
MOST_SECONDS = 20.0  # of a busy machine; a hang is what is looked for

Open = Callable[[], Any]


class Gadget:
    """A pickle that runs a command: here it only leaves a mark."""

    def __init__(self, mark: Path, how: str = "system") -> None:
        self.mark, self.how = mark, how

    def __reduce__(self) -> Any:
        touch = f"open({str(self.mark)!r}, 'w')"
        return {
            "system": (os.system, (f"touch {self.mark}",)),
            "eval": (eval, (touch,)),
            "open": (open, (str(self.mark), "w")),
        }[self.how]


def hostile(cases: range, seed: int, folder: Path) -> Tally:
    """Open every file in a process of its own, and see what it did."""
    tally, mark = Tally(), folder / "canary"
    for case, (name, place, open_it) in enumerate(files_in(folder, mark)):
        if case not in cases:
            continue
        with tally.case(name):
            size = place.stat().st_size if place.is_file() else 0
            open_within_limits(open_it, tally, size)
            expect(not mark.exists(), "it ran a program")
        mark.unlink(missing_ok=True)
    return tally


def open_within_limits(open_it: Open, tally: Tally, size: int = 0) -> None:
    """Open a file of some size in a child process, which must not take long or much memory."""
    seconds, taken = open_apart(open_it)
    tally.measure("seconds for one", seconds)
    tally.measure("MB taken by one", taken / 1e6)
    expect(seconds < MOST_SECONDS, f"it took {seconds:.1f} s")
    expect(taken < size + MOST_BYTES, f"it took {taken / 1e6:.0f} MB")


def open_apart(open_it: Open) -> tuple[float, float]:
    """Open a file in a child process; seconds, and bytes that the child and its own took."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(int(2 * MOST_SECONDS))
            os.write(writing, judge(open_it).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    expect(status == 0 and said, f"the process that opened it ended with status {status}")
    error, seconds, taken = json.loads(said)
    expect(not error, error)
    return seconds, taken


def judge(open_it: Open) -> str:
    """In the child: an error of ours, or none at all, is right; anything else is not."""
    peak()  # forget what the process that forked this one once held
    before, began, error = 1024 * memory(), time.monotonic(), ""
    with quiet():
        try:
            open_it()
        except SveaError:
            pass
        except BaseException:
            error = traceback.format_exc(limit=-8)
    held = peak()
    # Linux counts what a child held between fork and exec, which is what this process holds.
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    of_children = child if child > 1.1 * max(before, held) else 0
    return json.dumps([error, time.monotonic() - began, max(held - before, of_children)])


def peak() -> int:
    """The most memory this process has held since it last asked, in bytes."""
    held = memory(name="VmHWM")
    Path("/proc/self/clear_refs").write_text("5")
    return 1024 * held


def files_in(folder: Path, mark: Path) -> Iterator[tuple[str, Path, Open]]:
    """Every hostile file: what it is, where it lies, how a user would open it."""
    yield from weights(folder / "weights", mark)
    yield from manifests(folder / "manifests")
    yield from configurations(folder / "configurations")
    yield from pictures(folder / "pictures")
    yield from videos(folder / "videos", mark)
    yield from logs(folder / "logs")


def written(
    path: Path, content: dict[str, bytes], open_it: Callable[[Path], Any]
) -> Iterator[tuple[str, Path, Open]]:
    """Files of one name, each in a folder of its own below its parent, which a user opens."""
    for number, (name, data) in enumerate(content.items()):
        place = put(path.parent / str(number) / path.name, data)
        yield f"{path.name}: {name}", place, partial(open_it, place.parent)


# Checkpoints of a stranger, whose every hash is right --------------------------------------------


def header(entries: Any, data: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    """One tensor of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def weights(folder: Path, mark: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile agent.safetensors."""
    zipped = io.BytesIO()
    torch.save({"w": Gadget(mark)}, zipped)
    array = io.BytesIO()
    np.save(array, np.array([Gadget(mark, "open")], object), allow_pickle=True)
    deep = b"[" * 100_000
    content = {
        "a pickle": pickle.dumps(Gadget(mark)),
        "a pickle that evaluates": pickle.dumps(Gadget(mark, "eval")),
        "a torch file": zipped.getvalue(),
        "a numpy file of objects": array.getvalue(),
        "a header of 2**63 bytes": (2**63).to_bytes(8, "little") + b"{}",
        "a header longer than the file": (10**6).to_bytes(8, "little") + b"{}",
        "overlapping tensors": header({"a": entry([4], 0, 16), "b": entry([4], 8, 24)}, bytes(24)),
        "a tensor past the end": header({"a": entry([400], 0, 1600)}, bytes(16)),
        "a shape of 2**62": header({"a": entry([2**62, 4], 0, 16)}, bytes(16)),
        "a negative shape": header({"a": entry([-4], 0, 16)}, bytes(16)),
        "a header nested 100,000 deep": header(deep, bytes(16)),
        "an unknown type": header({"a": entry([4], 0, 16, "PICKLE")}, bytes(16)),
        "names of another agent": header({"a": entry([4], 0, 16)}, bytes(16)),
    }
    for number, (name, data) in enumerate(content.items()):
        run = sealed(folder / str(number), agent=data)
        yield f"weights: {name}", run, partial(load_agent, run)


def manifests(folder: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile manifest.json."""
    digest = {"size": 10**15, "sha256": "0"}
    content: dict[str, Any] = {
        "a file elsewhere": {"files": {"../../../../../etc/passwd": digest}},
        "an absolute file": {"files": {"/dev/zero": digest}},
        "a segment elsewhere": {"segments": [{"name": "/dev/zero", "frames": 1} | digest]},
        "an infinite decision": {"decision": float("inf")},
        "a decision in words": {"decision": "many"},
        "files as a list": {"files": [1, 2, 3]},
        "nested 100,000 deep": {},
    }
    for number, (name, changes) in enumerate(content.items()):
        run = sealed(folder / str(number), manifest=changes)
        if not changes:
            (newest(run) / "manifest.json").write_bytes(b'{"a":' * 100_000)
        yield f"manifest: {name}", run, partial(resume, run)


def sealed(run: Path, agent: bytes | None = None, manifest: dict[str, Any] | None = None) -> Path:
    """A run with one checkpoint, parts of which are replaced and all of which is sealed again."""
    saver = Saver(run)
    saver.go(6)
    saver.save()
    (run / "config.json").write_bytes(files.to_json(to_dict(config(TOY, run))))
    place = newest(run)
    written = files.read_json(place / "manifest.json", 10**6)
    if agent is not None:
        written["files"]["agent.safetensors"] = files.write(place / "agent.safetensors", [agent])
    written |= manifest or {}
    written.pop("seal")
    written["seal"] = files.seal(written)
    (place / "manifest.json").write_text(json.dumps(written))
    return run


def newest(run: Path) -> Path:
    """The newest checkpoint's folder."""
    return max((run / "checkpoints").iterdir())


def resume(run: Path) -> None:
    """As `svea train` does."""
    saved = checkpoint.load(run)
    if saved is not None:
        checkpoint.restore_replay(run, saved, Replay(40, 16, 1, episode_length=1000))


# Everything else ----------------------------------------------------------------------------------


def configurations(folder: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile config.json."""
    content = {
        "nested 100,000 deep": b'{"task":' * 100_000,
        "infinite decisions": b'{"task": "walker_walk", "decisions": 1e999}',
        "10**12 pixels": b'{"task": "walker_walk", "image_size": 1000000000000}',
        "a number of 10,000 digits": b'{"task": "walker_walk", "seed": ' + b"9" * 10_000 + b"}",
        "unknown fields": b'{"task": "walker_walk", "__class__": "os.system"}',
        "bytes that are no text": bytes(range(256)),
    }
    yield from written(folder / "config.json", content, load_config)
    huge: dict[str, Any] = {"network.hidden": 65_536, "network.projection": 65_536,
                            "image_size": 1024, "network.filters": 4096}  # fmt: skip
    for name, number in huge.items():
        run = sealed(folder / name)
        stored = json.loads((run / "config.json").read_text())
        part, _, option = name.rpartition(".")
        (stored[part] if part else stored)[option] = number
        (run / "config.json").write_text(json.dumps(stored))
        yield f"configuration: {name} {number:,}", run, partial(load_agent, run)


def chunk(kind: bytes, body: bytes) -> bytes:
    """Of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, data: bytes, extra: bytes = b"") -> bytes:
    """A PNG with any header."""
    shape = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + shape + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def pictures(folder: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile pictures for overlay."""
    zeros = zlib.compress(bytes(2 * 10**7), 9)
    text = chunk(b"zTXt", b"a\0\0" + zeros)
    pngs = {
        "60,000 x 60,000": png(60_000, 60_000, zeros[:1000]),
        "11,000 x 11,000, all zeros": png(11_000, 11_000, zeros),
        "20 MB of text": png(64, 64, zlib.compress(bytes(64 * 193)), text),
        "PostScript": POSTSCRIPT,
    }
    jpeg = b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    jpegs = {
        "65,535 x 65,535": jpeg + bytes(100),
        "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    }
    for ending, content in (("png", pngs), ("jpg", jpegs)):
        yield from written(folder / ending / f"0.{ending}", content, ImageBank.folder)


POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 64 64
(%pipe%touch canary) (w) file closefile
"""


def videos(folder: Path, mark: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile videos for backgrounds."""
    playlist = f"#EXTM3U\n#EXTINF:1,\nfile://{mark.parent}/secret\n#EXT-X-ENDLIST\n".encode()
    box = struct.pack(">I", 32) + b"ftypisom" + bytes(20)
    nested = (struct.pack(">I", 2**20 - 8 * k) + b"moov" for k in range(10_000))
    content = {
        "a playlist": playlist,
        "a list of files": b"ffconcat version 1.0\nfile '/etc/passwd'\n",
        "a box of 2**63 bytes": box + struct.pack(">I", 1) + b"moov" + struct.pack(">Q", 2**63),
        "nested boxes": box + b"".join(nested),
        "zeros": bytes(10**6),
    }
    show = lambda place: clips.in_folder(place).open(0).frame(0)  # noqa: E731
    yield from written(folder / "clip.mp4", content, show)


def logs(folder: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile logs of somebody else's run."""
    infinite = b'{"kind": "episode", "decision": 1e999, "return": NaN}\n'
    content = {
        "a line nested 100,000 deep": b'{"a":' * 100_000 + b"\n",
        "numbers beyond all numbers": infinite * 9,
        "a line of 20 MB": b'{"kind": "' + b"x" * 20_000_000 + b'"}\n',
    }
    yield from written(folder / "metrics.jsonl", content, lambda run: read_run(run).episode_curve())


# Special files in a run's place: named pipes, devices, and sparse files of a terabyte -----------

KINDS = ("a named pipe", "a device", "a terabyte of nothing")
CHECKPOINT = [f"checkpoints/*/{n}" for n in ("manifest.json", "state.json", "agent.safetensors")]
READ: dict[str, tuple[str, ...]] = {  # which files each verb reads
    "report": ("config.json", "metrics.jsonl", "eval.jsonl", "media/train.png", "media/train.mp4",
               "analysis/q-gap.json"),
    "compare": ("config.json", "metrics.jsonl", "eval.jsonl", "analysis/q-gap.json"),
    "eval": ("config.json", "eval.jsonl", *CHECKPOINT),
    "export": ("config.json", *CHECKPOINT),
    "watch": ("config.json", *CHECKPOINT),
    "analyze": ("config.json", "replay/*", *CHECKPOINT),
    "train": ("config.json", "metrics.jsonl", "replay/*", *CHECKPOINT),
    "sweep": ("study.json",),
}  # fmt: skip
HARMLESS = {("train", "metrics.jsonl", KINDS[2]), ("report", "media/train.mp4", KINDS[2])}
"""The end of the log is cut off, and a video that does not fit into the page is named in it."""

CASES = [(verb, name, kind) for verb, names in READ.items() for name in names for kind in KINDS]


def special_files(cases: range, seed: int, folder: Path) -> Tally:
    """Put each kind in the place of each file, and let each verb that reads it meet it."""
    if why := no_films():
        return Tally(skipped=why)
    tally, whole = Tally(), make_run(folder / "whole")
    for verb, name, kind in (CASES[case] for case in cases if case < len(CASES)):
        run = folder / "runs" / "run"
        shutil.rmtree(folder / "runs", ignore_errors=True)
        shutil.copytree(whole, run)
        place = next(run.glob(name))
        place.unlink(missing_ok=True)
        make_special(place, kind)
        words = command(verb, run, folder / "out")
        allowed = (0, 4) if (verb, name, kind) in HARMLESS else (4,)
        with tally.case(f"svea {verb}, {name}: {kind}"):
            open_within_limits(partial(end_with, words, allowed), tally)
    return tally


def end_with(words: list[str], allowed: tuple[int, ...]) -> None:
    """A command ends with one of these exit codes."""
    code = cli.main(words)
    expect(code in allowed, f"exit code {code}")


def make_run(run: Path) -> Path:
    """A run with one checkpoint, an evaluation, media, an analysis, and a study's plan."""
    train(tiny(run, decisions=20, save_every=100))
    record = '{"policy": "agent", "mode": "train", "decision": 20, "seed": 1, "return": 1.0}\n'
    (run / "eval.jsonl").write_text(record)
    add_media(run, ("train",))
    write_analysis(run, "q-gap", [{"augment": "conv", "gap": 1.0, "relative": 0.1}])
    (run / "study.json").write_text("{}")
    return run


def make_special(path: Path, kind: str) -> None:
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
    options = flags(TINY | {"decisions": 26, "save_every": 100})
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
