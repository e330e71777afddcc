"""Measures the robot tasks without drawing: what docs/robot.md says of them.

python benchmarks/robot.py                     # success rates over 200 episodes
python benchmarks/robot.py --episodes 1000 --policies random extreme   # stability
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests/support"))

from robot_expert import expert_action

from svea.envs.robot.task import RULES, TOOL_HEIGHT, load

import mujoco  # isort: skip  (after svea has chosen the OpenGL backend)

STEPS = 50
CORNER_STEPS = 10


def extreme(episode: int, step: int) -> np.ndarray:
    """Full speed: to a new corner at every step or, in odd episodes, at every tenth."""
    held = CORNER_STEPS if episode % 2 else 1
    return np.random.default_rng([episode, step // held]).choice([-1.0, 1.0], 2)


def measure(task_name: str, policy: str, episodes: int) -> dict[str, float]:
    """Play episodes 0, 1, ...; every draw is a function of the episode's number."""
    env = load(task_name)
    task, physics = env.task, env.physics
    model, data = physics.model.ptr, physics.data.ptr
    arm = [g for g in range(model.ngeom) if model.geom_contype[g] == 2]
    heights, tilts, gaps, returns, successes, lost = [], [], [], [], 0, 0
    for episode in range(episodes):
        rng = np.random.default_rng([episode, 1])
        task._random = np.random.RandomState(episode)
        env.reset()
        total, off_table = 0.0, False
        for step in range(STEPS):
            if policy == "expert":
                action = expert_action(task, physics)
            elif policy == "random":
                action = rng.uniform(-1, 1, 2)
            else:
                action = extreme(episode, step)
            total += env.step(action).reward  # raises PhysicsError at any MuJoCo warning
            tool = data.site("tool")
            heights.append(tool.xpos[2] - TOOL_HEIGHT)
            turned = np.trace(np.diag([1.0, -1.0, -1.0]) @ tool.xmat.reshape(3, 3))
            tilts.append(math.degrees(math.acos(np.clip((turned - 1) / 2, -1, 1))))
            if step % 5 == 0:
                gaps.append(clearance(model, data, arm))
            off_table |= task.episode_info(physics).get("off_table", False)
        returns.append(total)
        successes += task.episode_info(physics)["success"]
        lost += off_table
    return {
        "success": successes / episodes,
        "return": float(np.mean(returns)),
        "least": min(returns),
        "most": max(returns),
        "height low mm": 1e3 * min(heights),
        "height high mm": 1e3 * max(heights),
        "tilt deg": max(tilts),
        "table gap mm": 1e3 * min(gaps),
        "off table": lost / episodes,
        "warnings": sum(int(warning.number) for warning in data.warning),
    }


def clearance(model: mujoco.MjModel, data: mujoco.MjData, arm: list[int]) -> float:
    """The least distance between a colliding shape of the arm and the table, in metres."""
    table = model.geom("table").id
    return min(mujoco.mj_geomDistance(model, data, geom, table, 0.5, None) for geom in arm)


def main() -> None:
    """Print a line per task and policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--tasks", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--policies", nargs="+", default=["expert", "random"])
    options = parser.parse_args()
    print(f"{options.episodes} episodes each · MuJoCo {mujoco.__version__} · {platform.machine()}")
    for task in options.tasks:
        for policy in options.policies:
            start = time.perf_counter()
            numbers = measure(task, policy, options.episodes)
            ms = 1e3 * (time.perf_counter() - start) / options.episodes / STEPS
            told = ", ".join(f"{name} {value:.3g}" for name, value in numbers.items())
            print(f"{task:<13} {policy:<8} {told}, {ms:.2f} ms a step", flush=True)


if __name__ == "__main__":
    main()
