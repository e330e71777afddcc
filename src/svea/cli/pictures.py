"""`svea watch` and `svea gallery`: a video of an agent, and contact sheets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from svea.cli.arguments import Out, Positional, parse
from svea.core.errors import UserError
from svea.core.files import output_file


def watch(
    run: Positional[Path],
    modes: tuple[str, ...] = ("usual",),
    out: Out = None,
    gif: bool = False,
    seconds: float = 0.0,
    fps: float = 0.0,
    seed: int = 0,
    size: int = 240,
    device: str = "cpu",
    data_dir: str = "",
    task: str = "",
    trust: bool = False,
) -> int:
    """Write a video: the same episode in each mode, with return and Q-value drawn in.

    Example: svea watch runs/walker_walk-svea-0 --modes all --gif --seconds 10

    Of an agent with a masker (MaDi), the mask is shown next to each picture: white is kept.

    Args:
        run: folder made by `svea train` or `svea export`, or an agent of the zoo, zoo:NAME.
        modes: what to show: modes, or groups as in `svea eval`; `usual` is train and color_hard
            (robot tasks: test).
        out: the video; default RUN/watch.mp4.
        gif: also write a GIF next to it, 480 pixels wide with 10 frames a second.
        seconds: show only the beginning of the episode; 0: all of it.
        fps: decisions shown per second of the video, up to 240; 0: as fast as they happen.
        seed: of the evaluation whose first episode is shown.
        size: side of each picture in pixels.
        device: auto, cuda, mps or cpu.
        data_dir: folder with benchmark data; overrides SVEA_DATA.
        task: play in this task instead of the run's, e.g. module:function of your environment
            in another look.
        trust: import the modules that config.json names, such as my_env:make: code that runs here.
    """
    from svea.cli.printing import collected, print_problems
    from svea.core.given import name_task
    from svea.core.terminal import Steps, starting
    from svea.runs import zoo

    with starting():
        from svea.evaluation.film import watch as film
    run = zoo.working_copy(run)
    video = output_file(out or run / "watch.mp4")
    with collected() as problems, Steps("modes") as steps:
        for path in film(
            run, modes, video, gif=gif, seconds=seconds, fps=fps, seed=seed, size=size,
            device=device, data_dir=data_dir or None, task=name_task(task),
            on_problem=lambda mode, error: problems.append(error),
            on_mode=lambda mode: steps.begin(f"playing in {mode}"),
        ):  # fmt: skip
            print(path)
    return print_problems(problems)


Sheet = Literal["augmentations", "environments", "robot"]


def run(arguments: list[str]) -> int:
    """Without arguments the sheets are listed."""
    if not arguments:
        print("\n".join(f"  svea gallery {name}" for name in get_args(Sheet)))
        return 0
    return parse(gallery, "gallery", arguments)


def gallery(
    sheet: Positional[Sheet],
    out: Out = None,
    overlay_dir: str = "",
    data_dir: str = "",
    seed: int = 0,
    modes: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
) -> int:
    """Write a contact sheet as PNG.

    Example: svea gallery environments --modes train geometry --tasks walker_walk

    Args:
        sheet: what to show: augmentations, environments or robot.
        out: the picture; default SHEET.png.
        overlay_dir: pictures for overlay, or `procedural`.
        data_dir: folder with benchmark data; overrides SVEA_DATA.
        seed: of everything that is drawn at random.
        modes: rows of environments: modes, or groups such as geometry and lights; default the
            paper's, and those that fit any environment.
        tasks: columns of environments; default walker_walk and cartpole_swingup.
    """
    from svea.core.terminal import Steps
    from svea.evaluation import sheets

    if sheet != "environments" and (modes or tasks):
        raise UserError(
            f"--modes and --tasks choose what environments shows, not {sheet}; leave them out"
        )
    path = output_file(out or Path(f"{sheet}.png"))
    sheets.check_name(path)
    with Steps("rows") as steps:
        steps.begin("drawing the sheet")
        if sheet == "environments":
            shown = sheets.environments(
                path, modes=modes or sheets.SHEET_MODES, tasks=tasks or sheets.SHEET_TASKS,
                seed=seed, data_dir=data_dir or None, on_row=steps.finish,
            )  # fmt: skip
        elif sheet == "robot":
            shown = sheets.robot(path, seed=seed, on_row=steps.finish)
        else:
            from svea.augment.images import ImageBank

            bank = ImageBank.find(overlay_dir or None, data_dir or None)
            shown = sheets.augmentations(path, seed=seed, images=bank, on_row=steps.finish)
    print(shown)
    return 0
