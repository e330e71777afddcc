"""How verbs read their arguments: tyro makes flags and help of a function's signature."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro
from tyro.conf import Positional as Positional

from svea.core import importing
from svea.core.files import check_path
from svea.core.terminal import unfiltered, wants_plain_text

if wants_plain_text():  # tyro heeds the terminal, but not NO_COLOR
    tyro._experimental_options["ansi_codes"] = False

STYLE = (tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone)
"""Help that names arguments by what they are: RUN, not PATH."""
SWITCHES = (*STYLE, tyro.conf.FlagCreatePairsOff)
"""The same, and a switch has one flag: --json without --no-json."""

_help = tyro.conf.arg

Out = Annotated[Path | None, _help(aliases=["-o"])]
"""Where to write to."""

# Arguments that several verbs have, with their help.
Runs = Annotated[
    Positional[tuple[Path, ...]],
    _help(
        help="folders made by `svea train` or `svea export`, folders with such beneath them, or "
        "agents of the zoo, zoo:NAME."
    ),
]
Run = Annotated[Positional[Path], _help(help="made by `svea train` or `svea export`, or zoo:NAME.")]
Device = Annotated[str, _help(help="auto, cuda, mps or cpu.")]
DataDir = Annotated[str, _help(help="folder with benchmark data; overrides SVEA_DATA.")]
Json = Annotated[bool, _help(help="print JSON.")]
Task = Annotated[
    str,
    _help(
        help="play in this task instead of the run's, e.g. module:function of your environment in "
        "another look; tables show it as a mode."
    ),
]
Modes = Annotated[
    tuple[str, ...],
    _help(
        help="modes of `svea tasks`, or groups: `usual` is train and color_hard (robot tasks: "
        "test), `all` train and the test modes of the paper's benchmarks, colors, videos, geometry "
        "and lights those of a kind, `everything` all that the task has, `distracting_cs:all` the "
        "eight intensities; module:class is a mode of yours."
    ),
]
Trust = Annotated[
    bool,
    _help(
        help="import the modules that config.json or study.json names, such as my_env:make: code "
        "that runs here."
    ),
]

Verb = Callable[..., int | None]


def parse(verb: Verb | dict[str, Verb], name: str, arguments: list[str]) -> int:
    """Let tyro read the arguments of a verb and call it; parts of one are listed without any."""
    read: Any = tyro.cli
    command: Any
    if isinstance(verb, dict):
        if not arguments:
            from svea.cli.printing import say

            for part, function in verb.items():
                say(f"  svea {name} {part:<10} {(function.__doc__ or '').partition(chr(10))[0]}")
            return 0
        read = tyro.extras.subcommand_cli_from_dict
        command = {part: _with_checked_paths(function) for part, function in verb.items()}
    else:
        command = _with_checked_paths(verb)
    with unfiltered():
        call = read(command, prog=f"svea {name}", args=arguments, config=SWITCHES)
    return call() or 0


def _with_checked_paths(function: Verb) -> Callable[..., Callable[[], int | None]]:
    """The call of a verb with its arguments; paths that cannot exist are refused."""
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
    # Arguments have a line each: tyro would keep the breaks of the docstring, and wrap again.
    command.__doc__ = re.sub(r"\n {8}(?=\S)", " ", inspect.getdoc(function) or "")
    del command.__wrapped__  # type: ignore[attr-defined]  # tyro would read its annotations
    command.__annotations__ = hints
    parameters = [p.replace(annotation=hints[p.name]) for p in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


Flags = TypeVar("Flags", bound=type)


def brief_help(flags: Flags) -> Flags:
    """A decorator of a dataclass of flags, whose help then does not say `(default: '')`."""
    defaults = {field.name: field.default for field in dataclasses.fields(flags)}
    hints = get_type_hints(flags, include_extras=True)
    flags.__annotations__ |= _without_empty_defaults(hints, defaults)
    return flags


def _without_empty_defaults(hints: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Annotations whose help does not say `(default: None)`: what happens then is in the text."""
    silent = _help(help_behavior_hint="")
    empty = {name for name, value in defaults.items() if value is None or value in ("", ())}
    missing = [name for name, value in defaults.items() if value is inspect.Parameter.empty]
    empty |= {name for name in missing if "tuple[" in str(hints[name])}  # tyro: none is allowed
    return {n: Annotated[hint, silent] if n in empty else hint for n, hint in hints.items()}
