"""The kernels in C for bfloat16 against plain PyTorch in float64.

Where a processor has no instruction for bfloat16, the same sums are made of float32, so all of
this is tested on every machine that can compile.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from c_kernels import builds, compile_for
from torch import Tensor, nn

from svea import speed
from svea.agents import make_agent
from svea.augment import conv, crop, shift
from svea.bench.noise import noise_replay
from svea.config import configure
from svea.kernels import cpu, cpu_bfloat16, mlp, team
from svea.kernels.cpu_bfloat16 import PairedConvolutions
from svea.kernels.mlp import PairedMLP
from svea.networks import CNN
from svea.networks.heads import MLP
from svea.speed.accelerate import compute_in_c, fast_augmentation
from svea.views import pixels

CPU = torch.device("cpu")
LOW = torch.bfloat16
ROUNDING = 2.0**-8  # of a number, at most, when it is rounded to bfloat16's 8 bits
SUM = 2.0**-24  # of what a sum of float32 adds up, for each number added
torch.set_num_threads(1)

pytestmark = builds

SIZES = [
    ({"image_size": 48, "layers": 4, "filters": 16, "strided_layers": 2}, 37),  # quick
    ({"image_size": 27, "layers": 3, "filters": 16, "strided_layers": 1, "drqv2": True}, 3),
    ({"image_size": 16, "layers": 2, "channels": 3, "filters": 16, "strided_layers": 0}, 1),
    ({"image_size": 17, "layers": 1, "filters": 16, "strided_layers": 1}, 40),
    ({"image_size": 25, "layers": 3, "filters": 32, "strided_layers": 2}, 17),  # two vectors
]


def in_low() -> torch.autocast:
    return torch.autocast("cpu", LOW, cache_enabled=False)


def random_numbers(shape: Any, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def fill(network: nn.Module) -> Any:
    """Random weights: those of a new network are zeros but for the centre."""
    for number, parameter in enumerate(network.parameters()):
        size = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else 0.1
        parameter.data.copy_(size * random_numbers(parameter.shape, number))
    return network


def outcome(
    forward: Callable[[Tensor], Tensor], x: Tensor, parameters: list[Tensor]
) -> list[Tensor]:
    """Outputs, and gradients of a loss that weighs every one differently, by rounded numbers."""
    y = forward(x)
    slopes = random_numbers(y.shape, 98).to(LOW).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, parameters, slopes)]


def rounded_layers(trunk: CNN, images: Tensor) -> Tensor:
    """Every layer in float64; what it takes, and the slopes it gives back, are rounded."""
    x = images - trunk.centre
    for layer in trunk.layers:
        if isinstance(layer, nn.Conv2d):
            x = F.conv2d(x.to(LOW).double(), layer.weight, layer.bias, layer.stride)
        else:
            x = x.relu()
    return x.flatten(1)


def rounded_weights(network: Any) -> Any:
    """A copy in float64 whose matrices are rounded, as kernels round them; biases are not."""
    exact = copy.deepcopy(network).double()
    for parameter in exact.parameters():
        if parameter.ndim > 1:
            parameter.data = parameter.data.float().to(LOW).double()
    return exact


# Layers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "batch"), SIZES)
def test_layers_and_their_gradients(sizes: dict[str, Any], batch: int) -> None:
    """With the same roundings in float64, what is left is that of sums.

    A sum's rounding in float32 moves few numbers to another bfloat16: 0.1 % of the norm is ten
    times what was seen, and a quarter of the rounding of a single number.
    """
    trunk = fill(CNN(**sizes))
    images = torch.rand(batch, *trunk.input_shape, requires_grad=True)  # as behind a masker
    exact, doubled = rounded_weights(trunk), images.detach().double().requires_grad_(True)
    wanted = outcome(lambda x: rounded_layers(exact, x), doubled, [doubled, *exact.parameters()])
    with in_low():
        ours = outcome(PairedConvolutions(trunk), images, [images, *trunk.parameters()])
    for number, (right, mine) in enumerate(zip(wanted, ours, strict=True)):
        assert mine.dtype == torch.float32 and mine.shape == right.shape
        # The images' gradient is the library's: of rounded weights, and rounded itself.
        bound = 0.001 + (2 * ROUNDING if number == 1 else 0)
        assert (mine - right).norm() <= bound * right.norm(), number


def test_one_layer_is_within_the_bounds_of_rounding() -> None:
    """Each product of rounded numbers is off by 2^-7 of itself, then sums round."""
    trunk = fill(CNN(image_size=21, layers=1, filters=16, strided_layers=1))
    trunk.layers[0].bias.data.zero_()  # it is added in float32
    images = random_numbers((6, 9, 21, 21), 5)
    with in_low():
        features = PairedConvolutions(trunk)(images)
        slopes = random_numbers(features.shape, 6)
        dw, dbias = torch.autograd.grad(features, list(trunk.parameters()), slopes)
    x, w = images.double(), trunk.layers[0].weight.detach().double()
    g = slopes.double().view(6, 16, 10, 10)
    product = (1 + ROUNDING) ** 2 - 1

    off = (features.double() - F.conv2d(x, w, stride=2).flatten(1)).abs()
    assert (off <= (product + 81 * SUM) * F.conv2d(x.abs(), w.abs(), stride=2).flatten(1)).all()
    right, most = (
        torch.nn.grad.conv2d_weight(a, w.shape, b, stride=2)
        for a, b in ((x, g), (x.abs(), g.abs()))
    )
    assert ((dw.double() - right).abs() <= (product + 600 * SUM) * most).all()
    right, most = g.sum((0, 2, 3)), g.abs().sum((0, 2, 3))
    assert ((dbias.double() - right).abs() <= (ROUNDING + 600 * SUM) * most).all()


@pytest.mark.parametrize("options", ["-mno-avx512bf16", "-mno-avx512f"])
def test_without_the_instruction_the_numbers_are_the_same(
    options: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two fused multiply-adds round as the instruction does; with vectors of 8, too."""
    trunk, head = fill(CNN(*(9, 24, 3, 16, 2))), fill(MLP(51, 64, 3))
    images, x = torch.rand(5, 9, 24, 24), random_numbers((13, 51), 3)
    weight = random_numbers((5, 3, 3, 3, 3), 4)

    def numbers() -> list[Tensor]:
        with in_low():
            strong = cpu.random_convolution(images.to(LOW), weight)
            layers = outcome(PairedConvolutions(trunk), images, list(trunk.parameters()))
            return [strong, *layers, *outcome(PairedMLP(head), x, list(head.parameters()))]

    before = numbers()
    compile_for(options, [cpu, cpu_bfloat16, mlp], monkeypatch, tmp_path)
    assert not cpu_bfloat16.has_instruction()
    for number, (one, other) in enumerate(zip(before, numbers(), strict=True)):
        if options == "-mno-avx512bf16":  # the same vectors: the same order of all sums
            assert torch.equal(one, other), number
        else:
            torch.testing.assert_close(other, one, rtol=1e-2, atol=1e-4 * float(one.abs().max()))


def test_the_result_does_not_depend_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trunk, head = fill(CNN(image_size=24, layers=3, filters=16)), fill(MLP(56, 64, 2))
    images, x = torch.rand(70, 9, 24, 24), random_numbers((70, 56), 3)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(team, "threads", lambda count=threads: count)
        with in_low():
            layers = outcome(PairedConvolutions(trunk), images, list(trunk.parameters()))
            found.append(layers + outcome(PairedMLP(head), x, list(head.parameters())))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_features_without_a_gradient_are_the_same() -> None:
    trunk = fill(CNN(image_size=24, layers=3, filters=16))
    fused, images = PairedConvolutions(trunk), torch.rand(35, 9, 24, 24)
    with in_low():
        wanted = fused(images)
        with torch.no_grad():
            assert torch.equal(fused(images), wanted)
            assert torch.equal(fused(images.to(LOW)), wanted), "pixels are rounded in any case"
            assert torch.equal(fused(images[:1]), wanted[:1])
            channels_last = images.to(memory_format=torch.channels_last)
            assert torch.equal(fused(channels_last), wanted)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.nan])
def test_numbers_that_are_not_finite_show(bad: float) -> None:
    trunk, head = fill(CNN(image_size=24, layers=3, filters=16)), fill(MLP(56, 64, 2))
    images, x = torch.rand(3, 9, 24, 24), random_numbers((3, 56), 3)
    images[0, 0, 10, 10] = x[0, 5] = bad
    with in_low():
        for kernels, network, given in (
            (PairedConvolutions(trunk), trunk, images),
            (PairedMLP(head), head, x),
        ):
            y, *gradients = outcome(kernels, given, list(network.parameters()))
            assert not y[0].isfinite().all() and y[1:].isfinite().all()
            assert not gradients[0].isfinite().all()


def test_out_of_autocast_float32_is_computed_as_it_is_written() -> None:
    trunk, head = fill(CNN(image_size=24, layers=3, filters=16)), fill(MLP(56, 64, 2))
    images, x = torch.rand(2, 9, 24, 24), random_numbers((2, 56), 3)
    assert torch.equal(PairedConvolutions(trunk)(images), CNN.forward(trunk, images))
    assert torch.equal(PairedMLP(head)(x), MLP.forward(head, x))
    fused = PairedConvolutions(trunk)
    with in_low():  # sizes that the kernels are not made for
        larger = torch.rand(2, 9, 30, 30)
        assert torch.equal(fused(larger), CNN.forward(trunk, larger))
        trunk.double()
        assert torch.equal(fused(images.double()), CNN.forward(trunk, images.double()))


def test_copied_networks_compute_with_their_own_weights() -> None:
    agent = learner("compiled").agent
    features = random_numbers((2, agent.trunk.features), 3)
    images = torch.rand(2, *agent.trunk.input_shape)
    for network, given in ((agent.trunk, (images,)), (agent.actor, (features,))):
        twin = copy.deepcopy(network)
        with in_low(), torch.no_grad():
            before = network(*given)
            for parameter in twin.parameters():
                parameter.data.zero_()
            for one, other, again in zip(before, network(*given), twin(*given), strict=True):
                assert torch.equal(one, other) and not torch.equal(one, again)


# Heads --------------------------------------------------------------------------------------------


def rounded_mlp(exact: MLP, x: Tensor) -> Tensor:
    """In float64; only the hidden layers' matrices are rounded, and what they take and make."""
    first, second = (layer for layer in exact.hidden if isinstance(layer, nn.Linear))
    h = F.linear(x.to(LOW).double(), first.weight, first.bias).relu()
    h = F.linear(h.to(LOW).double(), second.weight, second.bias).relu()
    return exact.output(h.to(LOW).double())


@pytest.mark.parametrize(
    ("batch", "inputs", "hidden", "outputs"),
    [(256, 56, 256, 1), (100, 50, 256, 12), (1, 51, 64, 3), (9, 32, 128, 2), (7, 33, 64, 1)],
)
def test_hidden_layers_and_their_gradients(
    batch: int, inputs: int, hidden: int, outputs: int
) -> None:
    head = fill(MLP(inputs, hidden, outputs))
    x = random_numbers((batch, inputs), 7).requires_grad_(True)
    exact, doubled = rounded_weights(head), x.detach().double().requires_grad_(True)
    exact.output.weight.data = head.output.weight.data.double()
    parameters = [*exact.parameters()]
    wanted = outcome(lambda given: rounded_mlp(exact, given), doubled, [doubled, *parameters])
    with in_low():
        ours = outcome(PairedMLP(head), x, [x, *head.parameters()])
    for number, (right, mine) in enumerate(zip(wanted, ours, strict=True)):
        assert mine.dtype == torch.float32 and mine.shape == right.shape
        bound = 0.001 + (ROUNDING if number == 1 else 0)  # dx is not rounded, and right is
        assert (mine - right).norm() <= bound * right.norm(), number


def test_only_what_was_measured_fits() -> None:
    assert PairedMLP.fits(MLP(50, 512, 1)) and not PairedMLP.fits(MLP(50, 1024, 1))
    assert not PairedMLP.fits(MLP(50, 40, 1)) and not PairedMLP.fits(nn.Linear(2, 2))


# Views --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 9, 16, 16), (2, 3, 4, 41), (3, 6, 39, 17), (1, 9, 84, 84)])
def test_the_random_convolution(shape: tuple[int, ...]) -> None:
    """A sigmoid is at most a quarter as steep as its argument."""
    x = torch.rand(shape).to(LOW)
    weight = conv.draw(x, torch.Generator().manual_seed(0))["weight"]
    padded = F.pad(x.double(), (1, 1, 1, 1), mode="replicate")

    def convolved(pictures: Tensor, filters: Tensor) -> Tensor:
        return torch.cat(
            [
                torch.cat([F.conv2d(frame[None], w) for frame in sample.split(3)], dim=1)
                for sample, w in zip(pictures, filters, strict=True)
            ]
        )

    sums, most = convolved(padded, weight.double()), convolved(padded, weight.double().abs())
    found = fast_augmentation(conv, CPU, LOW).apply(x, {"weight": weight})
    assert found.dtype == LOW and found.shape == x.shape
    bound = 0.25 * (ROUNDING + 27 * SUM) * most + (ROUNDING + 1e-4) * sums.sigmoid()
    assert ((found.double() - sums.sigmoid()).abs() <= bound * (1 + 2 * ROUNDING)).all()


def test_the_sigmoid_of_any_number() -> None:
    values = torch.cat([torch.linspace(-120, 120, 32_000), torch.randn(768)]).view(1, 2, 128, 128)
    x = torch.cat([values, torch.zeros(1, 1, 128, 128)], dim=1).to(LOW)
    weight = torch.zeros(1, 3, 3, 3, 3)
    weight[0, 0, 0, 1, 1] = weight[0, 1, 1, 1, 1] = 1.0
    found, wanted = cpu.random_convolution(x, weight)[:, :2], x[:, :2].double().sigmoid()
    torch.testing.assert_close(found.double(), wanted, rtol=ROUNDING + 1e-4, atol=2e-38)
    x[0, 0, 5, 5] = torch.nan
    found = cpu.random_convolution(x, weight)
    assert found[0, 0, 5, 5].isnan() and found[0, 0, 50, 50].isfinite()


@pytest.mark.parametrize(("rows", "columns", "pad"), [(40, 40, 2), (16, 21, 0), (3, 2, 9)])
def test_windows_of_pixels_are_those_of_bytes(rows: int, columns: int, pad: int) -> None:
    """To the last bit, for every byte."""
    random = torch.Generator().manual_seed(rows)
    x = torch.randint(0, 256, (45, 9, rows, columns), generator=random).byte()
    x.view(-1)[:256] = torch.arange(256).byte()
    for augment, options in ((shift, {"pad": pad}), (crop, {"size": min(rows, columns) - 1})):
        draw = augment.draw(x, random, **options)
        with in_low():
            wanted = pixels(augment.apply(x, draw))
        found = fast_augmentation(augment, CPU, LOW).apply(x, draw)
        assert found.dtype == wanted.dtype == LOW and torch.equal(found, wanted)


# Whole updates ------------------------------------------------------------------------------------


def learner(how: str, precision: torch.dtype = LOW, **changes: Any) -> speed.Learner:
    settings = {"overlay_dir": "procedural", "batch_size": 32, "image_size": 24, "shift": 1}
    sizes = {"layers": 3, "filters": 16, "projection": 8, "hidden": 64}
    config = configure("walker_walk", preset="quick", **(settings | {"network": sizes} | changes))
    replay = noise_replay(config, CPU, decisions=200)
    agent = make_agent(config, 4 if config.base == "dqn" else 6)
    return speed.Learner(agent, replay, config.batch_size, speed=how, precision=precision)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "soda"},
        {"method": "curl"},
        {"method": "pad"},
        {"method": "sgqn"},
        {"mask": "madi"},
        {"method": "sada", "encoder": "drqv2", "augment": "conv|blur"},
        {"base": "dqn", "action_bins": 2},
        {"encoder": "frames", "network": {"layers": 4, "filters": 32, "frame_layers": 2}},
        {"encoder": "vit", "network": {"width": 16, "depth": 1, "heads": 2, "hidden": 16}},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "svea",
)
def test_updates_in_bfloat16_are_those_in_float32(settings: dict[str, Any]) -> None:
    """From one state, with the same draws: losses of numbers around 1, within 8 bits' rounding."""
    exact, low = learner("eager", torch.float32, **settings), learner("compiled", **settings)
    for decision in range(2):
        wanted, found = exact.step(decision), low.step(decision)
        for name in (name for name in wanted if name.endswith("_loss")):
            torch.testing.assert_close(found[name], wanted[name], rtol=0.03, atol=0.03, msg=name)


def test_every_network_that_fits_is_computed_by_kernels() -> None:
    agent = learner("compiled").agent
    for network in (agent.trunk, agent.target_trunk):
        assert isinstance(network.forward, PairedConvolutions)
    for critic in (agent.critic, agent.target_critic):
        assert isinstance(critic.q1.forward, PairedMLP) and isinstance(critic.q2.forward, PairedMLP)
    assert isinstance(agent.actor.mlp.forward, PairedMLP)


def test_a_run_resumes_bit_for_bit() -> None:
    one, two = learner("compiled"), learner("compiled", seed=5)
    for decision in range(4):
        one.step(decision)
    two.agent.load_state_dict({k: v.clone() for k, v in one.agent.state_dict().items()})
    two.replay.generator.set_state(one.replay.generator.get_state())
    for decision in range(4, 9):
        one.step(decision)
        two.step(decision)
    after = two.agent.state_dict()
    for name, tensor in one.agent.state_dict().items():
        assert torch.equal(tensor, after[name]), name


# What does not work here is said ------------------------------------------------------------------


def test_a_processor_without_the_instruction_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_bfloat16, "has_instruction", lambda: False)
    trunk = CNN(image_size=24, layers=3, filters=16)
    with pytest.warns(UserWarning, match=r"no instruction for it \(AVX512_BF16\).*float32"):
        compute_in_c([trunk], LOW)
    assert isinstance(trunk.forward, PairedConvolutions), "the same numbers, made of float32"


@pytest.mark.parametrize("wrong", [0, 1])
def test_kernels_that_compute_something_else_are_not_used(
    wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs (0) and gradients (1) are compared with plain PyTorch when a run starts."""
    calls = itertools.count()

    def call(function: Any, *given: Any) -> None:
        cpu.call(function, *given)
        if next(calls) == wrong:
            tensor = given[3] if wrong == 0 else given[4]
            tensor.mul_(1.1)

    monkeypatch.setattr(cpu_bfloat16, "call", call)
    trunk = fill(CNN(image_size=24, layers=3, filters=16))
    with pytest.warns(UserWarning, match=r"not used, and updates take longer: on trial they were"):
        compute_in_c([trunk], LOW)
    assert not isinstance(trunk.forward, PairedConvolutions)
