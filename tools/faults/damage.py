"""Truncated files and flipped bits: noticed, or harmless; never a crash, never wrong data."""

import contextlib
import io
import json
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from archive_server import make_zip
from faults.disks import about_to_save, check_whole
from faults.profiles import TOY, config, no_films
from faults.tally import Tally, expect, numbers
from small_media import picture, put, write_video

from svea.agents import make_agent
from svea.augment.images import ImageBank
from svea.config import to_dict
from svea.core.errors import SveaError
from svea.data import clips
from svea.data.get import Source, unpack
from svea.results.read import read_run
from svea.runs.load import load_agent, load_config, write_export

Damage = Callable[[bytes, np.random.Generator], bytes]


class Kind(NamedTuple):
    """A kind of file: where one lies, and what must hold whatever became of it."""

    path: Path
    check: Callable[[], Any]


def cut(content: bytes, random: np.random.Generator) -> bytes:
    """The first bytes of a file."""
    return content[: int(random.integers(0, len(content)))]


def flip(content: bytes, random: np.random.Generator) -> bytes:
    """A file with 1, 8 or 64 bits flipped."""
    changed = np.frombuffer(content, np.uint8).copy()
    for bit in random.choice(8 * len(changed), random.choice([1, 8, 64]), replace=False):
        changed[bit // 8] ^= 1 << (bit % 8)
    return changed.tobytes()


def damage(
    cases: range, seed: int, folder: Path, harm: Damage, make_kinds: Callable[..., dict[str, Kind]]
) -> Tally:
    """Damage every kind of file, once per case, and restore it again."""
    tally = Tally(skipped=no_films() if make_kinds is media_kinds else "")
    for name, kind in (make_kinds(folder) if not tally.skipped else {}).items():
        whole = kind.path.read_bytes()
        for case in cases:
            kind.path.write_bytes(harm(whole, numbers(name, seed, case)))
            with tally.case(f"{harm.__name__} {name} {case}"), quiet():
                try:
                    kind.check()
                except SveaError as error:
                    expect(error.exit_code in (2, 4), f"exit code {error.exit_code}")
        kind.path.write_bytes(whole)
    return tally


@contextlib.contextmanager
def quiet():
    """Without the warnings that damage is right to cause."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def data_kinds(folder: Path) -> dict[str, Kind]:
    """Everything that a run writes, an export and an archive."""
    saver = about_to_save("later", folder / "run")
    saver.save()
    newest = folder / "run" / "checkpoints" / f"{saver.decision:09d}"
    segment = max((folder / "run" / "replay").iterdir())

    whole = partial(check_whole, saver, saver.decision - 11)
    return {
        "weights": Kind(newest / "agent.safetensors", whole),
        "state": Kind(newest / "state.json", whole),
        "manifest": Kind(newest / "manifest.json", whole),
        "replay segment": Kind(segment, whole),
        **run_kinds(folder / "trained"),
        "export": export_kind(folder / "export"),
        "archive": archive_kind(folder),
    }


def run_kinds(run: Path) -> dict[str, Kind]:
    """The configuration and the log: text without a checksum, so they may say something else."""
    run.mkdir()
    (run / "config.json").write_text(json.dumps(to_dict(config(TOY, run)), indent=1))
    lines = [{"kind": "episode", "decision": k, "frame": k, "return": k / 3} for k in range(99)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def read() -> None:
        found = read_run(run)
        expect(len(found.metrics) <= len(lines), "lines were made up")
        found.episode_curve()

    return {
        "configuration": Kind(run / "config.json", partial(load_config, run)),
        "log": Kind(run / "metrics.jsonl", read),
    }


def export_kind(folder: Path) -> Kind:
    """The weights of an export."""
    agent = make_agent(config(TOY, folder), 1)
    state = agent.state_dict()
    write_export(folder, agent, to_dict(config(TOY, folder)))

    def load() -> None:
        read = load_agent(folder).state_dict()
        for name in ("trunk", "actor"):
            same = [torch.equal(v, state[k]) for k, v in read.items() if k.startswith(f"{name}.")]
            expect(same and all(same), "weights have changed")

    load()
    return Kind(folder / "actor.safetensors", load)


def archive_kind(folder: Path) -> Kind:
    """A downloaded archive."""
    target = folder / "unpacked"
    content = {f"clips/{k}.txt": bytes([k]) * 500 for k in range(20)}
    path = put(folder / "archive.zip", make_zip(*content.items()))
    source = Source("", "zip", "", 10**5, "", r"clips/(\d+)\.txt")

    def read() -> None:
        shutil.rmtree(target, ignore_errors=True)
        unpack(source, path, target)
        for file in target.iterdir():
            expect(file.read_bytes() == content[f"clips/{file.name}.txt"], "wrong content")

    read()
    return Kind(path, read)


def media_kinds(folder: Path) -> dict[str, Kind]:
    """Pictures for overlay and videos for backgrounds."""
    kinds = {}
    for ending in ("png", "jpg"):
        path, _ = (picture(folder / ending, f"{k}.{ending}", 48) for k in range(2))

        def draw(place: Path = path.parent) -> None:
            expect(ImageBank.folder(place).draw(2, 16, 16).isfinite().all(), "not a picture")

        draw()
        kinds[ending] = Kind(path, draw)
    noise = np.random.default_rng(0).integers(0, 255, (8, 64, 64, 3)).astype(np.uint8)
    video = write_video(folder / "video" / "clip.mp4", noise)

    def show() -> None:
        clips._cache.clear()
        frame = clips.in_folder(video.parent).open(0).frame(3)
        expect(frame.dtype == np.uint8 and frame.ndim == 3, "not a picture")

    show()
    return kinds | {"video": Kind(video, show)}


truncations = partial(damage, harm=cut, make_kinds=data_kinds)
bit_flips = partial(damage, harm=flip, make_kinds=data_kinds)
media_truncations = partial(damage, harm=cut, make_kinds=media_kinds)
media_bit_flips = partial(damage, harm=flip, make_kinds=media_kinds)
