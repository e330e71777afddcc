"""The benchmark's colour tables, read from the pickles they are published as, without unpickling.

DMControl-GB keeps its colours in `color_easy.pt` and `color_hard.pt`: five pickles one after the
other, the fourth a list of 100 dictionaries of numpy arrays. A pickle is a program, and running one
from elsewhere runs whatever its author liked. So the program is only *read*: every instruction and
every name in it must be one that such a table needs, and the numbers are taken from the strings in
it. Nothing is called, built or imported.
"""

from __future__ import annotations

import io
import pickletools
from pathlib import Path

import numpy as np

from svea.errors import StorageError

KEYS = ("grid_rgb1", "grid_rgb2", "self_rgb", "skybox_rgb")

_MOST_BYTES = 2**20  # the published tables have about 40 kB
_TABLE = 3  # after torch's magic number, its version, and sizes of C types
_OPCODES = {
    *("PROTO", "STOP", "MARK", "EMPTY_LIST", "EMPTY_DICT", "APPENDS", "APPEND", "SETITEMS"),
    *("BINUNICODE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "GLOBAL", "REDUCE", "BUILD"),
    *("BININT", "BININT1", "BININT2", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE"),
    *("NONE", "NEWFALSE", "NEWTRUE", "LONG1", "SETITEM"),
}
_GLOBALS = {
    *("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"),
    *("numpy ndarray", "numpy dtype", "_codecs encode"),
}


def read_legacy_table(path: Path) -> list[dict[str, list[float]]]:
    """Read the colour settings of a `color_*.pt` file.

    Raises:
        StorageError: It holds anything else than such a table.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}.") from error
    if len(content) > _MOST_BYTES:
        raise StorageError(f"{path} is too large for a table of colours.")
    stream = io.BytesIO(content)
    try:
        for _ in range(_TABLE):
            _strings(stream)
        return _settings(_strings(stream))
    except (ValueError, KeyError) as error:
        raise StorageError(f"{path} is no table of colours that can be read safely: {error}") from (
            error
        )


def _strings(stream: io.BytesIO) -> list[str]:
    """The strings of the next pickle in the order of their use."""
    memo: dict[int, str] = {}
    strings: list[str] = []
    last: str | None = None  # the string of the instruction before, which PUT may remember
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name not in _OPCODES:
            raise ValueError(f"it uses the instruction {opcode.name}")
        if opcode.name == "GLOBAL" and argument not in _GLOBALS:
            raise ValueError(f"it names {argument!r}")
        if last is not None and opcode.name in ("BINPUT", "LONG_BINPUT"):
            memo[int(argument or 0)] = last
        last = argument if opcode.name == "BINUNICODE" else None
        recalled = opcode.name in ("BINGET", "LONG_BINGET")
        used = memo.get(int(argument or 0)) if recalled else last
        if used is not None:
            strings.append(used)
    return strings


def _settings(strings: list[str]) -> list[dict[str, list[float]]]:
    """The settings: each key is followed by the bytes of its three numbers, among other strings."""
    if not {"f8", "<"} <= set(strings):
        raise ValueError("its numbers are not little-endian float64")
    settings: list[dict[str, list[float]]] = []
    setting: dict[str, list[float]] = {}
    key = ""
    for string in strings:
        if string in KEYS:
            if key or string in setting:
                raise ValueError(f"{string} stands where numbers are expected")
            key = string
        elif len(string) == 24:  # three float64, one letter per byte
            if not key:
                raise ValueError("it has numbers without a name")
            numbers = np.frombuffer(string.encode("latin1"), "<f8")
            if not ((numbers >= 0) & (numbers <= 1)).all():  # so that NaN is refused, too
                raise ValueError(f"{key} is {numbers.tolist()}, not three numbers from 0 to 1")
            setting[key], key = numbers.tolist(), ""
            if len(setting) == len(KEYS):
                settings.append(setting)
                setting = {}
    if key or setting:
        raise ValueError("its last setting is incomplete")
    return settings
