"""SGQN (Bertoin et al., 2022): a Q-function that looks at few pixels, and can say which."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from svea.agents.agent import Agent, Losses
from svea.agents.auxiliary import Auxiliary, projection_of
from svea.agents.guided import guided_gradient, influence, most_influential
from svea.config.options import SGQNOptions
from svea.networks.decoder import AttributionDecoder
from svea.networks.masker import COLOURS
from svea.replay import Batch
from svea.views import Views


class SGQN(Auxiliary):
    """Two terms around one mask: the pixels of each frame that raise Q most (guided gradient).

    In the Q-loss, Q must stay the same when all other pixels are painted over. In a task of its
    own, the encoder must tell from a strong view where those pixels are.
    """

    def __init__(self, agent: Agent, options: SGQNOptions) -> None:
        super().__init__(agent)
        self.every, self.options = options.every, options
        channels, image_size, _ = agent.trunk.input_shape
        self.decoder = AttributionDecoder(agent.projection + agent.actions, channels, image_size)
        self.to(agent.device)
        self.optimise([agent.trunk, projection_of(agent.critic)], options.learning_rate)

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

    def loss(
        self, batch: Batch, now: Views, successor: Views, own_batch: Batch | None
    ) -> tuple[Tensor, Losses]:
        """Cross entropy of finding, in the strong view, the pixels that count in the weak one."""
        agent = self.agent
        actions = (
            F.one_hot(batch.actions[:, 0].long(), agent.actions) if agent.discrete
            else batch.actions
        )  # fmt: skip
        wanted = self.attributed(now["weak", 0], batch.actions)  # by the Q-function as it is now
        features = projection_of(agent.critic)(agent.trunk(self.seen(now["strong", 0])))
        logits = self.decoder(torch.cat([features, actions.to(features.dtype)], 1))
        return F.binary_cross_entropy_with_logits(logits.float(), wanted.float()), {}
