"""Variance components against hand computations, statsmodels, published figures and simulation."""

import itertools

import numpy as np
import pytest

from multiberts.stats.variance.components import (
    mean_squares,
    nested_variance_components,
    variance_components,
)
from multiberts.stats.variance.score_tables import deviations
from multiberts.tests.stats.crossings import crossing_of_tables

# Six targets (rows) by four judges, the example of Shrout & Fleiss (1979).
SHROUT_FLEISS = np.array(
    [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
)


def test_mean_squares_equal_statsmodels():
    import pandas
    import statsmodels.formula.api
    from statsmodels.stats.anova import anova_lm

    table = np.random.default_rng(0).normal(size=(4, 6))
    rows = [(i, j, table[i, j]) for i, j in itertools.product(range(4), range(6))]
    frame = pandas.DataFrame(rows, columns=["seed", "example", "score"])
    fit = statsmodels.formula.api.ols("score ~ C(seed) + C(example)", frame).fit()
    anova = anova_lm(fit)
    ours = mean_squares(deviations(table))
    assert [value for value, _ in ours.values()] == pytest.approx(anova["mean_sq"].tolist())
    assert [freedom for _, freedom in ours.values()] == anova["df"].tolist()


def test_components_by_hand():
    """Mean squares 32.49, 11.24, 1.02 of the published example."""
    seed, example, residual = (
        value for value, _ in mean_squares(deviations(SHROUT_FLEISS.T)).values()
    )
    assert (seed, example, residual) == pytest.approx((32.49, 11.24, 1.02), abs=0.005)
    parts = variance_components(SHROUT_FLEISS.T)
    assert parts.seed == pytest.approx((seed - residual) / 6)
    assert parts.example == pytest.approx((example - residual) / 4)
    assert parts.residual == pytest.approx(residual)
    assert parts.truncated == ()
    assert parts.total == pytest.approx(parts.seed + parts.example + parts.residual)


def test_components_are_those_of_the_unbiased_variance():
    """sa/R + sb/C + se/(RC) of the estimates is the unbiased variance, where nothing is cut off."""
    random = np.random.default_rng(1)
    table = random.normal(size=(5, 1)) + random.normal(size=(1, 30)) + random.normal(size=(5, 30))
    parts = variance_components(table)
    total = parts.seed / 5 + parts.example / 30 + parts.residual / 150
    assert total == pytest.approx(
        crossing_of_tables([table]).unbiased_variance().variance, rel=1e-12
    )


def test_a_negative_estimate_is_cut_off_and_named():
    # Every seed has the same mean: less spread between seeds than chance alone gives.
    table = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]])
    parts = variance_components(table)
    assert parts.seed == 0 and "seed" in parts.truncated
    nothing = variance_components(np.full((3, 4), 0.3))
    assert nothing.total == 0 and nothing.seed_share == 0 and nothing.truncated == ()


PARTS = ("seed", "run", "example", "residual", "run_residual")


def unit_effects(counts, num_examples):
    """For each part every effect of size one that it can have, as runs [F_i, C] for each seed."""
    number = sum(counts)
    seed_of_run = np.repeat(np.arange(len(counts)), counts)
    of_seed = np.eye(len(counts))[:, seed_of_run]  # [effects, runs]
    of_run, of_example = np.eye(number), np.eye(num_examples)
    ones = np.ones((1, num_examples))
    products = {
        "seed": (of_seed, ones),
        "run": (of_run, ones),
        "example": (np.ones((1, number)), of_example),
        "residual": (of_seed, of_example),
        "run_residual": (of_run, of_example),
    }
    cuts = np.cumsum(counts)[:-1]
    return {
        part: [np.split(np.outer(row, column), cuts) for row in rows for column in columns]
        for part, (rows, columns) in products.items()
    }


@pytest.mark.parametrize("counts", [(3, 3, 3), (2, 2, 2, 2), (1, 2, 5), (4, 1, 1, 3)])
def test_nested_components_are_unbiased(counts):
    """An estimate is a quadratic form, so its expectation under independent effects of variance
    one is the sum of its values at each effect alone: 1 for their own part and 0 for the others."""
    for part, effects in unit_effects(counts, 3).items():
        found = [nested_variance_components(runs, truncate=False) for runs in effects]
        for name in PARTS:
            expected = float(name == part)
            assert sum(getattr(one, name) for one in found) == pytest.approx(expected, abs=1e-12)


def test_crossed_components_are_unbiased():
    for part, effects in unit_effects((1,) * 4, 3).items():
        found = [variance_components(np.concatenate(runs), truncate=False) for runs in effects]
        for name in ("seed", "example", "residual"):
            expected = float(
                name == part or (name, part) in {("seed", "run"), ("residual", "run_residual")}
            )
            assert sum(getattr(one, name) for one in found) == pytest.approx(expected, abs=1e-12)


def simulated_runs(random, counts, num_examples, sa, sf, sb, sab, sfb):
    """For each seed [F_i, C]."""
    examples = random.normal(scale=np.sqrt(sb), size=num_examples)
    return [
        random.normal(scale=np.sqrt(sa))
        + random.normal(scale=np.sqrt(sf), size=(count, 1))
        + examples
        + random.normal(scale=np.sqrt(sab), size=num_examples)
        + random.normal(scale=np.sqrt(sfb), size=(count, num_examples))
        for count in counts
    ]


def test_nested_and_crossed_meet_where_runs_are_balanced():
    """The components of seeds' means: a mean of F runs keeps 1/F of what runs add."""
    runs = simulated_runs(np.random.default_rng(3), (4,) * 6, 40, 2.0, 0.5, 1.0, 0.6, 0.3)
    nested = nested_variance_components(dict(enumerate(runs)))
    crossed = variance_components(np.array([run.mean(axis=0) for run in runs]))
    assert nested.truncated == () == crossed.truncated
    assert crossed.seed == pytest.approx(nested.seed + nested.run / 4, rel=1e-10)
    assert crossed.example == pytest.approx(nested.example, rel=1e-10)
    assert crossed.residual == pytest.approx(nested.residual + nested.run_residual / 4, rel=1e-10)
