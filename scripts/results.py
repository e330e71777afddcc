"""Write what is shown from results/: blocks of README.md and docs/results.md, figures, model cards.

`make results` runs it, and tests/test_results_pages.py compares. Nothing it writes is typed by
hand: a block stands between `<!-- NAME: written by make results -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from model_cards import RETURN, model_card, returns_of, wrap
from PIL import Image, PngImagePlugin

from svea import files
from svea.envs import PAPER_TASKS, describe
from svea.evidence import plots, published, stats
from svea.evidence.read import find_runs, read_run
from svea.evidence.report import gather
from svea.evidence.results import Group, group_runs
from svea.evidence.results.summary import Result, summarise_mode
from svea.evidence.run import Run
from svea.evidence.tables import Cell, Column, Row, Table
from svea.evidence.tables.results import notes_on_marks, papers
from svea.evidence.tables.writers import records_to_csv, to_markdown
from svea.methods import METHODS
from svea.runs import layout, zoo
from svea.runs.records import Record
from svea.words import interval, number, plural, size

ROOT = Path(__file__).resolve().parents[1]
MODES = ("train", "color_hard", "video_easy", "video_hard", "distracting_cs:0.1",
         "distracting_cs:0.2")  # fmt: skip
HEADLINE = MODES[:3]
MEANS = MODES[:4]
PLANNED = ("svea", "conv")  # of every task; other settings are shown once they have run
TASKS = [task for task in PAPER_TASKS if published.lookup(task, "color_hard", *PLANNED)]
NOT_RUN, NOT_EVALUATED = "not yet run", "not yet evaluated"
COMPARED_AT = 100_000  # decisions of the shorter comparison
SEARCHED = ("color_hard", "video_easy", "video_hard", "distracting_cs:0.1")  # what a recipe is for
BLOCK = re.compile(
    r"(<!-- ([\w-]+): written by make results -->\n).*?(<!-- end of \2 -->)", re.DOTALL
)
LICENCE = "MIT"

Compared = dict[str, dict[str, list[list[Record]]]]
"""Records of each seed, by setting and task."""


class Results:
    """Everything in results/, and the pages made from it."""

    def __init__(self, root: Path = ROOT) -> None:
        """Read the runs.

        Args:
            root: of the repository, or of a copy of its pages, results and zoo.
        """
        self.root = root
        self.folder = root / "results/runs"
        self.runs = [read_run(folder) for folder in find_runs([self.folder])]
        groups = [replace(g, label=setting_of(g)) for g in group_runs(self.runs)]
        self.groups = sorted(groups, key=lambda group: (group.task, group.label))
        self.searched = [read_run(folder) for folder in find_runs([root / "results/search"])]
        later = [read_run(folder) for folder in find_runs([root / "results/search-100k"])]
        self.candidates = [replace(g, label=setting_of(g)) for g in group_runs(later)]
        self.blocks = {
            "headline": self.headline,
            "means": self.means,
            "final": self.final,
            "curves": self.curves,
            "runs": self.provenance,
            "zoo": self.zoo,
            "stored": self.stored,
            "search": self.search,
            "candidate": self.candidate,
            "compared": self.compared,
            "seeds": self.seeds,
        }

    def contents(self) -> dict[Path, str]:
        """Every text file that is generated, whole or in part, as it should be."""
        pages = [self.root / "README.md", self.root / "docs/results.md"]
        found = {page: self._filled(page.read_text()) for page in pages}
        for folder in self.agents():
            card = self.card(folder)
            found[folder / zoo.CARD] = files.to_json(card).decode()
            found[folder / "README.md"] = model_card(card, folder.name, MODES)
        return found

    def _filled(self, page: str) -> str:
        """A page with its blocks written again."""
        return BLOCK.sub(lambda m: f"{m[1]}\n{wrapped(self.blocks[m[2]]())}\n{m[3]}", page)

    # Tables ---------------------------------------------------------------------------------------

    def headline(self) -> Table:
        """Our runs of the paper's main method next to the paper, a row per task."""
        rows, shown = [], []
        for task in TASKS:
            group = self._planned(task)
            decisions = f"{min(map(_last, group.runs)):,}" if group else "–"
            cells = [Cell(task), Cell(decisions)]
            for mode in HEADLINE:
                cell, result = self._cell(group, task, mode)
                cells.append(replace(cell, paper=self._paper(task, mode, result)))
                shown += [result] if result else []
            rows.append(Row(tuple(cells)))
        columns = tuple(map(Column, ("task", "decisions", *HEADLINE)))
        seeds, episodes = {r.seeds for r in shown}, {r.episodes for r in shown}
        note = (
            f"{_range(seeds)} seed per row, {_range(episodes)} episodes per cell, "
            f"{_worlds(shown)}; in brackets 95 % over worlds or episodes. The paper: 5 seeds of "
            "500,000 decisions. † Not a replication: fewer seeds or decisions, or not all worlds."
        )
        return Table("headline", "", columns, tuple(rows), (note,))

    def means(self) -> Table:
        """Means over the tasks at 100,000 decisions, of settings that have run on all of them."""
        found = _at_100k(self.groups)
        rows = [
            Row((label, *returns[: len(MEANS)], seeds))
            for _, label, seeds, *returns in (row.cells for row in self._means(found))
        ]
        episodes = _range(_played({label: found[label] for label in _whole(found)}, MEANS))
        note = (
            f"Means over {len(TASKS)} tasks after {COMPARED_AT:,} decisions; 95 % over seeds and "
            f"episodes, {episodes} per agent."
        )
        columns = tuple(map(Column, ("setting", *MEANS, "seeds")))
        return Table("means", "", columns, tuple(rows), (note,))

    def final(self) -> Table:
        """Final agents: a row per setting and mode."""
        rows, shown = [], []
        others = [group for group in self.groups if group is not self._planned(group.task)]
        settings = [(task, self._planned(task)) for task in TASKS]
        for task, group in [*settings, *((group.task, group) for group in others)]:
            for mode in MODES:
                cell, result = self._cell(group, task, mode)
                behind = self._behind(result) if result else {}
                facts = [
                    Cell(behind.get(k, "")) for k in ("seeds", "decisions", "episodes", "worlds")
                ]
                label = group.label if group else "svea + conv"
                paper = Cell(self._paper(task, mode, result, group))
                rows.append(Row((Cell(task), Cell(label), Cell(mode), cell, *facts, paper)))
                shown += [result] if result else []
        titles = (
            "task",
            "setting",
            "mode",
            RETURN,
            "seeds",
            "decisions",
            "episodes",
            "worlds",
            "paper",
        )
        columns = tuple(Column(title) for title in titles)
        return Table("final", "", columns, tuple(rows), self._notes(shown))

    def curves(self) -> Table:
        """Evaluations during training."""
        columns: dict[str, dict[int, Cell]] = {}
        sizes: set[int] = set()
        for run in self.runs:
            for line in (r for r in run.metrics if r.get("kind") == "eval"):
                ends = stats.bootstrap_interval([line["returns"]], stats.mean)
                name = f"{run.task} {run.method} s{run.seed}, {describe(line['provenance'])}"
                cell = Cell(number(ends.point), interval(ends.low, ends.high))
                columns.setdefault(name, {})[line["decision"]] = cell
                sizes.add(line["episodes"])
        decisions = sorted({d for column in columns.values() for d in column})
        rows = [
            Row((Cell(f"{d:,}"), *(column.get(d, Cell("–")) for column in columns.values())))
            for d in decisions
        ]
        note = (
            f"Mean return of {' or '.join(map(str, sorted(sizes)))} episodes with its 95 % "
            "interval over episodes; one training seed per column."
        )
        heads = (Column("decisions"), *map(Column, columns))
        return Table("curves", "", heads, tuple(rows), (note,))

    def provenance(self) -> Table:
        """How each run was made."""
        rows = []
        for run in self.runs:
            about = json.loads((run.folder / "provenance.json").read_text())
            machine = about["machine"]
            rows.append(
                {
                    "run": Cell(run.folder.name),
                    "commit": Cell(about["commit"]),
                    "machine": Cell(f"{machine['gpu']}; torch {machine['torch']}"),
                    "asked for": Cell(f"{about['asked_for_decisions']:,} decisions"),
                    "reached": Cell(f"{about['reached_decisions']:,}", f"({about['stopped_by']})"),
                    "wall time": Cell(f"{about['wall_seconds']:,.0f} s"),
                }
            )
        return Table.of("runs", rows)

    def zoo(self) -> Table:
        """The agents to download."""
        rows = [
            {
                "agent": Cell(f"`{zoo.PREFIX}{folder.name}`"),
                "decisions": Cell(f"{card['decisions']:,}"),
                "mean return [95 %]": Cell("; ".join(map(_shown, card["returns"]))),
                "seeds": Cell("1"),
                "size": Cell(size(card["size"])),
            }
            for folder, card in ((folder, self.card(folder)) for folder in self.agents())
        ]
        return Table.of("zoo", rows)

    def stored(self) -> Table:
        """Whether 8 bits change returns: the same episodes with both kinds of weights."""
        rows = []
        for folder in sorted((self.root / "results/stored").iterdir()):
            whole, small = (
                {r["seed"]: r["return"] for r in read_run(folder / kind).agent_episodes()}
                for kind in ("float32", "stored")
            )
            seeds = sorted(whole.keys() & small.keys())
            gaps = stats.bootstrap_interval([[small[s] - whole[s] for s in seeds]], stats.mean)
            rows.append(
                {
                    "agent": Cell(f"`{zoo.PREFIX}{folder.name}`"),
                    "mode": Cell("train"),
                    "paired episodes": Cell(str(len(seeds))),
                    "float32": Cell(number(float(np.mean([whole[s] for s in seeds])))),
                    "stored": Cell(number(float(np.mean([small[s] for s in seeds])))),
                    "difference [95 %]": Cell(
                        f"{gaps.point:+.1f}", f"[{gaps.low:+.1f}, {gaps.high:+.1f}]"
                    ),
                }
            )
        return Table.of("stored", rows)

    def compared(self) -> Table:
        """Settings at 100,000 decisions, final agents or kept on the way, and means over tasks."""
        found = _at_100k(self.groups)
        rows = [
            _compared_row(task, label, [tasks[task]])
            for task in TASKS
            for label, tasks in found.items()
            if task in tasks
        ]
        note = (
            "Mean return over seeds with its 95 % interval over seeds, where there are several, "
            "and episodes, which show a mode's worlds in turn; "
            f"{_range(_played(found, MODES))} episodes of each agent. A mean over tasks stands "
            "where all of them have run; each task counts once, however many seeds it has. The "
            "rest of this comparison has not yet been run."
        )
        titles = ("task", "setting", "seeds", *MODES)
        rows += self._means(found)
        return Table("compared", "", tuple(map(Column, titles)), tuple(rows), (note,))

    def seeds(self) -> Table:
        """Each seed at 100,000 decisions, where a setting has several on a task."""
        rows, sizes = [], set()
        for label, tasks in _at_100k(self.groups).items():
            for task, runs in ((task, tasks[task]) for task in TASKS if task in tasks):
                for records in runs if len(runs) > 1 else ():
                    row = _compared_row(task, label, [[records]])
                    seed = Cell(str(records[0]["run_seed"]))
                    rows.append(Row((*row.cells[:2], seed, *row.cells[3:])))
                    sizes |= _played({label: {task: [records]}}, MODES)
        note = (
            "Mean return of one agent with its 95 % interval over episodes, "
            f"{_range(sizes)} per cell."
        )
        titles = ("task", "setting", "seed", *MODES)
        return Table("seeds", "", tuple(map(Column, titles)), tuple(rows), (note,))

    def _means(self, found: Compared) -> list[Row]:
        """A row for each setting that has run on all tasks."""
        name = f"mean of the {len(TASKS)}"
        return [
            _compared_row(name, label, [found[label][task] for task in TASKS])
            for label in _whole(found)
        ]

    def search(self) -> Table:
        """Every candidate of the search for a recipe that was run, the best first."""
        groups = sorted(group_runs(self.searched), key=lambda group: group.task)
        candidates: dict[str, list[Group]] = {}
        for group in groups:
            candidates.setdefault(group.label, []).append(group)
        tasks = len({group.task for group in groups})
        scores = {
            label: float(np.mean([self._score(group) for group in one]))
            if len(one) == tasks
            else float("nan")
            for label, one in candidates.items()
        }
        order = sorted(scores, key=lambda label: -np.nan_to_num(scores[label], nan=-1.0))
        rows = [
            Row(
                (
                    Cell(f"`{label}`"),
                    Cell(number(scores[label])),
                    Cell(group.task),
                    Cell(f"{min(run.decisions_done for run in group.runs):,}"),
                    *(self._cell(group, group.task, mode)[0] for mode in ("train", *SEARCHED)),
                    Cell(number(self._score(group))),
                    Cell(self._kept(group)),
                )
            )
            for label in order
            for group in candidates[label]
        ]
        titles = (
            "candidate",
            "score",
            "task",
            "decisions",
            "train",
            *SEARCHED,
            "mean of four",
            "kept",
        )
        played = {
            sum(record["mode"] == mode for record in run.agent_episodes())
            for group in groups
            for run in group.runs
            for mode in ("train", *SEARCHED)
        }
        note = (
            "Mean return with its 95 % interval over the worlds of one agent (train: episodes). "
            "Mean of four: over the test modes. Score: its mean over both tasks. Kept: the mean of "
            "four as a share of the return in train. One training seed "
            f"(101) per row, {_range(played)} episodes per mode."
        )
        return Table("search", "", tuple(map(Column, titles)), tuple(rows), (note,))

    def candidate(self) -> Table:
        """The candidate that was tried at the comparison's length, next to what it had to beat."""
        tried, shown = _at_100k(self.candidates), _at_100k(self.groups)
        rows = [
            _candidate_row(task, label, [tasks[task]])
            for label, tasks in tried.items()
            for task in TASKS
        ]
        rows += [
            _candidate_row(f"mean of the {len(TASKS)}", label, [found[label][t] for t in TASKS])
            for found in (tried, shown)
            for label in _whole(found)
        ]
        note = (
            "Mean return with its 95 % interval over seeds, where there are several, and episodes. "
            "Mean of four: over the test modes. Kept: the mean of four as a share of the return in "
            "train."
        )
        titles = ("task", "setting", "seed", "train", *SEARCHED, "mean of four", "kept")
        return Table("candidate", "", tuple(map(Column, titles)), tuple(rows), (note,))

    def _score(self, group: Group) -> float:
        """The mean over the test modes that the search is for; undefined if one is missing."""
        results = [self._cell(group, group.task, mode)[1] for mode in SEARCHED]
        return float(np.mean([result.mean if result else float("nan") for result in results]))

    def _kept(self, group: Group) -> str:
        """How much of its return in train an agent keeps in the test modes."""
        train = self._cell(group, group.task, "train")[1]
        share = self._score(group) / train.mean if train else float("nan")
        return f"{share:.0%}" if np.isfinite(share) else number(share)

    def _planned(self, task: str) -> Group | None:
        """The group of the planned setting on a task, if it has run."""
        found = (g for g in self.groups if g.task == task and g.runs[0].preset == "paper")
        return next((g for g in found if (g.method, g.runs[0].augment) == PLANNED), None)

    def _cell(self, group: Group | None, task: str, mode: str) -> tuple[Cell, Result | None]:
        """The return of final agents in a mode; evaluations during training do not count."""
        if group is None:
            return Cell(NOT_RUN), None
        evaluated = [run for run in group.runs if mode in _final_modes(run)]
        result = summarise_mode(replace(group, runs=evaluated), mode) if evaluated else None
        if result is None:
            return Cell(NOT_EVALUATED), None
        ends = result.mean_over_worlds
        return Cell(number(result.mean), interval(ends.low, ends.high)), result

    def _behind(self, result: Result) -> dict[str, str]:
        """What stands behind a number."""
        decisions = min(map(_last, result.group.runs))
        return {
            "seeds": plural(result.seeds, "seed"),
            "decisions": f"{decisions:,} decisions",
            "episodes": plural(result.episodes, "episode"),
            "worlds": f"{result.worlds_seen} of {result.worlds} worlds"
            if result.worlds
            else "1 world",
        }

    def _paper(
        self, task: str, mode: str, result: Result | None, group: Group | None = None
    ) -> str:
        """The paper's number, marked where ours is not a replication."""
        if result is not None:
            return papers(result.paper, result.is_replication)
        setting = (group.method, group.runs[0].augment) if group else PLANNED
        return papers(published.lookup(task, mode, *setting))

    def _notes(self, shown: Sequence[Result]) -> tuple[str, ...]:
        """How to read the numbers."""
        return (
            "Final agents, most likely actions. Intervals: 95 % bootstrap over seeds and worlds; "
            "where there is one of both, over episodes. One seed says nothing about other seeds. "
            "The paper has the mean ± standard deviation over 5 seeds of 500,000 decisions.",
            *notes_on_marks(shown),
        )

    # The zoo --------------------------------------------------------------------------------------

    def agents(self) -> list[Path]:
        """The folders of the zoo."""
        return sorted(path.parent for path in (self.root / "zoo").glob(f"*/{layout.CONFIG}"))

    def card(self, folder: Path) -> dict[str, Any]:
        """What is known about an agent: its configuration, and the records of its run."""
        config = json.loads((folder / layout.CONFIG).read_text())
        run = self._run_of(config)
        about = json.loads((run.folder / "provenance.json").read_text())
        return {
            **{key: config[key] for key in ("task", "method", "augment", "encoder", "seed")},
            "decisions": config["decision"],
            "returns": list(returns_of(run, config["decision"])),
            "size": config["files"][layout.ACTOR]["size"],
            "sha256": config["files"][layout.ACTOR]["sha256"],
            "licence": LICENCE,
            "run": str(run.folder.relative_to(self.root)),
            "commit": about["commit"],
            "command": about["command"],
            "machine": f"{about['machine']['gpu']}; torch {about['machine']['torch']}",
        }

    def _run_of(self, config: dict[str, Any]) -> Run:
        """The run that an agent comes from."""
        key = ("task", "method", "augment", "encoder", "seed")
        for run in [*self.runs, *self.searched, *(r for g in self.candidates for r in g.runs)]:
            if all(run.config[name] == config[name] for name in key):
                return run
        raise SystemExit(f"results/runs has no run of {[config[name] for name in key]}")

    # Figures --------------------------------------------------------------------------------------

    def figures(self) -> Iterator[tuple[Path, str, Any]]:
        """Learning curves: where they lie, a hash of the numbers they draw, and the figure."""
        drawable = [r.folder for r in self.runs if any(m.get("kind") == "eval" for m in r.metrics)]
        for exhibit in gather(drawable).exhibits:
            if exhibit.topic == "learning":
                drawn = hashlib.sha256(records_to_csv(exhibit.numbers).encode()).hexdigest()
                name = f"docs/images/results-{exhibit.name.removeprefix('learning-')}.png"
                yield self.root / name, drawn, exhibit.figure


def setting_of(group: Group) -> str:
    """What was trained, without its length: tables that use this name give the decisions too."""
    augment = group.runs[0].augment
    own = group.method != PLANNED[0] and augment == METHODS[group.method].augment
    return group.method if own else f"{group.method} + {augment}"


def _at_100k(groups: Iterable[Group]) -> Compared:
    """What was played with agents of 100,000 decisions."""
    found: Compared = {}
    for group in groups:
        records = [
            [r for r in run.agent_episodes() if round(r["decision"], -3) == COMPARED_AT]
            for run in group.runs
        ]
        if any(records):
            found.setdefault(group.label, {})[group.task] = records
    return found


def _returns_in(records: Sequence[Sequence[Record]], mode: str) -> list[list[float]]:
    """The returns of each seed in a mode."""
    return [[r["return"] for r in one if r["mode"] == mode] for one in records]


def _whole(found: Compared) -> list[str]:
    """The settings that have run on all tasks."""
    return [label for label, tasks in found.items() if set(TASKS) <= set(tasks)]


def _played(found: Compared, modes: Sequence[str]) -> set[int]:
    """The numbers of episodes behind the cells."""
    return {
        count
        for tasks in found.values()
        for records in tasks.values()
        for mode in modes
        for count in map(len, _returns_in(records, mode))
        if count
    }


def _worlds(shown: Sequence[Result]) -> str:
    """How many worlds of each mode were seen: 'all 100 worlds of color_hard'."""
    parts = []
    for mode in HEADLINE:
        seen = {(r.worlds_seen, r.worlds) for r in shown if r.mode == mode and r.worlds}
        parts += [
            f"all {of} worlds of {mode}" if one == of else f"{one} of {of} of {mode}"
            for one, of in sorted(seen)
        ]
    return ", ".join(parts)


def _compared_row(name: str, label: str, tasks: Sequence[Sequence[Sequence[Record]]]) -> Row:
    """A setting on a task, or its mean over several: records of each seed of each task."""
    cells = [_compared_cell([_returns_in(records, mode) for records in tasks]) for mode in MODES]
    seeds = Cell(_range({len(records) for records in tasks}))
    return Row((Cell(name), Cell(f"`{label}`"), seeds, *cells))


def _candidate_row(name: str, label: str, tasks: Sequence[Sequence[Sequence[Record]]]) -> Row:
    """As `_compared_row`, with the seeds' numbers and the mean over the search's modes."""
    returns = {mode: [_returns_in(r, mode) for r in tasks] for mode in ("train", *SEARCHED)}
    means = {
        mode: np.mean([np.mean([np.mean(seed) for seed in seeds if seed]) for seeds in played])
        for mode, played in returns.items()
    }
    four = float(np.mean([means[mode] for mode in SEARCHED]))
    seeds = {records[0]["run_seed"] for seeds in tasks for records in seeds}
    cells = [_compared_cell(played) for played in returns.values()]
    kept = Cell(f"{four / means['train']:.0%}")
    return Row(
        (Cell(name), Cell(f"`{label}`"), Cell(_range(seeds)), *cells, Cell(number(four)), kept)
    )


def _compared_cell(returns: Sequence[Sequence[Sequence[float]]]) -> Cell:
    """The mean over tasks in a mode, from the returns of each seed of each task."""
    played = [[seed for seed in seeds if seed] for seeds in returns]
    if not all(played):
        return Cell(NOT_EVALUATED)
    # Every episode counts as a world of its own: those of one world are few.
    strata = [
        stats.SeedsAndWorlds.of([{str(i): [r] for i, r in enumerate(seed)} for seed in seeds])
        for seeds in played
    ]
    ends = stats.bootstrap_interval(strata, _mean_of_tasks(list(map(len, played))))
    lacking = sum(map(len, returns)) - sum(map(len, played))
    without = f", without {plural(lacking, 'seed')}" if lacking else ""
    return Cell(number(ends.point), f"{interval(ends.low, ends.high)}{without}")


def _mean_of_tasks(seeds: Sequence[int]) -> stats.Statistic:
    """The mean over tasks of their means over seeds: a task with more seeds counts no more.

    Args:
        seeds: how many scores each task has, in the order of the scores.
    """
    ends = np.cumsum(seeds)[:-1]
    return lambda scores: np.mean(
        [task.mean(axis=-1) for task in np.split(scores, ends, axis=-1)], axis=0
    )


def _final_modes(run: Run) -> set[str]:
    """The modes that a run's final agent was evaluated in."""
    return {r["mode"] for r in run.agent_episodes() if r["decision"] == _last(run)}


def _last(run: Run) -> int:
    """Decisions of a run's final agent; agents kept on the way have fewer."""
    return max((int(r["decision"]) for r in run.agent_episodes()), default=0)


def _range(counts: set[int]) -> str:
    """Numbers of episodes in words."""
    if not counts:
        return "no"
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _shown(one: dict[str, Any]) -> str:
    """A return of a card in words."""
    ends = interval(one["low"], one["high"])
    return f"{one['shown']} {number(one['mean'])} {ends}, {plural(one['episodes'], 'episode')}"


def wrapped(table: Table) -> str:
    """A table with its notes wrapped, as Markdown."""
    body = to_markdown(replace(table, notes=()))
    has_paper = any(cell.paper for row in table.rows for cell in row.cells)
    notes = [*table.notes, *(["In parentheses: the paper."] if has_paper else [])]
    return body + (f"\n{wrap(' '.join(notes))}\n" if notes else "")


# Writing and comparing ----------------------------------------------------------------------------


def differences(path: Path, stands: str, wanted: str) -> Iterator[str]:
    """What differs between a file and what results/ give, cell by cell where it is a table."""
    old, new = stands.splitlines(), wanted.splitlines()
    if len(old) != len(new):
        yield f"{path}: {len(old)} lines, results/ give {len(new)}"
        return
    titles: list[str] = []
    for number_, (has, gets) in enumerate(zip(old, new, strict=True), start=1):
        was, cells = _cells(has), _cells(gets)
        if set("".join(cells)) == {"-"}:
            titles = _cells(new[number_ - 2])
        if has == gets:
            continue
        if len(was) == len(cells) == len(titles) > 1:
            for title, one, other in zip(titles, was, cells, strict=True):
                if one != other:
                    row = ", ".join(cell for cell in cells[:3] if cell[:1].isalpha())
                    yield f"{path}, row {row}, column {title}: {one!r}, results/ give {other!r}"
        else:
            yield f"{path}, line {number_}: {has.strip()!r}, results/ give {gets.strip()!r}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


def drawn_numbers(path: Path) -> str:
    """The hash of the numbers that a figure on the disk draws."""
    if not path.is_file():
        return ""
    with Image.open(path) as picture:
        return str(picture.info.get("numbers", ""))


def write_figure(path: Path, drawn: str, figure: Any) -> None:
    """A PNG that says which numbers it draws."""
    about = PngImagePlugin.PngInfo()
    about.add_text("numbers", drawn)
    content = io.BytesIO()
    Image.open(io.BytesIO(plots.to_png(figure))).save(content, "png", pnginfo=about, optimize=True)
    files.replace(path, [content.getvalue()])


def main() -> Iterable[Path]:
    """Write what has changed."""
    results = Results()
    for path, content in results.contents().items():
        if not path.is_file() or path.read_text() != content:
            files.replace(path, [content.encode()])
            yield path
    for path, drawn, figure in results.figures():
        if drawn_numbers(path) != drawn:
            write_figure(path, drawn, figure)
            yield path


if __name__ == "__main__":
    written = list(main())
    print(*(path.relative_to(ROOT) for path in written), sep="\n", file=sys.stderr)
    print(f"{plural(len(written), 'file')} written")
