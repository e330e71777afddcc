"""Optimisers' steps and slow targets in C against plain PyTorch in double precision."""

import pytest
import torch
from c_kernels import builds
from torch import Tensor

from svea.agents import Agent, make_agent
from svea.config import configure
from svea.kernels import cpu


def agent_of(steps_in_c: bool = True, **settings: object) -> Agent:
    """A small agent, whose convolutions' weights are channels last; its sizes are odd."""
    network = {"layers": 2, "filters": 16, "projection": 7, "hidden": 67}
    agent = make_agent(
        configure("walker_walk", preset="quick", **({"network": network} | settings)), 3
    )
    if steps_in_c:
        cpu.accelerate(agent)
    return agent


def slopes(parameters: list[Tensor], seed: int) -> list[Tensor]:
    """In torch's own order of numbers, unlike the weights'."""
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=random) * 10.0 ** (seed - 2) for p in parameters]


def take(agent: Agent, noise: list[Tensor], scale: float = 1.0) -> dict[str, Tensor]:
    """A step down slopes that are given."""
    parameters = agent.optimisers["critic"].param_groups[0]["params"]
    loss = sum((p * n).sum() for p, n in zip(parameters, noise, strict=True))
    assert isinstance(loss, Tensor)
    return agent.step("critic", loss * scale)


@builds
def test_steps_are_adams() -> None:
    agent = agent_of()
    assert isinstance(agent.step.__self__, cpu.StepsInC)  # type: ignore[attr-defined]
    group = agent.optimisers["critic"].param_groups[0]
    wanted = [p.detach().double().clone().requires_grad_() for p in group["params"]]
    plain = torch.optim.Adam(wanted, lr=group["lr"], betas=group["betas"], foreach=False)
    for number in range(4):
        noise = slopes(group["params"], number)
        before = [p.detach().clone() for p in group["params"]]
        found = take(agent, noise)
        for parameter, slope in zip(wanted, noise, strict=True):
            parameter.grad = slope.double()
        plain.step()
        norm = torch.cat([n.double().flatten() for n in noise]).norm()
        torch.testing.assert_close(found["critic_gradient"].double(), norm, rtol=1e-6, atol=0)
        for one, other, old in zip(group["params"], wanted, before, strict=True):
            assert not torch.equal(one, old)
            torch.testing.assert_close(one.detach().double(), other, rtol=1e-6, atol=1e-8)
    for one, other in zip(group["params"], wanted, strict=True):
        mine, theirs = agent.optimisers["critic"].state[one], plain.state[other]
        assert mine["step"] == theirs["step"] == 4
        for key in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(mine[key].double(), theirs[key], rtol=2e-6, atol=1e-8)


@builds
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:
    agent = agent_of()
    parameters = agent.optimisers["critic"].param_groups[0]["params"]
    noise = slopes(parameters, 2)
    take(agent, noise)
    before = {name: tensor.clone() for name, tensor in agent.state_dict().items()}
    noise[-1].view(-1)[-1] = bad
    assert not take(agent, noise)["critic_gradient"].isfinite()
    for name, tensor in agent.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    take(agent, slopes(parameters, 3))
    assert agent.optimisers["critic"].state[parameters[0]]["step"] == 2


@builds
@pytest.mark.parametrize("encoder_tau", [0.05, 0.7, 1.0])
def test_targets_follow(encoder_tau: float) -> None:
    settings = {"sac.encoder_tau": encoder_tau}
    ours, theirs = agent_of(**settings), agent_of(steps_in_c=False, **settings)
    for agent in (ours, theirs):
        for number, network in enumerate((agent.trunk, agent.critic)):
            for parameter, slope in zip(
                network.parameters(), slopes([*network.parameters()], number + 1), strict=True
            ):
                parameter.data.add_(slope)
        if agent is theirs:
            for network in agent.networks.values():
                network.double()
        agent.update_target()
    for name, network in theirs.networks.items():
        found = ours.networks[name].parameters()
        for one, other in zip(found, network.parameters(), strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-7, msg=name)
    moved = zip(ours.target_critic.parameters(), ours.critic.parameters(), strict=True)
    assert not any(torch.equal(slow, fast) for slow, fast in moved)


@builds
def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "AS_A_PICTURE", 1)

    def after(threads: int) -> dict[str, Tensor]:
        monkeypatch.setattr(cpu, "threads", lambda: threads)
        agent = agent_of()
        for number in range(3):
            take(agent, slopes(agent.optimisers["critic"].param_groups[0]["params"], number))
            agent.update_target()
        return agent.state_dict()

    one = after(1)
    for threads in (2, 5):
        found = after(threads)
        assert all(torch.equal(tensor, found[name]) for name, tensor in one.items())
