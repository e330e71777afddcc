"""Where in a user's own code an environment raised or hangs: file, line and function."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from importlib.util import find_spec
from pathlib import Path

Frame = tuple[str, int, str]
"""File, line, function."""

_STANDARD = sysconfig.get_path("stdlib") + os.sep
_GYMNASIUM = find_spec("gymnasium")  # found, not imported: networks come here too
_BETWEEN = (
    f"{Path(__file__).parents[1]}{os.sep}",
    f"{Path((_GYMNASIUM and _GYMNASIUM.origin) or os.devnull).parent}{os.sep}",
)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_DUMPED = re.compile(r'File "(.+)", line (\d+) in (\S+)')  # as faulthandler writes it


def where_raised(error: BaseException) -> str:
    """The place in the user's code that an exception came through last; empty if none.

    >>> try:
    ...     int("motor")
    ... except ValueError as error:
    ...     where_raised(error).endswith(", line 2, in <module>")
    True
    """
    frames = traceback.extract_tb(error.__traceback__)
    return _place([(frame.filename, frame.lineno or 0, frame.name) for frame in frames[::-1]])


def where_stuck(dump: str) -> str:
    """The same for the stack of a process that hangs, as faulthandler writes it."""
    current = dump.partition("Current thread")[2] or dump
    found = _DUMPED.findall(current.partition("\n\n")[0])
    return _place([(file, int(line), function) for file, line, function in found])


def _place(frames: list[Frame]) -> str:
    """Choose among frames, innermost first: the user's own code before installed packages."""
    own = [frame for frame in frames if _is_users(frame[0])]
    written = [frame for frame in own if not _INSTALLED.search(frame[0])]
    chosen = written[:1] or own[-1:]
    if not chosen:
        return ""
    file, line, function = chosen[0]
    return f"{file.removeprefix(os.getcwd() + os.sep)}, line {line}, in {function}"


def _is_users(file: str) -> bool:
    """Whether a file is neither Python's, nor svea's or Gymnasium's."""
    standard = file.startswith(("<frozen", _STANDARD)) and not _INSTALLED.search(file)
    return not standard and not file.startswith(_BETWEEN)
