"""`svea compare`: two methods over tasks and seeds."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Literal

from svea.cli.arguments import Positional, parse
from svea.cli.printing import print_results
from svea.core.terminal import Steps
from svea.results.compare import compare


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "compare", arguments)


def command(
    a: Positional[str],
    b: Positional[str],
    runs: Path = Path("runs"),
    modes: tuple[str, ...] = (),
    measure: Literal["return", "area", "success"] = "return",
    verbose: bool = False,
    json: bool = False,
) -> int:
    """Two methods: their difference and the probability that one is better, with 95 % intervals.

    Example: svea compare svea drq --modes color_hard

    Intervals are over seeds and worlds (areas: over seeds); JSON has both kinds.

    Args:
        a: one side: a folder of runs, or an agent of the zoo, zoo:NAME; or a method (svea), with
            its augmentation (svea+conv), or a setting as `svea eval` prints it, among the runs in
            --runs.
        b: the other side, named in the same ways.
        runs: where names are looked for.
        modes: which modes or groups of modes; default all that both have.
        measure: final return, area under the evaluation curve (sample efficiency), or success.
        verbose: also the probability and the seeds, and what to know before quoting any of it.
        json: print JSON instead of a table.
    """
    with Steps("comparisons") as steps:
        steps.doing("reading runs")
        found = compare(a, b, runs=runs, modes=modes, measure=measure)
    if json:
        print(jsonlib.dumps(found.to_json(), indent=1))
        return 0
    return print_results(found.table(verbose), found.notes if verbose else found.brief_notes)
