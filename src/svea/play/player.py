"""An agent that plays one episode at a time, in a world that may change at any moment."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from svea.agents.agent import Agent
from svea.agents.policies import deployed_policy, random_policy
from svea.config import Config, configure
from svea.config.tasks import TASKS
from svea.core.seeds import evaluation_seeds, world_order
from svea.data.clips import data_folder
from svea.envs import make_env
from svea.envs.dmc import as_action, describe_actions
from svea.envs.looks import provenance_of
from svea.envs.looks.live import PATH, LiveMode
from svea.envs.registration import make_mode
from svea.evaluation.play import (
    EpisodeResult,
    Policy,
    check_actions,
    parallel_environments,
)
from svea.evaluation.saliency import action_gradients, input_gradients, overlay, scaled
from svea.play.setting import Setting, fitting_mode
from svea.runs.load import has_critic, load_agent, load_config

JPEG_QUALITY = 88
MOST_DECISIONS = 2000
"""Decisions whose numbers wait for the next picture; older ones are forgotten."""


@dataclass(frozen=True)
class Seat:
    """Who plays: chosen on the command line, never by a page."""

    run: str
    """A folder or a name of the zoo; nothing for the random policy."""
    task: str = ""
    """Another task than the run's; needed for the random policy."""
    data_dir: str | None = None
    device: str = "cpu"
    rows: int = 0
    """In how large a batch actions are computed: as many as `svea eval` has environments, because
    other sizes take other kernels, whose last bits differ. 0 is what `svea eval` takes here."""

    def load(self) -> tuple[Agent | None, Config]:
        """The agent, None for the random policy, and its configuration."""
        if not self.run:
            return None, configure(self.task)
        return load_agent(self.run, device=self.device), load_config(self.run)


@dataclass
class Numbers:
    """What has happened since the last picture, a value per decision."""

    returns: list[float] = field(default_factory=list)
    q: list[float | None] = field(default_factory=list)
    actions: list[list[float]] = field(default_factory=list)

    def add(self, total: float, q: float, action: NDArray[np.float32]) -> None:
        """One more decision; a page that takes no pictures does not fill the memory."""
        if len(self.returns) < MOST_DECISIONS:
            self.returns.append(round(total, 4))
            self.q.append(round(q, 4) if math.isfinite(q) else None)
            self.actions.append([round(float(each), 3) for each in action])


class Player:
    """The agent of one seat and its environment, in this process."""

    def __init__(self, seat: Seat, setting: Setting) -> None:
        """Load the agent and make its environment, with no episode yet."""
        self.agent, self.config = seat.load()
        self.task = seat.task or self.config.task
        arguments = self.config.environment_in(PATH, seat.data_dir, seat.task)
        self.repeat, self._frames = arguments["action_repeat"], arguments["episode_frames"]
        self._data_dir = data_folder(arguments["data_dir"])
        shown = {"seed": 0, "render_mode": "rgb_array", "render_size": setting.size}
        self.env = make_env(**arguments | shown)
        self.rate = float(self.env.metadata.get("render_fps", 25))
        self._mode: LiveMode = self.env.get_wrapper_attr("mode")
        actions, choices = describe_actions(self.env.action_space)
        if self.agent is not None:
            check_actions(self.agent, actions, choices, self.task)
        self._choices, self._actions = choices, actions
        self._rows = parallel_environments(seat.rows, 30)
        self._shown = ""
        self.problem = ""
        self.setting = setting
        self.episode, self.done, self.numbers = EpisodeResult(0), True, Numbers()
        self.between: list[NDArray[np.uint8]] = []
        self.observation = np.zeros(self.env.observation_space.shape or (), np.uint8)
        self._wear(setting)

    def about(self) -> dict[str, Any]:
        """What a page needs to know of the agent."""
        agent, config = self.agent, self.config
        return {
            "task": self.task,
            "method": config.method if agent else "random policy",
            "augment": config.augment if agent and config.augment != "none" else "",
            "decisions": agent.decision if agent else 0,
            "has_q": agent is not None and has_critic(agent),
            "has_mask": agent is not None and agent.masker is not None,
            "most": self._frames if self.task in TASKS else None,
            "rate": self.rate,
            "actions": self._actions,
            "choices": self._choices,
            "size": self.config.image_size,
            "rows": self._rows,
        }

    def situation(self) -> dict[str, Any]:
        """Where the agent plays, and what can be changed there."""
        worlds = getattr(self._mode.base, "worlds", None)
        count = provenance_of(self.env).get("worlds", 1)
        return {
            "order": world_order(count) if count > 1 else [],
            "mode": self._shown,
            "problem": self.problem,
            "world": self._mode.info.get("world"),
            "worlds": [str(each) for each in (worlds or range(count))] if count > 1 else [],
            "fits": self._mode.fits,
        }

    # Playing -----------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> None:
        """Begin the episode that `svea eval` plays for this seed and number in this mode."""
        self.setting = setting
        self._wear(setting)
        self._mode.adjust(setting)
        worlds = provenance_of(self.env).get("worlds", 1)
        seed = evaluation_seeds(setting.seed, setting.episode + 1, worlds)[-1]
        self.episode, self.done = EpisodeResult(seed), False
        self._policy = self._make_policy()
        self.observation, _ = self.env.reset(seed=seed)
        self.numbers = Numbers()

    def change(self, setting: Setting) -> None:
        """Continue in another look; the newest picture of the observation is drawn again."""
        before, self.setting = self.setting, setting
        if setting.look_key == before.look_key:
            return
        if setting.mode_name != before.mode_name:
            self._wear(setting)
        self._mode.adjust(setting)
        if not self.done and self.env.has_wrapper_attr("redraw"):
            self.observation = self.env.get_wrapper_attr("redraw")()

    def decide(self, between: int = 0) -> None:
        """One decision, as evaluations take it.

        Args:
            between: How many pictures to draw at most between the last one and the next.
        """
        self.between = []
        if self.done:
            return
        if between:
            steps = {round(k * self.repeat / (between + 1)) for k in range(1, between + 1)}
            self.between = self._mode.draw_between(steps - {self.repeat}, self.setting.size)
        rows = np.repeat(self.observation[None], self._rows, axis=0)
        playing = [self.episode, *[None] * (self._rows - 1)]
        action = self._policy(rows, playing)[0]
        q = self._q(self.observation, action)
        step = self.env.step(as_action(self.env, action))
        self.observation, reward, terminated, truncated, info = step
        self.episode.add(float(reward), info)
        self.done = bool(terminated or truncated)
        self.numbers.add(self.episode.total, q, action)

    def _make_policy(self) -> Policy:
        """Made for every episode: what is drawn in it depends on its seed alone."""
        if self.agent is None:
            return random_policy(self._actions, self._choices)
        return deployed_policy(self.agent, self.config)

    def _q(self, observation: NDArray[np.uint8], action: NDArray[np.float32]) -> float:
        """What the agent expects; nan without critic."""
        if self.agent is None or not has_critic(self.agent):
            return math.nan
        seen, done = torch.as_tensor(observation)[None], torch.as_tensor(action)[None]
        return float(self.agent.q_value(seen, done))

    def _wear(self, setting: Setting) -> None:
        """Show the setting's mode, or training where the task does not have it."""
        name, options, self.problem = fitting_mode(setting, self.task)
        shown = setting.mode_name if not self.problem else name
        if shown != self._shown:
            self._mode.replace_base(make_mode(name, self.task, self._data_dir, options))
            self._shown = shown

    # Showing -----------------------------------------------------------------------------------

    def scene(self) -> bytes:
        """The scene as a JPEG."""
        unwrapped = self.env.unwrapped
        for env in (self.env, unwrapped):
            if hasattr(env, "render_size"):
                env.render_size = self.setting.size
        return as_jpeg(self.env.render())

    def seen(self) -> list[bytes]:
        """The frames that the agent sees, oldest first, and the newest with what is laid over it.

        Returns:
            RGB bytes of `(3, H, W, 3)`, and of `(H, W, 3)` if there is something to lay over it.
        """
        given = torch.as_tensor(self.observation)[None]
        if self.agent is not None:
            given = self.agent.view_maker.clean(given)
        frames = given[0].unflatten(0, (-1, 3)).permute(0, 2, 3, 1).contiguous()
        laid = self._overlay(given)
        if laid is None:
            return [frames.numpy().tobytes()]
        over = (laid * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()
        return [frames.numpy().tobytes(), over.numpy().tobytes()]

    def _overlay(self, given: torch.Tensor) -> torch.Tensor | None:
        """The newest frame (3, H, W) in [0, 1] with what is asked for laid over it."""
        agent, wanted = self.agent, self.setting.overlay
        if agent is None or wanted == "none":
            return None
        images = agent.view_maker.pixels(given.to(agent.device)).float()
        if wanted == "mask":
            return None if agent.masker is None else self._masked(agent, images)
        moved = scaled(F.avg_pool2d(self._sensitivity(agent, images)[:, None], 3, 1, 1)[:, 0])
        return overlay(images, moved)[0].cpu()

    @staticmethod
    @torch.no_grad()
    def _masked(agent: Agent, images: torch.Tensor) -> torch.Tensor:
        """What the agent's mask leaves of the newest frame."""
        return agent.masked(images)[0, -3:].cpu()

    @staticmethod
    def _sensitivity(agent: Agent, images: torch.Tensor) -> torch.Tensor:
        """Which pixels move the Q-value; without critic, which move the action."""
        with torch.no_grad():
            actions = agent.choose(agent.trunk(agent.masked(images)), False, None)
        if has_critic(agent):
            return input_gradients(agent, images, actions)
        return action_gradients(agent, images)

    def close(self) -> None:
        """Free the simulator."""
        self.env.close()


def as_jpeg(picture: Any) -> bytes:
    """A picture as it travels to the page."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()
