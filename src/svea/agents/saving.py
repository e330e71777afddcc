"""An agent's state as flat named tensors, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from svea.agents.finite import not_finite

if TYPE_CHECKING:
    from svea.agents.auxiliary import Auxiliary
    from svea.networks import Masker


GENERATORS = ("generator", "replay.generator")
"""Random states among the tensors of a checkpoint; another device's are of another length."""


class Saving:
    """The part of an agent that is saved: its networks, optimisers and generator by name."""

    has_target_trunk: bool
    auxiliary: Auxiliary | None
    masker: Masker | None
    optimisers: dict[str, torch.optim.Adam]
    generator: torch.Generator

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
