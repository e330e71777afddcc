"""An agent's state as flat named tensors, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from svea.errors import StorageError

if TYPE_CHECKING:
    from svea.agents.auxiliary import Auxiliary


class Saving:
    """The part of an agent that is saved: its networks, optimisers and generator by name."""

    has_target_trunk: bool
    auxiliary: Auxiliary | None
    optimisers: dict[str, torch.optim.Adam]
    generator: torch.Generator

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Every network by name, targets included."""
        names = ["trunk", "actor", "critic", "target_critic"]
        names += ["target_trunk"] if self.has_target_trunk else []
        found = {name: getattr(self, name) for name in names if hasattr(self, name)}
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

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a state; optimisers and generator only where it has them."""
        if any(".projection.0.layers." in name for name in state):
            raise StorageError(
                "these weights are of an earlier version, in which the policy and the Q-functions "
                "of PAD had the last convolutions for themselves; now they share them, as in the "
                "reference, so the weights do not fit. Train again, with another --out"
            )
        for name, network in self.networks.items():
            prefix = f"{name}."
            network.load_state_dict(
                {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            )
        with torch.no_grad():
            for name, number in self.numbers().items():
                number.copy_(state[name])
        for name, optimiser in self.optimisers.items():
            prefix = f"optimiser.{name}."
            moments: dict[int, dict[str, Tensor]] = {}
            for key, tensor in state.items():
                if key.startswith(prefix):
                    index, field = key.removeprefix(prefix).split(".")
                    like = optimiser.param_groups[0]["params"][int(index)]
                    moments.setdefault(int(index), {})[field] = in_layout_of(like, tensor)
            optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
        if "generator" in state:
            restore_generator(self.generator, state["generator"])

    @classmethod
    def actions_in(cls, state: dict[str, Tensor]) -> int:
        """The number of actions, read off a saved state."""
        raise NotImplementedError


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
