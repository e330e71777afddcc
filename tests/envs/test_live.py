"""A look that is changed by hand: exact without changes, and never more than a look."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svea.config.modes import parse_mode
from svea.core.errors import UserError
from svea.envs import make_env
from svea.envs.looks.live import NEUTRAL, PATH, Adjustments, LiveMode, find_clips
from svea.envs.registration import make_mode

SHOWN: dict[str, Any] = {"render_mode": "rgb_array", "render_size": 64, "image_size": 48}


def factors(**values: float) -> Adjustments:
    """Of names with _ for their dot."""
    return Adjustments(variation={name.replace("_", ".", 1): v for name, v in values.items()})


EACH = {
    "body": Adjustments(body="#00ff00"),
    "floor": Adjustments(floor="#ff0000"),
    "sky": Adjustments(sky="#ff00ff"),
    "video": Adjustments(video="generated/3"),
    "video_on_floor": Adjustments(video="generated/3", video_on_floor=False),
    "roll": factors(camera_roll=40),
    "yaw": factors(camera_yaw=40),
    "light": factors(light_strength=0.3),
    "light_tilt": factors(light_tilt=50),
    "noise": factors(picture_noise=0.2),
    "agent": factors(agent_hue=90),
    "background": factors(background_brightness=0.2),
    "share": factors(video_share=0.8),
}
ALL = Adjustments(
    body="#00ff00", floor="#ff0000", sky="#ff00ff",
    variation=factors(camera_roll=40, camera_shift_x=0.2, light_strength=0.3, light_tilt=50,
                      picture_noise=0.2, picture_drop=0.5, agent_hue=50, floor_contrast=0.5,
                      background_hue=30).variation,
)  # fmt: skip


@pytest.fixture(scope="module")
def walker() -> Iterator[Any]:
    env = make_env("walker_walk", PATH, **SHOWN)
    yield env
    env.close()


@pytest.fixture
def live(walker: Any) -> LiveMode:
    mode: LiveMode = walker.unwrapped.mode
    show(mode, "walker_walk", "train")
    mode.adjust(NEUTRAL)
    return mode


def show(mode: LiveMode, task: str, text: str) -> None:
    name, options = parse_mode(text, task)
    mode.replace_base(make_mode(name, task, None, options))


def play(env: Any, seed: int = 5, decisions: int = 3) -> list[np.ndarray]:
    """Pictures and rewards of a few decisions."""
    rng = np.random.default_rng(0)
    seen, _ = env.reset(seed=seed)
    found = [seen, env.render()]
    for _ in range(decisions):
        seen, reward, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape))
        found += [seen, np.array(reward)]
    return [*found, env.render()]


MODES = {
    "walker_walk": [
        "color_hard", "video_easy", "video_hard", "distracting_cs:0.3", "rotate_shift_hard",
        "camera_hard", "light_position_hard", "light_color_hard", "moving_light_hard", "train",
        "picture_colors",
    ],
    "robot_reach": ["test", "train"],
}  # fmt: skip


@pytest.mark.parametrize("task", MODES)
def test_without_changes_it_is_the_mode_whatever_was_shown_before(task: str):
    env = make_env(task, PATH, **SHOWN)
    for mode in MODES[task]:
        show(env.unwrapped.mode, task, mode)
        env.unwrapped.mode.adjust(ALL)
        play(env, seed=1, decisions=1)
        env.unwrapped.mode.adjust(NEUTRAL)
        own = make_env(task, mode, **SHOWN)
        for ours, theirs in zip(play(env), play(own), strict=True):
            np.testing.assert_array_equal(ours, theirs, mode)
        own.close()
    env.close()


def test_the_robot_can_be_adjusted_too():
    env = make_env("robot_reach", PATH, **SHOWN)
    mode = env.unwrapped.mode
    assert mode.fits["body"] and mode.fits["floor"]
    env.reset(seed=2)
    plain = env.unwrapped.redraw()
    for name in ("body", "floor", "roll", "light", "noise"):
        mode.adjust(EACH[name])
        assert np.abs(env.unwrapped.redraw()[-3:].astype(int) - plain[-3:]).mean() > 0.5
        mode.adjust(NEUTRAL)
        np.testing.assert_array_equal(env.unwrapped.redraw(), plain)
    env.close()


@pytest.mark.parametrize("name", EACH)
def test_each_adjustment_shows_at_once_and_leaves_no_trace(walker: Any, live: LiveMode, name: str):
    walker.reset(seed=2)
    plain, scene = walker.unwrapped.redraw(), walker.render()
    live.adjust(EACH[name])
    changed, changed_scene = walker.unwrapped.redraw(), walker.render()
    assert np.abs(changed[-3:].astype(int) - plain[-3:]).mean() > 0.5
    assert np.abs(changed_scene.astype(int) - scene).mean() > 0.5
    np.testing.assert_array_equal(changed[:-3], plain[:-3], "older frames stay")
    live.adjust(NEUTRAL)
    np.testing.assert_array_equal(walker.unwrapped.redraw(), plain)
    np.testing.assert_array_equal(walker.render(), scene)


@pytest.mark.parametrize("mode", ["train", "video_hard"])
@pytest.mark.parametrize("body", ["#33cc33", "#30d0d8", "#2222dd", "#dd2222"])
def test_a_body_in_the_colour_of_the_screen_is_not_taken_for_it(walker, live, mode, body):
    show(live, "walker_walk", mode)
    live.adjust(Adjustments(body=body, video="generated/3" if mode == "train" else ""))
    walker.reset(seed=2)
    with_body = walker.render().astype(int)
    walker.unwrapped._scene.model.mat_rgba[live._body, 3] = 0  # the agent becomes invisible
    without = walker.render().astype(int)
    walker.unwrapped._scene.model.mat_rgba[live._body, 3] = 1
    agent = np.abs(with_body - without).sum(-1) > 60
    assert agent.mean() > 0.02, "the agent is seen"


def test_another_mode_in_the_middle_of_an_episode_goes_on_with_it(walker: Any, live: LiveMode):
    live.adjust(ALL)
    walker.reset(seed=2)
    action = np.full(walker.action_space.shape, 0.5)
    walker.step(action)
    state = walker.unwrapped.state()
    live.adjust(Adjustments(video="generated/3"))
    video = walker.render().astype(int)
    live.adjust(NEUTRAL)
    for mode in ("distracting_cs:0.5", "video_hard", "color_hard", "train"):
        show(live, "walker_walk", mode)
        np.testing.assert_array_equal(walker.unwrapped.state(), state, mode)
        walker.unwrapped.redraw()
        assert np.abs(walker.render() - video).mean() > 5, "an adjustment beats what a mode shows"
    own = make_env("walker_walk", **SHOWN)
    own.reset(seed=2)
    theirs, *_ = own.step(action)
    np.testing.assert_array_equal(walker.unwrapped.redraw()[-3:], theirs[-3:])
    own.close()


def test_dropped_frames_are_the_last_ones_and_the_scene_stays(walker: Any, live: LiveMode):
    live.adjust(factors(picture_drop=0.95))
    seen, _ = walker.reset(seed=2)
    scenes, repeated = [walker.render()], 0
    for _ in range(10):
        before, (seen, *_) = seen, walker.step(np.ones(6))
        repeated += int(np.array_equal(seen[-3:], before[-3:]))
        scenes.append(walker.render())
    assert repeated >= 7
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(scenes))


def test_a_still_video_stands_and_a_fast_one_runs(walker: Any, live: LiveMode):
    def sky(speed: float) -> list[np.ndarray]:
        live.adjust(Adjustments(video="generated/3", variation={"video.speed": speed}))
        walker.reset(seed=2)
        return [walker.step(np.zeros(6))[0][-3:, :4] for _ in range(3)]

    still, moving = sky(0), sky(2)
    assert np.array_equal(still[0], still[2]) and not np.array_equal(moving[0], moving[2])


def test_only_clips_that_were_found_can_be_shown(live: LiveMode, tmp_path: Path):
    with pytest.raises(UserError, match="unknown clip"):
        live.adjust(Adjustments(video="../../etc/passwd"))
    assert live.adjustments == NEUTRAL
    (tmp_path / "empty").mkdir()
    assert all(name.startswith("generated/") for name in find_clips(tmp_path))


def test_it_says_what_can_be_changed(live: LiveMode):
    assert all(live.fits.values())
    show(live, "walker_walk", "distracting_cs")
    assert not live.fits["sky"] and live.fits["video"] and live.fits["body"]
    own = LiveMode("my_package:make_env").fits
    assert [name for name in own if own[name]] == ["picture"], "of a user's environment"
