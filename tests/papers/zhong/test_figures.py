"""Figures of a small world: what is drawn is what was found."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from multiberts.papers.zhong.analysis import analyse_sizes
from multiberts.papers.zhong.figures import (
    accuracy_figure,
    bounds_figure,
    decay_figure,
    decomposition_figure,
    figure_sections,
    histogram_figure,
    momentum_figure,
    report_of_sizes,
    variance_curve_figure,
)
from multiberts.papers.zhong.tables import all_tables
from multiberts.report.presentation.sections import write_report
from multiberts.runs.figure_style import figure_bytes

pytestmark = pytest.mark.seconds

SIZES = ("mini", "medium", "large")


def lines_of(axes):
    return [np.column_stack(line.get_data()) for line in axes.get_lines()]


def test_the_page_has_every_table_and_figure(analysis, tmp_path):
    titles = {section.name: section.title for section in figure_sections(analysis)}
    names = [f"decay_NLI_{pair}" for pair in ("mini_medium", "mini_large", "medium_large")]
    for name in (*names, "accuracy", "bounds", "decomposition", "momentum_NLI",
                 "variance_given_bias_NLI_finetune_seed"):  # fmt: skip
        assert f"figure_{name}" in titles
    assert titles["figure_decay_NLI_mini_large"].endswith(" (NLI: mini to large)")
    assert titles["figure_variance_given_bias_NLI_finetune_seed"].endswith(
        "bias (NLI: fine-tuning)"
    )
    assert write_report(tmp_path / "report", report_of_sizes(analysis)) == {}
    tables = set(all_tables(analysis))
    page = (tmp_path / "report" / "index.md").read_text()
    assert {*re.findall("^## (.*)", page, re.MULTILINE)} == tables | {*titles}
    files = {str(path.relative_to(tmp_path / "report")) for path in tmp_path.rglob("*/*.*")}
    expected = {f"tables/{name}.{kind}" for name in tables for kind in ("md", "tex", "csv")}
    expected |= {f"figures/{name}.svg" for name in titles}
    assert files - {"index.md", "index.html"} == expected


def test_decay_figure_marks_the_bound(analysis):
    pair = analysis.pairs[1]
    gap, histograms = decay_figure(pair).axes
    drawn = lines_of(gap)
    for line, distribution in zip(drawn, (pair.decay.difference, pair.decay.baseline), strict=True):
        inside = distribution.support[distribution.support < 0]
        np.testing.assert_allclose(line[1:-1, 0], inside)
        np.testing.assert_allclose(line[1:-1, 1], 100 * distribution.cdf(inside))
    arrow: Any = gap.texts[-1]
    assert len(gap.texts) == 1
    assert arrow.xy[0] == arrow.xyann[0] == pair.decay.threshold
    assert arrow.xy[1] - arrow.xyann[1] == pytest.approx(100 * pair.decay.bound)
    decay = pair.decay
    expected = f"decaying: at least {decay.lower:.2%}\n(95% limit; bound {decay.bound:.2%})"
    assert gap.get_title("left") == expected
    histogram: Any = histograms.patches[0]
    steps = histogram.get_data()
    assert steps.values.sum() == pytest.approx(100)


@pytest.mark.figures
def test_labels_of_the_decay_figure_fit_beside_their_axes(analysis):
    figure = decay_figure(replace(analysis.pairs[1], small="a_long_procedure", large="another_one"))
    figure_bytes(figure)
    for axes in figure.axes:
        across, upwards = axes.xaxis.label.get_window_extent(), axes.yaxis.label.get_window_extent()
        assert upwards.height <= axes.bbox.height + 2
        assert across.x0 >= figure.bbox.x0 and across.x1 <= figure.bbox.x1


def test_bars_stack_to_the_loss(analysis):
    axes = decomposition_figure({"NLI": analysis.decompositions["NLI", "0/1"]}).axes[0]
    tops: dict[float, float] = {}
    bars: Any = axes.patches
    for bar in bars:
        tops[bar.get_x()] = max(tops.get(bar.get_x(), 0.0), bar.get_y() + bar.get_height())
    losses = [found.parts["loss"].mean for found in analysis.decompositions["NLI", "0/1"].values()]
    assert list(tops.values()) == pytest.approx(losses)
    fills = {(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}
    assert len(fills) == len({hatch for _, hatch in fills}) == 3


def test_momentum_figure_shows_every_interval(analysis):
    (axes,) = momentum_figure(analysis.momenta["NLI"]).axes
    found = analysis.momenta["NLI"][SIZES]
    bar, dot, zero = lines_of(axes)
    np.testing.assert_allclose(bar, [[found.low, 0], [found.high, 0]])
    np.testing.assert_allclose(dot, [[found.r, 0]])
    assert zero[0, 0] == 0
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mini to medium to large"]


def test_accuracy_shows_every_seed_and_the_means(analysis):
    axes = accuracy_figure(analysis.accuracies).axes[0]
    drawn = lines_of(axes)
    found = list(analysis.accuracies["NLI"].values())
    for line, accuracy in zip(drawn, found, strict=False):
        np.testing.assert_allclose(line[:, 1], accuracy.seed_scores)
    np.testing.assert_allclose(drawn[3][:, 1], [accuracy.mean for accuracy in found])
    np.testing.assert_allclose(drawn[4][:, 1], [accuracy.ensembled for accuracy in found])


def test_histogram_counts_examples_by_tenths():
    """Example k is right in k of ten seeds: one example per bar, and all-right ones in the last."""
    runs = (np.arange(11) > np.arange(10)[:, None]).astype(int)
    sizes = {"t": {"small": runs, "large": runs}}
    accuracies = analyse_sizes(sizes, n_resamples=40, with_curves=False).accuracies
    expected = np.array([*[1] * 9, 2]) / 11
    np.testing.assert_allclose(accuracies["t"]["small"].shares, expected)
    (axes,) = histogram_figure(accuracies).axes
    histogram: Any = axes.patches[1]
    np.testing.assert_allclose(histogram.get_data().values, 100 * expected)


def test_bounds_show_every_kind_where_it_is_known(analysis):
    axes, other = bounds_figure(analysis.pairs).axes
    pair = analysis.pairs[0]
    points = [line[0, 0] for line in lines_of(axes)[:3]]
    expected = (pair.of_one_seed, pair.single.bound, pair.decay.bound)
    np.testing.assert_allclose(points, [100 * value for value in expected])
    assert len(lines_of(axes)) == 3 * 5 + 1  # four kinds and an interval a pair, and a line at 0
    assert len(lines_of(other)) == 3 * 3 + 1  # with one run per seed, two kinds are left


def test_curves_of_sizes_differ_in_colour_and_in_line(analysis):
    curves = analysis.curves["NLI", "0/1"]["finetune_seed"]
    (axes,) = variance_curve_figure(curves).axes
    for line, curve in zip(axes.get_lines(), curves.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), np.maximum(curve.mean, 0))
    assert axes.get_ylim()[0] == 0
    assert any((curve.low < 0).any() for curve in curves.values())
    for band in axes.collections:
        assert band.get_paths()[0].vertices[:, 1].min() >= 0
    looks = [
        (line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.get_lines()
    ]
    assert all(len(set(kind)) == 3 for kind in zip(*looks, strict=True))


def test_a_pair_without_decay_is_drawn_too():
    sizes = {"small": np.zeros((2, 10), int), "large": np.ones((2, 10), int)}
    found = analyse_sizes({"NLI": sizes}, n_resamples=40, with_curves=False)
    left, _ = decay_figure(found.pairs[0]).axes
    assert left.get_title("left") == "decaying: at least 0.00%\n(95% limit; bound 0.00%)"
    assert not left.texts


@pytest.mark.figures
def test_long_names_are_not_clipped(analysis):
    long = "a rather long name of a size with many conditions and a version"
    pairs = [replace(pair, small=long) for pair in analysis.pairs if pair.task == "NLI"]
    figure = bounds_figure(pairs)
    figure_bytes(figure)
    (axes,) = figure.axes
    for label in axes.get_yticklabels():
        assert label.get_window_extent().x0 >= 0
    assert axes.get_window_extent().width >= 200
