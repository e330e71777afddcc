"""`svea data`: what a data folder has, whether it is sound, and how to get what is missing."""

import os
from pathlib import Path

from svea.cli.arguments import DataDir, Positional
from svea.core.errors import UserError
from svea.core.files import output_folder
from svea.core.terminal import Steps
from svea.core.words import plural


def show(data_dir: DataDir = "") -> int:
    """List what is found, what is missing, and what it is needed for."""
    from svea.data.clips import VARIABLE, data_folder
    from svea.data.get import SOURCES
    from svea.data.inventory import inventory

    root = data_folder(data_dir or None)
    if root is None:
        print(f"no data folder (--data-dir, {VARIABLE}): videos and pictures are generated\n")
    else:
        print(f"data folder {root}" + ("" if data_dir else f" ({VARIABLE})") + "\n")
    wanted = set()
    for part in inventory(root or Path(os.devnull)):  # nothing can be below that
        print(f"{part.name:<15} {part.summary:<18} for {part.needed_for}")
        if part.count and part.missing:
            print(f"      missing: {', '.join(part.missing)}")
        if not part.count and root is not None:
            print("      refused with this folder; generated where no data folder is given")
        if part.missing or not part.count:
            wanted.add(part.source)
    print("\nto get it:" if wanted else "\nnothing is missing")
    for name, source in SOURCES.items():
        if name in wanted:
            # A data set that is there in part is not written over.
            free = root is not None and not (root / source.into).exists()
            print(f"  svea data get {name} {root if free else 'FOLDER'}")
            print(f"      {source.about}, about {source.size // 10**6} MB")
    return 0


def check(folder: Positional[Path]) -> int:
    """Check a folder: layout, hashes, and that every clip and picture decodes.

    Args:
        folder: with benchmark data.
    """
    from svea.data import inventory

    problems = 0
    with Steps("files") as steps:
        for found in inventory.check(folder, lambda path: steps.finish(f"checked {path.name}")):
            problems += bool(found.problem)
            status = "problem" if found.problem else "ok"
            print(f"{status:<8} {found.name}  {found.problem or found.detail}")
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
    from svea.data import inventory
    from svea.data.get import SOURCES, get_data

    if source := SOURCES.get(name):
        print(f"{name}: {source.about}, about {source.size // 10**6} MB, from {source.url}")
    root = output_folder(folder, "folder").expanduser()
    with Steps("MB") as steps:

        def show(done: int, total: int) -> None:
            doing = "downloading" if done < total else "unpacking"
            steps.reach(done // 10**6, total // 10**6, doing)

        got = get_data(name, root, show)
    as_published = f"{got['verified']}, as published" if got["verified"] else "none is published"
    print(f"sha256 {got['sha256']} (checksum: {as_published}), kept in {root / inventory.RECORD}")
    print(f"use it with --data-dir {root} or export SVEA_DATA={root}")
    return 0


PARTS = {"list": show, "check": check, "get": get}
