"""The zoo: trained agents that come with the repository, by names such as `zoo:walker_walk-svea`.

An agent is a folder that `svea export --small` made, with a card that `make results` wrote. The
folder of the zoo is only read. What a verb writes about an agent goes to a working copy,
runs/zoo/NAME, which is an export like any other.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svea.core import files
from svea.core.errors import StorageError, UserError, unknown_name
from svea.runs import layout

PREFIX = "zoo:"
VARIABLE = "SVEA_ZOO"
CARD = "card.json"
COPIES = Path("runs/zoo")

CARD_SHAPE = {
    "task": str, "method": str, "decisions": int, "size": int, "licence": str,
    "returns": [{"mode": str, "mean": float, "episodes": int, "worlds": int}],
}  # fmt: skip
"""What the list of agents needs; a card has more."""


def is_name(run: str | Path) -> bool:
    """Whether an agent of the zoo is meant, and not a folder."""
    return str(run).startswith(PREFIX)


def home() -> Path:
    """The folder of the zoo: SVEA_ZOO, or zoo/ of the clone that this package is installed from."""
    given = os.environ.get(VARIABLE)
    folder = Path(given) if given else Path(__file__).parents[3] / "zoo"
    if not _agents(folder):
        where = f"{VARIABLE} is {given!r}, which" if given else "this installation"
        raise UserError(
            f"no agents of the zoo here: {where} has none. They are in the folder zoo/ of a clone "
            f"of svea; set {VARIABLE}=/path/to/clone/zoo"
        )
    return folder


def names() -> list[str]:
    """Every agent, by name."""
    return _agents(home())


def _agents(folder: Path) -> list[str]:
    """The agents of a folder; one that has lost a file is still one."""
    parts = (layout.CONFIG, layout.ACTOR, CARD)
    return sorted({path.parent.name for part in parts for path in folder.glob(f"*/{part}")})


def source(run: str | Path) -> Path:
    """Where a run's files are read: a name of the zoo is a folder there, a folder is itself."""
    if not is_name(run):
        return Path(run)
    name, known = str(run).removeprefix(PREFIX), names()
    if name not in known:
        raise unknown_name("agent of the zoo", name, known)
    return home() / name


@contextlib.contextmanager
def _sound(folder: Path) -> Iterator[None]:
    """A region that reads an agent's files: what is wrong with them is named, with the cure."""
    try:
        yield
    except (OSError, ValueError, StorageError) as error:
        raise StorageError(
            f"{folder} of the zoo is damaged: {error}. Restore it: in a clone of svea with `git "
            f"checkout zoo/{folder.name}`, elsewhere by a copy of that folder from a clone"
        ) from error


def working_copy(run: str | Path) -> Path:
    """Where a verb reads and writes: runs/zoo/NAME for a name of the zoo, copied if need be."""
    folder = source(run)
    if not is_name(run):
        return folder
    copy = COPIES / folder.name
    with _sound(folder):
        stored = files.read_json(folder / layout.CONFIG, layout.CONFIG_BYTES)
        weights = layout.exported_files(stored)
        for name, wanted in weights.items():
            files.verify(folder / name, wanted, layout.WEIGHTS_BYTES)
        parts = [*weights, layout.CONFIG]  # in this order: a copy that has the last is whole
        contents = {part: files.read_bytes(folder / part, layout.WEIGHTS_BYTES) for part in parts}
    for name, content in contents.items():
        path = copy / name
        if not path.is_file() or files.read_bytes(path, layout.WEIGHTS_BYTES) != content:
            files.write_whole(path, content)
    return copy


def cards() -> tuple[list[dict[str, Any]], list[StorageError]]:
    """What is known about each agent, from its card; and which cards cannot be used."""
    found, problems = [], []
    for name in names():
        folder = home() / name
        try:
            with _sound(folder):
                card = files.read_json(folder / CARD, layout.CONFIG_BYTES)
                found.append({"name": name, **layout.check(card, CARD_SHAPE, CARD)})
        except StorageError as error:
            problems.append(error)
    return found, problems
