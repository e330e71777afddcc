"""Properties of every augmentation, errors for bad input, and compositions."""

import math
from contextlib import nullcontext

import pytest
import torch
from augmented import (
    BANK,
    LARGE_BANK,
    MIXING,
    MOVING,
    SIDE,
    batches,
    call,
    draw_of,
    dtypes,
    few,
    frames,
    names,
    observations,
    rows_of,
    seeded,
    seeds,
)  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st

from svea import augment
from svea.augment import AUGMENTATIONS, Augmentation, augmentation
from svea.augment.images import ImageBank
from svea.augment.registry import try_out
from svea.config import names as known
from svea.core.errors import UserError


@few
@given(names, batches, frames, dtypes, seeds)
def test_keeps_shape_dtype_and_range(name, batch, stack, dtype, seed):
    x = observations(batch, stack, seed=seed).to(dtype)
    before = x.clone()
    y = call(name, x, seed)
    side = 32 if name == "crop" else SIDE
    assert y.shape == (batch, 3 * stack, side, side)
    assert y.dtype == dtype
    assert torch.equal(x, before), "the input was changed"
    for each in (y, call(name, torch.zeros_like(x), seed), call(name, torch.ones_like(x), seed)):
        assert each.isfinite().all() and each.min() >= 0 and each.max() <= 1


@few
@given(names, seeds)
def test_same_generator_same_result_and_global_generator_untouched(name, seed):
    x = observations()
    state = torch.get_rng_state()
    first, second = call(name, x, seed), call(name, x, seed)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, second)
    assert torch.equal(first, AUGMENTATIONS[name].apply(x, draw_of(name, x, seed))), "replayed"
    # Four samples may get the same integer parameters, or be left alone by spectrum, under two
    # seeds; under ten of them only by a chance that no run will ever meet.
    if name != "rotation":
        others = (call(name, x, seed + k) for k in range(1, 11))
        assert any(not torch.equal(first, other) for other in others)


@few
@given(names.filter(lambda name: name not in MIXING), st.integers(1, 5), seeds)
def test_a_sample_depends_neither_on_the_others_nor_on_its_place(name, count, seed):
    x = observations(5)
    draw, some = draw_of(name, x, seed), torch.randperm(5, generator=seeded(seed))[:count]
    function = AUGMENTATIONS[name]
    expected = function.apply(x, draw)[some]
    torch.testing.assert_close(function.apply(x[some], rows_of(draw, some)), expected)


@few
@given(names.filter(lambda name: name not in MOVING), seeds)
def test_frames_of_a_stack_share_their_parameters(name, seed):
    frame = observations(stack=1)
    y = call(name, frame.repeat(1, 3, 1, 1), seed)
    torch.testing.assert_close(y[:, :3], y[:, 3:6])
    torch.testing.assert_close(y[:, :3], y[:, 6:])


FEWER = {"rotation": 3, "spectrum": 8}  # at 36 pixels most narrow bands hold no frequency at all


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_samples_get_different_parameters(name):
    same = observations(1).expand(64, -1, -1, -1)
    y = call(name, same, 0)
    assert len({sample.numpy().tobytes() for sample in y}) > FEWER.get(name, 20)


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_bfloat16_sees_the_same_draw_as_float32(name):
    x = observations().bfloat16()
    difference = (call(name, x, 0).float() - call(name, x.float(), 0)).abs()
    assert difference.max() < 0.03


@pytest.mark.parametrize(
    "spec", [*sorted(AUGMENTATIONS), "conv|overlay_drift", "conv+overlay_drift:2"]
)
def test_nothing_waits_for_the_device(spec, monkeypatch):
    """Tensors without values: whatever asks for one raises, as it would in a CUDA graph."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # knows no such device
    bank = ImageBank(torch.empty(5, 3, 96, 96, dtype=torch.uint8, device="meta"))
    x = torch.empty(4, 9, SIDE, SIDE, device="meta")
    parameters = {"size": SIDE} if spec == "crop" else {}
    y = augmentation(spec, lambda: bank)(x, None, **parameters)
    assert y.shape == x.shape and y.device == x.device
    with pytest.raises(RuntimeError, match="meta"):
        float(y.sum())


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_layout_gradients_and_autocast_change_nothing(name):
    x = observations()
    expected = call(name, x, 0)
    laid_out = call(name, x.contiguous(memory_format=torch.channels_last), 0)
    torch.testing.assert_close(laid_out, expected)
    wide = torch.zeros(4, 9, SIDE, 2 * SIDE)
    wide[..., ::2] = x
    torch.testing.assert_close(call(name, wide[..., ::2], 0), expected)
    assert not call(name, observations().requires_grad_(), 0).requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = call(name, x, 0)
    assert inside.dtype == torch.float32 and torch.equal(inside, expected)


@pytest.mark.parametrize(
    ("x", "named"),
    [
        (torch.zeros(9, 84, 84), r"\d, 84, 84\)"),
        (torch.zeros(2, 8, 84, 84), "8, 84, 84"),
        (torch.zeros(2, 0, 84, 84), "0, 84, 84"),
        (torch.full((2, 9, 84, 84), 255.0), "255 to 255"),
        (torch.full((2, 9, 84, 84), -0.5), "-0.5"),
        (torch.full((2, 9, 84, 84), math.nan), "nan"),
        (torch.zeros(2, 9, 84, 84, dtype=torch.uint8), "uint8"),
        (torch.zeros(2, 9, 84, 84, dtype=torch.int64), "int64"),
        (torch.zeros(2, 9, 84, 84).numpy(), "ndarray"),
    ],
)
def test_bad_observations_are_named(x, named):
    for spec in ("conv", "conv+blur", "conv|blur"):
        with pytest.raises(UserError, match=named):
            augmentation(spec)(x)


@pytest.mark.parametrize(
    ("name", "parameters", "named"),
    [
        ("crop", {"size": 84}, "84.*36x36"),
        ("crop", {"size": 0}, "size is 0"),
        ("shift", {"pad": -1}, "pad is -1"),
        ("cutout", {"largest": 37}, "37.*36x36"),
        ("blur", {"sigma": (0.0, 1.0)}, "sigma"),
        ("overlay", {"images": BANK, "weight": 1.5}, "weight is 1.5"),
        ("overlay_drift", {"images": BANK, "weight": -1.0}, "weight is -1"),
        ("overlay_drift", {"images": BANK, "drift": -1}, "drift is -1"),
        ("overlay_drift", {"images": LARGE_BANK}, "72x72.*64x64.*overlay_drift:4"),
        ("spectrum", {"probability": 1.5}, "probability is 1.5"),
        ("spectrum", {"highest": 0.6}, "highest is 0.6"),
        ("amplitude_mix", {"share": (0.9, 0.1)}, "share"),
        ("amplitude_mix", {"probability": -1.0}, "probability is -1"),
        ("affine_jitter", {"scale": (0.0, 1.0)}, "scale"),
        ("affine_jitter", {"shear": 90.0}, "90"),
    ],
)
def test_bad_parameters_are_named(name, parameters, named):
    with pytest.raises(UserError, match=named):
        AUGMENTATIONS[name](observations(), seeded(0), **parameters)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'shift'"):
        augment.register(lambda x: {})(augment.shift.function)


def test_compiled_in_one_graph_gives_the_same_result():
    """What the GPU runs: no graph break, and the gather in place of the copy of rows."""
    x = observations()
    for name in ("shift", "affine_jitter", "overlay_drift"):
        function = AUGMENTATIONS[name]
        draw = draw_of(name, x, 0)
        compiled = torch.compile(function.apply, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, draw), function.apply(x, draw))


# Compositions: one after the other, or one of several ---------------------------------------------


def mark(monkeypatch, name: str, value: float) -> None:
    """Register an augmentation that adds a value, for one test."""
    added = Augmentation(name, lambda x, generator=None: {}, lambda x: x + value)
    monkeypatch.setitem(AUGMENTATIONS, name, added)
    monkeypatch.setattr(known, "AUGMENTATION_NAMES", known.AUGMENTATION_NAMES | {name})


def test_plus_is_a_sequence_and_none_nothing():
    x = observations()
    generator = seeded(7)
    expected = augment.affine_jitter(augment.conv(x, generator), generator)
    assert torch.equal(augmentation("conv+affine-jitter")(x, seeded(7)), expected)
    assert augmentation("none")(x, None) is x


def test_bar_sends_every_sample_one_way(monkeypatch):
    for name, value in {"first": 0.25, "second": 0.5, "third": 1}.items():
        mark(monkeypatch, name, value)
    x = torch.zeros(7, 3, 2, 2)
    ways = augmentation("first|second|third")
    chosen = torch.stack([ways(x, seeded(seed))[:, 0, 0, 0] for seed in range(600)])
    for way in (0.25, 0.5, 1.0):
        often = (chosen == way).float().mean(0)  # of each place in the batch
        assert ((often - 1 / 3).abs() < 0.08).all()
        assert (chosen == way).sum(1).max() <= 3  # dealt out evenly: ceil(7 / 3)


def test_bar_keeps_every_sample_in_its_place():
    x = torch.arange(7).view(7, 1, 1, 1).expand(-1, 3, 4, 4) / 7
    assert torch.equal(augmentation("none|shift|rotation")(x, seeded(0)), x)
    assert augmentation("crop|conv + crop")(observations(side=90), seeded(0)).shape[-1] == 84


def test_plus_binds_tighter_than_bar(monkeypatch):
    mark(monkeypatch, "first", 0.25), mark(monkeypatch, "second", 0.5)
    ways = augmentation("first+second | none")
    y = ways(torch.zeros(4, 3, 2, 2), seeded(0))
    assert sorted(y[:, 0, 0, 0].tolist()) == [0, 0, 0.75, 0.75]


def test_pictures_are_made_only_for_overlay():
    calls = []

    def images() -> ImageBank:
        calls.append(1)
        return BANK

    augmentation("conv|cutout", images)
    assert not calls
    x = observations()
    y = augmentation("overlay", images)(x, seeded(1))
    assert calls == [1]
    assert torch.equal(y, augment.overlay(x, seeded(1), images=BANK))


def test_a_number_sets_the_drift():
    x = observations()
    for spec, drift in (("overlay-drift:4", 4), ("overlay_drift:0", 0)):
        expected = augment.overlay_drift(x, seeded(1), images=LARGE_BANK, drift=drift)
        y = augmentation(spec, lambda: LARGE_BANK)(x, seeded(1))
        assert torch.equal(y, expected)
    with pytest.raises(UserError, match=r"108x108.*64x64"):
        augmentation("overlay_drift:12", lambda: LARGE_BANK)(x, seeded(1))


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("overlay_drift:", "''"),
        ("overlay_drift:2.5", "2.5"),
        ("conv|overlay_drift:65", "65"),
        ("conv:3", "'conv:3'"),
        ("crop|conv", "'crop|conv'"),
        ("cutout|cnv", "'conv'"),
        ("conv|gama", "'gama'"),
        ("conv|own_augments:missing", "'own_augments:missing'.*missing"),
        ("conv|no_such_module:gamma", "'no_such_module'"),
        ("conv|own_augments:NOT_AN_AUGMENTATION", "int"),
        ("conv|own_augments:draw_nothing", r"draw_nothing\("),
    ],
)
def test_bad_compositions_are_named(spec, named, own_augments):
    with pytest.raises(UserError, match=named):
        augmentation(spec)


def test_overlay_by_itself_has_generated_pictures_made_once():
    x = observations()
    made = ImageBank.procedural()
    expected = augment.overlay(x, seeded(1), images=made)
    assert torch.equal(augment.AUGMENTATIONS["overlay"](x, seeded(1)), expected)
    assert torch.equal(augmentation("overlay")(x, seeded(1)), expected)
    assert not torch.equal(expected, x) and ImageBank.procedural() is made
    assert made.record["source"] == "procedural"


def test_an_augmentation_of_the_users_own_is_named_by_its_module(own_augments):
    x = observations()
    both = augmentation("conv+own_augments:own_gamma")
    expected = own_augments.own_gamma(augment.conv(x, generator := seeded(3)), generator)
    assert torch.equal(both(x, seeded(3)), expected)
    halved = augmentation("own_augments:own_dim|own_augments:own_dim")(x, seeded(0))
    assert torch.equal(halved, x / 2), "a plain function"


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("cut_off", r"\(4, 9, 10, 40\)"),
        ("in_bytes", r"uint8 \(4, 9, 40, 40\)"),
        ("too_bright", r"\d.* to 2"),
        ("not_finite", "nan to nan"),
        ("forgets", "NoneType"),
        ("raises", r"no lamp \(.*own_augments.py, line \d+, in raises\)"),
    ],
)
def test_one_that_makes_no_view_is_refused_by_name(name, named, own_augments):
    try_out("conv|own_augments:own_gamma+own_augments:own_dim|overlay_drift:12", 40)
    with pytest.raises(UserError, match=f"'own_augments:{name}'.*{named}"):
        try_out(f"conv+own_augments:{name}", 40)


def test_one_that_ignores_the_generator_is_warned_of(own_augments):
    with pytest.warns(UserWarning, match="'own_augments:unseeded' draws other numbers"):
        try_out("own_augments:unseeded", 40)
