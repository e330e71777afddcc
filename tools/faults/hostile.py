"""Files made to do harm: none runs anything, takes the memory, or takes long."""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import signal
import struct
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults.damage import quiet
from faults.disks import Saver
from faults.profiles import TOY, config
from faults.tally import Tally, expect

from svea.core import files
from svea.core.errors import SveaError
from svea.runs import checkpoint

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
            "exec": (exec, (touch,)),
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
    seconds, memory = open_apart(open_it)
    tally.measure("seconds for one", seconds)
    tally.measure("MB taken by one", memory / 1e6)
    expect(seconds < MOST_SECONDS, f"it took {seconds:.1f} s")
    expect(memory < size + MOST_BYTES, f"it took {memory / 1e6:.0f} MB")


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
    error, seconds, memory = json.loads(said)
    expect(not error, error)
    return seconds, memory


def judge(open_it: Open) -> str:
    """In the child: an error of ours, or none at all, is right; anything else is not."""
    peak()  # forget what the process that forked this one once held
    before, began, error = status("VmRSS"), time.monotonic(), ""
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
    held = status("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")
    return held


def status(name: str) -> int:
    """A size that the kernel knows of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def files_in(folder: Path, mark: Path) -> Iterator[tuple[str, Path, Open]]:
    """Every hostile file: what it is, where it lies, how a user would open it."""
    yield from weights(folder / "weights", mark)
    yield from manifests(folder / "manifests")
    yield from configurations(folder / "configurations")
    yield from pictures(folder / "pictures")
    yield from videos(folder / "videos", mark)
    yield from logs(folder / "logs")


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
        yield f"weights: {name}", run, lambda run=run: load_agent(run)


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
    }
    for number, (name, changes) in enumerate(content.items()):
        run = sealed(folder / str(number), manifest=changes)
        yield f"manifest: {name}", run, lambda run=run: resume(run)
    run = sealed(folder / "deep")
    (newest(run) / "manifest.json").write_bytes(b'{"a":' * 100_000)
    yield "manifest: nested 100,000 deep", run, lambda: resume(run)


def sealed(run: Path, agent: bytes | None = None, manifest: dict[str, Any] | None = None) -> Path:
    """A run with one checkpoint, parts of which are replaced and all of which is sealed again."""
    saver = Saver(run)
    saver.go(6)
    saver.save()
    (run / "config.json").write_bytes(files.to_json(vars_of(run)))
    place = newest(run)
    written = json.loads((place / "manifest.json").read_text())
    if agent is not None:
        written["files"]["agent.safetensors"] = files.write(place / "agent.safetensors", [agent])
    written |= manifest or {}
    written.pop("seal")
    sealed_again = written | {"seal": files.seal(written)}
    (place / "manifest.json").write_text(json.dumps(sealed_again))
    return run


def vars_of(run: Path) -> dict[str, Any]:
    """A whole configuration."""
    from svea.config import to_dict

    return to_dict(config(TOY, run))


def newest(run: Path) -> Path:
    """The newest checkpoint's folder."""
    return max((run / "checkpoints").iterdir())


def load_agent(run: Path) -> None:
    """As `svea eval` does."""
    from svea.runs.load import load_agent

    load_agent(run)


def resume(run: Path) -> None:
    """As `svea train` does."""
    from svea.replay import Replay

    saved = checkpoint.load(run)
    if saved is not None:
        checkpoint.restore_replay(run, saved, Replay(40, 16, 1, episode_length=1000))


# Everything else ----------------------------------------------------------------------------------


def configurations(folder: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile config.json."""
    from svea.runs.load import load_config

    content = {
        "nested 100,000 deep": b'{"task":' * 100_000,
        "infinite decisions": b'{"task": "walker_walk", "decisions": 1e999}',
        "10**12 pixels": b'{"task": "walker_walk", "image_size": 1000000000000}',
        "a number of 10,000 digits": b'{"task": "walker_walk", "seed": ' + b"9" * 10_000 + b"}",
        "unknown fields": b'{"task": "walker_walk", "__class__": "os.system"}',
        "bytes that are no text": bytes(range(256)),
    }
    for number, (name, data) in enumerate(content.items()):
        run = folder / str(number)
        run.mkdir(parents=True)
        (run / "config.json").write_bytes(data)
        yield f"configuration: {name}", run, lambda run=run: load_config(run)
    huge: dict[str, Any] = {"network.hidden": 65_536, "network.projection": 65_536,
                            "image_size": 1024, "network.filters": 4096}  # fmt: skip
    for name, number in huge.items():
        run = sealed(folder / name)
        stored = json.loads((run / "config.json").read_text())
        part, _, option = name.rpartition(".")
        (stored[part] if part else stored)[option] = number
        (run / "config.json").write_text(json.dumps(stored))
        yield f"configuration: {name} {number:,}", run, lambda run=run: load_agent(run)


def png(width: int, height: int, data: bytes, extra: bytes = b"") -> bytes:
    """A PNG with any header."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    shape = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", shape)
        + extra
        + chunk(b"IDAT", data)
        + chunk(b"IEND", b"")
    )


def pictures(folder: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile pictures for overlay."""
    from svea.augment.images import ImageBank

    zeros = zlib.compress(bytes(2 * 10**7), 9)
    text = zlib.compress(bytes(2 * 10**7), 9)
    body = b"zTXt" + b"a\0\0" + text
    bomb_text = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    jpeg = b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    content = {
        "a JPEG of 65,535 x 65,535": ("jpg", jpeg + bytes(100)),
        "a PNG of 60,000 x 60,000": ("png", png(60_000, 60_000, zeros[:1000])),
        "a PNG of 11,000 x 11,000, all zeros": ("png", png(11_000, 11_000, zeros)),
        "a PNG with 20 MB of text": (
            "png",
            png(64, 64, zlib.compress(bytes(64 * 193)), bomb_text),
        ),
        "PostScript under the name of a PNG": ("png", POSTSCRIPT),
        "SVG under the name of a JPEG": ("jpg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    }
    for number, (name, (ending, data)) in enumerate(content.items()):
        place = folder / str(number)
        place.mkdir(parents=True)
        path = place / f"0.{ending}"
        path.write_bytes(data)
        yield f"picture: {name}", path, lambda place=place: ImageBank.folder(place)


POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 64 64
(%pipe%touch canary) (w) file closefile
"""


def videos(folder: Path, mark: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile videos for backgrounds."""
    from svea.data import clips

    playlist = f"#EXTM3U\n#EXTINF:1,\nfile://{mark.parent}/secret\n#EXT-X-ENDLIST\n".encode()
    box = struct.pack(">I", 32) + b"ftypisom" + bytes(20)
    content = {
        "a playlist": playlist,
        "a list of files": b"ffconcat version 1.0\nfile '/etc/passwd'\n",
        "a box of 2**63 bytes": box + struct.pack(">I", 1) + b"moov" + struct.pack(">Q", 2**63),
        "nested boxes": box + b"".join(
            struct.pack(">I", 2**20 - 8 * k) + b"moov" for k in range(10_000)
        ),
        "zeros": bytes(10**6),
    }  # fmt: skip
    for number, (name, data) in enumerate(content.items()):
        place = folder / str(number)
        place.mkdir(parents=True)
        path = place / "clip.mp4"
        path.write_bytes(data)
        yield f"video: {name}", path, lambda place=place: clips.in_folder(place).open(0).frame(0)


def logs(folder: Path) -> Iterator[tuple[str, Path, Open]]:
    """Hostile logs of somebody else's run."""
    from svea.results.read import read_run

    content = {
        "a line nested 100,000 deep": b'{"a":' * 100_000 + b"\n",
        "numbers beyond all numbers": b'{"kind": "episode", "decision": 1e999, "return": NaN}\n'
        * 9,
        "a line of 20 MB": b'{"kind": "' + b"x" * 20_000_000 + b'"}\n',
    }
    for number, (name, data) in enumerate(content.items()):
        run = folder / str(number)
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_bytes(data)
        yield f"log: {name}", run / "metrics.jsonl", lambda run=run: read_run(run).episode_curve()


if sys.platform != "linux":
    raise SystemExit("the hostile files are opened in forks and measured through /proc: Linux only")
