"""The robot's test worlds: stored draws, in which the red mark stays red and in sight."""

import colorsys
import dataclasses
import json

import numpy as np
import pytest

from svea.config.modes import WORLDS
from svea.core.errors import UserError
from svea.envs import expand_modes, make_env, parse_mode
from svea.envs.robot.worlds import CAMERA, PATTERNS, Pattern, World, stored

SURFACES = ("table", "floor", "wall", "skybox", "arm")
LEAST_RED = 10  # pixels of 84 x 84: about a third of the mark


@pytest.fixture(scope="module")
def env():
    env = make_env("robot_reach", "test", rendering="fast").unwrapped
    yield env
    env.close()


def red(observation):
    """Which pixels of the newest frame are red."""
    r, g, b = observation[-3:].astype(int)
    return (r >= 120) & (r >= 2 * np.maximum(g, b))


def draw_world(seed):
    """The draw that made a stored world; rounded, so that what is stored is what was drawn."""
    rng = np.random.default_rng(seed)

    def some(low, high, size):
        return np.round(rng.uniform(low, high, size), 3).tolist()

    spread = np.array([0.10, 0.25, 0.10])  # metres to either side of the training camera
    camera = tuple(some(CAMERA - spread, CAMERA + spread, 3))
    surfaces = {name: draw_pattern(rng) for name in SURFACES}
    return World(
        camera=camera,
        surfaces=surfaces,
        light_direction=(*np.round(rng.normal(0.0, 0.35, 2), 3).tolist(), -1.0),
        ambient=tuple(some(0.0, 0.4, 3)),
        diffuse=tuple(some(0.3, 0.9, 3)),
        specular=tuple(some(0.0, 0.6, 3)),
        shadow=bool(rng.random() < 0.5),
    )


def draw_pattern(rng):
    """A kind and two colours, 40 degrees of hue or more away from the red of the mark."""
    kind, colors = PATTERNS[int(rng.integers(len(PATTERNS)))], []
    for _ in range(2):
        hue = rng.uniform(40, 320) / 360
        color = colorsys.hsv_to_rgb(hue, rng.uniform(0, 0.9), rng.uniform(0.15, 0.95))
        colors.append(tuple(round(channel, 3) for channel in color))
    return Pattern(kind, tuple(colors), int(rng.integers(2**31)))


def test_the_stored_worlds_are_the_draws():
    drawn = [draw_world(1000 + k) for k in range(WORLDS)]
    as_json = [json.dumps(dataclasses.asdict(world)) for world in stored()]
    assert as_json == [json.dumps(dataclasses.asdict(world)) for world in drawn]
    assert len(as_json) == len(set(as_json)) == 25


def test_patterns():
    light, dark = (1.0, 1.0, 1.0), (0.0, 0.5, 1.0)
    paint = {kind: Pattern(kind, (light, dark), 5).paint(64, 64) for kind in PATTERNS}
    assert (paint["flat"] == 255).all()
    assert (paint["checker"][:8, :8] == 255).all()
    assert (paint["checker"][:8, 8:16] == [0, 128, 255]).all()
    assert (paint["gradient"][0] == 255).all()
    assert (paint["gradient"][-1] == [0, 128, 255]).all()
    assert (np.diff(paint["gradient"][:, 0, 0].astype(int)) < 0).all()
    noise = paint["noise"][..., 0].astype(int)
    assert 60 < noise.std() < 90 and (np.diff(noise) != 0).mean() > 0.9
    assert (paint["noise"] == Pattern("noise", (light, dark), 5).paint(64, 64)).all()


def test_the_seed_chooses_the_world_and_then_they_take_turns(env):
    assert [env.reset(seed=seed)[1]["world"] for seed in (0, 7, 24, 25, 1031)] == [0, 7, 24, 0, 6]
    assert [env.reset()[1]["world"] for _ in range(20)] == [*range(7, 25), 0, 1]
    assert env.reset(seed=3, options={"world": 20})[1]["world"] == 20
    assert env.step(np.zeros(2))[-1]["world"] == 20
    with pytest.raises(UserError, match="0 to 24"):
        env.reset(options={"world": 25})


def test_one_world_alone(env):
    one = make_env("robot_reach", "test:7", rendering="fast").unwrapped
    np.testing.assert_array_equal(one.reset(seed=3)[0], env.reset(seed=3, options={"world": 7})[0])
    assert one.reset(seed=4, options={"world": 9})[1]["world"] == 7
    assert one.provenance["world"] == 7 and "worlds" not in one.provenance
    assert env.provenance["worlds"] == 25 and env.provenance["sha256"] == one.provenance["sha256"]
    one.close()


@pytest.mark.parametrize("size", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_the_mark_is_red_and_in_sight_in_every_world(env, size):
    for world in range(WORLDS):
        for seed in range(size):
            observation, _ = env.reset(seed=100 + seed, options={"world": world})
            count = int(red(observation).sum())
            assert count >= LEAST_RED, f"world {world}, seed {seed}: {count} red pixels"


def test_without_the_mark_nothing_looks_red(env):
    for world in range(WORLDS):
        env.reset(seed=5, options={"world": world})
        env.physics.data.mocap_pos[0] = [0.0, 0.0, -5.0]
        assert not red(env.step(np.zeros(2))[0]).any(), f"world {world}"


def test_the_camera_follows_the_gripper_from_where_it_stands(env):
    env.reset(seed=0, options={"world": 4})
    data, places = env.physics.data.ptr, []
    for action in ([1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]):
        for _ in range(3):
            env.step(np.array(action))
        camera = data.cam("view")
        ahead = -camera.xmat.reshape(3, 3)[:, 2]
        towards = data.body("fingers").xpos - camera.xpos
        np.testing.assert_allclose(ahead, towards / np.linalg.norm(towards), atol=1e-9)
        places.append(camera.xpos.copy())
    np.testing.assert_allclose(places, [stored()[4].camera] * 3, atol=1e-12)


def test_modes_of_a_robot_task():
    assert expand_modes(["all"], "robot_push") == ["train", "test"]
    assert parse_mode("test:24", "robot_push") == ("test", {"world": 24})
    for wrong in ("test:25", "test:-1", "test:x", "train:1", "tset", "color_hard"):
        with pytest.raises(UserError, match=wrong.partition(":")[2] or wrong):
            expand_modes([wrong], "robot_reach")
