"""An episode of an agent as it was played: observations, actions, pictures, Q-values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from svea.agents.policies import deployed_policy
from svea.config.modes import label_mode
from svea.config.shapes import FRAMES
from svea.core.errors import SveaError, WorkerError
from svea.core.seeds import evaluation_seeds
from svea.core.tracebacks import where_raised
from svea.envs import make_env
from svea.envs.actions import as_action, describe_actions
from svea.envs.looks import provenance_of
from svea.evaluation.lines import check_actions
from svea.evaluation.play import EpisodeResult
from svea.runs.load import has_critic

if TYPE_CHECKING:
    from svea.agents.agent import Agent
    from svea.config import Config

SIZE = 240  # side of a picture, in pixels

Picture = NDArray[np.uint8]  # (H, W, 3)


@dataclass
class Recording:
    """One episode as it was played, a value per decision."""

    mode: str
    rate: float = 25.0
    """Decisions per second of simulated time."""
    observations: list[NDArray[np.uint8]] = field(default_factory=list)
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    """The world before each decision; none where an environment does not draw itself."""
    totals: list[float] = field(default_factory=list)
    """The return before each decision."""
    masks: list[Picture] = field(default_factory=list)
    """How much a masker keeps of the newest frame's pixels, white all; none without a masker."""
    objects: list[NDArray[np.bool_]] = field(default_factory=list)
    """Where the task is in each frame of an observation, (3, H, W); only if asked for."""
    q: list[float] = field(default_factory=list)
    """The Q-value of each decision's observation and action; nan for an agent without critic."""


def record(
    agent: Agent,
    config: Config,
    mode: str,
    *,
    seed: int = 0,
    size: int | None = SIZE,
    data_dir: str | None = None,
    task: str = "",
    objects: bool = False,
    seconds: float = 0.0,
    number: int = 0,
) -> Recording:
    """Play one episode of an evaluation in a mode, in this process, and keep what there is to see.

    Args:
        agent: who plays.
        config: of its run.
        mode: where.
        seed: of the evaluation.
        size: side of the pictures; None takes none.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
        task: another task than the run's.
        objects: also keep where the task is, by the simulator's segmentation.
        seconds: only the beginning of the episode; 0: all of it.
        number: of the episode in the evaluation, as its record has it; 0 is the first.
    """
    chosen: dict[str, Any] = {"seed": 0}  # as in workers, for a user's function that takes a seed
    if size:
        chosen |= {"render_mode": "rgb_array", "render_size": size}
    environment = make_env(**config.environment_in(mode, data_dir, task) | chosen)
    policy = deployed_policy(agent, config)
    worlds = provenance_of(environment).get("worlds", 1)
    episode = EpisodeResult(evaluation_seeds(seed, number + 1, worlds)[number])
    rate = environment.metadata.get("render_fps", 25)
    recording = Recording(label_mode(mode, task), rate)
    most = max(1, round(seconds * rate)) if seconds else math.inf
    try:
        check_actions(agent, *describe_actions(environment.action_space), task or config.task)
        observation, _ = environment.reset(seed=episode.seed)
        done = False
        while not done:
            if objects:
                _keep_objects(recording, environment.unwrapped.foreground())  # type: ignore[attr-defined]
            action = policy(observation[None], [episode])[0]
            _keep(
                recording, agent, observation, action, episode.total, environment if size else None
            )
            step = environment.step(as_action(environment, action))
            observation, reward, terminated, truncated, _ = step
            episode.total += float(reward)
            episode.length += 1
            done = bool(terminated or truncated or episode.length >= most)
    except SveaError:
        raise
    except Exception as error:
        if not (where := where_raised(error)):
            raise  # not in the user's code
        said = f"{task or config.task} raised {type(error).__name__}: {error} ({where})"
        raise WorkerError(said) from error
    finally:
        environment.close()
    return recording


def _keep_objects(recording: Recording, newest: NDArray[np.bool_]) -> None:
    """Add where the task is in the newest picture; before the first one all were like it."""
    before = recording.objects[-1] if recording.objects else np.stack([newest] * FRAMES)
    recording.objects.append(np.stack([*before[1:], newest]))


def _keep(
    recording: Recording,
    agent: Agent,
    observation: NDArray[np.uint8],
    action: NDArray[np.float32],
    total: float,
    environment: Any,
) -> None:
    """Add a decision."""
    recording.observations.append(observation)
    recording.actions.append(action)
    recording.totals.append(total)
    seen, done = torch.as_tensor(observation)[None], torch.as_tensor(action)[None]
    recording.q.append(float(agent.q_value(seen, done)) if has_critic(agent) else math.nan)
    if agent.masker is not None:
        recording.masks.append(mask_picture(agent, seen))
    picture = environment.render() if environment is not None else None
    if picture is not None:  # a user's environment need not draw itself
        recording.pictures.append(np.asarray(picture))


@torch.no_grad()
def mask_picture(agent: Agent, observation: torch.Tensor) -> Picture:
    """The mask of an observation's newest frame, (H, W, 3): black where nothing is kept."""
    assert agent.masker is not None
    view = agent.views(observation.to(agent.device))["clean", 0]
    kept = (255 * agent.masker.masks(view)[0, -1]).round().to(torch.uint8).cpu().numpy()
    return np.repeat(kept[..., None], 3, axis=2)
