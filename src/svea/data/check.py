"""`svea data`: what a data folder has, whether it is sound, and how to get what is missing.

No data is needed: without a data folder every mode and augmentation makes its own. With one, the
paper's test worlds are there as published. This file looks where the environments and the image
bank look, and decodes with their decoder, so what is said here is what they will find.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from svea.data import clips
from svea.data.archives import ArchiveError, unpack
from svea.data.downloads import LIMIT, SOURCES, Source, fetch, verify
from svea.data.inventory import (
    SMALLEST_SIDE,
    Part,
    content_sha256,
    inventory,
    pictures_below,
    storage_errors,
)
from svea.data.legacy_tables import read_legacy_table
from svea.envs.looks.colors import SETTINGS, ColorMode
from svea.errors import StorageError, UserError, unknown_name

MOST_PICTURES = 50_000
"""Of more pictures, an even selection of this many is checked: about five minutes' work."""

RECORD = "downloads.json"
"""In the data folder: where each download came from, and the hashes of its files."""

_MOST_TABLE_BYTES = 2**20
_WORK = ".downloads"


def list_data(data_dir: str | None) -> int:
    """Print what is found, what is missing, what it is needed for, and how to get it.

    Args:
        data_dir: The data folder; the variable `SVEA_DATA` when not given.
    """
    given = data_dir or os.environ.get("SVEA_DATA") or None
    if given is None:
        print("no data folder (--data-dir, SVEA_DATA): colours, videos and pictures are generated")
        parts = inventory(Path(os.devnull))  # nothing can be below it
    else:
        root = _existing(given, "data_dir" if data_dir else "the variable SVEA_DATA")
        print(f"data folder {root}" + ("" if data_dir else " (SVEA_DATA)"))
        parts = inventory(root)
    print()
    for part in parts:
        print(f"{part.name:<15} {part.summary:<18} for {part.needed_for}")
        if part.count and part.missing:
            _print_wrapped(f"missing: {', '.join(part.missing)}")
        if not part.count and given is not None:
            _print_wrapped("refused with this folder; generated where no data folder is given")
    _print_sources({part.source for part in parts if part.missing or not part.count}, given)
    return 0


def check_data(folder: Path) -> int:
    """Decode and hash everything that svea would read in a data folder, and print the findings.

    Returns:
        0 when all that was found is sound (some may be missing), else 2.

    Raises:
        UserError: It is no folder, or has nothing that svea reads.
    """
    root = _existing(folder, "FOLDER")
    parts = inventory(root)
    if not any(part.count for part in parts):
        raise UserError(f"nothing in {root} that svea reads. {_hint(root)}")
    known, problems = _known_hashes(root)
    for part in parts:
        for path, detail, problem in _examine(part, root):
            problems += _report(root, path, detail, problem, known)
    for part in parts:
        if part.missing:
            print(f"note: {part.name} has {part.summary}; missing: {', '.join(part.missing)}")
    for path in _unread(root, parts):
        print(f"note: {path.relative_to(root)} is not read: no mode looks for that name")
    print(f"{problems} problems" if problems else "all that was found is sound")
    return UserError.exit_code if problems else 0


def get_data(
    name: str,
    folder: Path,
    *,
    sources: Mapping[str, Source] = SOURCES,
    loopback: bool = False,
) -> int:
    """Download a data set into a data folder, in the layout that svea reads.

    Args:
        name: One of `SOURCES`.
        folder: The data folder; made if need be.
        sources: What there is to get.
        loopback: Allow plain http from this machine.

    Raises:
        UserError: The name is unknown, or the folder has this data set.
        StorageError: Download, archive or disk failed; the same command goes on where it can.
    """
    if name not in sources:
        raise unknown_name("data set", name, sources)
    source, root = sources[name], Path(folder).expanduser()
    destination, work = root / source.into, root / _WORK
    if destination.exists():
        raise UserError(
            f"{destination} exists. Check it with `svea data check {root}`; to download it again, "
            "move it away first."
        )
    record = _read_record(root)
    print(f"{name}: {source.about}, about {source.size // 10**6} MB, from {source.url}")
    archive, staging = work / f"{name}.{source.kind}", work / name
    with storage_errors(work):
        work.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(staging, ignore_errors=True)  # of an interrupted run
    if not archive.exists():
        fetch(source, archive, loopback=loopback)
    sha256 = verify(source, archive)
    _unpack(source, archive, staging)
    with storage_errors(destination):
        _convert_tables(staging)
        destination.parent.mkdir(parents=True, exist_ok=True)
        staging.rename(destination)  # all of it appears at once
        _write_record(root, record | {name: _describe(root, name, source, archive, sha256)})
        archive.unlink()
        if not any(work.iterdir()):
            work.rmdir()
    verified = f"md5 {source.md5} as published" if source.md5 else "unverified: none is published"
    print(f"archive sha256 {sha256} ({verified}); recorded in {root / RECORD}")
    for part in inventory(root):
        if part.source == name:
            print(f"{part.name:<15} {part.summary}")
    print(f"use it with --data-dir {root} or export SVEA_DATA={root}")
    return 0


# --- checking -------------------------------------------------------------------------------------


def _examine(part: Part, root: Path) -> Iterator[tuple[Path, str, str]]:
    """Each file or folder of a part with what it has and what is wrong with it, if anything is."""
    if part.unit == "tables":
        for path in part.files:
            yield path, *_check_table(path, root)
    elif part.unit == "clips":
        found = clips.Clips("", ("",) * part.count, part.files)
        for index, path in enumerate(part.files):
            yield path, *_check_clip(found, index)
    else:
        for folder in part.files:
            yield from _check_pictures(folder)


def _check_table(path: Path, root: Path) -> tuple[str, str]:
    """Read a table of colours as the mode does."""
    if path.stat().st_size > _MOST_TABLE_BYTES:
        return "", f"has more than {_MOST_TABLE_BYTES} bytes: too large for a table of colours"
    try:
        count = len(ColorMode(path.stem, root).settings)
    except (UserError, RecursionError) as error:
        return "", f"is unsound: {error}"
    if count != SETTINGS:
        return "", f"has {count} settings; the benchmark's table has {SETTINGS}"
    return f"{count} settings", ""


def _check_clip(found: clips.Clips, index: int) -> tuple[str, str]:
    """Decode a clip to its end, within the limits that the modes set."""
    try:
        return f"{len(found.open(index))} frames", ""
    except UserError as error:
        return "", str(error)


def _check_pictures(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Decode the pictures of a folder: a line for each problem, and one for the rest."""
    every = list(pictures_below(folder))
    stride = -(-len(every) // MOST_PICTURES)
    chosen, good = every[::stride], 0
    print(f"decoding {len(chosen)} pictures in {folder}", file=sys.stderr)
    for path in chosen:
        if path.suffix.lower() in clips.VIDEO_ENDINGS:
            _, problem = _check_clip(clips.Clips("", ("",), (path,)), 0)
        else:
            problem = _check_picture(path)
        if problem:
            yield path, "", problem
        good += not problem
    of = f", {len(chosen)} of {len(every)} checked" if stride > 1 else ""
    yield folder, f"{good} sound pictures{of}", "" if good else "has no sound picture"


def _unread(root: Path, parts: list[Part]) -> list[Path]:
    """Files that lie among the clips and tables and have no name that a mode looks for."""
    read = {path for part in parts for path in part.files}
    places = (root / "dmcgb", root / "dmcgb/video_easy", root / "dmcgb/video_hard", root / "davis")
    lying = [path for place in places if place.is_dir() for path in sorted(place.iterdir())]
    media = (*clips.VIDEO_ENDINGS, ".json", ".pt")
    return [path for path in lying if path not in read and path.suffix.lower() in media]


def _check_picture(path: Path) -> str:
    """What is wrong with a picture, if anything is."""
    from PIL import Image, UnidentifiedImageError

    if not path.is_file():
        return "is no file"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # said below
            with Image.open(path, formats=("BMP", "JPEG", "PNG", "WEBP")) as picture:
                width, height = picture.size
                if width * height > clips.MOST_PIXELS:
                    return f"is too large: {width} x {height} pixels"
                if min(width, height) < SMALLEST_SIDE:
                    return f"is too small: {width} x {height}; at least {SMALLEST_SIDE} are needed"
                picture.load()
    except UnidentifiedImageError:
        return "is no picture"
    except Image.DecompressionBombError:
        return "is too large"
    except (OSError, SyntaxError, ValueError) as error:
        return f"is damaged: {error}"
    return ""


def _report(root: Path, path: Path, detail: str, problem: str, known: Mapping[str, str]) -> int:
    """Print one finding; return 1 for a problem."""
    name = path.relative_to(root).as_posix()
    if not problem:
        sha256 = content_sha256(path)
        recorded = known.get(name)
        if recorded in (None, sha256):
            standing = "as downloaded" if recorded else "unverified"
            print(f"ok       {name}  {detail}  sha256 {sha256}  {standing}")
            return 0
        problem = f"has changed since it was downloaded: sha256 {sha256}, recorded {recorded}"
    print(f"problem  {name}  {problem}")
    return 1


# --- getting --------------------------------------------------------------------------------------


def _unpack(source: Source, archive: Path, staging: Path) -> None:
    """Unpack within limits; an archive that is refused is of no use and goes."""
    limits = {"most_files": source.most_files, "most_bytes": LIMIT * source.size}
    try:
        unpack(archive, source.kind, source.picks, staging, **limits)
    except ArchiveError as error:
        archive.unlink(missing_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        raise ArchiveError(f"{error} It was deleted; run the command again.") from error


def _convert_tables(folder: Path) -> None:
    """Replace the benchmark's pickled tables of colours by JSON."""
    for path in sorted(folder.glob("color_*.pt")):
        try:
            table = read_legacy_table(path)
        except StorageError as error:
            print(f"left out: {error} Without a data folder the colours are generated by its law.")
        else:
            path.with_suffix(".json").write_text(json.dumps(table))
        path.unlink()


def _describe(root: Path, name: str, source: Source, archive: Path, sha256: str) -> dict[str, Any]:
    """Where the data came from, and what it was."""
    files = [file for part in inventory(root) if part.source == name for file in part.files]
    return {
        "url": source.url,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "bytes": archive.stat().st_size,
        "sha256": sha256,
        "verified_md5": source.md5,
        "files": {file.relative_to(root).as_posix(): content_sha256(file) for file in files},
    }


def _write_record(root: Path, record: dict[str, Any]) -> None:
    """Write the record beside the old one and put it in its place."""
    fresh = root / f"{RECORD}.new"
    fresh.write_text(json.dumps(record, indent=1) + "\n")
    fresh.replace(root / RECORD)


def _read_record(root: Path) -> dict[str, Any]:
    """What is known of earlier downloads."""
    path = root / RECORD
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text())
        if not all(isinstance(entry["files"], dict) for entry in record.values()):
            raise ValueError("no table of files")
        return dict(record)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(
            f"{path} is damaged ({error!r}); delete it, and hashes will not be compared."
        ) from error


def _known_hashes(root: Path) -> tuple[dict[str, str], int]:
    """The hashes of downloaded files, and the number of problems with the record: 0 or 1."""
    try:
        entries = _read_record(root).values()
    except StorageError as error:
        print(f"problem  {RECORD}  {error}")
        return {}, 1
    return {name: sha256 for entry in entries for name, sha256 in entry["files"].items()}, 0


# --- words ----------------------------------------------------------------------------------------


def _print_sources(names: set[str], given: str | None) -> None:
    """Say how to get what is missing."""
    print("\nto get it:" if names else "\nnothing is missing")
    for name, source in SOURCES.items():
        if name in names:
            # A data set that is there in part is not written over.
            free = given is not None and not (Path(given).expanduser() / source.into).exists()
            print(f"  svea data get {name} {given if free else 'FOLDER'}")
            _print_wrapped(f"{source.about}, about {source.size // 10**6} MB")


def _print_wrapped(text: str) -> None:
    print(textwrap.fill(text, 96, initial_indent=" " * 16, subsequent_indent=" " * 16))


def _hint(root: Path) -> str:
    """What may be wrong with a folder in which nothing was found."""
    if (root / "src/env/data").is_dir():
        return (
            "It looks like the repository of DMControl-GB, whose colours need converting: "
            "`svea data get dmcgb FOLDER` does that in a folder of its own."
        )
    return "docs/data.md shows the layout; `svea data get NAME FOLDER` makes it."


def _existing(folder: str | Path, origin: str) -> Path:
    """The folder, which must be there."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UserError(f"{origin} is {str(folder)!r}, which is not a folder.")
    return path
