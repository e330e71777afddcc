"""Names of run folders: what differs from the defaults is in them."""

from pathlib import Path
from typing import Any

import pytest

from svea.config import configure
from svea.config.presets import LONGEST, bounded, run_name


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "walker_walk-svea-0"),
        ({"seed": 3, "preset": "quick"}, "walker_walk-svea-quick-3"),
        ({"preset": "quick", "recipe.K": 2}, "walker_walk-svea-quick-K2-0"),
        ({"method": "drq", "augment": "conv"}, "walker_walk-drq-conv-0"),
        ({"base": "ddpg", "encoder": "vit"}, "walker_walk-svea-ddpg-vit-0"),
        ({"augment": "conv|cutout"}, "walker_walk-svea-conv_cutout-0"),
        ({"envs": 4, "batch_size": 64}, "walker_walk-svea-envs4-batch_size64-0"),
        ({"sac.learning_rate": 3e-4}, "walker_walk-svea-sac.learning_rate0.0003-0"),
        ({"replay": 1_000_000}, "walker_walk-svea-replay1000000-0"),
        ({"rendering": "fast", "eval_mode": "video_easy"}, "walker_walk-svea-fast-video_easy-0"),
        ({"method": "simgrl"}, "walker_walk-simgrl-0"),
        ({"method": "simgrl", "encoder": "cnn"}, "walker_walk-simgrl-cnn-0"),
        ({"overlay_dir": "/data/photos/"}, "walker_walk-svea-photos-0"),
        ({"method": "curl", "auxiliary": "none"}, "walker_walk-curl-auxiliary_none-0"),
        ({"base": "dqn", "action_bins": 3, "dqn.double": False, "dqn.dueling": True},
         "walker_walk-svea-dqn-no_double-dueling-action_bins3-0"),
        ({"method": "pad", "pad.task": "rotation"}, "walker_walk-pad-rotation-0"),
    ],
    ids=str,
)  # fmt: skip
def test_names(options: dict[str, Any], name: str) -> None:
    config = configure("walker_walk", **options)
    assert run_name(config) == name and config.folder == Path("runs") / name


def test_what_only_watches_or_says_where_and_how_long_is_not_in_the_name() -> None:
    watching = {"eval_every": 7, "eval_episodes": 3, "log_every": 5}
    where = {"decisions": 1000, "device": "cpu", "data_dir": "data", "speed": "eager"}
    assert configure("walker_walk", **watching, **where).folder.name == "walker_walk-svea-0"
    assert configure("toy:make", method="drq+aug").folder == Path("runs/toy_make-drq+aug-0")
    assert configure("toy:make", out="a/b").folder == Path("a/b")


def test_long_names_are_cut_and_stay_apart() -> None:
    many = {"envs": 4, "warmup": 999, "batch_size": 64, "replay": 70_000, "image_size": 88}
    many |= {"recipe.alpha": 0.25, "recipe.beta": 0.75, "network.hidden": 512, "shift": 3}
    one, two = (configure("walker_walk", **many, seed=7, episode_frames=n) for n in (500, 600))
    names = {run_name(one), run_name(two)}
    assert len(names) == 2 and all(len(name) <= LONGEST for name in names)
    assert all(n.startswith("walker_walk-svea-warmup999-") and n.endswith("-7") for n in names)
    assert len(bounded("ü" * 500, "s0", 200).encode()) <= 200
