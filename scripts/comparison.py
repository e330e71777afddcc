"""The comparison at 100,000 decisions: settings, seeds, means over tasks, later candidates."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, replace

import numpy as np

from svea.core.words import mean_std, number, plural
from svea.data.clips import DMCGB, source_of
from svea.envs import GEOMETRY_MODES, LIGHT_MODES, PAPER_TASKS
from svea.methods import METHODS
from svea.results import plots, published, stats
from svea.results.groups import Group, changed_settings, group_runs, settings_of
from svea.results.read import Curve, Run, by_world
from svea.results.tables import Cell, Table, estimate, records_to_csv
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
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
NAMED_LATER = {"svea + overlay|overlay_drift, sac.n_step=3": "svea-motion"}
"""Settings that became methods after they had run."""
FEW_SEEDS = "One seed says nothing about others, and over two or three an interval is too narrow."
HALF = "± is half the width of the 95 % interval"
KINDS = {"geometry": tuple(GEOMETRY_MODES), "lights": tuple(LIGHT_MODES)}
RECODED_CLIPS = "Videos: re-coded clips, a little easier than the benchmark's."

LEARNING = ("drq", "drq + conv", "svea + conv", "svea + overlay")
"""What the paper compares: no strong augmentation, naive, and SVEA's."""
BIN = 10_000  # decisions
NOT_LEARNED = ("drq", "ball_in_cup_catch")
"""The setting whose one seed did not learn a task: that task pulls its mean down."""
SEVERAL = 3  # agents of a run: its last one, and that of the comparison, are in other tables

Seeds = Sequence[Sequence[Record]]
"""Records of each seed."""
Shown = Callable[[stats.Interval], Cell]
"""How a mean and its interval are written."""


def table(
    name: str, titles: Sequence[str], rows: Iterable[Sequence[Cell | str]], note: str
) -> Table:
    """A table of texts and cells, with how to read it."""
    return Table.of(name, (dict(zip(titles, row, strict=True)) for row in rows), [note])


def plus_minus(ends: stats.Interval) -> Cell:
    """A value with half the width of its interval: '842 ± 10'."""
    return Cell(mean_std(ends.point, (ends.high - ends.low) / 2, "{:,.0f}".format))


def to_csv(table: Table) -> str:
    """A column for each of the table's, and one for intervals and other small print next to it."""
    noted = {c.title for c in table.columns if any(row.cell(c).note for row in table.rows)}
    return records_to_csv(
        {
            f"{column.title.strip('`*')}{end}": text
            for column, cell in zip(table.columns, line, strict=True)
            for end, text in (
                ("", THOUSANDS.sub("", cell.text.strip("`*"))),
                (": interval", cell.note),
            )
            if not end or column.title in noted
        }
        for line in table.lines()
    )


class Comparison:
    """Tables of what was played with agents of 100,000 decisions.

    `shown` is compared; `tried` decided about candidates, with seeds that `shown` does not have.
    """

    def __init__(self, shown: Iterable[Group], tried: Iterable[Group]) -> None:
        self.shown, self.tried = records_at_100k(shown), records_at_100k(tried)

    def means(self, left_out: Collection[str] = (), show: Shown = estimate) -> Table:
        """Means over the tasks, of settings that have run on all of them."""
        whole = {label: tasks for label, tasks in _whole(self.shown) if label not in left_out}
        rows = [(f"`{k}`", *_means(t, MEANS, show), _seeds(t)) for k, t in whole.items()]
        shown = HALF if show is plus_minus else "In brackets: the 95 % interval"
        note = (
            f"Means over {len(TASKS)} tasks after {COMPARED_AT:,} decisions, "
            f"{_played(whole.values(), MEANS)} episodes a mode. {shown} over worlds and "
            f"seeds, which is too narrow with so few seeds. {RECODED_CLIPS}"
        )
        return table("means", ("setting", *MEANS, "seeds"), rows, note)

    def settings(self) -> Table:
        """Every setting on every task, final agents or kept on the way, and means over tasks."""
        rows = [
            (task, f"`{label}`", _seeds([tasks[task]]), *_means([tasks[task]], MODES))
            for task in TASKS
            for label, tasks in self.shown.items()
            if task in tasks
        ]
        rows += [
            (OVER_TASKS, f"`{k}`", _seeds(t), *_means(t, MODES)) for k, t in _whole(self.shown)
        ]
        played = _played((tasks.values() for tasks in self.shown.values()), MODES)
        note = (
            "Mean return over seeds with its 95 % interval over seeds, where there are several, "
            f"and worlds (train: episodes). {FEW_SEEDS} Worlds are shown in turn; "
            f"{played} episodes of each agent. A mean over tasks "
            "stands where all of them have run; each task counts once, however many seeds it has. "
            f"The rest of this comparison has not yet been run. {RECODED_CLIPS}"
        )
        return table("compared", ("task", "setting", "seeds", *MODES), rows, note)

    def seeds(self) -> Table:
        """Each seed, where a setting has several on a task."""
        rows, played = [], list[list[Seeds]]()
        for label, task in itertools.product(self.shown, TASKS):
            seeds = self.shown[label].get(task, [])
            for records in seeds if len(seeds) > 1 else ():
                seed = str(records[0]["run_seed"])
                rows.append((task, f"`{label}`", seed, *_means([[records]], MODES)))
                played.append([[records]])
        note = f"{_of_one_agent(played, MODES)} {RECODED_CLIPS}"
        return table("seeds", ("task", "setting", "seed", *MODES), rows, note)

    def candidates(self) -> Table:
        """What the seeds that decided reached, next to what they had to beat."""
        rows = [
            _candidate(task, label, [tasks[task]])
            for label, tasks in self.tried.items()
            for task in TASKS
            if task in tasks
        ]
        for label, tasks in _whole(self.tried):
            rows += [_candidate(OVER_TASKS, label, t) for t in (*_each_seed(tasks), tasks)]
        rows += [_candidate(OVER_TASKS, label, tasks) for label, tasks in _whole(self.shown)]
        note = (
            "Mean return with its 95 % interval over seeds, where there are several, and worlds "
            "(train: episodes). Mean of four: over the test modes. Kept: the mean of four as a "
            "share of the return in train."
        )
        titles = ("task", "setting", "seed", "train", *SEARCHED, "mean of four", "kept")
        return table("candidate", titles, rows, note)

    def kinds(self) -> Table:
        """Geometry and lights: means over the tasks, of settings played in all of their modes."""
        found: dict[str, list[Seeds]] = {}
        needed = {mode for members in KINDS.values() for mode in members}
        for kind in (self.shown, self.tried):  # seeds that chose count where no others were played
            for label, tasks in _whole(kind):
                played = [[s for s in seeds if needed <= {r["mode"] for r in s}] for seeds in tasks]
                if all(played):
                    found.setdefault(label, played)
        shown = {"train": ("train",)}
        for kind, members in KINDS.items():
            shown |= {mode: (mode,) for mode in members} | {f"**mean of {kind}**": members}
        rows = [
            (name, *(mean_over(tasks, modes) for tasks in found.values()))
            for name, modes in shown.items()
        ]
        note = (
            f"Means over {len(TASKS)} tasks after {COMPARED_AT:,} decisions, "
            f"{_seeds([seeds for tasks in found.values() for seeds in tasks])} seed "
            f"per task, {_played(found.values(), sorted(needed))} episodes per mode and agent "
            f"(train: {_played(found.values(), ['train'])}); 95 % over worlds (train: episodes)."
        )
        return table("kinds", ("mode", *(f"`{label}`" for label in found)), rows, note)

    def bars(self) -> list[plots.Bar]:
        """Means over the tasks in the modes of `DRAWN`, a colour for each setting."""
        drawn = []
        for color, (label, tasks) in enumerate(_whole(self.shown)):
            ends = [mean_interval(_each(tasks, mode)) or stats.NO_INTERVAL for mode in DRAWN]
            values, lows, highs = zip(*map(astuple, ends), strict=True)
            many = "seed" if _seeds(tasks) == "1" else "seeds"
            name = f"{label} ({_seeds(tasks)} {many})"
            drawn.append(plots.Bar(name, values, lows, highs, color))
        return drawn


def kinds_of(agents: Iterable[tuple[str, str, list[Record]]]) -> Table:
    """Geometry and lights for agents one by one: task, setting and records of each."""
    shown = {mode: (mode,) for mode in ("train", "camera_easy", "camera_hard")}
    shown |= {f"mean of {kind}": members for kind, members in KINDS.items()}
    agents = list(agents)
    rows = [
        (task, f"`{label}`", f"{records[0]['decision']:,}",
         *(mean_over([[records]], modes) for modes in shown.values()))
        for task, label, records in agents
    ]  # fmt: skip
    modes = [mode for members in KINDS.values() for mode in members]
    note = (
        f"One agent per row, {_played([[[records]] for *_, records in agents], modes)} episodes "
        "per mode of geometry and lights; 95 % over worlds (train: episodes)."
    )
    return table("long-kinds", ("task", "setting", "decisions", *shown), rows, note)


# Names and records --------------------------------------------------------------------------------


def named_groups(runs: Sequence[Run]) -> list[Group]:
    """Runs that differ in their seed alone, under the names that tables of results have."""
    groups = [replace(group, label=setting_of(group)) for group in group_runs(runs)]
    return sorted(groups, key=lambda group: (group.task, group.label))


def setting_of(group: Group) -> str:
    """What was trained, without its length: tables that use this name give the decisions too."""
    run = group.runs[0]
    own = group.method != PLANNED[0] and run.augment == METHODS[group.method].augment
    changed = [name for name in changed_settings(run) if name not in UNNAMED]
    words = [f"{name}={settings_of(run)[name]}" for name in changed]
    name = ", ".join([group.method if own else f"{group.method} + {run.augment}", *words])
    return NAMED_LATER.get(name, name)


def records_at_100k(groups: Iterable[Group]) -> dict[str, dict[str, list[list[Record]]]]:
    """What agents of 100,000 decisions played, by setting and task, for each seed."""
    found: dict[str, dict[str, list[list[Record]]]] = {}
    first: dict[tuple[str, str], dict[str, str]] = {}
    for group in groups:
        at_100k = (
            [r for r in _comparable(run) if round(r["decision"], -3) == COMPARED_AT]
            for run in group.runs
        )
        played = [records for records in at_100k if records]
        if not played:
            continue
        settings = {k: v for k, v in settings_of(group.runs[0]).items() if k != "decisions"}
        if settings != first.setdefault((group.label, group.task), settings):
            raise SystemExit(
                f"unlike runs of {group.task} are all named {group.label!r}; scripts/comparison.py "
                "should name what they differ in (setting_of)"
            )
        seeds = found.setdefault(group.label, {}).setdefault(group.task, [])
        seeds += played
        seeds.sort(key=lambda records: records[0]["run_seed"])
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


def _whole(found: dict[str, dict[str, list[list[Record]]]]) -> list[tuple[str, list[Seeds]]]:
    """The settings that have run on all tasks, with the seeds of each task."""
    whole = [(label, tasks) for label, tasks in found.items() if set(TASKS) <= set(tasks)]
    return [(label, [tasks[task] for task in TASKS]) for label, tasks in whole]


def _each_seed(tasks: Sequence[Seeds]) -> list[list[Seeds]]:
    """The same for each seed that all tasks have; none where there is but one."""
    played = [{r[0]["run_seed"]: r for r in runs if r} for runs in tasks]
    seeds = sorted(set.intersection(*map(set, played)))
    return [[[of[seed]] for of in played] for seed in seeds] if len(seeds) > 1 else []


# Means --------------------------------------------------------------------------------------------

OVER_TASKS = f"mean of the {len(TASKS)}"


def _each(tasks: Sequence[Seeds], mode: str) -> list[stats.Episodes]:
    """The returns of each seed of each task in a mode, by world."""
    return [[by_world(r for r in one if r["mode"] == mode) for one in seeds] for seeds in tasks]


def _means(tasks: Sequence[Seeds], modes: Sequence[str], show: Shown = estimate) -> list[Cell]:
    return [mean_cell(_each(tasks, mode), show) for mode in modes]


def mean_over(tasks: Sequence[Seeds], modes: Sequence[str]) -> Cell:
    """The mean over modes, and over tasks."""
    return mean_cell([one for seeds in tasks for mode in modes for one in _each([seeds], mode)])


def mean_cell(returns: Sequence[stats.Episodes], show: Shown = estimate) -> Cell:
    """The mean over tasks in a mode, from the returns of each seed of each task."""
    ends = mean_interval(returns)
    if ends is None:
        return Cell(NOT_EVALUATED)
    lacking, shown = sum(not seed for seeds in returns for seed in seeds), show(ends)
    without = f", without {plural(lacking, 'seed')}" if lacking else ""
    return replace(shown, note=f"{shown.note}{without}".lstrip(", "))


def mean_interval(returns: Sequence[stats.Episodes]) -> stats.Interval | None:
    """The same as numbers; None if a task was not evaluated."""
    played = [[seed for seed in seeds if seed] for seeds in returns]
    if not all(played):
        return None
    strata = [stats.SeedsAndWorlds.of(seeds) for seeds in played]
    return stats.bootstrap_interval(strata, stats.mean_of_strata(list(map(len, played))))


def _candidate(name: str, label: str, tasks: Sequence[Seeds]) -> tuple[Cell | str, ...]:
    """A row with the seeds' numbers and the mean over the search's modes."""
    modes = ("train", *SEARCHED)
    train, *tests = (
        np.mean([stats.SeedsAndWorlds.of(seeds).scores.mean() for seeds in _each(tasks, mode)])
        for mode in modes
    )
    four = float(np.mean(tests))
    seeds = from_to({records[0]["run_seed"] for seeds in tasks for records in seeds})
    return name, f"`{label}`", seeds, *_means(tasks, modes), number(four), kept(four, float(train))


def kept(four: float, train: float) -> str:
    """How much of its return in train an agent keeps in the mean of test modes."""
    share = four / train
    return f"{share:.0%}" if np.isfinite(share) else number(share)


def _played(found: Iterable[Iterable[Seeds]], modes: Sequence[str]) -> str:
    """The numbers of episodes behind the cells."""
    counts = {
        sum(map(len, seed.values()))
        for tasks in map(list, found)
        for mode in modes
        for seeds in _each(tasks, mode)
        for seed in seeds
    }
    return from_to(counts - {0})


def _seeds(tasks: Sequence[Seeds]) -> str:
    return from_to({len(seeds) for seeds in tasks})


def from_to(counts: set[int]) -> str:
    """Numbers of episodes, of seeds or of decisions, in words."""
    if not counts:
        return "no"
    return f"{min(counts):,}" if len(counts) == 1 else f"{min(counts):,} to {max(counts):,}"


def of_seeds(counts: set[int]) -> str:
    """Numbers of seeds, with the word."""
    return f"{from_to(counts)} {'seed' if max(counts) == 1 else 'seeds'}"


# Learning -----------------------------------------------------------------------------------------


def training_curves(
    groups: Iterable[Group], tasks: Sequence[str] = TASKS
) -> Iterator[plots.Series]:
    """A line for each of `LEARNING`: training episodes, averaged over bins, seeds, then tasks."""
    runs = _runs_of(groups)
    middles = np.arange(BIN / 2, COMPARED_AT, BIN)
    for color, label in enumerate(LEARNING):
        means = [np.mean([_binned(run) for run in runs[label, task]], axis=0) for task in tasks]
        yield plots.Series(label, Curve(middles, np.mean(means, axis=0)), color=color)


def caption(groups: Iterable[Group]) -> str:
    """What stands below the curves: seeds, and where they end without a task that misleads."""
    groups, (method, task) = list(groups), NOT_LEARNED
    others = [one for one in TASKS if one != task]
    *ends, last = (number(line.curve.returns[-1]) for line in training_curves(groups, others))
    seeds = from_to({len(runs) for runs in _runs_of(groups).values()})
    return (
        f"{seeds} seeds per task. On {task} the only run of `{method}` did not learn; without that "
        f"task the lines end at {', '.join(ends)} and {last}, in the order of the legend."
    )


def _runs_of(groups: Iterable[Group]) -> dict[tuple[str, str], list[Run]]:
    """Runs of the settings in `LEARNING` by setting and task, of any length."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for group in groups:
        if group.label in LEARNING:
            runs.setdefault((group.label, group.task), []).extend(group.runs)
    return runs


def _binned(run: Run) -> list[float]:
    """The mean return of the training episodes that ended in each bin."""
    episodes = [line for line in run.metrics if line["kind"] == "episode"]
    returns = np.array([line["return"] for line in episodes])
    bins = np.ceil(np.array([line["decision"] for line in episodes]) / BIN).astype(int) - 1
    return [float(returns[bins == k].mean()) for k in range(COMPARED_AT // BIN)]


def agents_on_the_way(groups: Iterable[Group]) -> Table:
    """Test modes over training, of runs whose agents were kept and played again and again."""
    rows, played = [], list[list[Seeds]]()
    for group, run in [(one, run) for one in groups for run in one.runs]:
        at: dict[int, list[Record]] = {}
        for record in run.agent_episodes:
            at.setdefault(record["decision"], []).append(record)
        for decision, records in sorted(at.items()) if len(at) >= SEVERAL else ():
            about = (group.task, f"`{group.label}`", str(run.seed), f"{decision:,}")
            rows.append((*about, *_means([[records]], MEANS)))
            played.append([[records]])
    titles = ("task", "setting", "seed", "decisions", *MEANS)
    return table("kept", titles, rows, _of_one_agent(played, MEANS))


def _of_one_agent(played: Sequence[Sequence[Seeds]], modes: Sequence[str]) -> str:
    return (
        "Mean return of one agent with its 95 % interval over worlds (train: episodes), "
        f"{_played(played, modes)} episodes per cell."
    )
