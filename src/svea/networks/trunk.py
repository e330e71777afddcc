"""What an agent needs of an encoder, and how layers are initialised."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from svea.core.errors import UserError


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
