"""The paper's comparisons: those of the published library on the same predictions."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.winogender_bias import occupation_scores
from multiberts.papers.multiberts.catalogue import (
    PUBLISHED,
    Catalogue,
    compare_checkpoints,
    compare_family,
    compare_pair,
)
from multiberts.stats import TaskData, multibootstrap, report_ci
from multiberts.stats.compare.result import Names
from multiberts.stats.compare.two_arms import compare_task
from multiberts.stats.errors import DataError
from multiberts.tests.papers.conftest import chosen

SETTINGS = replace(PUBLISHED, n_resamples=60)


@pytest.fixture(scope="module")
def find(prediction_sets):
    def found(task, procedure, step, evaluation_set="dev"):
        (predictions,) = [
            one
            for one in chosen(prediction_sets, task, procedure)
            if (one.step, one.evaluation_set) == (step, evaluation_set)
        ]
        return predictions

    return found


@pytest.fixture(scope="module")
def paper(prediction_sets):
    return Catalogue(prediction_sets, settings=SETTINGS)


@pytest.fixture(scope="module")
def winogender(find):
    steps = {"base": 2_000_000, "cda_incr": 2_050_000, "cda_full": 2_000_000}
    return {name: find("coreference", name, step, "winogender") for name, step in steps.items()}


def published(base, experiment, measure, **options):
    """Samples of the published function for two datasets."""
    tables, frames = [], []
    for intervention, data in ((False, base), (True, experiment)):
        tables.append(data["prediction"].to_numpy())
        frames.append(
            pd.DataFrame({"seed": data["pretrain_seed"].to_numpy(), "intervention": intervention})
        )
    metric = METRICS[measure]
    return multibootstrap(
        pd.concat(frames, ignore_index=True), np.concatenate(tables), base["label"].to_numpy(),
        lambda labels, predictions: float(metric.score(labels, predictions)),
        nboot=SETTINGS.n_resamples, rng=42, verbose=False, **options,
    )  # fmt: skip


def test_table_1_is_the_published_paired_analysis(paper, winogender):
    accuracy, bias = paper.paired
    arms = [winogender[name].data for name in ("base", "cda_incr")]
    samples = published(*arms, measure="accuracy", paired_seeds=True)
    np.testing.assert_allclose(accuracy.samples, samples, atol=1e-12)
    occupations = [occupation_scores(arm, "bias_correlation") for arm in arms]
    samples = published(*occupations, measure="pearson", paired_seeds=True)
    np.testing.assert_allclose(bias.samples, samples, atol=1e-12)
    report = report_ci(samples, expect_negative_effect=True, verbose=False)
    assert bias.bootstrap_mean == pytest.approx(report["delta"]["mean"])
    assert bias.intervals["percentile"] == pytest.approx(
        (report["delta"]["low"], report["delta"]["high"])
    )
    assert bias.p_values["published"].less == pytest.approx(max(report["delta"]["p"], 1 / 60))
    assert (accuracy.base.name, accuracy.experiment.name) == ("base", "cda_incr")


def test_table_2_resamples_seeds_examples_or_both(paper, winogender):
    found = paper.sources
    assert [item.resample for item in found] == ["both", "seeds", "examples"]
    occupations = [
        occupation_scores(winogender[name].data, "bias_correlation")
        for name in ("cda_incr", "cda_full")
    ]
    for item, options in zip(
        found, ({}, {"sample_examples": False}, {"sample_seeds": False}), strict=True
    ):
        samples = published(*occupations, measure="pearson", paired_seeds=False, **options)
        np.testing.assert_allclose(item.samples, samples, atol=1e-12)
    assert len({item.estimate for item in found}) == 1


def test_table_4_compares_two_checkpoints(winogender):
    item = compare_checkpoints(winogender["base"], 0, 1, settings=SETTINGS)
    scores = winogender["base"].run_scores("bias_correlation")
    assert item.estimate == pytest.approx(scores.seed_scores[1] - scores.seed_scores[0])
    assert (item.resample, item.base.name, item.experiment.name) == (
        "examples", "seed 0", "seed 1",
    )  # fmt: skip
    with pytest.raises(DataError, match=r"seed 9, only \[0, 1, 2, 3, 4, 5\]"):
        compare_checkpoints(winogender["base"], 0, 9)


def test_the_steps_that_are_shown_are_those_of_the_set_that_is_named(paper):
    for named, shown in ((None, paper.steps[0].evaluation_set), ("STS-B", "STS-B/dev")):
        assert replace(paper, steps_set=named).shown_steps.evaluation_set == shown
    with pytest.raises(DataError, match="no 'Weather'"):
        _ = replace(paper, steps_set="Weather").shown_steps


def test_steps_are_paired_on_the_seeds_they_share(paper, find):
    early, late = find("RTE", "base", 1_000_000), find("RTE", "base", 2_000_000)
    (item,) = [item for item in paper.steps if item.evaluation_set == "RTE/dev"]
    assert (item.base.name, item.experiment.name) == ("1M steps", "2M steps")
    assert item.base.seeds == item.experiment.seeds == (0, 1, 2, 3, 4)
    expected = compare_task(TaskData(early.data, late.data, "accuracy"), SETTINGS, Names())
    np.testing.assert_array_equal(item.samples, expected.samples)
    assert (item.ci, item.p_values["t"]) == (expected.ci, expected.p_values["t"])


def test_the_original_is_a_fixed_baseline_and_so_is_the_published_one_seed(paper, find):
    exact, f1 = [item for item in paper.original if item.evaluation_set == "SQuAD/v2.0"]
    assert (exact.metric, f1.metric) == ("squad_exact_match", "squad_f1")
    assert exact.design == "fixed_baseline"
    rte = find("RTE", "original", None), find("RTE", "base", 2_000_000)
    (item,) = [item for item in paper.original if item.evaluation_set == "RTE/dev"]
    with pytest.warns(UserWarning, match="the base has one seed"):
        samples = published(rte[0].data, rte[1].data, "accuracy", paired_seeds=False)
    np.testing.assert_allclose(item.samples, samples, atol=1e-12)


def test_early_checkpoints_too_stand_against_the_original(paper, find):
    """Appendix E, first paragraph: models of 1M steps match the original on one set and lag on another."""
    both = {item.evaluation_set: item for item in paper.original}
    early = {item.evaluation_set: item for item in paper.early_original}
    assert {"MNLI/dev", "RTE/dev", "SQuAD/v2.0"} <= early.keys() <= both.keys()
    for name, item in early.items():
        assert (item.base.name, item.experiment.name) == ("original", "base, 1M steps")
        assert (
            both[name].experiment.name == "base" and item.base.estimate == both[name].base.estimate
        )
    score = find("MNLI", "base", 1_000_000).run_scores("accuracy").mean
    assert early["MNLI/dev"].experiment.estimate == pytest.approx(score)
    last_alone = replace(
        paper, prediction_sets=[item for item in paper.prediction_sets if item.step != 1_000_000]
    )
    assert last_alone.early_original == [] and last_alone.original


def test_a_family_shares_draws_and_has_a_macro_average(find):
    pairs = [
        (find(task, "base", 1_000_000), find(task, "base", 2_000_000)) for task in ("MNLI", "RTE")
    ]
    family = compare_family(pairs, settings=SETTINGS)
    assert list(family.comparisons) == ["MNLI/dev", "RTE/dev"]
    estimates = [compare_pair(*pair, "accuracy", settings=SETTINGS).estimate for pair in pairs]
    assert family.macro_average.estimate == pytest.approx(np.mean(estimates))
    with pytest.raises(DataError, match="found no tasks"):
        compare_family([], settings=SETTINGS)


def test_errors_say_what_was_compared(find):
    with pytest.raises(DataError, match="^original .*base .*RTE/dev, accuracy: .*one seed"):
        compare_pair(
            find("RTE", "base", 2_000_000), find("RTE", "original", None), "accuracy",
            "unpaired", SETTINGS,
        )  # fmt: skip
