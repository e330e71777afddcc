"""The counts behind the numbers of `svea bench update`."""

from __future__ import annotations

import pytest
import torch

from svea.bench.update import UpdateRow, time_updates

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows() -> dict[str, UpdateRow]:
    made = time_updates(["svea", "drq"], device=CPU, how="eager", batch=1, repeats=1, parts=False)
    return {row.method: row for row in made}


def test_operations_are_those_of_the_paper_s_shapes(
    rows: dict[str, UpdateRow],
) -> None:
    """By hand: 11 layers of 32 filters, 84 -> 41 pixels, then two less with every layer."""
    first = 2 * 9 * 9 * 32 * 41**2
    forward = first + sum(2 * 9 * 32 * 32 * side**2 for side in range(39, 20, -2))
    # Both trunks see the successor, the policy every other update; the critic's views go back too,
    # at twice the cost, but not to the pixels.
    for method, views in (("svea", 2), ("drq", 1)):
        passes = (2 + views + 0.5) * forward + views * (2 * forward - first)
        assert 1 <= rows[method].gflop * 1e9 / passes < 1.06, method


def test_svea_trains_no_more_parameters_than_drq(
    rows: dict[str, UpdateRow],
) -> None:
    """The paper's cost claim; the number by hand for 32 filters, 100 and 1,024 units, 6 actions."""
    trunk = (9 * 9 + 1) * 32 + 10 * (9 * 32 + 1) * 32
    projection = 32 * 21 * 21 * 100 + 100 + 2 * 100  # with LayerNorm
    q = (106 * 1024 + 1024) + (1024 * 1024 + 1024) + (1024 + 1)
    policy = (100 * 1024 + 1024) + (1024 * 1024 + 1024) + (1024 * 12 + 12)
    by_hand = trunk + 2 * projection + 2 * q + policy + 1  # and the temperature
    assert rows["svea"].parameters == rows["drq"].parameters == by_hand


def test_the_masker_and_the_attributions_are_counted() -> None:
    """MaDi's masker has 219 million multiplications per observation; SGQN adds passes and more."""
    chosen = ["madi", "sgqn"]
    made = time_updates(chosen, device=CPU, how="eager", batch=1, repeats=1, parts=True)
    madi, sgqn = made
    mask = 2 * 3 * 84**2 * 9 * (3 * 32 + 32 * 32 + 32)  # of one observation, forward
    passes = 1 + 2 + 0.5 + 2 * 2  # target, both views, policy every other time; views backward
    assert 0.6 < (madi.gflop * 1e9 - 1.9e9) / (passes * mask) < 1.3, madi.gflop
    assert madi.parameters - 10_433 == sgqn.parameters - 1_625_961
    assert all(
        value >= 0 for row in made for name, value in row.parts.items() if name != "backward"
    )
