"""The command line: one verb, one short function."""

from __future__ import annotations

import dataclasses
import json as jsonlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from svea.engines import HERE, EngineFlags
from svea.errors import SveaError, UserError
from svea.version import __version__

if TYPE_CHECKING:
    from svea.config import Config

try:
    import tyro
    from tyro.conf import Positional
except ModuleNotFoundError:  # the base install is the environments alone
    tyro = None  # type: ignore[assignment]


def main(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; user errors are one message on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"svea {__version__}")
        return 0
    try:
        return run_verb(arguments[0], arguments[1:])
    except SveaError as error:
        where = f" (details: {error.details})" if error.details else ""
        print(f"svea: {error}{where}", file=sys.stderr)
        if not error.details:  # e.g. the traceback of a worker
            print(*getattr(error, "__notes__", []), sep="\n", end="", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "svea":
            raise
        print(
            f"svea: {arguments[0]} needs {error.name}, which is not installed: "
            "pip install 'svea[train]'",
            file=sys.stderr,
        )
        return UserError.exit_code
    except KeyboardInterrupt:
        print("svea: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `svea methods | head`
        sys.stderr.close()
        return 0


def run_verb(verb: str, arguments: list[str]) -> int:
    """Find the verb and let it read its own arguments."""
    from svea.errors import unknown_name

    if verb not in VERBS:
        raise unknown_name("verb", verb, VERBS)
    if verb != "doctor" and tyro is None:
        raise UserError(f"{verb} needs the training extras: pip install 'svea[train]'")
    return VERBS[verb](arguments) or 0


def overview() -> str:
    """What `svea --help` prints."""
    lines = ["svea: image-based reinforcement learning that stays stable under augmentation", ""]
    lines += [f"  svea {verb:<9} {first_line(function)}" for verb, function in VERBS.items()]
    lines += ["", "`svea VERB --help` lists its options; `svea doctor` checks this machine."]
    return "\n".join(lines)


def first_line(function: Callable[..., Any]) -> str:
    """The first line of a function's docstring."""
    return (function.__doc__ or "").strip().splitlines()[0]


def parse(function: Callable[..., int | None], verb: str, arguments: list[str]) -> int:
    """Let tyro read the arguments of a function and call it."""
    return tyro.cli(function, prog=f"svea {verb}", args=arguments) or 0


def parse_parts(
    parts: dict[str, Callable[..., int | None]], verb: str, arguments: list[str]
) -> int:
    """A verb with parts of its own, such as `svea data check`."""
    return tyro.extras.subcommand_cli_from_dict(parts, prog=f"svea {verb}", args=arguments) or 0


# The verbs ---------------------------------------------------------------------------------------


def train(arguments: list[str]) -> int:
    """Train an agent, or continue a run (the same command again)."""
    from svea.training import train as train_run
    from svea.training import train_together

    config, seeds = train_flags(arguments)
    if len(seeds) < 2:
        train_run(dataclasses.replace(config, seed=seeds[0]) if seeds else config)
        return 0
    folder = {seed: f"{config.out}/seed-{seed}" if config.out else "" for seed in seeds}
    train_together([dataclasses.replace(config, seed=s, out=folder[s]) for s in seeds])
    return 0


def train_config(arguments: list[str]) -> Config:
    """The configuration that the flags of `svea train` describe."""
    return train_flags(arguments)[0]


def train_flags(arguments: list[str]) -> tuple[Config, list[int]]:
    """Read the flags twice: once to learn preset, method and task, once over their defaults."""
    from svea.config import Config, check, resolve
    from svea.studies import parse_seeds

    @dataclasses.dataclass(frozen=True)
    class Train(Config):
        """Train an agent. The same command again continues the run."""

        task: Positional[str] = tyro.MISSING
        """A dm_control suite task as domain_task, robot_reach, robot_reach_moving or robot_push, or
        module:function of your own environment."""
        seeds: tuple[str, ...] = ()
        """Several seeds, trained together in one process: 0-4, or 0 1 2. Instead of seed."""

    seeds: list[int] = []

    def read(defaults: Config) -> Config:
        values = {f.name: getattr(defaults, f.name) for f in dataclasses.fields(Config)}
        flags = tyro.cli(
            Train,
            prog="svea train",
            description="Train an agent. The same command again continues the run.",
            args=arguments,
            default=Train(**values | {"task": tyro.MISSING}),
        )
        seeds[:] = parse_seeds(flags.seeds)
        if len(set(seeds)) < len(seeds):
            raise UserError(f"seeds names a seed twice: {' '.join(flags.seeds)}")
        if seeds and flags.seed != Config.seed:
            raise UserError(f"both seed {flags.seed} and seeds are given; allowed: one of them")
        return Config(**{f.name: getattr(flags, f.name) for f in dataclasses.fields(Config)})

    first = read(Config(task=tyro.MISSING))
    defaults = resolve(
        first.task,
        preset=first.preset,
        base=first.base,
        encoder=first.encoder,
        method=first.method,
    )
    return check(read(defaults)), seeds


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
        from svea.evaluation import POLICIES, Request
        from svea.scores import evaluate_and_print

        policies = POLICIES if random_policy else POLICIES[:1]
        request = Request(modes, episodes, seed, policies, envs, device, data_dir or None)
        return evaluate_and_print(runs, request, again=again, videos=videos, as_json=json)

    return parse(command, "eval", arguments)


def watch(arguments: list[str]) -> int:
    """Film an agent in several modes side by side."""

    def command(
        run: Positional[Path],
        modes: tuple[str, ...] = ("usual",),
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
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

        from svea.media import watch as film

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
        from svea import findings

        table, problems = findings.q_variance_table(
            runs, transitions=transitions, draws=draws, seed=seed, device=device
        )
        note = "variance of the Q-target over draws of its view, mean over transitions"
        return findings.print_findings(table, [note], problems)

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
        from svea import findings

        table, problems = findings.q_gap_table(
            runs, augment, transitions=transitions, draws=draws, seed=seed, device=device
        )
        note = "mean |Q(s, a) - Q(aug(s), a)|"
        return findings.print_findings(table, [note], problems)

    def walltime(
        runs: Positional[tuple[Path, ...]],
        mode: str = "train",
        level: float | None = None,
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    ) -> int:
        """Return against wall time, and how long each setting takes to a common return.

        Args:
            runs: folders made by `svea train`.
            mode: of the evaluations during training.
            level: the return to be reached; default: 90 % of the lowest best return.
            out: also draw the curves, as .png or .pdf.
        """
        from svea import findings

        return findings.print_findings(*findings.wall_time_table(runs, mode, level, out))

    def saliency(
        run: Positional[Path],
        modes: tuple[str, ...] = ("usual",),
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
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
        from svea.saliency import saliency as draw

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
            a: a folder of runs; or a method (svea, svea+conv) or label among those in --runs.
            b: likewise.
            runs: where names are looked for.
            modes: which modes; default all that both have.
            measure: final return, area under the evaluation curve (sample efficiency), or success.
            json: print JSON instead of a table.
        """
        from svea import findings

        made, notes = findings.comparisons(a, b, runs, modes, measure)
        if json:
            print(jsonlib.dumps([one.to_json() for one in made], indent=1))
            return 0
        rows = [row for one in made for row in findings.comparison_rows(one, a, b)]
        return findings.print_findings(rows, notes)

    return parse(command, "compare", arguments)


def report(arguments: list[str]) -> int:
    """Write one self-contained HTML page about runs."""

    def command(
        runs: Positional[tuple[Path, ...]],
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
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
        from svea.report import write_report

        page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))

        def warn(problem: str) -> None:
            print(f"svea: {problem}", file=sys.stderr)

        print(write_report(list(runs), page, figures_dir=figures, on_problem=warn))
        return 0

    return parse(command, "report", arguments)


def export(arguments: list[str]) -> int:
    """Write a small folder to share: actor, critic, configuration."""

    def command(run: Positional[Path], folder: Positional[Path]) -> int:
        """Export the newest checkpoint; `svea eval` and `load_agent` take the folder like a run.

        Args:
            run: folder made by `svea train`.
            folder: a new folder.
        """
        from svea.export import export as export_run

        print(export_run(run, folder))
        return 0

    return parse(command, "export", arguments)


def methods(arguments: list[str]) -> int:
    """List methods: who sees which view."""

    def command(json: bool = False) -> int:
        """List every method with the views that feed Q-prediction, Q-target and policy.

        Args:
            json: print JSON instead of a table.
        """
        from svea.methods import METHODS, who_sees_what

        rows = [who_sees_what(name) for name in METHODS]
        if json:
            print(jsonlib.dumps(rows, indent=1))
        else:
            print_table(rows)
        return 0

    return parse(command, "methods", arguments)


def gallery(arguments: list[str]) -> int:
    """Write contact sheets to look at."""

    def command(
        sheet: Positional[Literal["augmentations", "environments", "robot"]],
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
        overlay_dir: str = "",
        data_dir: str = "",
        seed: int = 0,
    ) -> int:
        """Write a contact sheet as PNG.

        Args:
            sheet: what to show.
            out: the picture; default SHEET.png.
            overlay_dir: pictures for overlay, or `procedural`.
            data_dir: folder with benchmark data (beats SVEA_DATA).
            seed: of the draws.
        """
        from svea import gallery as sheets
        from svea.images import ImageBank

        path = out or Path(f"{sheet}.png")
        sheets.check_name(path)
        if sheet == "environments":
            print(sheets.environments(path, seed=seed, data_dir=data_dir or None))
        elif sheet == "robot":
            print(sheets.robot(path, seed=seed))
        else:
            bank = ImageBank.find(overlay_dir or None, data_dir or None)
            print(sheets.augmentations(path, seed=seed, images=bank))
        return 0

    return parse(command, "gallery", arguments)


def bench(arguments: list[str]) -> int:
    """Measure speed on this machine: augmentations, environments, updates, training."""

    def augment(
        names: tuple[str, ...] = (),
        device: str = "cpu",
        batch: int | None = None,
        size: int = 84,
        repeats: int = 50,
        bfloat16: bool = False,
        json: bool = False,
    ) -> int:
        """Time every augmentation beside the naive loop over the samples.

        Args:
            names: only these; default all.
            device: auto, cuda, mps or cpu.
            batch: samples; default 64 on a CPU, 256 on a GPU.
            size: height and width in pixels.
            repeats: how often each is run.
            bfloat16: in bfloat16 instead of float32.
            json: print JSON too.
        """
        from svea import bench as benchmarks
        from svea.speed import choose_device

        rows = benchmarks.augment(
            names, device=choose_device(device).type, batch=batch, size=size, repeats=repeats,
            bfloat16=bfloat16,
        )  # fmt: skip
        return print_json(rows) if json else 0

    def env(
        tasks: tuple[str, ...] = ("walker_walk", "cartpole_swingup", "robot_reach"),
        modes: tuple[str, ...] = ("all",),
        decisions: int = 100,
        resets: int = 20,
        size: int = 84,
        rendering: Literal["full", "fast"] = "full",
        data_dir: str = "",
        json: bool = False,
    ) -> int:
        """Time decisions and resets of every task and mode, taking turns.

        Args:
            tasks: which tasks; the first is the yardstick of the others.
            modes: which modes; the first is the yardstick of the others. `all` is all of a task's.
            decisions: timed in each mode.
            resets: timed in each mode.
            size: height and width in pixels.
            rendering: full or fast.
            data_dir: folder with benchmark data (beats SVEA_DATA).
            json: print JSON too.
        """
        from svea import bench as benchmarks

        rows = benchmarks.env(
            tasks, modes, decisions=decisions, resets=resets, size=size, rendering=rendering,
            data_dir=data_dir or None,
        )  # fmt: skip
        return print_json(rows) if json else 0

    def update(
        methods: tuple[str, ...] = ("svea", "drq"),
        base: str = "sac",
        encoder: str = "cnn",
        preset: str = "paper",
        device: str = "auto",
        precision: str = "auto",
        speed: str = "auto",
        batch: int | None = None,
        repeats: int = 40,
        parts: bool = True,
        json: bool = False,
    ) -> int:
        """Time one update of each method, with its parts, beside the least it could take.

        Args:
            methods: which; `all` is every method.
            base: sac, ddpg or dqn.
            encoder: cnn, vit or drqv2.
            preset: sizes: paper or quick.
            device: auto, cuda, mps or cpu.
            precision: auto, float32 or bfloat16.
            speed: auto, eager, compiled or captured.
            batch: transitions; default the preset's.
            repeats: how often each is run.
            parts: time the parts too.
            json: print JSON too.
        """
        from svea.methods import METHODS
        from svea.speed import choose_device
        from svea.update_bench import update as update_bench

        chosen = tuple(METHODS) if "all" in methods else methods
        rows = update_bench(
            chosen, base=base, encoder=encoder, preset=preset, device=choose_device(device),
            precision=precision, how=speed, batch=batch, repeats=repeats, parts=parts,
        )  # fmt: skip
        return print_json(rows) if json else 0

    def train(
        task: str = "walker_walk",
        method: str = "svea",
        encoder: str = "cnn",
        preset: str = "paper",
        envs: int = 16,
        seeds: tuple[str, ...] = ("0",),
        seconds: float = 20.0,
        device: str = "auto",
        speed: str = "auto",
        json: bool = False,
    ) -> int:
        """Time training end to end: decisions per second, environments and updates together.

        Args:
            task: which task.
            method: which method.
            encoder: cnn, vit or drqv2.
            preset: sizes: paper or quick.
            envs: environments of each seed.
            seeds: one seed or several together, e.g. 0-4.
            seconds: how long, after everything has warmed up.
            device: auto, cuda, mps or cpu.
            speed: auto, eager, compiled or captured.
            json: print JSON too.
        """
        from svea.studies import parse_seeds
        from svea.update_bench import train as train_bench

        rows = train_bench(
            parse_seeds(seeds), seconds, task=task, method=method, encoder=encoder, preset=preset,
            envs=envs, device=device, speed=speed,
        )  # fmt: skip
        return print_json(rows) if json else 0

    parts: dict[str, Callable[..., int | None]]
    parts = {"augment": augment, "env": env, "update": update, "train": train}
    return parse_parts(parts, "bench", arguments)


def data(arguments: list[str]) -> int:
    """List, check or download benchmark data; nothing here is needed to train."""

    def show(data_dir: str = "") -> int:
        """List what is found, what is missing, and what it is needed for.

        Args:
            data_dir: folder with benchmark data (beats SVEA_DATA).
        """
        from svea.data import list_data

        return list_data(data_dir or None)

    def check(folder: Positional[Path]) -> int:
        """Check a folder: layout, hashes, and that every clip and picture decodes.

        Args:
            folder: with benchmark data.
        """
        from svea.data import check_data

        return check_data(folder)

    def get(name: Positional[str], folder: Positional[Path]) -> int:
        """Download a data set; an interrupted download continues.

        Args:
            name: dmcgb, davis or places365-val.
            folder: where the data shall lie; give it as --data-dir or SVEA_DATA later.
        """
        from svea.data import get_data

        return get_data(name, folder)

    return parse_parts({"list": show, "check": check, "get": get}, "data", arguments)


def doctor(arguments: list[str]) -> int:
    """Check this machine: versions, device, renderer, data; and say how to mend what is wrong."""
    import argparse

    from svea.doctor import doctor as check_machine

    parser = argparse.ArgumentParser(prog="svea doctor", description=doctor.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data-dir", default=None, help="folder with benchmark data")
    options = parser.parse_args(arguments)
    return check_machine(json=options.json, data_dir=options.data_dir)


def sweep(arguments: list[str]) -> int:
    """Carry out a study of many runs: here, on a Ray cluster or under SLURM."""

    def show(study: Positional[Path], json: bool = False) -> int:
        """Show how a study stands, from its folders.

        Args:
            study: its folder.
            json: print JSON instead of a table.
        """
        from svea.sweeps import status

        return status(study, json)

    def stop(study: Positional[Path]) -> int:
        """Let every run of a study save and stop, wherever it runs.

        Args:
            study: its folder.
        """
        from svea.sweeps import cancel

        return cancel(study)

    def command(
        study: Positional[Path | None] = None,
        tasks: tuple[str, ...] = (),
        methods: tuple[str, ...] = ("svea",),
        augments: tuple[str, ...] = (),
        seeds: tuple[str, ...] = ("0",),
        set: tuple[str, ...] = (),
        modes: tuple[str, ...] = (),
        episodes: int = 30,
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = HERE,
    ) -> int:
        """Plan every combination and carry it out. The same command again goes on where it stopped.

        `svea sweep status STUDY` shows how a study stands, `svea sweep cancel STUDY` stops it.

        Args:
            study: a .toml or .py file with the grid, instead of the flags below.
            tasks: names of tasks.
            methods: names of methods.
            augments: strong augmentations; default: each method's own.
            seeds: numbers and ranges, e.g. 0-4.
            set: options of `svea train` for all runs, e.g. decisions=500000 recipe.alpha=1.
            modes: to evaluate in after training.
            episodes: of that evaluation, per mode.
            out: the study's folder; default runs/sweep, or runs/NAME for a file NAME.toml.
            engine: where and how to run.
        """
        from svea import studies
        from svea.sweeps import sweep as carry_out

        settings: dict[str, Any] = {"set": {}, "modes": modes, "episodes": episodes}
        if study is None:
            if not tasks:
                raise UserError("no tasks; give --tasks walker_walk ..., or a study file")
            grids = [studies.Grid(tasks, methods, augments, " ".join(seeds))]
        else:
            if tasks:
                raise UserError(f"--tasks and the study file {study} both name tasks; give one")
            grids, given = studies.read_study_file(study)
            settings |= given
        common = studies.flatten(settings.pop("set")) | studies.parse_settings(set)
        runs = studies.plan(grids, common, drop_replay=engine.drop_replay, **settings)
        folder = out or Path("runs") / (study.stem if study else "sweep")
        plan = studies.open_study(folder, runs, attempts=engine.attempts)
        return carry_out(
            plan, engine.on, engine.resources(), speed=engine.speed, dry_run=engine.dry_run
        )

    parts: dict[str, Callable[..., int | None]] = {"status": show, "cancel": stop}
    if arguments and arguments[0] in parts:
        return parse(parts[arguments[0]], f"sweep {arguments[0]}", arguments[1:])
    return parse(command, "sweep", arguments)


def paper(arguments: list[str]) -> int:
    """Run and draw the paper's tables, figures and claims."""

    def command(
        what: Positional[str],
        scale: float = 1.0,
        seeds: tuple[str, ...] = ("0-4",),
        set: tuple[str, ...] = (),
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
        render: bool = False,
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = HERE,
    ) -> int:
        """Train the runs behind a table or figure of the paper, and draw ours beside it.

        `svea paper list` names them; `svea paper claims` decides the paper's claims by the runs.

        Args:
            what: list, claims, or the name of a table or figure.
            scale: share of the paper's decisions, e.g. 0.01; marked as such everywhere.
            seeds: numbers and ranges.
            set: options of `svea train` that differ from the paper's; marked as such everywhere.
            out: the folder that all experiments share; default runs/paper, or runs/paper-scaled-...
            render: draw what is there and train nothing.
            engine: where and how to run.
        """
        from svea import paper as papers
        from svea import studies

        if what == "list":
            print_table(list_experiments())
            return 0
        changes = studies.parse_settings(set)
        size = papers.Scale(scale, " ".join(seeds), changes, engine.drop_replay)
        folder = (out or size.folder()).absolute()
        if what == "claims":
            return print_claims(size, folder)
        return carry_out_and_draw(what, size, folder, engine, render)

    return parse(command, "paper", arguments)


def list_experiments() -> list[dict[str, Any]]:
    """The rows of `svea paper list`."""
    from svea.paper import EXPERIMENTS, SEEDS
    from svea.studies import parse_seeds

    return [
        {
            "name": one.name,
            "paper": one.where,
            "runs": len(one.tasks) * len(one.settings) * len(parse_seeds(SEEDS)),
            "about": one.about,
        }
        for one in EXPERIMENTS.values()
    ]


def print_claims(size: Any, folder: Path) -> int:
    """Each claim, the paper's figure, the rule that decides it, and ours."""
    from svea.paper_claims import verdicts

    for line in size.caveats:
        print(line)
    for verdict in verdicts(size, folder):
        claim = verdict.claim
        print(f"{claim.text}\n  paper: {claim.paper}\n  ours:  {verdict.ours}")
        print(f"  rule:  {claim.rule}" + (f"\n  note:  {claim.note}" if claim.note else ""))
    return 0


def carry_out_and_draw(what: str, size: Any, folder: Path, engine: Any, only_draw: bool) -> int:
    """Train what an experiment of the paper needs, then draw it from the run folders."""
    from svea.paper import experiment
    from svea.paper_figures import gather, render
    from svea.sweeps import sweep as carry_out

    one, code = experiment(what), 0
    for line in (*size.caveats, *one.notes):
        print(line)
    if not only_draw:
        study = size.study(one, folder, engine.attempts)
        code = carry_out(
            study, engine.on, engine.resources(), speed=engine.speed, dry_run=engine.dry_run
        )
        if engine.dry_run or engine.on == "slurm":
            return code
    page, text = render(gather(one, size, folder), folder / "paper")
    print(f"{text}\n{page}")
    return code


VERBS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "eval": evaluate,
    "watch": watch,
    "analyze": analyze,
    "compare": compare,
    "report": report,
    "export": export,
    "methods": methods,
    "gallery": gallery,
    "bench": bench,
    "sweep": sweep,
    "paper": paper,
    "data": data,
    "doctor": doctor,
}


@contextmanager
def collected() -> Iterator[list[SveaError]]:
    """A list of problems that are printed, too, if nothing is left to go on with."""
    problems: list[SveaError] = []
    try:
        yield problems
    except SveaError:
        print_problems(problems)
        raise


def print_problems(problems: Sequence[SveaError]) -> int:
    """What did not work, on stderr; the exit code of the first problem."""
    for problem in problems:
        print(f"svea: {problem}", file=sys.stderr)
    return problems[0].exit_code if problems else 0


def print_json(rows: Sequence[Any]) -> int:
    """Dataclasses as JSON."""
    print(jsonlib.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    return 0


def print_table(rows: list[dict[str, Any]]) -> None:
    """A table on a terminal; one plain, unwrapped line per row elsewhere."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        widths = {k: max(len(k), *(len(str(row[k])) for row in rows)) for k in rows[0]}
        for row in [{k: k for k in rows[0]}, *rows]:
            print("  ".join(str(row[k]).ljust(width) for k, width in widths.items()).rstrip())
        return
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
