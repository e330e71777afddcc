"""What every agent has besides its algorithm: slow copies, its state as named tensors, checks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from svea.config.parts import Parts
from svea.core.errors import NumericsError
from svea.replay import Vectors, on_device

Observations = NDArray[Any] | Tensor | Mapping[str, Any]

if TYPE_CHECKING:
    from svea.agents import Agent
    from svea.agents.auxiliary import Auxiliary
    from svea.networks import Masker, Scale


def check_update(agent: Agent, losses: dict[str, Tensor]) -> None:
    """Refuse an update whose losses, norms or weights are not finite; on a GPU wait for nothing.

    There an update whose gradient is not finite leaves the weights as they were; losses and norms
    are checked in their running sums, which are read at every log line and before every save; and
    everything is checked before it is saved. A checkpoint never holds such a number.
    """
    if agent.device.type != "cpu":
        return
    bad = [name for name, loss in losses.items() if not math.isfinite(loss.item())]
    if bad := bad or not_finite(agent.learned()):
        raise divergence(bad)


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


def parameters_of(networks: Iterable[nn.Module]) -> list[Tensor]:
    """The parameters of several networks."""
    return [parameter for network in networks for parameter in network.parameters()]


GENERATORS = ("generator", "replay.generator")
"""Random states among the tensors of a checkpoint; another device's are of another length."""


class Trainable:
    """An agent as it is saved: networks, optimisers, generator."""

    last_layer: ClassVar[tuple[str, int]]
    """The layer that tells the number of actions, and how many numbers it has for each."""

    device: torch.device
    parts: Parts
    has_target_trunk: bool
    auxiliary: Auxiliary | None
    masker: Masker | None
    scale: Scale | None
    optimisers: dict[str, torch.optim.Adam]
    generator: torch.Generator

    def split(self, observations: Observations) -> tuple[Tensor, Vectors]:
        """The pictures of observations, and their vectors (N, numbers), if any, on the device."""
        pictures, vectors = self.parts.split(observations)
        if vectors is not None:
            vectors = torch.as_tensor(vectors).view(-1, self.parts.numbers)
            vectors = on_device(vectors, self.device)
        return torch.as_tensor(pictures), vectors

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Every network by name, targets included."""
        names = ["trunk", "actor", "critic", "target_critic"]
        names += ["target_trunk"] if self.has_target_trunk else []
        found = {name: getattr(self, name) for name in names if hasattr(self, name)}
        found |= {"masker": self.masker} if self.masker is not None else {}
        found |= {"vector": self.scale} if self.scale is not None else {}
        return found | ({"auxiliary": self.auxiliary} if self.auxiliary is not None else {})

    def numbers(self) -> dict[str, Tensor]:
        """Learned tensors that belong to no network."""
        return {}

    def learned(self) -> dict[str, Tensor]:
        """Every number that is learned, by name, targets included."""
        return self.named(nn.Module.named_parameters) | self.numbers()

    def named(self, of: Callable[[nn.Module], Iterable[tuple[str, Tensor]]]) -> dict[str, Tensor]:
        """Tensors of all networks by name."""
        return {f"{name}.{key}": t for name, each in self.networks.items() for key, t in of(each)}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that learns or draws, as flat named tensors."""
        state = self.named(lambda network: network.state_dict().items())
        state |= {name: number.detach() for name, number in self.numbers().items()}
        for name, optimiser in self.optimisers.items():
            for index, moments in optimiser.state_dict()["state"].items():
                for key, tensor in moments.items():
                    state[f"optimiser.{name}.{index}.{key}"] = tensor
        return state | {"generator": self.generator.get_state()}

    def check_state_dict(self, state: dict[str, Tensor]) -> None:
        """Refuse what is not the state of an agent like this one: keys, kinds, shapes, finite.

        The fused optimiser, for one, writes to its moments without asking how long they are.
        """
        wanted = self.named(lambda network: network.state_dict().items()) | self.numbers()
        for name, optimiser in self.optimisers.items():
            for index, parameter in enumerate(optimiser.param_groups[0]["params"]):
                moments = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
                own = {f"optimiser.{name}.{index}.{key}": like for key, like in moments.items()}
                if own.keys() & state.keys():  # else it made no step yet
                    wanted |= own
        draws = {name: torch.empty(0, dtype=torch.uint8) for name in GENERATORS if name in state}
        found, meant = (
            {name: (str(t.dtype), () if name in draws else (*t.shape,)) for name, t in some.items()}
            for some in (state, wanted | draws)
        )
        if off := [name for name in {**found, **meant} if found.get(name) != meant.get(name)]:
            one, other = (some.get(off[0], "none") for some in (found, meant))
            raise ValueError(f"{off[0]} is {one}; allowed: {other}")
        squares = [name for name in state if name.endswith((".step", ".exp_avg_sq"))]
        if bad := not_finite(state) or [name for name in squares if (state[name] < 0).any()]:
            raise ValueError(f"{bad[0]} is infinite, undefined or negative")

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a state or refuse it whole; optimisers and generator only where it has them."""
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
        layer, numbers = cls.last_layer
        return state[f"{layer}.bias"].shape[0] // numbers


def load_moments(optimiser: torch.optim.Adam, state: dict[str, Tensor], prefix: str) -> None:
    """Take over an optimiser's moments; those that it has stay where they are in memory.

    A captured update writes to where they were when it was captured.
    """
    parameters = optimiser.param_groups[0]["params"]
    moments: dict[int, dict[str, Tensor]] = {}
    for key, tensor in state.items():
        if key.startswith(prefix):
            index, field = key.removeprefix(prefix).split(".")
            like = parameters[int(index)] if field != "step" else torch.zeros(())
            own = torch.empty_like(like, requires_grad=False).copy_(tensor)  # with its strides
            moments.setdefault(int(index), {})[field] = own
    before = dict(optimiser.state)
    optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
    for parameter, own in before.items():
        found = optimiser.state.get(parameter, {})
        found.update({key: own[key].copy_(found[key]) for key in own.keys() & found.keys()})


def restore_generator(generator: torch.Generator, state: Tensor) -> bool:
    """Continue a generator where it was; False if the state is another kind of device's.

    A run that moves from a GPU to a CPU, or back, then draws other numbers from there on.
    """
    if state.numel() != generator.get_state().numel():
        return False
    generator.set_state(state.cpu())
    return True
