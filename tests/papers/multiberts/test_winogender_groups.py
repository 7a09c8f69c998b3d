"""Groups on Winogender: mean and deviation over seeds as the published notebook prints them."""

import dataclasses
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from multiberts.evaluate.metrics.winogender_bias import occupation_scores
from multiberts.papers.multiberts.catalogue import (
    PUBLISHED,
    Catalogue,
    compare_checkpoints,
    group_panels,
    group_scores,
)
from multiberts.papers.multiberts.figures import score_figure
from multiberts.papers.multiberts.tables import score_table
from multiberts.runs.figure_style import MARKERS
from multiberts.stats.errors import DataError
from multiberts.tests.papers.conftest import chosen

GROUPS = ["base", "base_extra_seeds", "cda_incr", "cda_full"]


@pytest.fixture(scope="module")
def with_extra(prediction_sets):
    """The made-up prediction files with a group of the base's first two seeds, of fewer runs."""
    (base,) = chosen(prediction_sets, "coreference", "base")
    kept = base.data["pretrain_seed"].to_numpy() < 2
    extra = dataclasses.replace(
        base, procedure="base_extra_seeds", data=base.data.isel(run=np.flatnonzero(kept)[::-1])
    )
    return [*prediction_sets, extra]


@pytest.fixture
def paper(with_extra):
    return Catalogue(with_extra, settings=replace(PUBLISHED, n_resamples=100))


def test_means_and_deviations_are_those_over_seeds(paper):
    """Runs are averaged within a seed before, with N - 1 beneath the deviation."""
    scores = group_scores(paper.winogender_groups)
    assert list(scores) == [
        ("coreference/winogender", name) for name in ("accuracy", "bias_correlation", "bias_slope")
    ]
    rows = {(row[1], row[2]): row for row in score_table(scores).rows}
    assert len(rows) == 3 * len(GROUPS)
    base = paper.winogender_groups[0].data
    share = occupation_scores(base, "bias_slope")
    x, bias = share["label"].to_numpy(), share["prediction"].to_numpy()
    frame = pd.DataFrame(
        {
            "pretrain_seed": base["pretrain_seed"].to_numpy(),
            "accuracy": (base["prediction"] == base["label"]).mean("example").to_numpy(),
            "bias_correlation": [np.corrcoef(x, run)[0, 1] for run in bias],
            "bias_slope": [np.polyfit(x, run, 1)[0] for run in bias],
        }
    )
    found = frame.groupby("pretrain_seed").mean().agg(["mean", "std"])
    for measure in ("accuracy", "bias_correlation", "bias_slope"):
        row = rows[measure, "base"]
        assert row[3:5] == (6, 12)
        assert row[5:7] == pytest.approx((found[measure]["mean"], found[measure]["std"]))


def test_the_figure_has_a_panel_a_measure_and_every_group(paper):
    panels = group_panels(paper.winogender_groups)
    assert [panel.measure for panel in panels] == ["accuracy", "bias_correlation", "bias_slope"]
    figure = score_figure(panels)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [name.replace("_", " ") for name in GROUPS]
    for axes, panel in zip(figure.axes, panels, strict=False):
        drawn = sum(
            len(line.get_xdata()) for line in axes.get_lines() if line.get_marker() in MARKERS
        )
        assert drawn == sum(len(arm.seeds) for arm in panel.arms)


def test_two_checkpoints_are_those_with_many_runs(paper, prediction_sets):
    """Table 4 is of the first two seeds of `base_extra_seeds`; without them, of the base."""
    (extra,) = chosen(paper.prediction_sets, "coreference", "base_extra_seeds")
    expected = compare_checkpoints(extra, 0, 1, settings=paper.settings)
    np.testing.assert_array_equal(paper.checkpoints.samples, expected.samples)
    alone = Catalogue(prediction_sets, settings=paper.settings)
    assert alone.checkpoints.estimate == pytest.approx(paper.checkpoints.estimate)


def test_refusals(paper, prediction_sets):
    rte = chosen(prediction_sets, "RTE")
    with pytest.raises(DataError, match="RTE/dev, coreference/winogender"):
        group_panels([*paper.winogender_groups, rte[0]])
    with pytest.raises(DataError, match="of base .*bias correlation"):
        _ = Catalogue(rte).winogender_groups
