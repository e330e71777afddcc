"""A toy image environment, as a user would write one: task ``toy:make`` and relatives.

A bright column stands at x in [-1, 1] on a dark ground; the action moves it, and the reward of a
step is 1 - |x|. Episodes last ten decisions, so the return of doing nothing is 10 (1 - |x0|).
"""

import json
import os
import resource
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

LENGTH = 10  # decisions in an episode
SPEED = 0.4  # the most that x changes in a decision

MISHAPS = ("kill", "segfault", "exit", "raise", "memory", "stop", "hang")

Observation = NDArray[np.uint8]
Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Toy(gym.Env[Observation, NDArray[np.float32]]):
    """Bring the column to the middle."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        image_size: int = 16,
        seed: int = 0,
        terminate_at: int | None = None,
        actions: int = 1,
        channels: int = 9,
    ) -> None:
        shape = (channels, image_size, image_size)
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (actions,), np.float32)
        self.size, self.terminate_at, self.first_seed = image_size, terminate_at, seed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=self.first_seed if seed is None and self._np_random is None else seed)
        self.x = start(self.np_random)
        self.ground = int(self.np_random.integers(0, 60))
        self.clock, self.episode = 0, seed
        self.frames = [self.draw()] * 3
        return np.concatenate(self.frames), {}

    def step(self, action: NDArray[np.float32]) -> Step:
        self.x = float(np.clip(self.x + SPEED * float(action[0]), -1, 1))
        self.clock += 1
        self.frames = [*self.frames[1:], self.draw()]
        terminated = self.clock == self.terminate_at
        truncated = self.clock >= LENGTH
        return np.concatenate(self.frames), 1 - abs(self.x), terminated, truncated, {"x": self.x}

    def draw(self) -> Observation:
        """One frame (3, H, W)."""
        frame = np.full((3, self.size, self.size), self.ground, np.uint8)
        centre = round((self.x + 1) / 2 * (self.size - 1))
        frame[:, 2:-2, max(0, centre - 1) : centre + 2] = 255
        return frame

    def render(self) -> Any:
        return np.kron(self.draw().transpose(1, 2, 0), np.ones((4, 4, 1), np.uint8))


def start(random: np.random.Generator) -> float:
    """Where the column begins: far from the middle, on either side."""
    return float(random.choice([-1.0, 1.0]) * random.uniform(0.6, 1.0))


def return_of_doing_nothing(seed: int) -> float:
    """What the zero action earns in the episode of a seed."""
    environment = Toy()
    environment.reset(seed=seed)
    return LENGTH * (1 - abs(environment.x))


def make(image_size: int = 16, seed: int = 0) -> Toy:
    """The environment as it is; every episode is cut off at its time limit."""
    return Toy(image_size, seed)


make_terminating = partial(Toy, terminate_at=4)  # every episode really ends
make_wide = partial(Toy, actions=2)
make_grey = partial(Toy, channels=3)  # shows what its space does not say


# What goes wrong ----------------------------------------------------------------------------------


def happen(mishap: str) -> None:
    """To this process: one of MISHAPS, or only a delay."""
    if mishap == "raise":
        raise ZeroDivisionError("the toy broke")
    if mishap == "memory":
        held = 2**30
        resource.setrlimit(resource.RLIMIT_AS, (held, held))
        bytearray(2 * held)
    if mishap == "exit":
        os._exit(7)
    if mishap in ("hang", "slow"):
        time.sleep(3600 if mishap == "hang" else 2)
        return
    numbers = {"kill": signal.SIGKILL, "segfault": signal.SIGSEGV, "stop": signal.SIGSTOP}
    os.kill(os.getpid(), numbers[mishap])


class Failing(Toy):
    """Meets with a mishap in one decision of every episode."""

    def __init__(self, image_size: int = 16, *, mishap: str, when: int) -> None:
        super().__init__(image_size)
        self.mishap, self.when = mishap, when

    def step(self, action: NDArray[np.float32]) -> Step:
        if self.clock == self.when:
            happen(self.mishap)
        return super().step(action)


make_broken = partial(Failing, mishap="raise", when=2)
make_dying = partial(Failing, mishap="kill", when=0)  # as by a system out of memory


class make_faulty(Toy):
    """Fails by a plan, the JSON file `SVEA_FAULTS`: an episode's seed, the decision, the mishap.

    Before a fault happens, it marks so in a file beside the plan, and happens once: another process
    in the same place goes on.
    """

    def step(self, action: NDArray[np.float32]) -> Step:
        plan = Path(os.environ["SVEA_FAULTS"])
        for number, (seed, clock, mishap) in enumerate(json.loads(plan.read_text())):
            mark = plan.with_name(f"{plan.stem}-{number}")
            if (seed, clock) == (self.episode, self.clock) and not mark.exists():
                mark.touch()
                happen(mishap)
        return super().step(action)


class Undefined(Toy):
    """Shows floats, and answers NaN or infinity: always, or at one decision of one episode."""

    def __init__(
        self,
        image_size: int = 16,
        *,
        what: str,
        bad: float = np.nan,
        place: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(image_size)
        self.observation_space = gym.spaces.Box(0, 1, (3, image_size, image_size), np.float32)
        self.what, self.bad, self.place = what, bad, place

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        seen, info = super().reset(**settings)
        return (seen[-3:] / 255).astype(np.float32), info

    def step(self, action: NDArray[np.float32]) -> Step:
        now = self.place in (None, (self.episode, self.clock))
        seen, reward, terminated, truncated, info = super().step(action)
        picture = (seen[-3:] / 255).astype(np.float32)
        if now and self.what == "reward":
            reward = self.bad
        if now and self.what == "observation":
            picture[1, 2, 3] = self.bad
        return picture, reward, terminated, truncated, info


make_undefined_reward = partial(Undefined, what="reward")
make_undefined_observation = partial(Undefined, what="observation")


def make_spoiled(image_size: int = 16) -> Toy:
    """As the variable ``SVEA_FAULTS`` says: what, the episode's seed, the decision, the number."""
    what, seed, when, bad = json.loads(os.environ["SVEA_FAULTS"])
    return Undefined(image_size, what=what, bad=float(bad), place=(seed, when))


def make_stuck(image_size: int = 16, seconds: float = 600.0) -> Toy:
    """Begins to draw and never ends, as some drivers do, unless OSMesa draws."""
    from svea.envs.rendering.renderer import announce_first_picture

    announce_first_picture()
    if os.environ.get("MUJOCO_GL") != "osmesa":
        time.sleep(seconds)
    return Toy(image_size)


def make_slowly(image_size: int = 16) -> Toy:
    """Takes a second to be made, and then draws at once."""
    time.sleep(1.0)
    return make_stuck(image_size, 0.0)


class make_diverging(Toy):
    """The simulation diverges in the fourth decision of every episode."""

    def step(self, action: NDArray[np.float32]) -> Step:
        seen, reward, terminated, truncated, info = super().step(action)
        if self.clock == 4:
            return seen, reward, False, True, info | {"physics_error": "the toy diverged"}
        return seen, reward, terminated, truncated, info


class make_successful(Toy):
    """Says, in NumPy's own numbers, that it is solved; at the end, where the ground is even."""

    def step(self, action: NDArray[np.float32]) -> Step:
        seen, reward, terminated, truncated, _ = super().step(action)
        solved = np.bool_(self.clock < LENGTH or self.ground % 2 == 0)
        told = {"is_success": solved, "distance": np.float32(0.5), "seen": seen}
        return seen, reward, terminated, truncated, told


# Several parts ------------------------------------------------------------------------------------


class Parted(Toy):
    """Shows a dictionary: one or two pictures of other sizes and layouts, and perhaps a vector.

    The vector holds the column's place, one far from 0 and one that never changes; it is ``bad``
    (NaN, or longer) at one decision of the episode of one seed, or of every episode.
    """

    def __init__(
        self,
        image_size: int = 16,
        *,
        pictures: int = 2,
        vector: bool = True,
        bad: Any = None,
        place: tuple[int | None, int] = (None, 0),
    ) -> None:
        super().__init__(image_size)
        side = image_size
        spaces: dict[str, Any] = {"front": gym.spaces.Box(0, 255, (3, side, side), np.uint8)}
        if pictures > 1:
            spaces["wrist"] = gym.spaces.Box(0, 255, (side + 4, side, 3), np.uint8)
        if vector:
            spaces["state"] = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.observation_space = gym.spaces.Dict(spaces)  # type: ignore[assignment]
        self.bad, self.place = bad, place

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        _, info = super().reset(**settings)
        return self.parts(), info

    def step(self, action: NDArray[np.float32]) -> Step:
        _, *rest = super().step(action)
        return self.parts(), *rest  # type: ignore[return-value]

    def parts(self) -> dict[str, Any]:
        """What its space says, if nothing is wrong."""
        front = self.draw()
        wrist = np.pad(255 - front.transpose(1, 2, 0), ((2, 2), (0, 0), (0, 0)))
        state = np.array([self.x, 1000 + 10 * self.x, 7.0])
        seed, clock = self.place
        if self.bad is not None and seed in (None, self.episode) and clock == self.clock:
            state = np.append(state, 0.0) if self.bad == "longer" else state * self.bad
        shown = {"front": front, "wrist": wrist, "state": state}
        return {name: shown[name] for name in self.observation_space}  # type: ignore[attr-defined]


make_parted = partial(Parted)
make_two_pictures = partial(Parted, vector=False)
make_with_state = partial(Parted, pictures=1)


def make_parted_spoiled(image_size: int = 16) -> Parted:
    """As the variable ``SVEA_FAULTS`` says: the episode's seed, the decision, what the state is."""
    seed, clock, bad = json.loads(os.environ["SVEA_FAULTS"])
    return Parted(image_size, bad=bad if bad == "longer" else float(bad), place=(seed, clock))
