"""The paper's figures: what is drawn, that nothing is cut off, and the same bytes twice."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from multiberts.papers.multiberts.catalogue import (
    PUBLISHED,
    Catalogue,
    compare_family,
)
from multiberts.papers.multiberts.figures import (
    ScorePanel,
    agreement_figure,
    family_figure,
    occupations_figure,
    power_figure,
    score_figure,
    seeds_figure,
    variance_figure,
)
from multiberts.papers.multiberts.run_agreement import agreement
from multiberts.report.prediction_sets import RunScores, curve_of_prediction_sets
from multiberts.report.presentation.figures import bootstrap_figure, sources_figure, training_figure
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import LINES, MARKERS, figure_bytes
from multiberts.stats.errors import DataError
from multiberts.stats.variance.components import VarianceComponents
from multiberts.tests.papers.conftest import chosen
from multiberts.tests.worlds import changed

pytestmark = pytest.mark.seconds

SETTINGS = replace(PUBLISHED, n_resamples=40)
PARTS = VarianceComponents(seed=0.02, example=0.1, residual=0.3, run=0.01, run_residual=0.2)


@pytest.fixture(scope="module")
def sources(prediction_sets):
    return Catalogue(prediction_sets, settings=SETTINGS).sources


@pytest.fixture(scope="module")
def family(prediction_sets):
    pairs = [tuple(chosen(prediction_sets, task, "base")[1::-1]) for task in ("RTE", "STS-B")]
    return compare_family(pairs, settings=SETTINGS)


@pytest.fixture(scope="module")
def drawn(prediction_sets, sources, family):
    """One of every figure."""
    rte, (original,) = (chosen(prediction_sets, "RTE", name) for name in ("base", "original"))
    bias = [chosen(prediction_sets, "coreference", name)[0] for name in ("base", "cda_incr")]
    late, reference = (own.run_scores("accuracy") for own in (rte[0], original))
    panels = [ScorePanel(name, "accuracy", [late], reference) for name in "abcde"]
    arms = [own.run_scores("bias_correlation", own.procedure) for own in bias]
    curve = curve_of_prediction_sets(rte, "accuracy")
    return {
        "scores": score_figure(panels),
        "one_scale": score_figure(panels[:2], "title", one_scale=True),
        "seeds": seeds_figure(arms, "bias_correlation"),
        "one_procedure": seeds_figure(arms[:1], "bias_correlation"),
        "bootstrap": bootstrap_figure(sources[0]),
        "sources": sources_figure(sources),
        "occupations": occupations_figure(bias, "bias_correlation"),
        "training": training_figure([curve], "RTE/dev", "accuracy", 0.95),
        "agreement": agreement_figure({"RTE/dev": agreement(rte[0].data)}),
        "family": family_figure(family),
        "variance": variance_figure({"RTE/dev": PARTS}, {"RTE/dev": (6, 2, 120)}),
        "power": power_figure([0.1, 0.2], range(2, 12), PARTS.plan(2, 2, 120)),
    }


def points(axes, marker):
    """All dots drawn with a marker [dots, 2]."""
    found = [line for line in axes.get_lines() if line.get_marker() == marker]
    return np.concatenate([np.column_stack(line.get_data()) for line in found])


def test_nothing_is_cut_off(drawn):
    """After layout every text lies inside the figure."""
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()
        whole = figure.bbox
        boxes = [legend.get_window_extent(renderer) for legend in figure.legends]
        for axes in figure.axes:
            if axes.get_visible():
                boxes.append(axes.get_tightbbox(renderer))
        for box in boxes:
            assert box.x0 >= whole.x0 - 2 and box.x1 <= whole.x1 + 2, name
            assert box.y0 >= whole.y0 - 2 and box.y1 <= whole.y1 + 2, name


@pytest.mark.figures
def test_same_bytes_twice(prediction_sets):
    agreements = agreement(chosen(prediction_sets, "STS-B", "base")[0].data)
    for make in (
        lambda: variance_figure({"a": PARTS}, {"a": (6, 2, 120)}),
        lambda: agreement_figure({"a": agreements}),
    ):
        first, second = (figure_bytes(make()) for _ in range(2))
        assert first == second


def test_every_seed_and_the_reference_are_drawn(drawn, prediction_sets):
    scores = chosen(prediction_sets, "RTE", "base")[0].run_scores("accuracy")
    axes = drawn["scores"].axes[0]
    np.testing.assert_allclose(points(axes, "o")[:, 1], scores.seed_scores)
    reference = chosen(prediction_sets, "RTE", "original")[0].run_scores("accuracy").mean
    assert any(
        line.get_linestyle() == "--" and np.allclose(line.get_ydata(), reference)
        for line in axes.get_lines()
    )
    assert [axes.get_visible() for axes in drawn["scores"].axes] == [True] * 5 + [False] * 3


def test_seeds_stand_in_order_of_the_first_procedure(drawn, prediction_sets):
    scores = chosen(prediction_sets, "coreference", "base")[0].run_scores("bias_correlation")
    (axes,) = drawn["seeds"].axes
    order = [int(label.get_text()) for label in axes.get_xticklabels()]
    assert order == np.argsort(scores.seed_scores).tolist()
    first = points(axes, MARKERS[0])
    np.testing.assert_allclose(first[np.argsort(first[:, 0]), 1], np.sort(scores.seed_scores))
    assert len(points(axes, ".")) == 24


def test_boxes_sum_up_many_runs():
    random = np.random.default_rng(0)
    by_seed = {seed: random.normal(seed, 0.3, 25) for seed in range(3)}
    arm = RunScores("many", by_seed)
    (axes,) = seeds_figure([arm], "score").axes
    assert len(axes.patches) == 3
    assert not seeds_figure([dataclasses.replace(arm, by_seed={
        seed: run[:2] for seed, run in by_seed.items()
    })], "score").axes[0].patches  # fmt: skip


def test_intervals_of_the_comparison_are_drawn(sources):
    left, right = bootstrap_figure(sources[0]).axes
    assert left.get_ylabel() == "bias correlation"
    ends = [line.get_ydata() for line in right.get_lines() if len(line.get_ydata()) == 2]
    for interval in (sources[0].ci, sources[0].intervals["percentile"]):
        assert any(np.allclose(found, interval) for found in ends)
    (axes,) = sources_figure(sources).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["seeds and examples", "seeds only", "examples only"]


def test_macro_average_and_corrected_p_values(drawn, family):
    (axes,) = drawn["family"].axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["RTE, dev, accuracy", "STS-B, dev, Pearson's correlation", "mean of 2 tasks"]
    np.testing.assert_allclose(points(axes, "D"), [[family.macro_average.estimate, 2]])
    texts = [text.get_text() for text in axes.texts]
    assert texts[-1] == "p (Holm)" and texts[2] == "-"
    assert len(texts) == 4


def test_shares_of_variance_add_up(drawn):
    left, right = drawn["variance"].axes
    for axes in (left, right):
        assert sum(patch.get_width() for patch in axes.patches) == pytest.approx(100)
    whole = PARTS.plan(6, 2, 120).variance
    assert right.patches[0].get_width() == pytest.approx(100 * PARTS.seed / 6 / whole)


def test_power_curves_say_how_many_seeds(drawn):
    (axes,) = drawn["power"].axes
    curve = axes.get_lines()[1]
    assert curve.get_ydata()[-1] == PARTS.plan(11, 2, 120).power(0.2)
    enough = next(n for n in range(2, 12) if PARTS.plan(n, 2, 120).power(0.2) >= 0.8)
    texts = [text.get_text() for text in drawn["power"].legends[0].get_texts()]
    assert texts == ["effect 0.1: over 11 seeds", f"effect 0.2: {enough} seeds"]
    styles = [line.get_linestyle() for line in axes.get_lines()[:2]]
    assert styles == list(LINES[:2])


def test_a_curve_keeps_the_seeds_with_every_step(prediction_sets):
    late, early = chosen(prediction_sets, "RTE", "base")
    curve = curve_of_prediction_sets([late, early], "accuracy")
    assert curve.steps.tolist() == [1_000_000, 2_000_000]
    assert list(curve.scores) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(
        [scores[1] for scores in curve.scores.values()], late.run_scores("accuracy").seed_scores[:5]
    )
    alone = dataclasses.replace(early, data=early.data.assign_coords(
        pretrain_seed=early.data["pretrain_seed"] + 50
    ))  # fmt: skip
    with pytest.raises(DataError, match="no seed of base .*every step"):
        curve_of_prediction_sets([late, alone], "accuracy")


def test_band_is_the_t_interval_of_the_seeds(drawn, prediction_sets):
    from scipy.stats import t

    (axes,) = drawn["training"].axes
    band = axes.collections[0].get_paths()[0].vertices
    scores = chosen(prediction_sets, "RTE", "base")[1].run_scores("accuracy").seed_scores
    expected = t.interval(0.95, 4, scores.mean(), scores.std(ddof=1) / np.sqrt(5))
    at_first = band[band[:, 0] == 1_000_000, 1]
    np.testing.assert_allclose([at_first.min(), at_first.max()], expected)


def test_refusals(prediction_sets, sources, family):
    single = changed(sources[0], experiment=None)
    lone = dataclasses.replace(family, macro_average=single)
    with pytest.raises(UserError, match="found a single design"):
        bootstrap_figure(single)
    with pytest.raises(UserError, match="a single design"):
        family_figure(lone)
    with pytest.raises(UserError, match="base, original at steps"):
        curve_of_prediction_sets(chosen(prediction_sets, "RTE"), "accuracy")
