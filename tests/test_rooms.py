"""The layout of `src/svea`: a room imports only rooms below it, and some rooms need no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src/svea"

# From the top to the bottom. Rooms on one line are siblings: they do not import one another.
ORDER = [
    "cli",
    "bench",
    "studies",
    "training",
    "evidence",
    "runs",
    "speed",
    "agents",
    "views augment networks replay",
    "config",
    "methods",
    "recipes",
    "envs",
    "data",
    "files machine seeds",
    "errors words",
]
LEVEL = {room: -level for level, rooms in enumerate(ORDER) for room in rooms.split()}
FILES = sorted(ROOT.rglob("*.py"))
TORCH_FREE = [
    "errors", "words", "files", "machine", "seeds", "data", "envs", "recipes", "methods", "config",
    "runs.layout", "runs.lock", "runs.records", "runs.footprint", "runs.incidents", "runs.zoo",
    "evidence.read", "evidence.results", "evidence.stats", "evidence.published", "evidence.tables",
    "evidence.compare", "evidence.film.sheets", "evidence.playground.session", "studies",
    "studies.cost", "studies.watch", "studies.supervise", "studies.engines", "cli",
]  # fmt: skip
"""Each is imported alone, in a fresh interpreter."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module of ours that a file imports, at the top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "svea":
            if node.module == "svea":
                yield from (f"svea.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("svea."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if room in ("__init__", "__main__"):  # the package's own face may import everything
        return
    rooms = {name.split(".")[1] for name in imported(ast.parse(path.read_text()))}
    below = {other for other, level in LEVEL.items() if level < LEVEL.get(room, 0)}
    wrong = rooms - below - {room, "__version__"}
    assert not wrong


def test_every_room_has_its_place() -> None:
    entries = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.name[0] != "."}
    rooms = entries - {"__pycache__", "__init__", "__main__", "py.typed"}
    assert rooms == set(LEVEL)
    assert len(entries - {"__pycache__"}) <= 25


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_longer_than_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("module", TORCH_FREE)
def test_rooms_without_torch_import_none(module: str) -> None:
    code = f"import sys, svea.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
