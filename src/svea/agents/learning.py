"""What every agent has besides its algorithm: optimisers, slow copies, state as named tensors."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from svea.core.errors import NumericsError

if TYPE_CHECKING:
    from svea.agents import Agent
    from svea.agents.auxiliary import Auxiliary
    from svea.networks import Masker


def check_update(agent: Agent, losses: dict[str, Tensor]) -> None:
    """Refuse an update that is not finite; on a GPU do nothing, and wait for nothing.

    There an update whose gradient is not finite leaves the weights as they were; losses and norms
    are checked in their running sums, which are read at every log line and before every save; and
    everything is checked before it is saved. A checkpoint never holds such a number.

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


def frozen_copy(network: nn.Module) -> Any:
    """A copy that no gradient reaches."""
    return copy.deepcopy(network).requires_grad_(False)


def follow(slow: list[nn.Module], fast: list[nn.Module], rate: float) -> None:
    """Move networks' parameters towards others'."""
    torch._foreach_lerp_(parameters_of(slow), parameters_of(fast), rate)


def critic_parts(critic: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """A critic's projection, which is the encoder's last layer, and its Q-functions."""
    parts = dict(critic.named_children())
    return [parts.pop("projection")], list(parts.values())


def parameters_of(networks: Iterable[nn.Module]) -> list[Tensor]:
    """The parameters of several networks."""
    return [parameter for network in networks for parameter in network.parameters()]


Losses = dict[str, Tensor]

GENERATORS = ("generator", "replay.generator")
"""Random states among the tensors of a checkpoint; another device's are of another length."""


class Trainable:
    """What an agent follows gradients with and is saved as: networks, optimisers, generator.

    `step` is a seam: `kernels` assign a faster one over it.
    """

    device: torch.device
    has_target_trunk: bool
    auxiliary: Auxiliary | None
    masker: Masker | None
    optimisers: dict[str, torch.optim.Adam]
    generator: torch.Generator

    def add_optimiser(
        self, name: str, parameters: list[Any], rate: float, beta1: float = 0.9
    ) -> None:
        """An Adam under a name; ``step`` and checkpoints find it there."""
        self.optimisers[name] = torch.optim.Adam(
            parameters,
            lr=rate,
            betas=(beta1, 0.999),
            fused=True,
            capturable=self.device.type == "cuda",  # its step count lives on the device
        )

    def step(self, name: str, loss: Tensor, *others: str) -> Losses:
        """One optimiser step on the gradient of its own parameters alone; loss and gradient norm.

        A gradient that is not finite leaves the weights as they are, without asking the device:
        the fused optimiser skips the step itself, as it does under loss scaling.

        Args:
            name: of the optimiser, and of the loss in the log.
            loss: what to lower.
            others: further optimisers that step on the same loss, by the same backward pass.
        """
        optimisers = {each: self.optimisers[each] for each in (name, *others)}
        groups = [optimiser.param_groups[0]["params"] for optimiser in optimisers.values()]
        gradients = torch.autograd.grad(loss, [p for parameters in groups for p in parameters])
        remaining, norms = list(gradients), {}
        for each, parameters in zip(optimisers, groups, strict=True):
            own, remaining = remaining[: len(parameters)], remaining[len(parameters) :]
            for parameter, gradient in zip(parameters, own, strict=True):
                parameter.grad = laid_out_as(parameter, gradient)
            norms[f"{each}_gradient"] = torch.stack(torch._foreach_norm(own)).norm()
        not_finite = 1 - torch.isfinite(sum(norms.values())).float()  # type: ignore[arg-type]
        for optimiser in optimisers.values():
            optimiser.found_inf = not_finite  # type: ignore[attr-defined]
            optimiser.step()
        return {f"{name}_loss": loss.detach()} | norms

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Every network by name, targets included."""
        names = ["trunk", "actor", "critic", "target_critic"]
        names += ["target_trunk"] if self.has_target_trunk else []
        found = {name: getattr(self, name) for name in names if hasattr(self, name)}
        found |= {"masker": self.masker} if self.masker is not None else {}
        return found | ({"auxiliary": self.auxiliary} if self.auxiliary is not None else {})

    def numbers(self) -> dict[str, Tensor]:
        """Learned tensors that belong to no network."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that learns or draws, as flat named tensors."""
        state = {
            f"{name}.{key}": tensor
            for name, network in self.networks.items()
            for key, tensor in network.state_dict().items()
        }
        state |= {name: number.detach() for name, number in self.numbers().items()}
        for name, optimiser in self.optimisers.items():
            for index, moments in optimiser.state_dict()["state"].items():
                for key, tensor in moments.items():
                    state[f"optimiser.{name}.{index}.{key}"] = tensor
        state["generator"] = self.generator.get_state()
        return state

    def check_state_dict(self, state: dict[str, Tensor]) -> None:
        """Refuse a state that is not of an agent like this one, before any of it is used.

        The fused optimiser, for one, writes to its moments without asking how long they are.

        Raises:
            ValueError: A tensor is missing, unknown, not finite, or of another shape or type.
        """
        wanted = {
            f"{name}.{key}": tensor
            for name, network in self.networks.items()
            for key, tensor in network.state_dict().items()
        } | self.numbers()
        for name, optimiser in self.optimisers.items():
            for index, parameter in enumerate(optimiser.param_groups[0]["params"]):
                prefix = f"optimiser.{name}.{index}."
                step = torch.zeros(())
                moments = {"step": step, "exp_avg": parameter, "exp_avg_sq": parameter}
                if any(prefix + key in state for key in moments):  # else it made no step yet
                    wanted |= {prefix + key: like for key, like in moments.items()}
        if missing := wanted.keys() - state.keys():
            raise ValueError(f"{min(missing)} is missing")
        for name, tensor in state.items():
            if name in GENERATORS:
                if tensor.dtype != torch.uint8 or tensor.ndim != 1:
                    raise ValueError(f"{name} is {_described(tensor)}, not a list of bytes")
            elif name not in wanted:
                raise ValueError(f"{name} is unknown")
            elif _described(tensor) != _described(wanted[name]):
                raise ValueError(f"{name} is {_described(tensor)}, not {_described(wanted[name])}")
            elif name.endswith((".step", ".exp_avg_sq")) and (tensor < 0).any():
                raise ValueError(f"{name} is negative")
        if bad := not_finite(state):
            raise ValueError(f"{bad[0]} is not finite")

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a state; optimisers and generator only where it has them.

        Raises:
            ValueError: It is another agent's; nothing has been taken over.
        """
        self.check_state_dict(state)
        for name, network in self.networks.items():
            prefix = f"{name}."
            network.load_state_dict(
                {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            )
        with torch.no_grad():
            for name, number in self.numbers().items():
                number.copy_(state[name])
        for name, optimiser in self.optimisers.items():
            load_moments(optimiser, state, f"optimiser.{name}.")
        if "generator" in state:
            restore_generator(self.generator, state["generator"])

    @classmethod
    def actions_in(cls, state: dict[str, Tensor]) -> int:
        """The number of actions, read off a saved state."""
        raise NotImplementedError


def laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with its numbers in the order of the parameter's.

    The fused optimiser takes both for rows of numbers: another order would mix them up in silence.
    """
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _described(tensor: Tensor) -> str:
    """Type and shape."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def load_moments(optimiser: torch.optim.Adam, state: dict[str, Tensor], prefix: str) -> None:
    """Take over an optimiser's moments; those that it has stay where they are in memory.

    A captured update writes to where they were when it was captured.
    """
    parameters = optimiser.param_groups[0]["params"]
    moments: dict[int, dict[str, Tensor]] = {}
    for key, tensor in state.items():
        if key.startswith(prefix):
            index, field = key.removeprefix(prefix).split(".")
            like = parameters[int(index)]
            moments.setdefault(int(index), {})[field] = in_layout_of(like, tensor)
    before = dict(optimiser.state)
    optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
    for parameter, own in before.items():
        found = optimiser.state.get(parameter, {})
        found.update({key: own[key].copy_(found[key]) for key in own.keys() & found.keys()})


def in_layout_of(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy with the parameter's strides, which the fused optimiser insists on."""
    if tensor.shape != parameter.shape:  # Adam's count of steps
        return tensor.clone()
    return torch.empty_like(parameter, requires_grad=False).copy_(tensor)


def restore_generator(generator: torch.Generator, state: Tensor) -> bool:
    """Continue a generator where it was; False if the state is another kind of device's.

    A run that moves from a GPU to a CPU, or back, then draws other numbers from there on.
    """
    if state.numel() != generator.get_state().numel():
        return False
    generator.set_state(state.cpu())
    return True
