"""The zoo: trained agents that come with the repository, by names such as `zoo:walker_walk-svea`.

An agent is a folder that `svea export --small` made, with a card that `make results` wrote. The
folder of the zoo is only read. What a verb writes about an agent goes to a working copy,
runs/zoo/NAME, which is an export like any other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from svea import files
from svea.errors import StorageError, UserError, unknown_name
from svea.runs import layout

PREFIX = "zoo:"
VARIABLE = "SVEA_ZOO"
CARD = "card.json"
COPIES = Path("runs/zoo")
LIMIT = 30_000_000
"""Bytes that all agents may take in the repository."""


def is_name(run: str | Path) -> bool:
    """Whether an agent of the zoo is meant, and not a folder."""
    return str(run).startswith(PREFIX)


def home() -> Path:
    """The folder of the zoo: SVEA_ZOO, or zoo/ of the clone that this package is installed from."""
    given = os.environ.get(VARIABLE)
    folder = Path(given) if given else Path(__file__).parents[3] / "zoo"
    if not folder.is_dir():
        where = f"{VARIABLE} is {given!r}" if given else "this installation has none"
        raise UserError(
            f"no agents of the zoo here: {where}. They are in the folder zoo/ of a clone of svea; "
            f"set {VARIABLE}=/path/to/clone/zoo"
        )
    return folder


def names() -> list[str]:
    """Every agent, by name."""
    return sorted(path.parent.name for path in home().glob(f"*/{layout.CONFIG}"))


def source(run: str | Path) -> Path:
    """Where a run's files are read: a name of the zoo is a folder there, a folder is itself."""
    if not is_name(run):
        return Path(run)
    name, known = str(run).removeprefix(PREFIX), names()
    if name not in known:
        raise unknown_name("agent of the zoo", name, known)
    return home() / name


def working_copy(run: str | Path) -> Path:
    """Where a verb reads and writes: runs/zoo/NAME for a name of the zoo, copied if need be."""
    folder = source(run)
    if not is_name(run):
        return folder
    copy = COPIES / folder.name
    wanted = [layout.ACTOR, layout.CONFIG]  # in this order: a copy with a configuration is whole
    with files.reading(folder):
        contents = {n: files.read_bytes(folder / n, layout.WEIGHTS_BYTES) for n in wanted}
    with files.writing(copy):
        files.make_folder(copy)
        for name, content in contents.items():
            path = copy / name
            if not path.is_file() or files.read_bytes(path, layout.WEIGHTS_BYTES) != content:
                files.replace(path, [content])
    return copy


def listed(card: dict[str, Any]) -> list[dict[str, Any]]:
    """The returns that fit into a list of agents; the 16 of geometry and lights are on the card."""
    from svea.envs.modes import GROUPS  # 0.2 s that other users of this module need not wait

    long = {*GROUPS["geometry"], *GROUPS["lights"]}
    return [one for one in card["returns"] if one["mode"] not in long]


def cards() -> list[dict[str, Any]]:
    """What is known about each agent, from its configuration and its card."""
    return [_card(home() / name) for name in names()]


def _card(folder: Path) -> dict[str, Any]:
    """One agent's."""
    try:
        return {"name": folder.name, **files.read_json(folder / CARD, layout.CONFIG_BYTES)}
    except (OSError, ValueError, TypeError, StorageError) as error:
        raise StorageError(
            f"{folder / CARD} cannot be read: {error}. Restore it (git checkout), or write it "
            "again with make results"
        ) from error
