"""`svea analyze`: Q-targets, Q-values, wall time and saliency, as tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svea.cli.arguments import Out, Positional, parse_parts
from svea.cli.terminal import Steps, collected, print_problems, print_results, starting
from svea.core import files
from svea.core.errors import SveaError, UserError
from svea.core.words import mean_std, number, significant
from svea.envs.modes import in_order
from svea.results import WallTime, common_level, group_runs, wall_times
from svea.results.labels import UPPER_BOUND
from svea.results.read import find_runs, read_run, read_runs
from svea.results.stats import mean_and_std
from svea.results.tables import Cell, Table
from svea.runs import layout, zoo

if TYPE_CHECKING:
    from svea.evaluation.analysis import Sample

Rows = list[dict[str, Any]]


Findings = tuple[Table, list[str], list[SveaError]]
Analysis = Callable[[Path, Callable[[str], None]], tuple[int, dict[str, Any]]]
"""A table, notes on it, and what could not be analysed."""


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse_parts(
        {
            "q-variance": q_variance,
            "q-gap": q_gap,
            "walltime": walltime,
            "saliency": saliency,
            "tid": tid,
        },
        "analyze",
        arguments,
    )


def q_variance(
    runs: Positional[tuple[Path, ...]],
    transitions: int = 256,
    draws: int = 16,
    seed: int = 0,
    device: str = "cpu",
    trust: bool = False,
) -> int:
    """Variance of the Q-target over draws of the view that feeds it, and of the strong view.

    Example: svea analyze q-variance runs/walker_walk-svea-0

    Args:
        runs: folders made by `svea train`.
        transitions: from each run's replay buffer.
        draws: of the view, for each transition.
        seed: of transitions and draws.
        device: auto, cuda, mps or cpu.
        trust: import the modules that config.json names, such as my_env:make: code that runs here.
    """
    found = q_variance_table(runs, transitions=transitions, draws=draws, seed=seed, device=device)
    return print_results(*found)


def q_gap(
    runs: Positional[tuple[Path, ...]],
    augment: tuple[str, ...] = ("all",),
    transitions: int = 256,
    draws: int = 4,
    seed: int = 0,
    device: str = "cpu",
    trust: bool = False,
) -> int:
    """Mean |Q(s, a) - Q(aug(s), a)| for each augmentation.

    Example: svea analyze q-gap runs/walker_walk-drq-0 --augment conv overlay

    Args:
        runs: folders made by `svea train`, or exports with Q-functions.
        augment: which augmentations; `all` is the paper's six and shift.
        transitions: from each run's replay buffer; of an export, from an episode in train.
        draws: of the augmentation, for each transition.
        seed: of transitions and draws.
        device: auto, cuda, mps or cpu.
        trust: import the modules that config.json names, such as my_env:make: code that runs here.
    """
    found = q_gap_table(
        runs, augment, transitions=transitions, draws=draws, seed=seed, device=device
    )
    return print_results(*found)


def walltime(
    runs: Positional[tuple[Path, ...]],
    mode: str = "train",
    level: float | None = None,
    out: Out = None,
) -> int:
    """Return against wall time, and how long each setting takes to a common return.

    Example: svea analyze walltime runs

    Args:
        runs: folders made by `svea train`.
        mode: of the evaluations during training.
        level: the return to be reached; default: 90 % of the lowest best return.
        out: also draw the curves, as .png or .pdf.
    """
    if out is not None:
        files.output_file(out)
    return print_results(*wall_time_table(runs, mode, level, out))


def saliency(
    run: Positional[Path],
    modes: tuple[str, ...] = ("usual",),
    out: Out = None,
    samples: int = 4,
    guided: bool = False,
    seed: int = 0,
    device: str = "cpu",
    data_dir: str = "",
    task: str = "",
    trust: bool = False,
) -> int:
    """Where the agent looks: pixels that move its Q-value, and attention for a ViT.

    Example: svea analyze saliency runs/walker_walk-svea-0 --modes color_hard

    Args:
        run: folder made by `svea train` or `svea export`, or zoo:NAME; of an agent that is stored
            without Q-values, as those of the zoo are, the pixels that move its action.
        modes: side by side: modes, or groups as in `svea eval`; `usual` is train and color_hard
            (robot tasks: test).
        out: the picture; default RUN/analysis/saliency.png.
        samples: moments of the episode.
        guided: also show the guided gradient, with which SGQN trains: what raises the Q-value.
        seed: of the evaluation whose first episode is shown.
        device: auto, cuda, mps or cpu.
        data_dir: folder with benchmark data; overrides SVEA_DATA.
        task: play in this task instead of the run's, e.g. module:function of your environment
            in another look.
        trust: import the modules that config.json names, such as my_env:make: code that runs here.
    """
    from svea.envs.given import name_task

    with starting():
        from svea.evaluation.film.saliency import saliency as draw
    run = zoo.working_copy(run)
    picture = files.output_file(out or run / layout.ANALYSIS / "saliency.png")
    with collected() as problems, Steps("pictures", 1) as steps:
        steps.begin(f"playing {run} and drawing where it looks")
        path = draw(
            run, modes, picture, samples=samples, guided=guided, seed=seed, device=device,
            data_dir=data_dir or None, task=name_task(task),
            on_problem=lambda mode, error: problems.append(error),
        )  # fmt: skip
    print(path)
    return print_problems(problems)


def tid(
    runs: Positional[tuple[Path, ...]],
    modes: tuple[str, ...] = ("usual",),
    quantile: str = "auto",
    samples: int = 32,
    seed: int = 0,
    device: str = "cpu",
    data_dir: str = "",
    trust: bool = False,
) -> int:
    """Does Q look at the task? SimGRL's score and variance, by MuJoCo's segmentation.

    Example: svea analyze tid zoo:walker_walk-drq zoo:walker_walk-svea-motion

    Args:
        runs: folders made by `svea train` or `svea export`, of tasks that svea simulates, or
            zoo:NAME; of agents that are stored without Q-values: does the action?
        modes: where; `usual` is train and color_hard (robot tasks: test).
        quantile: share of a frame's pixels that do not count as looked at, e.g. 0.95; auto
            takes as many as the task has.
        samples: moments of an evaluation's first episode in each mode.
        seed: of the evaluation.
        device: auto, cuda, mps or cpu.
        data_dir: folder with benchmark data; overrides SVEA_DATA.
        trust: import the modules that config.json names, such as my_env:make: code that runs here.
    """
    options = {"quantile": quantile, "samples": samples, "seed": seed, "device": device}
    return print_results(*tid_table(runs, modes, data_dir=data_dir or None, **options))


def q_variance_table(runs: Sequence[Path], **options: Any) -> Findings:
    """`svea analyze q-variance`: a row per run, and the mean over seeds below."""
    with starting():
        from svea.evaluation.analysis import q_variance

    def row(sample: Sample) -> dict[str, Any]:
        found = {one["view"]: one for one in q_variance(sample)}
        strong = found.get("strong")
        return {
            "target sees": found["target"]["sees"],
            "variance": found["target"]["variance"],
            "of strong view": strong["variance"] if strong else math.nan,
        }

    table, problems = _table("q-variance", runs, _of_sample(row, **options))
    note = "variance of the Q-target over draws of its view, mean over transitions"
    return table, [note], problems


def q_gap_table(runs: Sequence[Path], augmentations: Sequence[str], **options: Any) -> Findings:
    """`svea analyze q-gap`: a row per run with a column per augmentation; means over seeds."""
    with starting():
        from svea.evaluation.analysis import q_gap

    notes = {"mean |Q(s, a) - Q(aug(s), a)|": None}

    def row(sample: Sample) -> dict[str, Any]:
        gaps = q_gap(sample, augmentations)
        notes.update({one["why"]: None for one in gaps if one["gap"] is None})
        return {one["augment"]: math.nan if one["gap"] is None else one["gap"] for one in gaps}

    table, problems = _table("q-gap", runs, _of_sample(row, gap=True, **options))
    return table, list(notes), problems


def tid_table(runs: Sequence[Path], modes: Sequence[str], **options: Any) -> Findings:
    """`svea analyze tid`: a row per run with two columns per mode; means over seeds."""
    with starting():
        from svea.evaluation.tid import tid

    unfit: list[SveaError] = []

    def analyse(run: Path, say: Callable[[str], None]) -> tuple[int, dict[str, Any]]:
        say(f"playing {run} in {', '.join(modes)}")
        rows = tid(run, modes, on_problem=lambda mode, error: unfit.append(error), **options)
        if not rows:
            raise UserError(f"{run}: none of the modes {', '.join(modes)} could be played")
        return rows[0]["decision"], {"of": rows[0]["of"]} | {
            f"{row['mode']} {value}": row[value] for row in rows for value in ("score", "variance")
        }

    table, problems = _table("tid", runs, analyse)
    notes = ["score: overlap of what raises Q most with the task's own pixels, 0 to 1"]
    if any(cell.text == "action" for row in table.rows for cell in row.cells):
        notes += ["of action: stored without Q-functions, so of what changes the action's length"]
    notes += ["variance: over the frames of a stack, of 100 times each frame's overlap"]
    return table, notes, problems + unfit


def _of_sample(
    row: Callable[[Sample], dict[str, Any]],
    *,
    transitions: int,
    draws: int,
    seed: int,
    device: str,
    gap: bool = False,
) -> Analysis:
    """An analysis of transitions from a run's replay, or as `Sample` has it for a gap."""
    from svea.evaluation.analysis import Sample

    def analyse(run: Path, say: Callable[[str], None]) -> tuple[int, dict[str, Any]]:
        say(f"reading {run}")
        sample = Sample.of(run, transitions, draws, seed, device, gap)
        say(f"analysing {transitions} transitions of {run}")
        return sample.agent.decision, row(sample)

    return analyse


def _table(name: str, runs: Sequence[Path], analyse: Analysis) -> tuple[Table, list[SveaError]]:
    """A row per run, means over seeds, and what could not be analysed.

    Args:
        name: of the table.
        runs: folders, or folders of them.
        analyse: gives a run's decision and its row, and says what it is about to do.
    """
    if not runs:
        raise UserError("no run to analyse; name at least one folder made by `svea train`")
    analysed: dict[Path, dict[str, Any]] = {}
    problems: list[SveaError] = []
    found = find_runs(runs)
    with Steps("runs", len(found)) as steps:
        for run in found:
            try:
                decision, row = analyse(run, steps.begin)
                analysed[run] = {"run": str(run), "decision": f"{decision:,}"} | row
            except SveaError as error:
                problems.append(error)
            steps.finish(str(run))
    read = [read_run(run) for run in analysed]
    for one in read:
        if one.mask == "oracle":
            analysed[one.folder]["run"] += f" [{UPPER_BOUND}]"
    groups = {
        f"{group.task} {group.label}": [analysed[run.folder] for run in group.runs]
        for group in group_runs(read)
    }
    rows = [one for members in groups.values() for one in members]
    rows += [_mean_row(setting, members) for setting, members in groups.items() if members[1:]]
    cells = [{title: _cell(value) for title, value in one.items()} for one in rows]
    return Table.of(name, cells), problems


def _mean_row(setting: str, members: Rows) -> dict[str, Any]:
    """The mean ± standard deviation over the runs of a setting."""
    mean: dict[str, Any] = {"run": setting, "decision": f"{len(members)} seeds"}
    for name, first in members[0].items():
        if isinstance(first, float):
            values = [one[name] for one in members]
            mean[name] = mean_std(*mean_and_std(values), significant)
        else:
            mean.setdefault(name, first)
    return mean


def _cell(value: Any) -> Cell:
    """Three digits of a number, a dash for none, text as it is."""
    is_number = isinstance(value, float)
    return Cell(significant(value), value=value) if is_number else Cell(str(value))


def wall_time_table(
    runs: Sequence[Path], mode: str, level: float | None, out: Path | None
) -> tuple[Table, list[str]]:
    """`svea analyze walltime`: what each setting takes, and when it reaches a common return."""
    with Steps("runs") as steps:
        steps.doing("reading runs")
        found, notes = read_runs(runs)
    by_task: dict[str, list[WallTime]] = {}
    for one in wall_times(group_runs(found), mode):
        by_task.setdefault(one.group.task, []).append(one)
    if not by_task:
        modes = in_order(each for run in found for each in run.modes)
        raise UserError(
            f"no run was evaluated in {mode!r} during training, at least twice; these runs have "
            f"{', '.join(modes) or 'no evaluation'}"
        )
    rows = []
    for task, times in by_task.items():
        reached = common_level(times) if level is None else level
        hours_to = [one.hours_to(reached) for one in times]
        fastest = min((hours for hours in hours_to if hours > 0), default=math.nan)
        for one, hours in zip(times, hours_to, strict=True):
            to_level = f"hours to {number(reached)}" if len(by_task) == 1 else "hours to level"
            rows.append(
                {
                    "task": Cell(task),
                    "setting": Cell(one.group.label),
                    "seeds": Cell(str(len(one.group.runs))),
                    "ms per decision": _cell(one.milliseconds),
                    "hours": _cell(float(one.curve.decisions[-1])),
                    "last return": Cell(number(float(one.curve.returns[-1]))),
                    to_level: _cell(hours),
                    "× fastest": _cell(hours / fastest),
                }
            )
        if out is not None:
            draw_wall_times(times, mode, _per_task(out, task, len(by_task)))
    notes.append("hours are wall time, evaluations included, on whatever machine each run had")
    return Table.of("wall-time", rows), notes


def draw_wall_times(times: Sequence[WallTime], mode: str, out: Path) -> Path:
    """The paper's K, M figure: return against wall time, one line per setting, as PNG or PDF."""
    from svea.results import plots

    series = [
        plots.Series(one.group.label, one.curve, color=place) for place, one in enumerate(times)
    ]
    title = f"{times[0].group.task}: {mode}"
    figure = plots.learning_curves(series, title=title, action_repeat=None, width=plots.HOURS)
    writers = {".png": plots.to_png, ".pdf": plots.to_pdf}
    if out.suffix.lower() not in writers:
        raise UserError(f"out is {str(out)!r}; allowed: a file that ends in .png or .pdf")
    files.write_whole(out, writers[out.suffix.lower()](figure))
    return out


def _per_task(out: Path, task: str, tasks: int) -> Path:
    """A file of its own for each task, where there are several."""
    return out if tasks == 1 else out.with_stem(f"{out.stem}-{task}")
