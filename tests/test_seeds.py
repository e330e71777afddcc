"""One seed, many streams."""

from __future__ import annotations

import torch

from svea.seeds import seed_for

PURPOSES = ("weights", "agent", "replay", "warm-up")


def test_every_seed_and_purpose_has_a_stream_of_its_own() -> None:
    seeds = [seed_for(seed, purpose) for seed in range(500) for purpose in PURPOSES]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_for(2**63 - 1, "agent") != seed_for(0, "agent")


def test_the_same_on_every_machine() -> None:
    """Written down once: a change here would change every run of a seed."""
    assert seed_for(0, "weights") == 8056890351554668878
    assert seed_for(3, "replay") == 7929207549556994564


def test_draws_of_two_purposes_are_unrelated() -> None:
    first, second = (
        torch.randn(20_000, generator=torch.Generator().manual_seed(seed_for(0, purpose)))
        for purpose in ("agent", "replay")
    )
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.03
