"""The layout of `src/svea`: five layers, four wings behind one door each, and a budget of lines."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src/svea"

LAYERS = [
    "core",
    "recipes methods config data",
    "views augment networks replay agents | envs",
    "speed runs evaluation training",
    "results studies bench cli",
]
"""From the bottom to the top. A room imports rooms below it and, without circles, those of its own
layer; what a bar separates never imports one another: the method knows no environment."""

WINGS = {
    "kernels": {"speed"},
    "raster": {"envs"},
    "play": {"cli"},
    "paper": {"cli"},
}
"""Heavy or special, and the only room that may import each."""

SIDE = {
    room: (number, side)
    for number, layer in enumerate(LAYERS)
    for side, rooms in enumerate(layer.split("|"))
    for room in rooms.split()
}
FILES = sorted(ROOT.rglob("*.py"))
TORCH_FREE = [
    "core.errors", "core.words", "core.files", "core.compiled", "core.machine",
    "core.process", "core.seeds", "core.terminal",
    "data", "envs", "recipes", "methods", "config",
    "runs.layout", "runs.records", "runs.zoo",
    "results", "results.read", "results.stats", "results.published", "results.tables",
    "results.compare", "results.analyses", "results.figures", "results.report", "cli.evaluate",
    "evaluation.sheets", "play.session", "studies",
    "studies.cost", "studies.work", "studies.supervise", "studies.engines", "cli",
]  # fmt: skip
"""Each is imported alone, in a fresh interpreter."""


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


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


def rooms_imported_by(path: Path) -> set[str]:
    rooms = {name.split(".")[1] for name in imported(ast.parse(path.read_text()))}
    return rooms - {room_of(path), "__version__"}


def allowed(room: str, other: str) -> bool:
    if other in WINGS:
        return room in WINGS[other]
    if room in WINGS:
        return True
    (layer, side), (below, other_side) = SIDE[room], SIDE[other]
    return below < layer or (below == layer and side == other_side)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__"):  # the package's own face may import everything
        return
    assert not {other for other in rooms_imported_by(path) if not allowed(room, other)}


def test_no_circle_among_rooms() -> None:
    edges: dict[str, set[str]] = {}
    for path in FILES:
        if (room := room_of(path)) in SIDE:
            edges.setdefault(room, set()).update(rooms_imported_by(path) & set(SIDE))
    while leaves := {room for room, others in edges.items() if not others}:
        edges = {room: others - leaves for room, others in edges.items() if room not in leaves}
    assert not edges


def test_every_room_has_its_place() -> None:
    entries = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.name[0] != "."}
    rooms = entries - {"__pycache__", "__init__", "__main__", "py.typed"}
    assert rooms - set(WINGS) == set(SIDE)  # `make wings` takes wings away


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_longer_than_600_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600


@pytest.mark.parametrize("module", TORCH_FREE)
def test_rooms_without_torch_import_none(module: str) -> None:
    code = f"import sys, svea.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("room", ["config", "augment", "networks", "agents", "replay", "views"])
def test_the_method_loads_no_environment(room: str) -> None:
    code = f"import sys, svea.{room}; sys.exit(bool({{'gymnasium', 'mujoco'}} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
