"""Somebody else's environments: what svea makes of their pictures, actions and endings."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from svea.core.errors import NumericsError, UserError
from svea.envs import make_env
from svea.envs.workers.pool import OpenEpisode, Workers

STEPS = 6  # of an episode of a Gradient


class Gradient(gym.Env):
    """Shows a drawn picture that brightens by a level a step, in any layout; remembers actions."""

    def __init__(
        self,
        space: gym.Space,
        actions: gym.Space | None = None,
        show: Callable[[np.ndarray], Any] = lambda picture: picture,
        length: int | None = STEPS,
        reward: float = 1.0,
    ) -> None:
        self.observation_space, self.show, self.length, self.reward = space, show, length, reward
        self.action_space = actions or gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.received: list[Any] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        self.first = self.np_random.integers(0, 200, (12, 20, 3), np.uint8)
        return self.show(self.first), {}

    def step(self, action):
        self.clock += 1
        self.received.append(action)
        ended = self.clock == self.length
        return self.show(self.first + np.uint8(self.clock)), self.reward, ended, False, {"own": 1}


def box(*shape: int, dtype: Any = np.uint8, high: float = 255) -> gym.spaces.Box:
    return gym.spaces.Box(0, high, shape, dtype)


def rgb(**options: Any) -> Gradient:
    return Gradient(box(12, 20, 3), **options)


@pytest.fixture
def adapt(monkeypatch):
    """make_env of an environment that lies at hand."""

    def adapt(env: Any, **settings: Any) -> Any:
        monkeypatch.setitem(globals(), "at_hand", lambda: env)
        return make_env(f"{__name__}:at_hand", **({"image_size": 16} | settings))

    return adapt


# Several parts ------------------------------------------------------------------------------------


def test_parts_are_what_each_picture_would_be_alone_and_the_vector_as_it_is(adapt):
    """Two pictures, of which one is grey with channels first, and a vector in double precision."""
    space = gym.spaces.Dict(
        front=box(12, 20, 3), wrist=box(1, 12, 20), joints=gym.spaces.Box(-9, 9, (2,), np.float64)
    )
    joints = np.array([0.1, -7.0])
    env = adapt(
        Gradient(
            space,
            show=lambda p: {"front": p, "wrist": first(p)[:1], "joints": joints * p[0, 0, 0]},
        )
    )
    front, wrist = rgb(), Gradient(box(1, 12, 20), show=lambda picture: first(picture)[:1])
    alone = {"front": adapt(front), "wrist": adapt(wrist)}
    env = gym.wrappers.PassiveEnvChecker(env)
    seen, _ = env.reset(seed=1)
    for step in range(STEPS):
        for name, single in alone.items():
            picture = single.reset(seed=1)[0] if not step else single.step(np.zeros(2))[0]
            np.testing.assert_array_equal(seen[name], picture)
        level = front.first[0, 0, 0] + np.uint8(front.clock)
        np.testing.assert_array_equal(seen["joints"], (joints * level).astype(np.float32))
        assert env.observation_space.contains(seen)
        seen, *_ = env.step(np.zeros(2))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("mode", ["picture_colors", "picture_video"])
def test_a_mode_changes_every_picture_and_no_vector(adapt, mode, channels_last):
    space = gym.spaces.Dict(a=box(12, 20, 3), b=box(12, 20, 3), c=gym.spaces.Box(0, 1, (2,)))
    show = lambda p: {"a": p, "b": 255 - p, "c": np.full(2, 0.5, np.float32)}  # noqa: E731
    plain, changed = (
        adapt(Gradient(space, show=show), mode=each, channels_last=channels_last).reset(seed=3)[0]
        for each in ("train", mode)
    )
    assert plain["a"].shape == ((16, 16, 9) if channels_last else (9, 16, 16))
    assert not any(np.array_equal(plain[name], changed[name]) for name in "ab")
    assert np.array_equal(plain["c"], changed["c"])


# Pictures -----------------------------------------------------------------------------------------


def first(picture: np.ndarray) -> np.ndarray:
    return picture.transpose(2, 0, 1)


LAYOUTS = [
    (box(12, 20, 3), lambda picture: picture),
    (box(3, 12, 20), first),
    (box(12, 20, 3, dtype=np.float32, high=1), lambda picture: picture.astype(np.float32) / 255),
    (box(3, 12, 20, dtype=np.float64), lambda picture: first(picture).astype(np.float64)),
    (box(12, 20), lambda picture: picture[..., 0]),
    (box(12, 20, 1), lambda picture: picture[..., :1]),
    (box(1, 12, 20), lambda picture: first(picture)[:1]),
]


@pytest.mark.parametrize(("space", "show"), LAYOUTS)
def test_every_layout_shows_the_same_and_grey_becomes_three_equal_channels(adapt, space, show):
    is_grey = 3 not in space.shape
    plain = adapt(rgb(show=lambda picture: picture[..., :1].repeat(3, 2) if is_grey else picture))
    other = adapt(Gradient(space, show=show))
    assert other.observation_space == box(9, 16, 16)
    np.testing.assert_array_equal(other.reset(seed=1)[0], plain.reset(seed=1)[0])
    for _ in range(STEPS):
        one, two = plain.step(np.zeros(2)), other.step(np.zeros(2))
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]


def test_resizing_keeps_places_and_averages(adapt):
    """A quarter of a 200x80 picture, a fine checkerboard, stays a quarter of the square."""
    scene = np.zeros((80, 200, 3), np.uint8)
    scene[:40, 100:] = (np.indices((40, 100)).sum(0) % 2 * 200)[..., None]
    env = adapt(Gradient(box(80, 200, 3), show=lambda _: scene))
    seen, _ = env.reset()
    np.testing.assert_allclose(seen[:3, :7, 9:].astype(float), 100, atol=12)
    assert (seen[:3, 9:] == 0).all() and (seen[:3, :, :7] == 0).all()


def stacked(env: Gradient, channels_last: bool = False) -> Gradient:
    """The environment as one that stacks by itself."""
    frames: list[np.ndarray] = []

    def show(picture):
        frames[:] = [picture] * 3 if env.clock == 0 else [*frames[1:], picture]
        stack = np.concatenate(frames, axis=2)
        return stack if channels_last else stack.transpose(2, 0, 1)

    env.show = show
    env.observation_space = box(12, 20, 9) if channels_last else box(9, 12, 20)
    return env


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("repeat", [1, 2])
def test_stacks_of_their_own_pass_through(adapt, channels_last, repeat):
    plain = adapt(rgb(), action_repeat=repeat)
    own = adapt(stacked(rgb(), channels_last), action_repeat=repeat)
    for seed in (3, 4):
        np.testing.assert_array_equal(own.reset(seed=seed)[0], plain.reset(seed=seed)[0])
        for _ in range(3):
            np.testing.assert_array_equal(own.step(np.zeros(2))[0], plain.step(np.zeros(2))[0])


def test_nine_channels_that_are_not_a_stack_are_refused(adapt):
    cameras = adapt(
        Gradient(box(12, 20, 9), show=lambda p: np.concatenate([p, 255 - p, p // 2], axis=2))
    )
    with pytest.raises(UserError):
        cameras.reset()
    newest_first = stacked(rgb(), channels_last=True)
    show = newest_first.show
    newest_first.show = lambda p: np.concatenate(np.split(show(p), 3, axis=2)[::-1], axis=2)
    env = adapt(newest_first)
    env.reset()
    with pytest.raises(UserError):
        env.step(np.zeros(2))


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Dict(joints=box(4, dtype=np.float32)),
        gym.spaces.Dict(camera=box(12, 20, 3), grip=gym.spaces.Discrete(2)),
        gym.spaces.Dict(camera=box(12, 20, 3), arm=gym.spaces.Dict(joints=box(4))),
        gym.spaces.Dict(camera=box(12, 20, 3), joints=box(4, dtype=np.int64)),
        gym.spaces.Dict(camera=box(12, 20, 3), joints=gym.spaces.Box(-1, 1, (4, 4))),
        gym.spaces.Dict(camera=box(12, 20, 3, dtype=np.int64)),
        gym.spaces.Dict(dict.fromkeys("abc", box(12, 20, 3))),
        gym.spaces.Dict(camera=box(12, 20, 3), **dict.fromkeys("ab", box(4, dtype=np.float32))),
        box(3, 12, 20, 3),  # as Gymnasium stacks them
        gym.spaces.Tuple([box(12, 20, 3)]),
        gym.spaces.Discrete(4),
        box(4, dtype=np.float32),
        box(4, 12, 20),
        box(12, 20, 12),
        box(3, 12, 3),  # which axis?
        box(12, 20, 3, high=1),
        box(12, 20, 3, dtype=np.float32, high=2),
        box(12, 20, 3, dtype=np.int64),
        gym.spaces.Box(-1, 1, (12, 20, 3), np.float32),
        gym.spaces.Box(-np.inf, np.inf, (12, 20, 3), np.float32),
    ],
)
def test_observations_that_are_no_pictures_are_refused_and_closed(adapt, space):
    closed = []
    env = Gradient(space)
    env.close = lambda: closed.append(True)
    with pytest.raises(UserError, match=r"(?s)at_hand'.*TransformObservation.*AddRender"):
        adapt(env)
    assert closed


@pytest.mark.parametrize(
    ("show", "error"),
    [
        (lambda p: p[:5], UserError),
        (lambda p: p.astype(np.float64), UserError),
        (lambda p: [], UserError),
        *(
            (lambda p, bad=bad: np.where(np.eye(12, 20), bad, p[..., 0] / 255), NumericsError)
            for bad in (np.nan, np.inf, -0.1, 254.0)
        ),
    ],
)
def test_pictures_that_break_their_declaration_are_refused(adapt, show, error):
    floats = error is NumericsError
    space = box(12, 20, dtype=np.float32, high=1) if floats else box(12, 20, 3)
    with pytest.raises(error):
        adapt(Gradient(space, show=show)).reset()


# Actions ------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6)), min_size=1, max_size=4),
    st.floats(-1.5, 1.5, width=32),
    st.sampled_from([np.float32, np.float64]),
)
def test_actions_of_any_range_are_reached_and_never_left(ranges, unit, dtype):
    low = np.array([low for low, _ in ranges], dtype)
    high = np.maximum(low, np.array([low + width for low, width in ranges], dtype))
    own = rgb(actions=gym.spaces.Box(low, high, dtype=dtype), length=None)
    globals()["at_hand"] = lambda: own
    env = make_env(f"{__name__}:at_hand", image_size=16)
    assert env.action_space == gym.spaces.Box(-1.0, 1.0, (len(ranges),), np.float32)
    env.reset()
    env.step(np.full(len(ranges), unit, np.float32))
    assert own.action_space.contains(own.received[-1])
    share = (min(max(unit, -1), 1) + 1) / 2
    expected = (1 - share) * low.astype(np.float64) + share * high.astype(np.float64)
    scale = np.maximum(np.abs(low), np.abs(high))
    np.testing.assert_allclose(own.received[-1], expected, rtol=0, atol=3e-7 * scale.max() + 1e-30)
    for end, bound in ((-1, low), (1, high)):
        env.step(np.full(len(ranges), end, np.float32))
        np.testing.assert_allclose(own.received[-1], bound, rtol=0, atol=3e-7 * scale.max() + 1e-30)


@pytest.mark.parametrize(("shape", "size"), [((2, 3), 6), ((), 1), ((1, 1), 1)])
def test_actions_of_any_shape_are_flattened_in_order(adapt, shape, size):
    """And arrive bit for bit where their range is [-1, 1]."""
    own = rgb(actions=gym.spaces.Box(-1.0, 1.0, shape, np.float32))
    env = adapt(own)
    assert env.action_space.shape == (size,)
    env.reset()
    action = np.linspace(-0.3, 1e-7, size, dtype=np.float32)
    env.step(action)
    assert own.received[-1].shape == shape and own.received[-1].dtype == np.float32
    np.testing.assert_array_equal(np.ravel(own.received[-1]), action)


def test_discrete_actions_are_counted_from_zero(adapt):
    own = rgb(actions=gym.spaces.Discrete(5, start=2))
    env = adapt(own)
    assert env.action_space == gym.spaces.Discrete(5)
    env.reset()
    for action in (0, np.int64(3), np.array([4.0], np.float32)):
        env.step(action)
    assert own.received == [2, 5, 6] and all(map(own.action_space.contains, own.received))
    for action in (5, -1, 0.5, [1, 2]):
        with pytest.raises(UserError):
            env.step(action)


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
        gym.spaces.Box(0, np.inf, (2,), np.float32),
        gym.spaces.Box(0, 5, (2,), np.int64),
        gym.spaces.MultiDiscrete([2, 3]),
        gym.spaces.MultiBinary(3),
    ],
)
def test_actions_that_cannot_be_rescaled_are_refused_with_a_cure(adapt, space):
    with pytest.raises(UserError, match=r"at_hand'.*TransformAction"):
        adapt(rgb(actions=space))


# Episodes -----------------------------------------------------------------------------------------


def play(env: Any, seed: int | None, steps: int = STEPS) -> tuple[list[np.ndarray], list[Any]]:
    pictures, rest = [env.reset(seed=seed)[0]], []
    for _ in range(steps):
        seen, *others = env.step(np.zeros(2))
        pictures.append(seen)
        rest.append(others)
        if others[1] or others[2]:
            break
    return pictures, rest


@pytest.mark.parametrize(
    ("env", "settings", "steps", "ending"),
    [
        (rgb(), {}, STEPS, (True, False)),
        (gym.wrappers.TimeLimit(rgb(), 4), {}, 4, (False, True)),
        (rgb(length=None), {"episode_frames": 5}, 5, (False, True)),
    ],
)
def test_real_endings_are_terminations_and_limits_truncations(adapt, env, settings, steps, ending):
    adapted = adapt(env, **settings)
    _, rest = play(adapted, 0, steps=9)
    ends = [(terminated, truncated) for _, terminated, truncated, _ in rest]
    assert ends == [(False, False)] * (steps - 1) + [ending]
    assert rest[-1][3] == {"own": 1, "frames": steps}
    with pytest.raises(gym.error.ResetNeeded):
        adapted.step(np.zeros(2))


def test_action_repeat_sums_rewards_and_stops_at_the_end(adapt):
    own = rgb(reward=0.5)
    _, rest = play(adapt(own, action_repeat=4), 0)
    assert [reward for reward, *_ in rest] == [2.0, 1.0]  # six steps: four, and the last two
    assert rest[-1][1] and rest[-1][3]["frames"] == STEPS
    assert len(own.received) == STEPS


@pytest.mark.parametrize("step", [(0, 0.0, False, {}), None])
def test_a_step_that_is_not_gymnasiums_is_refused(adapt, monkeypatch, step):
    own = rgb()
    env = adapt(own)
    env.reset()
    monkeypatch.setattr(own, "step", lambda action: step)
    with pytest.raises(UserError, match=r"terminated, truncated"):
        env.step(np.zeros(2))


def test_an_episode_is_a_function_of_its_seed(adapt):
    env = adapt(rgb(), seed=7)
    first, second, again = play(env, None), play(env, 8), play(env, 7)
    for one, two in zip(first[0], again[0], strict=True):
        np.testing.assert_array_equal(one, two)
    assert first[1] == again[1] and (first[0][0] != second[0][0]).any()
    assert (play(env, None)[0][0] != first[0][0]).any(), (
        "the seed counts for the first episode only"
    )


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_gymnasium_checker_is_content(adapt):
    check_env(adapt(gym.wrappers.TimeLimit(rgb(), 4)), skip_render_check=True)


# Drawing ------------------------------------------------------------------------------------------


def test_render_is_the_environments_own_or_what_the_agent_saw(adapt):
    own = rgb()
    env = adapt(own, render_mode="rgb_array", render_size=64)
    seen, _ = env.reset()
    picture = env.render()
    assert picture.shape == (64, 64, 3) and picture.dtype == np.uint8
    np.testing.assert_array_equal(picture[::4, ::4].transpose(2, 0, 1), seen[-3:])
    own.render_mode, own.render = "rgb_array", lambda: np.ones((5, 7, 3), np.uint8)
    assert env.render().shape == (5, 7, 3)
    assert env.render_mode == "rgb_array"
    mute = adapt(own)
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert mute.render() is None


# Through processes --------------------------------------------------------------------------------


def test_discrete_actions_in_a_worker_are_those_here(examples_on_path):
    settings = {"task": "own_environment:make_discrete_catch", "image_size": 24}
    alone, played = make_env(**settings), [[2.0], [0.0], [1.0], [2.0]]
    with Workers([settings]) as workers:
        assert (workers.choices, workers.action_size) == (3, 1)
        workers.reset([5])
        alone.reset(seed=5)
        for action in played:
            workers.send(np.array([action], np.float32), [None])
            (answer,) = workers.receive()
            seen, reward, *_ = alone.step(int(action[0]))
            np.testing.assert_array_equal(workers.observations[0], seen)
            assert answer.reward == reward
        workers.restore(0, OpenEpisode(5, actions=played[:3]))
        assert (workers.observations[0] != seen).any()
        workers.restore(0, OpenEpisode(5, actions=played))
        np.testing.assert_array_equal(workers.observations[0], seen)
