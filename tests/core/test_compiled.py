"""Code compiled on this machine is made once, whole, for nobody else, and from what it says."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from processes import alive, wait_for

from svea.core import compiled, files
from svea.core.compiled import BuildError
from svea.core.errors import UserError

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="compiled code is made for Linux"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A source, and an empty cache."""
    (tmp_path / "ours.c").write_text("int ours(void) { return 7; }\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def load(folder: Path) -> int:
    """What the library computes."""
    return compiled.load_c([folder / "ours.c"], [], "ours").ours()


def built(folder: Path) -> Path:
    """The only file that is left."""
    (file,) = (folder / "cache/svea").iterdir()
    return file


def test_a_library_is_built_once_and_left_whole(folder, monkeypatch):
    assert load(folder) == 7 and built(folder).suffix == ".so"
    monkeypatch.setattr(compiled, "build_c", lambda *_: pytest.fail("built again"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert load(folder) == 7, "a compiler that is gone is not missed"
    monkeypatch.setattr(compiled, "processor", lambda: "another one")
    with pytest.raises(pytest.fail.Exception, match="built again"):
        load(folder)


def test_its_name_says_what_every_part_of_its_source_is(tmp_path: Path) -> None:
    """Else a run would load what an older source made."""
    parts = [tmp_path / name for name in ("one.c", "two.c")]
    names = set()
    for text in ("", " "):
        for changed in parts:
            for part in parts:
                part.write_text(text if part == changed else "")
            names.add(compiled.c_path(parts, ()))
    assert len(names | {compiled.c_path(parts, ("-O1",))}) == 4


def test_a_damaged_library_is_built_again(folder: Path) -> None:
    """Loading one that is cut short ends in SIGBUS."""
    load(folder)
    file = built(folder)
    whole = file.read_bytes()
    file.unlink()  # this process still uses it
    for left in (0, 10, 3000, -40, -1):
        file.write_bytes(whole[:left])
        assert not compiled.read(file)
    assert load(folder) == 7 and compiled.read(file)


def test_a_cache_that_others_may_write_to_is_closed_and_built_again(folder: Path) -> None:
    before = os.umask(0)
    try:
        load(folder)
    finally:
        os.umask(before)
    file = built(folder)
    for _ in range(2):
        modes = [path.stat().st_mode & 0o777 for path in (file.parent, file)]
        assert modes == [0o700, 0o600] and compiled.read(file)
        file.parent.chmod(0o777)
        file.chmod(0o666)
        assert not compiled.read(file)
        load(folder)


def test_what_belongs_to_another_user_is_not_loaded(folder, monkeypatch):
    (folder / "cache/svea").mkdir(parents=True)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(BuildError, match="belongs to another user"):
        load(folder)
    compiled.write(folder / "code", b"code")
    assert compiled.read(folder / "code") == b""


def test_a_compiler_that_does_not_answer_is_given_up_with_all_it_started(folder, monkeypatch):
    compiler = folder / "cc"
    compiler.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >{folder}/started\nwait\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setattr(compiled, "COMPILER_SECONDS", 0.5)
    with pytest.raises(BuildError, match="still compiling"):
        load(folder)
    started = int((folder / "started").read_text())
    wait_for(lambda: not alive(started))
    refusal = pytest.raises(BuildError, match="another process is still compiling")
    with files.locked(folder / "cache/svea", UserError()), refusal:
        load(folder)


def test_a_library_without_the_function_is_named(folder: Path) -> None:
    with pytest.raises(BuildError, match="theirs"):
        compiled.load_c([folder / "ours.c"], [], "theirs")


def test_a_relative_cache_is_none_and_without_a_home_the_reason_is_said(folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert compiled.path_for(["a"], "so").parent == Path.home() / ".cache/svea"

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(BuildError, match=r"home directory.*XDG_CACHE_HOME"):
        load(folder)
