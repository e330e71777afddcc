"""`svea methods`: which views feed which part of each method."""

from __future__ import annotations

import json as jsonlib

from svea.cli.arguments import parse


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""

    def command(json: bool = False) -> int:
        """List every method with the views that feed Q-prediction, Q-target and policy.

        Args:
            json: print JSON instead of a table.
        """
        from svea.cli.terminal import print_table
        from svea.methods import METHODS, views_row

        rows = [views_row(name) for name in METHODS]
        if json:
            print(jsonlib.dumps(rows, indent=1))
        else:
            print_table(rows)
        return 0

    return parse(command, "methods", arguments)
