"""One seed, many streams."""

import pytest

from svea.core.seeds import episodes_of_all, evaluation_seeds, seed_for, world_order

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


@pytest.mark.parametrize("worlds", [2, 10, 25, 100])
def test_an_evaluation_shows_every_world_before_any_a_second_time(worlds: int) -> None:
    seeds = evaluation_seeds(3, 3 * worlds, worlds)
    shown = [seed % worlds for seed in seeds]
    assert len(set(seeds)) == len(seeds)
    for first in range(0, 3 * worlds, worlds):
        assert sorted(shown[first : first + worlds]) == list(range(worlds))
    assert shown == [seed % worlds for seed in evaluation_seeds(8, 3 * worlds, worlds)]
    assert seeds[:5] == evaluation_seeds(3, 5, worlds), "a longer evaluation continues it"


def test_the_order_of_worlds_is_shuffled_and_written_down() -> None:
    """A change here would show other worlds to agents that are compared with earlier ones."""
    assert world_order(100)[:10] == [37, 62, 26, 41, 35, 25, 36, 33, 77, 21]
    assert world_order(1) == [0]
    assert evaluation_seeds(3, 60, worlds=1) == evaluation_seeds(3, 60)


def test_worlds_can_be_spread_over_the_order() -> None:
    shown = [seed % 100 for seed in evaluation_seeds(0, 10, 100, spread=True)]
    assert shown == world_order(100)[::10]
    few = [seed % 10 for seed in evaluation_seeds(0, 25, 10, spread=True)]
    assert few == [seed % 10 for seed in evaluation_seeds(0, 25, 10)]
    assert len({seed % 100 for seed in evaluation_seeds(0, 7, 100, spread=True)}) == 7


def test_all_shows_each_world_once() -> None:
    for worlds, rounds in ((100, 1), (25, 1), (10, 1), (6, 2), (4, 3)):
        seeds = evaluation_seeds(0, "all", worlds)
        shown = [seed % worlds for seed in seeds]
        assert {shown.count(world) for world in range(worlds)} == {rounds}
        assert len(seeds) == episodes_of_all(worlds)
    assert len(evaluation_seeds(0, "all")) == 100
