"""Variances inside bootstrap replicates against the replicates' tables written out."""

import numpy as np
import pytest

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.replicate_variance import replicate_variances
from multiberts.stats.bootstrap.score_tables import ArrayTable
from multiberts.stats.bootstrap.variance import unbiased_variance, unbiased_variance_unpaired

NUM_BOOTSTRAP = 25


def draws(random, number):
    return random.multinomial(number, np.full(number, 1 / number), size=NUM_BOOTSTRAP)


def expanded(table, seeds, examples, replicate):
    """The table with every row and column as often as it was drawn."""
    if seeds is not None:
        table = np.repeat(table, seeds[replicate], axis=0)
    if examples is not None:
        table = np.repeat(table, examples[replicate], axis=1)
    return table


def crossed_table(random, num_seeds, num_examples):
    """With effects of seeds and large ones of examples, far from zero."""
    seeds, examples = random.normal(size=(num_seeds, 1)), random.normal(size=(1, num_examples))
    return 100 + seeds + 3 * examples + random.normal(size=(num_seeds, num_examples))


@pytest.mark.parametrize("which", ["both", "seeds", "examples"])
def test_one_table(which):
    random = np.random.default_rng(0)
    table = crossed_table(random, 4, 30)
    seeds = None if which == "examples" else draws(random, 4)
    examples = None if which == "seeds" else draws(random, 30)
    ours = replicate_variances(
        [ArrayTable(table, 7)], None if seeds is None else [seeds], examples, which
    )
    loop = [
        unbiased_variance(expanded(table, seeds, examples, replicate), which).variance
        for replicate in range(NUM_BOOTSTRAP)
    ]
    np.testing.assert_allclose(ours, loop, rtol=1e-10, atol=1e-25)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("which", ["both", "seeds", "examples"])
def test_two_tables(which, shared):
    random = np.random.default_rng(1)
    number = 30 if shared else 21
    base, experiment = crossed_table(random, 4, 30), crossed_table(random, 5, number)
    seeds = [None, None] if which == "examples" else [draws(random, 4), draws(random, 5)]
    examples = [None, None] if which == "seeds" else [draws(random, 30), draws(random, number)]
    if shared:
        examples[1] = examples[0]
    given = None if which == "seeds" else examples[0] if shared else examples
    ours = replicate_variances(
        [ArrayTable(base, 8), experiment], None if seeds[0] is None else seeds, given, which
    )
    loop = [
        unbiased_variance_unpaired(
            expanded(base, seeds[0], examples[0], replicate),
            expanded(experiment, seeds[1], examples[1], replicate),
            which,
            shared,
        ).variance
        for replicate in range(NUM_BOOTSTRAP)
    ]
    np.testing.assert_allclose(ours, loop, rtol=1e-10, atol=1e-25)


@pytest.mark.parametrize("held", ["seeds", "examples"])
def test_both_vary_but_one_of_them_is_not_drawn(held):
    random = np.random.default_rng(2)
    table = crossed_table(random, 4, 30)
    seeds = None if held == "seeds" else draws(random, 4)
    examples = None if held == "examples" else draws(random, 30)
    ours = replicate_variances([table], None if seeds is None else [seeds], examples)
    loop = [
        unbiased_variance(expanded(table, seeds, examples, replicate)).variance
        for replicate in range(NUM_BOOTSTRAP)
    ]
    np.testing.assert_allclose(ours, loop, rtol=1e-10)


def test_everything_drawn_once_is_the_estimate_itself():
    table = crossed_table(np.random.default_rng(3), 5, 40)
    once = np.ones((3, 5), int), np.ones((3, 40), int)
    ours = replicate_variances([table], [once[0]], once[1])
    np.testing.assert_allclose(ours, unbiased_variance(table).variance, rtol=1e-12)


@pytest.mark.parametrize("num_seeds", [3, 7, 11])
def test_one_seed_drawn_again_and_again_has_no_spread(num_seeds):
    table = 0.1 + np.random.default_rng(4).random((num_seeds, 13))
    counts = np.concatenate(
        [num_seeds * np.eye(num_seeds, dtype=int), np.ones((1, num_seeds), int)]
    )
    ours = replicate_variances([table], [counts], None, "seeds")
    assert (ours[:-1] == 0).all()
    assert ours[-1] == pytest.approx(unbiased_variance(table, "seeds").variance)


def test_what_does_not_fit_is_refused():
    table = np.zeros((3, 4))
    with pytest.raises(DataError, match=r"seed counts of shape \(2, 2\), expected \[replicates, 3"):
        replicate_variances([table], [np.ones((2, 2))], None)
    with pytest.raises(DataError, match="rows that sum to 4"):
        replicate_variances([table], None, np.zeros((2, 4)))
    with pytest.raises(DataError, match="seeds are held fixed"):
        replicate_variances([table], [np.ones((2, 3))], np.ones((2, 4)), "examples")
    with pytest.raises(DataError, match="expected the same"):
        replicate_variances([table, np.zeros((3, 5))], None, np.ones((2, 4)))
