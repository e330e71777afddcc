"""`svea play`: a local page to change the world by hand and watch agents in it."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

from svea.cli.arguments import Positional, parse
from svea.core.errors import UserError, install_hint


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
    try:
        from svea.play.server import serve
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "svea":
            raise UserError(
                "svea.play, the playground, is not there; install svea again to have it"
            ) from None
        raise UserError(
            f"svea play needs {missing}, which is not installed: {install_hint('play')}"
        ) from None
    from svea.core.given import name_task

    def ready(address: str) -> None:
        print(f"playing at {address}\nCtrl-C ends it", flush=True)
        if has_display() and not no_browser:
            webbrowser.open(address)

    serve(
        [str(run) for run in runs], random=random, task=name_task(task), setting=setting,
        host=host, port=port, pages=pages, envs=envs, device=device, data_dir=data_dir,
        on_ready=ready,
    )  # fmt: skip
    return 0


def has_display() -> bool:
    """Whether a browser could show itself here; one inside the terminal would be in the way."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
