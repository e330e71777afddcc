"""One agent of a page, in a process of its own: it plays in a world that may change any moment.

It answers packets until its socket closes.
"""

import contextlib
import faulthandler
import io
import json
import math
import signal
import socket
import time
import traceback
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from svea.agents.policies import deployed_policy, random_policy
from svea.config import configure
from svea.config.modes import TASKS, name_worlds
from svea.config.options import FRAMES
from svea.core import importing
from svea.core.errors import SveaError, UserError
from svea.core.seeds import world_order
from svea.data.clips import data_folder
from svea.envs import make_env
from svea.envs.dmc import describe_actions
from svea.envs.looks import provenance_of
from svea.envs.looks.live import PATH, LiveMode
from svea.envs.registration import make_mode
from svea.envs.stacking import describe_observations
from svea.evaluation.analysis import influences
from svea.evaluation.play import OneEpisode, check_fits, expected_return, parallel_environments
from svea.play.session import FASTEST, LENGTH, pack
from svea.play.setting import AgentSlot, Setting
from svea.runs.load import has_critic, load_agent, load_config

JPEG_QUALITY = 88
MOST_DECISIONS = 2000
"""Decisions whose numbers wait for the next picture; older ones are forgotten."""
SMOOTH = 40  # pictures a second that are worth their time
BUSY = 0.8  # share of the time between decisions that an agent may take


def fresh_numbers() -> dict[str, list[Any]]:
    """Where a value per decision goes until the next picture."""
    return {"returns": [], "q": [], "actions": []}


class Player:
    """The agent of one slot and its environment, in this process."""

    def __init__(self, slot: AgentSlot, setting: Setting) -> None:
        """Load the agent, if it is not the random policy, and make its environment."""
        self.agent = load_agent(slot.run, device=slot.device) if slot.run else None
        self.config = load_config(slot.run) if slot.run else configure(slot.task)
        self.task = slot.task or self.config.task
        arguments = self.config.environment_in(PATH, slot.data_dir, slot.task)
        self.repeat, self._frames = arguments["action_repeat"], arguments["episode_frames"]
        self._data_dir = data_folder(arguments["data_dir"])
        shown = {"seed": 0, "render_mode": "rgb_array", "render_size": setting.size}
        self.env = make_env(**arguments | shown)
        self.rate = float(self.env.metadata.get("render_fps", 25))
        self._mode: LiveMode = self.env.get_wrapper_attr("mode")
        self._actions, self._choices = describe_actions(self.env.action_space)
        if self.agent is not None:
            _, parts = describe_observations(self.env)
            check_fits(self.agent, self._actions, self._choices, parts, self.task)
        self._rows = parallel_environments(slot.rows, 30)
        self._shown = self.problem = ""
        self.setting, self.numbers = setting, fresh_numbers()
        self.episode: OneEpisode | None = None
        self.between: list[NDArray[np.uint8]] = []
        """Pictures between the last two decisions."""
        self._most = 0  # that there is time for before the next
        self._show_mode(setting)

    @property
    def done(self) -> bool:
        """Whether there is no episode to play on in."""
        return self.episode is None or self.episode.done

    def about(self) -> dict[str, Any]:
        """What a page needs to know of the agent."""
        agent, config = self.agent, self.config
        worlds = name_worlds(config.train_mode, config.train_vary)
        seen = f", trained in {worlds}" if worlds else ""
        return {
            "task": self.task,
            "method": f"{config.method}{seen}" if agent else "random policy",
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
        self.setting, self.numbers = setting, fresh_numbers()
        self._show_mode(setting)
        self._mode.adjust(setting)
        if self.agent is None:
            policy = random_policy(self._actions, self._choices)
        else:
            policy = deployed_policy(self.agent, self.config)
        self.episode = OneEpisode(self.env, policy, setting.seed, setting.episode, self._rows)

    def change(self, setting: Setting) -> None:
        """Continue in another look; the newest picture of the observation is drawn again."""
        before, self.setting = self.setting, setting
        if setting.look == before.look:
            return
        if setting.mode_name != before.mode_name:
            self._show_mode(setting)
        self._mode.adjust(setting)
        if self.episode and not self.episode.done and self.env.has_wrapper_attr("redraw"):
            self.episode.show(self.env.get_wrapper_attr("redraw")())

    def decide(self, between: int = 0) -> None:
        """One decision, as evaluations take it, with so many pictures on the way to the next."""
        self.between = []
        if self.episode is None or self.episode.done:
            return
        if between:
            steps = {round(k * self.repeat / (between + 1)) for k in range(1, between + 1)}
            self.between = self._mode.draw_between(steps - {self.repeat}, self.setting.size)
        action = self.episode.choose()
        q = expected_return(self.agent, self.episode.observation, action)
        self.episode.step(action)
        if len(self.numbers["q"]) < MOST_DECISIONS:  # the memory of a page that takes no pictures
            self.numbers["returns"].append(round(self.episode.result.total, 4))
            self.numbers["q"].append(round(q, 4) if math.isfinite(q) else None)
            self.numbers["actions"].append([round(float(each), 3) for each in action])

    def _show_mode(self, setting: Setting) -> None:
        """Show the setting's mode, or training where the task does not have it."""
        name, options, self.problem = setting.mode_in(self.task)
        shown = setting.mode_name if not self.problem else name
        if shown != self._shown:
            self._mode.replace_base(make_mode(name, self.task, self._data_dir, options))
            self._shown = shown

    # Showing -----------------------------------------------------------------------------------

    def scene(self) -> bytes:
        """The scene as a JPEG."""
        for env in (self.env, self.env.unwrapped):
            if hasattr(env, "render_size"):
                env.render_size = self.setting.size
        return as_jpeg(self.env.render())

    def seen(self) -> list[bytes]:
        """RGB bytes of the frames it sees, (3, H, W, 3), and of the newest with its overlay.

        Of two pictures, the first is shown.
        """
        assert self.episode is not None
        pictures, _ = self.episode.parts.split(self.episode.observation[None])
        given = torch.as_tensor(pictures)
        if self.agent is not None:
            given = self.agent.view_maker.clean(given)
        frames = given[0].unflatten(0, (-1, 3))[:FRAMES].permute(0, 2, 3, 1).contiguous()
        laid = self._overlay(given)
        if laid is None:
            return [frames.numpy().tobytes()]
        over = (laid * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()
        return [frames.numpy().tobytes(), over.numpy().tobytes()]

    def _overlay(self, given: torch.Tensor) -> torch.Tensor | None:
        """The newest frame (3, H, W) in [0, 1] with what is asked for laid over it."""
        agent, wanted = self.agent, self.setting.overlay
        if agent is None or wanted == "none" or (wanted == "mask" and agent.masker is None):
            return None
        assert self.episode is not None
        images = agent.view_maker.pixels(given.to(agent.device)).float()
        _, vectors = agent.split(self.episode.observation[None])
        with torch.no_grad():
            left = agent.masked(images)
            if wanted == "mask":
                return left.chunk(agent.parts.count, 1)[0][0, -3:].cpu()
            actions = agent.choose(agent.encode(left, vectors), False, None)
        (drawn,) = influences(agent, images, actions, vectors=vectors).values()
        return drawn[0, :, :, : given.shape[-1]].cpu()

    def answer(self, do: str, draw: bool, setting: Setting, header: dict[str, Any]) -> bytes:
        """Begin an episode, change the look, or decide; then show it if asked."""
        before = time.monotonic()
        if do == "begin":
            self.begin(setting)
        elif setting != self.setting:
            self.change(setting)
        if do == "decide":
            self.decide(self._most if draw else 0)
        if self.episode is None:
            raise UserError("no episode could be begun")
        result = self.episode.result
        header |= {
            "seed": result.seed,
            "length": result.length,
            "return": result.total,
            "success": result.success,
            "done": self.done,
        }
        if do == "decide" and not draw:
            return pack(header)
        parts = [self.scene(), *self.seen()]
        header |= self.situation() | self.numbers
        header |= {"overlay": setting.overlay if len(parts) > 2 else "none", "between": 0}
        self.numbers = fresh_numbers()
        if do == "decide":
            parts += map(as_jpeg, self.between)
            header["between"] = len(self.between)
            interval = 1 / min(FASTEST, self.rate * setting.speed)
            most = min(self.repeat, int(SMOOTH * interval)) - 1
            self._most = fitting(self._most, time.monotonic() - before, interval, most)
        return pack(header, *parts)

    def close(self) -> None:
        """Free the simulator."""
        self.env.close()


def as_jpeg(picture: Any) -> bytes:
    """A picture as it travels to the page."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


# The process -------------------------------------------------------------------------------------


def main(own_end: str) -> None:
    """Serve the parent; it ends this process by closing the socket, by a signal, or by dying."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the parent's to handle
    importing.trust(importing.EVERYTHING)  # the parent has asked, before it started this one
    player: Player | None = None
    with socket.socket(fileno=int(own_end)) as end, contextlib.suppress(ConnectionError):
        for line in end.makefile("rb"):
            command = json.loads(line)
            header = {"agent": command["agent"], "did": command["do"]}
            setting = Setting(**command["setting"])
            try:
                if command["do"] == "start":
                    torch.set_num_threads(command["threads"])
                    player = Player(AgentSlot(**command["slot"]), setting)
                    packet = pack(header | {"about": player.about()})
                else:
                    assert player is not None
                    packet = player.answer(command["do"], command["draw"], setting, header)
            except SveaError as error:
                packet = pack(header | {"error": str(error)})
            except Exception as error:  # also of a user's environment
                traceback.print_exc()
                packet = pack(header | {"error": f"{type(error).__name__}: {error}"})
            end.sendall(LENGTH.pack(len(packet)) + packet)


def fitting(count: int, seconds: float, interval: float, most: int) -> int:
    """How many pictures to draw before the next decision, so that it comes in time.

    Before this one `count` were drawn, which took these seconds with the decision and its other
    pictures; the interval is that between decisions, and no more than `most` are worth it.

    >>> fitting(0, 0.02, 0.1, 3), fitting(3, 0.09, 0.1, 3), fitting(1, 0.07, 0.1, 3)
    (1, 2, 1)
    """
    if seconds > BUSY * interval:
        count -= 1
    elif seconds + seconds / (count + 1) < BUSY * interval:
        count += 1
    return max(0, min(count, most))
