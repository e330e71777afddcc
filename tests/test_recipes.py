import pytest

from svea.recipes import RECIPES, RecipeOptions, streams


@pytest.mark.parametrize("name", RECIPES)
def test_weights_sum_to_the_coefficients(name: str) -> None:
    row = streams(RECIPES[name], RecipeOptions(alpha=0.7, beta=0.4, M=3))
    totals: dict[str, float] = {}
    for (view, _), weight in zip(row.prediction, row.weights, strict=True):
        totals[view] = totals.get(view, 0) + weight
    named = {"alpha": 0.7, "beta": 0.4}
    expected = {
        v: named.get(c, c) if isinstance(c, str) else c for v, c in RECIPES[name].prediction
    }
    assert totals == pytest.approx(expected)
    assert len(row.prediction) == 3 * len(expected)


def test_streams_without_weight_are_left_out() -> None:
    assert streams(RECIPES["svea"], RecipeOptions(alpha=1, beta=0)).prediction == (("weak", 0),)
    assert streams(RECIPES["svea"], RecipeOptions(alpha=0, beta=1)).prediction == (("strong", 0),)


def test_svea_row_by_row() -> None:
    row = streams(RECIPES["svea"], RecipeOptions())
    assert row.prediction == (("weak", 0), ("strong", 0))
    assert row.weights == (0.5, 0.5)
    assert row.target == (("weak", 0),)
    assert row.policy == row.policy_q == (("weak", 0),)
    assert not row.own_target


def test_k_copies_of_the_successor() -> None:
    row = streams(RECIPES["drq"], RecipeOptions(K=3))
    assert row.target == (("weak", 0), ("weak", 1), ("weak", 2))


def test_each_stream_has_a_target_of_its_own() -> None:
    row = streams(RECIPES["mix-all"], RecipeOptions(M=2))
    assert row.target == row.prediction and row.own_target
