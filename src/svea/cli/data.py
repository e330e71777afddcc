"""`svea data`: the benchmark data at hand, its check and its download."""

from __future__ import annotations

from pathlib import Path

from svea.cli.arguments import Positional, parse_parts
from svea.core.files import output_folder


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse_parts({"list": show, "check": check, "get": get}, "data", arguments)


def show(data_dir: str = "") -> int:
    """List what is found, what is missing, and what it is needed for.

    Args:
        data_dir: folder with benchmark data; overrides SVEA_DATA.
    """
    from svea.data.check import list_data

    return list_data(data_dir or None)


def check(folder: Positional[Path]) -> int:
    """Check a folder: layout, hashes, and that every clip and picture decodes.

    Args:
        folder: with benchmark data.
    """
    from svea.cli.terminal import Steps
    from svea.data.check import check_data

    with Steps("files") as steps:
        return check_data(folder, on_file=lambda path: steps.finish(f"checked {path.name}"))


def get(name: Positional[str], folder: Positional[Path]) -> int:
    """Download a data set.

    Example: svea data get dmcgb ~/svea-data

    Args:
        name: dmcgb, davis or places365-val.
        folder: where to put the data; later give it as --data-dir or SVEA_DATA.
    """
    from svea.data.get import get_data

    return get_data(name, output_folder(folder, "folder"))
