"""The verbs that look at agents: eval, watch, analyze, compare, report."""

from __future__ import annotations

import json as jsonlib
import sys
from pathlib import Path
from typing import Literal

from svea.cli.arguments import Out, Positional, parse, parse_parts


def evaluate(arguments: list[str]) -> int:
    """Evaluate runs or exports in any mode."""

    def command(
        runs: Positional[tuple[Path, ...]],
        modes: tuple[str, ...] = ("usual",),
        episodes: int = 30,
        seed: int = 0,
        random_policy: bool = False,
        again: bool = False,
        videos: bool = False,
        envs: int = 0,
        device: str = "cpu",
        data_dir: str = "",
        json: bool = False,
    ) -> int:
        """Evaluate agents over whole episodes, and record every episode in RUN/eval.jsonl.

        The same command again plays only what is not recorded yet.

        Args:
            runs: folders made by `svea train` or `svea export`, or folders with such beneath them.
            modes: where to evaluate; `usual` is train and color_hard (robot tasks: test), `all`
                train and every test mode of the task, `distracting_cs:all` the eight intensities.
            episodes: per mode.
            seed: of the evaluation; the same seed gives every agent the same episodes.
            random_policy: evaluate the random policy too, for comparison.
            again: play recorded episodes once more; the new records count.
            videos: also record one episode per mode as RUN/media/MODE.mp4 and .png.
            envs: environments in parallel; 0 is one per core.
            device: auto, cuda, mps or cpu.
            data_dir: folder with benchmark data (beats SVEA_DATA).
            json: print the records as JSON lines instead of a table.
        """
        from svea.cli.evaluate import evaluate_and_print
        from svea.evidence.evaluation import POLICIES, Request

        policies = POLICIES if random_policy else POLICIES[:1]
        request = Request(modes, episodes, seed, policies, envs, device, data_dir or None)
        return evaluate_and_print(runs, request, again=again, videos=videos, as_json=json)

    return parse(command, "eval", arguments)


def watch(arguments: list[str]) -> int:
    """Film an agent in several modes side by side."""

    def command(
        run: Positional[Path],
        modes: tuple[str, ...] = ("usual",),
        out: Out = None,
        gif: bool = False,
        seed: int = 0,
        size: int = 240,
        device: str = "cpu",
        data_dir: str = "",
    ) -> int:
        """Write a video: the same episode in each mode, with return and Q-value drawn in.

        Args:
            run: folder made by `svea train` or `svea export`.
            modes: what to show; `usual` is train and color_hard (robot tasks: test), `all` train
                and every test mode of the task.
            out: the video; default RUN/watch.mp4.
            gif: also write a smaller GIF beside it.
            seed: of the evaluation whose first episode is shown.
            size: side of each picture in pixels.
            device: auto, cuda, mps or cpu.
            data_dir: folder with benchmark data (beats SVEA_DATA).
        """
        from rich.console import Console

        from svea.console import collected, print_problems
        from svea.evidence.film.video import watch as film

        with collected() as problems, Console(stderr=True).status("playing") as status:
            for path in film(
                run, modes, out or run / "watch.mp4", gif=gif, seed=seed, size=size,
                device=device, data_dir=data_dir or None,
                on_problem=lambda mode, error: problems.append(error),
                on_mode=lambda mode: status.update(f"playing in {mode}"),
            ):  # fmt: skip
                print(path)
        return print_problems(problems)

    return parse(command, "watch", arguments)


def analyze(arguments: list[str]) -> int:
    """Analyse agents as the paper does: Q-targets, Q-values, wall time, saliency."""

    def q_variance(
        runs: Positional[tuple[Path, ...]],
        transitions: int = 256,
        draws: int = 16,
        seed: int = 0,
        device: str = "cpu",
    ) -> int:
        """Variance of the Q-target over draws of the view that feeds it, and of the strong view.

        Args:
            runs: folders made by `svea train`.
            transitions: from each run's replay buffer.
            draws: of the view, for each transition.
            seed: of transitions and draws.
            device: auto, cuda, mps or cpu.
        """
        from svea.cli import analyze

        found = analyze.q_variance_table(
            runs, transitions=transitions, draws=draws, seed=seed, device=device
        )
        return analyze.print_findings(*found)

    def q_gap(
        runs: Positional[tuple[Path, ...]],
        augment: tuple[str, ...] = ("all",),
        transitions: int = 256,
        draws: int = 4,
        seed: int = 0,
        device: str = "cpu",
    ) -> int:
        """Mean |Q(s, a) - Q(aug(s), a)| for each augmentation.

        Args:
            runs: folders made by `svea train`.
            augment: which augmentations; `all` is the paper's six and shift.
            transitions: from each run's replay buffer.
            draws: of the augmentation, for each transition.
            seed: of transitions and draws.
            device: auto, cuda, mps or cpu.
        """
        from svea.cli import analyze

        found = analyze.q_gap_table(
            runs, augment, transitions=transitions, draws=draws, seed=seed, device=device
        )
        return analyze.print_findings(*found)

    def walltime(
        runs: Positional[tuple[Path, ...]],
        mode: str = "train",
        level: float | None = None,
        out: Out = None,
    ) -> int:
        """Return against wall time, and how long each setting takes to a common return.

        Args:
            runs: folders made by `svea train`.
            mode: of the evaluations during training.
            level: the return to be reached; default: 90 % of the lowest best return.
            out: also draw the curves, as .png or .pdf.
        """
        from svea.cli import analyze

        return analyze.print_findings(*analyze.wall_time_table(runs, mode, level, out))

    def saliency(
        run: Positional[Path],
        modes: tuple[str, ...] = ("usual",),
        out: Out = None,
        samples: int = 4,
        seed: int = 0,
        device: str = "cpu",
        data_dir: str = "",
    ) -> int:
        """Where the agent looks: pixels that move its Q-value, and attention for a ViT.

        Args:
            run: folder made by `svea train` or `svea export`.
            modes: side by side; `usual` is train and color_hard (robot tasks: test).
            out: the picture; default RUN/analysis/saliency.png.
            samples: moments of the episode.
            seed: of the evaluation whose first episode is shown.
            device: auto, cuda, mps or cpu.
            data_dir: folder with benchmark data (beats SVEA_DATA).
        """
        from svea.console import collected, print_problems
        from svea.evidence.film.saliency import saliency as draw

        with collected() as problems:
            path = draw(
                run, modes, out or run / "analysis" / "saliency.png", samples=samples, seed=seed,
                device=device, data_dir=data_dir or None,
                on_problem=lambda mode, error: problems.append(error),
            )  # fmt: skip
        print(path)
        return print_problems(problems)

    return parse_parts(
        {"q-variance": q_variance, "q-gap": q_gap, "walltime": walltime, "saliency": saliency},
        "analyze",
        arguments,
    )


def compare(arguments: list[str]) -> int:
    """Compare two methods over tasks and seeds."""

    def command(
        a: Positional[str],
        b: Positional[str],
        runs: Path = Path("runs"),
        modes: tuple[str, ...] = (),
        measure: Literal["return", "area", "success"] = "return",
        json: bool = False,
    ) -> int:
        """Probability of improvement and difference, with 95 % bootstrap intervals.

        Args:
            a: one side: a folder of runs; or a method (svea), with its augmentation (svea+conv), or
                a setting as `svea eval` prints it, among the runs in --runs.
            b: the other side, named in the same ways.
            runs: where names are looked for.
            modes: which modes; default all that both have.
            measure: final return, area under the evaluation curve (sample efficiency), or success.
            json: print JSON instead of a table.
        """
        from svea.cli import analyze

        made, notes = analyze.comparisons(a, b, runs, modes, measure)
        if json:
            print(jsonlib.dumps([one.to_json() for one in made], indent=1))
            return 0
        rows = [row for one in made for row in analyze.comparison_rows(one, a, b)]
        return analyze.print_findings(rows, notes)

    return parse(command, "compare", arguments)


def report(arguments: list[str]) -> int:
    """Write one self-contained HTML page about runs."""

    def command(
        runs: Positional[tuple[Path, ...]],
        out: Out = None,
        figures: Path | None = None,
    ) -> int:
        """Write a report: curves, tables, frames, videos, configuration. No network needed.

        What is missing or damaged is named on stderr and on the page; the rest is reported.

        Args:
            runs: run folders, or folders with runs beneath them.
            out: the page; default RUN/report.html for one run, report.html for several.
            figures: also write every figure as PNG, PDF and CSV, and every table as LaTeX and
                Markdown, into this folder.
        """
        from svea.evidence.report import write_report

        page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))

        def warn(problem: str) -> None:
            print(f"svea: {problem}", file=sys.stderr)

        print(write_report(list(runs), page, figures_dir=figures, on_problem=warn))
        return 0

    return parse(command, "report", arguments)
