"""Which figures a report has, and that each shows the numbers of its runs and of no others."""

import numpy as np
import pytest
from fake_runs import write_analysis, write_run, write_seeds

from svea.results import figures, published
from svea.results.plots import PALETTE, color_of
from svea.results.read import read_run
from svea.results.report import gather

INTENSITIES = (0.025, 0.1, 0.5)


def figures_of(*folders):
    """The figures about folders, by name."""
    return {one.name: one for one in gather(list(folders)).figures}


def line(drawn, gid):
    """The points of a line or of marks."""
    (found,) = [one for one in drawn.figure.axes[0].lines if one.get_gid() == gid]
    return found.get_xydata()


def heights(drawn):
    """The heights of bars, by the label of their group."""
    found = {}
    for container in drawn.figure.axes[0].containers:
        if not container.get_label().startswith("_"):
            found[container.get_label()] = [patch.get_height() for patch in container]
    return found


def labels(drawn):
    """What stands below the bars."""
    return [text.get_text().replace("\n", "") for text in drawn.figure.axes[0].get_xticklabels()]


def test_one_setting_has_one_figure_with_a_line_per_mode(tmp_path):
    folder = write_run(tmp_path / "a", decisions=600, evaluations=3)
    found = figures_of(folder)
    one = found["learning-walker_walk"]
    np.testing.assert_allclose(line(one, "series-0-line"), [[0, 0], [300, 150], [600, 300]])
    np.testing.assert_allclose(line(one, "series-1-line"), [[0, 0], [300, 120], [600, 240]])
    assert one.methods == ("svea", "svea")
    drawn = {mark.get_gid(): mark for mark in one.figure.axes[0].lines}
    train, test = drawn["series-0-line"], drawn["series-1-line"]
    assert train.get_color() == test.get_color() == PALETTE[color_of("svea")]
    assert train.get_linestyle() != test.get_linestyle()  # modes differ by their line
    dots = [mark for mark in one.figure.axes[0].lines if mark.get_gid() == "series-0-episodes"]
    curve = read_run(folder).episode_curve()
    np.testing.assert_array_equal(
        dots[0].get_xydata(), np.c_[curve.decisions, curve.returns]
    )  # training episodes behind the line of the training mode


def test_several_settings_have_a_figure_per_mode_with_a_line_each(tmp_path):
    svea = [
        write_run(tmp_path / f"s{s}", seed=s, final={"train": 300 + 60 * s, "color_hard": 200})
        for s in range(3)
    ]
    drq = write_run(
        tmp_path / "d", method="drq", augment="none", final={"train": 900, "color_hard": 90}
    )
    found = figures_of(*svea, drq)
    train, test = found["learning-walker_walk-train"], found["learning-walker_walk-color_hard"]
    assert train.methods == ("drq", "svea")
    assert line(train, "series-0-line")[-1].tolist() == [6000, 900]
    assert line(train, "series-1-line")[-1].tolist() == [6000, 360]  # the mean of 300, 360, 420
    assert line(test, "series-0-line")[-1].tolist() == [6000, 90]
    one, other = (drawn.figure.axes[0] for drawn in (train, test))
    assert one.get_ylim() == other.get_ylim() and one.get_ylim()[1] > 900, "the eye compares them"
    assert one.get_ylabel() == "episode return (of 1,000)"


def test_the_band_is_a_bootstrap_interval_over_seeds(tmp_path):
    finals = (300, 360, 420)
    folders = [
        write_run(tmp_path / f"{s}", seed=s, final={"train": level})
        for s, level in enumerate(finals)
    ]
    one = figures_of(*folders)["learning-walker_walk"]
    last = [row for row in one.numbers if row["decision"] == 6000]
    assert [row["seeds"] for row in last] == [3]
    assert last[0]["mean"] == pytest.approx(360)
    assert last[0]["std_over_seeds"] == pytest.approx(60)
    # Of 27 resamples of three seeds, one in 27 (3.7 %) is all lowest: beyond the 2.5 % tail.
    assert (last[0]["low"], last[0]["high"]) == (pytest.approx(300), pytest.approx(420))
    (band,) = one.figure.axes[0].collections
    edges = band.get_paths()[0].vertices
    drawn = edges[edges[:, 0] == 6000][:, 1]
    assert (drawn.min(), drawn.max()) == (pytest.approx(300), pytest.approx(420))


def test_bars_show_each_mode_next_to_the_papers(tmp_path):
    final = {"train": 300, "color_hard": 240, "video_easy": 100}
    svea = write_run(tmp_path / "s", final=final)
    drq = write_run(tmp_path / "d", method="drq", augment="none", final={"train": 310})
    one = figures_of(svea, drq)["generalisation-walker_walk"]
    assert labels(one) == ["train", "color_hard", "video_easy"]
    drawn = heights(one)
    assert drawn["svea + conv"] == pytest.approx([300, 240, 100])
    assert drawn["drq"][0] == pytest.approx(310) and np.isnan(drawn["drq"][1:]).all()
    assert "not a replication" in one.caption  # so no diamond presses its bars to the floor
    assert not [mark for mark in one.figure.axes[0].lines if "paper" in (mark.get_gid() or "")]


def test_a_replication_stands_next_to_the_papers_numbers(tmp_path):
    one = figures_of(*write_seeds(tmp_path))["generalisation-walker_walk"]
    paper = published.lookup("walker_walk", "train", "svea", "conv").mean
    assert line(one, "series-0-paper")[0, 1] == paper


def distracting_run(folder, **settings):
    """A run evaluated at three intensities: 100, 200 and 300."""
    final = {"train": 300.0}
    final |= {f"distracting_cs:{x:g}": 100.0 * k for k, x in enumerate(INTENSITIES, start=1)}
    return write_run(folder, final=final, curves=("train",), **settings)


def test_distractions_are_a_curve_over_intensity_next_to_the_papers(tmp_path):
    one = figures_of(distracting_run(tmp_path / "s"))["distracting-walker_walk"]
    expected = [[0.025, 100], [0.1, 200], [0.5, 300]]
    np.testing.assert_allclose(line(one, "series-0-line"), expected)
    modes = [f"distracting_cs:{x:g}" for x in INTENSITIES]
    paper = [published.lookup("walker_walk", mode, "svea", "conv").mean for mode in modes]
    np.testing.assert_allclose(line(one, "series-0-paper"), np.c_[INTENSITIES, paper])
    assert "approximate" in one.caption
    assert [row["intensity"] for row in one.numbers] == list(INTENSITIES)


def test_intensities_leave_the_bars_only_when_there_are_several(tmp_path):
    many = figures_of(distracting_run(tmp_path / "many"))["generalisation-walker_walk"]
    assert labels(many) == ["train"]
    one = write_run(tmp_path / "one", final={"train": 300, "distracting_cs:0.1": 100})
    found = figures_of(one)
    assert labels(found["generalisation-walker_walk"]) == ["train", "distracting_cs:0.1"]
    assert "distracting-walker_walk" not in found


def test_cameras_and_lights_have_bars_of_their_own_next_to_train(tmp_path):
    final = {"light_color_easy": 80, "rotate_hard": 20, "rotate_easy": 60, "train": 100}
    found = figures_of(write_run(tmp_path / "a", final=final | {"color_hard": 50}))
    assert labels(found["generalisation-walker_walk"]) == ["train", "color_hard"]
    geometry = found["geometry-walker_walk"]
    assert labels(geometry) == ["train", "rotate_easy", "rotate_hard"]
    (bars,) = heights(geometry).values()
    np.testing.assert_allclose(bars, [100, 60, 20])
    assert labels(found["lights-walker_walk"]) == ["train", "light_color_easy"]
    assert [row["category"] for row in geometry.numbers] == ["train", "rotate_easy", "rotate_hard"]


def test_robot_tasks_show_success_next_to_the_papers(tmp_path):
    final = {"train": 20, "test": 10}
    for seed, success in enumerate(({"train": 1.0, "test": 0.8}, {"train": 1.0, "test": 0.6})):
        folder, task = tmp_path / str(seed), "robot_reach"
        write_run(folder, task=task, seed=seed, final=final, success=success)
    one = figures_of(tmp_path)["success-robot_reach"]
    assert one.topic == figures.ROBOT
    assert heights(one)["svea + conv"] == pytest.approx([1.0, 0.7])
    np.testing.assert_array_equal(line(one, "series-0-paper")[:, 1], [1.0, 0.89])


def test_the_variance_of_the_q_target_is_a_curve_over_training(tmp_path):
    svea = [write_run(tmp_path / f"s{s}", seed=s, evaluations=3, variance=1 + s) for s in (0, 1)]
    drq = write_run(tmp_path / "d", method="drq", evaluations=3, variance=100)
    silent = write_run(tmp_path / "r", method="rad")
    one = figures_of(*svea, drq, silent)["q-target-variance-walker_walk"]
    assert one.methods == ("drq", "svea")
    np.testing.assert_allclose(line(one, "series-0-line")[:, 1], [100, 200, 300])
    np.testing.assert_allclose(line(one, "series-1-line")[:, 1], [1.5, 3, 4.5])
    assert one.figure.axes[0].get_yscale() == "log" and "Logarithmic" in one.caption


def test_analyses_are_bars_averaged_over_seeds(tmp_path):
    folders = [write_run(tmp_path / str(s), seed=s) for s in range(2)]
    for s, folder in enumerate(folders):
        write_analysis(folder, "q-gap", [{"augment": "conv", "gap": 4 + 2 * s}, {"gap": 9}])
        rows = [
            {"view": "target", "variance": 99.0, "decision": 1},
            {"view": "target", "variance": 1.0 + s, "decision": 6000},
            {"view": "strong", "variance": None},
        ]
        write_analysis(folder, "q-variance", rows)
    write_run(tmp_path / "unanalysed", method="drq")
    found = figures_of(*folders, tmp_path / "unanalysed")
    assert labels(found["q-gap-walker_walk"]) == ["conv"]
    assert heights(found["q-gap-walker_walk"]) == {"svea + conv": [5.0]}
    assert labels(found["q-variance-walker_walk"]) == ["target"]
    assert heights(found["q-variance-walker_walk"]) == {"svea + conv": [1.5]}  # the last decision


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"rows": 3}', '{"rows": [1]}', '{"rows": [{"augment": "conv"}]}']
)
def test_a_damaged_analysis_hides_nothing_else(tmp_path, content):
    folder = write_run(tmp_path / "a")
    write_analysis(folder, "q-gap", [])
    (folder / "analysis" / "q-gap.json").write_text(content)
    assert set(figures_of(folder)) == {"learning-walker_walk", "generalisation-walker_walk"}
