"""The verbs that show what there is: methods, gallery, data, doctor."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Literal

from svea.cli.arguments import Out, Positional, parse, parse_parts


def methods(arguments: list[str]) -> int:
    """List methods: who sees which view."""

    def command(json: bool = False) -> int:
        """List every method with the views that feed Q-prediction, Q-target and policy.

        Args:
            json: print JSON instead of a table.
        """
        from svea.console import print_table
        from svea.methods import METHODS, who_sees_what

        rows = [who_sees_what(name) for name in METHODS]
        if json:
            print(jsonlib.dumps(rows, indent=1))
        else:
            print_table(rows)
        return 0

    return parse(command, "methods", arguments)


def gallery(arguments: list[str]) -> int:
    """Write contact sheets to look at."""

    def command(
        sheet: Positional[Literal["augmentations", "environments", "robot"]],
        out: Out = None,
        overlay_dir: str = "",
        data_dir: str = "",
        seed: int = 0,
    ) -> int:
        """Write a contact sheet as PNG.

        Args:
            sheet: what to show: augmentations, environments or robot.
            out: the picture; default SHEET.png.
            overlay_dir: pictures for overlay, or `procedural`.
            data_dir: folder with benchmark data (beats SVEA_DATA).
            seed: of the draws.
        """
        from svea.augment.images import ImageBank
        from svea.evidence.film import sheets as sheets

        path = out or Path(f"{sheet}.png")
        sheets.check_name(path)
        if sheet == "environments":
            print(sheets.environments(path, seed=seed, data_dir=data_dir or None))
        elif sheet == "robot":
            print(sheets.robot(path, seed=seed))
        else:
            bank = ImageBank.find(overlay_dir or None, data_dir or None)
            print(sheets.augmentations(path, seed=seed, images=bank))
        return 0

    return parse(command, "gallery", arguments)


def data(arguments: list[str]) -> int:
    """List, check or download benchmark data; nothing here is needed to train."""

    def show(data_dir: str = "") -> int:
        """List what is found, what is missing, and what it is needed for.

        Args:
            data_dir: folder with benchmark data (beats SVEA_DATA).
        """
        from svea.data.check import list_data

        return list_data(data_dir or None)

    def check(folder: Positional[Path]) -> int:
        """Check a folder: layout, hashes, and that every clip and picture decodes.

        Args:
            folder: with benchmark data.
        """
        from svea.data.check import check_data

        return check_data(folder)

    def get(name: Positional[str], folder: Positional[Path]) -> int:
        """Download a data set; an interrupted download continues.

        Args:
            name: dmcgb, davis or places365-val.
            folder: where the data shall lie; give it as --data-dir or SVEA_DATA later.
        """
        from svea.data.check import get_data

        return get_data(name, folder)

    return parse_parts({"list": show, "check": check, "get": get}, "data", arguments)


def doctor(arguments: list[str]) -> int:
    """Check this machine: versions, device, renderer, data; and say how to mend what is wrong."""
    import argparse

    from svea.cli.doctor import doctor as check_machine

    parser = argparse.ArgumentParser(prog="svea doctor", description=doctor.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data-dir", default=None, help="folder with benchmark data")
    options = parser.parse_args(arguments)
    return check_machine(json=options.json, data_dir=options.data_dir)
