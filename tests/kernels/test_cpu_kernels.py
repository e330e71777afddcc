"""The convolutions in C against the library's, in double precision where it decides."""

import contextlib
import copy
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from c_kernels import builds, compile_for
from torch import Tensor

from svea import speed
from svea.agents import make_agent
from svea.augment import conv, crop, shift
from svea.bench import noise_replay
from svea.config import configure
from svea.core.errors import UserError
from svea.kernels import cpu
from svea.kernels.cpu import join_views
from svea.networks import CNN
from svea.speed.accelerate import fast_augmentation
from svea.views import pixels

CPU = torch.device("cpu")


def network(**sizes: Any) -> CNN:
    """A trunk of small whole numbers: all sums are exact, whatever their order."""
    made = CNN(**({"image_size": 24, "layers": 3, "filters": 16, "strided_layers": 2} | sizes))
    for number, parameter in enumerate(made.parameters()):
        parameter.data.copy_(whole_numbers(parameter.shape, number, dense=0.15))
    return made


def whole_numbers(shape: Any, seed: int, dense: float = 1.0) -> Tensor:
    """-1, 0 and 1, some of them dropped."""
    random = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-1, 2, shape, generator=random).float()
    return numbers * (torch.rand(shape, generator=random) < dense)


def pictures(trunk: CNN, batch: int) -> Tensor:
    return whole_numbers((batch, *trunk.input_shape), seed=99) + 1


def outcome(forward: Any, images: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """Features, and the gradients of a loss that weighs every one of them differently."""
    features = forward(images)
    weights = whole_numbers(features.shape, seed=98, dense=0.5)
    gradients = torch.autograd.grad((features * weights).sum(), parameters)
    return [features.detach(), *gradients]


def check_exact(kernels: cpu.Convolutions, trunk: CNN, batch: int, below: int = 2**24) -> None:
    """Features and all gradients to the last bit; also of images, as behind a masker."""
    images = pictures(trunk, batch).requires_grad_(True)
    exact, doubled = copy.deepcopy(trunk).double(), images.detach().double().requires_grad_(True)
    wanted = outcome(exact, doubled, [doubled, *exact.parameters()])
    ours = outcome(kernels, images, [images, *trunk.parameters()])
    for right, mine in zip(wanted, ours, strict=True):
        assert 0 < right.abs().max() < below, "else the sums are not exact in float32"
        assert torch.equal(mine.double(), right)


# Layers -------------------------------------------------------------------------------------------


@builds
@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        ({"image_size": 48, "layers": 4, "filters": 16, "strided_layers": 2}, 37),  # quick
        ({"image_size": 40, "layers": 4, "strided_layers": 1, "drqv2": True}, 3),
        ({"image_size": 16, "layers": 2, "channels": 3, "strided_layers": 0}, 1),
        ({"image_size": 16, "layers": 1, "strided_layers": 1}, 40),
        ({"image_size": 33, "layers": 3, "filters": 32, "strided_layers": 1}, 17),  # two vectors
    ],
)
def test_layers_and_their_gradients(sizes: dict[str, Any], batch: int) -> None:
    trunk = network(**sizes)
    check_exact(cpu.Convolutions(trunk), trunk, batch)


@builds
def test_vectors_of_eight_are_exact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before AVX-512: tiles of one and of two vectors, weight gradients a few rows at a time."""
    compile_for("-mno-avx512f", monkeypatch, tmp_path)
    monkeypatch.setattr(cpu, "TILED_FROM", 999)
    names = ("image_size", "layers", "filters", "strided_layers")
    shapes = [(40, 4, 16, 2), (48, 4, 16, 2), (30, 3, 16, 2), (33, 3, 32, 1), (50, 3, 32, 0)]
    for shape in shapes:
        trunk = network(**dict(zip(names, shape, strict=True)))
        check_exact(cpu.Convolutions(trunk), trunk, batch=3)


@builds
@pytest.mark.parametrize("filters", [16, 32])
@pytest.mark.parametrize(
    ("image_size", "layers", "batch"),
    [(10, 2, 1), (11, 2, 3), (15, 3, 16), (17, 3, 18), (24, 4, 33), (40, 5, 2)],
)
def test_tiles_are_exact_at_every_size(image_size, layers, batch, filters, monkeypatch):
    """Winograd's halves and quarters of whole numbers: still no rounding, even or odd sizes."""
    monkeypatch.setattr(cpu, "TILED_FROM", 4)
    trunk = network(image_size=image_size, layers=layers, strided_layers=1, filters=filters)
    kernels = cpu.Convolutions(trunk)
    assert [layer.tiled for layer in kernels.layers] == [False] + [True] * (layers - 1)
    check_exact(kernels, trunk, batch, below=2**20)


@builds
@pytest.mark.parametrize(
    ("image_size", "layers", "filters", "batch"),
    [(41, 3, 32, 3), (40, 4, 16, 5), (29, 2, 16, 17), (64, 6, 32, 1)],
)
def test_tiles_round_like_plain_sums(image_size, layers, filters, batch, monkeypatch):
    """Fresh numbers in double precision. 144 or 288 products and a tile's additions, each rounded
    to 6e-8 of at most four times a sum's size, some 20 roundings deep: 3e-6 leaves room."""
    trunk = CNN(image_size=image_size, layers=layers, filters=filters, strided_layers=1)
    random = torch.Generator().manual_seed(image_size)
    for parameter in trunk.parameters():
        scale = (2 / (9 * filters)) ** 0.5 if parameter.ndim == 4 else 0.1
        parameter.data.copy_(torch.randn(parameter.shape, generator=random) * scale)
    images = torch.rand(batch, *trunk.input_shape, generator=random)
    exact, tiled = copy.deepcopy(trunk).double(), cpu.Convolutions(trunk)
    monkeypatch.setattr(cpu, "TILED_FROM", 999)
    plain = cpu.Convolutions(trunk)
    assert any(layer.tiled for layer in tiled.layers)
    assert not any(layer.tiled for layer in plain.layers)
    wanted = outcome(exact, images.double(), list(exact.parameters()))
    for kernels in (tiled, plain):
        found = outcome(kernels, images, list(trunk.parameters()))
        for right, mine in zip(wanted, found, strict=True):
            assert (mine.double() - right).abs().max() <= 3e-6 * right.abs().max()


@builds
def test_a_gradient_of_zero_stays_zero() -> None:
    """Adam makes whole steps of what rounding leaves there: with tiles in 0.6 % of the weights."""
    torch.manual_seed(0)
    trunk = CNN(image_size=45, layers=5)  # delta-orthogonal: many filters meet nothing at a tap
    kernels, exact = cpu.Convolutions(trunk), copy.deepcopy(trunk).double()
    assert any(layer.tiled for layer in kernels.layers)
    images = torch.rand(2, *trunk.input_shape, generator=torch.Generator().manual_seed(0))
    wanted = outcome(exact, images.double(), list(exact.parameters()))[1:]
    found = outcome(kernels, images, list(trunk.parameters()))[1:]
    zeros = torch.cat([(gradient == 0).flatten() for gradient in wanted])
    ours = torch.cat([(gradient == 0).flatten() for gradient in found])
    assert 0.02 < zeros.float().mean() < 0.9
    assert (ours != zeros).float().mean() < 1e-3


@builds
@pytest.mark.parametrize("batch", [1, 15, 16, 50])
@pytest.mark.parametrize("layers", [1, 3])
def test_features_without_a_gradient_are_the_same(layers: int, batch: int) -> None:
    """Then only the last layer's output of every picture is kept."""
    trunk = network(image_size=32, layers=layers, strided_layers=1)
    fused, images = cpu.Convolutions(trunk), torch.rand(batch, *trunk.input_shape)
    with torch.no_grad():
        found = fused(images)
    wanted = fused(images)
    assert wanted.requires_grad and not found.requires_grad
    assert torch.equal(found, wanted)


@builds
def test_gradients_lie_in_memory_like_their_parameters() -> None:
    """The fused optimiser walks through both as if they were one long row."""
    trunk = network()
    parameters = list(trunk.parameters())
    found = outcome(cpu.Convolutions(trunk), pictures(trunk, 2), parameters)[1:]
    assert [g.stride() for g in found] == [p.stride() for p in parameters]
    assert [g.shape for g in found] == [p.shape for p in parameters]


@builds
@pytest.mark.parametrize("filters", [16, 32])
def test_the_number_of_threads_changes_no_bit(filters, monkeypatch):
    monkeypatch.setattr(cpu, "TILED_FROM", 8)
    trunk = network(strided_layers=1, filters=filters)
    parameters, images = list(trunk.parameters()), torch.rand(67, *trunk.input_shape)
    fused = cpu.Convolutions(trunk)
    weight, bytes_ = torch.randn(67, 3, 3, 3, 3), torch.randint(0, 256, (67, 9, 24, 24)).byte()
    corner = torch.randint(0, 5, (67, 2))

    def everything() -> list[Tensor]:
        return [
            *outcome(fused, images, parameters),
            cpu.random_convolution(images, weight),
            cpu.window_pixels(bytes_, corner, 24, 24, 2),
        ]

    monkeypatch.setattr(cpu, "threads", lambda: 1)
    one = everything()
    for count in (2, 3, 99):
        monkeypatch.setattr(cpu, "threads", lambda count=count: count)
        for of_torch in (1, 2):
            with torch_threads(of_torch):
                found = everything()
            assert all(torch.equal(a, b) for a, b in zip(one, found, strict=True)), count


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads of torch's own; with several, the kernels are shared with them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


@builds
def test_pictures_with_other_layouts_and_slices_are_read_right() -> None:
    trunk = network()
    fused, images = cpu.Convolutions(trunk), torch.rand(4, *trunk.input_shape)
    wanted = fused(images)
    assert torch.equal(fused(images.to(memory_format=torch.channels_last)), wanted)
    assert torch.equal(fused(torch.cat([images, images])[4:]), wanted)
    assert torch.equal(fused(images.repeat_interleave(2, 0)[::2]), wanted)


@builds
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("tiled_from", [6, 99])
def test_numbers_that_are_not_finite_show(bad, tiled_from, monkeypatch):
    """A ReLU that swallowed NaN would hide a broken run from the check of its gradients."""
    monkeypatch.setattr(cpu, "TILED_FROM", tiled_from)
    trunk = network(strided_layers=1)
    images = torch.rand(2, *trunk.input_shape)
    images[0, 0, 10, 10] = bad
    features, *gradients = outcome(cpu.Convolutions(trunk), images, list(trunk.parameters()))
    assert not features[0].isfinite().all() and features[1].isfinite().all()
    assert not gradients[0].isfinite().all()


@builds
@pytest.mark.parametrize("shape", [(4, 9, 32, 32), (4, 6, 40, 40), (9, 40, 40), (2, 9, 40, 40)])
def test_what_the_kernels_do_not_compute_is_the_library_s_to_take_or_refuse(shape):
    """They may come from a user's augmentation; the kernels would read beyond them."""
    trunk = network(image_size=40, layers=4)
    forward, images = cpu.Convolutions(trunk), torch.rand(shape)
    if shape[1:] == trunk.input_shape:
        trunk, images = trunk.double(), images.double()
    try:
        wanted = CNN.forward(trunk, images)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error)[:30])):
            forward(images)
    else:
        assert torch.equal(forward(images), wanted)


@builds
def test_a_copied_network_computes_with_its_own_weights() -> None:
    trunk = network()
    trunk.forward = cpu.Convolutions(trunk)  # type: ignore[method-assign]
    images, twin = torch.rand(2, *trunk.input_shape), copy.deepcopy(trunk)
    before = trunk(images)
    assert before.any()
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert torch.equal(trunk(images), before)
    assert not twin(images).any()


def test_only_narrow_cnns_fit() -> None:
    assert cpu.Convolutions.fits(network()) and cpu.Convolutions.fits(network(filters=32))
    assert not cpu.Convolutions.fits(network(filters=64))
    assert not cpu.Convolutions.fits(network(filters=8))
    assert not cpu.Convolutions.fits(network(channels=48)), "of six pictures more than one pass"
    assert not cpu.Convolutions.fits(torch.nn.Linear(2, 2))


# The random convolution ---------------------------------------------------------------------------


@builds
@pytest.mark.parametrize("shape", [(5, 9, 16, 16), (2, 3, 4, 41), (3, 6, 39, 17), (1, 9, 84, 84)])
def test_the_random_convolution(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape)
    weight = conv.draw(x, torch.Generator().manual_seed(0))["weight"]
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate").double()
    wanted = torch.cat(
        [
            torch.cat([F.conv2d(frame[None], w.double()) for frame in sample.split(3)], dim=1)
            for sample, w in zip(padded, weight, strict=True)
        ]
    ).sigmoid()
    torch.testing.assert_close(
        cpu.random_convolution(x, weight).double(), wanted, rtol=0, atol=1e-6
    )
    last = x.to(memory_format=torch.channels_last)
    assert torch.equal(cpu.random_convolution(last, weight), cpu.random_convolution(x, weight))


@builds
def test_conv_uses_it_only_where_it_is_put_on_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "random_convolution", lambda x, weight: torch.full_like(x, 0.5))
    x = torch.rand(2, 9, 20, 20)
    draw = conv.draw(x)
    fast = fast_augmentation(conv, CPU)
    assert (fast.apply(x, draw) == 0.5).all()
    for other in (x[..., :15], x.half()):  # too narrow, another kind
        assert not (fast.apply(other, draw) == 0.5).all()
    assert not (conv.apply(x, draw) == 0.5).all()


@builds
def test_the_sigmoid_of_any_number() -> None:
    """In double precision, from where it underflows to where it is 1; NaN is not hidden."""
    values = torch.cat([torch.linspace(-120, 120, 32_000), torch.randn(768)]).view(1, 2, 128, 128)
    x = torch.cat([values, torch.zeros(1, 1, 128, 128)], dim=1)
    weight = torch.zeros(1, 3, 3, 3, 3)
    weight[0, 0, 0, 1, 1] = weight[0, 1, 1, 1, 1] = 1.0
    found, wanted = cpu.random_convolution(x, weight)[:, :2], values.double().sigmoid()
    torch.testing.assert_close(found.double(), wanted, rtol=5e-7, atol=1e-37)
    x[0, 0, 5, 5] = torch.nan
    found = cpu.random_convolution(x, weight)
    assert found[0, 0, 5, 5].isnan() and found[0, 0, 50, 50].isfinite()


@builds
@pytest.mark.parametrize(
    ("rows", "columns", "pad"), [(40, 40, 2), (16, 21, 0), (7, 5, 4), (3, 2, 9), (84, 84, 4)]
)
def test_windows_of_pixels_are_shifted_bytes_divided_by_255(rows, columns, pad):
    """To the last bit, for every byte and every corner."""
    random = torch.Generator().manual_seed(rows)
    x = torch.randint(0, 256, (45, 9, rows, columns), generator=random).byte()
    draw = shift.draw(x, random, pad=pad)
    wanted = shift.apply(x, draw).float() / 255
    found = fast_augmentation(shift, CPU).apply(x, draw)
    assert found.dtype == torch.float32 and torch.equal(found, wanted)
    gaps = x[:, :, ::2]  # not contiguous
    assert torch.equal(
        fast_augmentation(shift, CPU).apply(gaps, draw), shift.apply(gaps, draw).float() / 255
    )
    draw = crop.draw(x, random, size=min(rows, columns) - 1)
    found = fast_augmentation(crop, CPU).apply(x, draw)
    assert torch.equal(found, crop.apply(x, draw).float() / 255)


@builds
def test_every_byte_is_divided_as_torch_divides() -> None:
    x = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    found = cpu.window_pixels(x, torch.zeros(1, 2, dtype=torch.int64), 16, 16, 0)
    assert torch.equal(found, pixels(x))


@builds
def test_views_that_lie_side_by_side_are_joined_without_a_copy() -> None:
    x = torch.randint(0, 256, (5, 9, 20, 20)).byte()
    weak = fast_augmentation(shift, CPU)(x, torch.Generator().manual_seed(0))
    before, draw = weak.clone(), conv.draw(weak)
    strong = fast_augmentation(conv, CPU).apply(weak, draw)
    joined = join_views([weak, strong])
    assert torch.equal(weak, before) and joined.data_ptr() == weak.data_ptr()
    assert torch.equal(joined, torch.cat([weak, strong]))
    again = fast_augmentation(conv, CPU).apply(weak, draw)  # the room is taken
    for views in ([weak, again], [strong, weak], [weak, strong, again], [weak, weak], [weak]):
        assert torch.equal(join_views(views), torch.cat(views))


# Whole updates ------------------------------------------------------------------------------------


def learner(how: str, **changes: Any) -> speed.Learner:
    settings = {"overlay_dir": "procedural", "batch_size": 12, "image_size": 24, "shift": 1}
    sizes = {"layers": 3, "filters": 16, "projection": 8, "hidden": 16}
    config = configure("walker_walk", preset="quick", **(settings | {"network": sizes} | changes))
    replay = noise_replay(config, CPU, decisions=200)
    actions = 4 if config.base == "dqn" else 6
    return speed.Learner(make_agent(config, actions), replay, config.batch_size, speed=how)


@builds
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"image_size": 33, "network": {"layers": 4, "filters": 32, "strided_layers": 1}},  # tiles
        {"method": "soda", "augment": "conv"},  # its pictures may be a level of 255 away
        {"method": "curl"},
        {"method": "sada", "encoder": "drqv2", "augment": "conv|blur"},
        {"base": "dqn", "action_bins": 2},
        {"encoder": "frames", "network": {"layers": 4, "filters": 32, "frame_layers": 2}},
        {"encoder": "vit", "network": {"width": 16, "depth": 1, "heads": 2, "hidden": 16}},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "svea",
)
def test_compiled_updates_are_the_eager_ones(settings: dict[str, Any]) -> None:
    """From one state, with the same draws."""
    eager, compiled = learner("eager", **settings), learner("compiled", **settings)
    # SODA's batch norm leaves biases before it without a slope; Adam makes whole steps of what
    # rounding puts there, so that only the first update is comparable.
    for decision in range(1 if settings.get("method") == "soda" else 5):
        first, second = eager.step(decision), compiled.step(decision)
        for name, loss in first.items():
            torch.testing.assert_close(second[name], loss, rtol=1e-4, atol=1e-5, msg=name)


@builds
def test_the_part_of_encoder_frames_that_fits_is_computed_in_c() -> None:
    agent = learner("compiled", encoder="frames", network={"layers": 4, "filters": 32}).agent
    assert isinstance(agent.trunk.single.forward, cpu.Convolutions), "16 filters on three channels"
    assert not isinstance(agent.trunk.joint.forward, cpu.Convolutions)


@builds
def test_soda_s_slow_trunk_is_compiled_too() -> None:
    parts = [
        part
        for module in learner("compiled", method="soda", augment="conv").agent.networks.values()
        for part in module.modules()
        if isinstance(part, CNN)
    ]
    assert len(parts) == 3, "trunk, target and slow trunk"
    assert all(isinstance(part.forward, cpu.Convolutions) for part in parts)


@builds
def test_a_compiled_run_resumes_bit_for_bit() -> None:
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


# Building -----------------------------------------------------------------------------------------


def test_the_parts_of_the_source_are_known() -> None:
    """Else a run would load kernels that an older source made: `svea.core.compiled`."""
    included = re.findall(r'#include "(.+)"', cpu.SOURCE.read_text())
    assert {part.name for part in cpu.PARTS} == {cpu.SOURCE.name, *included}


@builds
@pytest.mark.parametrize(
    ("compiler", "cache", "reason"),
    [
        (None, "cache", r"a C compiler \(gcc\) is not installed"),
        ("/bin/false", "cache", "false says:"),
        ("/bin/true", "file", "file.*XDG_CACHE_HOME"),
        ("", "cache", "no function random_convolution"),  # of another library
    ],
)
def test_without_usable_kernels_compiled_is_refused(tmp_path, monkeypatch, compiler, cache, reason):
    (tmp_path / "file").write_text("where a folder should be")
    (tmp_path / "other.c").write_text("int other;\n")
    monkeypatch.setattr(cpu, "library", cpu.library.__wrapped__)  # no earlier build hides it
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    if compiler == "":
        monkeypatch.setattr(cpu, "PARTS", (tmp_path / "other.c",))
    else:
        monkeypatch.setattr(shutil, "which", lambda name: compiler)
    with pytest.warns(UserWarning, match=reason):
        assert speed.choose_speed("auto", CPU) == "eager"
    with pytest.raises(UserError, match=f"{reason}.*--speed eager"):
        speed.choose_speed("compiled", CPU)
    assert speed.choose_speed("eager", CPU) == "eager"
