"""Medians and interquartile means over seeds: against SciPy, the bootstrap and simulated studies."""

import numpy as np
import pytest
import scipy.stats

from multiberts.stats import compare
from multiberts.stats.errors import DataError
from multiberts.stats.intervals import t_interval
from multiberts.stats.variance.aggregation import aggregated_table, over_seeds, seed_freedom
from multiberts.stats.variance.crossing import Crossing
from multiberts.stats.variance.score_tables import TablePart, deviations, score_table


def crossing_of(tables, aggregate, pools):
    weights = [1.0] if len(tables) == 1 else [-1.0, 1.0]
    return Crossing(
        [
            TablePart(
                aggregated_table(score_table(table), aggregate),
                weight,
                pool,
                "examples",
                seed_freedom(len(table), aggregate),
            )
            for table, weight, pool in zip(tables, weights, pools, strict=True)
        ]
    )


@pytest.mark.parametrize("number", [2, 3, 4, 5, 9, 12])
def test_the_averages_are_those_of_numpy_and_scipy(number):
    scores = np.random.default_rng(number).normal(size=(7, number))
    np.testing.assert_allclose(over_seeds(scores, "median"), np.median(scores, axis=1))
    trimmed = scipy.stats.trim_mean(scores, 0.25, axis=1)
    np.testing.assert_allclose(over_seeds(scores, "iqm"), trimmed)
    for aggregate in ("median", "iqm"):
        table = scores[:, :, None] + np.random.default_rng(0).normal(size=(7, number, 5))
        for rows in table:
            pseudo = deviations(aggregated_table(score_table(rows), aggregate))
            expected = over_seeds(rows.mean(axis=1), aggregate)
            assert pseudo.mean == pytest.approx(expected, abs=1e-12)


def test_of_seeds_alone_the_interval_is_yuens():
    """SciPy's trimmed t test has Yuen's standard error and degrees of freedom."""
    random = np.random.default_rng(1)
    scores = random.normal(size=9)
    crossing = crossing_of([np.repeat(scores[:, None], 3, axis=1)], "iqm", ["seeds"])
    found = crossing.variance_parts().seeds
    other = np.full(9, 100.0) + 1e-9 * random.normal(size=9)  # a side that hardly varies
    theirs = scipy.stats.ttest_ind(scores, other, equal_var=False, trim=0.25)
    error = (over_seeds(scores, "iqm") - 100) / theirs.statistic
    assert np.sqrt(found[0][0]) == pytest.approx(error, rel=1e-6)
    assert found[0][1] == pytest.approx(theirs.df, rel=1e-6) == 4


@pytest.mark.parametrize("aggregate", ["median", "iqm"])
@pytest.mark.parametrize("num_seeds", [2, 5, 10])
def test_intervals_cover_with_and_without_failed_seeds(aggregate, num_seeds):
    """200 studies of each kind: one side, paired and unpaired sides; one seed in ten falls far."""
    random, covered, trials = np.random.default_rng(num_seeds), np.zeros(6), 200
    for _ in range(trials):
        for fails in (0, 1):
            effects = random.normal(size=(3, num_seeds, 1))
            effects[1] = 0.6 * effects[0] + 0.8 * effects[1]
            effects -= 12 * fails * (random.random(effects.shape) < 0.1)
            hard = random.normal(size=40)
            tables = effects + hard + random.normal(size=(3, num_seeds, 40))
            designs = [(tables[:1], "a"), (tables[:2], "aa"), (tables[::2], "ab")]
            for place, (chosen, pools) in enumerate(designs):
                crossing = crossing_of(chosen, aggregate, pools)
                found = crossing.unbiased_variance()
                low, high = t_interval(
                    crossing.mean, found.variance**0.5, found.cautious_degrees_of_freedom, 0.95
                )
                covered[3 * fails + place] += low <= 0 <= high
    assert (covered / trials >= 0.93 - 2.5 * np.sqrt(0.93 * 0.07 / trials)).all()


@pytest.mark.parametrize("aggregate", ["median", "iqm"])
def test_a_failed_seed_hardly_moves_it(aggregate):
    random = np.random.default_rng(2)
    base, experiment = ((random.random((8, 200)) < skill) + 0.0 for skill in (0.8, 0.9))
    experiment[3] = random.random(200) < 0.2
    found = compare(base, experiment, aggregate=aggregate, n_resamples=400)
    assert found.estimate == found.experiment.estimate - found.base.estimate
    assert found.estimate == pytest.approx(0.1, abs=0.03)
    assert found.ci.low > 0 and found.p_value < 0.05
    mean = compare(base, experiment, n_resamples=400)
    assert mean.ci.low < 0
    spread = found.differences.std()
    assert found.bootstrap_standard_error == pytest.approx(spread, rel=0.6)
    # The samples are averages of the drawn seeds' scores.
    seeds_only = compare(
        base, None, design="single", aggregate=aggregate, resample="seeds", n_resamples=400
    )
    kinds = over_seeds(np.repeat(base.mean(axis=1)[:, None], 8, axis=1), aggregate)
    assert seeds_only.samples.min() >= kinds.min() and seeds_only.samples.max() <= kinds.max()
    with pytest.raises(
        DataError, match="found aggregate 'mode', expected one of mean, median, iqm"
    ):
        compare(base, experiment, aggregate="mode")
