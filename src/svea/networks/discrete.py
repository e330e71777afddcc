"""Q-functions over a set of choices (DQN)."""

from __future__ import annotations

from torch import Tensor

from svea.networks.heads import MLP, Branch


class DiscreteCritic(Branch):
    """One Q-value for each of several actions."""

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """One network for all actions."""
        self.advantage = MLP(projection, hidden, actions)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F) -> Q of every action, (B, actions)."""
        return self.advantage(self.projection(features))


class DuelingCritic(DiscreteCritic):
    """The same Q-values as a state value plus each action's advantage over the mean of all."""

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """Adds the state-value network."""
        super().build(actions, projection, hidden)
        self.value = MLP(projection, hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F) -> Q of every action, (B, actions)."""
        state = self.projection(features)
        advantage = self.advantage(state)
        return self.value(state) + advantage - advantage.mean(-1, keepdim=True)
