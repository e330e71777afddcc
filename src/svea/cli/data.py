"""`svea data`: what a data folder has, whether it is sound, and how to get what is missing."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from svea.cli.arguments import Positional
from svea.core.errors import UserError
from svea.core.files import output_folder
from svea.core.words import plural


def show(data_dir: str = "") -> int:
    """List what is found, what is missing, and what it is needed for.

    Args:
        data_dir: folder with benchmark data; overrides SVEA_DATA.
    """
    from svea.data.clips import VARIABLE, data_folder
    from svea.data.inventory import inventory

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


def check(folder: Positional[Path]) -> int:
    """Check a folder: layout, hashes, and that every clip and picture decodes.

    Args:
        folder: with benchmark data.
    """
    from svea.core.terminal import Steps
    from svea.data import inventory

    problems = 0
    with Steps("files") as steps:
        for found in inventory.check(folder, lambda path: steps.finish(f"checked {path.name}")):
            problems += bool(found.problem)
            print(f"{'problem ' if found.problem else 'ok      '} {found.name}  ", end="")
            print(found.problem or found.detail)
    root = folder.expanduser()
    for part in inventory.inventory(root):
        if part.missing:
            print(f"note: {part.name} has {part.summary}; missing: {', '.join(part.missing)}")
    for path in inventory.unread(root):
        print(f"note: {path.relative_to(root)} is not read: no mode looks for that name")
    print(plural(problems, "problem") if problems else "all that was found is sound")
    return UserError.exit_code if problems else 0


def get(name: Positional[str], folder: Positional[Path]) -> int:
    """Download a data set.

    Example: svea data get dmcgb ~/svea-data

    Args:
        name: dmcgb, davis or places365-val.
        folder: where to put the data; later give it as --data-dir or SVEA_DATA.
    """
    from svea.core.terminal import Steps
    from svea.data import inventory
    from svea.data.get import SOURCES, get_data

    if source := SOURCES.get(name):
        print(f"{name}: {source.about}, about {source.size // 10**6} MB, from {source.url}")
    root = output_folder(folder, "folder").expanduser()
    with Steps("MB") as steps:
        described = get_data(
            name,
            root,
            lambda done, total: steps.reach(
                done // 10**6, total // 10**6, "downloading" if done < total else "unpacking"
            ),
        )
    checksum = described["verified"]
    verified = f"{checksum}, as published" if checksum else "no checksum of it is published"
    print(
        f"archive sha256 {described['sha256']} ({verified}); recorded in {root / inventory.RECORD}"
    )
    for part in inventory.inventory(root):
        if part.source == name:
            print(f"{part.name:<15} {part.summary}")
    print(f"use it with --data-dir {root} or export SVEA_DATA={root}")
    return 0


def _print_sources(names: set[str], root: Path | None) -> None:
    """Say how to get what is missing."""
    from svea.data.get import SOURCES

    print("\nto get it:" if names else "\nnothing is missing")
    for name, source in SOURCES.items():
        if name in names:
            # A data set that is there in part is not written over.
            free = root is not None and not (root / source.into).exists()
            print(f"  svea data get {name} {root if free else 'FOLDER'}")
            _print_wrapped(f"{source.about}, about {source.size // 10**6} MB")


def _print_wrapped(text: str) -> None:
    print(textwrap.fill(text, 96, initial_indent=" " * 16, subsequent_indent=" " * 16))


PARTS = {"list": show, "check": check, "get": get}
