"""The comparison at 100,000 decisions: settings, seeds, means over tasks, later candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from svea.core.words import interval, number, plural
from svea.data.clips import DMCGB, source_of
from svea.envs import GEOMETRY_MODES, LIGHT_MODES, PAPER_TASKS
from svea.methods import METHODS
from svea.results import Group, group_runs, plots, published, stats
from svea.results.run import Run, by_world
from svea.results.settings import changed_settings, settings_of
from svea.results.tables import Cell, Column, Row, Table
from svea.runs.records import Record, is_agent, latest, read_records

MODES = ("train", "color_hard", "video_easy", "video_hard", "distracting_cs:0.1",
         "distracting_cs:0.2")  # fmt: skip
MEANS = MODES[:4]
DRAWN = MODES[:5]  # as many as have room in a figure
SEARCHED = ("color_hard", "video_easy", "video_hard", "distracting_cs:0.1")  # what a recipe is for
PLANNED = ("svea", "conv")  # of every task; other settings are shown once they have run
TASKS = [task for task in PAPER_TASKS if published.lookup(task, "color_hard", *PLANNED)]
COMPARED_AT = 100_000  # decisions
UNNAMED = {"envs"}  # what names do not say of a setting; tables give its length
NOT_EVALUATED = "not yet evaluated"
NAMED_LATER = {"svea + overlay|overlay_drift, sac.n_step=3": "svea-motion"}
"""Settings that became methods after they had run."""
FEW_SEEDS = "One seed says nothing about others, and over two or three an interval is too narrow."
KINDS = {"geometry": tuple(GEOMETRY_MODES), "lights": tuple(LIGHT_MODES)}

RECODED_CLIPS = "Videos: re-coded clips, a little easier than the benchmark's."

Compared = dict[str, dict[str, list[list[Record]]]]
"""Records of each seed, by setting and task."""


class Comparison:
    """Tables of what was played with agents of 100,000 decisions."""

    def __init__(self, shown: Iterable[Group], tried: Iterable[Group]) -> None:
        """Take the runs.

        Args:
            shown: what is compared.
            tried: runs that decided about candidates, with seeds that `shown` does not have.
        """
        self.shown, self.tried = records_at_100k(shown), records_at_100k(tried)

    def means(self, left_out: Collection[str] = ()) -> Table:
        """Means over the tasks, of settings that have run on all of them."""
        whole = {label: self.shown[label] for label in _whole(self.shown) if label not in left_out}
        rows = [
            Row((label, *returns[: len(MEANS)], seeds))
            for _, label, seeds, *returns in (row.cells for row in self._means(whole))
        ]
        note = (
            f"Means over {len(TASKS)} tasks after {COMPARED_AT:,} decisions, "
            f"{from_to(_played(whole, MEANS))} episodes a mode; 95 % over worlds and "
            f"seeds (too narrow: few seeds). {RECODED_CLIPS}"
        )
        columns = tuple(map(Column, ("setting", *MEANS, "seeds")))
        return Table("means", "", columns, tuple(rows), (note,))

    def settings(self) -> Table:
        """Every setting on every task, final agents or kept on the way, and means over tasks."""
        rows = [
            _row(task, label, [tasks[task]])
            for task in TASKS
            for label, tasks in self.shown.items()
            if task in tasks
        ]
        note = (
            "Mean return over seeds with its 95 % interval over seeds, where there are several, "
            f"and worlds (train: episodes). {FEW_SEEDS} Worlds are shown in turn; "
            f"{from_to(_played(self.shown, MODES))} episodes of each agent. A mean over tasks "
            "stands where all of them have run; each task counts once, however many seeds it has. "
            f"The rest of this comparison has not yet been run. {RECODED_CLIPS}"
        )
        titles = ("task", "setting", "seeds", *MODES)
        rows += self._means(_whole(self.shown))
        return Table("compared", "", tuple(map(Column, titles)), tuple(rows), (note,))

    def seeds(self) -> Table:
        """Each seed, where a setting has several on a task."""
        rows, sizes = [], set()
        for label, tasks in self.shown.items():
            for task, runs in ((task, tasks[task]) for task in TASKS if task in tasks):
                for records in runs if len(runs) > 1 else ():
                    row = _row(task, label, [[records]])
                    seed = Cell(str(records[0]["run_seed"]))
                    rows.append(Row((*row.cells[:2], seed, *row.cells[3:])))
                    sizes |= _played({label: {task: [records]}}, MODES)
        note = (
            "Mean return of one agent with its 95 % interval over worlds (train: episodes), "
            f"{from_to(sizes)} episodes per cell. {RECODED_CLIPS}"
        )
        titles = ("task", "setting", "seed", *MODES)
        return Table("seeds", "", tuple(map(Column, titles)), tuple(rows), (note,))

    def candidates(self) -> Table:
        """What the seeds that decided reached, next to what they had to beat."""
        rows = [
            _candidate_row(task, label, [tasks[task]])
            for label, tasks in self.tried.items()
            for task in TASKS
            if task in tasks
        ]
        rows += [
            _candidate_row(f"mean of the {len(TASKS)}", label, tasks)
            for label in _whole(self.tried)
            for tasks in (*_each_seed(self.tried[label]), _in_order(self.tried[label]))
        ]
        rows += [
            _candidate_row(f"mean of the {len(TASKS)}", label, _in_order(self.shown[label]))
            for label in _whole(self.shown)
        ]
        note = (
            "Mean return with its 95 % interval over seeds, where there are several, and worlds "
            "(train: episodes). Mean of four: over the test modes. Kept: the mean of four as a "
            "share of the return in train."
        )
        titles = ("task", "setting", "seed", "train", *SEARCHED, "mean of four", "kept")
        return Table("candidate", "", tuple(map(Column, titles)), tuple(rows), (note,))

    def kinds(self) -> Table:
        """Geometry and lights: means over the tasks, of settings played in all of their modes."""
        found: dict[str, list[list[list[Record]]]] = {}
        for kind in (self.shown, self.tried):  # seeds that chose count where no others were played
            for label in _whole(kind):
                played = [_in_kinds(kind[label][task]) for task in TASKS]
                if all(played):
                    found.setdefault(label, played)
        rows = [
            Row((Cell(name), *(mean_over(tasks, modes) for tasks in found.values())))
            for kind, members in KINDS.items()
            for name, modes in [*((m, [m]) for m in members), (f"**mean of {kind}**", members)]
        ]
        rows.insert(0, Row((Cell("train"), *(mean_over(t, ["train"]) for t in found.values()))))
        seeds = {len(runs) for tasks in found.values() for runs in tasks}
        modes = [mode for members in KINDS.values() for mode in members]
        whole = {label: dict(zip(TASKS, tasks, strict=True)) for label, tasks in found.items()}
        note = (
            f"Means over {len(TASKS)} tasks after {COMPARED_AT:,} decisions, {from_to(seeds)} seed "
            f"per task, {from_to(_played(whole, modes))} episodes per mode and agent (train: "
            f"{from_to(_played(whole, ['train']))}); 95 % over worlds (train: episodes)."
        )
        columns = tuple(map(Column, ("mode", *(f"`{label}`" for label in found))))
        return Table("kinds", "", columns, tuple(rows), (note,))

    def bars(self) -> list[plots.Bar]:
        """Means over the tasks in the modes of `DRAWN`, a colour for each setting."""
        nothing = stats.Interval(np.nan, np.nan, np.nan)
        drawn = []
        for color, label in enumerate(_whole(self.shown)):
            tasks = _in_order(self.shown[label])
            ends = [
                mean_interval([_episodes_in(records, mode) for records in tasks]) or nothing
                for mode in DRAWN
            ]
            values, lows, highs = zip(*((e.point, e.low, e.high) for e in ends), strict=True)
            seeds = from_to({len(records) for records in tasks})
            many = "seed" if seeds == "1" else "seeds"
            drawn.append(plots.Bar(f"{label} ({seeds} {many})", values, lows, highs, color))
        return drawn

    def _means(self, labels: Iterable[str]) -> list[Row]:
        """A row for each of some settings that have run on all tasks."""
        name = f"mean of the {len(TASKS)}"
        return [_row(name, label, _in_order(self.shown[label])) for label in labels]


def kinds_of(agents: Iterable[tuple[str, str, list[Record]]]) -> Table:
    """Geometry and lights for agents one by one: task, setting and records of each."""
    shown = {mode: (mode,) for mode in ("train", "camera_easy", "camera_hard")}
    shown |= {f"mean of {kind}": members for kind, members in KINDS.items()}
    rows, played = [], set[int]()
    for task, label, records in agents:
        cells = [mean_over([[records]], modes) for modes in shown.values()]
        decisions = Cell(f"{records[0]['decision']:,}")
        rows.append(Row((Cell(task), Cell(f"`{label}`"), decisions, *cells)))
        for members in KINDS.values():
            played |= _played({label: {task: [records]}}, members)
    note = (
        f"One agent per row, {from_to(played)} episodes per mode of geometry and lights; 95 % over "
        "worlds (train: episodes)."
    )
    titles = ("task", "setting", "decisions", *shown)
    return Table("long-kinds", "", tuple(map(Column, titles)), tuple(rows), (note,))


def named_groups(runs: Sequence[Run]) -> list[Group]:
    """Runs that differ in their seed alone, under the names that tables of results have."""
    groups = [replace(group, label=setting_of(group)) for group in group_runs(runs)]
    return sorted(groups, key=lambda group: (group.task, group.label))


def _trained_with(group: Group) -> dict[str, str]:
    """Its settings without its length, which makes no difference to an agent on the way."""
    return {k: v for k, v in settings_of(group.runs[0]).items() if k != "decisions"}


def setting_of(group: Group) -> str:
    """What was trained, without its length: tables that use this name give the decisions too."""
    run = group.runs[0]
    own = group.method != PLANNED[0] and run.augment == METHODS[group.method].augment
    changed = [name for name in changed_settings(run) if name not in UNNAMED]
    words = [f"{name}={settings_of(run)[name]}" for name in changed]
    name = ", ".join([group.method if own else f"{group.method} + {run.augment}", *words])
    return NAMED_LATER.get(name, name)


def records_at_100k(groups: Iterable[Group]) -> Compared:
    """What was played with agents of 100,000 decisions, final ones or kept on the way."""
    found: Compared = {}
    first: dict[tuple[str, str], dict[str, str]] = {}
    for group in groups:
        records = [
            [r for r in _comparable(run) if round(r["decision"], -3) == COMPARED_AT]
            for run in group.runs
        ]
        if not any(records):
            continue
        settings = _trained_with(group)
        if settings != first.setdefault((group.label, group.task), settings):
            raise SystemExit(
                f"unlike runs of {group.task} are all named {group.label!r}; scripts/comparison.py "
                "should name what they differ in (setting_of)"
            )
        found.setdefault(group.label, {}).setdefault(group.task, []).extend(records)
    for tasks in found.values():
        for seeds in tasks.values():
            seeds.sort(key=lambda records: records[0]["run_seed"] if records else -1)
    return found


def _comparable(run: Run) -> list[Record]:
    """A run's episodes, those with videos in front of re-coded clips: all agents have these.

    Most of the compared agents' weights are gone, so not all could play in front of the
    benchmark's own clips, and a mean over both would be of neither.
    """
    records = filter(is_agent, read_records(run.folder))
    return latest(
        r
        for r in records
        if source_of(r.get("provenance") or {}) != DMCGB or not r["mode"].startswith("video")
    )


def _episodes_in(records: Sequence[Sequence[Record]], mode: str) -> stats.Episodes:
    """The returns of each seed in a mode, by world."""
    return [by_world(r for r in one if r["mode"] == mode) for one in records]


def _whole(found: Compared) -> list[str]:
    """The settings that have run on all tasks."""
    return [label for label, tasks in found.items() if set(TASKS) <= set(tasks)]


def _in_order(tasks: dict[str, list[list[Record]]]) -> list[list[list[Record]]]:
    """The records of each seed of each task, in the order of `TASKS`."""
    return [tasks[task] for task in TASKS]


def _each_seed(tasks: dict[str, list[list[Record]]]) -> list[list[list[list[Record]]]]:
    """As `_in_order`, for each seed that all tasks have; none where there is but one."""
    played = [{r[0]["run_seed"]: r for r in runs if r} for runs in _in_order(tasks)]
    seeds = sorted(set.intersection(*map(set, played)))
    return [[[of[seed]] for of in played] for seed in seeds] if len(seeds) > 1 else []


def _played(found: Compared, modes: Sequence[str]) -> set[int]:
    """The numbers of episodes behind the cells."""
    return {
        count
        for tasks in found.values()
        for records in tasks.values()
        for mode in modes
        for seed in _episodes_in(records, mode)
        if (count := sum(map(len, seed.values())))
    }


def _row(name: str, label: str, tasks: Sequence[Sequence[Sequence[Record]]]) -> Row:
    """A setting on a task, or its mean over several: records of each seed of each task."""
    cells = [mean_cell([_episodes_in(records, mode) for records in tasks]) for mode in MODES]
    seeds = Cell(from_to({len(records) for records in tasks}))
    return Row((Cell(name), Cell(f"`{label}`"), seeds, *cells))


def _candidate_row(name: str, label: str, tasks: Sequence[Sequence[Sequence[Record]]]) -> Row:
    """As `_row`, with the seeds' numbers and the mean over the search's modes."""
    returns = {mode: [_episodes_in(r, mode) for r in tasks] for mode in ("train", *SEARCHED)}
    means = {
        mode: np.mean([stats.SeedsAndWorlds.of(seeds).scores.mean() for seeds in played])
        for mode, played in returns.items()
    }
    four = float(np.mean([means[mode] for mode in SEARCHED]))
    seeds = {records[0]["run_seed"] for seeds in tasks for records in seeds}
    cells = [mean_cell(played) for played in returns.values()]
    end = Cell(number(four)), Cell(kept(four, float(means["train"])))
    return Row((Cell(name), Cell(f"`{label}`"), Cell(from_to(seeds)), *cells, *end))


def _in_kinds(runs: Sequence[list[Record]]) -> list[list[Record]]:
    """The seeds that were played in every mode of geometry and lights."""
    needed = {mode for members in KINDS.values() for mode in members}
    return [records for records in runs if needed <= {record["mode"] for record in records}]


def mean_over(tasks: Sequence[Sequence[Sequence[Record]]], modes: Sequence[str]) -> Cell:
    """The mean over modes, and over tasks, which have records of each seed."""
    return mean_cell([_episodes_in(runs, mode) for runs in tasks for mode in modes])


def mean_cell(returns: Sequence[stats.Episodes]) -> Cell:
    """The mean over tasks in a mode, from the returns of each seed of each task."""
    ends = mean_interval(returns)
    if ends is None:
        return Cell(NOT_EVALUATED)
    lacking = sum(not seed for seeds in returns for seed in seeds)
    without = f", without {plural(lacking, 'seed')}" if lacking else ""
    return Cell(number(ends.point), f"{interval(ends.low, ends.high)}{without}")


def mean_interval(returns: Sequence[stats.Episodes]) -> stats.Interval | None:
    """The same as numbers; None if a task was not evaluated."""
    played = [[seed for seed in seeds if seed] for seeds in returns]
    if not all(played):
        return None
    strata = [stats.SeedsAndWorlds.of(seeds) for seeds in played]
    return stats.bootstrap_interval(strata, _mean_of_tasks(list(map(len, played))))


def _mean_of_tasks(seeds: Sequence[int]) -> stats.Statistic:
    """The mean over tasks of their means over seeds: a task with more seeds counts no more.

    Args:
        seeds: how many scores each task has, in the order of the scores.
    """
    ends = np.cumsum(seeds)[:-1]
    return lambda scores: np.mean(
        [task.mean(axis=-1) for task in np.split(scores, ends, axis=-1)], axis=0
    )


def kept(four: float, train: float) -> str:
    """How much of its return in train an agent keeps in the mean of test modes."""
    share = four / train
    return f"{share:.0%}" if np.isfinite(share) else number(share)


def from_to(counts: set[int]) -> str:
    """Numbers of episodes, or of seeds, in words."""
    if not counts:
        return "no"
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
