"""`svea watch`, `svea play`, `svea gallery`: videos of agents, the playground, contact sheets."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Any, Literal, get_args

from svea.cli.arguments import DataDir, Device, Modes, Out, Positional, Run, Task, Trust
from svea.cli.printing import collected, print_problems
from svea.core.errors import UserError, install_hint
from svea.core.files import output_file
from svea.core.given import name_task
from svea.core.terminal import Steps, waiting


def watch(
    run: Run,
    modes: Modes = ("usual",),
    out: Out = None,
    gif: bool = False,
    seconds: float = 0.0,
    fps: float = 0.0,
    seed: int = 0,
    size: int = 240,
    device: Device = "cpu",
    data_dir: DataDir = "",
    task: Task = "",
    trust: Trust = False,
) -> int:
    """Write a video: the same episode in each mode, with return and Q-value drawn in.

    Example: svea watch runs/walker_walk-svea-0 --modes all --gif --seconds 10

    Of an agent with a masker (MaDi), the mask is shown next to each picture: white is kept.

    Args:
        out: the video; default RUN/watch.mp4.
        gif: also write a GIF next to it, 480 pixels wide with 10 frames a second.
        seconds: show only the beginning of the episode; 0: all of it.
        fps: decisions shown per second of the video, up to 240; 0: as fast as they happen.
        seed: of the evaluation whose first episode is shown.
        size: side of each picture in pixels.
    """
    from svea.runs import zoo

    with waiting("starting"):
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


def gallery(
    sheet: Positional[Sheet | None] = None,
    out: Out = None,
    overlay_dir: str = "",
    data_dir: DataDir = "",
    seed: int = 0,
    modes: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
) -> int:
    """Write a contact sheet as PNG.

    Example: svea gallery environments --modes train geometry --tasks walker_walk

    Args:
        sheet: augmentations, environments or robot; without it they are listed.
        out: the picture; default SHEET.png.
        overlay_dir: pictures for overlay, or `procedural`.
        seed: of everything that is drawn at random.
        modes: rows of environments: modes, or groups such as geometry and lights; default the
            paper's, and those that fit any environment.
        tasks: columns of environments; default walker_walk and cartpole_swingup.
    """
    from svea.evaluation import sheets

    if sheet is None:
        print("\n".join(f"  svea gallery {name}" for name in get_args(Sheet)))
        return 0
    if sheet != "environments" and (modes or tasks):
        raise UserError(f"--modes and --tasks choose what environments shows, not {sheet}")
    path = output_file(out or Path(f"{sheet}.png"))
    sheets.check_name(path)
    further: dict[str, Any] = {}
    if sheet == "environments":
        further = {"data_dir": data_dir or None, "modes": modes or sheets.SHEET_MODES}
        further["tasks"] = tasks or sheets.SHEET_TASKS
    elif sheet == "augmentations":
        from svea.augment.images import ImageBank

        further["images"] = ImageBank.find(overlay_dir or None, data_dir or None)
    with Steps("rows") as steps:
        steps.begin("drawing the sheet")
        print(getattr(sheets, sheet)(path, seed=seed, on_row=steps.finish, **further))
    return 0


def play(
    runs: Positional[tuple[Path, ...]] = (),
    random: bool = False,
    task: Task = "",
    setting: str = "",
    no_browser: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    pages: int = 2,
    envs: int = 0,
    device: Device = "cpu",
    data_dir: DataDir = "",
    trust: Trust = False,
) -> int:
    """Open a local page: change colours, videos, camera and light, and watch agents live.

    Example: svea play zoo:walker_walk-svea-drift zoo:walker_walk-drq

    It serves this machine alone, at an address with a random token. Ctrl-C ends it.

    Args:
        runs: one to four folders made by `svea train` or `svea export`, or agents of the zoo,
            zoo:NAME; they may have different tasks.
        random: the random policy too, in the first agent's task, or in --task.
        setting: open in this setting: a link that the page made, or what follows its #.
        no_browser: print the address, and open no browser.
        host: address to listen on; another than 127.0.0.1 lets other machines in.
        port: to listen on; 0 takes a free one.
        pages: how many may be open; each has processes of its own, one per agent.
        envs: compute actions in batches of this size, as `svea eval --envs` does: with the same
            number, returns are the same to the last digit. 0 is one per core.
    """
    try:
        from svea.play.server import serve
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        cure = "install svea again" if missing == "svea" else install_hint("play")
        raise UserError(f"svea play needs {error.name}, which is not installed: {cure}") from None

    def ready(address: str) -> None:
        print(f"playing at {address}\nCtrl-C ends it", flush=True)
        # A browser inside the terminal would be in the way.
        has_display = {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ} or sys.platform == "darwin"
        if has_display and not no_browser:
            webbrowser.open(address)

    serve(
        [str(run) for run in runs], random=random, task=name_task(task), setting=setting,
        host=host, port=port, pages=pages, envs=envs, device=device, data_dir=data_dir,
        on_ready=ready,
    )  # fmt: skip
    return 0
