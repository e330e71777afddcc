"""Figures: the right series in the right place."""

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from svea.results import plots
from svea.results.plots import (
    PALETTE,
    Bar,
    Series,
    curves,
    grouped_bars,
    to_png,
    to_svg,
)
from svea.results.read import Curve

X = np.array([0.0, 1000, 2000])


def figure_of_two():
    """Two series, the first with a band and episodes."""
    episodes = [Curve(X + 50, X / 9)]
    train = Series("train", Curve(X, X / 10), (X / 10 - 5, X / 10 + 7), episodes, color=0)
    test = Series("color_hard", Curve(X, X / 20), color=1, line=1)
    return curves([train, test], title="walker_walk", action_repeat=4, random=42.0)


def test_a_long_legend_makes_the_figure_taller_and_not_the_axes_flat():
    many = [Series(f"a setting of many words, {i}", Curve(X, X * i), color=i) for i in range(9)]
    figure = curves(many, title="walker_walk", action_repeat=4)
    to_png(figure, dpi=100)  # places everything
    axes, height = figure.axes[0], 72 * figure.get_size_inches()[1]
    assert axes.get_position().height * height >= 129
    legend = figure.legends[0].get_window_extent()
    assert legend.y0 >= 0 and legend.y1 < axes.get_window_extent().y0


def test_the_upper_axis_counts_frames():
    figure = figure_of_two()
    to_png(figure)  # the upper axis takes its limits when it is drawn
    (frames,) = figure.axes[0].child_axes
    assert frames.get_xlabel() == "frames"
    assert figure.axes[0].get_xlabel() == "decisions"
    np.testing.assert_allclose(frames.get_xlim(), 4 * np.array(figure.axes[0].get_xlim()))


def test_bars_have_their_heights_whiskers_and_the_papers_marks():
    bars = [
        Bar("svea", [300, 240], [280, 200], [310, 250], 0, paper=[math.nan, 760]),
        Bar("drq", [310, math.nan], [300, math.nan], [320, math.nan], 1),
    ]
    figure = grouped_bars(bars, ["train", "test"], title="t", random=[40, 41])
    axes = figure.axes[0]
    assert [patch.get_height() for patch in axes.containers[0]] == [300, 240]
    by_label = {group.get_label(): group for group in axes.containers}
    assert by_label["drq"][0].get_height() == 310
    assert math.isnan(by_label["drq"][1].get_height())
    segments = axes.collections[0].get_segments()
    assert [sorted(segment[:, 1]) for segment in segments] == [[280, 310], [200, 250]]
    (paper,) = [one for one in axes.lines if one.get_label() == "paper"]
    np.testing.assert_array_equal(paper.get_ydata(), [math.nan, 760])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["train", "test"]


def test_svg_is_well_formed_repeatable_and_follows_the_theme():
    one, two = to_svg(figure_of_two(), "a"), to_svg(figure_of_two(), "a")
    assert one == two
    root = ElementTree.fromstring(one)
    assert "width" not in root.attrib
    series = [node.get("data-series") for node in root.iter() if node.get("data-series")]
    assert sorted(set(series)) == ["0", "1"]
    assert f"var(--c0, {PALETTE[0]})" in one
    assert "http" not in one.replace("http://www.w3.org", "")


def drawn_points(svg, gid):
    """The points of a line as the SVG draws it, translated back by `data-box` and `data-limits`."""
    root = ElementTree.fromstring(svg)
    (group,) = [node for node in root.iter() if node.get("id", "").endswith(gid)]
    path = next(node for node in group.iter() if node.tag.endswith("path"))
    points = re.findall(r"[ML] (\S+) (\S+)", path.get("d"))
    x, y = np.array(points, dtype=float).T
    left, top, right, bottom = map(float, root.get("data-box").split())
    x0, y1, x1, y0 = map(float, root.get("data-limits").split())
    across, up = (x - left) / (right - left), (bottom - y) / (bottom - top)
    height = y0 * (y1 / y0) ** up if root.get("data-scale") == "log" else y0 + up * (y1 - y0)
    return np.c_[x0 + across * (x1 - x0), height]


def test_a_page_can_read_the_values_off_the_svg():
    np.testing.assert_allclose(
        drawn_points(to_svg(figure_of_two(), "a"), "series-1-line"), np.c_[X, X / 20], atol=0.01
    )


def test_legend_entries_belong_to_their_series():
    bars = [Bar("svea", [3.0], [2.0], [4.0]), Bar("drq", [1.0], [1.0], [1.0], 1)]
    for figure in (figure_of_two(), grouped_bars(bars, ["train"], title="t")):
        root = ElementTree.fromstring(to_svg(figure, "a"))
        texts = {
            node.get("data-series"): "".join(node.itertext()).strip()
            for node in root.iter()
            if node.get("id", "").endswith("-text")
        }
        labels = [text.get_text() for text in figure.legends[0].get_texts()][:2]
        assert texts == {"0": labels[0], "1": labels[1]}


@pytest.mark.parametrize("settings", [1, 12])
def test_nothing_hangs_over_the_edge_or_covers_the_axes(settings):
    labels = [f"svea + overlay, seed {place}" for place in range(settings)]
    series = [Series(label, Curve(X, 1234.5 * X), color=k) for k, label in enumerate(labels)]
    bars = [Bar(label, [-0.0012] * 7, [-0.002] * 7, [0.0] * 7) for label in labels]
    modes = ["train", "color_easy", "color_hard", "video_easy", "video_hard", "distracting_cs", "x"]
    for figure in (
        curves(series, title="walker_walk: color_hard", action_repeat=4, random=1.0),
        grouped_bars(bars, modes, title="walker_walk: return per mode"),
    ):
        to_png(figure, dpi=72)
        axes, page = figure.axes[0], figure.bbox
        drawn = axes.get_tightbbox()
        assert drawn.x0 >= 0 and drawn.x1 <= page.x1 and drawn.y1 <= page.y1
        assert figure.legends[0].get_window_extent().y1 <= drawn.y0 + 1


def test_ids_of_different_figures_do_not_meet():
    ids = [
        {node.get("id") for node in ElementTree.fromstring(svg).iter() if node.get("id")}
        for svg in (to_svg(figure_of_two(), "a"), to_svg(figure_of_two(), "b"))
    ]
    assert ids[0] and ids[0].isdisjoint(ids[1])
    svg = to_svg(figure_of_two(), "a")
    for node in ElementTree.fromstring(svg).iter():
        target = node.get("{http://www.w3.org/1999/xlink}href")
        assert target is None or target.removeprefix("#") in ids[0]


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "$x_1$", "_hidden", "a -- b & c", ""]
)
def test_hostile_labels_are_text(name):
    figure = curves([Series(name, Curve(X, X))], title=name, action_repeat=None)
    svg = to_svg(figure, "a")
    assert "<script" not in svg
    ElementTree.fromstring(svg)
    assert figure.legends[0].get_texts()


def test_many_episodes_become_one_picture():
    x = np.arange(5000.0)
    many = Series("train", Curve(X, X), episodes=[Curve(x, x)])
    svg = to_svg(curves([many], title="t", action_repeat=2), "a")
    assert "data:image/png;base64" in svg
    assert len(svg) < 200_000


def test_no_two_settings_look_the_same_and_methods_keep_their_colour():
    settings = ["svea"] * 12 + ["drq"] * 3 + ["sac"] + ["a method of one's own"] * 9
    looks = plots.looks(settings)
    assert len(set(looks)) == len(settings)
    first = {method: looks[settings.index(method)] for method in ("svea", "drq", "sac")}
    alone = {method: plots.looks([method])[0] for method in first}
    assert first == alone
    assert len(plots.LINES) == len(plots.HATCHES) == len(set(plots.HATCHES))
    assert all(line < len(plots.LINES) for _, line in looks)
