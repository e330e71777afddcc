"""From runs to results: groups over seeds, their numbers, and what to know about them."""

from svea.results.caveats import all_caveats, caveat_notes, caveats_of
from svea.results.groups import Group, group_runs, suite
from svea.results.summary import (
    Aggregate,
    MeanCurve,
    Result,
    Unit,
    WallTime,
    aggregate,
    areas,
    common_level,
    mean_curve,
    over_hours,
    random_return,
    seconds_per_decision,
    summarise,
    summarise_mode,
    wall_times,
)

__all__ = [
    "Aggregate",
    "Group",
    "MeanCurve",
    "Result",
    "Unit",
    "WallTime",
    "aggregate",
    "all_caveats",
    "areas",
    "caveat_notes",
    "caveats_of",
    "common_level",
    "group_runs",
    "mean_curve",
    "over_hours",
    "random_return",
    "seconds_per_decision",
    "suite",
    "summarise",
    "summarise_mode",
    "wall_times",
]
