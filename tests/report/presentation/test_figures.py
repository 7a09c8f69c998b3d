"""Figures: what is drawn, colours that differ in grey, and the same bytes twice."""

import numpy as np
import pytest
import xarray

from multiberts.report.presentation import figures
from multiberts.runs.figure_style import COLOURS, LINES, MARKERS, figure_bytes
from multiberts.stats import compare, slices
from multiberts.stats.intervals import Interval


def side(shift, key):
    values = shift + np.random.default_rng(key).normal(scale=0.1, size=(5, 30))
    return xarray.DataArray(
        values, dims=("pretrain_seed", "example"), coords={"pretrain_seed": range(5)}
    )


@pytest.fixture(scope="module")
def comparison():
    labels = xarray.DataArray(np.zeros(30), dims="example")
    return compare(
        side(0.6, 0), side(0.8, 1), "mean", labels=labels, n_resamples=100,
    ).named("old", "new", name="new against old", evaluation_set="dev")  # fmt: skip


def lines_of(axes):
    return [np.column_stack(line.get_data()) for line in axes.get_lines()]


def test_paired_seeds_are_joined(comparison):
    axes, difference = figures.seed_figure(comparison).axes
    joined = [line[:, 1] for line in lines_of(axes) if len(line) == 2]
    for pair in zip(comparison.base.seed_scores, comparison.experiment.seed_scores, strict=True):
        assert any(np.allclose(line, pair) for line in joined)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["old\n(5 seeds)", "new\n(5 seeds)"]
    changes = comparison.experiment.seed_scores - comparison.base.seed_scores
    drawn = lines_of(difference)
    assert any(len(line) == 5 and np.allclose(line[:, 1], changes) for line in drawn)
    assert any(len(line) == 2 and np.allclose(line[:, 1], comparison.ci) for line in drawn)


def test_long_names_of_rows_are_wrapped_and_not_clipped(comparison):
    name = "a-very-long-name-of-a-model " * 4
    rows = {name: comparison, "b": comparison}
    (axes,) = figures.forest_figure(rows).axes
    first = axes.get_yticklabels()[0].get_text()
    assert len(first.splitlines()) == 2 and first.endswith("…")


@pytest.mark.figures
def test_a_name_that_looks_like_tex_is_text(comparison, monkeypatch):
    """Matplotlib reads a `matplotlibrc` of the current folder, which may turn TeX on."""
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    name = r"$\input{secret}$"
    svg = figure_bytes(figures.forest_figure({name: comparison, r"$\a$": comparison})).decode()
    assert name in svg and r"$\a$" in svg


def test_both_intervals_are_drawn(comparison):
    (axes,) = figures.sources_figure([comparison]).axes
    drawn = [line[:, 0] for line in lines_of(axes)]
    for interval in (comparison.ci, comparison.intervals["percentile"]):
        assert any(len(line) == 2 and np.allclose(line, interval) for line in drawn)
    assert axes.get_xlabel() == "mean: new - old"


def test_forest_shows_every_comparison(comparison):
    (axes,) = figures.forest_figure(dict.fromkeys("abc", comparison)).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    assert axes.get_title("left") == "new against old"


def test_mean_of_seeds_ignores_missing_steps():
    scores = {0: np.array([0.1, 0.3]), 1: np.array([0.2, np.nan])}
    curve = figures.Curve("base", np.array([0, 100]), scores)
    (axes,) = figures.training_figure([curve], "dev", "accuracy").axes
    np.testing.assert_allclose(lines_of(axes)[-1], [[0, 0.15], [100, 0.3]])


def test_no_band_leaves_the_bounds_of_the_metric():
    scores = {seed: np.array([0.5, score, 1.0]) for seed, score in enumerate((0.75, 0.99, 1.0))}
    for bounds, exceeds in (((0.0, 1.0), False), ((-np.inf, np.inf), True)):
        curve = figures.Curve("base", np.array([0, 100, 200]), scores, bounds)
        (axes,) = figures.training_figure([curve], "dev", "accuracy", 0.95).axes
        (band,) = axes.collections
        heights = band.get_paths()[0].vertices[:, 1]
        assert (heights.max() > 1) == exceeds
        assert heights.min() < 0.75


def test_every_seed_has_a_line_and_the_truth_is_on_top():
    share, random = np.linspace(0, 1, 11), np.random.default_rng(0)
    seeds = 0.5 * share + random.normal(0, 0.05, (3, 11))
    clouds = [
        figures.OccupationScores("base", share, seeds, 0.4, Interval(0.3, 0.6)),
        figures.OccupationScores("new", share, -0.001 * share),  # 0.00, without a sign
    ]
    (axes,) = figures.bias_figure(clouds, "bias").axes
    (legend,) = axes.figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    slope = np.polyfit(share, seeds.mean(axis=0), 1)[0]
    assert texts == [
        f"base: slope {slope:.2f} (0.30 to 0.60)", "new: slope 0.00", "one seed", "true slope",
    ]  # fmt: skip
    lines = axes.get_lines()
    thin = [line.get_ydata() for line in lines if line.get_label() == "one seed"]
    fits = [np.polyval(np.polyfit(share, values, 1), [0, 1]) for values in seeds]
    np.testing.assert_allclose(thin, fits)
    (truth,) = [line for line in lines if line.get_label() == "true slope"]
    assert truth.get_zorder() > max(line.get_zorder() for line in lines if line is not truth)
    assert np.diff(truth.get_ydata()) == pytest.approx(0.4)


@pytest.mark.figures
@pytest.mark.parametrize(
    ("kind", "begins"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")]
)
def test_same_bytes_twice_and_no_dates(comparison, kind, begins):
    first, second = (figure_bytes(figures.sources_figure([comparison]), kind) for _ in range(2))
    assert first == second
    assert first.startswith(begins)
    assert b"dc:date" not in first and b"Date" not in first and b"Matplotlib" not in first


def test_first_colours_differ_in_grey():
    """Relative luminance of neighbours in the order of use, so that a grey print can be read."""
    weights = np.array([0.299, 0.587, 0.114])
    grey = [
        weights @ [int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in COLOURS
    ]
    assert abs(grey[0] - grey[1]) > 15
    assert len(set(MARKERS)) == len(set(map(str, LINES))) == len(COLOURS)


def test_a_slice_too_small_for_an_interval_is_a_dot_alone():
    random = np.random.default_rng(0)
    base, experiment = (random.integers(0, 2, (4, 100)) for _ in range(2))
    kinds = np.repeat(["large", "middle", "small"], [45, 35, 20])
    found = slices(compare(base, experiment, "mean", n_resamples=50), kinds)
    left, right = found.plot().axes
    names = [label.get_text() for label in left.get_yticklabels()]
    assert names == ["all examples", "large (45)", "middle (35)", "small (20)"]
    rows = {line.get_ydata()[0]: line for line in left.lines if line.get_marker() == "o"}
    for place, one in enumerate(found.slices, start=1):
        assert rows[place].get_xdata()[0] == one.estimate
    ends = {tuple(line.get_xdata()) for line in left.lines}
    assert tuple(found.slices[0].ci) in ends
    assert len([line for line in right.lines if line.get_marker() == "s"]) == 2


def test_a_legend_is_within_its_figure_in_as_few_rows_as_fit():
    share = np.linspace(0.1, 0.9, 9)
    boxes = []
    for name in ("CDA", "base, step 1600"):
        arms = [
            figures.OccupationScores(
                arm, share, np.tile(share, (5, 1)), truth=1.0, interval=Interval(0.92, 1.07)
            )
            for arm in ("base", name)
        ]
        figure = figures.bias_figure(arms, "bias")
        figure_bytes(figure)
        (legend,) = figure.legends
        boxes.append(legend.get_window_extent())
        assert boxes[-1].x0 >= 0 and boxes[-1].x1 <= figure.bbox.width
    assert boxes[1].height > 1.5 * boxes[0].height
