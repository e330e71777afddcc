"""What sits on the trunk: projections, policies, Q-functions."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svea.networks.encoders import initialise

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0

Noise = torch.Generator | Sequence[torch.Generator] | None
"""Where draws come from: one generator for a batch, or one for each of its rows."""


class Projection(nn.Sequential):
    """Linear, LayerNorm, tanh: the trunk's features to a small bounded vector."""

    def __init__(self, features: int, size: int = 100) -> None:
        super().__init__(nn.Linear(features, size), nn.LayerNorm(size), nn.Tanh())
        self.apply(initialise)


class MLP(nn.Module):
    """Two hidden ReLU layers, and an output layer in float32.

    The output layer leaves autocast: bfloat16 keeps 8 bits, and a Q-value of 100 rounded to 0.5
    would drown the temporal differences. It is one thin matrix, so this costs nothing.
    """

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.output = nn.Linear(hidden, outputs)
        self.apply(initialise)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs) -> (B, outputs), float32."""
        h = self.hidden(x)
        with torch.autocast(h.device.type, enabled=False):
            return self.output(h.float())


class Branch(nn.Module):
    """Base of all heads: a projection of the trunk's features, then the layers `build` adds."""

    def __init__(
        self, features: int, actions: int, projection: int = 100, hidden: int = 1024
    ) -> None:
        super().__init__()
        self.projection = Projection(features, projection)
        self.build(actions, projection, hidden)

    def functions(self) -> list[nn.Module]:
        """The networks behind the projection."""
        return [part for part in self.children() if part is not self.projection]

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """Make the layers after the projection."""
        raise NotImplementedError


class Actor(Branch):
    """The policy pi(a|s): a Gaussian squashed by tanh, with its own projection."""

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """One network for means and deviations."""
        self.mlp = MLP(projection, hidden, 2 * actions)

    # A seam: `kernels` may assign a faster one over it.
    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, F) -> mean and log standard deviation before the squash, (B, A) each."""
        mean, log_std = self.mlp(self.projection(features)).chunk(2, dim=-1)
        span = LOG_STD_MAX - LOG_STD_MIN
        return mean, LOG_STD_MIN + 0.5 * span * (torch.tanh(log_std) + 1)

    # A seam: `kernels` may assign a faster one over it.
    def sample(self, features: Tensor, generator: Noise) -> tuple[Tensor, Tensor]:
        """Draw actions (B, A) in (-1, 1), differentiably, with their log-probabilities (B,)."""
        mean, log_std = self(features)
        noise = normal(mean, generator)
        action = torch.tanh(mean + noise * log_std.exp())
        log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        # Change of variables for the squash; the reference's guard against log(0).
        log_squash = torch.log(F.relu(1 - action.square()) + 1e-6)
        return action, (log_normal - log_squash).sum(-1)

    def mode(self, features: Tensor) -> Tensor:
        """The most likely action, (B, A)."""
        return torch.tanh(self(features)[0])


class Critic(Branch):
    """Twin Q-functions on one projection."""

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """A network for each of the two."""
        self.q1 = MLP(projection + actions, hidden, 1)
        self.q2 = MLP(projection + actions, hidden, 1)

    # A seam: `kernels` may assign a faster one over it.
    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """Trunk features (B, F) and actions (B, A) -> both Q-values, (2, B)."""
        state = self.projection(features)
        x = torch.cat([state, actions.to(state.dtype)], dim=-1)
        return torch.stack([self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)])


def normal(like: Tensor, generator: Noise) -> Tensor:
    """Standard normal numbers in the shape of ``like``; a row per generator if there are many."""
    if generator is None or isinstance(generator, torch.Generator):
        return torch.randn(like.shape, generator=generator, device=like.device)
    rows = [torch.randn(like.shape[1:], generator=g, device=like.device) for g in generator]
    return torch.stack(rows)
