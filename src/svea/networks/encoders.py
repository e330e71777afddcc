"""The encoder f that Q-function and policy share: what it needs to have, and the paper's CNN."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from svea.config.options import output_size
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


class CNN(Trunk):
    """3x3 convolutions without padding, ReLU between them and none after the last.

    ``CNN()`` is the paper's: 11 layers of 32 filters, the first with stride 2, 84 -> 41 -> ... ->
    21 pixels, 95,104 parameters, 14,112 features. ``drqv2`` is DrQ-v2's form: pixels from -0.5 to
    0.5, and a ReLU after the last layer too.
    """

    def __init__(
        self,
        channels: int = 9,
        image_size: int = 84,
        layers: int = 11,
        filters: int = 32,
        strided_layers: int = 1,
        drqv2: bool = False,
    ) -> None:
        """Build the trunk; the first ``strided_layers`` of its layers have stride 2."""
        super().__init__()
        self.drqv2, self.centre = drqv2, 0.5 if drqv2 else 0.0
        steps: list[nn.Module] = []
        for layer in range(layers):
            stride = 2 if layer < strided_layers else 1
            steps += [nn.Conv2d(channels if layer == 0 else filters, filters, 3, stride), nn.ReLU()]
        # The reference has no ReLU after the last layer.
        self.layers = nn.Sequential(*(steps if drqv2 else steps[:-1]))
        self.input_shape = (channels, image_size, image_size)
        side = output_size(image_size, layers, strided_layers)
        self.maps = (filters, side, side)
        self.features = filters * side**2
        self.apply(initialise)
        # Pixels whose channels lie together: what wide registers and tensor cores want.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    # A seam: `speed` may assign a faster one over it.
    def forward(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        if images.device.type == "cpu":  # once: the library would do it forward and backward
            images = images.contiguous(memory_format=torch.channels_last)
        return self.layers(images - self.centre if self.centre else images).flatten(1)
