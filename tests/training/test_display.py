"""What a run shows on a terminal, and elsewhere."""

from __future__ import annotations

import functools

import pytest
from rich.console import Console

from svea.training import display
from svea.training.display import Display


def test_without_a_terminal_every_line_has_its_place_and_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = Display("walker", decisions=1000, action_repeat=4, start=100, prefix="seed 3: ")
    with shown.show():
        shown.line("evaluation: train 5.0")
        shown.progress(200)
        shown.line("12 updates/s")
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first.startswith("seed 3: decision 100/1,000 (frame 400)  evaluation")
        and "ETA" not in first
    )
    assert second.startswith("seed 3: decision 200/1,000 (frame 800)  12 updates/s  ETA ")


def test_a_terminal_shows_a_panel_with_the_newest_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = functools.partial(Console, force_terminal=True, width=90, color_system=None)
    monkeypatch.setattr(display, "Console", terminal)
    shown = Display("svea · walker", decisions=1000, action_repeat=4)
    with shown.show():
        shown.progress(10, "saving", {"critic_loss": 0.25, "last_episode": 3.5})
        shown.line("not shown: the panel has it")
    out = capsys.readouterr().out
    assert "svea · walker" in out and "critic loss 0.25" in out and "saving" in out
    assert "not shown" not in out
