"""The layout of `src/svea`: five layers, four wings behind one door each, and a budget of lines."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

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

BUDGET = {
    "core": 1_790, "data": 1_460, "config": 2_110, "recipes": 130, "methods": 90,
    "views": 120, "augment": 1_080, "networks": 770, "replay": 350, "agents": 1_420, "envs": 4_780,
    "speed": 570, "runs": 1_250, "training": 1_290, "evaluation": 1_780,
    "results": 4_130, "studies": 1_630, "bench": 490, "cli": 2_530,
    "kernels": 4_260, "raster": 630, "play": 1_230, "paper": 1_140,
}  # fmt: skip
"""Lines of Python that each room may have. A change that raises one lowers another or says why."""

SUMS = {"all but the wings": 27_760, "src": 35_010, "files in src": 167, "tests and tools": 30_100}
"""The same for what rooms are together. A feature with many tests raises them by what it needs."""

SIDE = {
    room: (number, side)
    for number, layer in enumerate(LAYERS)
    for side, rooms in enumerate(layer.split("|"))
    for room in rooms.split()
}
SOURCES = {path.relative_to(ROOT): path.read_text() for path in ROOT.rglob("*.py")}
TREES = {path: ast.parse(source) for path, source in SOURCES.items()}
MODULES = {
    ".".join(("svea", *path.with_suffix("").parts)).removesuffix(".__init__"): tree
    for path, tree in TREES.items()
}
TORCH_FREE = [
    "core.errors", "core.words", "core.files", "core.compiled", "core.machine",
    "core.process", "core.seeds", "core.terminal",
    "data", "envs", "recipes", "methods", "config",
    "runs.layout", "runs.records", "runs.zoo",
    "results", "results.read", "results.stats", "results.published", "results.tables",
    "results.compare", "results.analyses", "results.figures", "results.report", "cli.evaluate",
    "evaluation.sheets", "play.session", "studies",
    "studies.supervise", "studies.engines", "cli",
]  # fmt: skip
"""What can be imported where torch is not installed."""

METHOD = ["config", "views", "augment", "networks", "replay", "agents"]
"""What can be imported where no environment is installed."""


def room_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def named(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Every module that is imported, and every name out of one."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported_by(path: Path) -> set[str]:
    """At the top or inside a function."""
    names = (name.split(".") for name in named(ast.walk(TREES[path])))
    return {name[1] for name in names if name[0] == "svea"} - {room_of(path), "__version__"}


def executed(tree: ast.AST, functions: bool = False) -> Iterator[ast.AST]:
    """What runs when a module is imported, or later, in functions; nothing for type checkers."""
    later = () if functions else (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.iter_child_nodes(tree):
        checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not checked and not isinstance(node, later):
            yield node
            yield from executed(node, functions)


def loaded_with(module: str) -> set[str]:
    """Everything that importing a module of ours imports, as far as our own files say."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        if name and name not in found:
            found.add(name)
            left.append(name.rpartition(".")[0])  # a package is imported before what is in it
            left += named(executed(MODULES[name])) if name in MODULES else []
    return found


def allowed(room: str, other: str) -> bool:
    if other in WINGS:
        return room in WINGS[other]
    if room in WINGS:
        return True
    (layer, side), (below, other_side) = SIDE[room], SIDE[other]
    return below < layer or (below == layer and side == other_side)


@pytest.mark.parametrize("room", sorted({*SIDE, *WINGS}))
def test_imports_point_down(room: str) -> None:
    wrong = {
        (str(path), other)
        for path in TREES
        if room_of(path) == room
        for other in rooms_imported_by(path)
        if not allowed(room, other)
    }
    assert not wrong


@pytest.mark.parametrize("wing", sorted(WINGS))
def test_a_wing_has_one_door(wing: str) -> None:
    """One file imports it, by one name, inside a function: only when it is used."""
    doors = {
        (path, name)
        for path, tree in TREES.items()
        if room_of(path) != wing
        for name in named(executed(tree, functions=True))
        if f"{name}.".startswith(f"svea.{wing}.")
    }
    assert len(doors) == 1
    path, name = doors.pop()
    assert name not in set(named(executed(TREES[path])))


def test_studies_name_no_verb() -> None:
    """They call functions, in processes too; only the command line knows what users type."""
    from svea.cli import VERBS

    words = {
        node.value
        for path, tree in TREES.items()
        if room_of(path) == "studies"
        for call in ast.walk(tree)
        if isinstance(call, ast.List | ast.Tuple)
        for node in call.elts
        if isinstance(node, ast.Constant)
    }
    assert not words & {*VERBS} - {"export"}  # a name in a plan, and of a setting


def test_no_circle_among_rooms() -> None:
    edges: dict[str, set[str]] = {}
    for path in TREES:
        if (room := room_of(path)) in SIDE:
            edges.setdefault(room, set()).update(rooms_imported_by(path) & set(SIDE))
    while leaves := {room for room, others in edges.items() if not others}:
        edges = {room: others - leaves for room, others in edges.items() if room not in leaves}
    assert not edges


def test_every_room_has_its_place() -> None:
    entries = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.name[0] != "."}
    rooms = entries - {"__pycache__", "__init__", "__main__", "py.typed"}
    assert rooms - set(WINGS) == set(SIDE)  # `make wings` takes wings away


def test_no_file_is_longer_than_600_lines() -> None:
    lengths = {str(path): len(source.splitlines()) for path, source in SOURCES.items()}
    assert not {path: lines for path, lines in lengths.items() if lines > 600}


def test_rooms_and_their_sums_are_within_the_budget() -> None:
    lines = Counter[str]()
    for path, source in SOURCES.items():
        lines[room_of(path)] += len(source.splitlines())
    folders = (ROOT.parents[1] / name for name in ("tests", "tools"))
    others = [path for folder in folders for path in folder.rglob("*.py")]
    sums = {
        "all but the wings": sum(n for room, n in lines.items() if room not in WINGS),
        "src": lines.total(),
        "files in src": len(SOURCES),
        "tests and tools": sum(len(path.read_text().splitlines()) for path in others),
    }
    has = {room: lines[room] for room in BUDGET} | sums
    may = BUDGET | SUMS
    assert set(BUDGET) == {*SIDE, *WINGS}
    assert not {part: (has[part], may[part]) for part in may if has[part] > may[part]}


def test_half_of_the_functions_have_at_most_ten_lines() -> None:
    functions = (
        node.end_lineno - node.lineno + 1
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    )
    assert median(functions) <= 10


@pytest.mark.parametrize("module", TORCH_FREE)
def test_what_needs_no_torch_imports_none(module: str) -> None:
    assert not {"torch", "torch.nn"} & loaded_with(f"svea.{module}")


@pytest.mark.parametrize("room", METHOD)
def test_the_method_loads_no_environment(room: str) -> None:
    assert not {"gymnasium", "mujoco", "dm_control"} & loaded_with(f"svea.{room}")
