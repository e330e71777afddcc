"""Pictures, states and rewards of a few episodes, against those of when their version was raised.

Where this fails after a change of the code, episodes have another outcome than records of this
version say: raise EPISODES_VERSION (`svea.envs.looks`), or VERSION of `svea.raster` where
only the rasteriser's pictures changed, and write the numbers again:

    python tests/envs/test_golden.py
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from svea.envs import make_env
from svea.envs.looks import EPISODES_VERSION

KEPT = Path(__file__).parents[1] / "support" / "golden_episodes.json"
OWN = " with frames of our own"
CASES = [
    ("walker_walk", "train"),
    ("walker_walk", "color_hard"),
    ("walker_walk", "video_hard"),
    ("cartpole_swingup", "video_easy"),
    ("cartpole_swingup", "rotate_shift_hard"),
    ("finger_spin", "distracting_cs:0.2"),
    ("finger_spin", "light_position_hard"),
    ("ball_in_cup_catch", "moving_light_hard"),
    ("robot_push", "test:7"),
    ("walker_walk", f"video_hard{OWN}"),
]
DECISIONS, CELLS = 5, 6
LEVELS, STATES = 1.0, 1e-4
"""Tolerances: of 255, where renderers and processors round otherwise; of states and rewards."""


def episode(task: str, mode: str) -> dict[str, Any]:
    """The beginning of an episode: means and deviations of parts of its last picture, and state."""
    with tempfile.TemporaryDirectory() as folder:
        videos = {"videos": write_frames(Path(folder))} if mode.endswith(OWN) else {}
        return _episode(make_env(task, mode.removesuffix(OWN), seed=1, **videos))


def write_frames(folder: Path) -> Path:
    """A clip with detail far above what a picture can show, so that its resampling counts."""
    frames = np.random.default_rng(0).integers(0, 256, (8, 60, 60, 3), np.uint8)
    (folder / "clip").mkdir()
    for number, frame in enumerate(frames.repeat(4, axis=1).repeat(4, axis=2)):
        Image.fromarray(frame).save(folder / "clip" / f"{number}.png")
    return folder


def _episode(env: Any) -> dict[str, Any]:
    random = np.random.default_rng(5)
    env.reset(seed=3)
    rewards = []
    for _ in range(DECISIONS):
        action = random.uniform(-1, 1, env.action_space.shape)  # type: ignore[arg-type]
        seen, reward, *_ = env.step(action.astype(np.float32))
        rewards.append(float(reward))
    state = env.unwrapped.state().tolist()  # type: ignore[attr-defined]
    env.close()
    side = seen.shape[-1] // CELLS
    parts = seen[-3:].reshape(3, CELLS, side, CELLS, side).astype(float)
    cells = {
        "means": parts.mean(axis=(2, 4)).round(2).tolist(),
        "deviations": parts.std(axis=(2, 4)).round(2).tolist(),
    }
    return {"rewards": rewards, "state": state} | cells


@pytest.mark.parametrize(("task", "mode"), CASES)
def test_episodes_are_those_of_their_version(task: str, mode: str) -> None:
    kept = json.loads(KEPT.read_text())
    assert kept["episodes"] == EPISODES_VERSION, "python tests/envs/test_golden.py"
    golden, now = kept["cases"][f"{task} {mode}"], episode(task, mode)
    for name in ("rewards", "state"):
        np.testing.assert_allclose(now[name], golden[name], atol=STATES, err_msg=__doc__ or "")
    for name in ("means", "deviations"):
        np.testing.assert_allclose(now[name], golden[name], atol=LEVELS, err_msg=__doc__ or "")


if __name__ == "__main__":
    from svea.raster import VERSION

    cases = {f"{task} {mode}": episode(task, mode) for task, mode in CASES}
    versions = {"episodes": EPISODES_VERSION, "raster": VERSION}
    KEPT.write_text(json.dumps(versions | {"cases": cases}) + "\n")
