"""SGQN: the guided gradient, and one update against a plain re-derivation."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rederivation import (
    CHOICES,
    LAYERS,
    SIZE,
    STRIDED,
    A,
    B,
    PlainAdam,
    PlainDQN,
    PlainSAC,
    Reference,
    Weights,
    critic_loss,
    make_agent,
    make_batch,
    project,
    q_table,
    q_values,
    trunk,
    view,
    weights_of,
)
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from svea import speed
from svea.agents import DQN, SAC, Agent
from svea.agents import make_agent as configured_agent
from svea.agents.auxiliary import SGQN
from svea.agents.diagnostics import guided, guided_gradient, influence, most_influential
from svea.config import configure
from svea.config.options import MaDiOptions, SGQNOptions
from svea.networks.parts import AttributionDecoder
from svea.replay import Batch
from svea.speed.device import missing_for_compiling

RATE, RHO = 4e-3, 0.9
OPTIONS = SGQNOptions(learning_rate=RATE, quantile=RHO)
TRAINED = ("trunk.", "critic.projection.", "auxiliary.")


def with_sgqn(base: type[Agent] = SAC, options: SGQNOptions = OPTIONS, **changes: Any) -> Any:
    return make_agent("drq", base=base, make_auxiliary=partial(SGQN, options=options), **changes)


# The second derivation ----------------------------------------------------------------------------


def clipped_relu(x: Tensor) -> Tensor:
    """A ReLU; what has come back through it is clipped by a hook."""
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient.clamp(min=0))
    return x * (x > 0)


def plain_guided_gradient(w: Weights, images: Tensor, actions: Tensor, discrete: bool) -> Tensor:
    x = pixels = images.detach().clone().requires_grad_()
    for layer in range(LAYERS):
        key = f"trunk.layers.{2 * layer}"
        x = clipped_relu(x) if layer else x
        stride = 2 if layer < STRIDED else 1
        x = F.conv2d(x, w[f"{key}.weight"], w[f"{key}.bias"], stride=stride)
    state = project(w, "critic", x.flatten(1))
    head = "critic.advantage" if discrete else "critic.q1"
    x = state if discrete else torch.cat([state, actions], 1)
    for name in ("hidden.0", "hidden.2", "output"):
        x = x @ w[f"{head}.{name}.weight"].T + w[f"{head}.{name}.bias"]
        x = x if name == "output" else clipped_relu(x)
    q = x.gather(1, actions.long()) if discrete else x
    return torch.autograd.grad(q.sum(), pixels)[0]


def plain_mask(gradient: Tensor) -> Tensor:
    """Pixel by pixel and frame by frame, with a sorted list in place of a quantile."""
    mask = torch.zeros_like(gradient)
    for row in range(len(gradient)):
        for frame in range(3):
            largest = gradient[row, 3 * frame : 3 * frame + 3].abs().amax(0)
            ordered, place = sorted(largest.flatten().tolist()), RHO * (SIZE**2 - 1)
            low, share = int(place), place - int(place)
            border = ordered[low] + share * (ordered[low + 1] - ordered[low])
            mask[row, 3 * frame : 3 * frame + 3] = (largest >= border).float()
    return mask


def heads(w: Weights, images: Tensor, actions: Tensor, discrete: bool) -> list[Tensor]:
    features = trunk(w, images)
    if not discrete:
        return q_values(w, "critic", features, actions)
    return [q_table(w, "critic", features).gather(1, actions.long())[:, 0]]


def plain_logits(w: Weights, features: Tensor) -> Tensor:
    name, side = "auxiliary.decoder", SIZE // 4
    x = features @ w[f"{name}.linear.weight"].T + w[f"{name}.linear.bias"]
    x = x.reshape(-1, 32, side, side)
    for layer in (1, 4, 7):
        key = f"{name}.layers.{layer}"
        x = F.conv2d(x * (x > 0), w[f"{key}.weight"], w[f"{key}.bias"], padding=1)
        if layer != 7:
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
    return x


def plain_update(
    reference: Reference, w: Weights, batch: Batch, noise: dict[str, Tensor], discrete: bool
) -> tuple[Weights, dict[str, Tensor]]:
    """Q-functions with the consistency term; policy and target; then the task."""
    images, actions = view(batch.observations, "weak", 0), batch.actions
    q_loss = critic_loss(
        w, batch, "drq", reference.options, noise["target"], reference.value, reference.heads
    )
    mask = plain_mask(plain_guided_gradient(w, images, actions, discrete))
    grey = images.min() + noise["grey"] * (images.max() - images.min())
    left = images * mask + grey * (1 - mask)
    pairs = zip(heads(w, images, actions, discrete), heads(w, left, actions, discrete), strict=True)
    consistency = 0.5 * sum(((one - other) ** 2).mean() for one, other in pairs)
    w = reference.step(w, "critic", q_loss + consistency)
    w, _ = reference.improve(w, batch, noise["actor"])
    for name in [name for name in w if name.startswith("target_")]:
        slow = ".projection." in name or name.startswith("target_trunk.")
        tau = 0.05 if slow else 0.01
        w[name] = tau * w[name.removeprefix("target_")] + (1 - tau) * w[name]
    mask = plain_mask(plain_guided_gradient(w, images, actions, discrete))
    given = torch.eye(CHOICES)[actions[:, 0].long()] if discrete else actions
    strong = project(w, "critic", trunk(w, view(batch.observations, "strong", 0)))
    logits = plain_logits(w, torch.cat([strong, given], 1))
    surprise = logits.clamp(min=0) - logits * mask + torch.log1p(torch.exp(-logits.abs()))
    found = {"critic_loss": q_loss + consistency, "consistency_loss": consistency}
    found["auxiliary_loss"] = surprise.mean()
    return reference.step(w, "auxiliary", surprise.mean()), found


@pytest.mark.parametrize(("base", "kind"), [(SAC, PlainSAC), (DQN, PlainDQN)])
def test_updates_equal_a_plain_rederivation(base: type[Agent], kind: type[Reference]) -> None:
    agent, reference = with_sgqn(base), kind("drq")
    reference.groups = reference.groups | {"auxiliary": TRAINED}
    reference.adam["auxiliary"] = PlainAdam(RATE)
    for decision in (2, 4):
        batch = make_batch(decision, base.discrete)
        generator = torch.Generator()
        generator.set_state(agent.generator.get_state())
        noise = {"target": torch.zeros(B, 1), "actor": torch.zeros(B, 1)}
        if not base.discrete:
            noise["target"] = torch.randn(B, A, generator=generator)
        noise["grey"] = torch.rand((), generator=generator)
        if not base.discrete:
            noise["actor"] = torch.randn(B, A, generator=generator)
        expected, losses = plain_update(reference, weights_of(agent), batch, noise, base.discrete)
        found = agent.update(batch, agent.schedule(decision))
        for name, loss in losses.items():
            torch.testing.assert_close(found[name], loss.detach(), rtol=2e-5, atol=1e-6, msg=name)
        reference.assert_equal(agent, expected)


# Its parts ----------------------------------------------------------------------------------------


def test_a_guided_gradient_by_hand() -> None:
    """Two layers: the second unit is dead, and what comes back negative is dropped on the way."""
    net = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[2.0], [-3.0], [5.0]]))
        net[2].weight.copy_(torch.tensor([[7.0, 11.0, -13.0]]))
        net[0].bias.zero_()
    x = torch.ones(1, 1, requires_grad=True)
    with guided(net):
        (clipped,) = torch.autograd.grad(net(x).sum(), x)
    (plain,) = torch.autograd.grad(net(x).sum(), x)
    assert clipped.item() == 2 * 7, "unit 2 is dead, unit 3 would bring -13"
    assert plain.item() == 2 * 7 - 5 * 13, "outside the region ReLUs are as before"


class _CountReLUs(TorchDispatchMode):
    """How many ReLUs are computed, however they are written."""

    made = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        relus = (torch.ops.aten.relu.default, torch.ops.aten.relu_.default)
        self.made += function in (*relus, torch.ops.aten.clamp_min.default)
        return function(*given, **(named or {}))


@pytest.mark.parametrize("encoder", ["cnn", "frames", "vit"])
@pytest.mark.parametrize("mask", ["none", "madi"])
def test_every_relu_on_the_way_to_a_q_value_is_a_module(encoder: str, mask: str) -> None:
    """Those that are not, guided backpropagation would pass by in silence."""
    settings = {"preset": "quick", "encoder": encoder, "mask": mask}
    agent = configured_agent(configure("walker_walk", **settings), actions=A)
    images, modules = torch.rand(1, *agent.trunk.input_shape), list[nn.Module]()
    for network in (agent.trunk, agent.critic, *([agent.masker] if agent.masker else [])):
        for module in network.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_hook(lambda module, *_: modules.append(module))
    with _CountReLUs() as counted, torch.no_grad():
        agent.q_heads(agent.critic, agent.trunk(agent.masked(images)), torch.zeros(1, A))
    assert counted.made == len(modules) > 0


@pytest.mark.parametrize("rho", [0.0, 0.37, 0.5, 0.95, 1.0])
def test_pixels_that_count_are_those_above_torchs_quantile(rho: float) -> None:
    assert influence(torch.tensor([-2.0, 1.0, 0.5])[None, :, None, None]).item() == 2
    random = torch.rand(3, 2, 9, 11)
    for influences in (random, (8 * random).round(), torch.zeros_like(random)):  # many ties, all
        threshold = influences.flatten(2).quantile(rho, dim=2)[..., None, None]
        assert torch.equal(most_influential(influences, rho), influences >= threshold)


def test_fast_versions_are_put_aside_and_come_back() -> None:
    """On a CPU the trunk's forward pass is one kernel with its ReLUs inside."""
    config = configure("walker_walk", preset="quick", method="sgqn", overlay_dir="procedural")
    plain, fast = (configured_agent(config, actions=6) for _ in range(2))
    if missing_for_compiling(torch.device("cpu")):
        pytest.skip("no kernels or no C compiler are here")
    speed.accelerate(fast, "compiled")
    images, actions = torch.rand(2, 9, 48, 48), torch.rand(2, 6)
    before = vars(fast.trunk).get("forward")
    wanted, found = (guided_gradient(each, images, actions) for each in (plain, fast))
    torch.testing.assert_close(found, wanted)
    assert before is not None and vars(fast.trunk)["forward"] is before


def test_nothing_is_inconsistent_where_every_pixel_counts() -> None:
    agent = with_sgqn(options=SGQNOptions(quantile=0.0))
    losses = agent.update(make_batch(), agent.schedule(1))
    assert float(losses["consistency_loss"]) == 0
    without = with_sgqn(options=SGQNOptions(consistency=0.0))
    assert "consistency_loss" not in without.update(make_batch(), without.schedule(1))


def test_attributions_leave_no_gradient_and_go_through_a_masker() -> None:
    agent, batch = with_sgqn(masker=MaDiOptions(filters=4)), make_batch()
    images = view(batch.observations, "weak", 0)
    seen = guided_gradient(agent, images, batch.actions)
    assert all(p.grad is None for net in agent.networks.values() for p in net.parameters())
    unmasked = with_sgqn()
    assert not torch.allclose(seen, guided_gradient(unmasked, images, batch.actions))
    losses = agent.update(batch, agent.schedule(2))
    assert all(torch.isfinite(value).all() for value in losses.values())


def test_the_decoder_of_the_paper_and_its_numbers() -> None:
    decoder = AttributionDecoder(106)
    assert sum(p.numel() for p in decoder.parameters()) == 1_625_961
    assert AttributionDecoder(12, image_size=42)(torch.rand(1, 12)).shape == (1, 9, 42, 42)
    assert SGQNOptions() == SGQNOptions(3e-4, 2, 0.95, 0.5)
    quantiles = {"walker_walk": 0.95, "cartpole_swingup": 0.98, "ball_in_cup_catch": 0.98}
    for task, rho in quantiles.items():
        assert configure(task, method="sgqn").sgqn.quantile == rho
        by_task = configure(task, auxiliary="sgqn", augment="overlay")
        assert by_task.sgqn.quantile == rho, "also where the auxiliary task is named by itself"
    chosen = configure("cartpole_swingup", method="sgqn", **{"sgqn.quantile": 0.9})
    assert chosen.sgqn.quantile == 0.9
