"""What every task and mode must obey: the paper's six and a robot's here, all when asked for."""

import functools
import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from svea.core.errors import NumericsError, UserError
from svea.envs import (
    ACTION_REPEAT,
    GEOMETRY_MODES,
    LIGHT_MODES,
    PAPER_TASKS,
    ROBOT_TASKS,
    TASKS,
    describe,
    make_env,
    modes_of,
)

SMALL = {"image_size": 48, "rendering": "fast"}


def slow_unless_papers(task, mode="train"):
    """The paper's; of other modes the hard ones, in one task per kind of light."""
    tasks: tuple[str, ...] = (*PAPER_TASKS, "robot_push")
    if mode in GEOMETRY_MODES | LIGHT_MODES:
        tasks = ("walker_walk", "finger_spin") if mode in LIGHT_MODES else ("walker_walk",)
        tasks = tasks if mode.endswith("_hard") else ()
    return [] if task in tasks else [pytest.mark.slow]


SUITE = [task for task in TASKS if task not in ROBOT_TASKS]
every_task_of_the_suite = pytest.mark.parametrize(
    "task", [pytest.param(task, marks=slow_unless_papers(task)) for task in SUITE]
)
CASES = [
    pytest.param((task, mode), marks=slow_unless_papers(task, mode), id=f"{task}-{mode}")
    for task in TASKS
    for mode in modes_of(task)
]


CHECKED = [case for case in CASES if case.values[0][0] == "walker_walk" or "-train" in str(case.id)]
"""For gymnasium's own checker, which takes a second: every mode once, and every task once."""


@pytest.fixture(scope="module", autouse=True)
def without_data():
    """Every environment of this file has generated data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SVEA_DATA", raising=False)
        yield


@pytest.fixture(scope="module", params=CASES)
def env(request):
    """One environment per task and mode, which all tests share: no episode may leave a trace."""
    task, mode = request.param
    env = gym.make(f"svea/{task}-v0", mode=mode, render_mode="rgb_array", **SMALL).unwrapped
    yield env
    env.close()


@pytest.fixture
def make():
    """make_env, closing what it made."""
    made = []

    def make(*args, **kwargs):
        made.append(make_env(*args, **kwargs))
        return made[-1]

    yield make
    for env in made:
        env.close()


def play(env, seed, decisions=4):
    """Pixels and rewards of an episode's beginning, with actions that depend on nothing else."""
    rng = np.random.default_rng(0)
    pixels, rewards = [env.reset(seed=seed)[0]], []
    for _ in range(decisions):
        observation, reward, terminated, truncated, _ = env.step(
            rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        )
        pixels.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            break
    return np.stack(pixels), np.array(rewards)


def digest(pixels, rewards):
    return hashlib.sha256(pixels.tobytes() + rewards.tobytes()).hexdigest()


@functools.cache
def train_episode(task):
    """An episode in the training look: pixels, rewards, last state."""
    env = make_env(task, **SMALL)
    episode = *play(env, seed=2), env.unwrapped.physics.get_state()
    env.close()
    return episode


@pytest.mark.parametrize("env", CHECKED, indirect=True)
def test_gymnasium_checker_is_content(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)


def test_spaces_and_values(env):
    assert env.observation_space == gym.spaces.Box(0, 255, (9, 48, 48), np.uint8)
    assert env.action_space.dtype == np.float32
    assert (env.action_space.low == -1).all() and (env.action_space.high == 1).all()
    first, info = env.reset(seed=3)
    assert first.dtype == np.uint8 and info["frames"] == 0
    assert (first[:3] == first[3:6]).all() and (first[3:6] == first[6:]).all()
    assert first.std() > 1  # not one flat colour
    second, reward, terminated, truncated, info = env.step(env.action_space.high)
    assert (second[:6] == first[3:]).all()  # oldest first
    assert type(reward) is float and np.isfinite(reward)
    assert type(terminated) is bool and type(truncated) is bool
    assert info["frames"] == ACTION_REPEAT[env.spec.kwargs["task"]]
    assert env.render().shape == (240, 240, 3) and env.render().dtype == np.uint8


def test_an_episode_is_a_function_of_seed_and_actions(env):
    expected = play(env, seed=7)
    play(env, seed=8, decisions=9)  # half an episode of another seed in between
    env.render()  # and a picture of another size
    again = play(env, seed=7)
    np.testing.assert_array_equal(again[0], expected[0])
    np.testing.assert_array_equal(again[1], expected[1])
    assert digest(*play(env, seed=9)) != digest(*expected)


def test_mode_changes_pictures_and_nothing_else(env):
    pixels, rewards, state = train_episode(env.spec.kwargs["task"])
    test_pixels, test_rewards = play(env, seed=2)
    np.testing.assert_array_equal(test_rewards, rewards)
    np.testing.assert_array_equal(env.physics.get_state(), state)
    change = np.abs(test_pixels.astype(int) - pixels).mean(axis=(1, 2, 3))
    if env.provenance["mode"] == "train":
        assert (change == 0).all()  # an other object, an other first episode
    elif env.provenance["mode"].startswith("moving_light"):
        assert change[0] == 0  # it begins where the light is in training
        assert (test_pixels[-1, -3:] != pixels[-1, -3:]).any() and change[-1] == change.max()
    else:
        lit = env.provenance["mode"] in LIGHT_MODES  # some colours of a light are nearly its own
        assert (change > (0.0 if lit else 0.2)).all()


def test_provenance_is_json_and_names_the_mode(env):
    provenance = env.provenance
    assert json.loads(json.dumps(provenance)) == provenance
    assert describe(provenance).startswith(provenance["mode"])


def test_same_episode_in_another_process(make):
    cases = [("walker_walk", "train")]
    modes = ("color_hard", "video_hard", "distracting_cs", "rotate_shift_unpaired_hard")
    cases += [("cartpole_swingup", mode) for mode in modes]
    cases += [("robot_push", "test")]
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_contract import SMALL, digest, play
from svea.envs import make_env
for task, mode in {cases!r}:
    print(digest(*play(make_env(task, mode, **SMALL), seed=11)))
"""
    settings = {k: v for k, v in os.environ.items() if k != "SVEA_DATA"}
    settings["PYTHONPATH"] = os.pathsep.join(sys.path)
    run = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True
    )
    assert run.stderr == ""  # also: environments left open make no noise when Python ends
    expected = [digest(*play(make(task, mode, **SMALL), seed=11)) for task, mode in cases]
    assert run.stdout.split() == expected


def test_resets_without_a_seed_continue_from_the_last_one(make):
    one, two = make("cartpole_balance", seed=4), make("cartpole_balance", seed=99)
    first = one.reset()[0]
    np.testing.assert_array_equal(first, two.reset(seed=4)[0])
    second = one.reset()[0]
    assert (second != first).any()
    two.step(np.zeros(1, np.float32))
    np.testing.assert_array_equal(second, two.reset()[0])


@every_task_of_the_suite
def test_rewards_are_those_of_dm_control(make, task):
    """Against dm_control's own environment loop, with the same first state."""
    from dm_control import suite

    env = make(task, image_size=16, rendering="fast")
    env.reset(seed=1)
    domain, name = next((d, t) for d, t in suite.ALL_TASKS if f"{d}_{t}" == task)
    random = np.random.RandomState(0)
    reference = suite.load(domain, name, task_kwargs={"random": 0})
    vars(reference.task)["_random"] = random
    reference.reset()
    env._start_task(np.random.RandomState(0))
    spec = reference.action_spec()
    low, high = np.maximum(spec.minimum, -2), np.minimum(spec.maximum, 2)
    if task.startswith("lqr"):
        low, high = -np.ones(spec.shape), np.ones(spec.shape)
    rng = np.random.default_rng(3)
    for _ in range(3):
        action = rng.uniform(-1, 1, spec.shape).astype(np.float32)
        control = low + (action.astype(np.float64) + 1) / 2 * (high - low)
        expected = sum(reference.step(control).reward for _ in range(ACTION_REPEAT[task]))
        assert env.step(action)[1] == pytest.approx(expected, rel=1e-12, abs=1e-12)
    reference.physics.free()


@pytest.mark.parametrize(("repeat", "frames"), [(4, 10), (1, 3), (8, 5)])
def test_truncates_at_the_frame_limit(make, repeat, frames):
    env = make(
        "walker_stand", image_size=16, rendering="fast", action_repeat=repeat, episode_frames=frames
    )
    env.reset()
    seen, truncated = 0, False
    while not truncated:
        _, _, terminated, truncated, info = env.step(env.action_space.low)
        assert not terminated
        assert info["frames"] == min(seen + repeat, frames)
        seen = info["frames"]
    assert seen == frames
    with pytest.raises(gym.error.ResetNeeded):
        env.step(env.action_space.low)


def test_a_task_that_ends_is_terminated_not_truncated(make):
    env = make("lqr_lqr_2_1", image_size=16, rendering="fast")
    env.reset(seed=0)
    env.physics.set_state(np.zeros_like(env.physics.get_state()))  # the goal
    env.physics.forward()
    _, _, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
    assert terminated and not truncated


def test_actions_are_rescaled_to_the_task(make):
    env = make("quadruped_walk", image_size=16, rendering="fast", action_repeat=1)
    env.reset()
    ranges = env.physics.model.actuator_ctrlrange
    assert (ranges != [-1, 1]).any()
    for action, expected in ((-1, ranges[:, 0]), (1, ranges[:, 1]), (0, ranges.mean(axis=1))):
        env.step(np.full(12, action, np.float32))
        np.testing.assert_allclose(env.physics.data.ctrl, expected)


def test_bad_actions_are_refused(make):
    env = make("walker_walk", image_size=16, rendering="fast")
    env.reset()
    with pytest.raises(UserError, match=r"\(6,\)"):
        env.step(np.zeros(2, np.float32))
    with pytest.raises(NumericsError, match="nan"):
        env.step(np.full(6, np.nan, np.float32))


@pytest.mark.parametrize("mode", ["color_hard", "distracting_cs"])
def test_two_environments_do_not_disturb_each_other(make, mode):
    one = make("walker_walk", mode, **SMALL)
    other = make("finger_spin", mode, render_mode="rgb_array", **SMALL)
    alone = play(one, seed=1)
    rng = np.random.default_rng(0)
    make_env("cartpole_balance", mode, **SMALL).reset()  # dropped, unclosed
    pixels = [one.reset(seed=1)[0]]
    other.reset(seed=2)
    for turn in range(4):
        if turn < 3:
            other.step(other.action_space.high)
        pixels.append(one.step(rng.uniform(-1, 1, 6).astype(np.float32))[0])
        if turn == 1:
            other.reset(seed=3)
            other.render()
        if turn == 2:
            other.close()
    np.testing.assert_array_equal(np.stack(pixels), alone[0])


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux's /proc")
@pytest.mark.parametrize("times", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_closing_leaves_no_files_or_memory_behind(times):
    modes = ["color_hard", "video_hard", "distracting_cs"]

    def cycle(number):
        mode = modes[number % len(modes)]
        env = make_env("cartpole_balance", mode, **SMALL)
        env.reset()
        env.close()
        env.close()  # twice does no harm

    def resident_megabytes():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    for number in range(len(modes)):
        cycle(number)
    files, memory = len(os.listdir("/proc/self/fd")), resident_megabytes()
    for number in range(times):
        cycle(number)
    assert len(os.listdir("/proc/self/fd")) == files
    # A context with its sky is about 40 MB, so 6 leaked ones would be 240.
    assert resident_megabytes() - memory < 100


def worlds(mode: str, seeds: Iterable[int | None]) -> list[int | str]:
    env = make_env("cartpole_swingup", mode, image_size=16, rendering="fast")
    shown: list[int | str] = []
    for seed in seeds:
        _, first = env.reset(seed=seed)
        *_, later = env.step(np.zeros(1, np.float32))
        assert first["world"] == later["world"]
        shown.append(later["world"])
    env.close()
    return shown


@pytest.mark.parametrize(
    ("mode", "count"),
    [
        *(("color_hard", 100), ("video_easy", 10), ("distracting_cs:0.1", 4)),
        *(("rotate_shift_hard", 100), ("light_position_easy", 8), ("light_color_hard", 100)),
    ],
)
def test_the_world_follows_from_the_seed(mode: str, count: int) -> None:
    """World s modulo their number: so an evaluation can show them in turn."""
    seeds = [0, 1, count - 1, count, 3 * count + 1, 2**31 + count + 1]
    named = [s % count for s in seeds]
    prefix = "procedural " if "video" in mode or "distracting" in mode else ""
    assert [str(world) for world in worlds(mode, seeds)] == [f"{prefix}{n}" for n in named]


@pytest.mark.parametrize("mode", ["color_hard", "video_easy", "distracting_cs:0.1", "rotate_hard"])
def test_a_reset_without_a_seed_draws_a_world(mode: str) -> None:
    drawn = worlds(mode, [5, *[None] * 30])[1:]
    assert drawn == worlds(mode, [5, *[None] * 30])[1:]
    steps = {int(str(b).split()[-1]) - int(str(a).split()[-1]) for a, b in pairwise(drawn)}
    assert len(set(drawn)) > 2 and len(steps) > 3, "not in turn"


def test_a_world_can_be_asked_for() -> None:
    env = make_env("cartpole_swingup", "video_easy", image_size=16, rendering="fast")
    for wanted in (7, "procedural 7"):
        assert env.reset(seed=0, options={"world": wanted})[1]["world"] == "procedural 7"
    assert env.reset(seed=12)[1]["world"] == "procedural 2", "for one episode only"
    for wrong in (10, -1, True, "video7", 1.0):
        with pytest.raises(UserError, match="0 to 9"):
            env.reset(options={"world": wrong})
    env.close()
