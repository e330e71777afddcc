"""`svea sweep`: plan a study and run it on an engine; what it costs and how far it is.

`svea paper` runs its studies in the same way.
"""

import difflib
import itertools
import math
import shlex
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Group

from svea import studies
from svea.cli.arguments import Json, Out, Positional, Trust, Verb, brief_help, parse
from svea.cli.printing import drawn, print_json, print_table, say
from svea.config.names import own_modules
from svea.config.presets import as_command, as_flags, parse_settings
from svea.config.run import flat
from svea.core.errors import UserError, unknown_name
from svea.core.files import output_folder
from svea.core.importing import require_trust
from svea.core.process import interrupt, on_signals
from svea.core.terminal import console, note, redrawn, warn
from svea.core.words import duration, listed, plural
from svea.evaluation import episodes_in, parse_episodes
from svea.studies import STATES, RunState, Study, read_states, slurm, supervise
from svea.studies.engines import Resources
from svea.studies.folder import is_cancelled, worker
from svea.studies.supervise import LOCK_SECONDS

FAILED = 1  # exit code of a study in which runs failed
MOST_ROWS = 30
REFRESH_SECONDS = 2.0  # between reads of the folders; ten times as long as a read, if that is more


@brief_help
@dataclass(frozen=True)
class EngineFlags(Resources):
    """Where and how a study runs, as flags."""

    on: Literal["local", "ray", "slurm"] = "local"
    """The engine."""
    attempts: int = 3
    """Failed attempts at training after which a run counts as failed; and in each call, failed
    attempts at its export and evaluation."""
    dry_run: bool = False
    """List the runs and what they cost; write nothing."""


DEFAULT_ENGINE = EngineFlags()


Words = Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[STR [STR ...]]")]
"""What is typed after a flag; None where the flag is not given."""
Folder = Annotated[Positional[Path], tyro.conf.arg(help="its folder.")]
Names = Annotated[Positional[tuple[str, ...]], tyro.conf.arg(help="their names.")]


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    first = arguments[0] if arguments else ""
    if first in PARTS:
        return parse(PARTS[first], f"sweep {first}", arguments[1:])
    if difflib.get_close_matches(first, PARTS, n=1):  # no study file: those end in .toml
        raise unknown_name("part of sweep", first, PARTS)
    return parse(sweep, "sweep", arguments)


def sweep(
    study: Positional[Path | None] = None,
    tasks: Words = None,
    methods: Words = None,
    augments: Words = None,
    seeds: Words = None,
    set: tuple[str, ...] = (),
    modes: Words = None,
    episodes: Words = None,
    export: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None,
    out: Out = None,
    trust: Trust = False,
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = DEFAULT_ENGINE,
) -> int:
    """Plan every combination and run it. The same command again continues where it stopped.

    Example: svea sweep --tasks walker_walk finger_spin --methods svea drq --seeds 0-4

    `svea sweep status STUDY` shows the progress of a study, `svea sweep cancel STUDY` stops it,
    `svea sweep train STUDY RUN ...` trains some of its runs in one process, and `svea sweep export
    STUDY RUN ...` exports them.

    Args:
        study: a .toml file with the grid, instead of the flags below.
        tasks: names of tasks.
        methods: names of methods; default: svea.
        augments: strong augmentations; default: each method's own.
        seeds: numbers and ranges, e.g. 0-4; default: 0.
        set: options of `svea train` for all runs, e.g. decisions=500000 recipe.alpha=1.
        modes: to evaluate in after training: modes, or groups as in `svea eval`.
        episodes: of that evaluation, per mode; `all` shows each of a mode's worlds once. Modes
            with numbers of their own follow as MODE=NUMBER: 20 color_hard=100 video_hard=all.
            Default: 30.
        export: folder for a small export of each agent (`svea export --small`), under its run's
            name, once it is trained.
        out: the study's folder; default runs/sweep, or runs/NAME for a file NAME.toml.
        engine: where and how to run.
    """
    line = " ".join(seeds) if seeds else seeds
    axes = _given(tasks=tasks, methods=methods, augments=augments, seeds=line)
    counts = None if episodes is None else parse_episodes(episodes)
    settings = _given(modes=modes, episodes=counts, export=export)
    if study is not None:
        grids, given = studies.read_study_file(study)
        if both := [*axes, *(name for name in settings if name in given)]:
            raise UserError(f"--{both[0]} is given next to {study}; write it into that file")
        settings |= given
    elif tasks:
        grids = [studies.Grid(**axes)]
    else:
        raise UserError("no tasks; give --tasks walker_walk ..., or a study file")
    common = flat(settings.pop("set", {})) | parse_settings(set)
    runs = studies.plan_runs(grids, common, **settings)
    if settings.get("export") == "":
        raise UserError("export is ''; allowed: the name of a folder")
    if "episodes" in settings and not settings.get("modes"):
        wanted = settings["episodes"]
        raise UserError(f"episodes is {wanted}, but no mode is named to play them in; add --modes")
    folder = output_folder(out or Path("runs") / (study.stem if study else "sweep"))
    return run_study(studies.open_study(folder, runs, attempts=engine.attempts), engine)


def _given(**flags: Any) -> dict[str, Any]:
    """The flags that were typed: a default is not given."""
    return {name: value for name, value in flags.items() if value is not None}


def status(study: Folder, json: Json = False, trust: Trust = False) -> int:
    """Show the progress of a study, from its folders."""
    states = studies.read_states(studies.read_study(study))
    if json:
        print_json(rows(states))
    else:
        print_table(table(states))
        print(headline(states))
    return 0


def cancel(study: Folder, trust: Trust = False) -> int:
    """Let every run of a study save and stop, on any machine."""
    found = studies.read_study(study)
    found.cancel()
    slurm.cancel(found.folder)
    running = sum(state.state == "running" for state in studies.read_states(found))
    saved = f"{plural(running, 'running run')} will save and stop"
    print(f"cancelled; {saved}; the same command continues")
    return 0


def train_runs(study: Folder, runs: Names, trust: Trust = False) -> int:
    """Train some runs of a study side by side in this process."""
    found, chosen = _chosen(study, runs)
    supervise.train(found.folder, chosen)
    return 0


def export_runs(study: Folder, runs: Names, trust: Trust = False) -> int:
    """Export some runs of a study to where its plan says, the acting part of each alone."""
    found, chosen = _chosen(study, runs)
    if bad := [run.name for run in chosen if not run.export]:
        raise UserError(f"the study has no folder to export {bad[0]} to; give --export FOLDER")
    missing = []
    for run in chosen:
        if studies.read_progress(found.folder, run).left["exported"]:
            missing.append(run)
        else:
            print(f"{run.name} is already exported to {run.export_folder}")
    if missing:
        supervise.export(found.folder, missing)
    return 0


PARTS: dict[str, Verb] = {
    "status": status, "cancel": cancel, "train": train_runs, "export": export_runs,
}  # fmt: skip


def _chosen(study: Path, names: Sequence[str]) -> tuple[studies.Study, list[studies.PlannedRun]]:
    """A study, and those of its runs that are named."""
    found = studies.read_study(study)
    if not names:
        raise UserError("no run named; `svea sweep status STUDY` lists the study's runs")
    planned = {run.name: run for run in found.runs}
    for name in names:
        if name not in planned:
            raise unknown_name("run of this study", name, planned)
    chosen = [planned[name] for name in dict.fromkeys(names)]
    for run in chosen:
        require_trust(own_modules(run.values), study)
    return found, chosen


# Running a study ----------------------------------------------------------------------------------


def run_study(study: Study, flags: EngineFlags, confirm: bool = False) -> int:
    """Run a study, perhaps after a question, or list what it would run; returns the exit code."""
    work = studies.Work(study, flags.on, flags)
    limit = flags.seconds("none") if flags.on == "local" else math.inf
    if flags.dry_run:
        for line in dry_run_lines(study, work.states):
            say(line)
    print("\n".join(work.cost.lines(limit)))
    if flags.dry_run:
        try:
            work.require_space()
        except UserError as error:  # a plan is a plan on any disk
            warn(f"the study would be refused here: {error}")
        work.engine.require(flags)
        return 0
    for line in _notes_before(study, work.states):
        print(line)
    work.require()
    if confirm and work.due:
        _ask(f"start {plural(len(work.due), 'run')}?")
    try:
        with on_signals([signal.SIGTERM], interrupt), shown(study) as refresh:
            submitted = work.run(refresh)
    except KeyboardInterrupt:
        note("every run has been asked to save; the same command continues")
        raise
    if flags.on == "slurm" and work.due:
        if waiting := len(work.due) - len(submitted or ()):
            print(f"{plural(waiting, 'run')} already in SLURM's queue")
        print(f"submitted; `svea sweep status {study.folder}` shows its progress")
        return 0
    return _print_end(study, read_states(study), limit)


def _ask(question: str) -> None:
    """Go on if the user says yes; where none can be asked, --yes has to."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(f"{question} There is no terminal to ask on; allowed: --yes or --dry-run")
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError("nothing was started; --dry-run lists the runs, --scale makes them shorter")


def dry_run_lines(study: Study, states: Sequence[RunState]) -> list[str]:
    """The command of every run and what follows it; options that all share are listed once."""
    plans = [{k: v for k, v in state.run.values.items() if k != "task"} for state in states]
    same = set.intersection(*(set(plan.items()) for plan in plans)) if len(plans) > 1 else set()
    shared = {name: value for name, value in plans[0].items() if (name, value) in same}
    lines = []
    for state, plan in zip(states, plans, strict=True):
        own = {name: value for name, value in plan.items() if name not in shared}
        command = as_command({"task": state.run.values["task"], **own})
        lines.append(f"{state.state:<8} {shlex.join(command)}")
    common = [*as_flags(shared), "--out", str(study.folder / "runs" / "NAME")]
    lines.append(f"each with {shlex.join(common)}")
    run = states[0].run
    if run.export:
        lines.append(f"then exported to {run.export}/NAME")
    if modes := dict.fromkeys(mode for state in states for mode in state.run.modes):
        played = ", ".join(f"{mode} ({episodes_in(run.episodes, mode)})" for mode in modes)
        lines.append(f"then evaluated; episodes in brackets: {played}")
    return lines


def _notes_before(study: Study, states: Sequence[RunState]) -> Iterator[str]:
    """Runs that have used up their attempts, and processes that work on others already."""
    failed = [state for state in states if state.state == "failed"]
    if spent := [state for state in failed if not state.is_tried_again]:
        yield (
            f"{plural(len(spent), 'run')} failed {plural(spent[0].failures, 'time')} and will not "
            f"be retried without a larger --attempts. The first: {spent[0].run.name}: "
            f"{spent[0].reason}"
        )
    if running := [state.run for state in states if state.state == "running"]:
        workers = listed(list(dict.fromkeys(worker(study.folder, run) for run in running)), most=3)
        yield (
            f"{plural(len(running), 'run')} already worked on by {workers} "
            f"({listed([run.name for run in running], most=3)}): not begun here unless free within "
            f"{duration(LOCK_SECONDS)}"
        )


def _print_end(study: Study, states: Sequence[RunState], limit: float) -> int:
    """Print the final state; returns the exit code."""
    print(headline(states))
    failed = [state for state in states if state.state == "failed"]
    for state in failed[:5]:
        print(f"failed: {state.run.name}: {state.reason}")
    if failed:
        print(f"their output is in {study.folder / 'journal'}/NAME.log")
    if trained := sum(state.progress.trained for state in failed):
        print(f"training of {trained} of them is over; the same command tries the rest again")
    if to_export := [state for state in states if state.run.export]:
        there = sum(not state.progress.left["exported"] for state in to_export)
        print(f"exported: {there} of {len(to_export)} agents, to {to_export[0].run.export}")
    if any(state.progress.trained for state in states):
        folder = shlex.quote(str(study.folder))
        evaluate = "" if any(state.run.modes for state in states) else f"`svea eval {folder}`, "
        print(f"next: {evaluate}`svea report {folder}`")
    if is_cancelled(study.folder):
        print("cancelled; the same command continues")
        return 128 + signal.SIGINT
    if (waiting := sum(state.is_active for state in states)) and limit < math.inf:
        print(f"time limit: {plural(waiting, 'run')} not done; the same command continues")
    return FAILED if failed else 0


# Progress -----------------------------------------------------------------------------------------


@contextmanager
def shown(study: Study) -> Iterator[Callable[[], None]]:
    """Show progress with each call of what this yields: a live table, or a line per change."""
    screen, next_read, last_counts = console(), 0.0, ""

    def refresh(now: bool = False) -> None:
        nonlocal next_read, last_counts
        began = time.monotonic()
        if began < next_read and not now:
            return
        states = read_states(study)
        next_read = time.monotonic() + max(REFRESH_SECONDS, 10 * (time.monotonic() - began))
        text = headline(states)
        counts = text.partition(";")[0]
        if live is not None:
            lines = table(states)
            more = [f"... and {len(lines) - MOST_ROWS} more"] if len(lines) > MOST_ROWS else []
            live.update(Group(text, drawn(lines[:MOST_ROWS], screen.width), *more), refresh=True)
        elif counts != last_counts:
            screen.print(text, markup=False, soft_wrap=True)
        last_counts = counts

    with redrawn(screen, auto_refresh=False) as live:
        yield refresh
        if live is not None:
            refresh(now=True)


def headline(states: Sequence[RunState]) -> str:
    """Counts by state, and the time left by the speeds of the study's own runs."""
    counts = Counter(state.state for state in states)
    past = sum(state.state == "running" and state.progress.trained for state in states)
    listed = [f"{counts[name]} {name}" for name in STATES]
    if past:
        listed[STATES.index("running")] += f" ({past} past training)"
    text = f"{plural(len(states), 'run')}: {', '.join(listed)}"
    at_once, speeds = counts["running"], studies.measured_speeds(states)
    left = sum(state.to_make for state in states if state.is_active)
    if at_once and speeds and left:  # of evaluations no time is known
        seconds = left / statistics.median(speeds) / at_once
        text += f"; ETA {duration(seconds)} with {at_once} at once"
    return text


def rows(states: Sequence[RunState]) -> list[dict[str, Any]]:
    """One row per run, for `--json`."""
    return [
        {
            "run": state.run.name,
            "state": state.state,
            "decision": state.progress.known,
            "decisions": state.run.decisions,
            "seconds": state.progress.seconds,
            "returns": state.progress.returns,
            "failures": state.failures,
            "reason": state.reason,
        }
        for state in states
    ]


def table(states: Sequence[RunState]) -> list[dict[str, str]]:
    """Rows of text: running runs first; of many runs, one row per setting with its seeds."""
    few, order = len(states) <= MOST_ROWS, ("running", "failed", "queued", "done")
    groups: dict[str, list[RunState]] = {}
    for state in sorted(states, key=lambda state: order.index(state.state) if few else 0):
        name = state.run.name
        groups.setdefault(name if few else name.rpartition("-s")[0], []).append(state)
    return [_row(name, members) for name, members in groups.items()]


def _row(name: str, members: Sequence[RunState]) -> dict[str, str]:
    """A run, or the seeds of one setting."""
    counts = Counter(state.state for state in members)
    returns: dict[str, list[float]] = {}
    for state in members:
        for mode, value in state.progress.returns.items():
            returns.setdefault(mode, []).append(value)
    made = sum(state.progress.known for state in members)
    planned = sum(state.run.decisions for state in members)
    several = len(members) > 1
    return {
        "run": name,
        "state": ", ".join(f"{counts[s]} {s}" if several else s for s in STATES if counts[s]),
        "decisions": f"{made:,}/{planned:,}",
        "last returns": "  ".join(f"{m} {sum(v) / len(v):.0f}" for m, v in returns.items()),
        "note": next(filter(None, map(_note, members)), ""),
    }


def _note(state: RunState) -> str:
    """Why a run failed, or what is left of one that is past its training."""
    progress = state.progress
    if state.reason or state.failures:
        return state.reason or f"failed {state.failures}x"
    if state.state != "running" or not progress.trained:
        return ""
    return f"trained; left: {', '.join(itertools.chain(*progress.left.values()))}"
