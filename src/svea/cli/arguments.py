"""How verbs read their arguments: tyro makes flags and help of a function's signature."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro
from tyro.conf import Positional

from svea.core import importing
from svea.core.errors import UserError
from svea.core.files import check_path
from svea.core.terminal import unfiltered, wants_plain_text

if wants_plain_text():  # tyro heeds the terminal, but not NO_COLOR
    tyro._experimental_options["ansi_codes"] = False

Out = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]
"""Where to write to."""
STYLE = (tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone)
"""Help that names arguments by what they are: RUN, not PATH."""
SWITCHES = (*STYLE, tyro.conf.FlagCreatePairsOff)
"""The same, and a switch has one flag: --json without --no-json."""

PATH_FLAGS = ("--out", "-o", "--export", "--figures", "--runs", "--data-dir", "--overlay-dir")

__all__ = [
    "NUMBERS",
    "STYLE",
    "Out",
    "Positional",
    "brief_help",
    "parse",
    "parse_parts",
    "refuse_dashes",
    "tyro",
]


NUMBERS = tyro.constructors.ConstructorRegistry()
"""How numbers are read: Python's own words for a text that is none do not help."""


@NUMBERS.primitive_rule
def _number(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
    """A whole number or a number; what else is typed is answered with an example."""
    kinds = {int: "a whole number such as 10000 or 10_000", float: "a number such as 0.5 or 1e-4"}
    if info.type not in kinds:
        return None

    def read(words: list[str]) -> Any:
        try:
            return info.type(words[0])
        except ValueError:
            raise ValueError(f"{words[0]!r} given; allowed: {kinds[info.type]}") from None

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=info.type.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int | info.type),
        str_from_instance=lambda value: [str(value)],
    )


def parse(function: Callable[..., int | None], verb: str, arguments: list[str]) -> int:
    """Let tyro read the arguments of a function and call it."""
    refuse_dashes(arguments)
    command = _with_checked_paths(function)
    with unfiltered():
        call = tyro.cli(
            command, prog=f"svea {verb}", args=arguments, config=SWITCHES, registry=NUMBERS
        )
    return call() or 0


def parse_parts(
    parts: dict[str, Callable[..., int | None]], verb: str, arguments: list[str]
) -> int:
    """A verb with parts of its own, such as `svea data check`; without one they are listed."""
    refuse_dashes(arguments)
    if not arguments:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
        for name, function in parts.items():
            head = f"  svea {verb} {name:<10} "
            about = (function.__doc__ or "").partition("\n")[0]
            below = " " * len(head)
            print(textwrap.fill(about, width, initial_indent=head, subsequent_indent=below))
        return 0
    commands = {name: _with_checked_paths(function) for name, function in parts.items()}
    read = tyro.extras.subcommand_cli_from_dict
    with unfiltered():
        call = read(
            commands, prog=f"svea {verb}", args=arguments, config=SWITCHES, registry=NUMBERS
        )
    return call() or 0


def refuse_dashes(arguments: list[str]) -> None:
    """Say how to name a folder that begins with a dash: flags look the same."""
    for flag, value in itertools.pairwise(arguments):
        if flag in PATH_FLAGS and value.startswith("-"):
            raise UserError(
                f"{flag} is followed by {value!r}, which looks like a flag; give {flag} a name, "
                f"and one that begins with a dash as {flag}=./{value}"
            )


def _with_checked_paths(
    function: Callable[..., int | None],
) -> Callable[..., Callable[[], int | None]]:
    """The call of a command with its arguments; paths that cannot exist are refused."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def command(*positional: Any, **named: Any) -> Callable[[], int | None]:
        given = signature.bind(*positional, **named).arguments
        if given.get("trust"):
            importing.trust(importing.EVERYTHING)
        for name, value in given.items():
            for path in value if isinstance(value, tuple) else (value,):
                if isinstance(path, Path):
                    check_path(path, name)
        return functools.partial(function, *positional, **named)

    defaults = {name: one.default for name, one in signature.parameters.items()}
    hints = _without_empty_defaults(get_type_hints(function, include_extras=True), defaults)
    command.__doc__ = _unwrapped(function)
    del command.__wrapped__  # type: ignore[attr-defined]  # tyro would read its annotations
    command.__annotations__ = hints
    parameters = [p.replace(annotation=hints[p.name]) for p in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _unwrapped(function: Callable[..., Any]) -> str:
    """A docstring whose arguments have a line each: tyro would keep the breaks, and wrap again."""
    return re.sub(r"\n {8}(?=\S)", " ", inspect.getdoc(function) or "")


Flags = TypeVar("Flags", bound=type)


def brief_help(flags: Flags) -> Flags:
    """A decorator of a dataclass of flags, whose help then does not say `(default: '')`."""
    defaults = {field.name: field.default for field in dataclasses.fields(flags)}
    hints = get_type_hints(flags, include_extras=True)
    flags.__annotations__ |= _without_empty_defaults(hints, defaults)
    return flags


def _without_empty_defaults(hints: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Annotations whose help does not say `(default: None)`: what happens then is in the text."""
    silent = tyro.conf.arg(help_behavior_hint="")
    empty = {name for name, value in defaults.items() if value is None or value in ("", ())}
    missing = [name for name, value in defaults.items() if value is inspect.Parameter.empty]
    empty |= {name for name in missing if "tuple[" in str(hints[name])}  # tyro: none is allowed
    return {n: Annotated[hint, silent] if n in empty else hint for n, hint in hints.items()}
