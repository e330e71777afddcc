"""`svea export`: a small folder to share, with actor, critic and configuration."""

from __future__ import annotations

from pathlib import Path

from svea.cli.arguments import Positional, parse
from svea.core.files import output_folder


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "export", arguments)


def command(
    run: Positional[Path],
    folder: Positional[Path],
    small: bool = False,
    critic: bool = False,
    trust: bool = False,
) -> int:
    """Export the newest checkpoint; `svea eval` and `load_agent` take the folder like a run.

    Example: svea export runs/walker_walk-svea-0 exported

    Args:
        run: folder made by `svea train`.
        folder: a new folder.
        small: the acting part alone, in 8 bits: a tenth of the size, without Q-values.
        critic: with --small, the Q-functions as well, for `svea play` and `svea analyze q-gap`.
        trust: import the modules that config.json names, such as my_env:make: code that runs here.
    """
    from svea.core.terminal import Steps

    with Steps("exports") as steps:
        steps.doing(f"exporting {run}")
        from svea.runs.load import export as export_run

        made = export_run(run, output_folder(folder, "folder"), small=small, critic=critic)
    print(made)
    return 0
