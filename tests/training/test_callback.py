"""A user's own function sees the log as it is written, and may stop the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import tiny
from whole_runs import assert_same

from svea.training import train


def test_a_callback_sees_every_line(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    run = train(tiny(tmp_path / "run"), callback=seen.append)
    written = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert seen == written and {"train", "eval"} <= {line["kind"] for line in seen}


def test_a_callback_that_returns_false_saves_and_stops_and_the_run_can_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny(tmp_path / "stopped")
    seen: list[int] = []

    def stop(line: dict[str, Any]) -> bool:
        seen.append(line["decision"])
        return line["kind"] != "train"

    train(config, callback=stop)
    assert seen[-1] < config.decisions
    assert "callback: saved at decision" in capsys.readouterr().out
    assert_same(train(config), train(tiny(tmp_path / "whole")))


def test_what_a_callback_raises_ends_the_run(tmp_path: Path) -> None:
    def broken(line: dict[str, Any]) -> None:
        raise ZeroDivisionError("theirs")

    with pytest.raises(ZeroDivisionError, match="theirs"):
        train(tiny(tmp_path / "run"), callback=broken)
