"""What lies in a run or data folder is read through `svea.core.files` alone."""

import ast
import os
from pathlib import Path

import pytest
from faults.hostile import KINDS, make_special

from svea.core import files
from svea.core.errors import StorageError

ROOT = Path(__file__).parents[1] / "src/svea"
READERS = {"open", "read_text", "read_bytes", "load_file", "safe_open", "fdopen"}
ALLOWED = {
    "core/files.py": "the reader itself",
    "core/compiled.py": "sources of this package, and its own cache",
    "core/machine.py": "/proc and /sys",
    "core/process.py": "/dev/null",
    "cli/doctor.py": "/proc",
    "kernels": "sources of this package, and its own cache",
    "envs/looks/colors.py": "a table of this package",
    "envs/robot": "models of this package",
    "envs/workers": "pipes and anonymous memory between processes",
    "results/report.py": "styles of this package",
    "paper/experiments.py": "tables of this package",
    "play/server.py": "the page's own files, of this package",
    "data/get.py": "archives that were downloaded, each member of a bounded size",
    "runs/tensors.py": "safetensors, after the file was opened as a plain one",
    "studies/plan.py": "the user's own study file, which may be any file",
    "studies/supervise.py": "descriptors that `files` opened, or that its parent calls it with",
}
"""Who may open files in another way, and what for."""

OTHERS = {"Clips", "_clips", "found", "run", "webbrowser"}  # whose method `open` is not about files


def direct_reads(path: Path) -> list[str]:
    """Calls that open a file, except through `files` and on clips or pictures already open."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        owner = getattr(called, "value", None)
        owner = getattr(owner, "func", owner)  # of what a call returns: the call
        owner_name = getattr(owner, "attr", getattr(owner, "id", ""))
        if name not in READERS or owner_name in {"files", *OTHERS}:
            continue
        is_path = node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == "path"
        if owner_name == "Image" and not is_path:
            continue  # of a file that is open already
        found.append(f"{owner_name}.{name} in line {node.lineno}")
    return found


def test_run_and_data_folders_are_read_through_one_reader() -> None:
    paths = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    found = {name: direct_reads(path) for name, path in paths.items()}
    assert not {k: v for k, v in found.items() if v and not k.startswith(tuple(ALLOWED))}


def test_the_search_finds_a_direct_read(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("path.read_text()\nopen(path)\nImage.open(path)\n")
    assert len(direct_reads(tmp_path / "x.py")) == 3


def special(path: Path, kind: str) -> Path:
    """A file that is not a plain one, or not of a plain size."""
    path.mkdir() if kind == "a folder" else make_special(path, kind)
    return path


@pytest.mark.parametrize("kind", [*KINDS, "a folder"])
def test_what_is_not_plain_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = special(tmp_path / "x", kind)
    words = "at most" if kind == KINDS[2] else "not a plain"
    for read in (files.read_bytes, files.read_json, files.open_plain):
        with pytest.raises(StorageError, match=words):
            read(path, 1000)
    with pytest.raises(StorageError, match=words):
        next(files.read_lines(path, 1000))


@pytest.mark.parametrize("kind", [*KINDS[:2], "a folder"])
def test_nothing_is_written_to_what_is_not_plain(tmp_path: Path, kind: str) -> None:
    path = special(tmp_path / "x", kind)
    for write in (lambda: files.append_lines(path, b"{}\n"), lambda: files.cut(path, 0)):
        with pytest.raises(StorageError, match="not a plain file"):
            write()


def test_a_line_without_an_end_is_refused_before_it_is_all_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"{}\n")
    os.truncate(path, 2**33)
    lines = files.read_lines(path, 2**34)
    assert next(lines) == b"{}\n"
    with pytest.raises(StorageError, match=r"line 2 of .* is longer than"):
        next(lines)


def test_a_file_that_grows_while_it_is_read_stays_within_the_limit() -> None:
    endless = Path("/proc/self/maps")  # a plain file of size 0, and of any length
    with pytest.raises(StorageError, match="at most"):
        files.read_bytes(endless, 10)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\uDFFF": 1}', "surrogate"),
        (b"[1" + b"0" * 400 + b"]", "digits"),
        (b"[" * 100_000, "deep"),
        (b'{"a": "\xff"}', "decode"),
    ],
)
def test_json_that_other_programs_cannot_take_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        files.parse_json(content)
    assert files.parse_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}", "a whole pair is text"


def test_half_a_line_goes_and_a_whole_one_without_its_end_stays(tmp_path: Path) -> None:
    path, line = tmp_path / "x.jsonl", b'{"c": 3}\n'
    for before, kept in (
        (b'{"a": 1}\n{"b": 2', b'{"a": 1}\n'),
        (b'{"a": 1}', b'{"a": 1}\n'),
        (b'{"half', b""),
    ):
        path.write_bytes(before)
        assert files.append_lines(path, line) == len(kept + line)
        assert path.read_bytes() == kept + line


def test_what_a_killed_process_left_goes_and_what_a_live_one_writes_stays(tmp_path: Path) -> None:
    target, dead = tmp_path / "film.mp4", 2**22 + 1  # above the largest number that Linux gives
    left = tmp_path / f".film.mp4.{dead}.partial"
    live = tmp_path / f".film.mp4.{os.getpid()}.partial"
    other = tmp_path / f".other.mp4.{dead}.partial"
    for path in (left, live, other):
        path.touch()
    files.sweep_one(target)
    assert not left.exists() and live.exists() and other.exists()
