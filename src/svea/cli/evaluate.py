"""`svea eval`: play what is missing, record it, and print what the records say."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from svea.cli.arguments import Positional, parse
from svea.cli.interrupts import second_ends_at_once
from svea.cli.terminal import Steps, print_results, starting
from svea.core.errors import StorageError, SveaError, UserError
from svea.core.words import listed, plural
from svea.results import caveat_notes, group_runs
from svea.results.read import look_for_runs, read_runs
from svea.results.tables.brief import brief
from svea.results.tables.results import all_results
from svea.runs import zoo
from svea.runs.records import (
    Record,
    append_records,
    latest,
    protocol_key,
    read_records,
    replayed,
)

if TYPE_CHECKING:
    from svea.evaluation.requests import Request


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "eval", arguments)


def command(
    runs: Positional[tuple[Path, ...]],
    modes: tuple[str, ...] = ("usual",),
    episodes: tuple[str, ...] = ("30",),
    seed: int = 0,
    random_policy: bool = False,
    again: bool = False,
    videos: bool = False,
    envs: int = 0,
    jobs: int = 1,
    device: str = "cpu",
    data_dir: str = "",
    task: str = "",
    verbose: bool = False,
    json: bool = False,
    trust: bool = False,
) -> int:
    """Evaluate agents over whole episodes, and record every episode in RUN/eval.jsonl.

    Example: svea eval runs/walker_walk-svea-0 --modes all --episodes 30

    The same command again plays only what is not recorded yet.

    Args:
        runs: folders made by `svea train` or `svea export`, folders with such beneath them, or
            agents of the zoo, zoo:NAME, whose records go to runs/zoo/NAME/eval.jsonl.
        modes: where to evaluate: modes of `svea tasks`, or groups: `usual` is train and
            color_hard (robot tasks: test), `all` train and the test modes of the paper's
            benchmarks, colors, videos, geometry and lights those of a kind, `everything` all
            that the task has, `distracting_cs:all` the eight intensities; module:class is a
            mode of yours.
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
        device: auto, cuda, mps or cpu.
        data_dir: folder with benchmark data; overrides SVEA_DATA.
        task: play in this task instead of the run's, e.g. module:function of your environment
            in another look; tables show it as a mode.
        verbose: all columns (IQM, seeds, the paper's numbers, ...) and how to read them,
            as in the report.
        json: print the records as JSON lines instead of a table.
        trust: import the modules that config.json names, such as my_env:make: code that runs here.
    """
    from svea.envs.given import name_task
    from svea.evaluation.episodes import parse_episodes

    count = parse_episodes(episodes, zoo.is_name)
    with starting():
        from svea.evaluation.requests import POLICIES, Request

    policies = POLICIES if random_policy else POLICIES[:1]
    other = name_task(task)
    request = Request(modes, count, seed, policies, envs, device, data_dir or None, other, jobs)
    return evaluate_and_print(
        runs, request, again=again, videos=videos, as_json=json, verbose=verbose
    )


class Scoring:
    """One call of the verb: what was asked, what has been played, what went wrong."""

    def __init__(self, runs: Sequence[Path], request: Request, again: bool = False) -> None:
        """Find the runs; a folder that is not a run stands for the runs beneath it.

        Args:
            runs: folders.
            request: what to play.
            again: play recorded episodes, too.
        """
        if not runs:
            raise UserError(
                "no run to evaluate; name at least one folder made by `svea train`, or an agent of "
                "the zoo, before --modes and --episodes: they take all words after them"
            )
        self.request = request.check()
        found = look_for_runs(runs)
        self.runs, self.copies = found.runs, found.copies
        self.records: dict[Path, list[Record]] = defaultdict(list)
        self.played = 0
        self.problems: dict[str, list[str]] = defaultdict(list)
        """What went wrong, and where."""
        self.exit_code = 0
        self._recorded = {run: [] if again else _recorded(run) for run in self.runs}
        self._known = {run: set(map(protocol_key, self._recorded[run])) for run in self.runs}
        self._counting = {
            run: set(map(protocol_key, latest(self._recorded[run]))) for run in self.runs
        }
        self._unwritable: dict[Path, StorageError] = {}

    def play(self) -> None:
        """Play and record; what fails is named, and the rest is played."""
        from svea.evaluation.requests import evaluate_runs

        request = self.request
        counts = [count for run in self.runs for count in self._episodes(run)]
        numbers = [count for count in counts if isinstance(count, int)]
        total = len(request.policies) * sum(numbers) if numbers == counts else None

        def take(run: Path, record: Record) -> None:
            self.records[run].append(record)
            key = protocol_key(record)
            self.played += key not in self._known[run]
            if key not in self._counting[run]:  # new, or evaluated with other pictures since
                self._write(run, record)
            steps.finish(f"evaluating {run.name} in {record['mode']}")

        def kept() -> str:
            played = plural(self.played, "new episode")
            return f"stopped at once; {played} recorded, the same command continues"

        try:
            with Steps("episodes", total) as steps, second_ends_at_once(kept):
                evaluate_runs(
                    self.runs,
                    request,
                    known=self._recorded.__getitem__,
                    on_record=take,
                    on_problem=self._note,
                    on_stop=lambda: steps.begin("stopping (Ctrl-C once more: at once)"),
                )
            self.records = {run: self.records[run] for run in self.runs if run in self.records}
        except KeyboardInterrupt:
            played = plural(self.played, "new episode")
            print(f"stopped; {played} recorded, the same command continues", file=sys.stderr)
            raise
        for error in self._unwritable.values():  # last, because the results still count
            self._fail("", error)

    def replayed(self) -> dict[str, int]:
        """How many recorded episodes were played again, by why."""
        found: dict[str, int] = defaultdict(int)
        for run, records in self.records.items():
            new = (record for record in records if protocol_key(record) not in self._known[run])
            for why, count in replayed(new, self._recorded[run]).items():
                found[why] += count
        return found

    def _episodes(self, run: Path) -> list[int | str]:
        """How many episodes a run is to play in each of its modes."""
        from svea.envs.modes import modes_for
        from svea.evaluation.episodes import episodes_in
        from svea.runs.load import load_config

        try:
            task = self.request.task or load_config(run).task
            modes = modes_for(task, self.request.modes, lambda *_: None)
        except SveaError:
            return []
        return [episodes_in(self.request.episodes, mode) for mode in modes]

    def _write(self, run: Path, record: Record) -> None:
        """Record an episode at once; a folder that cannot be written to is named once."""
        try:
            append_records(run, [record])
        except StorageError as error:
            self._unwritable.setdefault(run, error)

    def _note(self, run: Path, mode: str, error: SveaError) -> None:
        """Remember what could not be evaluated, and where as far as the error does not say."""
        where = [str(run)] if str(run) not in str(error) else []
        where += [f"in {mode}"] if mode and repr(mode) not in str(error) else []
        self._fail(" ".join(where), error)

    def _fail(self, where: str, error: SveaError) -> None:
        self.problems[str(error)].append(where)
        self.exit_code = self.exit_code or error.exit_code


def _recorded(run: Path) -> list[Record]:
    """A run's records; a folder that cannot be read is named when it is evaluated."""
    try:
        return read_records(run)
    except StorageError:
        return []


def evaluate_and_print(
    runs: Sequence[Path],
    request: Request,
    *,
    again: bool,
    videos: bool,
    as_json: bool,
    verbose: bool = False,
) -> int:
    """The verb: returns its exit code, which is not 0 if anything could not be evaluated."""
    from svea.envs.modes import mode_of_label
    from svea.evaluation.film.video import record_episode

    scoring = Scoring(runs, request, again)
    if scoring.copies:
        exports = listed(list(map(str, scoring.copies)), most=3)
        print(f"left out: {exports}, exported from runs that are evaluated; name an export itself "
              "to evaluate it, too", file=sys.stderr)  # fmt: skip
    scoring.play()
    if as_json:
        for records in scoring.records.values():
            for record in records:
                print(json.dumps(record))
    elif scoring.records:
        for why, count in scoring.replayed().items():
            print(f"{plural(count, 'episode')} recorded before played again: {why}")
        known = sum(map(len, scoring.records.values())) - scoring.played
        if known:
            were = "was" if known == 1 else "were"
            print(f"{plural(known, 'episode')} {were} recorded before; --again plays all again")
        modes = {record["mode"] for records in scoring.records.values() for record in records}
        print_scores(list(scoring.records), modes, scoring.records, verbose=verbose)
        for line in _adaptation_notes(scoring.records):
            print(line)
    for problem, places in scoring.problems.items():
        named = list(filter(None, places))
        where = f" ({listed(named)})" if named else ""
        print(f"svea: {problem}{where}", file=sys.stderr)
    with Steps("videos") as steps:
        for run in scoring.records if videos else ():
            for label in dict.fromkeys(record["mode"] for record in scoring.records[run]):
                steps.begin(f"filming {run.name} in {label}")
                record_episode(
                    run, mode_of_label(label, request.task), seed=request.seed,
                    device=request.device, data_dir=request.data_dir, task=request.task,
                )  # fmt: skip
    return scoring.exit_code


def _adaptation_notes(records: dict[Path, list[Record]]) -> list[str]:
    """What test-time adaptation cost, for the runs that adapt (PAD)."""
    notes = []
    for run, played in records.items():
        adapted = [record for record in played if "adaptation_seconds" in record]
        steps = sum(max(0, record["length"] - 1) for record in adapted)
        if steps:
            each = sum(record["adaptation_seconds"] for record in adapted) / steps
            notes.append(
                f"{run}: adapted at test time, fresh in each of {len(adapted)} episodes, "
                f"{each * 1000:.3g} ms per decision in addition to acting"
            )
    return notes


def print_scores(
    runs: Sequence[Path],
    modes: Collection[str] | None = None,
    played: Mapping[Path, list[Record]] | None = None,
    verbose: bool = False,
) -> None:
    """The table of runs, with what a reader must know about it.

    Args:
        runs: folders.
        modes: which modes; all if None.
        played: records that count, also where a folder could not be written to.
        verbose: all columns and notes, not the few that fit a terminal.
    """
    found, problems = read_runs(runs)
    own = played or {}
    found = [replace(r, episodes=latest([*r.episodes, *own.get(r.folder, ())])) for r in found]
    groups = group_runs(found)
    table, notes = all_results(groups, modes), caveat_notes(groups, modes)
    if verbose:
        print_results(table, [*problems, *(f"note: {text}" for text in notes)])
        return
    warnings = caveat_notes(groups, modes, warnings_only=True)
    more = plural(len(table.notes) + len(notes) - len(warnings), "note")
    how = f"[95 %]: of the mean, over seeds and worlds. More columns and {more}: --verbose"
    print_results(brief(table), [*problems, *(f"note: {text}" for text in warnings), how])
