"""A dm_control task, of the suite or of our own, as a Gymnasium environment of stacked pictures.

An episode is a function of its seed and its actions: whatever happened before, in this process or
another, `reset(seed=s)` followed by the same actions gives the same pixels and rewards, bit for
bit. Resuming a run relies on it.

Actions: what the agent's numbers mean to an environment, and numbered actions for Q-learning.
"""

import copy
import itertools
import logging
import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from svea.config.parts import OBSERVATIONS
from svea.core.errors import NumericsError, UserError
from svea.envs.looks import EPISODES_VERSION, Mode, Scene, compose, simulator, writable_arrays
from svea.envs.looks.varied import varied
from svea.envs.rendering import Renderer, import_suite, prepare_simulator
from svea.envs.stacking import Settings, StackedEpisode

# Camera 0 follows the agent in all other tasks; here it stands far off or follows the ball.
_CAMERA = {("quadruped", task): 2 for task in ("escape", "fetch", "run", "walk")}
_CAMERA["dog", "fetch"] = 2

_MODEL_SEED = 0  # lqr draws its system when it is loaded: the same one always, part of the task
# Large arrays that no suite task writes; textures belong to the mode.
_NEVER_RESTORED = ("tex_", "mesh_", "skin_")


def load_task(domain: str, task: str) -> Any:
    """Load a task of dm_control's suite, or of the robot."""
    if domain == "robot":
        from svea.envs.robot.task import load

        return load(task)
    suite = import_suite()
    # The suite's models use attributes that MuJoCo calls deprecated; users cannot fix that.
    logging.getLogger("absl").addFilter(_not_about_deprecation)
    # Our frame limit ends episodes; dm_control's own clock is switched off.
    settings = {"random": _MODEL_SEED, "time_limit": float("inf")}
    return suite.load(domain, task, task_kwargs=settings)


class DMControlEnv(gym.Env[np.ndarray, np.ndarray]):
    """Pixels of a dm_control task: stacked RGB frames, actions in [-1, 1].

    Built by `make_env`, which checks the arguments. `mode` is the look. For debugging, `physics` is
    dm_control's `Physics`, None once closed, and `state()` its positions and velocities.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's form)

    def __init__(self, domain: str, task: str, mode: Mode, settings: Settings) -> None:
        prepare_simulator()
        self.mode, self._settings, self._name = mode, settings, f"{domain}_{task}"
        self.render_mode, self.render_size = settings.render_mode, settings.render_size
        self.parts = OBSERVATIONS[settings.observation]
        self._episode = StackedEpisode(settings, self.parts)
        self.observation_space = self._episode.space
        repeat = settings.action_repeat
        self.most_decisions = -(-settings.episode_frames // repeat)

        loaded = load_task(domain, task)
        self._task = loaded.task
        self.physics: Any = loaded.physics
        # dm_control's own OpenGL context is a second one, which quadruped_escape would ask for.
        self.physics._make_rendering_contexts = lambda: None
        self._substeps = round(loaded.control_timestep() / self.physics.timestep())
        self.metadata = dict(
            self.metadata, render_fps=round(1 / (loaded.control_timestep() * repeat))
        )

        model, data = self.physics.model.ptr, self.physics.data.ptr
        mode.image_size, mode.pictures = settings.image_size, max(1, len(self.parts.pictures))
        mode.prepare(model, domain)
        camera = _CAMERA.get((domain, task), 0)
        renderer = Renderer(
            model, data, settings.image_size, settings.rendering, camera, settings.renderer
        )
        self._scene = Scene(model, data, renderer, camera)
        # The first is the one that a mode moves.
        self._cameras = [camera, *(model.camera(name).id for name in self.parts.pictures[1:])]
        self._renderer, self._drew = "", set[str]()
        self._fresh_task = copy.deepcopy(vars(self._task))
        self._fresh_model = {
            name: values.copy()
            for name, values in writable_arrays(model).items()
            if not name.startswith(_NEVER_RESTORED)
        }

        spec = loaded.action_spec()
        bounded = (np.abs(spec.minimum) < 1e9) & (np.abs(spec.maximum) < 1e9)
        # lqr sets no bounds on its forces: there the action is the force.
        self._action_low = np.where(bounded, spec.minimum, -1.0)
        self._action_high = np.where(bounded, spec.maximum, 1.0)
        self.action_space = gym.spaces.Box(-1.0, 1.0, spec.shape, np.float32)

    @property
    def provenance(self) -> dict[str, Any]:
        """What data the mode's pictures are made with, and who draws and simulates.

        Who draws is known from an episode's first picture on: its look may be one for OpenGL.
        """
        renderer = self._renderer or self._scene.renderer.name
        made_by = {"renderer": renderer, "episodes": EPISODES_VERSION, **simulator()}
        return self.mode.provenance | made_by

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin the episode that belongs to `seed`.

        Without a seed the next one is drawn from the last seed's generator; the very first reset
        uses the seed the environment was made with, and draws one if it was made without.

        `options={"variation": {"light.strength": 0.4}}` gives factors of the world values for this
        episode (`svea.config.factors`), which `info` repeats.
        """
        self.mode = varied(self.mode, self._name, options)
        seed = self._episode.choose_seed(seed)
        super().reset(seed=seed)
        # Two streams, so that a mode that draws more does not change the physics.
        sequence = np.random.SeedSequence(int(self.np_random.integers(2**63)))
        task_seed, mode_seed = sequence.spawn(2)

        self.mode.choose(seed, options or {})
        self._start_task(np.random.RandomState(np.random.MT19937(task_seed)))
        self.mode.begin(self._scene, np.random.default_rng(mode_seed))
        self._drew.clear()
        observation = self._episode.begin(*self._draw(), vector=self._vector())
        self._renderer = self._renderer or self._scene.renderer.name
        return observation, self._info()

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Repeat the action, sum its rewards, and show the state it led to."""
        self._episode.check_running()
        control = self._rescale(action)
        reward, terminated, truncated = 0.0, False, False
        for _ in range(self._settings.action_repeat):
            try:
                step_reward, discount = self._simulate(control)
            except NumericsError as error:
                return self._break_off(reward, str(error))
            reward += step_reward
            truncated = self._episode.count_frame() or bool(discount)
            self.mode.advance(self._scene)
            terminated = discount == 0.0
            if terminated or truncated:
                self._episode.running = False
                break
        self.mode.update(self._scene)
        seen = self._episode.push(*self._draw(), vector=self._vector())
        return seen, reward, terminated, truncated, self._info() | self._other_renderer()

    def _break_off(
        self, reward: float, cause: str
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """End an episode whose simulation diverged, with the last good rewards and picture.

        MuJoCo has put the model into its first pose by now: there is nothing to show. Truncated,
        not terminated, because the task did not end.
        """
        self._episode.running = False
        seen = self._episode.push(*self._episode.newest.copy())
        return seen, reward, False, True, {"frames": self._episode.frames, "physics_error": cause}

    def render(self) -> np.ndarray | None:
        """Draw the current scene in its mode, `(render_size, render_size, 3)` uint8."""
        if self.render_mode is None:
            warn_of_render_without_mode()
            return None
        return np.array(self._picture(self.render_size))

    def redraw(self) -> Any:
        """Draw the newest pictures of the observation again, after the look was changed by hand."""
        return self._episode.replace_newest(*self._draw())

    def foreground(self) -> np.ndarray:
        """Which pixels of the newest picture show what the task is about, `(H, W)` bool.

        By MuJoCo's segmentation: all but sky, floor, walls and other surroundings.
        """
        return self._scene.renderer.foreground()

    def state(self) -> np.ndarray:
        """The simulator's state: positions, velocities and activations, which no agent sees."""
        return np.array(self.physics.get_state())

    def close(self) -> None:
        """Free the OpenGL context and the simulator."""
        if self.physics is not None:
            self._scene.renderer.close()
            self.physics.free()
            self.physics, self._episode.running = None, False

    def _start_task(self, random: np.random.RandomState) -> None:
        """Put model and task back as they were loaded, then draw the first state."""
        for name, values in self._fresh_model.items():
            getattr(self._scene.model, name)[...] = values
        vars(self._task).clear()
        vars(self._task).update(copy.deepcopy(self._fresh_task), _random=random)
        with self.physics.reset_context():
            self._task.initialize_episode(self.physics)
        self._scene.renderer.upload_height_fields()

    def _simulate(self, control: np.ndarray) -> tuple[float, float | None]:
        """Do what dm_control's `Environment.step` does, without the state vector."""
        from dm_control.rl.control import PhysicsError

        try:
            self._task.before_step(control, self.physics)
            self.physics.step(self._substeps)
            self._task.after_step(self.physics)
        except PhysicsError as error:
            raise NumericsError(f"the simulation diverged: {error}") from error
        reward = float(self._task.get_reward(self.physics))
        if not math.isfinite(reward):
            raise NumericsError(f"the simulation diverged: the reward is {reward}")
        return reward, self._task.get_termination(self.physics)

    def _info(self) -> dict[str, Any]:
        of_task = getattr(self._task, "episode_info", None)  # the suite's tasks have none
        told = of_task(self.physics) if of_task else {}
        return {"frames": self._episode.frames} | told | self.mode.info

    def _other_renderer(self) -> dict[str, Any]:
        """At an episode's end, who drew its pictures if it was not always the usual one."""
        if self._episode.running or self._drew <= {self._renderer}:
            return {}
        return {"drawn_by": " and ".join(sorted(self._drew))}

    def _rescale(self, action: np.ndarray) -> np.ndarray:
        unit = (read_vector(action, self.action_space) + 1.0) / 2.0
        return self._action_low + unit * (self._action_high - self._action_low)

    def _draw(self) -> list[np.ndarray]:
        """The newest picture of each camera, `(3, size, size)`."""
        pictures = []
        for camera in self._cameras:
            pictures.append(self._picture(camera=camera).transpose(2, 0, 1))
            self._drew.add(self._scene.renderer.name)
        return pictures

    def _picture(self, size: int | None = None, camera: int | None = None) -> np.ndarray:
        return compose(self.mode, self._scene.renderer.draw(size, camera))

    def _vector(self) -> np.ndarray | None:
        """The vector that the task shows of its state, if any."""
        if not self.parts.vector:
            return None
        return self._task.get_observation(self.physics)[self.parts.vector].astype(np.float32)


def warn_of_render_without_mode() -> None:
    """Say what to do, as Gymnasium's own environments do."""
    gym.logger.warn("render() draws nothing without a mode: make it with render_mode='rgb_array'.")


def _not_about_deprecation(record: logging.LogRecord) -> bool:
    return "is deprecated and will be removed" not in record.getMessage()


MOST_ACTIONS = 4096  # each is an output of the Q-network; more cannot be explored anyway


class DiscreteActions(gym.ActionWrapper[np.ndarray, Any, np.ndarray]):
    """A task with actions in [-1, 1]^n as one with `bins**n` numbered actions.

    Every dimension takes `bins` evenly spaced values from -1 to 1. The numbers count them up with
    the last dimension fastest:

    >>> from svea.envs import make_env
    >>> env = make_env("cartpole_balance", action_bins=3, image_size=16)
    >>> env.action_space, env.vectors.tolist()
    (Discrete(3), [[-1.0], [0.0], [1.0]])
    >>> env.close()
    """

    def __init__(self, env: gym.Env[np.ndarray, np.ndarray], bins: int) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gym.spaces.Box):
            raise UserError(
                f"action_bins is {bins}, but this task's actions are {space}: leave action_bins "
                "out (0)."
            )
        dimensions = int(np.prod(space.shape))
        if bins < 2 or bins**dimensions > MOST_ACTIONS:
            raise UserError(
                f"action_bins is {bins}, which makes {bins}**{dimensions} = {bins**dimensions:,} "
                f"actions; allowed are 2 bins or more, {MOST_ACTIONS} actions or fewer, and 0: "
                "continuous."
            )
        values = np.linspace(-1, 1, bins, dtype=np.float32)
        self.vectors = np.array(list(itertools.product(values, repeat=dimensions)), np.float32)
        """What each action does, `(bins**n, n)`."""
        self.action_space = gym.spaces.Discrete(len(self.vectors))

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # as in Gymnasium's Wrapper
        """That of the environment: `action_bins` is among its arguments, and makes this wrapper."""
        return self.env.spec

    def action(self, action: Any) -> np.ndarray:
        """The vector of a numbered action."""
        return self.vectors[read_choice(action, len(self.vectors))].copy()


def read_choice(action: Any, count: int) -> int:
    """Read a choice among `count`, given as a number or, as agents do, as an array of one."""
    given = np.asarray(action)
    if given.size != 1 or given.item() not in range(count):
        raise UserError(f"action is {action!r}; allowed are 0 to {count - 1}.")
    return int(given.item())


def read_vector(action: Any, space: gym.Space[Any]) -> np.ndarray:
    """An action as floats within [-1, 1]; another shape, or what is not finite, is refused."""
    given = np.asarray(action, np.float64)
    if given.shape != space.shape:
        raise UserError(f"action has shape {given.shape}; this task takes {space.shape}.")
    if not np.isfinite(given).all():
        raise NumericsError(f"action {given.tolist()} is not finite.")
    return np.clip(given, -1.0, 1.0)


def describe_actions(space: gym.Space[Any]) -> tuple[int, int]:
    """Numbers in an action, and choices if it is one of several (0: a vector in [-1, 1])."""
    if isinstance(space, gym.spaces.Discrete):
        return 1, int(space.n)
    return int(np.prod(space.shape or ())), 0


def as_action(environment: Any, action: Any) -> Any:
    """What the environment's ``step`` takes, from the numbers that lie in shared memory."""
    if isinstance(environment.action_space, gym.spaces.Discrete):
        return int(environment.action_space.start) + int(action[0])
    return np.asarray(action, np.float32)
