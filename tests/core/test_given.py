"""Tasks handed over as they are: functions, classes, Gymnasium ids, environments."""

import functools
import subprocess
import sys
import threading

import gymnasium as gym
import numpy as np
import pytest
import toy

from svea.config import configure
from svea.core.errors import UserError
from svea.core.given import _GIVEN, find_factory, fingerprint, name_task, pack
from svea.envs import make_env
from svea.envs.workers.pool import Workers

gym.register("toys/Toy-v3", entry_point="toy:make", max_episode_steps=7)


@pytest.fixture(autouse=True)
def forget():
    """What a test handed over is forgotten after it."""
    before = dict(_GIVEN)
    yield
    _GIVEN.clear()
    _GIVEN.update(before)


def near(level: int = 1):
    """A closure, as a notebook has them."""

    def make(image_size: int = 16):
        return toy.Toy(image_size, terminate_at=level)

    return make


def test_names():
    assert name_task("walker_walk") == "walker_walk"
    assert name_task("svea/walker_walk-v0") == "walker_walk"
    assert name_task("toys/Toy-v3") == "gymnasium:toys/Toy-v3"
    assert name_task("toy:make") == "toy:make"
    assert name_task(toy.make) == "toy:make"
    assert name_task(toy.Toy) == "toy:Toy"
    assert name_task(near()) == f"{__name__}:near_make"
    assert name_task(lambda: toy.make()) == f"{__name__}:test_names_lambda"
    assert name_task(functools.partial(toy.make, seed=3)) == "toy:make_seed_3"


@pytest.mark.parametrize("given", [toy.make, toy.Toy, near(3), lambda: toy.Toy(), "toys/Toy-v3"])
def test_every_kind_makes_the_same_pictures(given):
    """As the function named by hand does, in this process."""
    pictures = []
    for task in (given, "toy:make"):
        env = make_env(task, image_size=16)
        pictures.append(env.reset(seed=5)[0])
        env.close()
    assert np.array_equal(*pictures)


def test_an_environment_is_adapted_in_this_process():
    env = make_env(toy.Toy(20), image_size=16)
    assert env.reset(seed=1)[0].shape == (9, 16, 16)
    with pytest.raises(UserError, match="toy:Toy"):
        make_env(gym.wrappers.FrameStackObservation(toy.Toy(), 4))


def test_a_registered_id_keeps_its_time_limit():
    env = make_env("toys/Toy-v3", image_size=16)
    env.reset(seed=0)
    ended = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(7)]
    assert ended == [(False, False)] * 6 + [(False, True)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (3, "3"),
        (None, "None"),
        (toy.Toy(), r"lambda: Toy\("),
        (gym.make("toys/Toy-v3"), "id 'toys/Toy-v3'"),
        ("NoSuch-v3", "NoSuch-v3"),
        ("__main__:make", "__main__:make"),
        ("gymnasium:NoSuch-v3", "gymnasium:NoSuch-v3"),
        ("no_such_module:NoSuch-v3", "no_such_module"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(given, named):
    with pytest.raises(UserError, match=named):
        make_env(**configure(given, base="dqn").environment)


def test_workers_get_what_they_cannot_import():
    """A closure of this test, in other processes: its level, which only the closure knows."""
    with Workers([{"task": name_task(near(2)), "image_size": 16}] * 2) as workers:
        workers.reset([0, 1])
        for ends in (False, True):
            workers.send(np.zeros((2, 1), np.float32), [None, None])
            assert [step.terminated for step in workers.receive()] == [ends, ends]


def test_only_what_is_used_and_unnamed_is_sent():
    lock = threading.Lock()

    def make():
        with lock:
            return toy.make()

    mine, _ = name_task(near()), name_task(lambda: toy.make())
    assert list(pack([mine, "toy:make", "walker_walk"])) == [mine]
    with pytest.raises(UserError, match="TypeError"):
        pack([name_task(make)])


SOURCE = """
import functools
import toy
from svea.core.given import fingerprint, name_task

{0}
SIZE = {1}

def level():
    return {2}

class World(toy.Toy):
    pictures = {3}
    def far(self):
        return {4}

def make():
    world = World(SIZE)
    world.level = level()
    return world

print(fingerprint(name_task(functools.partial(make, {5}))))
"""


def test_the_fingerprint_changes_with_all_that_the_function_uses(tmp_path):
    """And with nothing else: a script is run again with one thing changed."""

    def run(*parts: object) -> str:
        script = tmp_path / "script.py"
        script.write_text(SOURCE.format(*parts))
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        return done.stdout

    assert fingerprint(name_task(toy.make)) is None and fingerprint("walker_walk") is None
    plain = ["# nothing", 16, 1, 2, 3, "x=1"]
    first = run(*plain)
    assert run("unused = 5", *plain[1:]) == first and len(first) == 65
    for place in range(1, len(plain)):
        changed = list(plain)
        changed[place] = "x=9" if place == 5 else 9
        assert run(*changed) != first, place


def test_lambdas_and_closures_keep_their_own_environments():
    def maker(end):
        return lambda: toy.Toy(terminate_at=end)

    given = [lambda: toy.Toy(terminate_at=3), lambda: toy.Toy(terminate_at=4), maker(5), maker(6)]
    names = [name_task(task) for task in given]
    assert [find_factory(name)().terminate_at for name in names] == [3, 4, 5, 6]
    assert [name_task(task) for task in given] == names
