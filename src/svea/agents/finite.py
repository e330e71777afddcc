"""Checks for numbers that are infinite or undefined (NaN).

On a CPU every update is checked: its losses, the norms of its gradients and the new weights. On a
GPU that would make the host wait for the device in every update. There an update whose gradient is
not finite leaves the weights as they were; losses and norms are checked in their running sums,
which are read at every log line and before every save; and everything is checked before it is
saved. Either way a checkpoint never holds such a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from svea.core.errors import NumericsError

if TYPE_CHECKING:
    from svea.agents import Agent


def check_update(agent: Agent, losses: dict[str, Tensor]) -> None:
    """Refuse an update that is not finite; on a GPU do nothing, and wait for nothing.

    Args:
        agent: whose weights are checked.
        losses: what its update returned: losses and norms of gradients.
    """
    if agent.device.type != "cpu":
        return
    bad = [name for name, loss in losses.items() if not math.isfinite(loss.item())]
    bad = bad or not_finite(learned(agent))
    if bad:
        raise divergence(bad)


def learned(agent: Agent) -> dict[str, Tensor]:
    """Every number that is learned, by name, targets included."""
    return {
        f"{network}.{name}": parameter
        for network, module in agent.networks.items()
        for name, parameter in module.named_parameters()
    } | agent.numbers()


@torch.no_grad()
def not_finite(tensors: dict[str, Tensor]) -> list[str]:
    """Names of the tensors with a value that is infinite, undefined, or too large to be squared."""
    names = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
    if not names:
        return []
    norms = torch.stack(torch._foreach_norm([tensors[name] for name in names]))
    finite = norms.isfinite().tolist()  # the one moment that waits for the device
    return [name for name, good in zip(names, finite, strict=True) if not good]


def divergence(names: Sequence[str]) -> NumericsError:
    """The error that names them, three at most."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return NumericsError(
        f"{', '.join(names[:3])}{more} became infinite or undefined: training diverged. The last "
        "checkpoint is from before; a smaller learning rate or --precision float32 may help"
    )
