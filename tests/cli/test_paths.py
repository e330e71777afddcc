"""Paths that cannot be written to: one message, exit code 2, nothing made, nothing replaced."""

import os
import stat
from pathlib import Path

import pytest
from exit_codes import call
from fake_runs import write_run

from svea.core import files
from svea.core.errors import UserError

WRITERS = [
    "train walker_walk --preset quick --out",
    "sweep --tasks walker_walk --set decisions=100 replay=100 --dry-run --out",
    "export RUN",
    "data get davis",
    "report RUN --out",
    "report RUN --figures",
    "watch RUN -o",
    "gallery environments --out",
    "analyze walltime RUN -o",
    "analyze saliency RUN -o",
]


def places(folder: Path) -> dict[str, str]:
    """A place of each kind where nothing can be written."""
    for name, target in (("dangling", "nowhere"), ("loop", "loop")):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(folder / target)
    (folder / "file.png").write_text("kept")
    return {
        "device": os.devnull,
        "long": str(folder / ("x" * 252 + ".png")),
        "dangling": str(folder / "dangling"),
        "loop": str(folder / "loop"),
        "below a file": str(folder / "file.png" / "out.png"),
        "not text": str(folder / "a\udcff.png"),
    }


KINDS = ["device", "long", "dangling", "loop", "below a file", "not text"]


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_place_where_nothing_can_be_written(writer, kind, run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = places(tmp_path)[kind]
    before = sorted(os.listdir(tmp_path))
    arguments = [str(run) if word == "RUN" else word for word in writer.split()]
    assert call([*arguments, place]) == 2
    err = capsys.readouterr().err
    assert err.startswith("svea: ") and err.count("\n") == 1, err
    assert "File exists" not in err and "Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == before
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("kind", ["long", "not text"])
@pytest.mark.parametrize(
    "reader",
    [
        "eval", "watch", "report", "analyze q-gap", "sweep status", "sweep", "data check",
        "compare svea drq --runs", "gallery environments --data-dir", "data list --data-dir",
        "train walker_walk --data-dir", "train walker_walk --overlay-dir",
    ],
)  # fmt: skip
def test_a_path_that_cannot_exist_is_not_looked_for(reader, kind, tmp_path, capsys):
    assert call([*reader.split(), places(tmp_path)[kind]]) == 2
    err = capsys.readouterr().err
    assert err.count("svea: ") == 1 and "Traceback" not in err


def test_places_that_can_be_written_to_pass(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "page.html").write_text("")
    for path in ("there", "link", "new", "new/deep", "x" * 255, "ü" * 127):
        assert files.output_folder(tmp_path / path) == tmp_path / path
    for path in ("page.html", "there", "new.png", "new/deep.png"):
        assert files.output_file(tmp_path / path) == tmp_path / path
    with pytest.raises(UserError, match="page"):
        files.output_folder(tmp_path / "page.html")
    for path in (Path("ü" * 128), "a\0b"):
        with pytest.raises(UserError):
            files.check_path(path)
