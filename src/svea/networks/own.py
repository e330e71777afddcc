"""An encoder of a user's own, `module:class`, as a trunk."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from svea.config.shapes import FRAMES
from svea.core.errors import UserError
from svea.core.importing import import_named
from svea.core.tracebacks import where_raised
from svea.networks.trunk import Trunk

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
    try:
        accepted = inspect.signature(factory).parameters
        network: Any = factory(**{key: n for key, n in known.items() if key in accepted})
    except Exception as error:  # whatever a user's code may raise
        raise _raised(name, "cannot be made", error) from error
    if not isinstance(network, nn.Module):
        raise UserError(f"encoder {name!r} made {type(network).__name__}, not a torch.nn.Module.")
    return network


@torch.no_grad()
def _tried(name: str, network: nn.Module, shape: tuple[int, int, int]) -> int:
    """The number of features, from a batch of two observations; statistics stay as they are."""
    was_training = network.training
    try:
        features = network.eval()(torch.zeros(2, *shape))
    except Exception as error:  # whatever a user's code may raise
        told = _raised(name, f"cannot encode observations {(2, *shape)}", error)
        raise UserError(f"{told}; allowed: any that takes (B, C, H, W), {_OBSERVED}") from error
    finally:
        network.train(was_training)
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        made = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise UserError(
            f"encoder {name!r} makes {made} of observations {(2, *shape)}; it must make a matrix "
            "with a row of features for each, as with .flatten(1)."
        )
    return features.shape[1]


def _raised(name: str, what: str, error: Exception) -> UserError:
    """What a user's code raised, and where."""
    where = f" ({place})" if (place := where_raised(error)) else ""
    return UserError(f"encoder {name!r} {what}: {type(error).__name__}: {error}{where}")
