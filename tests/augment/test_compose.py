"""Compositions: one after the other, or one of several."""

import pytest
import torch
from augmented import BANK, LARGE_BANK, observations, seeded

from svea import augment
from svea.augment import AUGMENTATIONS, Augmentation, augmentation
from svea.augment.images import ImageBank
from svea.augment.registry import try_out
from svea.config import names
from svea.core.errors import UserError


def mark(monkeypatch, name: str, value: float) -> None:
    """Register an augmentation that adds a value, for one test."""
    added = Augmentation(name, lambda x, generator=None: {}, lambda x: x + value)
    monkeypatch.setitem(AUGMENTATIONS, name, added)
    monkeypatch.setattr(names, "AUGMENTATION_NAMES", names.AUGMENTATION_NAMES | {name})


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
