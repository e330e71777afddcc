"""`svea data list` and `svea data check`: what a data folder has, and whether it is sound.

No data is needed: without a data folder, videos and pictures are generated. With one, the paper's
test worlds are there as published. This file looks where the environments and the image bank look,
and decodes with their decoder, so what is said here is what they will find.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from svea.core import words
from svea.core.errors import StorageError, UserError
from svea.data import clips
from svea.data.decode import VIDEO_ENDINGS, DecodeError, check_picture
from svea.data.folders import VARIABLE, data_folder, existing_folder
from svea.data.get import RECORD, SOURCES, read_record
from svea.data.inventory import Part, content_sha256, inventory, pictures_below

MOST_PICTURES = 50_000
"""At most this many pictures are checked, evenly chosen: about five minutes' work."""


def list_data(data_dir: str | None) -> int:
    """Print what is found, what is missing, what it is needed for, and how to get it.

    Args:
        data_dir: The data folder; the variable `SVEA_DATA` when not given.
    """
    root = data_folder(data_dir or None)
    if root is None:
        print(f"no data folder (--data-dir, {VARIABLE}): videos and pictures are generated")
    else:
        print(f"data folder {root}" + ("" if data_dir else f" ({VARIABLE})"))
    parts = inventory(root or Path(os.devnull))  # nothing can be below that
    print()
    for part in parts:
        print(f"{part.name:<15} {part.summary:<18} for {part.needed_for}")
        if part.count and part.missing:
            _print_wrapped(f"missing: {', '.join(part.missing)}")
        if not part.count and root is not None:
            _print_wrapped("refused with this folder; generated where no data folder is given")
    _print_sources({part.source for part in parts if part.missing or not part.count}, root)
    return 0


def check_data(folder: Path, on_file: Callable[[Path], None] = lambda path: None) -> int:
    """Decode and hash everything that svea would read in a data folder, and print the findings.

    Args:
        folder: With benchmark data.
        on_file: Called with each clip and picture that was looked at.

    Returns:
        0 when all that was found is sound (some may be missing), else 2.

    Raises:
        UserError: It is not a folder, or has nothing that svea reads.
    """
    root = existing_folder(folder, "FOLDER")
    parts = inventory(root)
    if not any(part.count for part in parts):
        raise UserError(f"nothing in {root} that svea reads. {_hint(root)}")
    known, problems = _known_hashes(root)
    for part in parts:
        for path, detail, problem in _examine(part, on_file):
            problems += _report(root, path, detail, problem, known)
    for part in parts:
        if part.missing:
            print(f"note: {part.name} has {part.summary}; missing: {', '.join(part.missing)}")
    for path in _unread(root, parts):
        print(f"note: {path.relative_to(root)} is not read: no mode looks for that name")
    print(words.plural(problems, "problem") if problems else "all that was found is sound")
    return UserError.exit_code if problems else 0


# --- checking -------------------------------------------------------------------------------------


def _examine(part: Part, on_file: Callable[[Path], None]) -> Iterator[tuple[Path, str, str]]:
    """Each file or folder of a part with what it has and what is wrong with it, if anything is."""
    if part.unit == "clips":
        found = clips.Clips("", ("",) * part.count, part.files)
        for index, path in enumerate(part.files):
            yield path, *_check_clip(found, index)
            on_file(path)
    else:
        for folder in part.files:
            yield from _check_pictures(folder, on_file)


def _check_clip(found: clips.Clips, index: int) -> tuple[str, str]:
    """Decode a clip to its end, within the limits that the modes set."""
    try:
        return f"{len(found.open(index))} frames", ""
    except UserError as error:
        return "", str(error)


def _check_pictures(
    folder: Path, on_file: Callable[[Path], None]
) -> Iterator[tuple[Path, str, str]]:
    """Decode the pictures of a folder: a line for each problem, and one for the rest."""
    every = list(pictures_below(folder))
    stride = -(-len(every) // MOST_PICTURES)
    chosen, good = every[::stride], 0
    print(f"decoding {len(chosen)} pictures in {folder}", file=sys.stderr)
    for path in chosen:
        if path.suffix.lower() in VIDEO_ENDINGS:
            _, problem = _check_clip(clips.Clips("", ("",), (path,)), 0)
        else:
            problem = _check_picture(path)
        if problem:
            yield path, "", problem
        good += not problem
        on_file(path)
    of = f", {len(chosen)} of {len(every)} checked" if stride > 1 else ""
    yield folder, f"{good} sound pictures{of}", "" if good else "has no sound picture"


def _unread(root: Path, parts: list[Part]) -> list[Path]:
    """Files that lie among the clips and have no name that a mode looks for."""
    read = {path for part in parts for path in part.files}
    places = (root / "dmcgb/video_easy", root / "dmcgb/video_hard", root / "davis")
    lying = [path for place in places if place.is_dir() for path in sorted(place.iterdir())]
    return [path for path in lying if path not in read and path.suffix.lower() in VIDEO_ENDINGS]


def _check_picture(path: Path) -> str:
    """What is wrong with a picture, if anything is."""
    try:
        check_picture(path)
    except DecodeError as error:
        return str(error)
    return ""


def _report(root: Path, path: Path, detail: str, problem: str, known: Mapping[str, str]) -> int:
    """Print one finding; return 1 for a problem."""
    name = path.relative_to(root).as_posix()
    if not problem:
        sha256 = content_sha256(path)
        recorded = known.get(name)
        if recorded in (None, sha256):
            standing = "as downloaded" if recorded else "unverified"
            is_clip = name.startswith("dmcgb/video_")
            if is_clip and (own := clips.published_hashes(path.parent.name).get(path.stem)):
                standing += f", {'' if sha256.startswith(own) else 'not '}the benchmark's own"
            print(f"ok       {name}  {detail}  sha256 {sha256}  {standing}")
            return 0
        problem = f"has changed since it was downloaded: sha256 {sha256}, recorded {recorded}"
    print(f"problem  {name}  {problem}")
    return 1


def _known_hashes(root: Path) -> tuple[dict[str, str], int]:
    """The hashes of downloaded files, and the number of problems with the record: 0 or 1."""
    try:
        entries = read_record(root).values()
    except StorageError as error:
        print(f"problem  {RECORD}  {error}")
        return {}, 1
    return {name: sha256 for entry in entries for name, sha256 in entry["files"].items()}, 0


# --- words ----------------------------------------------------------------------------------------


def _print_sources(names: set[str], root: Path | None) -> None:
    """Say how to get what is missing."""
    print("\nto get it:" if names else "\nnothing is missing")
    for name, source in SOURCES.items():
        if name in names:
            # A data set that is there in part is not written over.
            free = root is not None and not (root / source.into).exists()
            print(f"  svea data get {name} {root if free else 'FOLDER'}")
            _print_wrapped(f"{source.about}, about {source.size // 10**6} MB")


def _print_wrapped(text: str) -> None:
    print(textwrap.fill(text, 96, initial_indent=" " * 16, subsequent_indent=" " * 16))


def _hint(root: Path) -> str:
    """What may be wrong with a folder in which nothing was found."""
    if (root / "src/env/data").is_dir():
        return (
            "It looks like the repository of DMControl-GB: `svea data get dmcgb FOLDER` lays its "
            "videos out as svea reads them."
        )
    return "docs/data.md shows the layout; `svea data get NAME FOLDER` makes it."
