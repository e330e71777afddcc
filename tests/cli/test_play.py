"""`svea play`: mistakes are named before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra play")

from svea.cli import main
from svea.cli import play as verb
from svea.errors import UserError


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "1 to 4"),
        (["zoo:walker_walk-svea"] * 5, "1 to 4"),
        (["--random"], "needs a task"),
        (["--random", "--task", "walker_wlak"], "walker_walk"),
        (["zoo:no_such"], "no_such"),
        (["no/such/run"], "config.json"),
        (["zoo:walker_walk-svea", "--port", "70000"], "65535"),
        (["zoo:walker_walk-svea", "--pages", "0"], "1 to 16"),
        (["zoo:walker_walk-svea", "--envs", "-1"], "0 (one per core)"),
        (["zoo:walker_walk-svea", "--setting", "$(reboot)"], "mode=video_hard"),
        (["zoo:walker_walk-svea", "--host", "203.0.113.7"], "address of this machine"),
        (["zoo:walker_walk-svea", "--data-dir", "no/such"], "no/such"),
    ],
)
def test_mistakes_end_with_a_message(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["play", *arguments, "--no-browser"]) == 2
    assert said in capsys.readouterr().err


def test_other_machines_are_let_in_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from svea.evidence.playground import server

    async def serve(made: Any, playground: Any, socket: Any, ready: Any) -> None:
        ready()

    monkeypatch.setattr(server, "serve", serve)
    given = ["play", "--random", "--task", "walker_walk", "--no-browser"]
    assert main([*given, "--host", "0.0.0.0", "--setting", "http://x/#noise=0.1&mode=train"]) == 0
    said = capsys.readouterr()
    assert "anyone who can reach this machine" in said.err
    assert "#noise=0.1&mode=train" in said.out and "http://127.0.0.1:" in said.out
    assert main(given) == 0
    assert "warning" not in capsys.readouterr().err


def test_without_the_extra_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import sys

    monkeypatch.setitem(sys.modules, "starlette", None)
    assert main(["play", "zoo:walker_walk-svea"]) == 2
    assert "pip install '.[play]'" in capsys.readouterr().err


def test_seats_are_what_was_typed(tmp_path: Path):
    seats = verb.make_seats(["zoo:walker_walk-svea"], True, "", "cpu", "", 3)
    assert [seat["run"] for seat in seats] == ["zoo:walker_walk-svea", ""]
    assert seats[1]["task"] == "walker_walk" and {seat["rows"] for seat in seats} == {3}
    with pytest.raises(UserError):
        verb.fragment("#" + "a=" + "x" * 3000)
