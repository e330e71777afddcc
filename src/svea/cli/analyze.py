"""`svea analyze`: Q-targets, Q-values, wall time and saliency, as tables and pictures."""

from collections.abc import Callable
from typing import Any

from svea.cli.arguments import DataDir, Device, Modes, Out, Run, Runs, Task, Trust
from svea.cli.printing import collected, print_problems, print_results
from svea.core import files
from svea.core.given import name_task
from svea.core.terminal import Steps, waiting
from svea.results import analyses
from svea.runs import layout, zoo


def q_variance(
    runs: Runs,
    transitions: int = 256,
    draws: int = 16,
    seed: int = 0,
    device: Device = "cpu",
    trust: Trust = False,
) -> int:
    """Variance of the Q-target over draws of the view that feeds it, and of the strong view.

    Example: svea analyze q-variance runs/walker_walk-svea-0

    Args:
        transitions: from each run's replay buffer.
        draws: of the view, for each transition.
        seed: of transitions and draws.
    """
    options = {"transitions": transitions, "draws": draws, "seed": seed, "device": device}
    return _show(analyses.q_variances, runs, **options)


def q_gap(
    runs: Runs,
    augment: tuple[str, ...] = ("all",),
    transitions: int = 256,
    draws: int = 4,
    seed: int = 0,
    device: Device = "cpu",
    trust: Trust = False,
) -> int:
    """Mean |Q(s, a) - Q(aug(s), a)| for each augmentation.

    Example: svea analyze q-gap runs/walker_walk-drq-0 --augment conv overlay

    Args:
        augment: which augmentations; `all` is the paper's six and shift.
        transitions: from each run's replay buffer; of an export, from an episode in train.
        draws: of the augmentation, for each transition.
        seed: of transitions and draws.
    """
    options = {"transitions": transitions, "draws": draws, "seed": seed, "device": device}
    return _show(analyses.q_gaps, runs, augment, **options)


def walltime(runs: Runs, mode: str = "train", level: float | None = None, out: Out = None) -> int:
    """Return against wall time, and how long each setting takes to a common return.

    Example: svea analyze walltime runs

    Args:
        mode: of the evaluations during training.
        level: the return to be reached; default: 90 % of the lowest best return.
        out: also draw the curves, as .png or .pdf.
    """
    if out is not None:
        files.output_file(out)
    with Steps("runs") as steps:
        steps.doing("reading runs")
        table, problems = analyses.walltimes(runs, mode, level, out)
    return print_results(table, problems=problems)


def saliency(
    run: Run,
    modes: Modes = ("usual",),
    out: Out = None,
    samples: int = 4,
    guided: bool = False,
    seed: int = 0,
    device: Device = "cpu",
    data_dir: DataDir = "",
    task: Task = "",
    trust: Trust = False,
) -> int:
    """Where the agent looks: pixels that move its Q-value, and attention for a ViT.

    Of an agent that is stored without Q-values, as those of the zoo are: that move its action.

    Example: svea analyze saliency runs/walker_walk-svea-0 --modes color_hard

    Args:
        out: the picture; default RUN/analysis/saliency.png.
        samples: moments of the episode.
        guided: also show the guided gradient, with which SGQN trains: what raises the Q-value.
        seed: of the evaluation whose first episode is shown.
    """
    with waiting("starting"):
        from svea.evaluation.analysis import saliency as draw
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
    runs: Runs,
    modes: Modes = ("usual",),
    quantile: str = "auto",
    samples: int = 32,
    seed: int = 0,
    device: Device = "cpu",
    data_dir: DataDir = "",
    trust: Trust = False,
) -> int:
    """Does Q look at the task? SimGRL's score and variance, by MuJoCo's segmentation.

    For tasks that svea simulates. Of agents that are stored without Q-values: does the action?

    Example: svea analyze tid zoo:walker_walk-drq zoo:walker_walk-svea-motion

    Args:
        quantile: share of a frame's pixels that do not count as looked at, e.g. 0.95; auto
            takes as many as the task has.
        samples: moments of an evaluation's first episode in each mode.
        seed: of the evaluation.
    """
    options = {"quantile": quantile, "samples": samples, "seed": seed, "device": device}
    return _show(analyses.tid_scores, runs, modes, data_dir=data_dir or None, **options)


def _show(analyse: Callable[..., analyses.Analysed], *what: Any, **options: Any) -> int:
    """Analyse, with a bar, and print the table."""
    with waiting("starting"):
        import svea.evaluation.analysis  # noqa: F401  (seconds, so that something is shown)
    with Steps("runs") as steps:
        table, problems = analyse(*what, steps=steps, **options)
    return print_results(table, problems=problems)


ALL = (q_variance, q_gap, walltime, saliency, tid)
PARTS = {part.__name__.replace("_", "-"): part for part in ALL}
