"""`svea eval`, `svea compare`, `svea report`: play what is missing, and show what records say."""

from __future__ import annotations

import itertools
import json as jsonlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from svea.cli.arguments import DataDir, Device, Json, Modes, Out, Positional, Runs, Task, Trust
from svea.cli.printing import print_json, print_results
from svea.config.modes import is_factor
from svea.core.errors import SveaError
from svea.core.process import second_ends_at_once
from svea.core.terminal import Steps, note, waiting
from svea.core.words import duration, listed, plural
from svea.results.compare import compare
from svea.results.factors import responses, tolerances, verdicts
from svea.results.groups import caveat_notes, group_runs
from svea.results.read import Run, look_for_runs, read_runs
from svea.results.tables import all_results, brief
from svea.runs.records import Record, latest

if TYPE_CHECKING:
    from svea.evaluation.requests import Scoring

FORECAST_AFTER = 20
"""Episodes after which a long evaluation says how long it takes."""


def evaluate(
    runs: Runs,
    modes: Modes = ("usual",),
    episodes: tuple[str, ...] = ("30",),
    seed: int = 0,
    random_policy: bool = False,
    again: bool = False,
    videos: bool = False,
    envs: int = 0,
    jobs: int = 1,
    device: Device = "cpu",
    data_dir: DataDir = "",
    task: Task = "",
    verbose: bool = False,
    json: Json = False,
    trust: Trust = False,
    vary: tuple[str, ...] = (),
    values: int = 9,
) -> int:
    """Evaluate agents over whole episodes, and record each in RUN/eval.jsonl (runs/zoo/NAME/...).

    Example: svea eval runs/walker_walk-svea-0 --modes all --episodes 30

    The same command again plays only what is not recorded yet.

    Args:
        episodes: per mode; `all` shows each of a mode's worlds once (train: 100 episodes), and
            is what published numbers need. Modes with numbers of their own follow as MODE=NUMBER:
            20 color_hard=100 video_hard=all.
        seed: of the evaluation; the same seed gives every agent the same episodes.
        random_policy: evaluate the random policy too, for comparison.
        again: play recorded episodes once more; the new records count.
        videos: also record one episode per mode as RUN/media/MODE.mp4 and .png.
        envs: environments in parallel, for each agent; 0 is one per core.
        jobs: agents that play at once, and modes of an agent where there are fewer agents, which
            a GPU with many cores next to it needs to be busy; records are the same.
        verbose: all columns (IQM, seeds, the paper's numbers, ...) and how to read them,
            as in the report.
        vary: factors, such as light.strength camera.roll, or all: one at a time over its range,
            to see how far each may go. Without other --modes, only these are played.
        values: of each factor, the training value among them.
    """
    from svea.core.given import name_task
    from svea.evaluation import parse_episodes

    count = parse_episodes(episodes)
    with waiting("starting"):
        from svea.evaluation.requests import POLICIES, Request, Scoring

    policies = POLICIES if random_policy else POLICIES[:1]
    other = name_task(task)
    modes = () if vary and modes == ("usual",) else modes
    folder = data_dir or None
    request = Request(
        modes, count, seed, policies, envs, device, folder, other, jobs, vary, values
    )  # fmt: skip
    folders, copies = look_for_runs(runs)
    scoring = Scoring(folders, request, again)
    if copies:
        exports = listed(list(map(str, copies)), most=3)
        note(f"left out: {exports}, exported from runs that are evaluated; name an export itself "
             "to evaluate it, too")  # fmt: skip
    _play(scoring)
    if json:
        for record in itertools.chain(*scoring.records.values()):
            print(jsonlib.dumps(record))
    elif scoring.records:
        _print(scoring, verbose)
    if vary:
        _draw_worlds(scoring)
    for problem in scoring.problems:
        note(f"svea: {problem}")
    if videos:
        _film(scoring)
    return scoring.exit_code


def _play(scoring: Scoring) -> None:
    """Play what is missing, with a bar and a forecast; Ctrl-C says what was kept."""
    began, counted = time.monotonic(), itertools.count(1)

    def finished(run: Path, record: Record) -> None:
        steps.finish(f"evaluating {run.name} in {record['mode']}")
        if scoring.request.vary and next(counted) == FORECAST_AFTER and scoring.played:
            left = (scoring.total or 0) - sum(map(len, scoring.records.values()))
            pace = (time.monotonic() - began) / scoring.played
            note(f"{left:,} episodes are left; at this pace they take {duration(left * pace)}")

    try:
        with (
            Steps("episodes", scoring.total) as steps,
            second_ends_at_once(lambda: f"stopped at once; {scoring.kept}"),
        ):
            scoring.play(
                finished,
                lambda: steps.begin("stopping (Ctrl-C once more: at once)"),
            )
    except KeyboardInterrupt:
        note(f"stopped; {scoring.kept}")
        raise


def _print(scoring: Scoring, verbose: bool) -> None:
    """The scores, with what was played before and what adapting to the test world cost."""
    records = scoring.records
    for why, count in scoring.replayed().items():
        print(f"{plural(count, 'episode')} recorded before played again: {why}")
    if known := sum(map(len, records.values())) - scoring.played:
        print(f"recorded before: {plural(known, 'episode')}; --again plays all again")
    modes = {record["mode"] for played in records.values() for record in played}
    varied = {mode for mode in modes if is_factor(mode)} if scoring.request.vary else set()
    print_scores(list(records), modes - varied, records, verbose=verbose)
    if varied:
        print_tolerances(list(records), records, verbose=verbose)
    for run, played in records.items():
        adapted = [record for record in played if "adaptation_seconds" in record]
        if steps := sum(max(0, record["length"] - 1) for record in adapted):
            each = sum(record["adaptation_seconds"] for record in adapted) / steps
            print(
                f"{run}: adapted at test time, fresh in each of {len(adapted)} episodes, "
                f"{each * 1000:.3g} ms per decision in addition to acting"
            )


def _draw_worlds(scoring: Scoring) -> None:
    """How the world looks at each value, next to the records, for the report."""
    from svea.evaluation.film import draw_factors

    with Steps("pictures") as steps:
        for run, records in scoring.records.items():
            steps.begin(f"drawing the worlds of {run.name}")
            try:
                draw_factors(run, [record["mode"] for record in records], scoring.request.data_dir)
            except SveaError as error:  # the records are there
                note(f"svea: {error}")


def _film(scoring: Scoring) -> None:
    """One episode of each run in each mode that it was played in."""
    from svea.config.modes import mode_of_label
    from svea.evaluation.film import record_episode

    asked = scoring.request
    with Steps("videos") as steps:
        for run, records in scoring.records.items():
            for label in dict.fromkeys(record["mode"] for record in records):
                steps.begin(f"filming {run.name} in {label}")
                record_episode(
                    run, mode_of_label(label, asked.task), seed=asked.seed, device=asked.device,
                    data_dir=asked.data_dir, task=asked.task,
                )  # fmt: skip


def print_tolerances(
    runs: Sequence[Path],
    played: Mapping[Path, list[Record]] | None = None,
    verbose: bool = False,
) -> None:
    """How far each factor may go, and which breaks an agent first."""
    found = responses(group_runs(_with(read_runs(runs)[0], played)))
    how = "[95 %]: of the ends that lie inside the range, over episodes. More: --verbose"
    print_results(tolerances(found, brief=not verbose), [*verdicts(found), *[how][verbose:]])


def _with(runs: Sequence[Run], played: Mapping[Path, list[Record]] | None) -> list[Run]:
    """Runs with records that count even where a folder could not be written to."""
    own = played or {}
    return [replace(r, episodes=latest([*r.episodes, *own.get(r.folder, ())])) for r in runs]


def print_scores(
    runs: Sequence[Path],
    modes: Collection[str] | None = None,
    played: Mapping[Path, list[Record]] | None = None,
    verbose: bool = False,
) -> None:
    """The table of runs, with caveats; records just `played` count where no folder has them."""
    found, problems = read_runs(runs)
    groups = group_runs(_with(found, played))
    table, notes = all_results(groups, modes), caveat_notes(groups, modes)
    if verbose:
        print_results(table, [*problems, *(f"note: {text}" for text in notes)])
        return
    warnings = caveat_notes(groups, modes, warnings_only=True)
    more = plural(len(table.notes) + len(notes) - len(warnings), "note")
    how = f"[95 %]: of the mean, over seeds and worlds. More columns and {more}: --verbose"
    print_results(brief(table), [*problems, *(f"note: {text}" for text in warnings), how])


def compare_sides(
    a: Positional[str],
    b: Positional[str],
    runs: Path = Path("runs"),
    modes: tuple[str, ...] = (),
    measure: Literal["return", "area", "success"] = "return",
    verbose: bool = False,
    json: Json = False,
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
    """
    with Steps("comparisons") as steps:
        steps.doing("reading runs")
        found = compare(a, b, runs=runs, modes=modes, measure=measure)
    if json:
        print_json(found.to_json())
        return 0
    return print_results(found.table(verbose), found.notes if verbose else found.brief_notes)


def report_page(runs: Runs, out: Out = None, figures: Path | None = None) -> int:
    """Write a report: curves, tables, frames, videos, configuration. No network needed.

    Example: svea report runs -o report.html

    What is missing or damaged is named on stderr and on the page; the rest is reported.

    Args:
        out: the page; default RUN/report.html for one run (of the zoo: runs/zoo/NAME/report.html),
            report.html for several.
        figures: also write every figure as PNG, PDF and CSV, and every table as LaTeX and
            Markdown, into this folder.
    """
    from svea.results.report import report

    def warn(problem: str) -> None:
        note(f"svea: {problem}")

    with Steps("pages") as steps:
        print(report(runs, out, figures=figures, on_problem=warn, on_step=steps.doing))
    return 0
