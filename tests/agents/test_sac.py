"""One update, against a second derivation from the paper's equations on raw tensors."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from svea.agents.sac import SAC, SACOptions
from svea.networks import CNN
from svea.recipes import RECIPES, RecipeOptions, Views, streams
from svea.replay import Batch

B, A, SIZE, LAYERS, STRIDED = 6, 2, 16, 3, 1
torch.set_num_threads(1)


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


def make_agent(recipe: str, options: RecipeOptions | None = None, **changes: Any) -> SAC:
    arguments: dict[str, Any] = {
        "weak": CountingWeak(),
        "strong": lambda images, generator: strong_of(images),
        "projection": 10,
        "hidden": 16,
        "seed": 5,
        "options": SACOptions(learning_rate=3e-3, temperature_learning_rate=2e-3),
    }
    encoder = partial(CNN, image_size=SIZE, layers=LAYERS, filters=8, strided_layers=STRIDED)
    row = streams(RECIPES[recipe], options or RecipeOptions())
    return SAC(encoder, A, row, **(arguments | changes))


def make_batch(seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)

    def images() -> Tensor:
        return torch.randint(0, 256, (B, 9, SIZE, SIZE), generator=random, dtype=torch.uint8)

    return Batch(
        observations=images(),
        actions=torch.rand(B, A, generator=random) * 2 - 1,
        rewards=torch.randn(B, generator=random),
        terminated=torch.tensor([0.0, 1.0] * (B // 2)),
        next_observations=images(),
    )


# The second derivation ----------------------------------------------------------------------------
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

Weights = dict[str, Tensor]


def view(images: Tensor, name: str, copy: int) -> Tensor:
    """A view as floats in [0, 1]."""
    weak = weak_copy(images, copy) / 255
    return {"clean": images / 255, "weak": weak, "strong": strong_of(weak)}[name]


def trunk(w: Weights, images: Tensor, name: str = "trunk") -> Tensor:
    x = images
    for layer in range(LAYERS):
        key = f"{name}.layers.{2 * layer}"
        x = F.conv2d(x, w[f"{key}.weight"], w[f"{key}.bias"], stride=2 if layer < STRIDED else 1)
        if layer < LAYERS - 1:
            x = x.clamp(min=0)
    return x.reshape(len(x), -1)


def project(w: Weights, name: str, features: Tensor) -> Tensor:
    x = features @ w[f"{name}.projection.0.weight"].T + w[f"{name}.projection.0.bias"]
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    return torch.tanh(x * w[f"{name}.projection.1.weight"] + w[f"{name}.projection.1.bias"])


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


def reference_losses(
    w: Weights, batch: Batch, recipe: str, o: RecipeOptions, noise: dict[str, Tensor]
) -> tuple[Tensor, Any]:
    """The critic's loss at these weights, and a function for both other losses after its step."""
    prediction, target_view, policy_views, q_views = TABLE[recipe]
    temperature = w["log_temperature"].exp()

    def value(name: str, copy: int, noise: Tensor) -> Tensor:
        images = view(batch.next_observations, name, copy)
        action, log_pi = policy(w, trunk(w, images), noise)
        q = q_values(w, "target_critic", trunk(w, images, "target_trunk"), action)
        return torch.minimum(*q) - temperature * log_pi

    def bootstrap(v: Tensor) -> Tensor:
        return (batch.rewards + 0.99 * (1 - batch.terminated) * v).detach()

    coefficients = {"a": o.alpha, "b": o.beta}
    pairs = [
        (name, copy, coefficients.get(c, c) / o.M)
        for name, c in prediction.items()
        for copy in range(o.M)
    ]
    parts = noise["target"].split(B)
    if target_view == "same":
        targets = [bootstrap(value(n, k, e)) for (n, k, _), e in zip(pairs, parts, strict=True)]
    else:
        values = [value(target_view, k, parts[k]) for k in range(o.K)]
        targets = [bootstrap(torch.stack(values).mean(0))] * len(pairs)
    critic_loss = torch.zeros(())
    for (name, copy, coefficient), y in zip(pairs, targets, strict=True):
        features = trunk(w, view(batch.observations, name, copy))
        for q in q_values(w, "critic", features, batch.actions):
            critic_loss = critic_loss + coefficient * ((q - y) ** 2).mean()

    def policy_losses(w: Weights) -> tuple[Tensor, Tensor]:
        actor_terms, entropy_terms = [], []
        for seen, judged, e in zip(policy_views, q_views, noise["actor"].split(B), strict=True):
            features = trunk(w, view(batch.observations, seen, 0)).detach()
            q_features = trunk(w, view(batch.observations, judged, 0)).detach()
            action, log_pi = policy(w, features, e)
            q = torch.minimum(*q_values(w, "critic", q_features, action))
            actor_terms.append((temperature.detach() * log_pi - q).mean())
            entropy_terms.append((-log_pi.detach() + A).mean())
        alpha = w["log_temperature"].exp()
        return torch.stack(actor_terms).mean(), alpha * torch.stack(entropy_terms).mean()

    return critic_loss, policy_losses


class PlainAdam:
    """Adam as in its paper, one parameter at a time."""

    def __init__(self, rate: float, beta1: float) -> None:
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


GROUPS = {"critic": ("trunk.", "critic."), "actor": ("actor.",), "temperature": ("log_temp",)}


class Reference:
    """The algorithm of the paper with the reference's numbers, slowly."""

    def __init__(self, recipe: str, options: RecipeOptions) -> None:
        self.recipe, self.options = recipe, options
        self.adam = {
            "critic": PlainAdam(3e-3, 0.9),
            "actor": PlainAdam(3e-3, 0.9),
            "temperature": PlainAdam(2e-3, 0.5),
        }

    def clear(self, name: str, weight: Tensor) -> Tensor:
        """Where a gradient is more than rounding noise: Adam's step is of full size for both."""
        means = [adam.moments.get(name.removeprefix("target_")) for adam in self.adam.values()]
        known = [moment[0] for moment in means if moment is not None]
        return known[0].abs() > 1e-6 if known else torch.ones_like(weight, dtype=torch.bool)

    def step(self, w: Weights, group: str, loss: Tensor) -> Weights:
        names = [name for name in w if name.startswith(GROUPS[group])]
        gradients = torch.autograd.grad(loss, [w[name] for name in names])
        after = dict(w)
        for name, gradient in zip(names, gradients, strict=True):
            after[name] = self.adam[group].step(name, w[name].detach(), gradient).requires_grad_()
        return after

    def update(
        self, w: Weights, batch: Batch, noise: dict[str, Tensor], even: bool
    ) -> tuple[Weights, dict[str, Tensor]]:
        critic_loss, policy_losses = reference_losses(w, batch, self.recipe, self.options, noise)
        w = self.step(w, "critic", critic_loss)
        losses = {"critic_loss": critic_loss}
        if even:
            losses["actor_loss"], losses["temperature_loss"] = policy_losses(w)
            w = self.step(w, "actor", losses["actor_loss"])
            w = self.step(w, "temperature", losses["temperature_loss"])
            for name in [name for name in w if name.startswith("target_")]:
                tau = 0.01 if ".q1." in name or ".q2." in name else 0.05
                online = w[name.removeprefix("target_")]
                w[name] = tau * online + (1 - tau) * w[name]
        return w, losses


def weights_of(agent: SAC) -> Weights:
    skip = ("optimiser.", "generator")
    return {
        name: tensor.detach().clone().requires_grad_(not name.startswith("target_"))
        for name, tensor in agent.state_dict().items()
        if not name.startswith(skip)
    }


def noise_of(agent: SAC, recipe: str, options: RecipeOptions) -> dict[str, Tensor]:
    """What the agent is about to draw, from a copy of its generator."""
    generator = torch.Generator()
    generator.set_state(agent.generator.get_state())
    prediction, target, views, _ = TABLE[recipe]
    copies = len(prediction) * options.M if target == "same" else options.K
    return {
        "target": torch.randn(copies * B, A, generator=generator),
        "actor": torch.randn(len(views) * B, A, generator=generator),
    }


def moments_of(agent: SAC, group: str) -> dict[str, Tensor]:
    """Adam's running means of the gradient, by the name of the parameter."""
    names = {
        id(p): f"{n}.{k}" for n, net in agent.networks.items() for k, p in net.named_parameters()
    }
    names[id(agent.log_temperature)] = "log_temperature"
    optimiser = agent.optimisers[group]
    return {
        names[id(p)]: optimiser.state[p]["exp_avg"] for p in optimiser.param_groups[0]["params"]
    }


CASES = [
    ("svea", RecipeOptions(alpha=0.5, beta=0.5)),
    ("svea", RecipeOptions(alpha=0.8, beta=0.3)),
    *[(name, RecipeOptions(alpha=0.7, beta=0.4)) for name in TABLE if name != "svea"],
    ("drq", RecipeOptions(K=2, M=2)),
    ("drq+aug", RecipeOptions(K=3, M=1)),
    ("mix-all", RecipeOptions(alpha=0.6, beta=0.2, M=2)),
    ("sada", RecipeOptions(alpha=0.6, beta=0.2, K=2, M=2)),
]


def case_name(case: Any) -> str:
    return case if isinstance(case, str) else f"{case.alpha}-{case.beta}-K{case.K}-M{case.M}"


def test_the_second_table_covers_every_recipe() -> None:
    assert TABLE.keys() == RECIPES.keys()


@pytest.mark.parametrize(("recipe", "options"), CASES, ids=case_name)
def test_updates_equal_a_plain_rederivation(recipe: str, options: RecipeOptions) -> None:
    agent, reference = make_agent(recipe, options), Reference(recipe, options)
    for decision in (2, 3, 4):  # policy and target are updated on even decisions only
        batch = make_batch(decision)
        before, noise = weights_of(agent), noise_of(agent, recipe, options)
        expected, losses = reference.update(before, batch, noise, even=decision % 2 == 0)
        found = agent.update(batch, decision)
        for name, loss in losses.items():
            torch.testing.assert_close(found[name], loss.detach(), rtol=2e-5, atol=1e-6, msg=name)
        assert ("actor_loss" in found) == (decision % 2 == 0)
        for group in GROUPS:
            for name, (mean, _, _) in reference.adam[group].moments.items():
                moment = moments_of(agent, group)[name]
                torch.testing.assert_close(
                    moment, mean, rtol=2e-3, atol=1e-6, msg=f"gradient {name}"
                )
        for name, tensor in weights_of(agent).items():
            found_weight, wanted = tensor.detach(), expected[name].detach()
            clear = reference.clear(name, wanted)
            torch.testing.assert_close(
                found_weight[clear], wanted[clear], rtol=1e-5, atol=3e-5, msg=name
            )
            moves = decision % 2 == 0 or name.startswith(("trunk.", "critic."))
            assert moves or torch.equal(tensor, before[name]), f"{name} moved on an odd decision"


def same_weights(one: SAC, two: SAC) -> bool:
    first, second = weights_of(one), weights_of(two)
    return all(torch.allclose(first[name], second[name], rtol=1e-5, atol=1e-6) for name in first)


@pytest.mark.parametrize(
    ("special", "plain"),
    [
        (("svea", RecipeOptions(alpha=1, beta=0)), ("drq", RecipeOptions())),
        (("svea", RecipeOptions(alpha=0, beta=1)), ("augmented-prediction", RecipeOptions())),
        (("drq", RecipeOptions(K=1, M=1)), ("drq", RecipeOptions())),
        (("svea", RecipeOptions(alpha=0.5, beta=0.5)), ("svea", RecipeOptions())),
    ],
)
def test_special_cases_coincide(
    special: tuple[str, RecipeOptions], plain: tuple[str, RecipeOptions]
) -> None:
    one, two = make_agent(*special), make_agent(*plain)
    for decision in range(4):
        one.update(make_batch(decision), decision)
        two.update(make_batch(decision), decision)
    assert same_weights(one, two)


def test_svea_differs_from_drq_in_views_alone() -> None:
    svea, drq = make_agent("svea"), make_agent("drq")
    assert same_weights(svea, drq)  # the same networks from the same seed: no extra parameters
    assert {k: v.shape for k, v in weights_of(svea).items()} == {
        k: v.shape for k, v in weights_of(drq).items()
    }
    svea.update(make_batch(), 2)
    drq.update(make_batch(), 2)
    assert not same_weights(svea, drq)


# Who sees which view ------------------------------------------------------------------------------


def poison(images: Tensor, generator: torch.Generator) -> Tensor:
    return torch.full(images.shape, math.nan)


@pytest.mark.parametrize("recipe", ["svea", "svea-clean-target", "sada", "augmented-prediction"])
def test_the_target_never_sees_the_strong_view(recipe: str) -> None:
    clean, poisoned = make_agent(recipe), make_agent(recipe, strong=poison)
    batch = make_batch()

    def target(agent: SAC) -> Tensor:
        return agent.q_target(batch, Views(batch.next_observations, agent._weak, agent._strong))

    assert torch.isfinite(target(poisoned)).all()
    torch.testing.assert_close(target(make_agent(recipe)), target(clean), rtol=0, atol=0)


@pytest.mark.parametrize("recipe", ["svea-augmented-target", "mix-all", "drq+aug"])
def test_the_poison_would_be_seen_in_an_augmented_target(recipe: str) -> None:
    agent, batch = make_agent(recipe, strong=poison), make_batch()
    target = agent.q_target(batch, Views(batch.next_observations, agent._weak, agent._strong))
    assert torch.isnan(target).any()


def record_inputs(network: torch.nn.Module) -> list[Tensor]:
    seen: list[Tensor] = []
    network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone()))
    return seen


def test_in_a_whole_svea_update_the_target_network_sees_weak_successors_alone() -> None:
    agent, batch = make_agent("svea"), make_batch()
    seen = record_inputs(agent.target_trunk)
    agent.update(batch, 2)
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], view(batch.next_observations, "weak", 0))


def test_the_policy_of_svea_never_sees_the_strong_view() -> None:
    agent, batch = make_agent("svea"), make_batch()
    seen = record_inputs(agent.trunk)
    agent.update_actor(Views(batch.observations, agent._weak, agent._strong))
    assert seen
    for images in seen:
        torch.testing.assert_close(images, view(batch.observations, "weak", 0))
    agent = make_agent("svea", strong=poison)
    losses = agent.update_actor(Views(batch.observations, agent._weak, agent._strong))
    assert torch.isfinite(losses["actor_loss"])


@pytest.mark.parametrize("recipe", ["drq", "svea", "mix-all", "sada"])
def test_the_policy_loss_leaves_trunk_critic_and_target_untouched(recipe: str) -> None:
    agent, batch = make_agent(recipe), make_batch()
    before = weights_of(agent)
    agent.update_actor(Views(batch.observations, agent._weak, agent._strong))
    after = weights_of(agent)
    for name in before:
        moved = not torch.equal(before[name], after[name])
        assert moved == name.startswith(("actor.", "log_temperature")), name
    for network in (agent.trunk, agent.critic):
        assert all(p.grad is None or not p.grad.any() for p in network.parameters())


def test_unaugmented_and_policy_stream_see_the_same_shift() -> None:
    weak = CountingWeak()
    agent, batch = make_agent("svea", weak=weak), make_batch()
    agent.update(batch, 2)
    assert weak.calls(batch.observations) == weak.calls(batch.next_observations) == 1


# Bootstrapping ------------------------------------------------------------------------------------


def test_only_a_real_end_stops_bootstrapping() -> None:
    agent, batch = make_agent("svea"), make_batch()
    batch.terminated = torch.zeros(B)
    batch.terminated[0] = 1
    target = agent.q_target(batch, Views(batch.next_observations, agent._weak, agent._strong))[0]
    assert target[0] == batch.rewards[0]
    assert (target[1:] != batch.rewards[1:]).all()


# Acting and saving --------------------------------------------------------------------------------


def test_acting() -> None:
    agent, images = make_agent("svea"), make_batch().observations
    modes = agent.act(images)
    assert modes.shape == (B, A)
    assert (modes == agent.act(images.numpy())).all(), "the most likely action does not draw"
    assert agent.act(images[0]).shape == (A,)
    w = weights_of(agent)
    mean = mlp(w, "actor.mlp", project(w, "actor", trunk(w, images / 255)))[:, :A]
    torch.testing.assert_close(torch.from_numpy(modes), torch.tanh(mean).detach())
    draws = torch.stack([torch.from_numpy(agent.act(images, explore=True)) for _ in range(5)])
    assert (draws.std(0) > 0).all() and (draws.abs() <= 1).all()


def test_q_value_is_the_smaller_of_both() -> None:
    agent, batch = make_agent("svea"), make_batch()
    w = weights_of(agent)
    q1, q2 = q_values(w, "critic", trunk(w, batch.observations / 255), batch.actions)
    found = agent.q_value(batch.observations, batch.actions)
    torch.testing.assert_close(found, torch.minimum(q1, q2).detach())


def test_state_round_trip_continues_bit_for_bit() -> None:
    one, two = make_agent("svea"), make_agent("svea", seed=6)
    for decision in range(3):
        one.update(make_batch(decision), decision)
    two.load_state_dict(deepcopy(one.state_dict()))
    for decision in range(3, 6):
        one.update(make_batch(decision), decision)
        two.update(make_batch(decision), decision)
    first, second = one.state_dict(), two.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_building_an_agent_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    make_agent("svea").update(make_batch(), 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_of_another_device_is_left_alone():
    from svea.agents.sac import restore_generator

    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    on_a_gpu = torch.zeros(16, dtype=torch.uint8)  # CUDA's states are that small
    assert not restore_generator(generator, on_a_gpu)
    assert torch.equal(generator.get_state(), before)
    assert restore_generator(generator, torch.Generator().manual_seed(2).get_state())
    assert not torch.equal(generator.get_state(), before)


def test_observations_of_another_size_are_refused_with_the_size_it_takes():
    from svea.agents import make_agent
    from svea.config import configure
    from svea.errors import UserError

    config = configure("walker_walk", preset="quick")
    agent = make_agent(config, actions=6)
    with pytest.raises(UserError, match=r"\(9, 84, 84\).*\(9, 40, 40\)"):
        agent.act(np.zeros((9, 84, 84), np.uint8))
    assert agent.act(np.zeros((9, 40, 40), np.uint8)).shape == (6,)
