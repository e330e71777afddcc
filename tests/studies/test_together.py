"""Runs of a study that train side by side in one process."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_studies import write_export, write_finished, write_journal
from tiny_runs import TINY
from tiny_studies import importable, result, tiny_study

import svea
from svea import cli
from svea.config import configure
from svea.core.errors import UserError, WorkerError
from svea.runs.records import read_records
from svea.studies import (
    Grid,
    PlannedRun,
    Study,
    cost,
    flatten,
    plan_runs,
    read_journal,
    read_states,
)
from svea.studies.engines import Resources, local, ray, slurm
from svea.studies.folder import read_study
from svea.studies.together import groups, record_error, supervise_together
from svea.studies.watch import after_training


def planned(*, every: int = 10_000, **changes: Any) -> tuple[PlannedRun, ...]:
    values = {"decisions": 100, "eval_every": every}
    return plan_runs([Grid(["walker_walk"], ["svea", "drq"])], values, **changes)


def follow_up(command: list[str], study: Path, broken: str = "", decision: int = 100) -> int:
    """What `svea sweep export` and `svea eval` leave behind, but for one run."""
    for run in read_study(study).runs:
        folder = study / "runs" / run.name
        named = run.name in command or str(folder) in command
        if not named or run.name == broken:
            continue
        if command[:2] == ["sweep", "export"]:
            write_export(run.export_folder, {"decision": decision})
        elif command[0] == "eval":
            modes = command[command.index("--modes") + 1 : command.index("--episodes")]
            line = {"policy": "agent", "decision": decision, "seed": 0}
            lines = [line | {"mode": mode} for mode in modes]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / "eval.jsonl").write_text(text)
    return 4 if broken else 0


class Processes:
    """Stands for the processes of a group: what each command does to each run, by its name."""

    evaluates = True  # during training, and at its end

    def __init__(self, study: Path, *steps: dict[str, int | Exception]) -> None:
        self.study, self.steps = study, list(steps)
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], log: Path, must_stop: Callable[[], bool]) -> int:
        self.commands.append(command)
        log.open("a").close()
        code = 0
        runs = {run.name: run for run in planned()}
        for name, ends in self.steps.pop(0).items():
            if isinstance(ends, Exception):
                record_error(self.study, runs[name], ends)
                code = getattr(ends, "exit_code", 1)
            elif ends < 0:
                return ends
            else:
                folder = self.study / "runs" / name
                (folder / "checkpoints" / f"{ends:09d}").mkdir(parents=True, exist_ok=True)
                line = {"kind": "eval", "decision": ends, "mode": "train", "return_mean": 1.0}
                line = line if self.evaluates else {"kind": "train", "decision": ends}
                with (folder / "metrics.jsonl").open("a") as file:
                    file.write(json.dumps(line) + "\n")
        return code


def ends_of(study: Path, run: PlannedRun) -> list[tuple[str, str]]:
    entries = read_journal(study / "journal" / f"{run.name}.jsonl")
    return [(e["outcome"], e["reason"]) for e in entries if e["event"] == "end"]


def test_runs_train_in_one_process_and_the_rest_is_done_for_each(tmp_path: Path) -> None:
    first, second = planned()
    both = {first.name: 100, second.name: 100}
    processes = Processes(tmp_path, both)
    supervise_together(tmp_path, [first, second], execute=processes)
    assert processes.commands == [["sweep", "train", str(tmp_path), first.name, second.name]]
    assert [ends_of(tmp_path, run) for run in (first, second)] == [[("done", "")]] * 2
    note = (tmp_path / "journal" / f"{second.name}.log").read_text()
    assert note == f"trained together with {first.name}: its lines are in {first.name}.log\n"


def trained(study: Path, runs: tuple[PlannedRun, ...]) -> None:
    """A study whose runs are trained, and no more."""
    tiny_study(study, *runs)
    for run in runs:
        (write_finished(study, run) / "config.json").write_text("{}")


def test_trained_runs_are_exported_by_one_process_and_evaluated_by_another(tmp_path: Path) -> None:
    runs = planned(modes=["train", "color_hard"], episodes=1, export=tmp_path / "exports")
    trained(tmp_path / "study", runs)
    commands: list[list[str]] = []

    def execute(command: list[str], log: Path, must_stop: Any) -> int:
        commands.append(command)
        log.open("a").close()
        return follow_up(command, tmp_path / "study")

    supervise_together(tmp_path / "study", runs, execute=execute, at_once=8)
    names = [run.name for run in runs]
    folders = [str(tmp_path / "study" / "runs" / name) for name in names]
    assert commands == [
        ["sweep", "export", str(tmp_path / "study"), *names],
        ["eval", *folders, "--modes", "train", "color_hard", "--episodes", "1",
         "--device", "auto", "--jobs", "4"],  # two runs in two modes
    ]  # fmt: skip
    for run in runs:
        assert ends_of(tmp_path / "study", run) == [("done", ""), ("done", "")]
    supervise_together(tmp_path / "study", runs, execute=execute, at_once=8)
    assert len(commands) == 2, "nothing is done twice"


def test_one_that_cannot_be_evaluated_is_tried_again_alone(tmp_path: Path) -> None:
    runs = planned(modes=["train"], episodes=1)
    trained(tmp_path, runs)
    commands: list[list[str]] = []

    def execute(command: list[str], log: Path, must_stop: Any) -> int:
        commands.append(command)
        log.write_text("svea: the arm fell off\n")
        return follow_up(command, tmp_path, broken=runs[0].name)

    supervise_together(tmp_path, runs, attempts=3, execute=execute)
    assert [len(command) - len(commands[1]) for command in commands] == [1, 0, 0]
    assert "--jobs" not in commands[0], "on a CPU one after the other"
    assert ends_of(tmp_path, runs[1]) == [("done", "")]
    failed = ("failed", "exit code 4: svea: the arm fell off")
    assert ends_of(tmp_path, runs[0]) == [failed] * 3


def test_one_attempt_is_enough_to_evaluate_what_cannot_be_exported(tmp_path: Path) -> None:
    runs = planned(modes=["train"], episodes=1, export=tmp_path / "exports")
    trained(tmp_path / "study", runs)
    commands: list[str] = []
    broken = runs[0].name

    def execute(command: list[str], log: Path, must_stop: Any) -> int:
        commands.append(" ".join(command[: 1 if command[0] in ("eval", "export") else 2]))
        log.write_text("svea: the disk is full\n")
        is_export = command[:2] == ["sweep", "export"]
        return follow_up(command, tmp_path / "study", broken=broken if is_export else "")

    supervise_together(tmp_path / "study", runs, attempts=1, execute=execute)
    assert commands == ["sweep export", "eval"]
    failed, done = read_states(read_study(tmp_path / "study"))
    assert failed.progress.missing_export and not failed.progress.missing_modes
    assert done.state == "done" and failed.failures_after == 1 and failed.failures == 0

    def exports(command: list[str], log: Path, must_stop: Any) -> int:
        assert command[0] == "export", "nothing else is left to do"
        write_export(runs[0].export_folder, {"decision": 100})
        return 0

    supervise_together(tmp_path / "study", runs, attempts=1, execute=exports)
    assert {state.state for state in read_states(read_study(tmp_path / "study"))} == {"done"}


def test_runs_that_are_evaluated_otherwise_have_a_process_of_their_own(tmp_path: Path) -> None:
    grids = [Grid(["walker_walk"], seeds="0-1"), Grid(["robot_push"], seeds="0-1")]
    runs = plan_runs(grids, {"decisions": 100}, modes=["usual"], episodes=1)
    trained(tmp_path, runs)
    commands: list[list[str]] = []

    def execute(command: list[str], log: Path, must_stop: Any) -> int:
        commands.append(command)
        log.open("a").close()
        return follow_up(command, tmp_path)

    supervise_together(tmp_path, runs, execute=execute, at_once=4)
    modes = [command[command.index("--modes") :][1:3] for command in commands]
    assert modes == [["train", "color_hard"], ["train", "test"]]
    assert [command[-2:] for command in commands] == [["--jobs", "4"]] * 2


def test_runs_out_of_time_that_cannot_be_continued_are_followed_up(tmp_path: Path) -> None:
    grid = Grid(["walker_walk"], ["svea", "drq"])
    values = {"decisions": 100, "save_replay": False}
    runs = plan_runs([grid], values, modes=["train"], episodes=1, export=tmp_path / "exports")
    tiny_study(tmp_path, *runs)
    commands: list[str] = []

    def execute(command: list[str], log: Path, must_stop: Any) -> int:
        commands.append(" ".join(command[: 1 if command[0] == "eval" else 2]))
        log.open("a").close()
        if command[1] != "train":
            assert not must_stop(), "the time was for training"
            return follow_up(command, tmp_path, decision=100 - 40)
        for run in runs:
            folder = write_finished(tmp_path, run, decision=60)
            (folder / "config.json").write_text("{}")
        assert must_stop()
        return 0

    def time_is_up() -> bool:
        return (tmp_path / "runs" / runs[0].name).exists()

    supervise_together(tmp_path, runs, execute=execute, time_is_up=time_is_up)
    assert commands == ["sweep train", "sweep export", "eval"]
    for run in runs:
        assert [outcome for outcome, _ in ends_of(tmp_path, run)] == ["stopped", "done", "done"]
    assert [state.state for state in read_states(read_study(tmp_path))] == ["stopped"] * 2


def test_runs_that_lost_their_driver_and_cannot_be_continued_are_followed_up(
    tmp_path: Path,
) -> None:
    grid, values = Grid(["walker_walk"], ["svea", "drq"]), {"decisions": 100, "save_replay": False}
    runs = plan_runs([grid], values, modes=["train"], episodes=1, export=tmp_path / "exports")
    tiny_study(tmp_path, *runs)
    commands: list[str] = []

    def is_killed(command: list[str], log: Path, must_stop: Any) -> int:
        for run in runs:
            (write_finished(tmp_path, run, decision=60) / "config.json").write_text("{}")
        raise KeyboardInterrupt

    def execute(command: list[str], log: Path, must_stop: Any) -> int:
        commands.append(" ".join(command[: 1 if command[0] == "eval" else 2]))
        log.open("a").close()
        return follow_up(command, tmp_path, decision=60)

    with pytest.raises(KeyboardInterrupt):
        supervise_together(tmp_path, runs, execute=is_killed)
    supervise_together(tmp_path, runs, execute=execute)
    assert commands == ["sweep export", "eval"], "training would refuse to continue"
    assert [state.state for state in read_states(read_study(tmp_path))] == ["stopped"] * 2


def test_runs_that_crash_after_a_stop_are_not_followed_up(tmp_path: Path) -> None:
    grid, values = Grid(["walker_walk"], ["svea", "drq"]), {"decisions": 100, "save_replay": False}
    runs = plan_runs([grid], values, modes=["train"], episodes=1)
    names = [run.name for run in runs]
    up = iter([False, True])  # before training, and after it

    def stops(command: list[str], log: Path, must_stop: Any) -> int:
        log.open("a").close()
        return 143

    supervise_together(tmp_path, runs, execute=stops, time_is_up=lambda: next(up, True))
    refused: dict[str, int | Exception] = dict.fromkeys(names, UserError("cannot be continued"))
    killed = Processes(tmp_path, dict.fromkeys(names, 60) | {"killed": -9}, refused)
    supervise_together(tmp_path, runs, execute=killed)
    assert [command[:2] for command in killed.commands] == [["sweep", "train"]] * 2
    for run in runs:
        outcomes = [outcome for outcome, _ in ends_of(tmp_path, run)]
        assert outcomes == ["stopped", "failed", "refused"]


def test_a_run_that_is_trained_before_its_group_waits_for_it(tmp_path: Path) -> None:
    first, second = runs = planned(modes=["train"], episodes=1, export=tmp_path / "exports")
    study, notes = tiny_study(tmp_path / "study", *runs), []

    def execute(command: list[str], log: Path, must_stop: Any) -> int:
        log.open("a").close()
        if command[1] != "train":
            notes.extend(after_training(state) for state in read_states(study))
            return follow_up(command, study.folder)
        for run in (first, second):
            (write_finished(study.folder, run) / "config.json").write_text("{}")
            notes.extend(after_training(state) for state in read_states(study))
        return 0

    supervise_together(study.folder, runs, execute=execute)
    waiting = "waiting for others of its process"
    assert notes == [
        waiting, "", waiting, waiting, *["being exported"] * 2, *["being evaluated in train"] * 2
    ]  # fmt: skip


def test_a_cancelled_study_begins_no_evaluation(tmp_path: Path) -> None:
    runs = planned(modes=["train"], export=tmp_path / "exports")
    trained(tmp_path, runs)
    (tmp_path / "cancel").touch()
    supervise_together(tmp_path, runs, execute=Processes(tmp_path))
    assert [ends_of(tmp_path, run) for run in runs] == [[], []]


def test_runs_without_evaluations_during_training_are_trained_once(tmp_path: Path) -> None:
    first, second = planned(every=0)
    processes = Processes(tmp_path, {first.name: 100, second.name: 100})
    processes.evaluates = False
    supervise_together(tmp_path, [first, second], execute=processes)
    assert len(processes.commands) == 1
    assert [ends_of(tmp_path, run) for run in (first, second)] == [[("done", "")]] * 2


def test_one_that_fails_is_tried_again_alone_with_its_own_reason(tmp_path: Path) -> None:
    first, second = planned()
    processes = Processes(
        tmp_path, {first.name: WorkerError("the arm fell off"), second.name: 100}, {first.name: 100}
    )
    supervise_together(tmp_path, [first, second], execute=processes)
    assert [command[0] for command in processes.commands] == ["sweep", "train"]
    failed, done = ends_of(tmp_path, first)
    assert failed == ("failed", "exit code 5: the arm fell off") and done == ("done", "")
    assert ends_of(tmp_path, second) == [("done", "")]


def test_one_that_is_refused_is_not_tried_again(tmp_path: Path) -> None:
    first, second = planned()
    processes = Processes(tmp_path, {first.name: UserError("no such task"), second.name: 100})
    supervise_together(tmp_path, [first, second], execute=processes)
    assert ends_of(tmp_path, first) == [("refused", "exit code 2: no such task")]
    assert ends_of(tmp_path, second) == [("done", "")]


def test_a_process_that_is_killed_is_a_failed_attempt_of_all(tmp_path: Path) -> None:
    first, second = planned()
    killed, both = {first.name: -9}, {first.name: 100, second.name: 100}
    supervise_together(tmp_path, [first, second], execute=Processes(tmp_path, killed, both))
    for run in (first, second):
        assert ends_of(tmp_path, run) == [("failed", "ended by SIGKILL"), ("done", "")]


def test_out_of_time_is_not_a_failure(tmp_path: Path) -> None:
    first, second = planned()
    processes = Processes(tmp_path, {first.name: 0, second.name: 0})
    asked = iter([False, True, True])
    supervise_together(
        tmp_path,
        [first, second],
        attempts=1,
        execute=processes,
        must_stop=lambda: next(asked, True),
    )
    assert [ends_of(tmp_path, run) for run in (first, second)] == [[("stopped", "")]] * 2


def test_a_process_of_several_runs_takes_the_room_of_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 64)
    monkeypatch.setattr(local, "available_bytes", lambda: 10**12)
    monkeypatch.setattr(local, "nvidia_gpus", lambda: [("0", 80 * 10**9)])
    config = configure("walker_walk")  # a replay of 10.7 GB, and 4 GB besides
    assert len(local.find_slots([config], Resources())) == 4
    assert len(local.find_slots([config], Resources(together=2))) == 2
    assert len(local.find_slots([config], Resources(gpus=0.25, together=2))) == 2
    assert groups(range(5), 2) == [range(2), range(2, 4), range(4, 5)]


@pytest.mark.parametrize("engine", [ray, slurm])
def test_other_engines_start_a_process_for_every_run(engine: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="together is 2, but --on"):
        engine.require(Study(tmp_path, planned()), Resources(together=2))


def different_runs(**changes: Any) -> tuple[PlannedRun, ...]:
    values = flatten({k: v for k, v in TINY.items() if k != "method"} | changes)
    grids = [Grid(["toy:make"], ["svea"]), Grid(["toy:make_terminating"], ["drq"], seeds="3")]
    return plan_runs(grids, values)


@pytest.mark.slow
def test_one_command_trains_exports_and_evaluates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    importable(monkeypatch)
    monkeypatch.chdir(tmp_path)
    values = flatten({k: v for k, v in TINY.items() if k != "method"})
    words = [
        "sweep", "--tasks", "toy:make", "--seeds", "0-1", "--together", "2", "--out", "study",
        "--modes", "all", "--episodes", "1", "picture_colors=3", "--export", "exports",
        "--set", *(f"{name}={value}" for name, value in values.items()),
    ]  # fmt: skip
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "2 runs: 0 queued, 0 running, 2 done, 0 failed" in said
    assert f"exported: 2 of 2 agents, to {tmp_path / 'exports'}" in said
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


@pytest.mark.slow
def test_what_a_stopped_study_reached_is_exported_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    importable(monkeypatch)
    monkeypatch.chdir(tmp_path)
    values = flatten({k: v for k, v in TINY.items() if k != "method"})
    values |= {"decisions": 100_000, "save_every": 50_000, "save_replay": False}
    asked: dict[str, Any] = {"modes": ["train"], "episodes": 2, "export": tmp_path / "exports"}
    runs = plan_runs([Grid(["toy:make"], seeds="0-1")], values, **asked)
    study = tiny_study(tmp_path / "study", *runs)

    def begun() -> bool:
        logs = [study.run_folder(run) / "metrics.jsonl" for run in runs]
        return all(log.exists() and '"decision": 1' in log.read_text() for log in logs)

    supervise_together(study.folder, runs, time_is_up=begun)
    for state in read_states(study):
        reached = state.progress.decision
        assert state.state == "stopped" and 0 < reached < 100_000
        assert svea.load_agent(state.run.export_folder).decision == reached
        records = read_records(study.run_folder(state.run))
        assert [record["decision"] for record in records] == [reached] * 2
    assert cli.main(["sweep", "status", "study"]) == 0
    said = f"reached {reached:,} of 100,000 decisions; cannot be continued (save_replay is false)"
    out = capsys.readouterr().out
    assert said in out and "2 runs: 0 queued, 0 running, 0 done, 2 stopped, 0 failed" in out
    words = ["sweep", "--tasks", "toy:make", "--seeds", "0-1", "--together", "2", "--out", "study",
             "--modes", "train", "--episodes", "2", "--export", "exports",
             "--set", *(f"{name}={value}" for name, value in values.items())]  # fmt: skip
    journals = {path: path.read_text() for path in Path("study/journal").iterdir()}
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "2 runs, 2 of them stopped for good\n" in out and f"s1: {said}\n" in out
    assert {path: path.read_text() for path in Path("study/journal").iterdir()} == journals


@pytest.mark.slow
def test_different_runs_stopped_and_continued_are_the_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    importable(monkeypatch)
    runs = different_runs(decisions=150, save_every=50, eval_every=75)
    alone = tiny_study(tmp_path / "alone", *runs)
    local.run_study(alone, runs, Resources(jobs=2), lambda: None)
    study = tiny_study(tmp_path / "study", *runs)

    def begun() -> bool:
        logs = [study.run_folder(run) / "metrics.jsonl" for run in runs]
        return all(log.exists() and '"decision": 1' in log.read_text() for log in logs)

    supervise_together(study.folder, runs, must_stop=begun)
    states = read_states(study)
    assert [state.state for state in states] == ["queued", "queued"]
    assert all(0 < state.progress.decision < 150 for state in states), "both are on their way"
    local.run_study(study, runs, Resources(together=2), lambda: None)
    assert [state.state for state in read_states(study)] == ["done", "done"]
    assert [result(study, run) for run in runs] == [result(alone, run) for run in runs]
    log = (study.folder / "journal" / f"{runs[0].name}.log").read_text()
    assert "toy:make svea s0: stopped and saved at decision" in log
    assert "toy:make_terminating drq s3: resumed at decision" in log
    assert "toy:make_terminating drq s3: done: 150 decisions" in log


def test_the_command_stops_by_its_time_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = itertools.count(step=60.0)  # the time is up as soon as it is asked for
    monkeypatch.setattr(local, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    words = ["sweep", "--tasks", "walker_walk", "--methods", "svea", "drq", "--out",
             str(tmp_path / "study"), "--set", "decisions=100", "--together", "2"]  # fmt: skip
    assert cli.main([*words, "--time-limit", "1s"]) == 0
    assert "time limit: 2 runs not done; the same command continues" in capsys.readouterr().out
    lost = [*words[:-3], "decisions=100", "save_replay=false", "--out", str(tmp_path / "lost")]
    assert cli.main([*lost, "--time-limit", "1s"]) == 0
    assert "the same command continues" in capsys.readouterr().out, "nothing was begun"
    crashed = read_study(tmp_path / "lost").runs[0]
    write_finished(tmp_path / "lost", crashed, decision=50)
    write_journal(tmp_path / "lost", crashed, "failed", saved=50)
    assert cli.main([*lost, "--time-limit", "1s"]) == 0
    said = "2 runs not done; 1 run cannot be continued: save_replay is false"
    assert said in capsys.readouterr().out
    monkeypatch.setattr(cost, "measured_speeds", lambda states: [0.1])
    flags = ["--time-limit", "5m", "--jobs", "1", "--dry-run"]
    assert cli.main([*words, *flags]) == 0
    out = capsys.readouterr().out
    assert out.count("# about 17 min\n") == 2, "each of them"
    assert "(2 runs): about 17 min, at least 4 calls with --time-limit 5m (" in out, "side by side"
    assert cli.main([*words, "--time-limit", "soon"]) == 2
    assert cli.main(["sweep", "train", str(tmp_path / "study"), "walker"]) == 2
    assert "unknown run of this study 'walker'" in capsys.readouterr().err
