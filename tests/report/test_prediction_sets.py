"""Prediction files: how runs are sorted into them, and that their scores are those of a comparison."""

from dataclasses import replace

import numpy as np
import pytest

from multiberts.report.prediction_sets import curve_of_prediction_sets, step_name
from multiberts.stats import compare
from multiberts.stats.errors import DataError
from multiberts.stats.variance.components import nested_variance_components, variance_components


def prediction_set_of(prediction_sets, task, procedure, step, evaluation_set=None):
    (found,) = [
        predictions
        for predictions in prediction_sets
        if (predictions.task, predictions.procedure, predictions.step) == (task, procedure, step)
        and evaluation_set in (None, predictions.evaluation_set)
    ]
    return found


def test_a_prediction_set_names_its_step(prediction_sets):
    late = prediction_set_of(prediction_sets, "RTE", "base", 2_000_000)
    assert (late.name, late.data.sizes["run"]) == ("base, 2M steps", 12)
    assert [step_name(step) for step in (2_000_000, 50_000, 600, 0)] == [
        "2M steps", "50k steps", "600 steps", "0 steps",
    ]  # fmt: skip


def test_scores_of_seeds_are_those_of_a_comparison(prediction_sets):
    for task, measure in (
        ("MNLI", "accuracy"), ("STS-B", "pearson"), ("SQuAD", "squad_f1"),
        ("coreference", "bias_correlation"),
    ):  # fmt: skip
        predictions = prediction_set_of(
            prediction_sets, task, "base", 2_000_000, {"MNLI": "dev"}.get(task)
        )
        data, metric = predictions.measured(measure)
        scores = predictions.run_scores(measure)
        expected = compare(data, None, metric, design="single", n_resamples=40)
        np.testing.assert_allclose(scores.seed_scores, expected.base.seed_scores, rtol=1e-12)
        assert scores.seeds == expected.base.seeds
        assert scores.mean == pytest.approx(expected.base.estimate)
        assert scores.num_runs == 12


def test_components_of_accuracy_are_those_of_right_and_wrong(prediction_sets):
    predictions = prediction_set_of(prediction_sets, "RTE", "base", 2_000_000)
    right = (predictions.data["prediction"] == predictions.data["label"]).to_numpy().astype(float)
    seeds = predictions.data["pretrain_seed"].to_numpy()
    runs = {seed: right[seeds == seed] for seed in np.unique(seeds)}
    assert predictions.components("accuracy") == nested_variance_components(runs)
    early = prediction_set_of(prediction_sets, "RTE", "base", 1_000_000)
    before = (early.data["prediction"] == early.data["label"]).to_numpy().reshape(5, 2, -1)
    change = right.reshape(6, 2, -1)[:5].mean(axis=1) - before.mean(axis=1)
    found = early.difference_components(predictions, "accuracy")
    for part in ("seed", "example", "residual", "run"):
        expected = getattr(variance_components(change), part)
        assert getattr(found, part) == pytest.approx(expected, abs=1e-12)


def test_split_by_a_coordinate_or_the_label(prediction_sets):
    hans = prediction_set_of(prediction_sets, "MNLI", "base", 2_000_000, "hans")
    parts = hans.split("heuristic")
    assert list(parts) == ["constituent", "lexical overlap", "subsequence"]
    assert sum(part.data.sizes["example"] for part in parts.values()) == 120
    halves = hans.split("label", {1: "non-entailment"})
    assert list(halves) == ["label 0", "non-entailment"]
    accuracies = [half.run_scores("accuracy").mean for half in halves.values()]
    assert np.mean(accuracies) == pytest.approx(hans.run_scores("accuracy").mean)
    with pytest.raises(DataError, match="coordinate 'case' .*only label"):
        hans.split("case")


def test_refusals(prediction_sets):
    with pytest.raises(DataError, match="RTE/dev: .*'skill', .*accuracy"):
        prediction_set_of(prediction_sets, "RTE", "base", 2_000_000).run_scores("skill")
    with pytest.raises(DataError, match="MNLI/dev, base, 2M steps: f1"):
        prediction_set_of(prediction_sets, "MNLI", "base", 2_000_000, "dev").run_scores("f1")
    alone = prediction_set_of(prediction_sets, "RTE", "original", None)
    with pytest.raises(DataError, match="1 seed in common"):
        alone.difference_components(
            prediction_set_of(prediction_sets, "RTE", "base", 2_000_000), "accuracy"
        )


def test_a_continued_training_comes_after_the_step_that_it_continues(prediction_sets):
    """3,500 steps and 1,000 more are at 4,500, not at 1,000."""
    late = prediction_set_of(prediction_sets, "RTE", "base", 2_000_000)
    assert late.steps_in_all == 2_000_000  # of an origin that is not known
    lineage = np.empty(late.data.sizes["run"], object)
    lineage[:] = [(("cda_incr", 0, 1_000, "b"), ("base", 0, 3_500, "a"))] * len(lineage)
    data = late.data.assign_coords(lineage=("run", lineage))
    continued = replace(late, procedure="cda_incr", step=1_000, data=data)
    assert continued.steps_in_all == 4_500
    assert curve_of_prediction_sets([continued], "accuracy").steps.tolist() == [4_500]
