"""What an agent needs of an encoder."""

from __future__ import annotations

from torch import nn


class Trunk(nn.Module):
    """An encoder f of observations, which the Q-function and the policy share.

    Attributes:
        input_shape: channels, height and width of an observation.
        features: size of the output.
    """

    input_shape: tuple[int, int, int]
    features: int

    def head(self, layers: int) -> Trunk:
        """Layers after this trunk that a branch has for itself (PAD)."""
        raise NotImplementedError("only convolutions split into a trunk and heads")
