"""What a run leaves in words when something goes wrong: one line for the user, the rest on disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import TINY, tiny

from faults.profiles import command
from svea import files
from svea.cli import main
from svea.errors import StorageError, UserError, WorkerError
from svea.runs import checkpoint, incidents, layout, lock
from svea.training import train

torch.set_num_threads(1)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / layout.INCIDENTS).read_text().splitlines()]


def test_a_mistake_in_the_environment_is_one_line_and_a_traceback_in_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(command(TINY | {"task": "toy:make_broken"}, run)[3:]) == 5
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning")]
    assert said == [
        "svea: environment 0 raised ZeroDivisionError: the toy broke "
        f"(details: {run / layout.INCIDENTS})"
    ]
    *restarts, end = lines(run)
    assert [line["what"] for line in restarts] == ["worker restarted"]
    assert end["what"] == "run ended" and end["error"] == "RaisedError"
    for line in (restarts[0], end):
        assert "toy.py" in line["details"] and "Traceback" in line["details"]


def test_simulations_that_diverge_are_counted_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    with pytest.raises(WorkerError) as caught, incidents.recorded(tmp_path):
        raise WorkerError("environment 3 died")
    assert caught.value.details == tmp_path / layout.INCIDENTS
    with pytest.raises(ZeroDivisionError), incidents.recorded(tmp_path):
        raise ZeroDivisionError("a mistake of ours")
    assert [line["cause"] for line in lines(tmp_path)] == [
        "environment 3 died",
        "a mistake of ours",
    ]


def test_mistakes_of_the_user_are_not_noted(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    with pytest.raises(UserError), incidents.recorded(tmp_path):
        raise UserError("unknown task")
    assert not (tmp_path / layout.INCIDENTS).exists()


def test_a_note_that_cannot_be_written_is_no_new_failure(tmp_path: Path) -> None:
    assert incidents.record(tmp_path / "missing", what="x") is None
    assert incidents.record(tmp_path, what="x") == tmp_path / layout.INCIDENTS


def test_a_run_that_the_disk_has_no_room_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage._replace(free=50_000))
    with pytest.raises(
        StorageError, match=r"this run will need .* where 50000 bytes are free.*--out"
    ):
        train(tiny(tmp_path / "run", decisions=2000))


def test_the_disk_forecast_covers_what_a_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(files, "require_space", lambda path, needed, purpose: asked.append(needed))
    run = train(tiny(tmp_path / "run"))
    parts = (run / "checkpoints", run / "replay", run / "metrics.jsonl")
    written = sum(files.size_of(p) if p.is_dir() else p.stat().st_size for p in parts)
    assert written <= asked[0] < 4 * written, "three checkpoints may stand there for a moment"
    on_disk = sum(512 * path.stat().st_blocks for path in run.rglob("*"))
    assert on_disk <= files.at_most(asked[0]), "all files and folders, in whole blocks"
    train(tiny(run, decisions=45))
    assert asked[1] < asked[0], "what stands there already is not needed again"


def test_a_second_process_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with (
        lock.training(tmp_path),
        pytest.raises(UserError, match="another process is training"),
    ):
        train(tiny(tmp_path))


def test_a_checkpoint_of_another_make_is_refused_in_words(tmp_path: Path) -> None:
    """Whole by its hashes, but without what this version looks for."""
    run = train(tiny(tmp_path / "run", decisions=10, warmup=5))
    saved = checkpoint.load(run)
    assert saved is not None
    for place in (run / "checkpoints").iterdir():
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["files"]["state.json"] = files.write(place / "state.json", [b'{"updates": 1}'])
        manifest.pop("seal")
        sealed = manifest | {"seal": files.seal(manifest)}
        (place / "manifest.json").write_text(json.dumps(sealed))
    with pytest.raises(StorageError, match=r"does not fit this .*another --out"):
        train(tiny(run, decisions=20, warmup=5))
