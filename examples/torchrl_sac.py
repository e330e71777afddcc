"""TorchRL's SAC on svea's environments: GymEnv, its collector, its replay, its loss.

    pip install '.[train]' torchrl             # in a clone of svea
    python examples/torchrl_sac.py --steps 50000

The default of 200 steps only shows that it runs.
"""

from __future__ import annotations

import argparse

import torch
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import Tensor, nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, set_exploration_type
from torchrl.envs.utils import ExplorationType
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

import svea.envs  # noqa: F401 (registers the ids)

TASK = "svea/cartpole_swingup-v0"


class Encoder(nn.Sequential):
    """Pictures in bytes, with or without a batch, to features."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__(
            nn.Conv2d(shape[0], 16, 3, stride=2), nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(-3), nn.LazyLinear(50), nn.LayerNorm(50), nn.Tanh(),
        )  # fmt: skip

    def forward(self, pictures: Tensor) -> Tensor:
        """Features of pictures."""
        return super().forward(pictures / 255)


class Q(nn.Module):
    """A Q-function with an encoder of its own."""

    def __init__(self, shape: torch.Size, actions: int) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(shape), nn.Linear(50 + actions, 1)

    def forward(self, pictures: Tensor, actions: Tensor) -> Tensor:
        """The value of actions."""
        return self.head(torch.cat([self.encoder(pictures), actions], -1))


def make(mode: str, options: argparse.Namespace) -> GymEnv:
    """A registered id, by TorchRL's own wrapper."""
    settings = {"image_size": options.image_size, "episode_frames": options.episode_frames}
    return GymEnv(TASK, mode=mode, rendering="fast", **settings)


def main() -> None:
    """Train in mode train, and test in two."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200, help="decisions to train for")
    parser.add_argument("--image-size", type=int, default=48)
    parser.add_argument("--episode-frames", type=int, default=1000, help="simulator steps each")
    options = parser.parse_args()
    torch.manual_seed(0)

    env = make("train", options)
    shape, actions = env.observation_spec["observation"].shape, env.action_spec.shape[-1]
    network = nn.Sequential(Encoder(shape), nn.Linear(50, 2 * actions), NormalParamExtractor())
    policy = ProbabilisticActor(
        TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(Q(shape, actions), in_keys=["observation", "action"])
    first = env.fake_tensordict()
    critic(policy(first))  # sizes the lazy layers
    loss = SACLoss(policy, critic, action_spec=env.action_spec)
    loss.make_value_estimator(gamma=0.99)
    target = SoftUpdate(loss, tau=0.01)
    optimizer = torch.optim.Adam(loss.parameters(), 3e-4)
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(options.steps), batch_size=32)
    collector = Collector(env, policy, frames_per_batch=20, total_frames=options.steps)
    for batch in collector:
        replay.extend(batch)
        for _ in range(4):
            losses = loss(replay.sample())
            total = losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            target.step()
        print(f"loss of Q {losses['loss_qvalue']:.4f}, reward {batch['next', 'reward'].mean():.3f}")
    collector.shutdown()

    for mode in ("train", "color_hard"):
        test = make(mode, options)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            episode = test.rollout(10_000, policy)
        print(f"{mode:12} {episode['next', 'reward'].sum():7.1f}")
        test.close()


if __name__ == "__main__":
    main()
