"""Tables as a terminal and as a pipe see them."""

from __future__ import annotations

import functools
import re

import pytest
from rich.console import Console

from svea.cli import terminal

ROWS = [
    {"run": "walker_walk-svea-augmented-target-overlay-s0", "mean ± std": "760 ± 145", "n": 5},
    {"run": "drq", "mean ± std": "–", "n": 1},
]


def test_elsewhere_every_row_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_table(ROWS)
    head, first, second = capsys.readouterr().out.splitlines()
    assert re.split("  +", head) == ["run", "mean ± std", "n"]
    assert re.split("  +", first) == [str(value) for value in ROWS[0].values()]
    assert second.index("–") == head.index("mean")


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.Steps("episodes", 60) as steps:
        steps.begin("loading")
        steps.finish("evaluating in train")  # seconds later: nothing new is worth a line
        monkeypatch.setattr(terminal, "LINE_SECONDS", -1.0)
        steps.finish("evaluating in color_hard")
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == [
        "loading: 0 of 60 episodes done",
        "evaluating in color_hard: 2 of 60 episodes done",
    ]


def test_progress_is_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = functools.partial(Console, force_terminal=True, width=90, color_system=None)
    monkeypatch.setattr(terminal, "Console", made)
    with terminal.Steps("episodes", 60) as steps:
        steps.finish("evaluating in train")
    out, err = capsys.readouterr()
    assert out == "" and "evaluating in train" in err and "1/60" in err and "done" not in err


def test_a_narrow_terminal_folds_names_and_never_cuts_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = functools.partial(Console, force_terminal=True, width=40, color_system=None)
    monkeypatch.setattr(terminal, "Console", narrow)
    terminal.print_table(ROWS)
    shown = capsys.readouterr().out
    lines = re.sub(r"\x1b\[\d*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 40 and "…" not in shown
    start = next(n for n, line in enumerate(lines) if "walker" in line)
    end = next(n for n, line in enumerate(lines) if "drq" in line)
    name = "".join(line[: lines[start].index("760")].strip() for line in lines[start:end])
    assert name == ROWS[0]["run"]
