"""A metric's definition says how readers see it."""

import dataclasses

import pytest

from multiberts import stats
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.report.presentation.formats import (
    metric_label,
    metric_meaning,
    printed_unit,
    score_text,
)
from multiberts.stats.score import Score, metric_name

NEAR = dataclasses.replace(
    METRICS["accuracy"], name="within_one", label="near hits", meaning="Share of near hits."
)


def compared(metric):
    labels, right, wrong = [0, 1] * 10, [[0, 1] * 10] * 3, [[0, 1] * 9 + [1, 1]] * 3
    return stats.compare(wrong, right, metric, labels=labels, n_resamples=99)


@pytest.mark.parametrize("name", [*METRICS, *OCCUPATION_MEASURES])
def test_what_is_shown_in_per_cent_is_a_share(name):
    metric = METRICS.get(name) or OCCUPATION_MEASURES[name].metric
    assert metric_meaning(name).endswith(".")
    if metric.unit:
        assert metric.bounds == (0.0, 1.0)
        assert score_text(0.25, name).endswith(" %")
        assert metric_label(name, difference=True).endswith(" (points)")


@pytest.mark.parametrize("measure", OCCUPATION_MEASURES)
def test_neither_way_of_a_bias_is_better(measure):
    assert OCCUPATION_MEASURES[measure].metric.name == measure
    assert Score.of(measure).more_is_better is None


def test_a_metric_that_is_added_to_the_register_is_shown_as_it_says(monkeypatch):
    monkeypatch.setitem(METRICS, NEAR.name, NEAR)
    text = str(compared("within_one"))
    assert "near hits 100.0 % against 95.0 %" in text and " points" in text
    assert metric_meaning("within_one") == NEAR.meaning


def test_a_metric_outside_the_register_has_its_name_and_no_unit():
    assert (metric_name("within_one"), metric_meaning("within_one")) == ("within one", "")
    assert (printed_unit("within_one"), Score.of("within_one").more_is_better) == (1.0, None)
    assert "points" not in str(compared(NEAR))
