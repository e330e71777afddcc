"""The paper's algorithm a second time, slowly and on raw tensors: what one update must come to.

An agent's weights are a dictionary of named tensors here, networks are written out as sums and
products, and every base algorithm is its equations. Nothing of ``svea.agents`` or
``svea.networks`` is used.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from svea.agents import DDPG, DQN, SAC, Agent
from svea.augment import none
from svea.config.options import DDPGOptions, DQNOptions, SACOptions
from svea.networks import CNN
from svea.recipes import RECIPES, RecipeOptions, streams
from svea.replay import Batch
from svea.views import Views

B, A, SIZE, LAYERS, STRIDED = 6, 2, 16, 3, 1
CHOICES = 4  # of the agents with discrete actions


# Augmentations without draws; every copy of a view is another picture. ----------------------------


def weak_copy(images: Tensor, copy: int) -> Tensor:
    return images.roll(1 + copy, dims=-1)


def strong_of(weak: Tensor) -> Tensor:
    """Of pixels in [0, 1]."""
    return 0.1 + 0.8 * (1 - weak.flip(-2)) ** 2


class CountingWeak:
    """The n-th call on the same images makes copy n."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        self.seen.append(images)
        return weak_copy(images, self.calls(images) - 1)

    def calls(self, images: Tensor) -> int:
        return sum(images is other for other in self.seen)


def poison(images: Tensor, generator: torch.Generator) -> Tensor:
    """A strong augmentation that shows wherever it was looked at."""
    return torch.full(images.shape, torch.nan)


# Agents and batches -------------------------------------------------------------------------------

OPTIONS: dict[type[Agent], Any] = {
    SAC: SACOptions(learning_rate=3e-3, temperature_learning_rate=2e-3),
    DDPG: DDPGOptions(learning_rate=3e-3, noise_start=1.0, noise_end=0.2, noise_decisions=8),
    DQN: DQNOptions(learning_rate=3e-3),
}


def make_agent(
    recipe: str, numbers: RecipeOptions | None = None, base: type[Agent] = SAC, **changes: Any
) -> Any:
    views = {"weak": CountingWeak(), "strong": lambda images, generator: strong_of(images)}
    views |= {name: changes.pop(name) for name in views if name in changes}
    arguments: dict[str, Any] = {
        "views": Views(None, none, **views),
        "projection": 10,
        "hidden": 16,
        "seed": 5,
        "options": OPTIONS[base],
    }
    plain = partial(CNN, image_size=SIZE, layers=LAYERS, filters=8, strided_layers=STRIDED)
    encoder = changes.pop("encoder", plain)
    row = streams(RECIPES[recipe], numbers or RecipeOptions())
    actions = CHOICES if base.discrete else A
    return base(encoder, actions, row, **(arguments | changes))


def make_batch(seed: int = 0, discrete: bool = False, rows: int = B) -> Batch:
    random = torch.Generator().manual_seed(seed)

    def images() -> Tensor:
        return torch.randint(0, 256, (rows, 9, SIZE, SIZE), generator=random, dtype=torch.uint8)

    choices = torch.randint(CHOICES, (rows, 1), generator=random).float()
    return Batch(
        observations=images(),
        actions=choices if discrete else torch.rand(rows, A, generator=random) * 2 - 1,
        rewards=torch.randn(rows, generator=random),
        # 0: the episode really ended; others: a decision more or less before the bootstrap
        discounts=torch.tensor([0.99, 0.0, 0.99**3] * rows)[:rows],
        next_observations=images(),
    )


# Networks, written out ----------------------------------------------------------------------------

Weights = dict[str, Tensor]


def view(images: Tensor, name: str, copy: int) -> Tensor:
    """A view as floats in [0, 1]."""
    weak = weak_copy(images, copy) / 255
    return {"clean": images / 255, "weak": weak, "strong": strong_of(weak)}[name]


def masked(w: Weights, images: Tensor) -> Tensor:
    """Each frame times what the masker keeps of its pixels; the images where there is no masker."""
    if "masker.layers.0.weight" not in w:
        return images
    shown = []
    for x in images.split(3, dim=1):
        frame = x
        for layer in (0, 2, 4):
            x = x * (x > 0) if layer else x  # exact zeros, of black pixels, pass no gradient
            key = f"masker.layers.{layer}"
            x = F.conv2d(x, w[f"{key}.weight"], w[f"{key}.bias"], padding=1)
        shown.append(frame / (1 + torch.exp(-x)))
    return torch.cat(shown, 1)


def trunk(w: Weights, images: Tensor, name: str = "trunk", layers: int = LAYERS) -> Tensor:
    """Of a slow trunk too the pictures are masked by the one masker there is."""
    x = masked(w, images)
    for layer in range(layers):
        key = f"{name}.layers.{2 * layer}"
        x = x.clamp(min=0) if layer else x
        x = F.conv2d(x, w[f"{key}.weight"], w[f"{key}.bias"], stride=2 if layer < STRIDED else 1)
    return x.flatten(1)


def project(w: Weights, name: str, features: Tensor) -> Tensor:
    """Linear, LayerNorm, tanh."""
    linear, norm = (f"{name}.projection.{place}" for place in (0, 1))
    x = features @ w[f"{linear}.weight"].T + w[f"{linear}.bias"]
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    return torch.tanh(x * w[f"{norm}.weight"] + w[f"{norm}.bias"])


def mlp(w: Weights, name: str, x: Tensor) -> Tensor:
    for layer in ("hidden.0", "hidden.2", "output"):
        x = x @ w[f"{name}.{layer}.weight"].T + w[f"{name}.{layer}.bias"]
        if layer != "output":
            x = x.clamp(min=0)
    return x


def policy(w: Weights, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions and log-probabilities of a squashed Gaussian, log std within [-10, 2]."""
    out = mlp(w, "actor.mlp", project(w, "actor", features))
    mean, log_std = out[:, :A], -10 + 6 * (torch.tanh(out[:, A:]) + 1)
    gaussian = torch.distributions.Normal(mean, log_std.exp())
    before = mean + log_std.exp() * noise
    action = torch.tanh(before)
    correction = torch.log((1 - action**2).clamp(min=0) + 1e-6)
    return action, (gaussian.log_prob(before) - correction).sum(1)


def q_values(w: Weights, name: str, features: Tensor, actions: Tensor) -> list[Tensor]:
    x = torch.cat([project(w, name, features), actions], 1)
    return [mlp(w, f"{name}.{q}", x)[:, 0] for q in ("q1", "q2")]


def q_table(w: Weights, name: str, features: Tensor) -> Tensor:
    """Q of every choice, (N, choices); as value plus advantage where there is a value."""
    state = project(w, name, features)
    q = mlp(w, f"{name}.advantage", state)
    if f"{name}.value.output.bias" in w:
        q = q - q.sum(1, keepdim=True) / CHOICES + mlp(w, f"{name}.value", state)
    return q


# The recipes and the Q-loss -----------------------------------------------------------------------
# The table of the paper, written out again: prediction, target, views of the policy, and the views
# on which Q judges it. "a" and "b" are the coefficients alpha and beta.

TABLE: dict[str, tuple[dict[str, Any], str, list[str], list[str]]] = {
    "sac": ({"clean": 1}, "clean", ["clean"], ["clean"]),
    "drq": ({"weak": 1}, "weak", ["weak"], ["weak"]),
    "drq+aug": ({"strong": 1}, "strong", ["strong"], ["strong"]),
    "svea": ({"weak": "a", "strong": "b"}, "weak", ["weak"], ["weak"]),
    "svea-augmented-target": ({"weak": "a", "strong": "b"}, "strong", ["weak"], ["weak"]),
    "mix-all": ({"weak": "a", "strong": "b"}, "same", ["weak", "strong"], ["weak", "strong"]),
    "augmented-prediction": ({"strong": 1}, "weak", ["weak"], ["weak"]),
    "clean-target": ({"weak": 1}, "clean", ["weak"], ["weak"]),
    "svea-clean-target": ({"weak": "a", "strong": "b"}, "clean", ["weak"], ["weak"]),
    "sada": ({"weak": "a", "strong": "b"}, "weak", ["weak", "strong"], ["weak", "weak"]),
}

Value = Callable[[Weights, Tensor, Tensor], Tensor]  # of weights, successors and noise
Heads = Callable[[Weights, Tensor, Tensor], list[Tensor]]  # of weights, features and actions


def critic_loss(
    w: Weights,
    batch: Batch,
    recipe: str,
    o: RecipeOptions,
    noise: Tensor,
    value: Value,
    heads: Heads,
) -> Tensor:
    """Squared errors, one view and one Q-function at a time."""
    prediction, target_view, _, _ = TABLE[recipe]
    coefficients = {"a": o.alpha, "b": o.beta}
    pairs = [
        (name, copy, coefficients.get(c, c) / o.M)
        for name, c in prediction.items()
        for copy in range(o.M)
    ]
    parts = noise.split(B)

    def value_of(name: str, copy: int, part: Tensor) -> Tensor:
        return value(w, view(batch.next_observations, name, copy), part)

    def bootstrap(v: Tensor) -> Tensor:
        return (batch.rewards + batch.discounts * v).detach()

    if target_view == "same":
        targets = [bootstrap(value_of(n, k, e)) for (n, k, _), e in zip(pairs, parts, strict=True)]
    else:
        values = [value_of(target_view, k, parts[k]) for k in range(o.K)]
        targets = [bootstrap(torch.stack(values).mean(0))] * len(pairs)
    loss = torch.zeros(())
    for (name, copy, coefficient), y in zip(pairs, targets, strict=True):
        features = trunk(w, view(batch.observations, name, copy))
        for q in heads(w, features, batch.actions):
            loss = loss + coefficient * ((q - y) ** 2).mean()
    return loss


# Trainable ---------------------------------------------------------------------------------------


class PlainAdam:
    """Adam as in its paper, one parameter at a time."""

    def __init__(self, rate: float, beta1: float = 0.9) -> None:
        self.rate, self.beta1, self.moments = rate, beta1, {}  # type: ignore[var-annotated]

    def step(self, name: str, weight: Tensor, gradient: Tensor) -> Tensor:
        zero = torch.zeros_like(weight)
        m, v, t = self.moments.get(name, (zero, zero, 0))
        m = self.beta1 * m + (1 - self.beta1) * gradient
        v = 0.999 * v + 0.001 * gradient**2
        t += 1
        self.moments[name] = (m, v, t)
        m_hat, v_hat = m / (1 - self.beta1**t), v / (1 - 0.999**t)
        return weight - self.rate * m_hat / (v_hat.sqrt() + 1e-8)


CRITIC, ACTOR = ("trunk.", "critic."), ("actor.",)


class Reference:
    """A base algorithm with its numbers, slowly; a subclass adds ``value`` and ``improve``."""

    groups: dict[str, tuple[str, ...]]  # prefixes of the parameters that each optimiser steps
    draws = A  # standard normal numbers per action that is drawn
    encoder_tau, q_tau = 0.05, 0.01

    def __init__(
        self, recipe: str, options: RecipeOptions | None = None, masker: float = 0.0
    ) -> None:
        """``masker`` is the learning rate of one, if there is one."""
        self.recipe, self.options = recipe, options or RecipeOptions()
        self.adam = {group: PlainAdam(3e-3) for group in self.groups}
        if masker:
            self.groups = self.groups | {"masker": ("masker.",)}
            self.adam["masker"] = PlainAdam(masker)

    def value(self, w: Weights, images: Tensor, noise: Tensor) -> Tensor:
        """Of successors."""
        raise NotImplementedError

    def heads(self, w: Weights, features: Tensor, actions: Tensor) -> list[Tensor]:
        """The Q-values of actions."""
        return q_values(w, "critic", features, actions)

    def improve(self, w: Weights, batch: Batch, noise: Tensor) -> tuple[Weights, dict[str, Tensor]]:
        """The policy's part of an update."""
        return w, {}

    def target_features(self, w: Weights, images: Tensor) -> Tensor:
        """Of the slow trunk, if there is one."""
        return trunk(w, images, "target_trunk" if self.encoder_tau < 1 else "trunk")

    def policy_features(self, w: Weights, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """For every view of the policy: what it sees, and what Q judges it by; no gradient."""
        _, _, seen, judged = TABLE[self.recipe]
        return [
            (
                trunk(w, view(batch.observations, mine, 0)).detach(),
                trunk(w, view(batch.observations, its, 0)).detach(),
            )
            for mine, its in zip(seen, judged, strict=True)
        ]

    def noise_of(self, agent: Agent) -> dict[str, Tensor]:
        """What an agent is about to draw, from a copy of its generator."""
        generator = torch.Generator()
        generator.set_state(agent.generator.get_state())
        prediction, target, views, _ = TABLE[self.recipe]
        copies = len(prediction) * self.options.M if target == "same" else self.options.K
        rows = {"target": copies * B, "actor": len(views) * B}
        noise = {
            name: torch.randn(count, self.draws, generator=generator)
            if self.draws
            else torch.zeros(count, 1)
            for name, count in rows.items()
        }
        return noise | {"auxiliary": torch.rand(B, generator=generator)}

    def step(self, w: Weights, group: str, loss: Tensor) -> Weights:
        names = [name for name in w if name.startswith(self.groups[group])]
        gradients = torch.autograd.grad(loss, [w[name] for name in names], retain_graph=True)
        after = dict(w)
        for name, gradient in zip(names, gradients, strict=True):
            after[name] = self.adam[group].step(name, w[name].detach(), gradient).requires_grad_()
        return after

    def update(
        self, w: Weights, batch: Batch, noise: dict[str, Tensor], even: bool = True
    ) -> tuple[Weights, dict[str, Tensor]]:
        """Q-functions, then (where ``even``) policy and target."""
        loss = critic_loss(
            w, batch, self.recipe, self.options, noise["target"], self.value, self.heads
        )
        before, losses = w, {"critic_loss": loss}
        w = self.step(before, "critic", loss)
        if "masker" in self.groups:  # the same loss at the same weights
            stepped = self.step(before, "masker", loss)
            w |= {name: stepped[name] for name in stepped if name.startswith("masker.")}
        if even:
            w, policy_losses = self.improve(w, batch, noise["actor"])
            losses |= policy_losses
            for name in [name for name in w if name.startswith("target_")]:
                slow = ".projection." in name or name.startswith("target_trunk.")
                tau = self.encoder_tau if slow and self.encoder_tau < 1 else self.q_tau
                w[name] = tau * w[name.removeprefix("target_")] + (1 - tau) * w[name]
        return w, losses

    def check_update(
        self, agent: Agent, decision: int, even: bool = True
    ) -> tuple[Weights, dict[str, Tensor]]:
        """Update the agent, and compare; its weights before, and what it reported."""
        batch, before = make_batch(decision, agent.discrete), weights_of(agent)
        expected, losses = self.update(before, batch, self.noise_of(agent), even)
        found = agent.update(batch, agent.schedule(decision))
        assert losses.keys() == found.keys() & {"critic_loss", "actor_loss", "temperature_loss"}
        for name, loss in losses.items():
            torch.testing.assert_close(found[name], loss.detach(), rtol=2e-5, atol=1e-6, msg=name)
        self.assert_equal(agent, expected)
        return before, found

    def clear(self, name: str, weight: Tensor) -> Tensor:
        """Where a gradient is more than rounding noise: Adam's step is of full size for both."""
        online = name.replace("auxiliary.target_trunk.", "trunk.").replace("target_", "")
        found = [adam.moments[online][0] for adam in self.adam.values() if online in adam.moments]
        clear = torch.ones_like(weight, dtype=torch.bool)
        for mean in found:
            clear &= mean.abs() > 1e-6
        return clear

    def assert_equal(self, agent: Agent, expected: Weights) -> None:
        """The agent has these weights, and its optimisers have seen these gradients."""
        for group, adam in self.adam.items():
            moments = moments_of(agent, group) if adam.moments else {}
            assert moments.keys() == adam.moments.keys(), group
            for name, (mean, _, _) in adam.moments.items():
                torch.testing.assert_close(
                    moments[name], mean, rtol=2e-3, atol=1e-6, msg=f"gradient of {name}"
                )
        found = weights_of(agent)
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            wanted = expected[name].detach()
            clear = self.clear(name, wanted)
            torch.testing.assert_close(
                tensor.detach()[clear], wanted[clear], rtol=1e-5, atol=3e-5, msg=name
            )


class PlainSAC(Reference):
    """A squashed Gaussian policy and a learned temperature."""

    groups = {"critic": CRITIC, "actor": ACTOR, "temperature": ("log_temp",)}  # noqa: RUF012

    def __init__(
        self, recipe: str, options: RecipeOptions | None = None, masker: float = 0.0
    ) -> None:
        super().__init__(recipe, options, masker)
        self.adam["temperature"] = PlainAdam(2e-3, 0.5)

    def value(self, w: Weights, images: Tensor, noise: Tensor) -> Tensor:
        action, log_pi = policy(w, trunk(w, images), noise)
        q = q_values(w, "target_critic", self.target_features(w, images), action)
        return torch.minimum(*q) - w["log_temperature"].exp() * log_pi

    def improve(self, w: Weights, batch: Batch, noise: Tensor) -> tuple[Weights, dict[str, Tensor]]:
        actor_terms, entropy_terms = [], []
        temperature = w["log_temperature"].exp()
        pairs = self.policy_features(w, batch)
        for (features, q_features), e in zip(pairs, noise.split(B), strict=True):
            action, log_pi = policy(w, features, e)
            q = torch.minimum(*q_values(w, "critic", q_features, action))
            actor_terms.append((temperature.detach() * log_pi - q).mean())
            entropy_terms.append((-log_pi.detach() + A).mean())
        losses = {
            "actor_loss": torch.stack(actor_terms).mean(),
            "temperature_loss": temperature * torch.stack(entropy_terms).mean(),
        }
        w = self.step(w, "actor", losses["actor_loss"])
        return self.step(w, "temperature", losses["temperature_loss"]), losses


class PlainDDPG(Reference):
    """DrQ-v2's: noisy actions of a deterministic policy; by default no slow encoder."""

    groups = {"critic": CRITIC, "actor": ACTOR}  # noqa: RUF012
    encoder_tau = 1.0
    deviation = 1.0  # of the noise
    clip = 0.3

    def actions(self, w: Weights, features: Tensor, noise: Tensor) -> Tensor:
        """The gradient is that of the policy's own action, wherever the noise leads."""
        chosen = torch.tanh(mlp(w, "actor.mlp", project(w, "actor", features)))
        with torch.no_grad():
            noisy = chosen + (self.deviation * noise).clamp(-self.clip, self.clip)
            border = noisy.clamp(-1, 1)
        return chosen - chosen.detach() + border

    def value(self, w: Weights, images: Tensor, noise: Tensor) -> Tensor:
        action = self.actions(w, trunk(w, images), noise)
        return torch.minimum(*q_values(w, "target_critic", self.target_features(w, images), action))

    def improve(self, w: Weights, batch: Batch, noise: Tensor) -> tuple[Weights, dict[str, Tensor]]:
        terms = []
        pairs = self.policy_features(w, batch)
        for (features, q_features), e in zip(pairs, noise.split(B), strict=True):
            action = self.actions(w, features, e)
            terms.append(-torch.minimum(*q_values(w, "critic", q_features, action)).mean())
        loss = torch.stack(terms).mean()
        return self.step(w, "actor", loss), {"actor_loss": loss}


class PlainDQN(Reference):
    """A maximum over choices; with ``double``, the online network says where it is."""

    groups = {"critic": CRITIC}  # noqa: RUF012
    draws = 0
    double = True

    def heads(self, w: Weights, features: Tensor, actions: Tensor) -> list[Tensor]:
        q = q_table(w, "critic", features)
        return [torch.stack([q[row, int(choice)] for row, choice in enumerate(actions[:, 0])])]

    def value(self, w: Weights, images: Tensor, noise: Tensor) -> Tensor:
        q = q_table(w, "target_critic", self.target_features(w, images))
        judge = q_table(w, "critic", trunk(w, images)) if self.double else q
        best = [int(row.argmax()) for row in judge]
        return torch.stack([q[row, choice] for row, choice in enumerate(best)])


# Looking into an agent ----------------------------------------------------------------------------


def weights_of(agent: Agent) -> Weights:
    """Copies of everything that learns, ready for a gradient where the agent's are."""
    skip = ("optimiser.", "generator")
    frozen = ("target_", "auxiliary.target_")
    return {
        name: tensor.detach()
        .clone()
        .requires_grad_(tensor.is_floating_point() and not name.startswith(frozen))
        for name, tensor in agent.state_dict().items()
        if not name.startswith(skip) and "running_" not in name and "num_batches" not in name
    }


def moments_of(agent: Any, group: str) -> dict[str, Tensor]:
    """Adam's running means of the gradient, by the name of the parameter."""
    names = {
        id(p): f"{n}.{k}" for n, net in agent.networks.items() for k, p in net.named_parameters()
    }
    names |= {id(number): name for name, number in agent.numbers().items()}
    optimiser = agent.optimisers[group]
    return {
        names[id(p)]: optimiser.state[p]["exp_avg"] for p in optimiser.param_groups[0]["params"]
    }


def moved(agent: Agent, before: Weights) -> set[str]:
    """The names of what has changed."""
    return {name for name, now in weights_of(agent).items() if not torch.equal(now, before[name])}


def record_inputs(network: torch.nn.Module) -> list[Tensor]:
    """What a network is shown from now on."""
    seen: list[Tensor] = []
    network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone()))
    return seen
