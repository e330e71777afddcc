"""Write what is shown from results/: blocks of README and pages, tables, figures, model cards.

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
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import leaderboard
import method_pages
import miniature
import numpy as np
from comparison import (
    COMPARED_AT,
    DRAWN,
    HALF,
    MODES,
    NOT_EVALUATED,
    PLANNED,
    SEARCHED,
    TASKS,
    Comparison,
    agents_on_the_way,
    caption,
    from_to,
    kept,
    kinds_of,
    named_groups,
    of_seeds,
    plus_minus,
    table,
    to_csv,
    training_curves,
)
from model_cards import RETURN, model_card, return_cell, returns_of, wrap
from PIL import Image, PngImagePlugin
from published_runs import QUICK, provenance, read_published

from svea.config.modes import GEOMETRY_MODES
from svea.core import files
from svea.core.words import number, plural, size
from svea.data.clips import DMCGB, source_of
from svea.envs import describe
from svea.evaluation.requests import fingerprint
from svea.results import plots, published, stats
from svea.results.groups import Group, group_runs
from svea.results.read import Run
from svea.results.report import gather
from svea.results.summary import Result, summarise_mode
from svea.results.tables import (
    Cell,
    Table,
    estimate,
    notes_of,
    notes_on_marks,
    papers,
    records_to_csv,
    to_markdown,
)
from svea.runs import layout, zoo
from svea.runs.load import load_agent
from svea.runs.records import is_agent, read_records

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/results.md",
    "docs/methods.md",
    "docs/leaderboard.md",
    "docs/svea-motion.md",
    "docs/lab-book.md",
)
FILES = ("final", "compared", "seeds", "curves", "kept", "clips", "kinds", "long-kinds", "stored",
         "runs")  # fmt: skip
"""Tables that are too long for a page: results/tables/NAME.csv."""
HEADLINE = MODES[:3]
LONG = 500_000  # decisions, the paper's
OURS = "svea-motion"
CANDIDATES = ("svea + overlay_drift", "svea + overlay|overlay_drift")
"""Settings that are neither the paper's nor methods of ours: not for pages that are short."""
NOT_RUN = "not yet run"
BLOCK = re.compile(
    r"(<!-- ([\w-]+): written by make results -->\n).*?(<!-- end of \2 -->)", re.DOTALL
)
Returns = dict[Any, float]
"""Of episodes, by what pairs them."""


class Results:
    """Everything in results/, and the pages made from it.

    `root` is the repository, or a copy of its pages, results and zoo.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.runs = read_published(root / "results/runs")
        self.groups = named_groups(self.runs)
        self.searched = read_published(root / "results/search")
        self.tried = read_published(root / "results/search-100k")
        self.quick = read_published(root / "results/quick", QUICK)
        self.comparison = Comparison(self.groups, named_groups(self.tried))
        self.blocks = {
            "headline": self.headline,
            "long": self.long,
            "motion": self.motion,
            "means": self.comparison.means,
            "lead": self.lead,
            "final": self.final,
            "curves": self.curves,
            "kept": partial(agents_on_the_way, self.groups),
            "learning": partial(caption, self.groups),
            "runs": self.provenance,
            "zoo": self.zoo,
            "stored": self.stored,
            "clips": self.clips,
            "search": self.search,
            "candidate": self.comparison.candidates,
            "compared": self.comparison.settings,
            "seeds": self.comparison.seeds,
            "kinds": self.comparison.kinds,
            "long-kinds": self.long_kinds,
            "leaderboard": lambda: self.leaderboard,
            "published": partial(leaderboard.others, root),
            "methods": partial(method_pages.overview, root),
        }

    def contents(self) -> dict[Path, str]:
        """Every text file that is generated, whole or in part, as it should be."""
        pages = [self.root / name for name in PAGES]
        found = {
            page: BLOCK.sub(lambda m: f"{m[1]}{self._block(m[2])}{m[3]}", page.read_text())
            for page in pages
        }
        for folder, card in self.cards.items():
            found[folder / zoo.CARD] = files.to_json(card).decode()
            found[folder / "README.md"] = model_card(card, folder.name, MODES)
        found |= {self.root / miniature.PAGE: miniature.page(self.root)}
        return found | self._files() | method_pages.pages(self.root, self.leaderboard)

    def _files(self) -> dict[Path, str]:
        """The long tables, and a page that says how to read them."""
        place = self.root / "results/tables"
        tables = {name: self.blocks[name]() for name in FILES}
        notes = [
            wrap(f"**[{name}.csv]({name}.csv)** {notes_of(one)}\n") for name, one in tables.items()
        ]
        index = "\n\n".join(["# Tables", "`make results` writes these files.", *notes]) + "\n"
        found = {place / f"{name}.csv": to_csv(one) for name, one in tables.items()}
        return found | {place / "README.md": index}

    @cached_property
    def leaderboard(self) -> Table:
        """Every setting and length."""
        return leaderboard.ours(self.groups, self._long_groups())

    def _block(self, name: str) -> str:
        """A table with its notes wrapped, or a sentence."""
        found = self.blocks[name]()
        if not isinstance(found, Table):
            return f"{found}\n" if "\n" in found else f"{wrap(found)}\n"
        below = f"\n{wrap(notes_of(found))}\n" if found.notes else ""
        return f"\n{to_markdown(replace(found, notes=()))}{below}\n"

    # Tables ---------------------------------------------------------------------------------------

    def headline(self) -> Table:
        """Our runs of the paper's main method next to the paper, a row per task."""
        rows, shown = [], list[Result]()
        for task in TASKS:
            group = self._planned(task)
            found = [self._cell(group, mode) for mode in HEADLINE]
            ours = [plus_minus(r.interval) if r else cell for cell, r in found]
            paper = [papers(published.lookup(task, mode, *PLANNED)) for mode in HEADLINE]
            played = [result for _, result in found if result]
            seeds = from_to({result.seeds for result in played})
            cells = (ours[0], *chain(*zip(ours[1:], paper[1:], strict=True)))
            rows.append((task, *cells, seeds, _reached(group) if group else "–"))
            shown += played
        note = (
            f"{HALF} over worlds, in train over episodes, and over seeds where there are two; in "
            "the paper's columns it is the "
            f"standard deviation over 5 seeds of {LONG:,} decisions. "
            f"{from_to({one.episodes for one in shown})} episodes per cell; {_worlds(shown)}."
        )
        paper = [f"{mode}{of}" for mode in HEADLINE[1:] for of in ("", ", paper")]
        titles = ("task", HEADLINE[0], *paper, "seeds", "decisions")
        return table("headline", titles, rows, note)

    def long(self, labels: Sequence[str] = (), both: bool = False) -> Table:
        """Runs of the paper's length: a row per task and setting, a column for every mode.

        Of some settings (all, unless given); `both`: of tasks on which all of them have run.
        """
        groups = [group for group in self._long_groups() if group.label in labels or not labels]
        rows, shown = [], []
        for task in TASKS:
            here = [group for group in groups if group.task == task]
            for group in here if not both or len(here) == len(labels) else ():
                found = [self._cell(group, mode) for mode in MODES]
                shown += [result for _, result in found if result]
                cells = (cell for cell, _ in found)
                rows.append((task, f"`{group.label}`", _reached(group), *cells))
        note = f"{_sizes(shown)}; in brackets 95 % over worlds or episodes."
        return table("long", ("task", "setting", "decisions", *MODES), rows, note)

    def _long_groups(self) -> list[Group]:
        return [group for group in self.groups if group.runs[0].config["decisions"] >= LONG]

    def long_kinds(self) -> Table:
        """What the last agents of long runs do in geometry and lights."""
        groups = sorted(self._long_groups(), key=lambda group: TASKS.index(group.task))
        return kinds_of(
            (group.task, group.label, [r for r in run.agent_episodes if r["decision"] == last])
            for group in groups
            for run in group.runs
            for last in [_last(run)]
            if any(r["mode"] in GEOMETRY_MODES for r in run.agent_episodes)
        )

    def motion(self) -> Table:
        """The same for our own method, next to the paper's, where both have run for so long."""
        return self.long(labels=("svea + conv", OURS), both=True)

    def lead(self) -> Table:
        """Means over the tasks of methods alone, and what the last of them reaches later."""
        means = self.comparison.means(left_out=CANDIDATES, show=plus_minus)
        rows = [{k: cell.text for k, cell in row.cells.items()} for row in self.motion().rows]
        rows = [row for row in rows if OURS in row["setting"]]
        ours = [f"{row['video_hard']} on {row['task']}" for row in rows]
        tasks = [row["task"] for row in rows]
        paper = [published.lookup(task, "video_hard", PLANNED[0], "overlay") for task in tasks]
        seeds = {len(group.runs) for group in self._long_groups() if group.label == OURS}
        note = (
            f"After {LONG:,} decisions, with {of_seeds(seeds)}, `{OURS}` has in video_hard "
            f"{' and '.join(ours)}; the paper's `svea + overlay` has "
            f"{' and '.join(map(papers, paper))}."
        )
        return replace(means, notes=(*means.notes, note))

    def final(self) -> Table:
        """Final agents: a row per setting and mode."""
        rows, shown = [], []
        others = [group for group in self.groups if group is not self._planned(group.task)]
        settings = [(task, self._planned(task)) for task in TASKS]
        for task, group in [*settings, *((group.task, group) for group in others)]:
            for mode in MODES:
                cell, result = self._cell(group, mode)
                paper = self._paper(task, mode, result, group)
                label = group.label if group else "svea + conv"
                rows.append((task, label, mode, cell, *_behind(result), paper))
                shown += [result] if result else []
        titles = ("task", "setting", "mode", RETURN, "seeds", "decisions", "episodes", "worlds",
                  "paper")  # fmt: skip
        notes = (
            "Final agents, most likely actions. Intervals: 95 % bootstrap over seeds and worlds; "
            "where there is one of both, over episodes. One seed says nothing about other seeds. "
            "The paper has the mean ± standard deviation over 5 seeds of 500,000 decisions.",
            *notes_on_marks(shown, brief=True),
        )
        return table("final", titles, rows, " ".join(notes))

    def curves(self) -> Table:
        """Evaluations during training."""
        columns: dict[str, dict[int, Cell]] = {}
        sizes: set[int] = set()
        for run in self.runs:
            for line in (r for r in run.metrics if r.get("kind") == "eval"):
                name = f"{run.task} {run.method} s{run.seed}, {describe(line['provenance'])}"
                columns.setdefault(name, {})[line["decision"]] = estimate(
                    stats.bootstrap_interval([line["returns"]], stats.mean)
                )
                sizes.add(line["episodes"])
        decisions = sorted({d for column in columns.values() for d in column})
        rows = [(f"{d:,}", *(column.get(d, "–") for column in columns.values())) for d in decisions]
        note = (
            f"Evaluations during training. Mean return of {' or '.join(map(str, sorted(sizes)))} "
            "episodes with its 95 % interval over episodes; one training seed per column. "
            "color_hard (generated) is not the benchmark's: its colours were made by the same rule."
        )
        return table("curves", ("decisions", *columns), rows, note)

    def provenance(self) -> Table:
        """How each run was made."""
        note = "Where, with which commit and for how long each run was trained."
        return Table.of("runs", [_made(run) for run in self.runs], [note])

    def zoo(self) -> Table:
        """The agents to download."""
        rows, counts = [], set()
        for folder, card in self.cards.items():
            returns = {one["mode"]: one for one in card["returns"] if one["mode"] in MODES}
            counts |= {one["episodes"] for one in returns.values()}
            cells = [return_cell(returns[m]) if m in returns else NOT_EVALUATED for m in MODES]
            name, decisions = f"`{zoo.PREFIX}{folder.name}`", f"{card['decisions']:,}"
            rows.append((name, decisions, *cells, size(card["size"])))
        note = (
            f"Mean return of the one agent with its 95 % interval over {from_to(counts)} episodes "
            "a cell; its card says how many, and in which worlds."
        )
        return table("zoo", ("agent", "decisions", *MODES, "size"), rows, note)

    def stored(self) -> Table:
        """Whether 8 bits change returns: the same episodes with both kinds of weights."""
        rows = []
        for folder in sorted((self.root / "results/stored").iterdir()):
            whole, small = (
                {r["seed"]: r["return"] for r in filter(is_agent, read_records(folder / kind))}
                for kind in ("float32", "stored")
            )
            agent = {"agent": Cell(f"`{zoo.PREFIX}{folder.name}`"), "mode": Cell("train")}
            rows.append(agent | _paired("float32", whole, "stored", small))
        note = "The same episodes with float32 weights and with the zoo's weights in 8 bits."
        return Table.of("stored", rows, [note])

    def clips(self) -> Table:
        """The same episodes in front of re-coded clips and of the benchmark's own."""
        rows, gaps = [], list[list[float]]()
        for run in self.runs:
            for (decision, mode), (before, now) in sorted(_in_front_of_both(run).items()):
                name = f"{run.task}, `{run.method} + {run.augment}`, seed {run.seed}"
                agent = {"agent": Cell(name), "decisions": Cell(f"{decision:,}")}
                pairs = _paired("re-coded", before, "the benchmark's", now)
                rows.append(agent | {"mode": Cell(mode)} | pairs)
                gaps.append([now[one] - before[one] for one in now.keys() & before.keys()])
        ends = stats.bootstrap_interval([[float(np.mean(one)) for one in gaps]], stats.mean)
        note = (
            "Mean return of the episodes that an agent played in front of re-coded clips and of "
            "the benchmark's own. Mean difference over the "
            f"{len(gaps)} rows: {ends.point:+.0f} [{ends.low:+.0f}, {ends.high:+.0f}]. "
            "Those with re-coded clips were played with earlier code, some on other machines."
        )
        return Table.of("clips", rows, [note])

    def search(self) -> Table:
        """Every candidate of the search for a recipe that was run, the best first."""
        candidates: dict[str, list[Group]] = {}
        for group in sorted(group_runs(self.searched), key=lambda group: group.task):
            candidates.setdefault(group.label, []).append(group)
        tasks = {group.task for one in candidates.values() for group in one}
        scores = {
            label: float(np.mean([self._score(group) for group in one]))
            if len(one) == len(tasks)
            else float("nan")
            for label, one in candidates.items()
        }
        order = sorted(scores, key=lambda label: -np.nan_to_num(scores[label], nan=-1.0))
        modes = ("train", *SEARCHED)
        rows = [
            (
                f"`{label}`",
                number(scores[label]),
                group.task,
                f"{min(run.decisions_done for run in group.runs):,}",
                *(self._cell(group, mode)[0] for mode in modes),
                number(self._score(group)),
                kept(self._score(group), self._mean(group, "train")),
            )
            for label in order
            for group in candidates[label]
        ]
        played = {
            sum(record["mode"] == mode for record in run.agent_episodes)
            for run in self.searched
            for mode in modes
        }
        note = (
            "Mean return with its 95 % interval over the worlds of one agent (train: episodes). "
            "Mean of four: over the test modes. Score: its mean over both tasks. Kept: the mean of "
            "four as a share of the return in train. One training seed "
            f"(101) per row, {from_to(played)} episodes per mode."
        )
        titles = ("candidate", "score", "task", "decisions", *modes, "mean of four", "kept")
        return table("search", titles, rows, note)

    def _score(self, group: Group) -> float:
        """The mean over the test modes that the search is for; undefined if one is missing."""
        return float(np.mean([self._mean(group, mode) for mode in SEARCHED]))

    def _mean(self, group: Group, mode: str) -> float:
        """The mean return in a mode; nan where there is none."""
        result = self._cell(group, mode)[1]
        return result.mean if result else float("nan")

    def _planned(self, task: str) -> Group | None:
        """The group of the planned setting on a task, if it has run: of two lengths the longer."""
        found = [g for g in self.groups if g.task == task and g.runs[0].preset == "paper"]
        planned = [g for g in found if (g.method, g.runs[0].augment) == PLANNED]
        return max(planned, key=lambda group: min(map(_last, group.runs)), default=None)

    def _cell(self, group: Group | None, mode: str) -> tuple[Cell, Result | None]:
        """The return of final agents in a mode; evaluations during training do not count."""
        if group is None:
            return Cell(NOT_RUN), None
        evaluated = tuple(run for run in group.runs if mode in _final_modes(run))
        result = summarise_mode(replace(group, runs=evaluated), mode) if evaluated else None
        if result is None:
            return Cell(NOT_EVALUATED), None
        return estimate(replace(result.interval, point=result.mean)), result

    def _paper(
        self, task: str, mode: str, result: Result | None, group: Group | None = None
    ) -> str:
        """The paper's number, marked where ours is not a replication."""
        if result is not None:
            return papers(result.paper, result.is_replication)
        setting = (group.method, group.runs[0].augment) if group else PLANNED
        return papers(published.lookup(task, mode, *setting))

    # The zoo --------------------------------------------------------------------------------------

    @cached_property
    def cards(self) -> dict[Path, dict[str, Any]]:
        """What is known about each agent of the zoo, by its folder."""
        configs = (self.root / "zoo").glob(f"*/{layout.CONFIG}")
        return {folder: self._card(folder) for folder in sorted(path.parent for path in configs)}

    def _card(self, folder: Path) -> dict[str, Any]:
        """What is known about an agent: its configuration, and the records of its run."""
        config = json.loads((folder / layout.CONFIG).read_text())
        run = self._run_of(config)
        about = provenance(run)
        copied = ("task", "method", "augment", "encoder", "seed", "preset", "image_size")
        return {
            **{key: config[key] for key in copied},
            "decisions": config["decision"],
            "returns": list(returns_of(run, config["decision"], fingerprint(load_agent(folder)))),
            "size": sum(file["size"] for file in config["files"].values()),
            "critic": layout.CRITIC in config["files"],
            "sha256": config["files"][layout.ACTOR]["sha256"],
            "licence": "MIT",
            "run": str(run.folder.relative_to(self.root)),
            "commit": about["commit"],
            "command": about["command"],
            "machine": f"{about['machine']['gpu']}; torch {about['machine']['torch']}",
        }

    def _run_of(self, config: dict[str, Any]) -> Run:
        """The run that an agent comes from."""
        key = ("task", "method", "augment", "encoder", "seed", "decisions")
        wanted = [config[name] for name in key]
        runs = [*self.runs, *self.searched, *self.tried, *self.quick]
        found = [run for run in runs if [run.config[name] for name in key] == wanted]
        if len(found) != 1:
            raise SystemExit(f"results/ has {plural(len(found), 'run')} of {wanted}, not one")
        return found[0]

    # Figures --------------------------------------------------------------------------------------

    def figures(self) -> Iterator[tuple[Path, str, Any]]:
        """Where each figure lies, a hash of the numbers it draws, and the figure."""
        images = self.root / "docs/images"
        bars, lines = self.comparison.bars(), list(training_curves(self.groups))
        title = f"Mean return over {len(TASKS)} tasks after {COMPARED_AT:,} decisions"
        drawn = repr([(b.label, np.round([b.values, b.lows, b.highs], 1).tolist()) for b in bars])
        figure = plots.grouped_bars(bars, DRAWN, title=title)
        yield images / "results-means.png", digest(drawn), figure
        drawn = repr([(line.label, np.round(line.curve.returns, 1).tolist()) for line in lines])
        figure = plots.curves(lines, title=f"Training return, mean over {len(TASKS)} tasks")
        yield images / "results-learning.png", digest(drawn), figure
        drawable = [r.folder for r in self.runs if any(m.get("kind") == "eval" for m in r.metrics)]
        for one in gather(drawable).figures:
            if one.topic == "learning":
                name = f"results-{one.name.removeprefix('learning-')}.png"
                yield images / name, digest(records_to_csv(one.numbers)), one.figure


def _sizes(shown: Sequence[Result]) -> str:
    """How many seeds and episodes are behind a table."""
    seeds, episodes = {one.seeds for one in shown}, {one.episodes for one in shown}
    return f"{of_seeds(seeds)} per row, {from_to(episodes)} episodes per cell"


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


def _behind(result: Result | None) -> tuple[str, ...]:
    """What stands behind a number: seeds, decisions, episodes and worlds."""
    if result is None:
        return ("",) * 4
    worlds = f"{result.worlds_seen} of {result.worlds}" if result.worlds else "1"
    return (str(result.seeds), _reached(result.group), str(result.episodes), worlds)


def _made(run: Run) -> dict[str, Cell]:
    about = provenance(run)
    return {
        "run": Cell(run.folder.name),
        "commit": Cell(about["commit"]),
        "machine": Cell(f"{about['machine']['gpu']}; torch {about['machine']['torch']}"),
        "asked for": Cell(f"{about['asked_for_decisions']:,} decisions"),
        "reached": Cell(f"{about['reached_decisions']:,}", f"({about['stopped_by']})"),
        "wall time": Cell(f"{about['wall_seconds']:,.0f} s"),
    }


def _final_modes(run: Run) -> set[str]:
    """The modes that a run's final agent was evaluated in."""
    episodes, last = run.agent_episodes, _last(run)
    return {r["mode"] for r in episodes if r["decision"] == last}


def _last(run: Run) -> int:
    """Decisions of a run's final agent; agents kept on the way have fewer."""
    return max((int(r["decision"]) for r in run.agent_episodes), default=0)


def _reached(group: Group) -> str:
    """How many decisions the agents of a group have in all."""
    return from_to(set(map(_last, group.runs)))


def _in_front_of_both(run: Run) -> dict[tuple[int, str], tuple[Returns, Returns]]:
    """Returns by seed with re-coded clips and the benchmark's, by decision and mode."""
    found: dict[tuple[int, str], tuple[Returns, Returns]] = {}
    for record in filter(is_agent, read_records(run.folder)):
        source = source_of(record.get("provenance") or {})
        if record["mode"] in ("video_easy", "video_hard") and source.startswith(DMCGB):
            both = found.setdefault((record["decision"], record["mode"]), ({}, {}))
            both[source == DMCGB][record["seed"], record.get("world")] = record["return"]
    return {key: both for key, both in found.items() if both[0].keys() & both[1].keys()}


def _paired(one: str, before: Returns, other: str, now: Returns) -> dict[str, Cell]:
    """Means of the episodes that both have, and their difference."""
    seeds = sorted(before.keys() & now.keys())
    gaps = stats.bootstrap_interval([[now[s] - before[s] for s in seeds]], stats.mean)
    return {
        "paired episodes": Cell(str(len(seeds))),
        one: Cell(number(float(np.mean([before[s] for s in seeds])))),
        other: Cell(number(float(np.mean([now[s] for s in seeds])))),
        "difference [95 %]": Cell(f"{gaps.point:+.1f}", f"[{gaps.low:+.1f}, {gaps.high:+.1f}]"),
    }


def digest(numbers: str) -> str:
    """A hash of the numbers that a figure draws."""
    return hashlib.sha256(numbers.encode()).hexdigest()


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
    files.write_whole(path, content.getvalue())


def main() -> Iterable[Path]:
    """Write what has changed."""
    results = Results()
    for path, content in results.contents().items():
        if not path.is_file() or path.read_text() != content:
            files.write_whole(path, content.encode())
            yield path
    for path, drawn, figure in results.figures():
        if drawn_numbers(path) != drawn:
            write_figure(path, drawn, figure)
            yield path


if __name__ == "__main__":
    written = list(main())
    print(*(path.relative_to(ROOT) for path in written), sep="\n", file=sys.stderr)
    print(f"{plural(len(written), 'file')} written")
