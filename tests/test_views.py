from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from svea import augment
from svea.augment import augmentation
from svea.views import Views, pixels


class Draws:
    """Augmentations that count, and mark what they made."""

    def __init__(self) -> None:
        self.weak_calls = self.strong_calls = 0

    def weak(self, images: Tensor) -> Tensor:
        assert images.dtype == torch.uint8
        self.weak_calls += 1
        return images + self.weak_calls

    def strong(self, images: Tensor) -> Tensor:
        assert images.is_floating_point() and images.max() <= 1
        self.strong_calls += 1
        return images / 2


def test_views_are_drawn_lazily_and_once() -> None:
    draws = Draws()
    images = torch.full((2, 9, 4, 4), 100, dtype=torch.uint8)
    views = Views(images, lambda x: x, draws.weak, draws.strong)
    assert draws.weak_calls == 0
    assert torch.equal(views["clean", 0], views["clean", 5])
    assert draws.weak_calls == 0, "clean needs no draw"
    strong = views["strong", 0]
    assert (draws.weak_calls, draws.strong_calls) == (1, 1)
    torch.testing.assert_close(strong, views["weak", 0] / 2)  # strong after the same weak
    assert views["strong", 0] is strong and (draws.weak_calls, draws.strong_calls) == (1, 1)
    assert not torch.equal(views["weak", 1], views["weak", 0])
    assert draws.weak_calls == 2


def test_stack_puts_views_behind_one_another_and_leaves_the_batch_alone() -> None:
    draws = Draws()
    images = torch.randint(0, 200, (2, 9, 4, 4), dtype=torch.uint8)
    before = images.clone()
    views = Views(images, lambda x: x, draws.weak, draws.strong)
    stacked = views.stack((("clean", 0), ("weak", 0), ("strong", 0)))
    assert stacked.shape == (6, 9, 4, 4)
    torch.testing.assert_close(stacked[:2], before / 255)
    torch.testing.assert_close(stacked[2:4], (before + 1) / 255)
    torch.testing.assert_close(stacked[4:], (before + 1) / 510)
    assert torch.equal(images, before)
    torch.testing.assert_close(views.stack((("weak", 0),)), stacked[2:4])


def test_pixels_keep_every_level_apart() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    found = pixels(levels)
    assert found.dtype == torch.float32 and found[0] == 0 and found[-1] == 1
    torch.testing.assert_close(found * 255, levels.float())
    assert torch.equal(levels, torch.arange(256, dtype=torch.uint8))
    with torch.autocast("cpu", torch.bfloat16):
        assert pixels(levels).dtype == torch.bfloat16


@pytest.mark.parametrize("crop", [0, 2])
def test_the_views_of_a_configuration(crop: int) -> None:
    """Clean: as stored or its centre; weak: shifted or cropped; strong: weak, then augmented."""
    config: Any = SimpleNamespace(image_size=4, crop=crop, shift=1)
    strong = augmentation("blur")
    images = torch.randint(256, (3, 9, 4 + crop, 4 + crop), dtype=torch.uint8)
    views = Views.of(config, strong)(images, torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(0)
    if crop:
        weak = augment.crop(images, random, size=4)
        assert torch.equal(views["clean", 0], images[..., 1:5, 1:5] / 255)
    else:
        weak = augment.shift(images, random, pad=1)
        assert torch.equal(views["clean", 0], images / 255)
    assert torch.equal(views["weak", 0], weak / 255)
    assert torch.equal(views["strong", 0], strong(weak / 255, random))
