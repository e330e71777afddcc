"""The supervisor of runs: what is done, retried, given up, and recorded."""

import functools
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_studies import write_export
from tiny_runs import TINY
from tiny_studies import importable, result, tiny_study

import svea
from svea import cli
from svea.config import flat
from svea.core.errors import SveaError, UserError, WorkerError
from svea.runs.records import read_records
from svea.studies import Grid, PlannedRun, plan_runs, read_states, read_study, supervise
from svea.studies import engines as local
from svea.studies.engines import Resources
from svea.studies.folder import read_journal, read_state, write_entry
from svea.studies.supervise import call_in_process

Step = Callable[[Path], int]


def planned(**changes: Any) -> PlannedRun:
    return plan_runs([Grid(["walker_walk"])], {"decisions": 100}, **changes)[0]


def pair(**changes: Any) -> tuple[PlannedRun, ...]:
    return plan_runs([Grid(["walker_walk"], ["svea", "drq"])], {"decisions": 100}, **changes)


def reach(decision: int, code: int = 0) -> Step:
    """A training process that gets to a decision and exits with a code."""

    def step(folder: Path) -> int:
        (folder / "checkpoints" / f"{decision:09d}").mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text("{}")
        line = {"kind": "eval", "decision": decision, "mode": "train", "return_mean": 1.0}
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return code

    return step


def exits(code: int) -> Step:
    return lambda folder: code


def raises(error: SveaError) -> Step:
    """A process of several runs, of which one ends with an error."""

    def step(folder: Path) -> int:
        run: Any = SimpleNamespace(name=folder.name)
        code = error.exit_code
        write_entry(folder.parents[1], run, event="error", code=code, reason=str(error))
        return code

    return step


def exports(*runs: PlannedRun) -> Step:
    def step(_: Path) -> int:
        for run in runs:
            write_export(run.export_folder, {"decision": 100})
        return 0

    return step


def evaluates(*modes: str, decision: int = 100, episodes: int = 1) -> Step:
    def step(folder: Path) -> int:
        line = {"policy": "agent", "decision": decision}
        lines = [line | {"mode": m, "seed": seed} for m in modes for seed in range(episodes)]
        (folder / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        return 0

    return step


class Script:
    """Stands for processes: each call does the next step of the script for every run of it.

    A step may be of some runs alone, by their names.
    """

    def __init__(self, *steps: Step | dict[str, Step]) -> None:
        self.steps, self.calls = list(steps), []  # type: ignore[var-annotated]

    def __call__(self, call: Any, log: Path, must_stop: Callable[[], bool]) -> int:
        self.calls.append(call)
        with log.open("a") as file:
            file.write(f"something\nsvea: attempt {len(self.calls)} is over\n")
        step, (study, runs) = self.steps.pop(0), call.args[:2]
        folders = [study / "runs" / run.name for run in runs]
        if isinstance(step, dict):
            return max((step[one.name](one) for one in folders if one.name in step), key=abs)
        return max(map(step, folders), key=abs)

    @property
    def names(self) -> list[str]:
        return [call.func.__name__ for call in self.calls]

    @property
    def runs(self) -> list[list[str]]:
        return [[run.name for run in call.args[1]] for call in self.calls]


def bring(study: Path, run: PlannedRun, attempts: int = 3, **options: Any) -> str:
    return supervise.supervise(study, [run], attempts, **options)[0]


def ends(study: Path, run: PlannedRun, what: str = "outcome") -> list[str]:
    entries = read_journal(study / "journal" / f"{run.name}.jsonl")
    return [entry[what] for entry in entries if entry["event"] == "end"]


INTERRUPTED = [reach(20, 0), reach(40, 130), reach(60, 143), reach(80, 0), reach(100)]


@pytest.mark.parametrize(
    ("attempts", "steps", "outcomes"),
    [
        (1, [reach(100)], ["done"]),
        (1, INTERRUPTED, ["stopped"] * 4 + ["done"]),  # 0 before the end is a time limit
        (2, [exits(143), exits(0)], ["failed"] * 2),  # stopping without getting anywhere
        (3, [exits(2)], ["refused"]),  # bad input is not tried again by itself
    ],
)
def test_how_attempts_end_and_a_finished_run_is_left_as_it_is(attempts, steps, outcomes, tmp_path):
    run = planned()
    state = "done" if "done" in outcomes else "failed"
    assert bring(tmp_path, run, attempts, execute=Script(*steps)) == state
    assert ends(tmp_path, run) == outcomes
    again = [] if state == "done" or attempts == 2 else [reach(100)]  # bad input is, when asked
    assert bring(tmp_path, run, attempts, execute=Script(*again)) == ("done" if again else state)


def test_what_fails_is_tried_again_up_to_the_budget(tmp_path):
    run = planned()
    script = Script(exits(3), reach(40, code=5), exits(-9), exits(4))
    assert bring(tmp_path, run, attempts=3, execute=script) == "failed"
    assert ends(tmp_path, run) == ["failed"] * 3
    state = read_state(tmp_path, run, attempts=3)
    assert (state.state, state.reason) == ("failed", "ended by SIGKILL")
    assert ends(tmp_path, run, "reason")[0] == "exit code 3: svea: attempt 1 is over"
    assert bring(tmp_path, run, attempts=3, execute=Script()) == "failed", "the budget is spent"
    assert bring(tmp_path, run, attempts=4, execute=Script(reach(100))) == "done"


def test_after_training_come_export_evaluation_and_analysis(tmp_path):
    episodes = {"default": 1, "color_hard": "all"}
    run = planned(
        modes=["train", "color_hard"], episodes=episodes, analyses=["q-gap"],
        export=tmp_path / "exports",
    )  # fmt: skip

    def analyses(folder: Path) -> int:
        (folder / "analysis").mkdir()
        (folder / "analysis" / "q-gap.json").write_text("{}")
        return 0

    plays = evaluates("train", "color_hard", episodes=100)
    script = Script(reach(100), exports(run), plays, analyses)
    assert bring(tmp_path, run, execute=script) == "done"
    assert script.names == ["train", "export", "evaluate", "analyse"]
    assert script.calls[2].args[2:] == (("train", "color_hard"), 1)
    assert script.calls[3].args[2] == ("q-gap",)
    assert bring(tmp_path, run, execute=Script()) == "done", "nothing is done twice"


def test_what_fails_after_training_does_not_keep_the_rest_from_being_done(tmp_path):
    """And costs nothing of the attempts at training; the same command tries it again."""
    run = planned(modes=["train"], export=tmp_path / "exports", episodes=1)
    script = Script(exits(4), reach(100), exits(2), evaluates("train"))
    assert bring(tmp_path, run, attempts=2, execute=script) == "failed"
    assert script.names == ["train", "train", "export", "evaluate"]
    for _ in range(2):
        assert bring(tmp_path, run, attempts=1, execute=Script(exits(4))) == "failed"
        state = read_state(tmp_path, run, attempts=1)
        assert state.state == "failed" and state.is_tried_again and "exit code 4" in state.reason
    assert state.failures == 2
    assert state.progress.left["evaluated"] == () and state.progress.left["exported"]
    assert bring(tmp_path, run, attempts=1, execute=Script(exports(run))) == "done"


@pytest.mark.parametrize("reached", [60, 100])
def test_the_time_of_a_study_is_for_training(tmp_path, reached):
    run, up = planned(modes=["train"], episodes=1), threading.Event()

    def stops(folder: Path) -> int:
        up.set()
        return reach(reached)(folder)

    script = Script(stops, evaluates("train"))
    state = bring(tmp_path, run, execute=script, time_is_up=up.is_set)
    assert state == ("queued" if reached == 60 else "done")
    if state == "queued":
        assert ends(tmp_path, run) == ["stopped"]
        assert bring(tmp_path, run, execute=Script(reach(100), evaluates("train"))) == "done"


def test_a_cancelled_study_is_not_begun_and_not_a_failure(tmp_path):
    run = planned()
    (tmp_path / "cancel").touch()
    assert bring(tmp_path, run, execute=Script()) == "queued"
    (tmp_path / "cancel").unlink()

    def is_cancelled_meanwhile(folder: Path) -> int:
        (tmp_path / "cancel").touch()
        return 143

    script = Script(is_cancelled_meanwhile)
    assert bring(tmp_path, run, attempts=1, execute=script) == "queued"
    assert ends(tmp_path, run) == ["stopped"]


def test_two_processes_do_not_work_on_one_run(tmp_path, monkeypatch):
    run = planned()
    begun, go_on = threading.Event(), threading.Event()

    def slowly(folder: Path) -> int:
        begun.set()
        go_on.wait(30)
        return reach(100)(folder)

    worker = threading.Thread(
        target=bring, args=(tmp_path, run), kwargs={"execute": Script(slowly)}
    )
    worker.start()
    assert begun.wait(30)
    assert read_state(tmp_path, run).state == "running"
    monkeypatch.setattr(supervise, "LOCK_SECONDS", 0.0)
    assert bring(tmp_path, run, execute=Script()) == "running"
    go_on.set()
    worker.join()
    assert bring(tmp_path, run, execute=Script()) == "done"


# Runs that share processes ------------------------------------------------------------------------


def test_runs_train_in_one_process_and_one_that_fails_again_alone(tmp_path):
    first, second = pair()
    broken = WorkerError("the arm fell off")
    script = Script({first.name: raises(broken), second.name: reach(100)}, reach(100))
    assert supervise.supervise(tmp_path, [first, second], execute=script) == ["done", "done"]
    assert script.runs == [[first.name, second.name], [first.name]]
    assert ends(tmp_path, first) == ["failed", "done"]
    assert ends(tmp_path, first, "reason")[0] == "exit code 5: the arm fell off"
    assert ends(tmp_path, second) == ["done"]
    note = (tmp_path / "journal" / f"{second.name}.log").read_text()
    assert note == f"trained together with {first.name}: its lines are in {first.name}.log\n"


def test_one_that_is_refused_is_not_tried_again_and_a_kill_is_a_failed_attempt_of_all(tmp_path):
    first, second = pair()
    script = Script({first.name: raises(UserError("no such task")), second.name: reach(100)})
    assert supervise.supervise(tmp_path, [first, second], execute=script) == ["failed", "done"]
    assert ends(tmp_path, first, "reason") == ["exit code 2: no such task"]
    script = Script(exits(-9), reach(100))
    supervise.supervise(tmp_path / "2", [first, second], execute=script)
    for run in (first, second):
        assert ends(tmp_path / "2", run) == ["failed", "done"]
        assert ends(tmp_path / "2", run, "reason") == ["ended by SIGKILL", ""]


@pytest.mark.parametrize("jobs", [1, 8])
def test_trained_runs_are_exported_by_one_process_and_evaluated_by_another(tmp_path, jobs):
    runs = pair(modes=["train", "color_hard"], episodes=1, export=tmp_path / "exports")
    for run in runs:
        reach(100)(tmp_path / "runs" / run.name)

    script = Script(exports(*runs), evaluates("train", "color_hard"))
    assert supervise.supervise(tmp_path, runs, execute=script, at_once=jobs) == ["done", "done"]
    assert script.names == ["export", "evaluate"]
    assert [len(call.args[1]) for call in script.calls] == [2, 2]
    assert script.calls[1].args[3] == min(jobs, 4), "two runs in two modes"


def test_runs_that_are_evaluated_otherwise_have_a_process_of_their_own(tmp_path):
    grids = [Grid(["walker_walk"], seeds="0-1"), Grid(["robot_push"], seeds="0-1")]
    runs = plan_runs(grids, {"decisions": 100}, modes=["usual"], episodes=1)
    for run in runs:
        reach(100)(tmp_path / "runs" / run.name)
    script = Script(evaluates("train", "color_hard"), evaluates("train", "test"))
    assert supervise.supervise(tmp_path, runs, execute=script) == ["done"] * 4
    assert [call.args[2] for call in script.calls] == [("train", "color_hard"), ("train", "test")]


# Processes ----------------------------------------------------------------------------------------


def saves(note: Path) -> None:
    """A call of a process that saves when it is asked to stop."""

    def save(number: int, frame: object) -> None:
        note.write_text("saved")
        sys.exit(143)

    signal.signal(signal.SIGTERM, save)
    note.write_text("training")
    time.sleep(60)


def test_a_process_is_asked_to_stop_and_its_code_comes_back(tmp_path, monkeypatch):
    importable(monkeypatch)
    note, log = tmp_path / "note", tmp_path / "log"

    def must_stop() -> bool:
        return note.exists() and note.read_text() == "training"

    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    assert call_in_process(functools.partial(saves, note), log, must_stop, locks=[lock]) == 143
    os.close(lock)
    assert note.read_text() == "saved"
    refused = functools.partial(svea.configure, "no_such_task")
    assert call_in_process(refused, log, lambda: False) == 2
    assert log.read_text().startswith("svea: unknown task 'no_such_task'")


def tiny_values(**changes: Any) -> dict[str, Any]:
    return flat({k: v for k, v in TINY.items() if k != "method"} | changes)


@pytest.mark.slow
def test_one_command_trains_exports_and_evaluates(tmp_path, monkeypatch, capsys):
    importable(monkeypatch)
    monkeypatch.chdir(tmp_path)
    words = [
        "sweep", "--tasks", "toy:make", "--seeds", "0-1", "--together", "2", "--out", "study",
        "--modes", "all", "--episodes", "1", "picture_colors=3", "--export", "exports",
        "--set", *(f"{name}={value}" for name, value in tiny_values().items()),
    ]  # fmt: skip
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "2 runs: 0 queued, 0 running, 2 done, 0 failed" in shown
    assert f"exported: 2 of 2 agents, to {tmp_path / 'exports'}" in shown
    journals = {path: path.read_text() for path in Path("study/journal").iterdir()}
    for run in read_study(Path("study")).runs:
        kept = Path("exports") / run.name
        played = [record["mode"] for record in read_records(Path("study/runs") / run.name)]
        assert sorted(played) == ["picture_colors"] * 3 + ["picture_video", "train"]
        assert svea.load_agent(kept).decision == 40
        assert {path.name for path in kept.iterdir()} == {"actor.safetensors", "config.json"}
    assert cli.main(words) == 0
    assert {path: path.read_text() for path in Path("study/journal").iterdir()} == journals
    capsys.readouterr()
    assert cli.main(["sweep", "export", "study", run.name]) == 0
    there = tmp_path / "exports" / run.name
    assert capsys.readouterr().out == f"{run.name} is already exported to {there}\n"
    shutil.rmtree(kept)
    assert cli.main(["sweep", "export", "study", run.name]) == 0 and kept.exists()


@pytest.mark.slow
def test_different_runs_stopped_and_continued_are_the_runs_alone(tmp_path, monkeypatch):
    importable(monkeypatch)
    grids = [Grid(["toy:make"], ["svea"]), Grid(["toy:make_terminating"], ["drq"], seeds="3")]
    runs = plan_runs(grids, tiny_values(decisions=150, save_every=50, eval_every=75))
    alone = tiny_study(tmp_path / "alone", *runs)
    local.run_study(alone, runs, Resources(jobs=2), lambda: None)
    study = tiny_study(tmp_path / "study", *runs)

    def begun() -> bool:
        logs = [study.folder / "runs" / run.name / "metrics.jsonl" for run in runs]
        return all(log.exists() and '"decision": 1' in log.read_text() for log in logs)

    supervise.supervise(study.folder, runs, must_stop=begun)
    states = read_states(study)
    assert [state.state for state in states] == ["queued", "queued"]
    assert all(0 < state.progress.decision < 150 for state in states), "both are on their way"
    local.run_study(study, runs, Resources(together=2), lambda: None)
    assert [state.state for state in read_states(study)] == ["done", "done"]
    assert [result(study, run) for run in runs] == [result(alone, run) for run in runs]
    log = (study.folder / "journal" / f"{runs[0].name}.log").read_text()
    assert "toy:make svea s0: stopped and saved at decision" in log
    assert "toy:make_terminating drq s3: done: 150 decisions" in log
