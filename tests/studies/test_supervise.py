"""The supervisor of a run: what is done, retried, given up, and recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_studies import write_export

from svea.studies import Grid, PlannedRun, plan_runs, read_journal, read_state, supervise
from svea.studies.supervise import supervise_run

Step = Callable[[Path], int]


def planned(save_replay: bool = True, **changes: Any) -> PlannedRun:
    values = {"decisions": 100, "save_replay": save_replay}
    return plan_runs([Grid(["walker_walk"])], values, **changes)[0]


def reach(decision: int, code: int = 0) -> Step:
    """A training process that gets to a decision and exits with a code."""

    def step(folder: Path) -> int:
        (folder / "checkpoints" / f"{decision:09d}").mkdir(parents=True, exist_ok=True)
        line = {"kind": "eval", "decision": decision, "mode": "train", "return_mean": 1.0}
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return code

    return step


def exits(code: int) -> Step:
    return lambda folder: code


class Script:
    """Stands for the processes of a run: each command does the next step of the script."""

    def __init__(self, *steps: Step) -> None:
        self.steps, self.commands = list(steps), []  # type: ignore[var-annotated]

    def __call__(self, command: list[str], log: Path, must_stop: Callable[[], bool]) -> int:
        self.commands.append(command)
        folder = Path(command[1] if command[0] == "eval" else command[-1])
        with log.open("a") as file:
            file.write(f"something\nsvea: attempt {len(self.commands)} is over\n")
        return self.steps.pop(0)(folder)


def outcomes(study: Path, run: PlannedRun) -> list[str]:
    entries = read_journal(study / "journal" / f"{run.name}.jsonl")
    assert [entry["event"] for entry in entries] == ["start", "end"] * (len(entries) // 2)
    return [entry["outcome"] for entry in entries[1::2]]


def test_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    run = planned()
    assert supervise_run(tmp_path, run, execute=Script(reach(100))) == "done"
    assert supervise_run(tmp_path, run, execute=Script()) == "done"
    assert outcomes(tmp_path, run) == ["done"]


def test_what_fails_is_tried_again_up_to_the_budget(tmp_path: Path) -> None:
    run = planned()
    script = Script(exits(3), reach(40, code=5), exits(-9), exits(4))
    assert supervise_run(tmp_path, run, attempts=3, execute=script) == "failed"
    assert outcomes(tmp_path, run) == ["failed"] * 3
    state = read_state(tmp_path, run, attempts=3)
    assert (state.state, state.reason) == ("failed", "ended by SIGKILL")
    assert supervise_run(tmp_path, run, attempts=3, execute=Script()) == "failed", (
        "the budget is spent"
    )
    assert supervise_run(tmp_path, run, attempts=4, execute=Script(reach(100))) == "done"


def test_the_last_line_of_the_output_says_why(tmp_path: Path) -> None:
    run = planned()
    supervise_run(tmp_path, run, attempts=1, execute=Script(exits(4)))
    assert read_state(tmp_path, run, 1).reason == "exit code 4: svea: attempt 1 is over"


def test_bad_input_is_not_tried_again_by_itself_but_when_asked(tmp_path: Path) -> None:
    run = planned()
    assert supervise_run(tmp_path, run, execute=Script(exits(2))) == "failed"
    assert outcomes(tmp_path, run) == ["refused"]
    assert supervise_run(tmp_path, run, execute=Script(reach(100))) == "done"


@pytest.mark.parametrize("code", [0, 130, 143])
def test_an_interrupted_run_goes_on_and_does_not_count_as_failed(tmp_path: Path, code: int) -> None:
    """Code 0 before the end is a time limit."""
    run = planned()
    script = Script(reach(20, code), reach(40, code), reach(60, code), reach(80, code), reach(100))
    assert supervise_run(tmp_path, run, attempts=1, execute=script) == "done"
    assert outcomes(tmp_path, run) == ["stopped"] * 4 + ["done"]


def test_stopping_without_getting_anywhere_is_failing(tmp_path: Path) -> None:
    run = planned()
    assert (
        supervise_run(tmp_path, run, attempts=2, execute=Script(exits(143), exits(0))) == "failed"
    )


def test_after_training_missing_modes_are_evaluated_and_analyses_made(tmp_path: Path) -> None:
    episodes = {"default": 1, "color_hard": "all"}
    run = planned(modes=["train", "color_hard"], episodes=episodes, analyses=["q-gap"])

    def evaluates(folder: Path) -> int:
        line = {"policy": "agent", "decision": 100, "mode": "train", "seed": 1}
        lines = [line, *(line | {"mode": "color_hard", "seed": seed} for seed in range(100))]
        (folder / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        return 0

    def analyses(_: Path) -> int:
        (tmp_path / "runs" / run.name / "analysis").mkdir()
        (tmp_path / "runs" / run.name / "analysis" / "q-gap.json").write_text("{}")
        return 0

    script = Script(reach(100), evaluates, analyses)
    assert supervise_run(tmp_path, run, execute=script) == "done"
    assert [command[0] for command in script.commands] == ["train", "eval", "analyze"]
    _, evaluation, analysis = script.commands
    assert evaluation[3:8] == ["train", "color_hard", "--episodes", "train=1", "color_hard=all"]
    assert analysis[1:3] == ["q-gap", str(tmp_path / "runs" / run.name)]


def test_after_training_the_agent_is_exported_before_it_is_evaluated(tmp_path: Path) -> None:
    run = planned(modes=["train"], episodes=1, export=tmp_path / "exports")

    def trains(folder: Path) -> int:
        reach(100)(folder)
        (folder / "config.json").write_text('{"task": "walker_walk", "command": "svea sweep"}')
        return 0

    def exports(_: Path) -> int:
        write_export(run.export_folder, {"task": "walker_walk", "decision": 100})
        return 0

    def evaluates(folder: Path) -> int:
        line = {"policy": "agent", "decision": 100, "mode": "train", "seed": 1}
        (folder / "eval.jsonl").write_text(json.dumps(line) + "\n")
        return 0

    script = Script(trains, exports, evaluates)
    assert supervise_run(tmp_path, run, execute=script) == "done"
    assert script.commands[1] == [
        "export", str(tmp_path / "runs" / run.name), str(tmp_path / "exports" / run.name), "--small"
    ]  # fmt: skip
    assert supervise_run(tmp_path, run, execute=Script()) == "done", "nothing is done twice"


def test_an_export_that_fails_does_not_keep_the_agent_from_being_evaluated(tmp_path: Path) -> None:
    run = planned(modes=["train"], episodes=1, export=tmp_path / "exports")
    script = Script(reach(100), exits(2), evaluates(100))
    assert supervise_run(tmp_path, run, execute=script) == "failed"
    assert [command[0] for command in script.commands] == ["train", "export", "eval"]
    state = read_state(tmp_path, run)
    assert state.progress.missing_modes == () and state.progress.missing_export
    assert (state.refused, state.reason) == (True, "exit code 2: svea: attempt 2 is over")


def test_an_export_that_failed_is_tried_again_by_the_same_command(tmp_path: Path) -> None:
    """Training is done: the attempts at it say nothing about a full disk."""
    run = planned(modes=["train"], episodes=1, export=tmp_path / "exports")

    def trains(folder: Path) -> int:
        (folder / "config.json").parent.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        return reach(100)(folder)

    script = Script(trains, exits(4), evaluates(100))
    assert supervise_run(tmp_path, run, attempts=1, execute=script) == "failed"
    for _ in range(2):
        assert supervise_run(tmp_path, run, attempts=1, execute=Script(exits(4))) == "failed"
        state = read_state(tmp_path, run, attempts=1)
        assert state.state == "failed" and state.is_tried_again and "exit code 4" in state.reason
    assert (state.failures, state.failures_after) == (0, 3)

    def exports(_: Path) -> int:
        write_export(run.export_folder, {"decision": 100})
        return 0

    assert supervise_run(tmp_path, run, attempts=1, execute=Script(exports)) == "done"


def test_failures_of_training_and_of_what_follows_it_are_counted_apart(tmp_path: Path) -> None:
    run = planned(modes=["train"], episodes=1)
    script = Script(exits(4), reach(100), exits(4), exits(4))
    assert supervise_run(tmp_path, run, attempts=2, execute=script) == "failed"
    state = read_state(tmp_path, run, attempts=2)
    assert (state.failures, state.failures_after) == (1, 2)
    assert supervise_run(tmp_path, run, attempts=1, execute=Script(evaluates(100))) == "done"


class Clock:
    """The time of a study, which is up when a training process has been stopped."""

    up = False

    def __call__(self) -> bool:
        return self.up

    def stops(self, decision: int) -> Step:
        def step(folder: Path) -> int:
            self.up = True
            return reach(decision)(folder)

        return step


def evaluates(decision: int) -> Step:
    def step(folder: Path) -> int:
        line = {"policy": "agent", "decision": decision, "mode": "train", "seed": 1}
        (folder / "eval.jsonl").write_text(json.dumps(line) + "\n")
        return 0

    return step


def test_a_run_out_of_time_that_cannot_be_continued_is_evaluated_as_it_is(tmp_path: Path) -> None:
    run, clock = planned(save_replay=False, modes=["train"], episodes=1), Clock()
    script = Script(clock.stops(60), evaluates(60))
    assert supervise_run(tmp_path, run, execute=script, time_is_up=clock) == "stopped"
    assert [command[0] for command in script.commands] == ["train", "eval"]
    assert outcomes(tmp_path, run) == ["stopped", "done"]
    assert supervise_run(tmp_path, run, execute=Script()) == "stopped", "nothing is done twice"


def test_a_crash_after_a_stop_is_a_failure(tmp_path: Path) -> None:
    run, clock = planned(save_replay=False, modes=["train"], episodes=1), Clock()

    def stops_unsaved(_: Path) -> int:
        clock.up = True
        return 143

    assert supervise_run(tmp_path, run, execute=Script(stops_unsaved), time_is_up=clock) == "queued"
    script = Script(reach(60, code=-9), exits(2))
    assert supervise_run(tmp_path, run, execute=script) == "failed"
    assert outcomes(tmp_path, run) == ["stopped", "failed", "refused"]
    assert [command[0] for command in script.commands] == ["train", "train"], "no evaluation"


def loses_its_supervisor(study: Path, run: PlannedRun, step: Step) -> None:
    """An attempt whose process does a step, and whose supervisor is killed meanwhile."""

    class Killed(BaseException):
        pass

    def killed(folder: Path) -> int:
        step(folder)
        raise Killed

    with pytest.raises(Killed):
        supervise_run(study, run, execute=Script(killed))


def test_a_run_that_lost_its_supervisor_and_its_replay_is_evaluated_as_it_is(
    tmp_path: Path,
) -> None:
    run = planned(save_replay=False, modes=["train"], episodes=1)
    loses_its_supervisor(tmp_path, run, reach(60))
    script, clock = Script(evaluates(60)), Clock()
    clock.up = True
    assert supervise_run(tmp_path, run, 1, execute=script, time_is_up=clock) == "stopped"
    assert [command[0] for command in script.commands] == ["eval"]
    assert outcomes(tmp_path, run) == ["stopped", "done"]
    assert read_state(tmp_path, run, 1).failures == 0


@pytest.mark.parametrize(("save_replay", "decision"), [(False, 0), (True, 60)])
def test_other_runs_that_lost_their_supervisor_begin_again_or_go_on(
    save_replay: bool, decision: int, tmp_path: Path
) -> None:
    run = planned(save_replay=save_replay)
    loses_its_supervisor(tmp_path, run, reach(decision))
    assert supervise_run(tmp_path, run, execute=Script(reach(100))) == "done"
    assert outcomes(tmp_path, run) == ["stopped", "done"]


def test_a_run_out_of_time_that_can_be_continued_waits_for_it(tmp_path: Path) -> None:
    run, clock = planned(modes=["train"], episodes=1), Clock()
    script = Script(clock.stops(60))
    assert supervise_run(tmp_path, run, execute=script, time_is_up=clock) == "queued"
    script = Script(reach(100), evaluates(100))
    assert supervise_run(tmp_path, run, execute=script) == "done"


def test_a_run_that_is_trained_in_time_is_evaluated_after_it(tmp_path: Path) -> None:
    run, clock = planned(modes=["train"], episodes=1), Clock()
    script = Script(clock.stops(100), evaluates(100))
    assert supervise_run(tmp_path, run, execute=script, time_is_up=clock) == "done"


def test_what_fails_out_of_time_is_not_tried_forever(tmp_path: Path) -> None:
    run, clock = planned(save_replay=False, modes=["train"], episodes=1), Clock()
    script = Script(clock.stops(60), exits(4), exits(0), exits(-9))
    assert supervise_run(tmp_path, run, 3, execute=script, time_is_up=clock) == "failed"
    assert outcomes(tmp_path, run) == ["stopped", "failed", "failed", "failed"]
    state = read_state(tmp_path, run)
    assert state.state == "failed" and state.progress.stopped and not state.progress.over


def test_a_cancelled_study_is_not_begun_and_not_a_failure(tmp_path: Path) -> None:
    run = planned()
    (tmp_path / "cancel").touch()
    assert supervise_run(tmp_path, run, execute=Script()) == "queued"
    (tmp_path / "cancel").unlink()

    def is_cancelled_meanwhile(folder: Path) -> int:
        (tmp_path / "cancel").touch()
        return 143

    assert (
        supervise_run(tmp_path, run, attempts=1, execute=Script(is_cancelled_meanwhile)) == "queued"
    )
    assert outcomes(tmp_path, run) == ["stopped"]


def test_two_processes_do_not_work_on_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = planned()
    begun, go_on = threading.Event(), threading.Event()

    def slowly(folder: Path) -> int:
        begun.set()
        go_on.wait(30)
        return reach(100)(folder)

    worker = threading.Thread(
        target=supervise_run, args=(tmp_path, run), kwargs={"execute": Script(slowly)}
    )
    worker.start()
    assert begun.wait(30)
    assert read_state(tmp_path, run).state == "running"
    monkeypatch.setattr(supervise, "LOCK_SECONDS", 0.0)
    assert supervise_run(tmp_path, run, execute=Script()) == "running"
    go_on.set()
    worker.join()
    assert supervise_run(tmp_path, run, execute=Script()) == "done"
