"""What a run shows on a terminal, and elsewhere."""

import functools
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny_runs import tiny

from svea.config import configure
from svea.core.given import name_task
from svea.training import display, train
from svea.training.display import Display, next_commands, run_names


def display_of(warmup: int = 1, **options: Any) -> Display:
    config = configure("walker_walk", decisions=1000, warmup=warmup, out="my runs/a")
    return Display(config, **options)


@pytest.mark.parametrize(("warmup", "start"), [(490, 0), (490, 100), (20, 490)])
def test_lines_of_a_log_file_have_place_and_time_left(warmup, start, capsys, monkeypatch):
    """Told by decisions after the warm-up and compiling; a log file is never silent for long."""
    times = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: times[-1])
    shown = display_of(warmup, start=start, name="walker s3")
    with shown.show():
        shown.evaluation(100, {"train": 5.0}, 1)
    for decision, now in ((400, 4.0), (500, 5.0), (600, 15.0)):  # 100 a second, then 10
        times.append(now)
        shown.progress(decision)
        shown.line("12 updates/s")
    shown.progress(600, "evaluating in train")
    times.append(times[-1] + display.QUIET_SECONDS + 1)
    shown.progress(600, "evaluating in train")
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first.startswith("walker s3: decision 100/1,000 (frame 400)  evaluation: train 5.0")
    assert [line.partition("  ")[2] for line in lines] == [*["12 updates/s"] * 2,
                                                           "12 updates/s  ETA 40 s"]  # fmt: skip
    assert last.startswith("walker s3: decision 600/1,000 (frame 2,400)  evaluating in train")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    made = functools.partial(Console, force_terminal=True, width=90, color_system=None)
    monkeypatch.setattr(display, "console", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("terminal")
def test_a_terminal_shows_a_panel_and_evaluations_and_the_end_stay(capsys):
    shown = display_of()
    with shown.show():
        shown.evaluation(500, {"train": 25.6, "color_hard": 8.0}, 6)
        shown.evaluation(1000, {"train": 40.0, "color_hard": 30.0}, 6)
        shown.progress(1000, "saving", {"critic_loss": 0.25, "last_episode": 3.5})
        shown.line("not shown: the panel has it")
    shown.done()
    out = capsys.readouterr().out
    assert (
        "svea · walker_walk · svea · seed 0" in out
        and "critic loss 0.25" in out
        and "saving" in out
    )
    assert "not shown" not in out
    lines = [line.rstrip() for line in out.splitlines()]
    stays = "decision 500/1,000 (frame 2,000)  evaluation: train 25.6, color_hard 8.0"
    assert any(stays in line for line in lines)
    done, then = lines[-2:]
    assert "done: 1,000 decisions in my runs/a; last returns: train 40.0, color_hard 30.0" in done
    assert "`svea eval 'my runs/a'`, `svea report 'my runs/a'`" in then


def test_rows_of_the_panel_have_lines_of_their_own_and_leave_room_for_the_echo_of_ctrl_c() -> None:
    """A bar as wide as the panel pushed the returns out of sight, an echo tore the panel."""
    shown = display_of()
    shown.progress(500, values={"return_train": 25.6, "return_color_hard": 8.0, "q_mean": 1.5})
    shown.progress(500, values={"critic_loss": 0.25})
    shown.console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    shown.console.print(shown)
    lines = shown.console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    rows = [row.strip("│ ") for row in lines]
    assert "return train 25.6  return color hard 8  q mean 1.5" in rows
    assert any(set(row) <= set("━╸╺ ") and row for row in rows), "the bar, alone"
    assert "critic loss 0.25" in rows
    assert max(map(len, lines)) <= 60 - len("^C")


def test_evaluations_and_owed_updates_show_their_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(display, "QUIET_SECONDS", -1.0)
    run = train(tiny(tmp_path / "run", episode_frames=1))
    out = capsys.readouterr().out
    assert "decision 0/40 (frame 0)  evaluating in train: 1 of 2 episodes\n" in out
    assert "warm-up: 4 updates to go" in out
    assert f"next: `svea eval {run} --trust`" in out


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([{"seed": 1}, {"seed": 2}], ["toy:make svea s1", "toy:make svea s2"]),
        ([{"method": "drq", "augment": "none"}, {}], ["toy:make drq s0", "toy:make svea s0"]),
        (
            [{"augment": "overlay"}, {"augment": "conv"}, {"task": "toy:make_terminating"}],
            ["toy:make svea overlay s0", "toy:make svea conv s0", "toy:make_terminating svea s0"],
        ),
        (
            [{"recipe": {"K": 2}}, {"envs": 2}],
            ["toy:make svea envs=1 recipe.K=2 s0", "toy:make svea envs=2 recipe.K=1 s0"],
        ),
    ],
)
def test_runs_of_one_process_are_told_apart(runs, names, tmp_path):
    assert run_names([tiny(tmp_path, **run) for run in runs]) == names


def test_after_training_on_a_function_the_next_command_is_one_that_works() -> None:
    task = name_task(lambda: None)  # type: ignore[arg-type, return-value]
    assert "`svea.evaluate('my runs/a', modes=" in next_commands(tiny(Path("my runs/a"), task))
