"""Grouping runs over seeds, the rows of the table, and curves."""

import math

import numpy as np
import pytest
from fake_runs import change_records, write_run, write_seeds

from svea.results import tables
from svea.results.analyses import walltimes
from svea.results.groups import all_caveats, caveat_notes, caveats_of, group_runs
from svea.results.read import Curve, read_run
from svea.results.summary import aggregate, hours_to, mean_curve, over_hours, summarise
from svea.results.tables import all_results, to_latex, to_markdown, to_rows


def groups_of(*folders):
    """Groups of freshly read runs."""
    return group_runs([read_run(folder) for folder in folders])


def test_seeds_group_and_settings_do_not(tmp_path):
    groups = groups_of(
        write_run(tmp_path / "a", seed=1, deterministic=True, speed="eager"),  # how, not what
        write_run(tmp_path / "b", seed=0, ddpg={"q_tau": 0.01}),  # which SAC has not
        write_run(tmp_path / "c", method="drq", augment="none"),
        write_run(tmp_path / "d", recipe={"alpha": 1.0, "beta": 0.5, "K": 1, "M": 1}),
    )
    assert [(g.label, [r.seed for r in g.runs]) for g in groups] == [
        ("drq", [0]),
        ("svea + conv, recipe.alpha 0.5", [0, 1]),
        ("svea + conv, recipe.alpha 1.0", [0]),
    ]


def test_two_spellings_of_an_augmentation_are_one_setting(tmp_path):
    for seed, spelling in enumerate(("overlay_drift", "overlay-drift", "overlay_drift:6")):
        write_run(tmp_path / str(seed), seed=seed, augment=spelling)
    (group,) = groups_of(*(tmp_path / str(seed) for seed in range(3)))
    assert group.label == "svea + overlay_drift" and [r.seed for r in group.runs] == [0, 1, 2]


def test_what_was_not_training_makes_no_other_setting(tmp_path):
    groups = groups_of(
        write_run(tmp_path / "a", seed=0, eval_mode="color_hard"),
        write_run(tmp_path / "b", seed=1, eval_mode="train", eval_every=0),
    )
    assert [(g.label, len(g.runs), g.unsaid) for g in groups] == [("svea + conv", 2, ())]
    longer = write_run(tmp_path / "d", task="finger_spin", decisions=9000, eval_mode="train")
    labels = [g.label for g in groups_of(tmp_path / "a", tmp_path / "b", longer)]
    assert labels == ["svea + conv, decisions 9000", "svea + conv, decisions 6000"]


def test_labels_are_as_short_as_they_can_be(tmp_path):
    sizes = {"image_size": 84, "network": {"filters": 32}, "sac": {"initial_temperature": 0.1}}
    groups = groups_of(
        write_run(tmp_path / "a", preset="paper", **sizes),
        write_run(tmp_path / "b", preset="paper", base="ddpg", ddpg={"q_tau": 0.01}, **sizes),
        write_run(tmp_path / "c", preset="quick"),
        write_run(tmp_path / "d", preset="quick", decisions=9000, batch_size=8),
    )
    assert {group.runs[0].name.split("/")[1]: (group.label, group.unsaid) for group in groups} == {
        "a": ("svea + conv, preset paper", ()),
        "b": ("svea + conv (ddpg)", ()),
        "c": ("svea + conv, preset quick, decisions 6000", ("batch_size",)),
        "d": ("svea + conv, preset quick, decisions 9000", ("batch_size",)),
    }
    assert "differ in more than their labels say: batch_size" in "\n".join(caveats_of(groups[2]))


def test_a_label_means_the_same_on_every_task(tmp_path):
    own = {"walker_walk": {"action_repeat": 4}, "finger_spin": {"action_repeat": 2}}
    groups = groups_of(
        write_run(tmp_path / "a", task="walker_walk", **own["walker_walk"]),
        write_run(tmp_path / "b", task="finger_spin", **own["finger_spin"]),
        write_run(tmp_path / "c", task="finger_spin", preset="paper", **own["finger_spin"]),
    )
    assert [(group.task, group.label) for group in groups] == [
        ("finger_spin", "svea + conv, preset paper"),
        ("finger_spin", "svea + conv, preset quick"),
        ("walker_walk", "svea + conv, preset quick"),
    ]
    (pooled,) = {one.label for one in aggregate(groups)}
    assert pooled == "svea + conv, preset quick"
    alone = groups_of(tmp_path / "a", tmp_path / "b")
    assert {group.label for group in alone} == {"svea + conv"}
    different = groups_of(tmp_path / "a", tmp_path / "c")
    assert aggregate(different) == [], "other settings are not pooled"


def test_a_result_holds_the_known_numbers(tmp_path):
    (group,) = groups_of(
        write_run(tmp_path / "a", seed=0, final={"train": 400, "color_hard": 300}, random=50),
        write_run(tmp_path / "b", seed=1, final={"train": 600, "color_hard": 320}, random=50),
    )
    train, test = summarise(group)
    assert (train.mode, test.mode) == ("train", "color_hard")
    assert train.mean == pytest.approx(500)
    assert train.std == pytest.approx(math.sqrt(2) * 100)
    assert (train.seeds, train.episodes) == (2, 20)
    assert train.times_random == pytest.approx(10)
    assert test.percent_of_train == pytest.approx(62)
    assert test.paper.mean == 760
    assert (test.mean_over_seeds.low, test.mean_over_seeds.high) == pytest.approx((300, 320))


def test_the_papers_numbers_belong_to_its_own_base_and_single_views(tmp_path):
    for base, expected in (("sac", 760), ("ddpg", None), ("dqn", None)):
        (group,) = groups_of(write_run(tmp_path / base, base=base))
        paper = summarise(group)[1].paper
        assert (paper and paper.mean) == expected
    more = {"alpha": 0.5, "beta": 0.5, "K": 2, "M": 2}
    (group,) = groups_of(write_run(tmp_path / "views", recipe=more))
    assert summarise(group)[1].paper is None


def in_worlds(run, seen, provenance):
    """Let every episode in color_hard show the next of some worlds."""

    def change(record):
        if record["mode"] != "color_hard":
            return record
        return record | {"world": record["episode"] % seen, "provenance": provenance}

    return change_records(run, change)


@pytest.mark.parametrize(
    ("seen", "provenance", "worlds"),
    [
        (10, {"source": "dmcgb", "worlds": 10}, "10 of 10"),
        (10, {"source": "dmcgb", "worlds": 100}, "10 of 100"),
        (
            6,
            {"source": "dmcgb", "missing": ["v"], "clips": 6, "of": 10, "identified": 6},
            "6 of 10",
        ),
    ],
)
def test_a_result_over_some_worlds_is_partial_next_to_the_papers(
    tmp_path, seen, provenance, worlds
):
    (group,) = groups_of(*(in_worlds(run, seen, provenance) for run in write_seeds(tmp_path)))
    (result,) = (one for one in summarise(group) if one.mode == "color_hard")
    is_whole = worlds == "10 of 10"
    assert result.departures == (() if is_whole else (f"partial: {worlds} worlds",))
    assert result.is_replication is is_whole
    table = all_results([group])
    row = table.rows[1].cells
    assert row["worlds"].text == worlds
    assert row["paper"].text == ("760 ± 145" if is_whole else "760 ± 145†")
    assert any(f"here: partial: {worlds} worlds" in note for note in table.notes) is not is_whole
    line = tables.record(result)
    assert f"{line['worlds_seen']} of {line['worlds']}" == worlds


def test_intervals_over_seeds_and_over_worlds_are_both_given(tmp_path):
    runs = [write_run(tmp_path / f"{n}", seed=n, final={"train": 300}) for n in range(3)]
    (group,) = groups_of(*runs)
    (result,) = summarise(group)
    assert result.mean_over_seeds.low == result.mean_over_seeds.high == pytest.approx(300)
    assert result.interval.low < 295 < 305 < result.interval.high
    line = tables.record(result)
    assert line["mean_low"] == pytest.approx(300)
    assert line["mean_low_over_worlds"] == result.interval.low
    (alone,) = summarise(groups_of(runs[0])[0])
    assert alone.mean_over_seeds == alone.interval, "one seed: over worlds only"
    assert math.isnan(alone.std) and alone.iqm.low < 300 < alone.iqm.high


ROBOT = "a robot task of our own (the paper's were never released)"


@pytest.mark.parametrize(
    ("seeds", "decisions", "preset", "more", "departures"),
    [
        (5, 500_000, "paper", {}, ()),
        (5, 600_000, "paper", {"speed": "eager", "eval_every": 7}, ()),
        (4, 500_000, "paper", {}, ("4 seeds",)),
        (5, 499_999, "paper", {}, ("499,999 decisions (100 %)",)),
        (1, 6_000, "quick", {}, ("6,000 decisions (1.2 %)", "1 seed", "preset quick")),
        (5, 500_000, "quick", {}, ("preset quick",)),
        (5, 500_000, "paper", {"image_size": 64}, ("other settings (image_size)",)),
        (5, 500_000, "paper", {"base": "ddpg"}, ("other settings (base)",)),
        (5, 500_000, "paper", {"task": "robot_reach"}, (ROBOT,)),
        (5, 500_000, "paper", {"task": "cheetah_run", "image_size": 64}, ()),
    ],
)
def test_only_the_papers_size_and_settings_are_a_replication(
    tmp_path, seeds, decisions, preset, more, departures
):
    settings = {"decisions": decisions, "preset": preset} | more
    (group,) = groups_of(*write_seeds(tmp_path, seeds, **settings))
    assert group.departures == departures
    test = summarise(group)[1]
    assert test.is_replication is (not departures and test.paper is not None)


def test_caveats_name_seeds_preset_and_generated_data(tmp_path):
    (group,) = groups_of(write_run(tmp_path / "a"), write_run(tmp_path / "b"))
    text = "\n".join(caveats_of(group))
    assert "not a replication: 6,000 decisions (1.2 %), 2 seeds, preset quick" in text
    assert "several runs have the same seed (0)" in text
    assert "color_hard: generated data" in text and "train" not in text


def keep_episodes(run, **counts):
    """Drop all but the first few episodes of some modes."""
    return change_records(run, lambda r: r if r["episode"] < counts.get(r["mode"], 99) else None)


def few(groups, modes=None):
    """The caveats about few episodes."""
    return [text for text in caveat_notes(groups, modes) if text.startswith("few episodes")]


def test_one_episode_has_no_interval_and_a_caveat(tmp_path):
    run = keep_episodes(write_run(tmp_path / "a b"), train=1, color_hard=3)
    groups = groups_of(run)
    train, test = summarise(groups[0])
    for one in (train.mean_over_seeds, train.interval, train.iqm, train.iqm_over_worlds):
        assert math.isnan(one.low) and math.isnan(one.high) and one.point == train.mean
    assert test.interval.low < test.mean < test.interval.high
    table = all_results(groups)
    row, other = (row.cells for row in table.rows)
    assert row["mean [95 %]"].line == "–" and row["IQM"].line == "315"
    assert other["mean [95 %]"].line.startswith("[")
    assert any(note.startswith("No interval: one seed in a single world") for note in table.notes)
    (text,) = few(groups)
    assert text.startswith("few episodes: 1 in train, 3 in color_hard; intervals of so few are too")
    (text,) = few(groups, ["color_hard"])
    assert "3 in color_hard;" in text and "train" not in text, "of what is shown"
    assert not few(groups_of(write_run(tmp_path / "enough")))


@pytest.mark.parametrize(("level", "success"), [(0.0, 0.5), (300.0, 1.0)])
def test_episodes_that_all_end_alike_are_few_too(tmp_path, level, success):
    """The bootstrap gives them an interval without width, as if the next could not differ."""
    run = write_run(tmp_path / "a", final={"train": level}, success={"train": success})
    (text,) = few(groups_of(run))
    assert text.startswith("few episodes: 10 with one outcome in train;")


# What a result was made with ----------------------------------------------------------------------

PLACES = {"source": "places365_standard/train", "count": 2048, "side": 128}
PLACES |= {"of": 1_803_460, "sha256": "a" * 64}


def with_test_data(runs, provenance):
    told = {"provenance": provenance}
    return [change_records(run, lambda r: r if r["mode"] == "train" else r | told) for run in runs]


@pytest.mark.parametrize(
    ("pictures", "departure"),
    [
        (PLACES, ""),
        (None, "overlay pictures not recorded"),
        (PLACES | {"source": "procedural"}, "overlay pictures not Places365 (procedural)"),
        (PLACES | {"of": 300}, "only 300 files of Places365 for overlay"),
        (PLACES | {"since": 9000}, "overlay pictures not recorded before decision 9,000"),
    ],
)
def test_overlays_pictures_keep_a_result_from_being_a_replication(tmp_path, pictures, departure):
    more = {"pictures": pictures} if pictures else {}
    (group,) = groups_of(*write_seeds(tmp_path, augment="overlay", **more))
    result = summarise(group)[1]
    assert result.paper is not None and result.paper.mean == 749
    assert result.departures == ((departure,) if departure else ())
    assert result.is_replication is not bool(departure)
    assert caveats_of(group) == ([f"not a replication: {departure}"] if departure else [])
    table = all_results([group])
    assert tables.record(result)["differs_from_paper"] == departure
    assert any(departure in note for note in table.notes) or not departure


def test_runs_with_other_pictures_are_other_groups_wherever_the_pictures_lay(tmp_path):
    one = write_run(tmp_path / "a", augment="overlay", pictures=PLACES, overlay_dir="/data/x")
    same = write_run(tmp_path / "b", augment="overlay", pictures=PLACES, seed=1, overlay_dir="/y")
    other = PLACES | {"source": "procedural", "sha256": "b" * 64}
    two = write_run(tmp_path / "c", augment="overlay", pictures=other, seed=2)
    groups = groups_of(one, same, two)
    assert sorted(len(group.runs) for group in groups) == [1, 2]
    assert all("pictures" in group.label for group in groups)


@pytest.mark.parametrize(
    ("provenance", "departure"),
    [
        ({"source": "dmcgb"}, ""),
        ({"source": "procedural"}, "test data procedural"),
        ({"source": "holiday"}, "test data holiday"),
        ({}, "test data not recorded"),
        ({"source": "davis", "missing": ["bear"]}, "test data incomplete"),
        ({"source": "dmcgb", "clips": 0, "identified": 0}, ""),
        ({"source": "dmcgb", "clips": 0}, "test data dmcgb, clips not identified"),
        ({"source": "dmcgb", "clips": 0, "stored": ["84 x 84"]}, "test data dmcgb, re-coded"),
    ],
)
def test_only_the_benchmarks_whole_test_data_makes_a_replication(tmp_path, provenance, departure):
    (group,) = groups_of(*with_test_data(write_seeds(tmp_path), provenance))
    train, test = summarise(group)
    assert train.is_replication and test.departures == ((departure,) if departure else ())
    table = all_results([group])
    row = table.rows[1].cells
    assert row["paper"].text == "760 ± 145" + ("†" if departure else "")
    assert any(departure in note for note in table.notes) or not departure
    for text in (to_markdown(table), to_latex(table)):
        assert (departure in text) if departure else "ot a replication" not in text


def test_a_mask_that_the_method_does_not_bring_is_named(tmp_path):
    write_run(tmp_path / "a", method="madi", mask="madi")
    write_run(tmp_path / "b", method="svea", mask="madi")
    labels = {group.label for group in groups_of(*sorted(tmp_path.iterdir()))}
    assert labels == {"madi + conv", "svea + conv (mask madi)"}


def test_renderers_that_differ_are_a_caveat(tmp_path):
    """In one mean, and next to each other; records from before they were recorded count as that."""
    drawn = [{"source": "dmcgb", "renderer": name} for name in ("svea raster 1", "OpenGL: Mesa 22")]
    for number, two in enumerate(([drawn[0]] * 2, drawn, [drawn[0], {"source": "dmcgb"}])):
        runs = [write_run(tmp_path / f"{number}-{seed}", seed=seed) for seed in range(2)]
        for run, provenance in zip(runs, two, strict=True):
            with_test_data([run], provenance)
        said = [text for text in all_caveats(groups_of(*runs)) if "renderers differ" in text]
        names = sorted({one.get("renderer", "not recorded") for one in two})
        assert said == ([f"renderers differ: {'; '.join(names)} (color_hard)"] if number else [])


def test_episodes_that_another_renderer_drew_are_a_caveat(tmp_path):
    other = {"drawn_by": "OpenGL: Mesa 22"}
    run = change_records(write_run(tmp_path / "run"), lambda r: r if r["episode"] else r | other)
    said = [text for text in all_caveats(groups_of(run)) if "drawn by OpenGL: Mesa 22" in text]
    assert len(said) == 1


# Curves over seeds, and return over wall time -----------------------------------------------------


def test_the_mean_curve_covers_what_all_seeds_have(tmp_path):
    long = write_run(tmp_path / "a", seed=0, final={"train": 300}, evaluations=4)
    short = write_run(tmp_path / "b", seed=1, final={"train": 600}, evaluations=3)
    mean = mean_curve(read_run(run).evaluation_curve("train") for run in (long, short))
    assert mean is not None
    np.testing.assert_array_equal(mean.curve.decisions, [0, 2000, 3000, 4000, 6000])
    np.testing.assert_allclose(mean.curve.returns, 450 * mean.curve.decisions / 6000)
    np.testing.assert_allclose(mean.std, mean.curve.decisions / 6000 * 150 * math.sqrt(2))


def test_hours_to_a_return_are_read_off_the_mean_curve(tmp_path):
    # fake runs take 0.1 s a decision and climb in a straight line, so hours follow from returns.
    write_run(tmp_path / "a", seed=0, final={"train": 300})
    write_run(tmp_path / "b", seed=1, final={"train": 500})
    write_run(tmp_path / "c", method="drq", augment="none", final={"train": 200}, decisions=12_000)
    drq, svea = to_rows(walltimes([tmp_path])[0])
    assert (svea["setting"], svea["ms per decision"], svea["last return"]) == (
        "svea + conv", "100", "400",
    )  # fmt: skip
    whole = 600 / 3600  # nine tenths of the lowest best return, 200, are reached by both
    assert float(svea["hours to 180"]) == pytest.approx(whole * 180 / 400, rel=0.01)
    assert float(drq["hours to 180"]) == pytest.approx(2 * whole * 0.9, rel=0.01)
    curve = Curve(np.array([0.0, 2.0]), np.array([0.0, 400.0]))
    assert hours_to(curve, 0) == 0 and hours_to(curve, 100) == 0.5
    assert math.isnan(hours_to(curve, 401))


def test_hours_are_those_logged_at_each_evaluation(tmp_path):
    """A run that slows down reaches its first returns early, whatever its mean speed."""
    folder = write_run(tmp_path / "a", final={"train": 400}, evaluations=3)
    lines = (folder / "metrics.jsonl").read_text().replace('"seconds": 300.0', '"seconds": 36.0')
    (folder / "metrics.jsonl").write_text(lines)  # half of the decisions in the first 36 s of 600
    found = over_hours([read_run(folder)], "train")
    assert found is not None
    np.testing.assert_allclose(found.curve.returns, [0, 200, 400])
    np.testing.assert_allclose(found.curve.decisions, [0, 0.01, 600 / 3600])
