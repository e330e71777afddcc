"""Signals, the time limit and callbacks: a run that must stop saves first."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import TINY, tiny
from whole_runs import assert_same

from svea.config import flat
from svea.config.presets import as_flags
from svea.runs import checkpoint
from svea.training import Stopped, train


def test_control_c_saves_and_the_same_command_continues(tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = as_flags(flat(TINY | {"replay": 60, "out": str(run)}))
    path = os.pathsep.join(p for p in sys.path if p)
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def command(decisions: int) -> subprocess.Popen[str]:
        words = ["-m", "svea", "train", "toy:make", *flags, "--decisions", str(decisions)]
        return subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment, text=True,
        )  # fmt: skip

    first = command(100_000)
    log = run / "metrics.jsonl"
    while first.poll() is None and not (log.exists() and log.read_text().count("episode") > 4):
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 130, errors
    assert "stopped and saved at decision" in errors and "Traceback" not in errors
    saved = checkpoint.load(run)
    assert saved is not None
    length = saved.decision + 13
    second = command(length)
    output, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert f"resumed at decision {saved.decision:,}" in output
    assert_same(train(tiny(tmp_path / "whole", decisions=length, replay=60)), run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_loop_that_skips_failed_runs(number, tmp_path):
    signals = iter([number])

    def interrupt(record: dict[str, object]) -> None:
        for one in signals:
            os.kill(os.getpid(), one)

    with pytest.raises(KeyboardInterrupt) as stopped:
        for run in ("first", "second"):
            with contextlib.suppress(Exception):
                train(tiny(tmp_path / run), callback=interrupt)
    assert isinstance(stopped.value, Stopped) and stopped.value.exit_code == 128 + number
    assert checkpoint.load(tmp_path / "first") is not None
    assert not (tmp_path / "second").exists()


def test_the_time_limit_saves_and_says_so(tmp_path, capsys):
    run = train(tiny(tmp_path / "run", time_limit="0s"))
    assert "time limit: saved at decision 0" in capsys.readouterr().out
    saved = checkpoint.load(run)
    assert saved is not None and saved.decision == 0
    train(tiny(run, decisions=20))
    assert "done: 20 decisions" in capsys.readouterr().out


def test_training_from_another_thread(uninterrupted: Path, tmp_path: Path) -> None:
    """As a notebook server does; signals cannot be handled there."""
    thread = threading.Thread(target=train, args=[tiny(tmp_path / "run")])
    thread.start()
    thread.join()
    assert_same(uninterrupted, tmp_path / "run")


def test_a_callback_sees_every_line_and_what_it_raises_ends_the_run(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def broken(line: dict[str, Any]) -> None:
        seen.append(line)
        if len(seen) == 5:
            raise ZeroDivisionError

    config = tiny(tmp_path / "run")
    with pytest.raises(ZeroDivisionError):
        train(config, callback=broken)
    written = (config.folder / "metrics.jsonl").read_text().splitlines()
    assert seen == [json.loads(line) for line in written]


def test_a_callback_that_returns_false_saves_and_stops(uninterrupted, tmp_path, capsys):
    config = tiny(tmp_path / "stopped")
    train(config, callback=lambda line: line["kind"] != "train")
    assert "callback: saved at decision" in capsys.readouterr().out
    assert_same(train(config), uninterrupted)
