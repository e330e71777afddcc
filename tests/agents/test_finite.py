from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from svea.agents.learning import check_update, not_finite
from svea.core.errors import NumericsError


def agent(device: str = "cpu") -> Any:
    """As much of an agent as is looked at."""
    networks = {"trunk": nn.Linear(3, 2), "critic": nn.Linear(2, 1)}
    temperature = torch.tensor(0.5)
    return SimpleNamespace(
        device=torch.device(device),
        networks=networks,
        numbers=lambda: {"log_temperature": temperature},
    )


def test_a_finite_update_passes() -> None:
    check_update(agent(), {"critic_loss": torch.tensor(1e30), "critic_gradient": torch.tensor(0.0)})


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_losses_and_weights_are_named(bad: float) -> None:
    with pytest.raises(NumericsError, match=r"^actor_gradient became infinite or undefined"):
        check_update(
            agent(), {"critic_loss": torch.tensor(1.0), "actor_gradient": torch.tensor(bad)}
        )
    spoiled = agent()
    with torch.no_grad():
        spoiled.networks["critic"].weight[0, 1] = bad
    with pytest.raises(NumericsError, match=r"^critic\.weight became"):
        check_update(spoiled, {})
    heated = agent()
    heated.numbers()["log_temperature"].fill_(bad)
    with pytest.raises(NumericsError, match=r"^log_temperature became"):
        check_update(heated, {})


def test_many_names_are_counted() -> None:
    losses = {f"loss_{k}": torch.tensor(torch.nan) for k in range(5)}
    with pytest.raises(NumericsError, match=r"^loss_0, loss_1, loss_2 and 2 more became"):
        check_update(agent(), losses)


def test_on_a_gpu_nothing_is_asked() -> None:
    """A loss there cannot be read without waiting: any look at this one would be an error."""
    check_update(agent("meta"), {"critic_loss": torch.empty((), device="meta")})


def test_counters_and_generators_are_no_numbers_to_check() -> None:
    tensors = {"step": torch.tensor(3), "generator": torch.zeros(4, dtype=torch.uint8)}
    assert not_finite(tensors) == []
    assert not_finite(tensors | {"w": torch.tensor([1.0, torch.nan])}) == ["w"]
