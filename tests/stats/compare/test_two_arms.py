"""`compare`: agreement with its parts, alignment and refusals."""

import numpy as np
import pandas
import pytest

from multiberts.stats import TaskData, compare, multibootstrap, report_ci
from multiberts.stats.compare.result import Names
from multiberts.stats.compare.two_arms import compare_task
from multiberts.stats.settings import ComparisonSettings
from multiberts.tests.stats.compare.test_designs import arm


def published(base, experiment, metric, paired, **options):
    run_info = pandas.DataFrame(
        {
            "seed": np.concatenate([base["pretrain_seed"], experiment["pretrain_seed"]]),
            "intervention": [False] * base.sizes["run"] + [True] * experiment.sizes["run"],
        }
    )
    predictions = np.concatenate([base["prediction"], experiment["prediction"]])
    samples = multibootstrap(
        run_info, predictions, base["label"].to_numpy(), metric, paired, verbose=False, **options
    )
    return report_ci(samples, verbose=False)


@pytest.mark.parametrize("design", ["paired", "unpaired"])
@pytest.mark.parametrize("metric", ["accuracy", "matthews"])
def test_percentile_part_equals_the_published_functions(design, metric):
    base, experiment = arm(0.6), arm(0.75, seeds=4, runs=3, key=1, first_seed=2)
    settings = ComparisonSettings(design, n_resamples=200, rng=7, draws="published")
    ours = compare_task(TaskData(base, experiment, metric), settings, Names())
    theirs = published(base, experiment, metric, design == "paired", nboot=200, rng=7)
    assert ours.bootstrap_mean == pytest.approx(theirs["delta"]["mean"], abs=1e-12)
    assert ours.intervals["percentile"] == pytest.approx(
        (theirs["delta"]["low"], theirs["delta"]["high"])
    )
    assert ours.base.intervals["percentile"] == pytest.approx(
        (theirs["base"]["low"], theirs["base"]["high"])
    )
    assert len(ours.base.seeds) == (3 if design == "paired" else 5)
    assert ours.experiment.num_runs == (9 if design == "paired" else 12)


def test_examples_are_aligned_by_id():
    base, experiment = arm(0.6), arm(0.75, key=1)
    shuffled = experiment.isel(
        example=np.random.default_rng(0).permutation(experiment.sizes["example"])
    )
    first = compare(base, experiment, "f1", n_resamples=50)
    second = compare(base, shuffled, "f1", n_resamples=50)
    np.testing.assert_array_equal(first.samples, second.samples)


def test_the_error_of_one_seed_is_that_of_the_mean_over_examples():
    base, experiment = (each.isel(run=[0]) for each in (arm(0.6), arm(0.8, key=1)))
    only = compare(base, experiment, "accuracy", n_resamples=100)
    correct = [(side["prediction"] == side["label"]).mean("run") for side in (base, experiment)]
    difference = (correct[1] - correct[0]).to_numpy()
    assert only.standard_error == pytest.approx(difference.std(ddof=1) / np.sqrt(difference.size))


def test_floor_of_seeds():
    base, experiment = arm(0.2), arm(0.9, key=1)
    paired = compare(base, experiment, "accuracy", n_resamples=500)
    assert paired.seed_floor == 1 / 32
    assert not paired.below_seed_floor  # the examples carry it
    assert compare(base, experiment, "accuracy", resample="seeds", n_resamples=50).below_seed_floor
    assert paired.p_values["sign flip"].greater == 1 / 32
    assert paired.p_values["percentile"].greater == 1 / 501
    unpaired = compare(base, experiment, "accuracy", design="unpaired", n_resamples=500)
    assert unpaired.seed_floor == pytest.approx(1 / 252)
    assert unpaired.p_values.get("sign flip") is None
    same = compare(base, base, "accuracy", n_resamples=50)
    assert same.estimate == 0 and not same.below_seed_floor
    assert same.p_value == same.p_values["sign flip"].two_sided == 1.0
    fixed = compare(base, experiment, "accuracy", resample="examples", n_resamples=50)
    assert fixed.seed_floor is None and fixed.p_values.get("sign flip") is None


def test_degenerate_replicates_are_counted():
    constant = arm(0.6)
    constant["prediction"][0:2] = 0
    ours = compare(constant, None, "matthews", design="single", n_resamples=300, rng=1)
    # The constant seed is absent from a replicate with probability .8 ** 5 = .33.
    assert ours.degenerate_replicates == pytest.approx(0.672 * 300, abs=4 * np.sqrt(300 * 0.22))
