"""Tables as a terminal and as a pipe see them."""

import functools
import re

import pytest
from rich.console import Console

from svea.cli import printing
from svea.core import terminal


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


ROWS = [
    {"run": "walker_walk-svea-augmented-target-overlay-s0", "mean ± std": "760 ± 145", "n": 5},
    {"run": "drq", "mean ± std": "–", "n": 1},
]


def test_elsewhere_every_row_is_one_plain_line(capsys):
    printing.print_table(ROWS)
    head, first, second = capsys.readouterr().out.splitlines()
    assert re.split("  +", head) == ["run", "mean ± std", "n"]
    assert re.split("  +", first) == [str(value) for value in ROWS[0].values()]
    assert second.index("–") == head.index("mean")


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
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


def test_progress_is_a_bar_on_a_terminal(monkeypatch, capsys):
    made = functools.partial(Console, force_terminal=True, width=90, color_system=None)
    monkeypatch.setattr(terminal, "console", lambda stderr=False: made(stderr=stderr))
    with terminal.Steps("episodes", 60) as steps:
        steps.finish("evaluating in [train]")
        print("a result")  # into its pipe, not onto the bar's terminal
    out, err = capsys.readouterr()
    assert out == "a result\n" and "done" not in err
    assert "evaluating in [train]" in err and "1/60" in err


def test_what_is_mostly_quick_is_said_only_if_it_takes_long(monkeypatch, capsys):
    with terminal.Steps("pages") as steps:
        steps.doing("reading runs")
        monkeypatch.setattr(terminal, "LINE_SECONDS", -1.0)
        steps.doing("drawing figures")
    assert capsys.readouterr().err == "drawing figures\n"


@pytest.mark.parametrize("width", [120, 56, 55])
def test_names_stay_in_one_piece_on_a_terminal(width, monkeypatch, capsys):
    made = Console(force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(printing, "console", lambda: made)
    printing.print_table(ROWS)
    shown = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, shown)) <= width
    lines = [line.rstrip() for line in shown]
    assert sum(ROWS[0]["run"] in line for line in lines) == 1
    is_table = any("───" in line for line in lines)
    assert is_table == (width > 55)
    if not is_table:  # each row is a paragraph
        assert lines[1:4] == ["mean ± std 760 ± 145", "n          5", ""]
    assert any(line.endswith(" 5") for line in lines)  # the last column is there


def test_no_column_is_cut_off_where_all_can_be_narrow_enough(monkeypatch, capsys):
    modes = {"color hard": "963", "video easy": "629", "video hard": "86"}
    monkeypatch.setattr(printing, "console", lambda: Console(force_terminal=True, width=60))
    printing.print_table([{"agent": "zoo:ball_in_cup_catch-svea-drift", **modes}])
    shown = capsys.readouterr().out
    assert shown.count("hard") == 2 and shown.count("video") == 2 and "…" not in shown
