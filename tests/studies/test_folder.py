"""A study's folder: what counts as the same study, what is refused, and how far its runs are."""

import fcntl
import json
from typing import Any

import pytest
from fake_studies import SHORT, short, write_export, write_finished, write_journal

from svea.core.errors import UserError
from svea.studies import Grid, open_study, plan_runs, read_study
from svea.studies.folder import read_state


def test_a_study_grows_but_is_never_another_one(tmp_path):
    open_study(tmp_path / "s", short(seeds="0-1")).save()
    open_study(tmp_path / "s", short(seeds="1-3")).save()
    names = {run.name for run in read_study(tmp_path / "s").runs}
    assert names == {f"walker_walk-svea-conv-s{seed}" for seed in range(4)}
    changed = plan_runs([Grid(["walker_walk"])], {"decisions": 99})
    with pytest.raises(UserError, match=r"another study.*\n.*decisions 100 there, 99 here"):
        open_study(tmp_path / "s", changed)
    for runs, title in ((short(("finger_spin",)), ""), (short(("finger_spin",)), "paper")):
        with pytest.raises(UserError):
            open_study(tmp_path / "s", runs, title=title)


def test_the_plan_of_a_run_is_what_was_asked_last(tmp_path):
    asked: list[dict[str, Any]] = [
        {"modes": ["train", "color_hard"], "episodes": {"default": 2, "color_hard": 3},
         "analyses": ["q-gap"], "export": tmp_path / "exports"},
        {"modes": ["color_easy"], "episodes": 4},
    ]  # fmt: skip
    both, first = (plan_runs([Grid(["walker_walk"], seeds=s)], SHORT, **asked[0]) for s in "10")
    open_study(tmp_path / "s", (*first, *both)).save()
    again = plan_runs([Grid(["walker_walk"], seeds="0")], SHORT, **asked[1])
    open_study(tmp_path / "s", again).save()
    assert read_study(tmp_path / "s").runs == (*again, *both), "the other run keeps its plan"


def test_folders_that_are_no_study_are_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    for read in (lambda folder: open_study(folder, short()), read_study):
        with pytest.raises(UserError, match="not a study"):
            read(tmp_path)


@pytest.mark.parametrize("episodes", [7, "all", {"train": "all", "default": 3}])
def test_a_study_comes_back_from_its_file(tmp_path, episodes):
    runs = plan_runs([Grid(["walker_walk"])], SHORT, modes=["train"], episodes=episodes)
    study = open_study(tmp_path / "s", runs)
    study.save()
    assert read_study(tmp_path / "s") == study
    path = tmp_path / "s" / "study.json"
    content = json.loads(path.read_text())
    content["runs"][0]["drop_replay"] = True
    path.write_text(json.dumps(content))
    assert read_study(tmp_path / "s") == study, "a plan with an option that is no more"


# How far a run is ---------------------------------------------------------------------------------


def test_states_come_from_the_folders_alone(tmp_path):
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


def test_trained_means_evaluated_after_the_last_checkpoint_if_the_run_is_evaluated(tmp_path):
    values = [SHORT, SHORT | {"eval_every": 0}]
    runs = [plan_runs([Grid(["walker_walk"])], one, modes=["train"])[0] for one in values]
    for number, run in enumerate(runs):
        folder = write_finished(tmp_path / str(number), run, decision=50)
        assert not read_state(tmp_path / str(number), run).progress.trained
        (folder / "checkpoints" / f"{run.decisions:09d}").mkdir()
    first, second = (read_state(tmp_path / str(n), run).progress for n, run in enumerate(runs))
    assert not first.trained
    assert second.trained and second.left["evaluated"] == ("train",), "those after training are due"


def test_checkpoints_that_repeat_the_last_decision_count(tmp_path):
    """Two interruptions of the last evaluation leave only repetitions, since two are kept."""
    (run,) = short()
    folder = write_finished(tmp_path, run)
    last = folder / "checkpoints" / f"{run.decisions:09d}"
    last.rename(last.with_name(f"{last.name}.1"))
    last.with_name(f"{last.name}.2").mkdir()
    assert read_state(tmp_path, run).state == "done"


def test_done_means_evaluated_in_every_mode_at_the_last_decision(tmp_path):
    (run,) = plan_runs([Grid(["walker_walk"])], SHORT, modes=["train", "color_hard"], episodes=2)
    folder = write_finished(tmp_path, run)

    def record(mode: str, seed: int, decision: int = 100, policy: str = "agent") -> str:
        line = {"policy": policy, "decision": decision, "mode": mode, "seed": seed}
        return json.dumps(line | {"return": 1.0}) + "\n"

    lines = [record("train", 0), record("train", 1), record("color_hard", 0)] * 2
    lines += [record("color_hard", 1, 50), record("color_hard", 1, 100, "random")]
    (folder / "eval.jsonl").write_text("".join(lines) + '{"policy": "agent", "decision": 100, "mo')
    assert read_state(tmp_path, run).progress.left["evaluated"] == ("color_hard",)
    with (folder / "eval.jsonl").open("a") as file:
        file.write("\n" + record("color_hard", 1))
    assert read_state(tmp_path, run).state == "done"


def test_each_mode_needs_its_own_number_of_episodes_and_all_means_its_worlds(tmp_path):
    episodes = {"default": "all", "color_hard": 3}
    modes = ["train", "color_hard", "video_easy"]
    (run,) = plan_runs([Grid(["walker_walk"])], SHORT, modes=modes, episodes=episodes)
    folder = write_finished(tmp_path, run)

    def missing(mode: str, played: int, **provenance: int) -> tuple[str, ...]:
        with (folder / "eval.jsonl").open("a") as file:
            for seed in range(played):
                line = {"policy": "agent", "decision": 100, "mode": mode, "seed": seed}
                file.write(json.dumps(line | {"return": 1.0, "provenance": provenance}) + "\n")
        return read_state(tmp_path, run).progress.left["evaluated"]

    assert missing("train", 99) == ("train", "color_hard", "video_easy")
    assert missing("train", 100) == ("color_hard", "video_easy")
    assert missing("video_easy", 9, worlds=10) == ("color_hard", "video_easy")
    assert missing("video_easy", 10, worlds=10) == ("color_hard",)
    assert missing("color_hard", 2) == ("color_hard",)
    assert missing("color_hard", 3) == () and read_state(tmp_path, run).state == "done"


def test_exported_means_this_agent_at_its_last_decision(tmp_path):
    (run,) = plan_runs([Grid(["walker_walk"])], SHORT, export=tmp_path / "exports")
    assert run.export_folder == tmp_path / "exports" / run.name
    folder, config = write_finished(tmp_path, run), {"task": "walker_walk", "seed": 0}
    (folder / "config.json").write_text(json.dumps(config | {"command": "svea train"}))
    others: list[dict[str, Any]] = [
        config, config | {"decision": 50}, config | {"decision": 100, "seed": 1}, {"decision": 100},
    ]  # fmt: skip
    for other in others:
        write_export(run.export_folder, other)
        progress = read_state(tmp_path, run).progress
        assert progress.trained and progress.left["exported"] and not progress.done, other
    write_export(run.export_folder, config | {"decision": 100, "command": "svea sweep"})
    assert read_state(tmp_path, run).state == "done"
    (run.export_folder / "config.json").write_text("[]")
    assert read_state(tmp_path, run).progress.left["exported"]


def test_damaged_and_long_logs_do_not_hide_the_rest(tmp_path):
    (run,) = short()
    log = write_finished(tmp_path, run) / "metrics.jsonl"
    line = json.dumps({"kind": "train", "decision": 1, "seconds": 0.1, "critic_loss": 0.5}) + "\n"
    damage = b'[3]\n\xff\xfe\n{"kind": "eval", "decis'
    log.write_bytes(line.encode() * 5000 + log.read_bytes() + damage)
    write_journal(tmp_path, run, "failed").open("ab").write(b'[1]\n{"event": "en')
    state = read_state(tmp_path, run)
    assert (state.state, state.failures, state.progress.decision) == ("done", 0, 100)
