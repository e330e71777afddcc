"""Training and evaluating on a function: in this process, continued, and without it."""

import json
import subprocess
import sys

import pytest
import toy
from tiny_runs import TINY

import svea
from svea.core.errors import UserError
from svea.core.given import _GIVEN

SMALL = TINY | {"decisions": 20, "save_every": 5, "eval_every": 100}


def curve(run) -> list[dict]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in x.items() if "second" not in k} for x in lines]


def test_a_function_trains_as_its_name_does_and_continues(tmp_path):
    """A closure, stopped in the middle, gives the numbers of `toy:make` in one go."""
    _GIVEN.clear()
    size = 16

    def make(image_size: int = size):
        return toy.make(image_size)

    named = svea.train("toy:make", **SMALL, out=str(tmp_path / "named"))
    stops = iter([None, False])
    out = {"out": str(tmp_path / "run")}
    run = svea.train(make, lambda line: next(stops, None), **SMALL, **out)
    assert len(curve(run)) < len(curve(named))
    _GIVEN.clear()  # as in another process
    assert svea.train(make, **SMALL, **out) == run
    assert curve(run) == curve(named)

    stored = json.loads((run / "config.json").read_text())
    name = f"{__name__}:test_a_function_trains_as_its_name_does_and_continues_make"
    assert stored["task"] == stored["function"]["name"] == name
    assert svea.load_agent(run).decision == 20

    records, same = (svea.evaluate(one, episodes=2, environments=1) for one in (run, named))
    assert [r["return"] for r in records] == [r["return"] for r in same]
    assert {r["task"] for r in records} == {name} and {r["mode"] for r in records} == {"train"}
    again = svea.evaluate(run, episodes=2, environments=1, task=make)
    assert again == records  # it is the run's own task, not another look
    other = svea.evaluate(run, episodes=1, environments=1, task=lambda: toy.make_terminating())
    assert other[0]["length"] == 4 and other[0]["mode"].endswith("_lambda")


def test_another_function_of_the_same_name_is_not_the_same_run(tmp_path):
    def function(far: bool):
        def make(image_size: int = 16):
            return toy.make_terminating(image_size) if far else toy.make(image_size)

        return make

    out = {"out": str(tmp_path / "run")}
    svea.train(function(False), **SMALL, **out)
    with pytest.raises(UserError, match=r"task: .*_make' there, .*_make_2"):
        svea.train(function(True), **SMALL | {"decisions": 25}, **out)
    _GIVEN.clear()  # as in a new process, which has not seen the first
    with pytest.raises(UserError, match=r"a run of another .*source"):
        svea.train(function(True), **SMALL | {"decisions": 25}, **out)


def test_options_belong_to_the_configuration(tmp_path):
    config = svea.configure("toy:make", **SMALL)
    with pytest.raises(UserError, match="out"):
        svea.train(config, out=str(tmp_path))


SCRIPT = """
import sys
import toy
import svea

class Mine(toy.Toy):
    pass

if sys.argv[1] == "train":
    svea.train(Mine, **{small!r}, out=sys.argv[2])
given = {{"task": Mine}} if "given" in sys.argv else {{}}
print(len(svea.evaluate(sys.argv[2], episodes=1, **given)))
"""


@pytest.mark.slow
def test_a_script_trains_on_its_own_class(tmp_path):
    """Another process needs the class again, and says so; so does the command line."""
    (tmp_path / "script.py").write_text(SCRIPT.format(small=SMALL))
    run = str(tmp_path / "run")

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=120,
            cwd=tmp_path, env={"PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip

    done = python("script.py", "train", run)
    assert done.returncode == 0 and done.stdout.endswith("1\n"), done.stderr
    assert json.loads((tmp_path / "run/config.json").read_text())["task"] == "__main__:Mine"
    assert python("script.py", "evaluate", run, "given").stdout == "1\n"
    assert "pass it again" in python("script.py", "evaluate", run).stderr
    asked = python("-m", "svea", "eval", run)
    assert asked.returncode == 2 and "a function of a notebook or a script" in asked.stderr
