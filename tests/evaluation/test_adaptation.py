"""PAD at test time: fresh in every episode, without a trace on the trained agent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import tiny

from svea.agents import Agent, make_agent
from svea.agents.policies import AdaptingPolicy, adapt, fresh_copy
from svea.config import configure
from svea.evaluation.play import EpisodeResult
from svea.evaluation.requests import evaluate
from svea.training import train

SIZE = 16
SMALL: dict[str, Any] = {
    "image_size": SIZE,
    "crop": 4,
    "network": {"layers": 3, "filters": 4, "projection": 8, "hidden": 16, "head_layers": 1},
    "batch_size": 8,
}


def pad_agent(**changes: Any) -> Agent:
    config = configure("toy:make", method="pad", **(SMALL | changes))
    return make_agent(config, actions=3 if config.base == "dqn" else 2)


def pictures(count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 9, SIZE + 4, SIZE + 4), dtype=np.uint8)


def play(
    policy: AdaptingPolicy, observations: np.ndarray, seeds: list[int | None]
) -> tuple[np.ndarray, list[EpisodeResult | None]]:
    """Show every row the same pictures, one after another, as episodes of these seeds."""
    episodes = [None if seed is None else EpisodeResult(seed) for seed in seeds]
    actions = []
    for observation in observations:
        actions.append(policy(np.stack([observation] * len(seeds)), episodes))
        for episode in episodes:
            if episode is not None:
                episode.length += 1
    return np.stack(actions), episodes


def everything(agent: Agent) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in agent.state_dict().items()}


@pytest.mark.parametrize("task", ["inverse_dynamics", "rotation"])
@pytest.mark.parametrize("base", ["sac", "dqn"])
def test_the_trained_agent_stays_bit_for_bit(task: str, base: str) -> None:
    agent = pad_agent(base=base, pad={"task": task, "learning_rate": 0.05})
    before, unadapted = everything(agent), agent.act(pictures(6))
    policy = AdaptingPolicy(agent)
    first, _ = play(policy, pictures(6), [7])
    after = everything(agent)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for parameter in agent.trunk.parameters())
    assert (agent.act(pictures(6)) == unadapted).all()
    np.testing.assert_allclose(first[0, 0], unadapted[0], atol=1e-6)  # nothing learned so far
    if base == "sac":
        assert np.abs(first[1:, 0] - unadapted[1:]).max() > 1e-3, "adaptation changes actions"


def test_every_episode_starts_from_the_trained_agent() -> None:
    policy = AdaptingPolicy(pad_agent())
    first, (episode,) = play(policy, pictures(5), [7])
    assert episode is not None and policy.seconds(episode) > 0
    _, (short,) = play(policy, pictures(1, seed=1), [8])
    assert short is not None and policy.seconds(short) == 0
    again, _ = play(policy, pictures(5), [7])
    assert (first == again).all()
    other, _ = play(policy, pictures(5), [9])
    assert (first[0] == other[0]).all() and (first[1:] != other[1:]).any(), "crops of its own"


def test_an_episode_does_not_depend_on_those_beside_it() -> None:
    alone, _ = play(AdaptingPolicy(pad_agent()), pictures(4), [3])
    beside, _ = play(AdaptingPolicy(pad_agent()), pictures(4), [5, None, 3])
    assert (beside[:, 2] == alone[:, 0]).all()
    assert not beside[:, 1].any(), "nobody plays there"


def test_one_step_moves_trunk_and_task_but_no_policy() -> None:
    agent = pad_agent()
    copy = fresh_copy(agent)
    assert copy.optimisers.keys() == {"auxiliary"} and not copy.optimisers["auxiliary"].state
    images = pictures(2)
    loss = adapt(copy, images[0], np.array([0.5, -0.5], np.float32), images[1])
    assert torch.isfinite(loss)
    for name, moves in (("trunk", True), ("auxiliary", True), ("actor", False), ("critic", False)):
        pairs = zip(
            copy.networks[name].parameters(), agent.networks[name].parameters(), strict=True
        )
        assert any(not torch.equal(mine, its) for mine, its in pairs) == moves, name
    last, shared = (copy.trunk.layers[place].weight for place in (-1, -3))
    assert torch.equal(last, agent.trunk.layers[-1].weight), "the task has its own"
    assert not torch.equal(shared, agent.trunk.layers[-3].weight)


def test_a_step_is_the_auxiliary_loss_on_augmented_copies() -> None:
    """By hand: 32 crops of one transition, drawn from the episode's seed, and the mean error."""
    agent = pad_agent()
    images, action = pictures(2), np.array([0.5, -0.5], np.float32)
    copy = fresh_copy(agent, seed=4)
    found = float(adapt(copy, images[0], action, images[1]))
    random = torch.Generator().manual_seed(4)

    def crops(image: np.ndarray) -> torch.Tensor:
        """As the replay's batches are cropped in training."""
        batch = torch.as_tensor(image).expand(32, *image.shape)
        return agent.view_maker.weak(batch, random) / 255

    task, first = agent.auxiliary, agent.trunk.layers[:-2]  # its last convolution is not the task's
    now, after = crops(images[0]), crops(images[1])
    assert len({picture.numpy().tobytes() for picture in now}) > 10
    with torch.no_grad():
        states = [task.projection(task.head(first(x).flatten(1))) for x in (now, after)]
        expected = float(((task.mlp(torch.cat(states, 1)) - torch.from_numpy(action)) ** 2).mean())
    assert found == pytest.approx(expected, rel=1e-5)


def test_evaluating_a_run_adapts_and_says_so(tmp_path: Path) -> None:
    settings = {"method": "pad", "crop": 4, "network": SMALL["network"], "decisions": 14}
    run = train(tiny(tmp_path / "run", **settings))
    files = {path: path.read_bytes() for path in run.rglob("*.safetensors")}
    records = evaluate(run, episodes=3, environments=2)
    again = evaluate(run, episodes=3, environments=1)
    assert [r["return"] for r in records] == pytest.approx([r["return"] for r in again], abs=1e-5)
    for record in records:
        assert record["actions"] == "most_likely, adapted"
        assert record["adaptation_seconds"] > 0
    assert files and all(path.read_bytes() == content for path, content in files.items())
