"""How verbs read their arguments: tyro makes flags and help of a function's signature."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

Out = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]
"""Where to write to."""
STYLE = (tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone)
"""Help that names arguments by what they are: RUN, not PATH."""
SWITCHES = (*STYLE, tyro.conf.FlagCreatePairsOff)
"""The same, and a switch has one flag: --json without --no-json."""

__all__ = ["STYLE", "Out", "Positional", "parse", "parse_parts", "tyro"]


def parse(function: Callable[..., int | None], verb: str, arguments: list[str]) -> int:
    """Let tyro read the arguments of a function and call it."""
    return tyro.cli(function, prog=f"svea {verb}", args=arguments, config=SWITCHES) or 0


def parse_parts(
    parts: dict[str, Callable[..., int | None]], verb: str, arguments: list[str]
) -> int:
    """A verb with parts of its own, such as `svea data check`."""
    read = tyro.extras.subcommand_cli_from_dict
    return read(parts, prog=f"svea {verb}", args=arguments, config=SWITCHES) or 0
