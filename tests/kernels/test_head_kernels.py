"""The heads' and the optimisers' CUDA kernels against plain PyTorch: emulated, and on a GPU."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from emulated import Rounded, emulated, emulator, error, needs_compiler, no_kernel, on_gpu
from torch import Tensor, nn

from svea import configure
from svea.agents import make_agent
from svea.kernels import heads, steps
from svea.kernels.heads import FusedHead
from svea.kernels.steps import FusedSteps
from svea.networks import Actor, Critic, DeterministicActor
from svea.replay import Batch

HEADS = [
    "pack_heads", "state", "hidden", "outputs", "outputs_back", "hidden_back", "state_back", "sums",
    "squash", "squash_back",
]  # fmt: skip
STEPS = ["squares", "judge", "adam", "follow"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where emulated kernels are kept for the next test."""
    return tmp_path_factory.mktemp("kernels")


def small(kind: type[Actor | Critic], device: str, sizes: tuple[int, ...]) -> Actor | Critic:
    torch.manual_seed(1)
    network = kind(*sizes).to(device)
    for parameter in network.parameters():  # biases and LayerNorm begin as zeros and ones
        parameter.data += 0.1 * torch.randn(parameter.shape).to(device)
    return network


def fused(network: Actor | Critic, folder: Path, device: str) -> FusedHead:
    if device == "cuda":
        return FusedHead(network)
    head = FusedHead(network, no_kernel)
    head.launch = emulator(folder, heads.SOURCES, head.macros(), HEADS)
    return head


class Plain:
    """A head in float64, rounded where the kernels round: its ReLUs clip the same numbers."""

    def __init__(self, network: Actor | Critic) -> None:
        exact = copy.deepcopy(network).double()
        self.projection, self.parameters = exact.projection, list(exact.parameters())
        self.mlps = [exact.q1, exact.q2] if isinstance(exact, Critic) else [exact.mlp]

    def __call__(self, features: Tensor, *actions: Tensor) -> Tensor:
        linear, norm, _ = self.projection
        x = torch.cat([torch.tanh(norm(self.through(linear, features))), *actions], 1)
        found = []
        for mlp in self.mlps:
            h = Rounded.apply(x, True, False)
            for layer in (mlp.hidden[0], mlp.hidden[2]):
                h = Rounded.apply(torch.relu(self.through(layer, h)), True, False)
            found.append(h @ mlp.output.weight.t() + mlp.output.bias)
        return torch.stack(found)

    def through(self, layer: nn.Linear, x: Tensor) -> Tensor:
        weight = Rounded.apply(layer.weight, True, False)
        return Rounded.apply(x @ weight.t(), False, True) + layer.bias


SIZES = [(64, 3, 20, 128), (72, 2, 100, 256)]


@pytest.mark.parametrize("device", [emulated, on_gpu])
@pytest.mark.parametrize("sizes", SIZES)
def test_q_functions_are_what_is_written(folder: Path, device: str, sizes: tuple[int, ...]) -> None:
    network = small(Critic, device, sizes)
    head, plain, rows = fused(network, folder, device), Plain(network), 11
    features = torch.randn(rows, sizes[0], device=device).bfloat16().requires_grad_()
    actions = (torch.rand(rows, sizes[1], device=device) * 2 - 1).bfloat16().float()
    actions.requires_grad_()
    doubled = [x.detach().double().requires_grad_() for x in (features, actions)]
    wanted = plain(*doubled).squeeze(-1)
    gradient = torch.randn(2, rows, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        found = head(features, actions)
        with torch.no_grad():
            assert torch.equal(head(features, actions), found)
    assert found.shape == wanted.shape and error(found, wanted) < 2e-3
    given = [features, actions, *network.parameters()]
    ours = torch.autograd.grad(found, given, gradient)
    theirs = torch.autograd.grad(wanted, [*doubled, *plain.parameters], gradient.double())
    names = ["features", "actions", *dict(network.named_parameters())]
    for name, one, other in zip(names, ours, theirs, strict=True):
        assert one.shape == other.shape and error(one, other) < 5e-3, name


@pytest.mark.parametrize("device", [emulated, on_gpu])
def test_policies_are_what_is_written(folder: Path, device: str) -> None:
    network = small(Actor, device, (64, 3, 20, 128))
    head, plain, rows = fused(network, folder, device), Plain(network), 9
    features = torch.randn(rows, 64, device=device).bfloat16()
    of_actions, of_probability = torch.randn(rows, 3, device=device), torch.randn(rows).to(device)

    def noise() -> torch.Generator:
        return torch.Generator(device).manual_seed(3)

    with torch.autocast(device, dtype=torch.bfloat16):
        mean, log_std = head(features)
        actions, probability = head.sample(features, noise())
    drawn = torch.randn(rows, 3, generator=noise(), device=device).double()
    wanted_mean, raw = plain(features.double())[0].chunk(2, 1)
    wanted_log_std = -10 + 6 * (torch.tanh(raw) + 1)
    assert error(mean, wanted_mean) < 2e-3 and error(log_std, wanted_log_std) < 2e-3
    wanted = torch.tanh(wanted_mean + drawn * wanted_log_std.exp())
    normal = torch.distributions.Normal(0, 1).log_prob(drawn) - wanted_log_std
    likely = (normal - torch.log(torch.relu(1 - wanted**2) + 1e-6)).sum(-1)
    assert error(actions, wanted) < 2e-3 and error(probability, likely) < 2e-3
    ours = torch.autograd.grad(
        [actions, probability], list(network.parameters()), [of_actions, of_probability]
    )
    theirs = torch.autograd.grad(
        [wanted, likely], plain.parameters, [of_actions.double(), of_probability.double()]
    )
    for (name, _), one, other in zip(network.named_parameters(), ours, theirs, strict=True):
        assert one.shape == other.shape and error(one, other) < 5e-3, name


def test_a_policys_step_asks_for_no_gradient_of_the_critic() -> None:
    head = FusedHead(small(Critic, "cpu", SIZES[0]), no_kernel)
    head.forward = lambda features, actions, kept: actions.sum(1)[None, :, None]  # type: ignore
    head.backward = lambda gradient, kept, of_features: (None, torch.ones(4, 3))  # type: ignore
    head.weight_gradients = no_kernel  # type: ignore[method-assign, assignment]
    actions = torch.zeros(4, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        q = head(torch.zeros(4, 64), actions)
    assert torch.equal(torch.autograd.grad(q.sum(), actions)[0], torch.ones(4, 3))


def test_in_full_precision_torch_computes() -> None:
    critic, actor = small(Critic, "cpu", SIZES[0]), small(Actor, "cpu", SIZES[0])
    features, actions = torch.randn(2, 64), torch.rand(2, 3)
    torch.testing.assert_close(
        FusedHead(critic, no_kernel)(features, actions), critic(features, actions)
    )
    torch.testing.assert_close(FusedHead(actor, no_kernel)(features), actor(features))


def test_which_heads_fit() -> None:
    assert heads.has_right_shape(Critic(64, 6)) and heads.has_right_shape(Actor(64, 6))
    assert not heads.has_right_shape(Critic(63, 6))
    assert not heads.has_right_shape(Critic(64, 6, hidden=100))
    assert not FusedHead.fits(Critic(64, 6)), "it lies on a CPU"
    assert not FusedHead.fits(DeterministicActor(64, 6))


def tiny_agent(device: str, method: str = "svea"):
    config = configure(
        "walker_walk",
        method=method,
        preset="quick",
        overlay_dir="procedural",
        **{"network.hidden": 128},
    )
    return make_agent(config, 2, torch.device(device))


def take(agent, loss_of: Callable[[list[Tensor]], Tensor]) -> dict[str, Tensor]:
    return agent.step("critic", loss_of(agent.optimisers["critic"].param_groups[0]["params"]))


@pytest.mark.parametrize("device", [emulated, on_gpu])
@pytest.mark.parametrize("at_once", [48, 5])
def test_steps_and_targets_are_torchs(folder, device, at_once, monkeypatch):
    monkeypatch.setattr(steps, "AT_ONCE", at_once)  # as if there were more tensors
    ours, theirs = tiny_agent(device), tiny_agent(device)  # whose convolutions are channels last
    for network in (ours.trunk, ours.target_trunk) if at_once == 48 else ():
        for parameter in network.parameters():
            parameter.data = parameter.data.contiguous()
    assert steps.has_right_tensors(ours)
    launch = emulator(folder, steps.SOURCES, {}, STEPS) if device == "cpu" else None
    fast = FusedSteps(ours, launch)
    ours.step, ours.update_target = fast.step, fast.update_target  # type: ignore[method-assign]
    for number in range(4):
        torch.manual_seed(number)
        parameters = ours.optimisers["critic"].param_groups[0]["params"]
        noise = [torch.randn(p.shape, device=device) for p in parameters]  # in torch's own order
        scale = float("inf") if number == 2 else 0.1

        def loss(parameters: list[Tensor], noise=noise, scale=scale) -> Tensor:
            return sum((p * n).sum() for p, n in zip(parameters, noise, strict=True)) * scale

        found, wanted = take(ours, loss), take(theirs, loss)
        torch.testing.assert_close(found["critic_gradient"], wanted["critic_gradient"])
        for agent in (ours, theirs):
            agent.update_target()
        for name in ("trunk", "critic", "target_trunk", "target_critic"):
            pairs = zip(
                getattr(ours, name).parameters(), getattr(theirs, name).parameters(), strict=True
            )
            for one, other in pairs:
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    mine, others = (a.optimisers["critic"].state_dict()["state"] for a in (ours, theirs))
    assert mine[0]["step"] == others[0]["step"] == 3, "the step that was not finite does not count"
    for number in mine:
        for key in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(mine[number][key], others[number][key], rtol=1e-5, atol=1e-8)


class Launched:
    """What runs kernels, and remembers which."""

    def __init__(self, folder: Path, sources: list[Path], macros: dict[str, int], names: list[str]):
        self.run, self.kernels = emulator(folder, sources, macros, names), list[str]()

    def __call__(self, kernel: str, *given: object) -> None:
        self.kernels.append(kernel)
        self.run(kernel, *given)


def by_kernels(method: str, folder: Path, keep: bool):
    """A tiny agent whose heads and steps are emulated; its weights' copies are kept, or are not."""
    agent, found = tiny_agent("cpu", method), []
    for network in (agent.actor, agent.critic, agent.target_critic):
        head = FusedHead(network, no_kernel)
        head.launch = Launched(folder, heads.SOURCES, head.macros(), HEADS)
        network.forward = head
        found.append(head)
    agent.actor.sample = found[0].sample
    launch = Launched(folder, steps.SOURCES, {}, STEPS)
    fast = FusedSteps(agent, launch, found if keep else [])
    agent.step, agent.update_target = fast.step, fast.update_target
    return agent, found


@needs_compiler
@pytest.mark.parametrize("method", ["svea", "madi"])  # the masker steps with the critic, by torch
def test_copies_of_weights_are_kept_up_to_date(folder, method, monkeypatch):
    monkeypatch.setattr(heads, "PACKERS", 3)
    ours, kept = by_kernels(method, folder, True)
    theirs, _ = by_kernels(method, folder, False)
    other = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    for number in range(5):
        if number == 3:  # a state is loaded, as when a run continues
            for agent in (ours, theirs):
                agent.load_state_dict(other)
        elif number:  # a captured update would not have asked either
            assert all(head._copied == head.versions() for head in kept)
        random = torch.Generator().manual_seed(number)
        shape = (2, *ours.trunk.input_shape)
        images = [torch.randint(256, shape, generator=random, dtype=torch.uint8) for _ in range(2)]
        batch = Batch(
            images[0], *(torch.rand(s, generator=random) for s in ((2, 2), 2, 2)), images[1]
        )
        for agent in (ours, theirs):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                agent.update(batch, agent.schedule(number))
        wanted = theirs.state_dict()
        for name, tensor in ours.state_dict().items():
            assert torch.equal(tensor, wanted[name]), f"{name} after {number}"
        for head in kept:
            fresh = head.pack(head.room_for_weights())
            assert all(torch.equal(*pair) for pair in zip(head.packed(), fresh, strict=True))
    packed = [head.launch.kernels.count("pack_heads") for head in kept]
    by_torch = 5 if method == "madi" else 0  # of the critic
    # At the start, for the loaded state, and the five that this test asked for.
    assert packed == [7, 7 + by_torch, 7]
    for head in kept:
        head.check_copies()
        assert head._copies is not None
    with torch.no_grad():
        kept[1]._copies.second[1, 3, 5] += 1  # an optimiser wrote something else
    with pytest.warns(UserWarning, match="packed for every pass"):
        kept[1].check_copies()
    assert torch.equal(kept[1].packed().second, kept[1].pack(kept[1].room_for_weights()).second)
