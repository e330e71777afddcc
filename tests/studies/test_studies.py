"""Studies: planning, identity, state from folders, estimates; all without starting anything."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from svea import cli
from svea.cli.sweep import dry_lines
from svea.cli.train import train_flags
from svea.errors import UserError
from svea.studies import (
    Grid,
    PlannedRun,
    Study,
    as_flags,
    cost,
    open_study,
    parse_seeds,
    parse_settings,
    plan,
    read_state,
    read_study,
    read_study_file,
    resolve,
)
from svea.studies.watch import headline, rows, table

SHORT = {"decisions": 100}


def short(tasks: tuple[str, ...] = ("walker_walk",), **axes: Any) -> tuple[PlannedRun, ...]:
    return plan([Grid(tasks, **axes)], SHORT)


def write_finished(study: Path, run: PlannedRun, decision: int | None = None) -> Path:
    """What a run leaves behind at a decision: a checkpoint and an evaluation."""
    at = run.decisions if decision is None else decision
    folder = study / "runs" / run.name
    (folder / "checkpoints" / f"{at:09d}").mkdir(parents=True)
    lines = [
        {"kind": "train", "decision": at, "seconds": 20.0, "critic_loss": 0.1},
        {"kind": "eval", "decision": at, "seconds": 21.0, "mode": "train", "return_mean": 7.5},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def write_journal(study: Path, run: PlannedRun, *outcomes: str) -> Path:
    path = study / "journal" / f"{run.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"event": "end", "outcome": one, "reason": f"why {one}"} for one in outcomes]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


# Planning -----------------------------------------------------------------------------------------


def test_a_grid_is_every_combination_once() -> None:
    runs = plan(
        [Grid(["walker_walk", "cartpole_swingup"], ["svea", "drq"], ["conv", "overlay"], "0-4")]
    )
    assert len(runs) == len({run.name for run in runs}) == 2 * 2 * 2 * 5
    configs = {(c.task, c.method, c.augment, c.seed) for c in (run.config for run in runs)}
    assert ("cartpole_swingup", "drq", "overlay", 3) in configs and len(configs) == 40


def test_without_augmentations_each_method_has_its_own() -> None:
    runs = short(methods=["svea", "drq", "soda"])
    assert [run.config.augment for run in runs] == ["conv", "none", "overlay"]


def test_what_a_grid_sets_is_part_of_its_names_and_what_all_share_is_not() -> None:
    grids = [Grid(["walker_walk"], ["drq"], ["conv"], set={"recipe": {"K": k}}) for k in (1, 2)]
    first, second = plan(grids, {"decisions": 9})
    assert first.name == "walker_walk-drq-conv-recipe.K=1-s0"
    assert second.config.recipe.K == 2 and second.config.decisions == 9


def test_the_command_of_a_run_resolves_to_its_configuration(tmp_path: Path) -> None:
    """Every kind of value: nested, float, flag, text; read back by `svea train` itself."""
    values = {"recipe.alpha": 1.0, "tensorboard": True, "eval_mode": "video_easy", "envs": 2}
    (run,) = plan([Grid(["finger_spin"], seeds=[3], set={"sac": {"q_tau": 0.5}})], values)
    command = run.train_command(tmp_path / "here")
    assert command[0] == "train"
    resolved = train_flags(command[1:])[0]
    assert resolved == dataclasses.replace(run.config, out=str(tmp_path / "here"))


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (Grid(["waler_walk"]), ["unknown task 'waler_walk'", "'walker_walk'"]),
        (Grid(["walker_walk"], ["sveaa"]), ["unknown method 'sveaa'"]),
        (Grid(["walker_walk"], augments=["covn"]), ["'covn'", "'conv'"]),
        (Grid(["walker_walk"], augments=["none"]), ["svea", "none"]),
        (Grid(["walker_walk"], seeds="0-x"), ["seeds is '0-x'", "0-4"]),
        (Grid(["walker_walk"], seeds="4-0"), ["seeds is '4-0'"]),
        (Grid(["walker_walk"], seeds=[1, 1]), ["walker_walk-svea-conv-s1 is in the study twice"]),
        (Grid(["walker_walk"] * 2), ["twice"]),
        (Grid([]), ["no runs"]),
        (Grid(["walker_walk"], set={"decisions": 0}), ["decisions is 0"]),
        (Grid(["walker_walk"], set={"decisons": 5}), ["'decisons'", "'decisions'"]),
        (Grid(["walker_walk"], set={"out": "x"}), ["out cannot be set"]),
        (Grid(["walker_walk"], set={"seed": 3}), ["seed cannot be set", "seeds"]),
        (Grid(["walker_walk"], set={"augment": "blur"}), ["augment cannot be set", "augments"]),
        (Grid(["walker_walk"], seeds=[10**12]), ["seed"]),
        (Grid("walker_walk", methods=[3]), ["methods is [3]"]),  # type: ignore[list-item]
    ],
)
def test_bad_grids_are_refused_by_name(grid: Grid, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        plan([grid])
    assert all(word in str(error.value) for word in words), error.value


def test_the_same_run_under_two_names_is_a_duplicate() -> None:
    named = Grid(["walker_walk"], set={"batch_size": 128})  # the default
    with pytest.raises(UserError, match=r"twice \(as walker_walk-svea-conv-s0 too\)"):
        plan([Grid(["walker_walk"]), named])


def test_every_run_is_checked_not_only_the_first() -> None:
    good, bad = Grid(["walker_walk"]), Grid(["walker_walk"], ["drq"], set={"recipe": {"K": 0}})
    with pytest.raises(UserError, match=r"recipe\.K is 0"):
        plan([good, bad])


def test_seeds_and_settings_as_text() -> None:
    assert parse_seeds("0-2,7 9") == [0, 1, 2, 7, 9]
    assert parse_seeds([3, "5-6"]) == [3, 5, 6]  # type: ignore[list-item]
    words = ["eval-every=7", "--recipe.beta=0.25", "tensorboard=true", "augment=a=b"]
    assert parse_settings(words) == {
        "eval_every": 7, "recipe.beta": 0.25, "tensorboard": True, "augment": "a=b",
    }  # fmt: skip
    for wrong, word in (("decisions", "name=value"), ("decisions=ten", "a whole number"),
                        ("tensorboard=maybe", "true or false"), ("sede=3", "'seed'")):  # fmt: skip
        with pytest.raises(UserError, match=word):
            parse_settings([wrong])


def test_flags_of_nested_switches() -> None:
    assert as_flags({"dqn.dueling": False, "x_y": "z"}) == ["--dqn.no-dueling", "--x-y", "z"]


# Files --------------------------------------------------------------------------------------------


def test_toml_with_several_grids_and_python_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        """
        modes = ["train", "color_hard"]
        set = { decisions = 50 }
        [[grid]]
        tasks = ["walker_walk"]
        seeds = "0-1"
        [[grid]]
        tasks = ["finger_spin"]
        methods = ["drq"]
        augments = ["conv"]
        set.recipe = { K = 2, M = 2 }
        """
    )
    (tmp_path / "study.py").write_text(
        "from svea.studies import Grid\n"
        "grids = [Grid(['walker_walk'], seeds=range(2)),\n"
        "         Grid(['finger_spin'], ['drq'], ['conv'], set={'recipe': {'K': 2, 'M': 2}})]\n"
        "modes, set = ['train', 'color_hard'], {'decisions': 50}\n"
    )
    planned = []
    for name in ("study.toml", "study.py"):
        grids, settings = read_study_file(tmp_path / name)
        planned.append(plan(grids, settings.pop("set"), **settings))
    assert planned[0] == planned[1]
    assert [run.name for run in planned[0]] == [
        "walker_walk-svea-conv-s0",
        "walker_walk-svea-conv-s1",
        "finger_spin-drq-conv-recipe.K=2-recipe.M=2-s0",
    ]
    assert planned[0][0].modes == ("train", "color_hard")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("study.toml", "tasks = [", ["TOMLDecodeError"]),
        ("study.toml", "taks = ['walker_walk']", ["'taks'", "'tasks'"]),
        ("study.toml", "methods = ['svea']", ["names no tasks"]),
        ("study.toml", "grid = [3]", ["a table"]),
        ("study.py", "grids = [3]", ["list of Grid"]),
        ("study.py", "1/0", ["ZeroDivisionError"]),
        ("study.yaml", "", ["neither .toml nor .py"]),
        ("other", None, ["no study file"]),
    ],
)
def test_bad_study_files_are_refused(
    name: str, text: str | None, words: list[str], tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        read_study_file(tmp_path / name)
    assert all(word in str(error.value) for word in words), error.value


# Identity of a study ------------------------------------------------------------------------------


def test_a_study_grows_but_is_never_another_one(tmp_path: Path) -> None:
    open_study(tmp_path / "s", short(seeds="0-1")).save()
    open_study(tmp_path / "s", short(seeds="1-3")).save()
    names = {run.name for run in read_study(tmp_path / "s").runs}
    assert names == {f"walker_walk-svea-conv-s{seed}" for seed in range(4)}
    changed = plan([Grid(["walker_walk"])], {"decisions": 99})
    with pytest.raises(UserError, match=r"another study.*\n.*decisions 100 there, 99 here"):
        open_study(tmp_path / "s", changed)
    with pytest.raises(UserError, match="another study"):
        open_study(tmp_path / "s", short(("finger_spin",)))
    with pytest.raises(UserError, match="another study"):
        open_study(tmp_path / "s", short(), title="paper")


def test_modes_and_analyses_add_up(tmp_path: Path) -> None:
    for mode in ("color_hard", "video_easy"):
        runs = plan([Grid(["walker_walk"])], SHORT, modes=[mode])
        open_study(tmp_path / "s", runs, "paper").save()
    assert read_study(tmp_path / "s").runs[0].modes == ("color_hard", "video_easy")


def test_folders_that_are_no_study_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(UserError, match="not empty and not a study"):
        open_study(tmp_path / "full", short())
    with pytest.raises(UserError, match="is not a study"):
        read_study(tmp_path / "full")
    (tmp_path / "full" / "study.json").write_text('{"runs": [{"nam')
    with pytest.raises(UserError, match="cannot be read"):
        read_study(tmp_path / "full")


def test_a_study_comes_back_from_its_file(tmp_path: Path) -> None:
    study = open_study(tmp_path / "s", plan([Grid(["walker_walk"])], SHORT, modes=["train"]))
    study.save()
    assert read_study(tmp_path / "s") == study


# State --------------------------------------------------------------------------------------------


def test_states_come_from_the_folders_alone(tmp_path: Path) -> None:
    runs = short(seeds="0-6")
    _, half, done, once, spent, refused, locked = runs
    write_finished(tmp_path, half, decision=50)
    write_finished(tmp_path, done)
    write_journal(tmp_path, once, "failed", "stopped")
    write_journal(tmp_path, spent, "failed", "failed", "failed")
    write_journal(tmp_path, refused, "refused")
    lock = write_journal(tmp_path, locked).open("rb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    states = {run.name: read_state(tmp_path, run) for run in runs}
    assert [states[run.name].state for run in runs] == [
        "queued", "queued", "done", "queued", "failed", "failed", "running",
    ]  # fmt: skip
    assert states[half.name].progress.decision == 50
    assert states[done.name].progress.returns == {"train": 7.5}
    assert states[spent.name].reason == "why failed" and states[refused.name].refused
    assert read_state(tmp_path, spent, attempts=4).state == "queued"
    lock.close()
    assert read_state(tmp_path, locked).state == "queued"


def test_a_checkpoint_at_the_end_without_the_last_evaluation_is_not_done(tmp_path: Path) -> None:
    (run,) = short()
    folder = write_finished(tmp_path, run, decision=50)
    (folder / "checkpoints" / f"{run.decisions:09d}").mkdir()
    assert read_state(tmp_path, run).state == "queued"


def test_a_run_whose_checkpoints_are_repetitions_of_its_last_decision_is_done(
    tmp_path: Path,
) -> None:
    (run,) = short()
    folder = write_finished(tmp_path, run)
    last = folder / "checkpoints" / f"{run.decisions:09d}"
    for repetition in (1, 2):  # two interruptions of the last evaluation; two are kept
        last.with_name(f"{last.name}.{repetition}").mkdir()
    last.rmdir()
    assert read_state(tmp_path, run).state == "done"


def test_done_means_evaluated_in_every_mode_at_the_last_decision(tmp_path: Path) -> None:
    (run,) = plan([Grid(["walker_walk"])], SHORT, modes=["train", "color_hard"], episodes=2)
    folder = write_finished(tmp_path, run)

    def record(mode: str, seed: int, decision: int = 100, policy: str = "agent") -> str:
        line = {"policy": policy, "decision": decision, "mode": mode, "seed": seed}
        return json.dumps(line | {"return": 1.0}) + "\n"

    lines = [record("train", 0), record("train", 1), record("color_hard", 0)]
    lines += [
        record("color_hard", 0),
        record("color_hard", 1, 50),
        record("color_hard", 1, 100, "random"),
    ]
    (folder / "eval.jsonl").write_text("".join(lines) + '{"policy": "agent", "decision": 100, "mo')
    assert read_state(tmp_path, run).progress.missing_modes == ("color_hard",)
    with (folder / "eval.jsonl").open("a") as file:
        file.write("\n" + record("color_hard", 1))
    assert read_state(tmp_path, run).state == "done"


def test_damaged_logs_and_journals_do_not_hide_the_rest(tmp_path: Path) -> None:
    (run,) = short()
    folder = write_finished(tmp_path, run)
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"decision": "x"}\n[3]\n\xff\xfe\n{"kind": "eval", "decis')
    write_journal(tmp_path, run, "failed").open("ab").write(b'[1]\n{"event": "en')
    state = read_state(tmp_path, run)
    assert (state.state, state.failures, state.progress.decision) == ("done", 1, 100)


def test_the_end_of_a_long_log_is_enough(tmp_path: Path) -> None:
    (run,) = short()
    folder = write_finished(tmp_path, run)
    text = (folder / "metrics.jsonl").read_text()
    line = json.dumps({"kind": "train", "decision": 1, "seconds": 0.1, "critic_loss": 0.5}) + "\n"
    (folder / "metrics.jsonl").write_text(line * 5000 + text)
    assert read_state(tmp_path, run).state == "done"


# Estimates ----------------------------------------------------------------------------------------


def test_time_is_estimated_from_the_studys_own_runs(tmp_path: Path) -> None:
    study = Study(tmp_path, short(seeds="0-4"))
    write_finished(tmp_path, study.runs[0])  # 100 decisions in 21 s
    write_finished(tmp_path, study.runs[1], decision=50)
    states = study.states()
    found = cost.forecast(study, states, at_once=2, gpus=0.5)
    rate = (100 / 21 + 50 / 21) / 2
    assert found.finished == 1
    assert found.seconds == pytest.approx((50 + 3 * 100) / rate)
    assert found.wall_seconds == pytest.approx(found.seconds / 2)
    assert found.gpu_hours == pytest.approx(found.seconds * 0.5 / 3600)
    done = cost.forecast(study, states[:1], at_once=2)
    assert done.lines() == ["1 run, all of them done"]
    given = cost.forecast(study, states, at_once=2, speed=10.0)
    assert given.seconds == pytest.approx(35.0) and "--speed" in given.lines()[1]


def test_an_unknown_speed_is_called_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "SPEEDS", ())
    study = Study(tmp_path, short(seeds="0-19"))
    found = cost.forecast(study, study.states(), at_once=2)
    assert found.seconds is None and found.lines()[0] == "20 runs"
    assert "unknown" in found.lines()[1]
    assert found.lines()[2] == "GPU hours: none, because no GPU is used"
    for gpus in (0.5, None):  # a share of a GPU, or nobody knows
        shown = cost.forecast(study, study.states(), at_once=2, gpus=gpus).lines()
        assert shown[2] == "GPU hours: unknown"


@pytest.mark.parametrize(
    ("gpus", "options", "rate"),
    [
        (1.0, {"envs": 16}, 570.1),
        (1.0, {"envs": 16, "decisions": 100_000, "eval_every": 9, "seed": 3}, 570.1),
        (1.0, {}, None),
        (1.0, {"envs": 16, "encoder": "vit"}, None),
        (1.0, {"envs": 16, "preset": "quick"}, None),
        (1.0, {"envs": 16, "method": "drq"}, None),
        (1.0, {"envs": 16, "base": "ddpg"}, None),
        (1.0, {"envs": 16, "batch_size": 512}, None),
        (None, {"envs": 16}, None),
        (0.0, {"envs": 16}, None),
        (0.0, {"preset": "quick"}, 17.4),
        (0.0, {"preset": "quick", "augment": "overlay"}, None),
    ],
)
def test_a_measured_speed_counts_for_what_was_measured_alone(
    tmp_path: Path, gpus: float | None, options: dict[str, Any], rate: float | None
) -> None:
    values = {"task": "walker_walk", "method": "svea", "seed": 0} | options
    run = PlannedRun("one", values, resolve(values).decisions)
    study = Study(tmp_path, (run,))
    found = cost.forecast(study, study.states(), at_once=1, gpus=gpus)
    assert found.seconds == (rate and pytest.approx(run.decisions / rate))


def test_disk_is_mostly_the_replay_and_only_those_at_work_count_when_it_is_dropped(
    tmp_path: Path,
) -> None:
    (run,) = plan([Grid(["walker_walk"])])
    replay = cost.run_replay_bytes(run.config)
    frames = 500_000 * 84 * 84 * 3
    assert frames < replay < 1.05 * frames
    assert replay < cost.disk_bytes(run.config) < 1.1 * replay
    kept = Study(tmp_path, plan([Grid(["walker_walk"], seeds="0-9")]))
    dropped = Study(tmp_path, plan([Grid(["walker_walk"], seeds="0-9")], drop_replay=True))
    sizes = [cost.forecast(s, s.states(), 2).disk_bytes for s in (kept, dropped)]
    assert sizes[0] - sizes[1] == 8 * replay


def test_a_study_that_the_disk_cannot_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(tmp_path / "not" / "there", short())
    found = dataclasses.replace(cost.forecast(study, study.states(), 1), disk_bytes=10**18)
    with pytest.raises(UserError, match=r"needs up to 1,000,000,000\.0 GB more, but"):
        cost.require_space(study, found)


# What people see ----------------------------------------------------------------------------------


def test_headline_and_rows(tmp_path: Path) -> None:
    study = Study(tmp_path, short(seeds="0-2"))
    write_finished(tmp_path, study.runs[0])
    write_journal(tmp_path, study.runs[1], "failed", "failed", "failed")
    states = study.states()
    assert headline(states) == "3 runs: 1 queued, 0 running, 1 done, 1 failed"
    assert headline(states, rate=10.0).endswith("; ETA 10 s")  # 100 decisions of the queued one
    assert [row["state"] for row in rows(states)] == ["done", "failed", "queued"]
    lines = table(states)
    assert lines[0]["note"] == "why failed" and lines[-1]["last returns"] == "train 8"


def test_many_runs_are_shown_by_setting(tmp_path: Path) -> None:
    study = Study(tmp_path, short(("walker_walk", "finger_spin"), seeds="0-19"))
    write_finished(tmp_path, study.runs[0])
    lines = table(study.states())
    assert [line["run"] for line in lines] == ["walker_walk-svea-conv", "finger_spin-svea-conv"]
    assert lines[0]["state"] == "19 queued, 1 done" and lines[0]["decisions"] == "100/2,000"


def test_status_as_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = open_study(tmp_path / "s", short(seeds="0-1"))
    study.save()
    write_finished(study.folder, study.runs[0])
    assert cli.main(["sweep", "status", str(tmp_path / "s")]) == 0
    shown = capsys.readouterr().out
    assert "walker_walk-svea-conv-s1  queued" in shown and "1 queued, 0 running, 1 done" in shown
    assert cli.main(["sweep", "status", str(tmp_path / "s"), "--json"]) == 0
    assert [row["state"] for row in json.loads(capsys.readouterr().out)] == ["done", "queued"]


def test_a_dry_run_lists_everything_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = [
        "--tasks",
        "walker_walk",
        "cartpole_swingup",
        "--methods",
        "svea",
        "drq",
        "--seeds",
        "0-4",
    ]
    flags = ["--set", "decisions=1000", "replay=1000", "--speed", "10", "--jobs", "4", "--dry-run"]
    assert cli.main(["sweep", *grid, *flags]) == 0
    shown = capsys.readouterr().out
    assert shown.count("svea train ") == 20
    assert "queued   svea train walker_walk --method svea --seed 3\n" in shown
    common = f"each with --decisions 1000 --replay 1000 --out {tmp_path}/runs/sweep/runs/NAME\n"
    assert f"{common}20 runs\n" in shown
    assert "about 8 min (--speed)" in shown  # 20 runs x 100 s on 4 processes
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_what_would_be_refused_is_refused_by_a_dry_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dry: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(cost.shutil, "disk_usage", lambda path: usage._replace(free=10**9))
    assert cli.main(["sweep", "--tasks", "walker_walk", *dry]) == 2
    out, err = capsys.readouterr()
    assert "\ndisk: up to 11" in out and "needs up to 1" in err and "1.0 GB free" in err
    assert list(tmp_path.iterdir()) == []


def test_lines_of_a_dry_run_fit_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(Path("/study"), short(seeds="0-1"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    lines = "\n".join(dry_lines(study, study.states())).splitlines()
    assert max(map(len, lines)) <= 40 and len(lines) > 3
    unfolded = " ".join(line.strip() for line in lines)
    assert "svea train walker_walk --seed 1" in unfolded and "/study/runs/NAME" in unfolded


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("sweep", ["no tasks"]),
        ("sweep --tasks waler_walk", ["unknown task 'waler_walk'", "'walker_walk'"]),
        ("sweep --tasks walker_walk --set decisons=3", ["'decisons'", "'decisions'"]),
        ("sweep --tasks walker_walk --attempts 0", ["attempts is 0"]),
        ("sweep --tasks walker_walk --episodes 0", ["episodes is 0"]),
        ("sweep --tasks walker_walk --modes colour", ["unknown mode 'colour'"]),
        ("sweep --tasks walker_walk --on sluurm", ["sluurm"]),
        ("sweep --tasks walker_walk --jobs -1 --set decisions=9", ["must not be negative"]),
        ("sweep --tasks walker_walk --slurm gpu --set decisions=9", ["'gpu'", "name=value"]),
        ("sweep missing.toml", ["no study file 'missing.toml'"]),
        ("sweep status nowhere", ["is not a study"]),
        ("sweep cancel nowhere", ["is not a study"]),
        ("paper tabel1", ["unknown experiment 'tabel1'", "'table1'"]),
        ("paper table1 --scale 0", ["scale is 0"]),
        ("paper table1 --scale 2", ["scale is 2"]),
        ("paper table1 --render", ["no run of table1"]),
        ("paper table1 --set seed", ["name=value"]),
    ],
)
def test_mistakes_are_one_message_and_make_nothing(
    arguments: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(arguments.split())
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr().err
    assert code == 2 and all(word in shown for word in words), shown
    assert "Traceback" not in shown and list(tmp_path.iterdir()) == []


def test_who_looks_or_waits_does_not_import_torch() -> None:
    """It would take longer than the status of thousands of runs, and its memory in every worker."""
    code = "import sys, svea.studies.supervise, svea.cli.sweep; sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )
