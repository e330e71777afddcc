"""Factors: one thing of a world at a time, exact at its training value, and never more."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from svea.config.factors import FACTORS
from svea.config.modes import WITHOUT_FACTORS, factors_of
from svea.core.errors import UserError
from svea.envs import TASKS, make_env

OWN = "toy:make"
SMALL: dict[str, Any] = {"render_mode": "rgb_array", "render_size": 64, "image_size": 48}


def play(env: Any, options: Any = None, seed: int = 5, decisions: int = 4) -> list[np.ndarray]:
    """What an episode shows: observations, rewards, and a picture for people."""
    rng = np.random.default_rng(0)
    seen, _ = env.reset(seed=seed, options=options)
    found = [seen]
    for _ in range(decisions):
        actions = env.action_space
        action = rng.uniform(-1, 1, actions.shape) if actions.shape else int(rng.integers(2))
        seen, reward, *_ = env.step(action)
        found += [seen, np.array(reward)]
    return [*found, np.asarray(env.render())]


def vary(**values: float) -> dict[str, Any]:
    return {"variation": {name.replace("_", ".", 1): value for name, value in values.items()}}


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module", params=["walker_walk", "robot_push", OWN])
def env(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = make_env(request.param, **SMALL)
    made.task = request.param
    yield made
    made.close()


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_changes_pictures_alone_and_nothing_at_its_training_value(env: Any, name: str):
    factor, plain = FACTORS[name], play(env)
    if name not in factors_of(env.task):
        with pytest.raises(UserError, match=name):
            env.reset(seed=5, options={"variation": {name: factor.training}})
        return
    assert same(play(env, {"variation": {name: factor.training}}), plain)
    ends = [play(env, {"variation": {name: v}}) for v in {factor.least, factor.most}]
    changed = [np.abs(a.astype(int) - b).mean() for e in ends for a, b in zip(e, plain, strict=True)
               if a.ndim == 3]  # fmt: skip
    is_grey = env.task == OWN and name in ("picture.hue", "picture.saturation")
    assert is_grey or max(changed) > 0.15
    rewards = [[float(each) for each in one if each.ndim == 0] for one in (plain, *ends)]
    assert rewards.count(rewards[0]) == len(rewards)
    assert same(play(env), plain), "no trace is left"


@pytest.mark.parametrize("task", ["walker_walk", "robot_push", OWN])
def test_a_mode_of_a_factor_is_the_reset_option_and_both_are_named(task: str):
    name = "picture.noise"
    plain, mode = make_env(task, **SMALL), make_env(task, f"{name}=0.1", **SMALL)
    assert same(play(mode), play(plain, {"variation": {name: 0.1}}))
    for env in (mode, plain):
        options = {"variation": {name: 0.2}}
        assert env.reset(seed=1, options=options)[1]["variation"] == {name: 0.2}
        assert env.step(env.action_space.sample())[4]["variation"] == {name: 0.2}
    assert mode.reset(seed=1)[1]["variation"] == {name: 0.1}
    assert "variation" not in plain.reset(seed=1)[1]
    assert mode.get_wrapper_attr("provenance")["mode"] == f"{name}=0.1"
    assert make_env(task, f"{name}=0", **SMALL).get_wrapper_attr("provenance")["mode"] == "train"


@pytest.mark.parametrize(
    "variation",
    [3, "x", ["light.strength"], {"light.strenght": 1}, {"light.strength": "1"},
     {"camera.roll": True}, {"light.strength": 3.1}, {"camera.roll": float("nan")},
     {"picture.delay": 1.5},
     {"camera.roll": None}, {"camera.roll": (0, 1)}, {3: 4}],
)  # fmt: skip
def test_what_is_no_variation_is_refused_and_the_next_episode_is_exact(env: Any, variation: Any):
    plain = play(env)
    with pytest.raises(ValueError):
        env.reset(seed=5, options={"variation": variation})
    assert same(play(env), plain)


@pytest.mark.parametrize("name", ["picture.delay", "picture.drop", "video.share"])
def test_what_is_kept_between_pictures_is_refused_for_two(name: str):
    env = make_env("robot_push", observation="pictures+gripper", image_size=32)
    with pytest.raises(UserError, match="2 pictures"):
        env.reset(seed=1, options={"variation": {name: 0.5 if name != "picture.delay" else 2}})
    env.reset(seed=1, options={"variation": {"picture.noise": 0.1, "camera.roll": 10}})
    env.close()


@pytest.mark.parametrize("mode", ["color_hard", "video_hard", "distracting_cs:0.3", "camera_hard"])
def test_any_mode_can_be_varied_and_is_exact_again(mode: str):
    env = make_env("walker_walk", mode, **SMALL)
    plain = play(env)
    many = vary(agent_hue=120, floor_brightness=1.5, background_contrast=0.4, light_strength=0.5,
                camera_yaw=30, video_share=0.5, picture_blur=1)  # fmt: skip
    assert not same(play(env, many), plain)
    assert same(play(env, many), play(env, many))
    assert same(play(env), plain) and same(play(env, vary(camera_roll=0)), plain)


def test_the_sky_of_a_colour_setting_is_whole_where_the_camera_turns():
    env = make_env("walker_walk", "color_hard", **SMALL)
    rolled, _ = env.reset(seed=3, options=vary(camera_roll=180, camera_height=-20))
    sky = env.unwrapped.mode.base
    plain, _ = make_env("walker_walk", "color_hard", **SMALL).reset(seed=3)
    assert sky.setting and np.abs(rolled[-3:, ::-1, ::-1].astype(int) - plain[-3:]).mean() < 60


def test_a_delay_shows_what_was_and_a_dropped_picture_is_the_last_one():
    env = make_env("cartpole_swingup", image_size=48)

    def newest(**values: float) -> list[np.ndarray]:
        seen = play_seen(env, vary(**values) if values else None)
        return [each[-3:] for each in seen]

    now, late = newest(), newest(picture_delay=2)
    assert same(late, [now[0], now[0], *now[:-2]])
    dropped = newest(picture_drop=0.5)
    for before, seen, actual in zip(dropped, dropped[1:], now[1:], strict=False):
        assert np.array_equal(seen, before) or np.array_equal(seen, actual)
    assert not same(dropped, now)


def play_seen(env: Any, options: Any) -> list[np.ndarray]:
    seen = [env.reset(seed=2, options=options)[0]]
    return seen + [env.step(np.ones(1))[0] for _ in range(12)]


def test_a_video_has_its_share_of_the_background_and_moves_with_its_speed():
    env = make_env("walker_walk", image_size=48)
    plain = env.reset(seed=2)[0][-3:]
    half = env.reset(seed=2, options=vary(video_share=0.5))[0][-3:]
    assert np.array_equal(half[:, 24:], plain[:, 24:]) and not np.array_equal(half, plain)
    agent = env.unwrapped.foreground()
    assert agent.any() and np.array_equal(half[:, agent], plain[:, agent])
    still = {"variation": {"video.share": 1, "video.speed": 0}}
    corners = [[each[-3:, :4, :4] for each in play_seen_walker(env, o)]
               for o in (still, vary(video_speed=1))]  # fmt: skip
    assert same(corners[0][1:], corners[0][:-1]) and not same(corners[1][1:], corners[1][:-1])


def play_seen_walker(env: Any, options: Any) -> list[np.ndarray]:
    seen = [env.reset(seed=2, options=options)[0]]
    return seen + [env.step(np.zeros(6))[0] for _ in range(3)]


RANGES = {"light.strength": (0.3, 1.5), "picture.delay": (0, 3), "camera.roll": -20}


def test_ranges_are_drawn_per_episode_from_its_seed():
    one, other = (make_env("cartpole_balance", image_size=16, variation=RANGES) for _ in "12")
    drawn = [one.reset(seed=seed)[1]["variation"] for seed in range(20)]
    assert [other.reset(seed=seed)[1]["variation"] for seed in range(20)] == drawn
    assert len({each["light.strength"] for each in drawn}) == 20
    assert all(0.3 <= each["light.strength"] <= 1.5 for each in drawn)
    assert {each["picture.delay"] for each in drawn} == {0, 1, 2, 3}
    assert {each["camera.roll"] for each in drawn} == {-20}
    following = [[env.reset(seed=s)[1] for s in (7, None, None)] for env in (one, other)]
    assert following[0] == following[1] and following[0][1] != following[0][2]
    plain = make_env("cartpole_balance", image_size=16)
    plain.reset(seed=4)
    one.reset(seed=4)
    np.testing.assert_array_equal(one.unwrapped.state(), plain.unwrapped.state())


def test_a_mixture_shows_its_modes_with_their_shares_each_as_it_is():
    shares = {"train": 0.5, "color_hard": 0.3, "video_hard": 0.2}
    text = ",".join(f"{mode}:{share}" for mode, share in shares.items())
    env = make_env("walker_walk", text, **SMALL)
    shown = [env.reset(seed=seed)[1]["mode"] for seed in range(60)]
    assert all(abs(shown.count(mode) / 60 - share) < 0.15 for mode, share in shares.items())
    assert env.unwrapped.provenance["mode"] == text
    for mode in shares:
        plain = make_env("walker_walk", mode, **SMALL)
        assert same(play(env, seed=shown.index(mode)), play(plain, seed=shown.index(mode)))
        plain.close()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_every_task_shows_the_parts_of_the_world_that_it_is_said_to_have(task: str):
    env = make_env(task)
    plain = env.reset(seed=3)[0][-3:].astype(int)
    strong = {"brightness": (0, 2), "strength": (0.2,), "roll": (40,), "share": (1,), "hue": (120,)}
    for name in FACTORS:
        for value in strong.get(name.partition(".")[2], ()):
            lacks = any(task in tasks and name.startswith(part)
                        for part, tasks in WITHOUT_FACTORS.items())  # fmt: skip
            assert (name not in factors_of(task)) == lacks
            if not lacks:
                shown = env.reset(seed=3, options={"variation": {name: value}})[0][-3:]
                assert np.abs(shown - plain).mean() > 0.03, (name, value)
    env.close()
