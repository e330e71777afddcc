"""Signals and the time limit: a run that must stop saves first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from tiny_runs import tiny
from whole_runs import assert_same

from svea.runs import checkpoint
from svea.training import Stopped, train

torch.set_num_threads(1)


def test_control_c_saves_and_the_same_command_continues(tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = (
        "--image-size 16 --shift 1 --network.layers 2 --network.filters 4 --network.projection 8 "
        "--network.hidden 16 --batch-size 8 --warmup 12 --episode-frames 10 --eval-every 15 "
        "--eval-episodes 2 --eval-envs 1 --log-every 7 --save-every 10 --device cpu "
        f"--precision float32 --replay 60 --out {run}"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def command(decisions: int) -> subprocess.Popen[str]:
        words = f"-m svea train toy:make {flags} --decisions {decisions}".split()
        return subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )

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
def test_a_signal_ends_a_loop_that_skips_failed_runs(
    number: signal.Signals, tmp_path: Path
) -> None:
    came: list[int] = []

    def interrupt(record: dict[str, object]) -> None:
        if not came:
            came.append(number)
            os.kill(os.getpid(), number)

    def loop() -> None:
        for run in ("first", "second"):
            try:
                train(tiny(tmp_path / run), callback=interrupt)
            except Exception:
                continue

    with pytest.raises(KeyboardInterrupt) as stopped:
        loop()
    assert isinstance(stopped.value, Stopped) and stopped.value.exit_code == 128 + number
    assert checkpoint.load(tmp_path / "first") is not None
    assert not (tmp_path / "second").exists()


def test_the_time_limit_saves_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
