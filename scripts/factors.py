"""One table and one figure of how far each factor may go for several agents, and their cards' line.

    python scripts/factors.py runs/zoo/walker_walk-drq runs/zoo/walker_walk-svea --out build/factors

reads what `svea eval --vary` recorded and writes factors.md, factors.csv, factors.png and
tolerates.md: the range in which each agent keeps half of its training return.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from svea.config.factors import share_of_range
from svea.core import files
from svea.core.words import decisions
from svea.results import plots
from svea.results.factors import HALF, MOST, Response, as_range, responses
from svea.results.figures import response_rows
from svea.results.groups import Group, group_runs
from svea.results.read import read_runs
from svea.results.tables import Table, records_to_csv, to_markdown

HARD_TO_BREAK = 3  # factors that a card's line names of each kind


def by_factor(found: Sequence[Response]) -> dict[str, list[Response]]:
    """The answers to each factor, what breaks an agent soonest first."""
    rows: dict[str, list[Response]] = {}
    for one in sorted(found, key=lambda one: one.order):
        rows.setdefault(one.factor.name, []).append(one)
    return rows


def table(found: Sequence[Response]) -> Table:
    """A row per factor, a column per agent: where half of the training return is kept."""
    rows = [
        {"factor": name, "unit": several[0].factor.unit}
        | {one.group.name: as_range(one, HALF) for one in several}
        for name, several in by_factor(found).items()
    ]
    names = list(dict.fromkeys(one.group.name for one in found))
    return Table.of("factors", [{n: row.get(n, "–") for n in ("factor", "unit", *names)}
                                for row in rows])  # fmt: skip


def figure(found: Sequence[Response]) -> Figure:
    """A line per agent and factor: thick where 90 % is kept, thin where half is."""
    rows, groups = by_factor(found), list(dict.fromkeys(one.group for one in found))
    drawn, axes = plots.new_figure("Return kept: 90 % (thick), half (thin)")
    drawn.set_size_inches(9, 1.5 + 0.12 * len(rows) * (len(groups) + 1))
    for row, several in enumerate(rows.values()):
        for one in several:
            place = groups.index(one.group)
            height = row + 0.8 * (place + 0.5) / len(groups) - 0.4
            color = plots.PALETTE[place % len(plots.PALETTE)]
            for share, width in ((HALF, 1.5), (MOST, 5)):
                ends = [end.point for end in one.ends(share)]
                signed = [np.sign(end - one.factor.training) * share_of_range(one.factor.name, end)
                          if end != one.factor.training else 0.0 for end in ends]  # fmt: skip
                axes.plot(signed, [height] * 2, color=color, linewidth=width,
                          solid_capstyle="butt")  # fmt: skip
    for place, group in enumerate(groups):
        axes.plot([], [], color=plots.PALETTE[place % len(plots.PALETTE)], label=label(group))
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("share of the way from the training value (0) to the ends of the range")
    plots.add_legend(drawn, axes)
    return drawn


def styled(found: Sequence[Response]) -> Figure:
    """The figure in the common style."""
    with matplotlib.rc_context(plots.STYLE):
        return figure(found)


def label(group: Group) -> str:
    """An agent with the length of its training."""
    run = group.runs[0]
    return f"{group.name}, {decisions(run.decisions_done, None)}"


def tolerates(found: Sequence[Response]) -> str:
    """The line of a model card."""
    ordered = sorted(found, key=lambda one: one.order)
    soon = [f"{one.factor.name} {as_range(one, HALF).text} {one.factor.unit}"
            for one in ordered[:HARD_TO_BREAK]]  # fmt: skip
    all_the_way = [one.factor.name for one in ordered if one.room(HALF) == 1]
    far = f"; all of {', '.join(all_the_way)}" if all_the_way else ""
    return f"Tolerates, keeping half of its return: {', '.join(soon)} (the narrowest){far}."


def main() -> None:
    """Read the runs and write the four files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/factors"))
    given = parser.parse_args()
    runs, problems = read_runs(given.runs)
    found = responses(group_runs(runs))
    if not found:
        raise SystemExit("\n".join([*problems, "no run was evaluated with `svea eval --vary`"]))
    by_group: dict[str, list[Response]] = {}
    for one in found:
        by_group.setdefault(one.group.name, []).append(one)
    lines = [f"- {name}: {tolerates(own)}" for name, own in by_group.items()]
    contents = {
        "factors.md": to_markdown(table(found)).encode(),
        "factors.csv": records_to_csv(r for one in found for r in response_rows(one)).encode(),
        "factors.png": plots.to_png(styled(found), dpi=200),
        "tolerates.md": "\n".join([*lines, ""]).encode(),
    }
    for name, content in contents.items():
        files.write_whole(given.out / name, content)
        print(given.out / name)


if __name__ == "__main__":
    main()
