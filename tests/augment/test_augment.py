"""Augmentations: properties of every one, oracles for their meaning, errors for bad input."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor
from torch.nn import functional as F

from svea import augment
from svea.augment import AUGMENTATIONS, Augmentation, affine, augmentation, crops
from svea.augment.images import ImageBank
from svea.errors import UserError

SIDE = 36
BANK = ImageBank(
    torch.randint(256, (5, 3, 40, 40), generator=Generator().manual_seed(0), dtype=torch.uint8),
    "noise",
)
PARAMETERS: dict[str, dict] = {"crop": {"size": 32}, "overlay": {"images": BANK}}

names = st.sampled_from(sorted(AUGMENTATIONS))
seeds = st.integers(0, 2**31)
batches = st.integers(1, 5)
frames = st.integers(1, 3)
dtypes = st.sampled_from([torch.float32, torch.bfloat16])
few = settings(max_examples=40, deadline=None)


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def observations(batch: int = 4, stack: int = 3, side: int = SIDE, seed: int = 0) -> Tensor:
    return torch.rand(batch, 3 * stack, side, side, generator=seeded(seed))


def call(name: str, x: Tensor, seed: int) -> Tensor:
    return AUGMENTATIONS[name](x, seeded(seed), **PARAMETERS.get(name, {}))


def draw_of(name: str, x: Tensor, seed: int) -> dict:
    return AUGMENTATIONS[name].draw(x, seeded(seed), **PARAMETERS.get(name, {}))


def rows_of(draw: dict, index: Tensor) -> dict:
    return {key: value[index] if torch.is_tensor(value) else value for key, value in draw.items()}


# --- properties of every augmentation -------------------------------------------------------------


@few
@given(names, batches, frames, dtypes, seeds)
def test_keeps_shape_dtype_and_range(name, batch, stack, dtype, seed):
    x = observations(batch, stack, seed=seed).to(dtype)
    before = x.clone()
    y = call(name, x, seed)
    side = 32 if name == "crop" else SIDE
    assert y.shape == (batch, 3 * stack, side, side)
    assert y.dtype == dtype
    assert y.isfinite().all() and y.min() >= 0 and y.max() <= 1
    assert torch.equal(x, before), "the input was changed"


@few
@given(names, st.sampled_from([0.0, 1.0]), dtypes, seeds)
def test_stays_in_range_at_the_ends_of_it(name, value, dtype, seed):
    y = call(name, torch.full((3, 9, SIDE, SIDE), value, dtype=dtype), seed)
    assert y.isfinite().all() and y.min() >= 0 and y.max() <= 1


@few
@given(names, seeds)
def test_same_generator_same_result_and_global_generator_untouched(name, seed):
    x = observations()
    state = torch.get_rng_state()
    first, second, other = call(name, x, seed), call(name, x, seed), call(name, x, seed + 1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, second)
    # four samples get the same integer parameters twice only by a rare chance
    if name not in ("rotation",):
        assert not torch.equal(first, other)


@few
@given(names, seeds)
def test_a_draw_can_be_replayed(name, seed):
    x = observations()
    assert torch.equal(call(name, x, seed), AUGMENTATIONS[name].apply(x, draw_of(name, x, seed)))


@few
@given(names, seeds)
def test_permuting_the_batch_permutes_the_result(name, seed):
    x = observations(5)
    draw, order = draw_of(name, x, seed), torch.randperm(5, generator=seeded(seed))
    function = AUGMENTATIONS[name]
    expected = function.apply(x, draw)[order]
    torch.testing.assert_close(function.apply(x[order], rows_of(draw, order)), expected)


@few
@given(names, st.integers(0, 3), seeds)
def test_a_sample_does_not_depend_on_the_others(name, index, seed):
    x = observations()
    draw = draw_of(name, x, seed)
    alone = torch.tensor([index])
    function = AUGMENTATIONS[name]
    y = function.apply(x[alone], rows_of(draw, alone))
    torch.testing.assert_close(y, function.apply(x, draw)[alone])


@few
@given(names, seeds)
def test_frames_of_a_stack_share_their_parameters(name, seed):
    frame = observations(stack=1)
    y = call(name, frame.repeat(1, 3, 1, 1), seed)
    torch.testing.assert_close(y[:, :3], y[:, 3:6])
    torch.testing.assert_close(y[:, :3], y[:, 6:])


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_samples_get_different_parameters(name):
    same = observations(1).expand(64, -1, -1, -1)
    y = call(name, same, 0)
    assert len({sample.numpy().tobytes() for sample in y}) > (3 if name == "rotation" else 20)


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_bfloat16_sees_the_same_draw_as_float32(name):
    x = observations().bfloat16()
    difference = (call(name, x, 0).float() - call(name, x.float(), 0)).abs()
    assert difference.max() < 0.03


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_is_free_of_gradients(name):
    y = call(name, observations().requires_grad_(), 0)
    assert not y.requires_grad


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_takes_channels_last_and_views(name):
    x = observations()
    expected = call(name, x, 0)
    torch.testing.assert_close(
        call(name, x.contiguous(memory_format=torch.channels_last), 0), expected
    )
    wide = torch.zeros(4, 9, SIDE, 2 * SIDE)
    wide[..., ::2] = x
    torch.testing.assert_close(call(name, wide[..., ::2], 0), expected)


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_autocast_does_not_change_the_result(name):
    x = observations()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = call(name, x, 0)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, call(name, x, 0))


# --- the meaning of each: oracles -----------------------------------------------------------------


@pytest.mark.parametrize("pad", [0, 1, 4, 50])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
def test_shift_is_a_crop_of_the_padded_image(pad, dtype):
    x = (observations(6) * 255).byte()
    draw = augment.shift.draw(x, seeded(0), pad=pad)
    padded = F.pad(x.float(), (pad,) * 4, mode="replicate")
    expected = [
        sample[:, top : top + SIDE, left : left + SIDE]
        for sample, (top, left) in zip(padded, draw["corner"].tolist(), strict=True)
    ]
    x = x if dtype == torch.uint8 else x.to(dtype)
    assert torch.equal(augment.shift.apply(x, draw).float(), torch.stack(expected))


@pytest.mark.parametrize("shape", [(3, 9, 20, 31), (3, 9, 31, 20)])
def test_pixels_are_gathered_alike_by_both_ways(shape):
    """The copy of whole rows on a CPU against the gather that GPUs and compilers get."""
    x = torch.rand(shape, generator=seeded(0))
    corner = torch.tensor([[0, 8], [4, 4], [8, 0]])
    rows = (torch.arange(shape[2]) + corner[:, :1] - 4).clamp(0, shape[2] - 1)
    columns = (torch.arange(shape[3]) + corner[:, 1:] - 4).clamp(0, shape[3] - 1)
    gathered = crops.pick(x, rows[:, :, None] * shape[3] + columns[:, None])
    assert torch.equal(augment.shift.apply(x, {"corner": corner, "pad": 4}), gathered)


def test_every_shift_and_every_crop_occurs():
    x = torch.zeros(1, 3, 100, 100).expand(20_000, -1, -1, -1)
    for draw, count in (
        (augment.shift.draw(x, seeded(0)), 9),
        (augment.crop.draw(x, seeded(0)), 17),
    ):
        corners, occurrences = draw["corner"].unique(dim=0, return_counts=True)
        assert len(corners) == count**2
        assert corners.min() == 0 and corners.max() == count - 1
        expected = 20_000 / count**2
        assert (occurrences - expected).abs().max() < 6 * math.sqrt(expected)


def test_centre_crop_is_the_middle_offset_of_crop():
    x = observations(2, side=100)
    middle = {"corner": torch.tensor([[8, 8], [8, 8]]), "size": 84}
    assert torch.equal(augment.centre_crop(x), augment.crop.apply(x, middle))


def test_conv_is_a_loop_of_convolutions():
    x = observations()
    draw = augment.conv.draw(x, seeded(3))
    assert draw["weight"].shape == (4, 3, 3, 3, 3)
    y = augment.conv.apply(x, draw)
    for sample, weight, result in zip(x, draw["weight"], y, strict=True):
        for frame in range(0, 9, 3):
            padded = F.pad(sample[None, frame : frame + 3], (1, 1, 1, 1), mode="replicate")
            expected = F.conv2d(padded, weight).sigmoid()[0]
            torch.testing.assert_close(result[frame : frame + 3], expected)


def test_conv_weights_are_standard_normal():
    weight = augment.conv.draw(torch.zeros(2000, 3, 8, 8), seeded(0))["weight"]
    assert abs(weight.mean()) < 0.01 and abs(weight.std() - 1) < 0.01


def test_overlay_is_half_observation_half_picture():
    x = observations()
    picture = BANK.draw(4, SIDE, SIDE, seeded(5))
    expected = 0.5 * x + 0.5 * picture.repeat(1, 3, 1, 1)
    torch.testing.assert_close(augment.overlay(x, seeded(5), images=BANK), expected)


def test_overlay_weight_runs_from_observation_to_picture():
    x = observations()
    torch.testing.assert_close(augment.overlay(x, seeded(5), images=BANK, weight=0.0), x)
    only = augment.overlay(x, seeded(5), images=BANK, weight=1.0)
    torch.testing.assert_close(only[:, 3:6], BANK.draw(4, SIDE, SIDE, seeded(5)))


@pytest.mark.parametrize("colour", [False, True])
def test_cutout_covers_one_box_and_nothing_else(colour):
    x = observations(20).clamp(min=0.01)
    draw = augment.cutout.draw(x, seeded(1), smallest=5, largest=SIDE, colour=colour)
    y = augment.cutout.apply(x, draw)
    for sample, result, (top, left), (height, width), fill in zip(
        x, y, draw["corner"].tolist(), draw["size"].tolist(), draw["fill"], strict=True
    ):
        expected = sample.clone()
        box = fill.repeat(3)[:, None, None].expand(-1, height, width)
        assert expected[:, top : top + height, left : left + width].shape == box.shape
        expected[:, top : top + height, left : left + width] = box
        assert torch.equal(result, expected)
        assert colour or not fill.any()


def test_cutout_boxes_take_every_size_and_reach_every_edge():
    x = torch.zeros(1, 3, 84, 84).expand(20_000, -1, -1, -1)
    draw = augment.cutout.draw(x, seeded(0))
    assert draw["size"].unique().tolist() == list(range(10, 31))
    assert draw["corner"].min() == 0 and (draw["corner"] + draw["size"]).max() == 84


def test_blur_agrees_with_kornia():
    filters = pytest.importorskip("kornia.filters")
    x, sigma = observations(4), torch.tensor([0.3, 0.8, 1.4, 2.0])
    wide = 2 * SIDE - 1  # kornia cuts its kernel off: give it all that reaches into the image
    blurred, weight = (
        filters.gaussian_blur2d(
            image, wide, torch.stack([sigma, sigma], dim=1), border_type="constant"
        )
        for image in (F.pad(x, (SIDE,) * 4), F.pad(torch.ones_like(x), (SIDE,) * 4))
    )
    expected = (blurred / weight)[..., SIDE:-SIDE, SIDE:-SIDE]
    y = augment.blur.apply(x, {"sigma": sigma})
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=0)


def test_warp_agrees_with_kornia():
    transform = pytest.importorskip("kornia.geometry.transform")
    x = observations(5, side=33)
    draw = augment.affine_jitter.draw(x, seeded(0), degrees=30.0, shear=20.0)
    degrees, scale, shear = draw["degrees"], draw["scale"], draw["shear"]
    y = affine.warp(x, *affine.inverse_affine(degrees, scale[:, 0], scale[:, 1], shear))
    centre = torch.full((5, 2), 16.0)
    matrix = transform.get_rotation_matrix2d(centre, degrees, torch.ones(5, 2))
    linear = torch.eye(3).repeat(5, 1, 1)
    linear[:, 0, 0], linear[:, 1, 1] = scale[:, 0], scale[:, 1]
    linear[:, 0, 1] = shear.deg2rad().tan() * scale[:, 1]
    linear[:, 0, 2] = 16 - (linear[:, 0, 0] + linear[:, 0, 1]) * 16
    linear[:, 1, 2] = 16 - linear[:, 1, 1] * 16
    expected = transform.warp_affine(x, matrix @ linear, (33, 33), padding_mode="border")
    torch.testing.assert_close(y, expected, atol=1e-4, rtol=0)


def test_jitter_agrees_with_kornia():
    enhance = pytest.importorskip("kornia.enhance")
    # muted colours, so that nothing is clipped on the way: kornia clips after every step
    x = 0.4 + 0.2 * observations(4, stack=1)
    b, c, s = (
        torch.tensor(v) for v in ([1.1, 0.8, 1.2, 1.0], [0.7, 1.3, 1.0, 1.2], [0.6, 1.4, 1.2, 0])
    )
    y = affine.jitter(x, b, c, s, torch.zeros(4))
    expected = x * b.view(-1, 1, 1, 1)
    expected = enhance.adjust_contrast_with_mean_subtraction(expected, c)
    expected = enhance.adjust_saturation_with_gray_subtraction(expected, s)
    torch.testing.assert_close(y, expected, atol=1e-3, rtol=0)


def test_hue_turns_the_chroma_plane_of_yiq():
    to_yiq = torch.tensor(
        [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]]
    )
    x = 0.45 + 0.1 * observations(6, stack=1)
    hue, one = torch.linspace(-0.5, 0.5, 6), torch.ones(6)
    y = affine.jitter(x, one, one, one, hue)
    before, after = (torch.einsum("ij,bjhw->bihw", to_yiq, image) for image in (x, y))
    torch.testing.assert_close(after[:, 0], before[:, 0], atol=2e-4, rtol=0)  # brightness stays
    chroma = torch.complex(before[:, 1], before[:, 2])
    chroma = chroma * torch.exp(2j * torch.pi * hue).view(-1, 1, 1)
    torch.testing.assert_close(after[:, 1], chroma.real, atol=2e-4, rtol=0)
    torch.testing.assert_close(after[:, 2], chroma.imag, atol=2e-4, rtol=0)


@few
@given(st.floats(0, 1), seeds)
def test_jitter_keeps_grey_images_grey(level, seed):
    y = call("affine_jitter", torch.full((2, 9, SIDE, SIDE), level), seed)
    torch.testing.assert_close(y[:, 0], y[:, 1], atol=1e-4, rtol=0)
    torch.testing.assert_close(y[:, 0], y[:, 2], atol=1e-4, rtol=0)


def test_affine_jitter_without_strength_changes_nothing():
    x = observations()
    off = dict.fromkeys(("degrees", "shear", "brightness", "contrast", "saturation", "hue"), 0)
    y = augment.affine_jitter(x, seeded(0), scale=(1, 1), **off)
    torch.testing.assert_close(y, x, atol=1e-5, rtol=0)


def test_rotation_turns_by_quarters_and_uses_all_four():
    x = observations(64)
    draw = augment.rotation.draw(x, seeded(0))
    assert draw["quarters"].unique().tolist() == [0, 1, 2, 3]
    y = augment.rotation.apply(x, draw)
    for sample, quarter, result in zip(x, draw["quarters"].tolist(), y, strict=True):
        assert torch.equal(result, sample.rot90(quarter, (1, 2)))


def test_rotation_by_any_angle_covers_the_range_and_meets_the_quarters():
    x = observations(1000, stack=1, side=4)
    degrees = augment.rotation.draw(x, seeded(0), max_degrees=180)["degrees"]
    assert degrees.min() < -178 and degrees.max() > 178
    assert torch.histc(degrees, 12, -180, 180).min() > 50
    x = observations(4)
    angles = {"degrees": torch.tensor([0.0, 90.0, 180.0, 270.0])}
    quarters = {"quarters": torch.arange(4)}
    expected = augment.rotation.apply(x, quarters)
    torch.testing.assert_close(augment.rotation.apply(x, angles), expected, atol=1e-4, rtol=0)


# --- composition ----------------------------------------------------------------------------------


def test_plus_is_a_sequence():
    x = observations()
    generator = seeded(7)
    expected = augment.cutout(augment.conv(x, generator), generator)
    assert torch.equal(augmentation("conv+cutout")(x, seeded(7)), expected)


def test_bar_sends_every_sample_one_way(monkeypatch):
    (
        mark(monkeypatch, "first", 0.25),
        mark(monkeypatch, "second", 0.5),
        mark(monkeypatch, "third", 1),
    )
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


def test_a_single_sample_can_go_every_way(monkeypatch):
    mark(monkeypatch, "first", 0.25), mark(monkeypatch, "second", 0.5)
    ways = augmentation("first|second")
    x = torch.zeros(1, 3, 2, 2)
    assert {ways(x, seeded(seed))[0, 0, 0, 0].item() for seed in range(20)} == {0.25, 0.5}


def test_plus_binds_tighter_than_bar(monkeypatch):
    mark(monkeypatch, "first", 0.25), mark(monkeypatch, "second", 0.5)
    ways = augmentation("first+second | none")
    y = ways(torch.zeros(4, 3, 2, 2), seeded(0))
    assert sorted(y[:, 0, 0, 0].tolist()) == [0, 0, 0.75, 0.75]


def test_none_and_hyphens():
    x = observations()
    assert augmentation("none")(x, None) is x
    assert augmentation("affine-jitter") is augment.affine_jitter


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


def test_the_ways_of_a_choice_have_one_size():
    with pytest.raises(UserError, match=r"'crop\|conv' gives .* different sizes.*allowed"):
        augmentation("crop|conv")
    assert augmentation("crop|conv + crop")(observations(side=90), seeded(0)).shape[-1] == 84


def mark(monkeypatch, name: str, value: float) -> None:
    """Register an augmentation that adds a value, for one test."""
    added = Augmentation(name, lambda x, generator=None: {}, lambda x: x + value)
    monkeypatch.setitem(AUGMENTATIONS, name, added)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(9, 84, 84), r"got 3 axes: \(9, 84, 84\)"),
        (torch.zeros(2, 8, 84, 84), "got 8 channels"),
        (torch.zeros(2, 0, 84, 84), "got 0 channels"),
        (torch.full((2, 9, 84, 84), 255.0), "got 255 to 255. Divide by 255"),
        (torch.full((2, 9, 84, 84), -0.5), "got -0.5"),
        (torch.full((2, 9, 84, 84), math.nan), "got nan"),
        (torch.zeros(2, 9, 84, 84, dtype=torch.uint8), "floats in .0, 1.; got torch.uint8"),
        (torch.zeros(2, 9, 84, 84, dtype=torch.int64), "got torch.int64"),
    ],
)
def test_bad_observations_are_named(x, message):
    with pytest.raises(UserError, match=message):
        augment.conv(x)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("crop", {"size": 84}, "cannot cut 84x84 pixels out of 36x36"),
        ("crop", {"size": 0}, "cannot cut 0x0"),
        ("shift", {"pad": -1}, "pad is -1"),
        ("cutout", {"largest": 37}, "10 to 37 pixels do not fit 36x36"),
        ("blur", {"sigma": (0.0, 1.0)}, "sigma is"),
        ("overlay", {"images": BANK, "weight": 1.5}, "weight is 1.5"),
        ("affine_jitter", {"scale": (0.0, 1.0)}, "scale is"),
        ("affine_jitter", {"shear": 90.0}, "shear 90"),
    ],
)
def test_bad_parameters_are_named(name, parameters, message):
    with pytest.raises(UserError, match=message):
        AUGMENTATIONS[name](observations(), seeded(0), **parameters)


def test_quarter_turns_need_squares():
    with pytest.raises(UserError, match=r"got 20x30\. Pass max_degrees"):
        augment.rotation(torch.zeros(1, 3, 20, 30))


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UserError, match=r"unknown augmentation 'cnv'\. Did you mean 'conv'"):
        augmentation("cutout|cnv")


def test_overlay_without_pictures_says_how_to_pass_them():
    with pytest.raises(UserError, match="images="):
        augmentation("overlay")(observations())


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'shift' is already registered"):
        augment.register(lambda x: {})(augment.shift.function)


def test_compiled_in_one_graph_gives_the_same_result():
    """What the GPU runs: no graph break, and the gather in place of the copy of rows."""
    x = observations()
    for name in ("shift", "affine_jitter"):
        function = AUGMENTATIONS[name]
        draw = draw_of(name, x, 0)
        compiled = torch.compile(function.apply, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, draw), function.apply(x, draw))
