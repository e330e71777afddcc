import itertools

import pytest

from svea.cli.lists import views_row
from svea.methods import METHODS, uses_strong
from svea.recipes import RECIPES


def test_every_recipe_is_a_method() -> None:
    assert METHODS.keys() >= RECIPES.keys()


@pytest.mark.parametrize("name", METHODS)
def test_the_usual_augmentation_is_seen_by_something(name: str) -> None:
    method = METHODS[name]
    seen = uses_strong(method.recipe_for(method.augment), method.auxiliary)
    assert seen == (method.augment != "none")
    assert method.about


def test_views_row_in_svea_and_sada() -> None:
    row = views_row("svea")
    assert row["Q-prediction"] == "weak alpha, strong beta"
    assert row["Q-target"] == row["policy"] == "weak"
    assert views_row("mix-all")["Q-target"] == "each stream its own"
    assert views_row("svea-motion")["Q-target"] == "weak (3-step)"
    assert views_row("sada")["policy"] == "weak, strong (Q on weak)"


# The paper's ablation table: per row, what Q predicts from, whether strong augmentation is in it,
# and whether the target is augmented (by the strong one, or at all where there is no strong one).
ABLATIONS = {
    1: ("svea", "strong", "weak"),
    2: ("svea", "strong", "weak"),
    3: ("svea-augmented-target", "strong", "strong"),
    4: ("mix-all", "strong", "each stream its own"),
    5: ("augmented-prediction", "strong", "weak"),
    6: ("clean-target", "weak", "clean"),
    7: ("drq", "weak", "weak"),
    8: ("drq", "weak", "weak"),
    9: ("drq+aug", "strong", "strong"),
    10: ("drq+aug", "strong", "strong"),
    11: ("rad", "weak", "weak"),
    12: ("rad+aug", "strong", "strong"),
}


def test_the_rows_of_the_ablation_table_come_first_and_in_order() -> None:
    listed = [(int(row), name) for name in METHODS for row in METHODS[name].rows.split(", ") if row]
    assert listed[:12] == [(row, name) for row, (name, _, _) in ABLATIONS.items()]
    assert {name for _, name in listed[12:]} == {"svea-clean-target"}, "the table's other reading"


@pytest.mark.parametrize("row", ABLATIONS)
def test_a_row_of_the_ablation_table(row: int) -> None:
    name, prediction, target = ABLATIONS[row]
    shown = views_row(name)
    assert str(row) in shown["row"].split(", ")
    assert prediction in shown["Q-prediction"] and shown["Q-target"] == target
    assert shown["strong"] == ("conv" if prediction == "strong" else "none")
    assert shown["weak"] == ("crop" if row > 10 else "shift")
    policy = {4: "weak, strong", 9: "strong", 10: "strong", 12: "strong"}
    assert shown["policy"] == policy.get(row, "weak")


def test_naive_versions_have_two_names() -> None:
    for base, naive in (("drq", "drq+aug"), ("rad", "rad+aug")):
        assert METHODS[base].recipe_for("conv") is METHODS[naive].recipe_for("conv")
        assert METHODS[base].crop == METHODS[naive].crop


def test_the_methods_of_the_papers_comparison() -> None:
    """SODA and CURL are RAD with a task beside it; none of them shows Q anything strong."""
    for name, task in (("curl", "curl"), ("pad", "pad"), ("soda", "soda")):
        method = METHODS[name]
        assert (method.auxiliary, method.crop) == (task, True)
        assert method.recipe_for(method.augment) is RECIPES["drq"]
    assert METHODS["soda"].augment == "overlay"
    assert [name for name, method in METHODS.items() if method.own_heads] == ["pad"]


def test_off_a_terminal_every_method_is_one_plain_line(monkeypatch, capsys):
    from svea.cli import main

    monkeypatch.setenv("COLUMNS", "40")
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(METHODS)
    assert [line.split("  ")[0] for line in lines[1:10]] == [
        "1, 2", "3", "4", "5", "6", "7, 8", "9, 10", "11", "12",
    ]  # fmt: skip
    columns = [lines[0].index(title) for title in ("method", "Q-prediction", "Q-target", "policy")]
    for line, name in zip(lines[1:], METHODS, strict=True):
        shown = views_row(name)
        cells = [line[a:b].strip() for a, b in itertools.pairwise(columns)]
        assert cells == [shown["method"], shown["Q-prediction"], shown["Q-target"]]
        assert "\x1b" not in line and not line.endswith(" ")
