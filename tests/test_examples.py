"""The examples run, and compute what they say they do."""

import importlib
import json
import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from example_files import EXAMPLES, run
from gymnasium.utils.env_checker import check_env
from tiny_runs import tiny
from torch import Tensor

from svea.core.errors import UserError
from svea.envs import MODES
from svea.recipes import RECIPES, RecipeOptions, streams
from svea.training import train
from svea.views import Views

SHAPE = (9, 16, 16)


def fixed_views(observations: Tensor) -> Views:
    """Views without chance: weak is shifted by a pixel, strong is its negative."""
    return Views(observations, lambda x: x, lambda x: x.roll(1, -1), lambda x: 1 - x)


def transitions(count: int = 5) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(3)
    observations, successors = torch.randint(
        256, (2, count, *SHAPE), generator=random, dtype=torch.uint8
    )
    return {
        "observations": observations,
        "actions": torch.rand(count, 2, generator=random) * 2 - 1,
        "rewards": torch.rand(count, generator=random),
        "terminated": (torch.arange(count) == 1).float(),
        "successors": successors,
    }


# A plain SAC --------------------------------------------------------------------------------------


@pytest.fixture
def plain(examples_on_path):
    return importlib.import_module("svea_in_plain_sac")


def plain_agent(plain, recipe: str):
    torch.manual_seed(0)
    agent = plain.Agent(SHAPE, 2, recipe, pad=1)
    agent.views = fixed_views
    return agent


@pytest.mark.parametrize("recipe", ["svea", "drq", "drq+aug"])
def test_the_plain_scripts_loss_is_the_recipes(plain, recipe):
    """Against the paper's equations, one stream at a time."""
    agent, batch = plain_agent(plain, recipe), transitions()
    weak = batch["observations"].roll(1, -1) / 255
    successor = batch["successors"].roll(1, -1) / 255
    if recipe == "drq+aug":
        successor = 1 - successor
    torch.manual_seed(5)
    with torch.no_grad():
        actions, log_probability = agent.sample(agent.critic.encoder(successor))
        q = agent.target(agent.target.encoder(successor), actions).min(0).values
        value = q - agent.log_temperature.exp() * log_probability
        target = batch["rewards"] + plain.DISCOUNT * (1 - batch["terminated"]) * value

        def error(images: Tensor) -> Tensor:
            q1, q2 = agent.critic(agent.critic.encoder(images), batch["actions"])
            return ((q1 - target) ** 2).mean() + ((q2 - target) ** 2).mean()

        alpha, beta = {"svea": (0.5, 0.5), "drq": (1, 0), "drq+aug": (0, 1)}[recipe]
        expected = alpha * error(weak) + beta * error(1 - weak)
    torch.manual_seed(5)
    assert agent.update(**batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_plain_scripts_policy_does_not_train_the_encoder(plain):
    agent = plain_agent(plain, "svea")
    before = [p.clone() for p in agent.critic.parameters()]
    policy = [p.clone() for p in agent.policy.parameters()]
    agent.optimisers[0].step = lambda: None  # the critic's own step is left out
    agent.update(**transitions())
    assert all(map(torch.equal, before, agent.critic.parameters()))
    assert not any(map(torch.equal, policy, agent.policy.parameters()))


def test_the_plain_script_learns_the_toy():
    """Random play earns 3.8 of 10; the script comes to about 8."""
    small = ["--task", "toy:make", "--image-size", "16", "--decisions", "250"]
    printed = run("svea_in_plain_sac.py", *small)
    returns = [float(value) for value in re.findall(r"return (\d+\.\d)", printed)]
    assert len(returns) == 25 and np.mean(returns[-5:]) > 6.5


# Stable-Baselines3 --------------------------------------------------------------------------------


@pytest.fixture
def sb3(examples_on_path):
    pytest.importorskip("stable_baselines3", reason="pip install stable-baselines3 to run this")
    return importlib.import_module("sb3_sac")


class Still(gym.Env):
    """Spaces to build an agent with."""

    observation_space = gym.spaces.Box(0, 255, (9, 36, 36), np.uint8)  # the library's least size
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.5), (0.2, 0.9)])
def test_the_subclass_has_sveas_critic_loss(sb3, alpha, beta):
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    agent = sb3.SVEA("CnnPolicy", Still(), buffer_size=1, seed=0, device="cpu")
    agent.streams = streams(RECIPES["svea"], RecipeOptions(alpha=alpha, beta=beta))
    random = torch.Generator().manual_seed(1)
    now, later = torch.randint(256, (2, 4, 9, 36, 36), generator=random, dtype=torch.uint8)
    batch = ReplayBufferSamples(
        observations=now,
        actions=torch.rand(4, 2, generator=random) * 2 - 1,
        next_observations=later,
        dones=torch.tensor([[0.0], [1.0], [0.0], [0.0]]),
        rewards=torch.rand(4, 1, generator=random),
    )
    torch.manual_seed(2)
    with torch.no_grad():
        shifted = later.roll(1, -1)
        actions, log_probability = agent.actor.action_log_prob(shifted)
        q = torch.minimum(*agent.critic_target(shifted, actions))
        value = q - agent.log_ent_coef.exp() * log_probability[:, None]
        target = batch.rewards + agent.gamma * (1 - batch.dones) * value

        def error(images: Tensor) -> Tensor:
            q1, q2 = agent.critic(images, batch.actions)
            return ((q1 - target) ** 2).mean() + ((q2 - target) ** 2).mean()

        expected = alpha * error(now.roll(1, -1)) + beta * error(255 - now.roll(1, -1))
    torch.manual_seed(2)
    loss = agent.critic_loss(batch, fixed_views(now), fixed_views(later))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("arguments", [[], pytest.param(["--plain"], marks=pytest.mark.slow)])
def test_the_subclass_learns_and_is_tested_in_every_mode(sb3, arguments):
    printed = run("sb3_sac.py", "--steps", "40", "--episode-frames", "80", *arguments)
    rows = dict(re.findall(r"^(\w+)\S*(?: \(\w+\))? +(\d+\.\d)$", printed, re.MULTILINE))
    assert list(rows) == list(MODES)


# An environment of one's own ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized")
@pytest.mark.parametrize("kind", ["make_catch", "make_discrete_catch"])
def test_the_own_environment_obeys_gymnasium(examples_on_path, kind):
    check_env(getattr(importlib.import_module("own_environment"), kind)(), skip_render_check=True)


def test_the_ball_can_be_caught_and_missed(examples_on_path):
    catch = importlib.import_module("own_environment")
    for discrete in (False, True):
        env = catch.Catch(discrete)
        for seed in range(20):
            for follow in (1, -1):  # after the ball, or away from it
                env.reset(seed=seed)
                landed = False
                while not landed:
                    way = follow * np.sign(env.ball - env.paddle)
                    action = int(way) + 1 if discrete else np.array([way * catch.SPEED], np.float32)
                    picture, reward, landed, truncated, _ = env.step(action)
                    assert not truncated and env.observation_space.contains(picture)
                assert reward == (follow == 1)


@pytest.mark.parametrize(("kind", "base"), [("make_catch", "sac"), ("make_discrete_catch", "dqn")])
def test_training_on_the_own_environment(examples_on_path, tmp_path, kind, base):
    long = {"episode_frames": 1000, "eval_every": 1000}
    config = tiny(tmp_path / "run", f"own_environment:{kind}", base=base, **long)
    log = [json.loads(line) for line in (train(config) / "metrics.jsonl").read_text().splitlines()]
    assert [line["length"] for line in log if line["kind"] == "episode"] == [7] * 5  # of 40
    evaluated = [line for line in log if line["kind"] == "eval"]
    assert all(set(line["returns"]) <= {0.0, 1.0} for line in evaluated) and len(evaluated) == 2


def test_continuous_and_discrete_want_their_base(examples_on_path, tmp_path):
    with pytest.raises(UserError, match=r"3 discrete actions.*--base dqn"):
        train(tiny(tmp_path / "run", "own_environment:make_discrete_catch"))
    with pytest.raises(UserError, match=r"--base sac|--action-bins"):
        train(tiny(tmp_path / "run", "own_environment:make_catch", base="dqn"))


# The documentation --------------------------------------------------------------------------------


def test_the_lines_in_the_documentation_are_sveas_loss():
    page = (EXAMPLES.parent / "docs/your-environment.md").read_text()
    (lines,) = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "Views(" in block
    ]
    batch = transitions()
    seen = {}

    def critic(pictures: Tensor, actions: Tensor) -> Tensor:
        seen["prediction"] = pictures
        return pictures.mean((1, 2, 3)) + actions.sum(1)

    def target(pictures: Tensor) -> Tensor:
        seen["target"] = pictures
        return torch.zeros(len(pictures))

    given = {
        "observations": batch["observations"],
        "next_observations": batch["successors"],
        "actions": batch["actions"],
        "your_critic": critic,
        "your_target": target,
    }
    torch.manual_seed(0)
    exec(lines, given)
    weak, strong = seen["prediction"].chunk(2)
    assert torch.equal(weak, given["policy_pictures"]) and not torch.equal(weak, strong)
    assert len(seen["target"]) == len(weak) == 5
    expected = sum(critic(view, batch["actions"]).square().mean() / 2 for view in (weak, strong))
    assert given["critic_loss"].item() == pytest.approx(expected.item(), rel=1e-5)
