"""How verbs read their arguments: tyro makes flags and help of a function's signature."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from svea.errors import UserError
from svea.files import check_path

Out = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]
"""Where to write to."""
STYLE = (tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone)
"""Help that names arguments by what they are: RUN, not PATH."""
SWITCHES = (*STYLE, tyro.conf.FlagCreatePairsOff)
"""The same, and a switch has one flag: --json without --no-json."""

PATH_FLAGS = ("--out", "-o", "--figures", "--runs", "--data-dir", "--overlay-dir")

__all__ = ["STYLE", "Out", "Positional", "parse", "parse_parts", "refuse_dashes", "tyro"]


def parse(function: Callable[..., int | None], verb: str, arguments: list[str]) -> int:
    """Let tyro read the arguments of a function and call it."""
    refuse_dashes(arguments)
    command = _with_checked_paths(function)
    return tyro.cli(command, prog=f"svea {verb}", args=arguments, config=SWITCHES) or 0


def parse_parts(
    parts: dict[str, Callable[..., int | None]], verb: str, arguments: list[str]
) -> int:
    """A verb with parts of its own, such as `svea data check`."""
    refuse_dashes(arguments)
    commands = {name: _with_checked_paths(function) for name, function in parts.items()}
    read = tyro.extras.subcommand_cli_from_dict
    return read(commands, prog=f"svea {verb}", args=arguments, config=SWITCHES) or 0


def refuse_dashes(arguments: list[str]) -> None:
    """Say how to name a folder that begins with a dash: flags look the same."""
    for flag, value in itertools.pairwise(arguments):
        if flag in PATH_FLAGS and value.startswith("-"):
            raise UserError(
                f"{flag} is followed by {value!r}, which looks like a flag; give {flag} a name, "
                f"and one that begins with a dash as {flag}=./{value}"
            )


def _with_checked_paths(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Refuse paths that cannot exist before the command sees them."""

    @functools.wraps(function)
    def command(*positional: Any, **named: Any) -> int | None:
        given = inspect.signature(function).bind(*positional, **named).arguments
        for name, value in given.items():
            for path in value if isinstance(value, tuple) else (value,):
                if isinstance(path, Path):
                    check_path(path, name)
        return function(*positional, **named)

    return command
