"""Looks of the drawn picture alone, for any environment, and modes of the user's own."""

from typing import Any

import numpy as np
import pytest

from svea.core.errors import UserError
from svea.envs import make_env
from svea.envs.looks import describe, provenance_of
from svea.envs.looks.pictures import SETTINGS, color_setting
from svea.envs.workers.pool import Workers

TOY = {"task": "toy:make", "image_size": 16}
PICTURE = ("picture_colors", "picture_video", "own_looks:NightMode")


def play(env: Any, seed: int | None) -> tuple[np.ndarray, list[float], dict[str, Any]]:
    seen, info = env.reset(seed=seed)
    pictures, rewards = [seen], []
    for action in (0.5, -0.3, 1.0):
        seen, reward, *_ = env.step(np.array([action], np.float32))
        pictures.append(seen)
        rewards.append(reward)
    return np.stack(pictures), rewards, info


@pytest.mark.parametrize("mode", PICTURE)
def test_an_own_environment_looks_different_and_is_the_same(mode: str) -> None:
    train, test, other = make_env(**TOY), make_env(**TOY, mode=mode), make_env(**TOY, mode=mode)
    plain, looks = play(train, 3), play(test, 3)
    assert plain[1] == looks[1], "rewards are those of train"
    assert looks[0].dtype == np.uint8 and looks[0].shape == plain[0].shape
    assert np.mean(looks[0] != plain[0]) > 0.5
    np.testing.assert_array_equal(looks[0], play(other, 3)[0])
    play(test, 8)
    np.testing.assert_array_equal(looks[0], play(test, 3)[0], "whatever went before")
    assert not np.array_equal(looks[0], play(test, 4)[0])
    # The stack moves on: what was shown before stays as it was shown.
    np.testing.assert_array_equal(looks[0][1][3:], looks[0][2][:6])


def test_the_seed_or_an_option_chooses_the_world_and_without_them_looks_differ() -> None:
    envs = [make_env(**TOY, mode="picture_colors") for _ in range(3)]
    worlds = {tuple(env.reset()[1]["world"] for _ in range(3)) for env in envs}
    assert len(worlds) == 3, "one in 10**6 by chance"
    assert envs[0].reset(seed=207)[1]["world"] == 7
    assert envs[0].reset(seed=207, options={"world": 12})[1]["world"] == 12
    assert describe(provenance_of(envs[0])) == "picture_colors"


def test_colors_are_a_hundred_settings_that_keep_grey_grey() -> None:
    matrices = {color_setting(world)[0].tobytes() for world in range(SETTINGS)}
    assert len(matrices) == SETTINGS
    for world in range(SETTINGS):
        matrix, offset = color_setting(world)
        red, green, blue = matrix @ np.full(3, 100.0) + offset
        assert red == pytest.approx(green, abs=0.5) and green == pytest.approx(blue, abs=0.5)


def test_a_video_moves_by_a_frame_per_decision_at_its_weight() -> None:
    for weight in (0.0, 1.0):
        env = make_env(**TOY, mode="picture_video", weight=weight)
        pictures, *_ = play(env, 1)
        plain, *_ = play(make_env(**TOY), 1)
        newest, drawn = pictures[:, -3:], plain[:, -3:]
        assert np.array_equal(newest, drawn) == (weight == 0)
        if weight:
            assert not np.array_equal(newest[0], newest[1]), "the clip moves"


@pytest.mark.parametrize("mode", PICTURE)
def test_a_worker_shows_the_same(mode: str) -> None:
    with Workers([TOY | {"mode": mode}]) as workers:
        workers.reset([11])
        np.testing.assert_array_equal(
            workers.observations[0], make_env(**TOY, mode=mode).reset(seed=11)[0]
        )
        assert workers.provenance["mode"] == mode, "under the name that users type"


@pytest.mark.parametrize("task", ["cartpole_balance", "robot_reach"])
def test_a_mode_of_your_own_fits_our_tasks_too(task: str) -> None:
    small = {"image_size": 16, "rendering": "fast"}
    day, night = make_env(task, **small), make_env(task, "own_looks:NightMode", **small)
    bright, dark = day.reset(seed=0)[0], night.reset(seed=0)[0]
    offset = int(dark.flat[0]) - int(bright.flat[0]) // 3
    np.testing.assert_array_equal(dark, bright // 3 + np.uint8(offset))
    for env in (day, night):
        env.close()


@pytest.mark.parametrize(
    "mode",
    [
        *("own_looks:NoMode", "no_such_module:Night", "own_looks:NOT_A_MODE", "own_looks:np"),
        *("toy:make", "own_looks:DimmedMode", "own_looks:SceneMode", "night", "color_hard"),
    ],
)
def test_what_is_not_a_mode_is_named(mode: str) -> None:
    with pytest.raises(UserError, match=mode):
        make_env(**TOY, mode=mode)


def test_a_mode_that_shows_no_bytes_is_named_and_a_weight_is_a_share() -> None:
    env = make_env(**TOY, mode="own_looks:FloatMode")
    with pytest.raises(UserError, match=r"FloatMode.*float64"):
        env.reset(seed=0)
    for weight in (-0.1, 1.5, "0.5", float("nan"), True):
        with pytest.raises(UserError, match="weight"):
            make_env(**TOY, mode="picture_video", weight=weight)
