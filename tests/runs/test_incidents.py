"""What a run leaves in words when something goes wrong: one line for the user, the rest on disk."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from faults.profiles import command
from tiny_runs import TINY, tiny

from svea.cli import main
from svea.core.errors import UserError, WorkerError
from svea.runs import layout
from svea.runs.records import record_incident, recording_incidents
from svea.training import train


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / layout.INCIDENTS).read_text().splitlines()]


def test_a_mistake_in_the_environment_is_one_line_and_a_traceback_in_the_folder(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command(TINY | {"task": "toy:make_broken"}, run)) == 5
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning")]
    (line,) = said
    assert line.startswith("svea: environment 0 raised ZeroDivisionError: the toy broke (")
    assert re.search(r"toy.py, line \d+, in happen\) ", line), "where in the user's code"
    assert line.endswith(f"(details: {run / layout.INCIDENTS})")
    *restarts, end = lines(run)
    assert [line["what"] for line in restarts] == ["worker restarted"]
    assert end["what"] == "run ended" and end["error"] == "RaisedError"
    for line in (restarts[0], end):
        assert "toy.py" in line["details"] and "Traceback" in line["details"]


def test_simulations_that_diverge_are_counted_and_training_goes_on(tmp_path, capsys):
    run = train(tiny(tmp_path / "run", "toy:make_diverging", decisions=20, eval_every=100))
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    episodes = [line for line in logged if line["kind"] == "episode"]
    assert [line["decision"] for line in episodes] == [4, 8, 12, 16, 20]
    assert all(line["physics_error"] == "the toy diverged" for line in episodes)
    noted = [line["what"] for line in lines(run)]
    assert noted.count("episode ended by its physics") >= 5, "evaluations meet them, too"
    assert "warning: the toy diverged. The next episode begins." in capsys.readouterr().err


def test_errors_keep_their_class_and_know_where_their_details_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    with pytest.raises(WorkerError) as caught, recording_incidents(tmp_path):
        raise WorkerError("environment 3 died")
    assert caught.value.details == tmp_path / layout.INCIDENTS
    with pytest.raises(ZeroDivisionError), recording_incidents(tmp_path):
        raise ZeroDivisionError("a mistake of ours")
    with pytest.raises(UserError), recording_incidents(tmp_path):
        raise UserError("unknown task")  # a mistake of the user is not noted
    causes = [line["cause"] for line in lines(tmp_path)]
    assert causes == ["environment 3 died", "a mistake of ours"]


def test_a_note_that_cannot_be_written_is_no_new_failure(tmp_path: Path) -> None:
    assert record_incident(tmp_path / "missing", what="x") is None
    assert record_incident(tmp_path, what="x") == tmp_path / layout.INCIDENTS
