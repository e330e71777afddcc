"""Crops resized in C against float64, and against what an update that is not accelerated draws."""

import numpy as np
import pytest
import torch
from augmented import triangles
from c_kernels import builds

from svea.agents import make_agent
from svea.augment import AUGMENTATIONS
from svea.augment.images import Crops, ImageBank, resize_each
from svea.config import configure
from svea.kernels.cpu import resized_crops
from svea.speed.accelerate import accelerate, with_kernels

SIDE = 40
CROPS = [  # picture, top, left, tall, wide, mirrored
    (0, 0, 0, SIDE, SIDE, False),  # all of it
    (2, 0, 0, SIDE, SIDE, True),
    (2, SIDE - 3, SIDE - 5, 3, 5, False),  # the last bytes there are
    (1, SIDE - 1, SIDE - 1, 1, 1, True),
    (1, 7, 0, 20, 33, True),
    (0, 0, 31, 39, 9, False),
]

pytestmark = builds


@pytest.fixture
def bank() -> ImageBank:
    return ImageBank(torch.randint(0, 256, (3, 3, SIDE, SIDE), dtype=torch.uint8))


def crops() -> Crops:
    columns = zip(*CROPS, strict=True)
    kinds = (torch.int64, *[torch.float32] * 4, torch.bool)
    return Crops(*(torch.tensor(c, dtype=kind) for c, kind in zip(columns, kinds, strict=True)))


@pytest.mark.parametrize(("height", "width"), [(16, 16), (17, 60), (84, 84), (3, 1)])
def test_resized_crops_are_the_filters_products(bank, height, width):
    found = 255 * resized_crops(bank.pictures, crops(), height, width).double().numpy()
    np.testing.assert_allclose(found, found.round(), atol=1e-4)  # whole levels
    for (chosen, top, left, tall, wide, mirrored), one in zip(CROPS, found, strict=True):
        piece = bank.pictures[chosen, :, top : top + tall, left : left + wide].double().numpy()
        rows, columns = triangles(0, tall, height, tall), triangles(0, wide, width, wide)
        wanted = rows.numpy() @ piece @ columns.numpy().T
        wanted = wanted[:, :, ::-1] if mirrored else wanted
        assert abs(one - wanted).max() < 0.5 + 1e-3


def test_they_are_at_most_a_level_away_from_torchs_own(bank):
    found, plain = (make(bank.pictures, crops(), 24, 30) for make in (resized_crops, resize_each))
    assert 255 * (found - plain).abs().max() < 1.01


@pytest.mark.parametrize("name", ["overlay", "overlay_drift"])
def test_overlays_on_a_cpu_draw_by_the_kernel(bank, name):
    bound = AUGMENTATIONS[name].bind(images=bank)
    fast = with_kernels(bound, torch.device("cpu"))
    assert fast.parameters["images"].resize is resized_crops
    x = torch.rand(4, 9, 16, 16)
    given = {"drift": 2} if name == "overlay_drift" else {}
    first, second = (torch.Generator().manual_seed(1) for _ in range(2))
    for _ in range(2):  # and it leaves its generator in the same state
        plain, found = bound(x, first, **given), fast(x, second, **given)
        torch.testing.assert_close(found, plain, rtol=0, atol=0.51 / 255)


def test_an_agent_that_is_not_accelerated_keeps_torchs_own():
    config = configure("walker_walk", preset="quick", augment="overlay", overlay_dir="procedural")
    plain, fast = (make_agent(config, 6) for _ in range(2))
    accelerate(fast, "compiled", torch.float32)
    banks = [agent.view_maker.strong.parameters["images"] for agent in (plain, fast)]
    assert [bank.resize for bank in banks] == [None, resized_crops]
