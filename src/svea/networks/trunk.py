"""What an agent needs of an encoder, how layers are initialised, and a user's own encoder."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from svea.config.options import FRAMES
from svea.core.errors import UserError
from svea.core.importing import import_named, users_code


class Trunk(nn.Module):
    """An encoder f of observations, which the Q-function and the policy share.

    Attributes:
        input_shape: channels, height and width of an observation.
        features: size of the output.

    Example:
        >>> class Pooled(Trunk):
        ...     input_shape, features = (9, 84, 84), 9
        ...
        ...     def forward(self, images: Tensor) -> Tensor:
        ...         return images.mean((2, 3))
        >>> Pooled()(torch.rand(2, 9, 84, 84)).shape
        torch.Size([2, 9])
    """

    input_shape: tuple[int, int, int]
    features: int

    def check(self, images: Tensor, given: Tensor) -> None:
        """Refuse images, cut out of the observations given, that this trunk does not take."""
        if images.shape[-3:] != self.input_shape or images.ndim not in (3, 4):
            raise UserError(
                f"observations have shape {tuple(given.shape)}; this agent takes (N, C, H, W) or "
                f"(C, H, W) with (C, H, W) = {self.input_shape}. Make its environment with "
                "svea.make_env(**config.environment)"
            )


@contextlib.contextmanager
def drawing_weights(seed: int) -> Iterator[None]:
    """A region in which weights are drawn that depend on the seed alone.

    They are drawn on the CPU, whatever the device. The last bits of an orthogonal matrix depend on
    how many threads decompose it, so here it is one: the number may change in the life of a
    process, and several runs may share one.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def initialise(module: nn.Module) -> None:
    """Delta-orthogonal convolutions (gain sqrt 2), orthogonal linear layers, zero biases."""
    if isinstance(module, nn.Linear):
        nn.init.orthogonal_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        # Zero except for the centre tap, which is orthogonal: signals pass 11 layers undamped.
        nn.init.zeros_(module.weight)
        centre = module.weight.shape[-1] // 2
        with torch.no_grad():
            tap = torch.empty(module.weight.shape[:2])
            module.weight[:, :, centre, centre] = nn.init.orthogonal_(tap, 2**0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


CHANNELS = 3 * FRAMES
_OBSERVED = (
    f"{FRAMES} RGB frames. It is told both numbers if it has the parameters `channels` and "
    "`image_size`"
)


class OwnEncoder(Trunk):
    """What a class or function of a user's makes, tried once to know the size of its output.

    It is called with `image_size` and `channels` where it has parameters of these names, and must
    return a module that maps (B, channels, H, W) in [0, 1] to (B, features).

    Example:
        >>> OwnEncoder("torch.nn:Flatten", image_size=16).features
        2304
    """

    def __init__(self, name: str, image_size: int) -> None:
        """Import, make and try it.

        Args:
            name: `module:class` or `module:function`.
            image_size: height and width of the observation.
        """
        super().__init__()
        self.input_shape = (CHANNELS, image_size, image_size)
        self.network = _made(name, {"image_size": image_size, "channels": CHANNELS})
        taken = getattr(self.network, "input_shape", self.input_shape)
        if tuple(taken) != self.input_shape:
            raise UserError(
                f"encoder {name!r} takes {tuple(taken)}; allowed: {self.input_shape}, {_OBSERVED}"
            )
        self.features = _tried(name, self.network, self.input_shape)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        return self.network(images)


def _made(name: str, known: dict[str, int]) -> nn.Module:
    """Call what the user named."""
    factory = import_named("encoder", name)
    with users_code(f"encoder {name!r} cannot be made:"):
        accepted = inspect.signature(factory).parameters
        network: Any = factory(**{key: n for key, n in known.items() if key in accepted})
    if not isinstance(network, nn.Module):
        raise UserError(f"encoder {name!r} made {type(network).__name__}, not a torch.nn.Module.")
    return network


@torch.no_grad()
def _tried(name: str, network: nn.Module, shape: tuple[int, int, int]) -> int:
    """The number of features, from a batch of two observations; statistics stay as they are."""
    was_training = network.training
    try:
        with users_code(
            f"encoder {name!r} cannot encode observations {(2, *shape)}; allowed: any that takes "
            f"(B, C, H, W), {_OBSERVED}. It raised"
        ):
            features = network.eval()(torch.zeros(2, *shape))
    finally:
        network.train(was_training)
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        made = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise UserError(
            f"encoder {name!r} makes {made} of observations {(2, *shape)}; it must make a matrix "
            "with a row of features for each, as with .flatten(1)."
        )
    return features.shape[1]
