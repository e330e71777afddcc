"""The hidden layers of policies and Q-functions on a CPU in bfloat16 (mlp.c)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svea.kernels.cpu import call, library
from svea.kernels.cpu_bfloat16 import check, low
from svea.networks.heads import MLP, Projection

HEIGHT = 8  # rows of a batch in a tile; as in the source
PANEL = 32  # columns in a panel, at most


def tiles(count: int, size: int) -> int:
    """Tiles of a size, the last of which may not be full."""
    return -(-count // size)


class FloatProjection:
    """A projection's forward pass out of autocast: one thin product is not worth six casts."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether it is one."""
        return isinstance(network, Projection)

    def __call__(self, features: Tensor) -> Tensor:
        """(B, features) -> (B, size), float32."""
        with torch.autocast("cpu", enabled=False):
            return Projection.forward(self.projection, features.float())


class PairedMLP:
    """An MLP's forward pass in bfloat16 where autocast asks for it, else as it is written."""

    def __init__(self, network: MLP) -> None:
        self.network = network
        layers = [m for m in network.modules() if isinstance(m, nn.Linear)]
        self.parameters = [p for one in layers for p in (one.weight, one.bias)]
        check(self, torch.linspace(-1, 1, 3 * layers[0].in_features).view(3, -1))

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether the kernels can compute it, and gain: with 1,024 the library is as fast."""
        return isinstance(network, MLP) and network.output.in_features in (64, 128, 256, 512)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, inputs) -> (B, outputs), float32."""
        fit = x.ndim == 2 and x.shape[1] == self.parameters[0].shape[1] and len(x) > 0
        if not (fit and x.is_floating_point() and torch.is_autocast_enabled("cpu")):
            return MLP.forward(self.network, x)
        return _PairedMLP.apply(x.float().contiguous(), *self.parameters)

    def plain(self, x: Tensor) -> Tensor:
        """The same in plain PyTorch."""
        w1, b1, w2, b2, w3, b3 = self.parameters
        first = F.linear(low(x), low(w1), b1).relu()
        second = low(F.linear(low(first), low(w2), b2).relu())
        return F.linear(second, w3, b3)


class _PairedMLP(torch.autograd.Function):
    """All three layers at once; hidden layers are kept in bfloat16, sums are float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        sizes = (len(x), x.shape[1], len(parameters[1]), len(parameters[5]))
        batch, inputs, hidden, outputs = sizes
        rows = HEIGHT * tiles(batch, HEIGHT)
        given = x.new_empty(rows, 2 * tiles(inputs, 2), dtype=torch.bfloat16)
        first, second = x.new_empty(2, rows, hidden, dtype=torch.bfloat16)
        y = x.new_empty(batch, outputs)
        call(library().mlp_forward, batch, x, given, first, second, y, parameters, *sizes)
        ctx.save_for_backward(given, first, second, *parameters)
        ctx.sizes = sizes
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        given, first, second, *parameters = ctx.saved_tensors
        batch, inputs, hidden, _ = ctx.sizes
        gradient, pairs = gradient.contiguous(), len(given) // 2
        dx = gradient.new_empty(batch, inputs) if ctx.needs_input_grad[0] else None
        columns = (PANEL * tiles(inputs, PANEL), hidden, hidden, hidden)
        parts = torch.empty(sum(columns) * pairs, dtype=torch.int32).split(
            [each * pairs for each in columns]
        )
        kernels = library()
        made = (gradient, given, first, second, parameters, dx)
        call(kernels.mlp_slopes, batch, *made, *parts, *ctx.sizes)
        dw = [torch.empty_like(parameter) for parameter in parameters]
        call(kernels.mlp_gradients, batch, gradient, second, *parts, dw, *ctx.sizes)
        return dx, *dw
