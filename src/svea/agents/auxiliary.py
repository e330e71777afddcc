"""Auxiliary tasks: further losses that train the same trunk.

Each has its settings from the paper's baselines (docs/methods/ says where from), is due in every
n-th update, and may ask for its own batch.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svea.agents.agent import Agent, Losses
from svea.agents.diagnostics import guided_gradient, influence, most_influential
from svea.agents.learning import follow, frozen_copy, parameters_of
from svea.config.options import CURLOptions, PADOptions, SGQNOptions, SODAOptions
from svea.networks import Trunk
from svea.networks.encoders import initialise
from svea.networks.heads import MLP, Projection
from svea.networks.parts import COLOURS, AttributionDecoder, own_head, without_last
from svea.replay import Batch
from svea.views import Views


class Auxiliary(nn.Module):
    """A task with its own parameters and its own optimiser, which also trains the trunk."""

    agent: Agent
    batch_size = 0  # of a batch of its own, which it then gets; 0: it gets the agent's

    def __init__(self, agent: Agent, options: Any) -> None:
        super().__init__()
        # Not a submodule: the agent's networks are saved once, by the agent.
        object.__setattr__(self, "agent", agent)
        self.every, self.options = options.every, options

    def loss(self, batch: Batch, now: Views, successor: Views) -> tuple[Tensor, Losses]:
        """The loss, and values for the log; the views are those that the Q-functions saw."""
        raise NotImplementedError

    def critic_terms(self, batch: Batch, now: Views, q: Tensor) -> Losses:
        """What the task adds to the Q-loss, given the Q-values (heads, V*B) of its streams."""
        return {}

    def update(self, batch: Batch, now: Views, successor: Views) -> Losses:
        """One step on the loss."""
        loss, values = self.loss(batch, now, successor)
        return self.agent.step("auxiliary", loss) | values

    def seen(self, images: Tensor) -> Tensor:
        """What the trunk sees of views; the Q-loss alone trains a masker, so without gradient."""
        with torch.no_grad():
            return self.agent.masked(images)

    def optimise(self, shared: list[nn.Module], rate: float) -> None:
        """Train these networks of the agent and all parameters of the task."""
        self.to(self.agent.device)
        learning = [p for p in parameters_of([*shared, self]) if p.requires_grad]
        self.agent.add_optimiser("auxiliary", learning, rate)


class CURL(Auxiliary):
    """Contrast (Laskin et al., 2020): two views of one state agree, views of others do not.

    The anchor is the view that the critic saw; the positive is another crop through the slow
    encoder; agreement is bilinear.
    """

    def __init__(self, agent: Agent, options: CURLOptions) -> None:
        super().__init__(agent, options)
        self.bilinear = nn.Parameter(torch.rand(agent.projection, agent.projection))
        self.optimise([agent.trunk, agent.critic.projection], options.learning_rate)

    def loss(self, batch: Batch, now: Views, successor: Views) -> tuple[Tensor, Losses]:
        """Cross entropy of finding one's own positive among the batch's."""
        agent = self.agent
        name, copy = agent.streams.prediction[0]
        anchor = agent.critic.projection(agent.trunk(self.seen(now[name, copy])))  # (B, P)
        with torch.no_grad():
            other = now[name, len(agent.streams.prediction)]  # a view that nothing has used yet
            positive = agent.target_critic.projection(agent.target_trunk(self.seen(other)))
        # In float32: bfloat16 would round logits of 100 to halves.
        with torch.autocast(anchor.device.type, enabled=False):
            logits = anchor.float() @ self.bilinear @ positive.float().T  # (B, B)
        own = torch.arange(len(logits), device=logits.device)
        found = (logits.detach().argmax(1) == own).float().mean()
        return F.cross_entropy(logits, own), {"auxiliary_accuracy": found}


class SODA(Auxiliary):
    """Soft data augmentation (Hansen and Wang, 2021): predict the clean view's features.

    The policy and Q-functions never see the strong view; only this task does.
    """

    def __init__(self, agent: Agent, options: SODAOptions) -> None:
        super().__init__(agent, options)
        self.batch_size, size = options.batch_size, agent.projection
        self.projection = two_layers(agent.trunk.features, size)
        self.predictor = two_layers(size, size)
        # A second slow trunk: this one follows ten times slower than the Q-target's.
        self.target_trunk = frozen_copy(agent.trunk)
        self.target_projection = frozen_copy(self.projection)
        self.optimise([agent.trunk], options.learning_rate)

    def loss(self, batch: Batch, now: Views, successor: Views) -> tuple[Tensor, Losses]:
        """Squared distance of unit vectors, averaged over all their entries, as the reference.

        The two branches see different crops of one observation.
        """
        views = self.agent.views(batch.observations)
        online = self.predictor(self.projection(self.agent.trunk(self.seen(views["strong", 0]))))
        with torch.no_grad():
            target = self.target_projection(self.target_trunk(self.seen(views["weak", 1])))
        return F.mse_loss(F.normalize(online, dim=1), F.normalize(target, dim=1)), {}

    def update(self, batch: Batch, now: Views, successor: Views) -> Losses:
        """One step, after which the target branch follows."""
        losses = super().update(batch, now, successor)
        with torch.no_grad():
            targets: list[nn.Module] = [self.target_trunk, self.target_projection]
            follow(targets, [self.agent.trunk, self.projection], self.options.tau)
        return losses


class PAD(Auxiliary):
    """Policy adaptation during deployment (Hansen et al., 2021): a task that needs no reward.

    It is trained with the agent and continues at test time (policies.py). It shares the first
    convolutions with policy and critic and has the last ones for itself.
    """

    def __init__(self, agent: Agent, options: PADOptions, own_layers: int = 0) -> None:
        super().__init__(agent, options)
        self.own_layers = own_layers
        self.head = own_head(agent.trunk, own_layers)
        self.projection = Projection(agent.trunk.features, agent.projection)
        if options.task == "inverse_dynamics":
            self.mlp = MLP(2 * agent.projection, agent.hidden, agent.actions)
        else:
            self.mlp = MLP(agent.projection, agent.hidden, 4)
        self.share(agent)

    shared: Trunk

    def share(self, agent: Agent) -> None:
        """Train the first convolutions of an agent's trunk and all parameters of the task."""
        object.__setattr__(self, "agent", agent)
        shared = agent.trunk if self.own_layers == 0 else without_last(agent.trunk, self.own_layers)
        object.__setattr__(self, "shared", shared)  # as the agent, not a submodule
        self.optimise([shared], self.options.learning_rate)

    def features(self, images: Tensor) -> Tensor:
        """The task's projection (B, P) of images (B, 9, H, W) in [0, 1]."""
        return self.projection(self.head(self.shared(self.seen(images))))

    def loss(self, batch: Batch, now: Views, successor: Views) -> tuple[Tensor, Losses]:
        """On the views that the Q-functions see."""
        view = self.agent.streams.prediction[0]
        if self.options.task == "rotation":
            return self.rotation_loss(now[view]), {}
        return self.inverse_dynamics_loss(now[view], successor[view], batch.actions), {}

    def inverse_dynamics_loss(self, now: Tensor, successor: Tensor, actions: Tensor) -> Tensor:
        """Which action leads from one observation to the next."""
        features = self.features(torch.cat([now, successor]))
        guess = self.mlp(torch.cat(features.chunk(2), dim=1))
        if self.agent.discrete:
            return F.cross_entropy(guess, actions[:, 0].long())
        return F.mse_loss(guess, actions)

    def rotation_loss(self, now: Tensor) -> Tensor:
        """By how many quarter turns an observation is rotated; one draw per observation."""
        count, device = len(now), now.device
        answer = (torch.rand(count, generator=self.agent.generator, device=device) * 4).long()
        turns = torch.stack([now.rot90(quarter, (2, 3)) for quarter in range(4)])  # (4, B, ...)
        turned = turns[answer, torch.arange(count, device=device)]
        return F.cross_entropy(self.mlp(self.features(turned)), answer)


def two_layers(inputs: int, size: int) -> nn.Sequential:
    """SODA's little network: linear, batch norm, ReLU, linear."""
    network = nn.Sequential(
        nn.Linear(inputs, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Linear(size, size)
    )
    return network.apply(initialise)


class SGQN(Auxiliary):
    """A Q-function that looks at few pixels, and can say which (Bertoin et al., 2022).

    Two terms around one mask: the pixels of each frame that raise Q most (guided gradient).

    In the Q-loss, Q must stay the same when all other pixels are painted over. In a task of its
    own, the encoder must tell from a strong view where those pixels are.
    """

    def __init__(self, agent: Agent, options: SGQNOptions) -> None:
        super().__init__(agent, options)
        channels, image_size, _ = agent.trunk.input_shape
        self.decoder = AttributionDecoder(agent.projection + agent.actions, channels, image_size)
        self.optimise([agent.trunk, agent.critic.projection], options.learning_rate)

    def attributed(self, images: Tensor, actions: Tensor) -> Tensor:
        """The pixels that count, (B, 9, H, W) bool: the same for a pixel's three colours."""
        influences = influence(guided_gradient(self.agent, images, actions))
        return most_influential(influences, self.options.quantile).repeat_interleave(COLOURS, 1)

    def critic_terms(self, batch: Batch, now: Views, q: Tensor) -> Losses:
        """Consistency: Q of the first stream's view is Q of what is left of it.

        All other pixels become one grey, drawn for each update. Gradients flow into both Q-values.
        """
        if not self.options.consistency:
            return {}
        agent, actions = self.agent, batch.actions
        images = now[agent.streams.prediction[0]]
        darkest, brightest = images.aminmax()
        draw = torch.rand((), generator=agent.generator, device=agent.device)
        grey = (darkest + draw * (brightest - darkest)).to(images.dtype)
        left = torch.where(self.attributed(images, actions), images, grey)
        q_left = agent.q_heads(agent.critic, agent.trunk(agent.masked(left)), actions)
        error = (q[:, : len(actions)] - q_left).square().mean(-1).sum()  # both Qs
        return {"consistency_loss": self.options.consistency * error}

    def loss(self, batch: Batch, now: Views, successor: Views) -> tuple[Tensor, Losses]:
        """Cross entropy of finding, in the strong view, the pixels that count in the weak one."""
        agent = self.agent
        actions = batch.actions
        if agent.discrete:
            actions = F.one_hot(actions[:, 0].long(), agent.actions)
        wanted = self.attributed(now["weak", 0], batch.actions)  # by the Q-function as it is now
        features = agent.critic.projection(agent.trunk(self.seen(now["strong", 0])))
        logits = self.decoder(torch.cat([features, actions.to(features.dtype)], 1))
        return F.binary_cross_entropy_with_logits(logits.float(), wanted.float()), {}
