"""`svea play`: a local page to change the world by hand and watch agents in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from svea.cli.arguments import Positional, parse
from svea.core.errors import SveaError, UserError, WorkerError, install_hint

MOST_AGENTS = 4


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "play", arguments)


def command(
    runs: Positional[tuple[Path, ...]] = (),
    random: bool = False,
    task: str = "",
    setting: str = "",
    no_browser: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    pages: int = 2,
    envs: int = 0,
    device: str = "cpu",
    data_dir: str = "",
    trust: bool = False,
) -> int:
    """Open a local page: change colours, videos, camera and light, and watch agents live.

    Example: svea play zoo:walker_walk-svea-drift zoo:walker_walk-drq

    It serves this machine alone, at an address with a random token. Ctrl-C ends it.

    Args:
        runs: one to four folders made by `svea train` or `svea export`, or agents of the zoo,
            zoo:NAME; they may have different tasks.
        random: the random policy too, in the first agent's task, or in --task.
        task: play in this task instead of the runs'.
        setting: open in this setting: a link that the page made, or what follows its #.
        no_browser: print the address, and open no browser.
        host: address to listen on; another than 127.0.0.1 lets other machines in.
        port: to listen on; 0 takes a free one.
        pages: how many may be open; each has processes of its own, one per agent.
        envs: compute actions in batches of this size, as `svea eval --envs` does: with the same
            number, returns are the same to the last digit. 0 is one per core.
        device: auto, cuda, mps or cpu.
        data_dir: folder with benchmark data; overrides SVEA_DATA.
        trust: import the modules that config.json names, such as my_env:make: code that runs here.
    """
    check_extra()
    from svea.core.given import name_task
    from svea.runs.load import load_config

    task = name_task(task)
    named = [str(run) for run in runs]
    seats = make_seats(named, random, task, device, data_dir, envs)
    if not 1 <= pages <= 16:
        raise UserError(f"pages is {pages}; allowed: 1 to 16")
    if not 0 <= port <= 65535:
        raise UserError(f"port is {port}; allowed: 0 (a free one) to 65535")
    check_seats(seats)
    tasks = [task or load_config(run).task for run in named] or [task]
    names = [Path(each).name.removeprefix("zoo:") for each in named]
    names += ["random policy"] if random else []
    return play(seats, names, tasks, pages, host, port, setting, data_dir, not no_browser)


def check_extra() -> None:
    """Say how to install what the page needs, before anything else."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
        import websockets  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(
            f"svea play needs {error.name}, which is not installed: {install_hint('play')}"
        ) from None


def make_seats(
    runs: list[str], random: bool, task: str, device: str, data_dir: str, envs: int
) -> list[dict[str, Any]]:
    """Who plays; what cannot be read is refused before anything starts."""
    from svea.envs import check_task
    from svea.runs.load import load_config

    if not 1 <= len(runs) + random <= MOST_AGENTS:
        raise UserError(
            f"{len(runs) + random} agents; allowed: 1 to {MOST_AGENTS} runs, exports or agents of "
            "the zoo, --random included, e.g. svea play zoo:walker_walk-svea"
        )
    if not 0 <= envs <= 64:
        raise UserError(f"envs is {envs}; allowed: 0 (one per core) to 64")
    if task:
        check_task(task)
    configs = [load_config(run) for run in runs]
    if random and not runs and not task:
        raise UserError("the random policy needs a task: name a run, or give --task walker_walk")
    shared: dict[str, Any] = {"data_dir": data_dir or None, "device": device, "rows": envs}
    seats = [shared | {"run": run, "task": task} for run in runs]
    if random:
        seats.append(shared | {"run": "", "task": task or configs[0].task})
    return seats


def check_seats(seats: list[dict[str, Any]]) -> None:
    """Refuse at once what a page would find out later: every seat is taken once, on the CPU."""
    from svea.core.terminal import Steps
    from svea.speed import choose_device

    with Steps("agents", len(seats)) as steps:
        for seat in seats:
            name = seat["run"] or "the random policy"
            steps.doing(f"loading {name}")
            choose_device(seat["device"])
            try:
                take_seat(seat | {"device": "cpu"})
            except UserError as error:
                raise error if name in str(error) else UserError(f"{name}: {error}") from error


def take_seat(seat: dict[str, Any]) -> None:
    """Load an agent and make its environment, as a page does, and let go of both."""
    from svea.core.importing import where_raised
    from svea.play.player import Player, Seat
    from svea.play.setting import DEFAULT

    try:
        Player(Seat(**seat), DEFAULT).close()
    except SveaError:
        raise
    except Exception as error:  # of a user's environment
        where = where_raised(error)
        said = f"{type(error).__name__}: {error}" + (f" ({where})" if where else "")
        what = f"task {seat['task']!r}" if seat["task"] else f"the task of {seat['run']}"
        raise WorkerError(f"{what} cannot be made: {said}") from error


def play(
    seats: list[dict[str, Any]],
    names: list[str],
    tasks: list[str],
    pages: int,
    host: str,
    port: int,
    setting: str,
    data_dir: str,
    browse: bool,
) -> int:
    """Serve until Ctrl-C."""
    from svea.data.clips import data_folder
    from svea.envs.looks.live import find_clips
    from svea.play.server import Playground, listen, make_server, serve

    clips = list(find_clips(data_folder(data_dir or None)))
    playground = Playground(seats, clips, pages, names=names, tasks=tasks)
    with listen(host, port) as socket:
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        shown = f"[{shown}]" if ":" in shown else shown
        address = f"http://{shown}:{socket.getsockname()[1]}/{playground.token}/"
        address += fragment(setting)
        if host not in ("127.0.0.1", "localhost", "::1"):
            print(
                f"warning: listening on {host}: anyone who can reach this machine and knows the "
                "address can watch and use the page. It is not encrypted.",
                file=sys.stderr,
            )

        def ready() -> None:
            print(f"playing at {address}\nCtrl-C ends it", flush=True)
            if browse and has_display():
                webbrowser.open(address)

        with contextlib.suppress(KeyboardInterrupt):  # the way to end it
            asyncio.run(serve(make_server(playground, host), playground, socket, ready))
    return 0


def fragment(setting: str) -> str:
    """What restores a setting, from a whole link or from its end.

    >>> fragment("http://127.0.0.1:8000/token/#mode=video_hard"), fragment("mode=train")
    ('#mode=video_hard', '#mode=train')
    """
    end = unquote(setting.rpartition("#")[2])
    if not setting:
        return ""
    if len(end) > 2000 or not end.isprintable() or " " in end or "=" not in end:
        raise UserError(
            f"setting is {setting[:60]!r}; allowed: a link that the page made, or what follows its "
            "#, such as mode=video_hard&noise=0.1"
        )
    return f"#{end}"


def has_display() -> bool:
    """Whether a browser could show itself here; one inside the terminal would be in the way."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
