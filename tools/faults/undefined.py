"""NaN and infinity put in everywhere: caught in the same update, named, never written."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults.profiles import TOY, config, no_pictures
from faults.tally import Tally, each, expect, numbers
from safetensors.torch import load_file
from whole_runs import digest, metrics

from svea import training
from svea.core.errors import NumericsError
from svea.core.seeds import TRAINING, episode_seed
from svea.envs import make_env
from svea.runs import checkpoint
from svea.speed import learner

PROFILE = TOY | {"decisions": 60, "warmup": 12, "save_every": 10, "eval_every": 30}
KINDS = (
    *("observation", "reward", "action", "target", "critic loss", "actor loss"),
    *("temperature", "gradient", "optimiser"),
)


class Injection:
    """Spoils one number of an agent, at one of its steps."""

    def __init__(self, kind: str, when: int, bad: float) -> None:
        self.kind, self.when, self.bad = kind, when, bad
        self.counts = {"critic": 0, "actor": 0, "act": 0}
        self.done = False

    def infect(self, agent: Any) -> None:
        """Wrap an agent's functions."""
        step, q_target, act = agent.step, agent.q_target, agent.act

        def spoiled_step(name: str, loss: torch.Tensor) -> Any:
            self.counts[name] = self.counts.get(name, 0) + 1
            if self.is_time(f"{name} loss", name):
                loss = loss * self.bad
            hooks = self.spoil(agent) if name == "critic" else []
            losses = step(name, loss)
            for hook in hooks:
                hook.remove()
            return losses

        def spoiled_target(*arguments: Any) -> Any:
            target = q_target(*arguments)
            if self.kind == "target" and self.counts["critic"] + 1 == self.when:
                self.done = True
                target[..., 0] = self.bad
            return target

        def spoiled_act(*arguments: Any, **settings: Any) -> Any:
            actions = act(*arguments, **settings)
            self.counts["act"] += bool(settings.get("explore"))
            is_time = settings.get("explore") and self.is_time("action", "act")
            return np.full_like(actions, self.bad) if is_time else actions

        agent.step, agent.q_target, agent.act = spoiled_step, spoiled_target, spoiled_act

    def spoil(self, agent: Any) -> list[Any]:
        """Before a step of the critic; returns what is to be removed after it."""
        optimiser = agent.optimisers["critic"]
        first, *_, last = optimiser.param_groups[0]["params"]
        if self.is_time("temperature", "critic"):
            agent.numbers()["log_temperature"].data.fill_(self.bad)
        if self.is_time("optimiser", "critic"):
            optimiser.state[first]["exp_avg"].fill_(self.bad)
        is_gradient = self.is_time("gradient", "critic")
        return [last.register_hook(lambda gradient: gradient * self.bad)] if is_gradient else []

    def is_time(self, kind: str, counter: str) -> bool:
        """Whether this is the place and the step."""
        now = kind == self.kind and self.counts.get(counter) == self.when
        self.done = self.done or now
        return now


@each()
def nan_injections(case: int, random: np.random.Generator, run: Path, tally: Tally) -> None:
    """Every kind in turn, at random steps."""
    kind, bad = KINDS[case % len(KINDS)], (math.nan, math.inf, -math.inf)[case // 9 % 3]
    if kind in ("observation", "reward"):
        return spoil_environment(run, kind, bad, random)
    spoil_agent(run, kind, bad, random)
    training.train(config(PROFILE, run))
    whole = run.with_name("whole")  # nobody touches it
    if not whole.exists():
        training.train(config(PROFILE, whole))
    expect(digest(run) == digest(whole), "the resumed run differs from the untouched one")


def spoil_agent(run: Path, kind: str, bad: float, random: np.random.Generator) -> None:
    """Train with an injection in the agent, until it is caught."""
    most = {"actor loss": 24, "action": 40}.get(kind, 50)
    injection = Injection(kind, int(random.integers(1 if kind != "optimiser" else 2, most)), bad)
    real = learner.accelerate

    def accelerate(agent: Any, *settings: Any) -> None:
        real(agent, *settings)  # which puts other functions in the place of an agent's own
        injection.infect(agent)

    learner.accelerate = accelerate
    try:
        caught = train_until_caught(config(PROFILE, run))
    finally:
        learner.accelerate = real
    expect(injection.done, "the injection was never made")
    late = injection.counts["critic"] - injection.when
    named = kind in caught or kind not in ("action", "temperature")
    expect(named, f"{kind} is not named: {caught}")
    if kind not in ("actor loss", "action"):
        expect(late == 0, f"{kind} was caught {late} updates late: {caught}")
    check_written(run)


def spoil_environment(run: Path, kind: str, bad: float, random: np.random.Generator) -> None:
    """Train in an environment that answers NaN or infinity."""
    episode, clock = int(random.integers(0, 5)), int(random.integers(0, 10))
    where = episode_seed(PROFILE.get("seed", 0), TRAINING, 0, episode)
    os.environ["SVEA_FAULTS"] = json.dumps([kind, where, clock, str(bad)])
    caught = train_until_caught(config(PROFILE, run, task="toy:make_spoiled"))
    expect(kind in caught or "showed" in caught, f"{kind} is not named: {caught}")
    check_written(run)
    if kind == "reward":
        lines = [line for line in metrics(run) if line["kind"] == "episode"]
        expect(len(lines) <= episode, "the episode was logged")


def train_until_caught(settings: Any) -> str:
    """Train; the error's words."""
    try:
        training.train(settings)
    except NumericsError as error:
        expect(error.exit_code == 3, "wrong exit code")
        return str(error)
    raise AssertionError("nothing was caught")


def check_written(run: Path) -> None:
    """Nothing on disk is infinite or undefined."""
    saved = checkpoint.load(run)
    for segment in saved.segments if saved else []:
        rewards = load_file(run / "replay" / segment["name"])["rewards"]
        expect(rewards.isfinite().all(), "a bad reward was stored")
    for name, tensor in saved.agent.items() if saved else ():
        expect(not tensor.is_floating_point() or tensor.isfinite().all(), f"{name} was saved")
    for line in metrics(run):
        numbers = [value for value in line.values() if isinstance(value, float)]
        expect(np.isfinite(numbers).all(), "a bad number was logged")


def physics(cases: range, seed: int, folder: Path) -> Tally:
    """Simulations that diverge: the episode is cut off, and the next one is as if nothing was."""
    if why := no_pictures():
        return Tally(skipped=why)
    tally = Tally()
    env, untouched = (make_env("walker_walk", image_size=32, rendering="fast") for _ in range(2))
    for case in cases:
        random = numbers("physics", seed, case)
        with tally.case(f"physics {case}"):
            blow_up(env.unwrapped, ("velocity", "position", "force")[case % 3], random)
            for again in (env, untouched):
                again.reset(seed=case)
            action = random.uniform(-1, 1, 6).astype(np.float32)
            for _ in range(3):
                one, two = (played.step(action) for played in (env, untouched))
                expect(one[1] == two[1] and np.array_equal(one[0], two[0]), "a trace was left")
    env.close()
    untouched.close()
    return tally


def blow_up(env: Any, what: str, random: np.random.Generator) -> None:
    """Play, spoil the simulation, and see the episode end as it should."""
    seen, _ = env.reset(seed=int(random.integers(1000)))
    when = int(random.integers(0, 6))
    for clock in range(10):
        if clock == when:
            data = env.physics.data
            where = {"velocity": data.qvel, "position": data.qpos, "force": data.qfrc_applied}[what]
            where[:] = random.choice([np.nan, 1e30, -1e30]) if what != "force" else 1e30
        last = seen
        seen, reward, terminated, truncated, info = env.step(
            random.uniform(-1, 1, 6).astype(np.float32)
        )
        expect(np.isfinite(reward), f"the reward is {reward}")
        if truncated:
            expect(clock == when and not terminated and "physics_error" in info, "cut off wrongly")
            expect(np.array_equal(seen[-3:], last[-3:]), "a picture of nonsense was shown")
            return
    raise AssertionError("the divergence was not noticed")
