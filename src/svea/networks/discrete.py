"""Q-functions over a set of choices (DQN)."""

from __future__ import annotations

from torch import Tensor

from svea.networks.heads import MLP, Branch


class DiscreteCritic(Branch):
    """One Q-value for each of several actions.

    Example:
        >>> import torch
        >>> DiscreteCritic(128, actions=5)(torch.rand(2, 128)).shape
        torch.Size([2, 5])
    """

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """One network for all actions."""
        self.advantage = MLP(projection, hidden, actions)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F) -> Q of every action, (B, actions)."""
        return self.advantage(self.projection(features))


class DuelingCritic(DiscreteCritic):
    """The same Q-values as a state value plus each action's advantage over the mean of all.

    Example:
        >>> import torch
        >>> critic, features = DuelingCritic(128, actions=5), torch.rand(2, 128)
        >>> state = critic.projection(features)
        >>> torch.allclose(critic(features).mean(-1), critic.value(state)[:, 0], atol=1e-6)
        True
    """

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """Adds the state-value network."""
        super().build(actions, projection, hidden)
        self.value = MLP(projection, hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F) -> Q of every action, (B, actions)."""
        state = self.projection(features)
        advantage = self.advantage(state)
        return self.value(state) + advantage - advantage.mean(-1, keepdim=True)
