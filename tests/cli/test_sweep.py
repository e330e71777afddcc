"""`svea sweep`: what it prints, and refuses."""

import dataclasses
import fcntl
import itertools
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from exit_codes import call
from fake_studies import SHORT, short, write_export, write_finished, write_journal

from svea import cli
from svea.cli.sweep import headline, rows, table
from svea.core import files
from svea.studies import (
    Grid,
    PlannedRun,
    Study,
    open_study,
    plan_runs,
    read_states,
    read_study,
    supervise,
)
from svea.studies import engines as local

SWEEP = ["sweep", "--tasks", "walker_walk", "--set", "decisions=100", "--out"]


def test_status_as_table_and_json(tmp_path, capsys):
    study = open_study(tmp_path / "s", short(seeds="0-1"))
    study.save()
    write_finished(study.folder, study.runs[0])
    assert cli.main(["sweep", "status", str(tmp_path / "s")]) == 0
    shown = capsys.readouterr().out
    assert "walker_walk-svea-conv-s1  queued" in shown and "1 queued, 0 running, 1 done" in shown
    assert cli.main(["sweep", "status", str(tmp_path / "s"), "--json"]) == 0
    assert [row["state"] for row in json.loads(capsys.readouterr().out)] == ["done", "queued"]


def test_a_second_driver_says_who_works_on_the_study(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(supervise, "LOCK_SECONDS", 0.0)
    study = open_study(tmp_path / "s", short())
    study.save()
    journal = write_journal(study.folder, study.runs[0])
    with journal.open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        first.write('{"event": "start", "host": "box", "pid": 4711}\n')
        first.flush()
        assert cli.main([*SWEEP, str(study.folder), "--jobs", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    who = "1 run already worked on by process 4711 on box (walker_walk-svea-conv-s0)"
    assert f"{who}: not begun here unless free within 2 min" in said
    assert said[-1] == "1 run: 0 queued, 1 running, 0 done, 0 failed"


def test_a_dry_run_lists_everything_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    grid = "--tasks walker_walk cartpole_swingup --methods svea drq --seeds 0-4"
    flags = "--set decisions=1000 replay=1000 --jobs 4 --dry-run"
    then = "--modes train color_hard --episodes 20 color_hard=all --export e"
    assert cli.main(f"sweep {grid} {flags} {then}".split()) == 0
    shown = capsys.readouterr().out
    assert shown.count("svea train ") == 20
    assert "queued   svea train walker_walk --method svea --seed 3\n" in shown
    common = f"each with --decisions 1000 --replay 1000 --out {tmp_path}/runs/sweep/runs/NAME\n"
    assert f"{common}then exported to {tmp_path}/e/NAME\n" in shown
    assert "then evaluated; episodes in brackets: train (20), color_hard (all)\n20 runs" in shown
    assert list(tmp_path.iterdir()) == []


def test_on_a_small_disk_a_dry_run_warns_and_a_start_is_refused(tmp_path, monkeypatch, capsys):
    verb = ["sweep", "--tasks", "walker_walk"]
    monkeypatch.chdir(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage._replace(free=10**9))
    assert cli.main([*verb, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "svea train walker_walk" in out and "\ndisk: up to" in out
    assert err.startswith("warning: the study would be refused here: the study will need ")
    assert "1.0 GB are free" in err and err.count("\n") == 1
    assert cli.main(verb) == 2
    assert capsys.readouterr().err.startswith("svea: the study will need ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("sweep", ["no tasks"]),
        ("sweep --tasks walker_walk --attempts 0", ["attempts is 0"]),
        ("sweep --tasks walker_walk --episodes 0", ["episodes is 0"]),
        ("sweep --tasks walker_walk --episodes 20", ["episodes is 20", "add --modes"]),
        ("sweep statsu runs/first", ["unknown part of sweep 'statsu'", "'status'"]),
        ("sweep --tasks walker_walk --episodes 20 30", ["episodes"]),
        ("sweep --tasks walker_walk --episodes train=9", ["9 for train", "add it to --modes"]),
        ("sweep --tasks walker_walk --modes train --episodes trian=9", ["unknown mode 'trian'"]),
        ("sweep --tasks walker_walk --export -o", ["--export"]),
        ("sweep --tasks walker_walk --export= --dry-run", ["export is ''", "the name of a folder"]),
        ("sweep --tasks walker_walk --export runs/sweep/runs", ["where this study keeps its runs"]),
        ("sweep --tasks walker_walk --time-limit 0 --dry-run", ["time_limit is '0'"]),
        ("sweep --tasks walker_walk --export /dev/null", ["export is '/dev/null'"]),
        ("sweep --tasks walker_walk --export /proc/agents", ["'/proc/agents'", "be written"]),
        ("sweep --tasks walker_walk --on sluurm", ["sluurm"]),
        ("sweep --tasks walker_walk --jobs -1 --set decisions=9", ["jobs is -1; allowed: 0"]),
        ("sweep --tasks walker_walk --cpus nan", ["cpus is nan; allowed: 0 to"]),
        ("sweep --tasks walker_walk --gpus nan", ["gpus is nan; allowed: -1 to"]),
        ("sweep --tasks walker_walk --slurm gpu --set decisions=9", ["'gpu'", "name=value"]),
        ("sweep missing.toml", ["no study file 'missing.toml'"]),
        ("sweep study.yaml", ["no study file 'study.yaml'", ".toml"]),
        ("sweep status nowhere", ["is not a study"]),
    ],
)
def test_mistakes_are_one_message_and_make_nothing(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, shown = call(arguments.split()), capsys.readouterr().err
    assert code == 2 and all(word in shown for word in words), shown
    assert "Traceback" not in shown and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flag",
    ["modes train", "episodes 7", "episodes 30", "export elsewhere", "tasks finger_spin",
     "methods drq", "augments overlay", "seeds 0"],
)  # fmt: skip
def test_a_setting_of_a_file_and_of_a_flag_are_one_too_many(flag, tmp_path, capsys):
    file, out = tmp_path / "study.toml", ["--dry-run", "--out", str(tmp_path / "out")]
    file.write_text('tasks = ["walker_walk"]\nmodes = ["train"]\nepisodes = 5\nexport = "here"\n')
    assert call(["sweep", str(file), *out]) == 0
    assert call(["sweep", str(file), f"--{flag.split()[0]}", flag.split()[1], *out]) == 2
    assert f"--{flag.split()[0]} is given" in capsys.readouterr().err


def asked_for(capsys: pytest.CaptureFixture[str], out: Path, *flags: str) -> tuple[str, str]:
    """The counts of runs that a study ends with, and those of its status."""
    assert call([*SWEEP, str(out), *flags]) == 0
    said = capsys.readouterr().out
    assert call(["sweep", "status", str(out)]) == 0
    shown = capsys.readouterr().out
    return tuple(re.findall(r"1 run: .*", text)[-1] for text in (said, shown))  # type: ignore[return-value]


def test_a_study_and_its_status_agree_on_what_is_done(tmp_path, monkeypatch, capsys):
    study = open_study(tmp_path / "s", short())
    study.save()
    folder = write_finished(study.folder, study.runs[0])
    lines = [
        {"policy": "agent", "decision": 100, "mode": mode, "seed": seed}
        for mode, episodes in (("train", 2), ("color_hard", 3), ("color_easy", 4))
        for seed in range(episodes)
    ]
    (folder / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(local, "run_study", lambda *_: pytest.fail("nothing is left to do"))
    done = "1 run: 0 queued, 0 running, 1 done, 0 failed"
    for flags in (
        ["--modes", "train", "color_hard", "--episodes", "2", "color_hard=3"],
        ["--modes", "color_easy", "--episodes", "4"],
        [],
    ):
        assert asked_for(capsys, study.folder, *flags) == (done, done)
    monkeypatch.setattr(local, "run_study", lambda *_: None)
    for flags in (["--export", str(tmp_path / "exports")], ["--modes", "train"]):
        queued = "1 run: 1 queued, 0 running, 0 done, 0 failed"
        assert asked_for(capsys, study.folder, *flags) == (queued, queued)
        assert asked_for(capsys, study.folder) == (done, done), "what is not asked for is not due"


def test_an_export_that_is_taken_is_refused_before_training(tmp_path, monkeypatch, capsys):
    out, exports = tmp_path / "s", tmp_path / "exports"
    words = [*SWEEP, str(out), "--seeds", "0-1", "--export", str(exports)]
    begun: list[int] = []
    monkeypatch.setattr(local, "run_study", lambda *_: begun.append(1))
    taken = exports / "walker_walk-svea-conv-s1"
    taken.mkdir(parents=True)
    assert call(words) == 0 and begun, "an empty folder is free"
    begun.clear()
    write_export(taken, {"decision": 100})
    assert call(words) == 2 and not begun
    assert f"svea: {taken} holds something other than the agent" in capsys.readouterr().err
    folder = write_finished(out, read_study(out).runs[1], decision=50)
    (folder / "config.json").write_text("{}")
    assert call(words) == 0 and begun, "its own agent, which it will be again"


def test_with_one_attempt_a_failed_export_is_due_again_and_failed_training_is_not(
    tmp_path, monkeypatch, capsys
):
    words = [*SWEEP, str(tmp_path / "s"), "--seeds", "0-1", "--attempts", "1"]
    words += ["--export", str(tmp_path / "exports")]
    begun: list[str] = []

    def run_study(study: Study, runs: Sequence[PlannedRun], *_: object) -> None:
        begun.extend(run.name for run in runs)
        trained, crashed = study.runs
        if not (study.folder / "runs" / trained.name).exists():
            write_finished(study.folder, trained)
        for run, ended in ((trained, True), (crashed, False)):
            step = "exported" if ended else "trained"
            end = {"event": "end", "outcome": "failed", "step": step, "reason": "exit code 4"}
            write_journal(study.folder, run).write_text(json.dumps(end) + "\n")

    monkeypatch.setattr(local, "run_study", run_study)
    assert call(words) == 1 and len(begun) == 2
    out = capsys.readouterr().out
    assert "training of 1 of them is over; the same command tries the rest again" in out
    begun.clear()
    assert call(words) == 1 and begun == ["walker_walk-svea-conv-s0"]
    out = capsys.readouterr().out
    assert "1 run failed 1 time and will not be retried without a larger --attempts" in out
    assert "The first: walker_walk-svea-conv-s1: exit code 4" in out


def test_headline_rows_and_table(tmp_path):
    study = Study(tmp_path, short(seeds="0-2"))
    write_finished(tmp_path, study.runs[0])
    write_journal(tmp_path, study.runs[1], "failed", "failed", "failed")
    states = read_states(study)
    assert headline(states) == "3 runs: 1 queued, 0 running, 1 done, 1 failed"
    running = [states[0], *(dataclasses.replace(one, state="running") for one in states[1:])]
    assert re.search(r"; ETA \d+ s with 2 at once$", headline(running))
    assert [row["state"] for row in rows(states)] == ["done", "failed", "queued"]
    lines = table(states)
    assert lines[0]["note"] == "why failed" and lines[-1]["last returns"] == "train 8"


def test_a_run_that_ended_between_two_lines_of_its_log_has_all_decisions(tmp_path):
    study = Study(tmp_path, plan_runs([Grid(["walker_walk"])], SHORT | {"eval_every": 0}))
    log = write_finished(tmp_path, study.runs[0]) / "metrics.jsonl"
    log.write_text('{"kind": "train", "decision": 90, "seconds": 20.0}\n')
    states = read_states(study)
    (row,), (line,) = rows(states), table(states)
    assert (row["state"], row["decision"]) == ("done", 100) and line["decisions"] == "100/100"


def test_a_trained_run_says_what_is_left(tmp_path):
    modes = ["train", "color_hard"]
    study = Study(tmp_path, plan_runs([Grid(["walker_walk"], seeds="0-1")], SHORT, modes=modes))
    for run in study.runs:
        write_finished(tmp_path, run)
    queued = read_states(study)
    states = [dataclasses.replace(queued[0], state="running"), queued[1]]
    assert headline(states) == "2 runs: 1 queued, 1 running (1 past training), 0 done, 0 failed"
    assert [line["note"] for line in table(states)] == ["trained; left: train, color_hard", ""]


def test_many_runs_are_shown_by_setting(tmp_path):
    study = Study(tmp_path, short(("walker_walk", "finger_spin"), seeds="0-19"))
    write_finished(tmp_path, study.runs[0])
    lines = table(read_states(study))
    assert [line["run"] for line in lines] == ["walker_walk-svea-conv", "finger_spin-svea-conv"]
    assert lines[0]["state"] == "19 queued, 1 done" and lines[0]["decisions"] == "100/2,000"


def test_the_command_stops_by_its_time_and_says_so(tmp_path, monkeypatch, capsys):
    clock = itertools.count(step=60.0)  # the time is up as soon as it is asked for
    monkeypatch.setattr(local, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    words = [*SWEEP, str(tmp_path / "study"), "--methods", "svea", "drq", "--together", "2"]
    assert cli.main([*words, "--time-limit", "1s"]) == 0
    assert "time limit: 2 runs not done; the same command continues" in capsys.readouterr().out
    assert cli.main([*words, "--time-limit", "soon"]) == 2


@pytest.mark.parametrize("part", ["train", "export"])
@pytest.mark.parametrize("names", [[], ["walker"]])
def test_runs_are_named_that_there_are(part, names, tmp_path, capsys):
    open_study(tmp_path / "s", short()).save()
    assert cli.main(["sweep", part, str(tmp_path / "s"), *names]) == 2
    assert all(name in capsys.readouterr().err for name in names[:1])
