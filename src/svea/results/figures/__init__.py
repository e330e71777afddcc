"""Which figures a report has: each with its caption, its owners and the numbers it draws.

`plots` knows how to draw, `results` what was reached; this file chooses what is shown in which
figure. The page and `--figures` show the same objects, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence

from svea.results import Group, Result
from svea.results.figures.exhibit import (
    GENERALISATION,
    LEARNING,
    Q_VALUES,
    ROBOT,
    Exhibit,
    Looks,
    looks_of,
)
from svea.results.figures.generalisation import distracting, generalisation, success
from svea.results.figures.learning import learning
from svea.results.figures.q_values import q_bars, variance_curves

__all__ = [
    "GENERALISATION",
    "LEARNING",
    "Q_VALUES",
    "ROBOT",
    "Exhibit",
    "Looks",
    "exhibits",
    "looks_of",
]


def exhibits(
    groups: Sequence[Group],
    results: Sequence[Result],
    successes: Sequence[Result],
) -> list[Exhibit]:
    """Every figure that the runs have numbers for, task by task."""
    looks = looks_of(groups)
    found: list[Exhibit] = []
    for task in dict.fromkeys(group.task for group in groups):
        members = [group for group in groups if group.task == task]
        here = [result for result in results if result.group.task == task]
        there = [success for success in successes if success.group.task == task]
        found += learning(task, members, looks)
        found += generalisation(task, members, here, looks)
        found += distracting(task, members, here, looks)
        found += success(task, members, there, looks)
        found += variance_curves(task, members, looks)
        found += q_bars(task, members, looks)
    return found
