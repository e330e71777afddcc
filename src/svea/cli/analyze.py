"""`svea analyze`: Q-targets, Q-values, wall time and saliency, as tables and pictures."""

from __future__ import annotations

from pathlib import Path

from svea.cli.arguments import Out, Positional
from svea.cli.printing import collected, print_problems, print_results
from svea.core import files
from svea.core.terminal import Steps, starting
from svea.results import analyses
from svea.runs import layout, zoo


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
    with starting():
        import svea.evaluation.analysis  # noqa: F401  (seconds, so that something is shown)
    with Steps("runs") as steps:
        found = analyses.q_variances(
            runs, transitions=transitions, draws=draws, seed=seed, device=device, steps=steps
        )
    return print_analysed(found)


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
    with starting():
        import svea.evaluation.analysis  # noqa: F401
    with Steps("runs") as steps:
        found = analyses.q_gaps(
            runs, augment, transitions=transitions, draws=draws, seed=seed, device=device,
            steps=steps,
        )  # fmt: skip
    return print_analysed(found)


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
    with Steps("runs") as steps:
        steps.doing("reading runs")
        found = analyses.walltimes(runs, mode, level, out)
    return print_analysed(found)


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
    from svea.core.given import name_task

    with starting():
        from svea.evaluation.saliency import saliency as draw
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
    with starting():
        import svea.evaluation.analysis  # noqa: F401
    with Steps("runs") as steps:
        found = analyses.tid_scores(runs, modes, steps, data_dir=data_dir or None, **options)
    return print_analysed(found)


def print_analysed(found: analyses.Analysed) -> int:
    """The table with its notes, and what could not be analysed."""
    return print_results(found.table, found.notes, found.problems)


PARTS = {
    "q-variance": q_variance,
    "q-gap": q_gap,
    "walltime": walltime,
    "saliency": saliency,
    "tid": tid,
}
