"""Children end with their parent, are asked once to stop, and say how they died."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import wait_for

from svea.core import process
from svea.core.errors import RendererError, WorkerError

SAVER = """
import signal, sys, time
from pathlib import Path

def save(number, frame):
    time.sleep(0.5)  # a second SIGTERM would come now
    Path(sys.argv[-1]).write_text("saved")
    sys.exit(143)

def main(*arguments):
    signal.signal(signal.SIGTERM, save)
    Path(arguments[-1]).write_text("training")
    time.sleep(60)

def undrawable():
    from svea.core.errors import RendererError
    raise RendererError("nothing is drawn")
"""


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the module `saver`, which children can import, writes into."""
    (tmp_path / "saver.py").write_text(SAVER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return tmp_path / "note"


def test_when_the_parent_dies_a_child_saves_and_ends(note: Path) -> None:
    code = (
        "import signal, time; from svea.core.process import start\n"
        f"start('saver:main', {str(note)!r}, with_parent=signal.SIGTERM); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: note.exists() and note.read_text() == "training")
    parent.kill()
    parent.wait()
    wait_for(lambda: note.read_text() == "saved")


def test_a_child_that_does_not_end_is_killed(note: Path) -> None:
    child = process.start("time:sleep", variables={"x": "y"})  # without seconds: it raises
    assert child.end(30) == 1
    child = process.start("signal:pause")
    assert os.getsid(child.pid) == child.pid, "Ctrl-C must reach the parent alone"
    assert child.end(0.1) == -signal.SIGKILL
    child = process.start("signal:pause")
    process.kill_all()
    assert child.wait(30) == -signal.SIGKILL


def test_a_program_that_hangs_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    assert process.run(["sh", "-c", "sleep 60 & wait"], 0.3) is None
    assert time.monotonic() - began < 30, "its own child would hold the pipe open"
    done = process.run(["sh", "-c", "echo a; exit 3"], 30)
    assert done and (done.returncode, done.stdout) == (3, "a\n")


def test_what_goes_wrong_in_another_process_is_told(note: Path) -> None:
    assert process.ask("os.path:basename", "/a/b", seconds=30) == "b"
    with pytest.raises(RendererError, match="nothing is drawn"):
        process.ask("saver:undrawable", seconds=30)
    with pytest.raises(WorkerError, match="SIGABRT"):
        process.ask("os:abort", seconds=30)
    with pytest.raises(WorkerError, match=r"exit code 1: .*no_such_module"):
        process.ask("no_such_module:f", seconds=30)
    with pytest.raises(WorkerError, match=r"0\.2 s"):
        process.ask("signal:pause", seconds=0.2)
