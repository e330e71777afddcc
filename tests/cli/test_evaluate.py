"""The verb `svea eval`: what it plays, records, prints, and how it fails."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import write_run
from PIL import Image
from processes import alive
from small_media import write_video
from tiny_runs import tiny

import svea
from svea.cli import main
from svea.cli.evaluate import evaluate, print_scores
from svea.core import terminal
from svea.core.errors import StorageError, UserError
from svea.evaluation import requests
from svea.results.groups import group_runs
from svea.results.read import read_run
from svea.results.tables import all_results, to_rows
from svea.runs.load import export
from svea.runs.records import read_records
from svea.training import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tiny(tmp_path_factory.mktemp("scores") / "run", decisions=20))


@pytest.fixture
def run(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "run"))


def verb(*runs: Path, episodes: int = 2, **flags: Any) -> int:
    return evaluate(runs, episodes=(str(episodes),), **{"modes": ("train",), "envs": 1} | flags)


def test_the_same_command_again_plays_what_is_missing(run, capsys):
    assert verb(run, random_policy=True) == 0
    first = read_records(run)
    assert [(r["policy"], r["episode"]) for r in first] == [
        ("agent", 0), ("agent", 1), ("random", 0), ("random", 1),
    ]  # fmt: skip
    capsys.readouterr()
    assert verb(run, episodes=3) == 0
    assert "recorded before: 2 episodes" in capsys.readouterr().out
    assert read_records(run)[:4] == first and len(read_records(run)) == 5
    assert verb(run, episodes=3, again=True) == 0
    assert len(read_records(run)) == 8, "all three were played once more"
    returns = read_run(run).finals("train")
    assert len(returns) == 3, "and the later record of an episode counts"


def test_the_pictures_that_are_asked_for_are_those_of_the_table(run, tmp_path, capsys):
    """Asking once without the benchmark's clips must not hide their results for good."""
    write_video(tmp_path / "data/dmcgb/video_hard/video0.mp4", np.zeros((4, 16, 16, 3), np.uint8))
    clips, generated = {"data_dir": str(tmp_path / "data")}, {"data_dir": ""}
    shown = {"1 of 100 clips": clips, "procedural": generated}

    def ask(**data: Any) -> str:
        assert verb(run, modes=("picture_video",), **data) == 0
        out = capsys.readouterr().out
        return next(words for words in shown if f"picture_video ({words}" in out)

    assert [ask(**data) for data in (clips, generated)] == list(shown)
    first = read_records(run)
    assert ask(**clips) == "1 of 100 clips"
    again = read_records(run)
    assert again == [*first, *first[:2]], "recorded once more, not played"
    told = read_run(run)
    assert told.provenance["picture_video"]["clips"] == 1, "every other table shows them, too"
    assert ask(**clips) == "1 of 100 clips" and read_records(run) == again
    assert [ask(**data) for data in (generated, clips)] == ["procedural", "1 of 100 clips"]


def test_verbs_that_take_minutes_say_how_far_they_are_on_stderr(run, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "LINE_SECONDS", -1.0)
    flags = ["eval", str(run), "--modes", "train", "--episodes", "2", "--envs", "1", "--json"]
    assert main(flags) == 0
    out, err = capsys.readouterr()
    assert len([json.loads(line) for line in out.splitlines()]) == 2, "the records alone"
    assert "evaluating run in train: 1 of 2 episodes done\n" in err
    assert main(["watch", str(run), "--modes", "train"]) == 0
    assert "playing in train\n" in capsys.readouterr().err
    assert main(["analyze", "q-variance", str(run), "--transitions", "8", "--draws", "2"]) == 0
    assert f"analysing {run}: 0 of 1 runs done" in capsys.readouterr().err


def test_all_episodes_of_a_mode_with_one_world(run, capsys):
    flags = ["eval", str(run), "--modes", "train", "--episodes", "all", "--envs", "2", "--json"]
    assert main(flags) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(record["episode"] for record in records) == list(range(100))
    assert [r["seed"] for r in svea.evaluate(run, episodes="all", environments=2)] == [
        r["seed"] for r in sorted(records, key=lambda record: record["episode"])
    ]


def test_modes_may_have_numbers_of_their_own(run, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "LINE_SECONDS", -1.0)
    words = ["eval", str(run), "--modes", "all", "--envs", "1", "--episodes"]
    assert main([*words, "2", "picture_colors=3", "train=1"]) == 0
    assert "6 of 6 episodes done" in capsys.readouterr().err
    played = Counter(record["mode"] for record in read_records(run))
    assert played == {"train": 1, "picture_colors": 3, "picture_video": 2}
    first = read_records(run)
    assert main([*words, "1", "picture_video=3"]) == 0, "what is recorded counts"
    assert read_records(run)[:6] == first and len(read_records(run)) == 7
    alone = svea.evaluate(run, ["picture_colors"], 3, environments=1)
    ours = svea.evaluate(run, ["train", "picture_colors"], {"picture_colors": 3, "default": 1},
                         environments=1)  # fmt: skip
    assert ours[1:] == alone and ours[0]["mode"] == "train"


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("RUN --modes train --episodes 20 train=0", "episodes of train is 0"),
        ("RUN --modes train --episodes 20 picture_colors=5", "5 for picture_colors"),
        # What should stand before a flag of many words.
        ("--episodes 20 zoo:walker_walk-svea", "before --episodes"),
        ("--modes train --episodes 20 runs/misspelt", "before --episodes"),
        ("--modes train runs/misspelt", "no run to evaluate"),
    ],
)
def test_bad_words_are_refused_before_anything_is_played(words, typed, run, capsys):
    assert main(["eval", *words.replace("RUN", str(run)).split()]) == 2
    assert typed in capsys.readouterr().err and read_records(run) == []


def test_an_export_in_a_folder_next_to_its_run_is_left_out_and_named(run, tmp_path, capsys):
    copy = export(run, tmp_path / "exports" / "run")
    assert verb(run, tmp_path / "exports", json=True) == 0
    assert len(read_records(run)) == 2 and read_records(copy) == []
    assert f"left out: {copy}, exported from runs that are evaluated" in capsys.readouterr().err
    assert verb(run, copy) == 0, "named itself"
    assert len(read_records(copy)) == 2 and capsys.readouterr().err == ""


def test_an_interrupted_evaluation_keeps_what_it_played(run, monkeypatch, capsys):
    written: list[Any] = []
    append = requests.append_records

    def then_stop(folder: Path, records: list[Any]) -> None:
        append(folder, records)
        written.extend(records)
        raise KeyboardInterrupt

    monkeypatch.setattr(requests, "append_records", then_stop)
    with pytest.raises(KeyboardInterrupt):
        verb(run, episodes=3)
    assert "1 new episode recorded, the same command continues" in capsys.readouterr().err
    monkeypatch.undo()
    assert verb(run, episodes=3) == 0
    assert read_records(run)[:1] == written and len(read_records(run)) == 3


@pytest.fixture
def three(trained, tmp_path):
    return [Path(shutil.copytree(trained, tmp_path / f"run-{number}")) for number in range(3)]


def test_agents_that_play_at_once_have_the_records_of_one_after_the_other(
    three, monkeypatch, capsys
):
    monkeypatch.setattr(terminal, "LINE_SECONDS", -1.0)
    asked: dict[str, Any] = {"modes": ("train", "picture_colors"), "random_policy": True}
    assert verb(*three, **asked) == 0
    alone, told = [read_records(run) for run in three], capsys.readouterr()
    for run in three:
        (run / "eval.jsonl").unlink()
    assert verb(*three, **asked, jobs=3) == 0
    assert [read_records(run) for run in three] == alone
    again = capsys.readouterr()
    assert again.out == told.out
    for run in three:
        assert f"evaluating {run.name} in train" in again.err, "progress names each run"
    assert verb(*three, **asked, jobs=2, json=True) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [record for records in alone for record in records]


def test_modes_of_one_agent_that_are_played_at_once_have_the_records_of_one_after_the_other(
    run, monkeypatch, capsys
):
    loaded: dict[int, Any] = {}
    real = requests.load_agent

    def load(run: Path, **options: Any) -> Any:
        return loaded.setdefault(threading.get_ident(), real(run, **options))

    def played(**asked: Any) -> tuple[list[Any], str]:
        assert verb(run, modes=("train", "picture_colors", "picture_video"), **asked) == 0
        records = sorted(read_records(run), key=lambda record: record["mode"])
        (run / "eval.jsonl").unlink()
        return records, capsys.readouterr().out

    alone = played(random_policy=True)
    monkeypatch.setattr(requests, "load_agent", load)
    assert played(random_policy=True, jobs=3) == alone
    assert len({id(agent) for agent in loaded.values()}) == 3, "threads share no agent"


def test_an_unexpected_error_of_one_agent_comes_after_the_records_of_the_others(three, monkeypatch):
    real = requests.load_agent

    def fails(run: Path, **options: Any) -> Any:
        if run == three[0]:
            raise ZeroDivisionError("a bug")
        return real(run, **options)

    monkeypatch.setattr(requests, "load_agent", fails)
    with pytest.raises(ZeroDivisionError):
        verb(*three, jobs=3)
    assert [len(read_records(run)) for run in three] == [0, 2, 2]


@pytest.mark.parametrize("flags", [{"jobs": 0}, {"jobs": 5000}, {"episodes": 0}, {"modes": ()}])
def test_nothing_to_play_is_refused(run, flags):
    with pytest.raises(UserError):
        verb(run, **flags)
    with pytest.raises(UserError):
        verb()


def interrupted(
    runs: list[Path], begun: Callable[[], bool], *words: str, path: str = "", **more: str
) -> str:
    """What `svea eval` says to Ctrl-C, in a process of its own: its main thread gets signals."""
    arguments = ["eval", *map(str, runs), "--modes", "train", "--envs", "1", "--jobs", "3"]
    folders = os.pathsep.join(filter(None, [path, *sys.path]))
    child = subprocess.Popen(
        [sys.executable, "-m", "svea", *arguments, "--trust", *words],
        env=os.environ | {"PYTHONPATH": folders} | more, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 90
        while not begun():
            assert child.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        while more and child.poll() is None:  # again, however late the first one is handled
            assert time.monotonic() < deadline, "Ctrl-C does nothing"
            time.sleep(1)
            child.send_signal(signal.SIGINT)
        err = child.communicate(timeout=60)[1]
    finally:
        child.kill()
    assert child.returncode == 130 and "Traceback" not in err
    assert "the same command continues" in err
    return err


def test_ctrl_c_stops_all_agents_and_the_same_command_continues(three):
    begun = lambda: all(len(read_records(run)) > 3 for run in three)  # noqa: E731
    assert "stopping" in interrupted(three, begun, "--episodes", "4000")
    played = [read_records(run) for run in three]
    lines = [(run / "eval.jsonl").read_text().splitlines() for run in three]
    assert [len(one) for one in lines] == [len(one) for one in played], "no line is cut"
    wanted = max(map(len, played)) + 1
    assert verb(*three, episodes=wanted, jobs=3) == 0
    for run, before in zip(three, played, strict=True):
        assert read_records(run)[: len(before)] == before and len(read_records(run)) == wanted


STUCK = """
import os, time
from pathlib import Path
from toy import Toy

class Stuck(Toy):
    def step(self, action):
        if self.clock == 5 and self.np_random.integers(4) == 0:
            Path(os.environ["STUCK_FOLDER"], str(os.getpid())).touch()
            time.sleep(600)
        return super().step(action)

def make(image_size=16, seed=0):
    return Stuck(image_size, seed)
"""


def test_a_second_ctrl_c_ends_all_processes_at_once(three, tmp_path):
    """Environments that do not answer keep the first one waiting, here for ten minutes."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "stuck.py").write_text(STUCK)
    (folder := tmp_path / "stuck").mkdir()
    for run in three:
        stored = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(stored | {"step_timeout": 600.0}))
    words, modules = ("--task", "stuck:make", "--episodes", "400"), str(tmp_path / "modules")
    begun = lambda: len(list(folder.iterdir())) == 3  # noqa: E731
    err = interrupted(three, begun, *words, path=modules, STUCK_FOLDER=str(folder))
    count = sum(len(read_records(run)) for run in three)
    episodes = "1 new episode" if count == 1 else f"{count} new episodes"
    said = f"svea: stopped at once; {episodes} recorded, the same command continues"
    assert err.splitlines()[-1] == said
    assert not [pid for pid in folder.iterdir() if alive(int(pid.name))]


@pytest.mark.parametrize("jobs", [1, 4])
def test_what_fails_is_named_and_the_rest_evaluated(jobs, three, tmp_path, capsys):
    run, corrupt, foreign = three
    for weights in corrupt.rglob("agent.safetensors"):
        weights.write_bytes(weights.read_bytes()[:100])
    stored = json.loads((run / "config.json").read_text())
    (foreign / "config.json").write_text(json.dumps(stored | {"from_the_future": 1}))
    modes = ("train", "color_hard")
    assert verb(tmp_path / "missing", corrupt, foreign, run, modes=modes, jobs=jobs) != 0
    out, err = capsys.readouterr()
    for named in (tmp_path / "missing", corrupt, "'from_the_future'"):
        assert str(named) in err
    assert err.count("color_hard") == 1, "once, for all runs it holds for"
    assert "toy:make" in out and len(read_records(run)) == 2


def test_the_table_has_what_could_not_be_written(run, monkeypatch, capsys):
    def full(*_: Any) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(requests, "append_records", full)
    assert verb(run, episodes=7) == 4
    out, err = capsys.readouterr()
    row = next(line for line in out.splitlines() if line.startswith("toy:make"))
    assert "7" in row.split() and "no space left" in err


def test_an_export_has_no_log_and_that_is_no_news(run, tmp_path, capsys):
    folder = export(run, tmp_path / "exported")
    assert verb(folder, modes=("train",)) == 0
    out, err = capsys.readouterr()
    assert "missing" not in out and "unfinished" not in out and err == ""
    assert [len(group.runs) for group in group_runs([read_run(run), read_run(folder)])] == [2]


def test_robot_and_suite_are_not_pooled(tmp_path):
    for task in ("walker_walk", "finger_spin", "robot_reach", "robot_push", "toy:make", "toy:b"):
        level = {"w": 800.0, "f": 400.0, "r": 30.0, "t": 5.0}[task[0]]
        write_run(tmp_path / task, task=task, final={"train": level})
    groups = group_runs([read_run(folder) for folder in sorted(tmp_path.iterdir())])
    rows = {row["task"]: row["mean ± std"] for row in to_rows(all_results(groups))}
    pooled = {name: mean for name, mean in rows.items() if name.startswith("all")}
    assert pooled == {"all 2 DMControl tasks": "600", "all 2 robot tasks": "30"}


def test_the_short_table_fits_80_columns_and_warns(tmp_path, capsys):
    for method, level in (("svea", 300.0), ("drq", 200.0)):
        write_run(tmp_path / method, method=method, final={"train": level, "color_hard": level})
    (tmp_path / "drq/metrics.jsonl").unlink()
    print_scores([tmp_path])
    short = capsys.readouterr().out.splitlines()
    assert short[0].split() == ["task", "setting", "mode", "mean", "[95", "%]", "episodes"]
    assert len(short) == 1 + 4 + 2, "a warning, and how to see the rest"
    assert "metrics.jsonl" in short[5] and "--verbose" in short[6]
    assert max(map(len, short)) <= 80
    command = ["compare", "svea", "drq", "--runs", str(tmp_path)]
    assert main(command) == 0
    short = capsys.readouterr().out.splitlines()
    assert "seeds" not in short[0] and "P(" not in short[0] and "metrics.jsonl" in short[-1]
    assert main([*command, "--verbose"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(short)


def test_the_analyses_print_a_row_per_run_and_the_mean_over_seeds(tmp_path, capsys):
    for seed in range(2):
        folder = tmp_path / "runs" / str(seed)
        write_run(folder, seed=seed, final={"train": 300.0 + 100 * seed})
        write_run(tmp_path / "runs" / f"d{seed}", method="drq", seed=seed, final={"train": 100.0})
    assert main(["analyze", "walltime", str(tmp_path), "-o", str(tmp_path / "w.png")]) == 0
    table = capsys.readouterr().out.splitlines()
    assert "hours to 90" in table[0] and len(table) == 4
    drq, svea = (line.split() for line in table[1:3])
    assert float(drq[-1]) == pytest.approx(350 / 100, rel=0.01) and svea[-1] == "1"
    picture = np.asarray(Image.open(tmp_path / "w.png").convert("L"))
    assert (picture < 128).mean() > 0.005, "something is drawn"


def test_another_function_is_shown_as_a_mode(run, capsys):
    words = ["--task", "toy:make_terminating", "--modes", "train", "picture_colors", "--videos"]
    assert main(["eval", str(run), *words, "--episodes", "2", "--envs", "1"]) == 0
    said = capsys.readouterr().out
    assert "toy:make_terminating" in said and "+picture_colors" in said
    assert {path.stem for path in (run / "media").glob("*.mp4")} == {
        "toy:make_terminating", "toy:make_terminating+picture_colors",
    }  # fmt: skip
    assert main(["watch", str(run), "--task", "toy:make_terminating", "--modes", "train"]) == 0
    assert (run / "watch.mp4").exists()
    (where,) = {run.task for group in group_runs([read_run(run)]) for run in group.runs}
    assert where == "toy:make", "the run's task stays what it was trained on"


def test_factors_are_varied_by_the_same_processes_and_recorded_as_modes(run, capsys, monkeypatch):
    started = []
    monkeypatch.setattr(requests, "Workers", counting(requests.Workers, started))
    varied = {"modes": (), "vary": ("picture.noise", "picture.delay"), "values": 3}
    assert verb(run, **varied) == 0
    said = capsys.readouterr().out
    assert len(started) == 1 and "keeps 50 %" in said
    first = read_records(run)
    factors = {"picture.noise": (0.25, 0.5), "picture.delay": (4, 8)}
    modes = ["train", *(f"{name}={v}" for name, values in factors.items() for v in values)]
    assert [r["mode"] for r in first] == [mode for mode in modes for _ in range(2)]
    assert {r["provenance"].get("mode", "train") for r in first} == set(modes)
    assert len({tuple(r["seed"] for r in first if r["mode"] == mode) for mode in modes}) == 1
    for mode in modes:
        assert (run / "media/factors" / f"{mode}.png").exists()
    assert verb(run, **varied) == 0 and read_records(run) == first, "all of it is known"
    assert verb(run, modes=("picture.noise=.25", "picture.noise=0")) == 0
    assert read_records(run) == first, "a value is the same mode, and the training value is train"
    alone = svea.evaluate(run, ["picture.noise=0.5"], episodes=2, environments=1)
    assert alone == [r for r in first if r["mode"] == "picture.noise=0.5"]
    assert verb(run, **varied, json=True, again=True) == 0
    again = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]
    assert again == first, "an episode is a function of its seed and its world"


def counting(kind: Any, made: list[Any]) -> Callable[..., Any]:
    def make(*given: Any, **named: Any) -> Any:
        made.append(kind(*given, **named))
        return made[-1]

    return make


@pytest.mark.parametrize("flags, said", [
    ({"vary": ("picture.nosie",)}, "picture.noise"), ({"vary": ("all",), "values": 1}, "values"),
    ({"vary": ("light.strength",)}, "does not simulate"), ({"modes": ("camera.roll=900",)}, "-180"),
    ({"vary": ("all",), "task": "toy:other"}, "task"),
    ({"modes": ("picture.noise=x",)}, "0 to 0.5"),
])  # fmt: skip
def test_factors_that_cannot_be_varied_are_refused(run, capsys, flags, said):
    try:
        code = verb(run, **({"modes": ()} | flags))
    except UserError as error:
        code, message = error.exit_code, str(error)
    else:
        message = capsys.readouterr().err
    assert code == 2 and said in message
    assert read_records(run) == []
