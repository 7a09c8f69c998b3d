"""Variances inside bootstrap replicates against the replicates' tables written out."""

import numpy as np
import pytest

from multiberts.stats.errors import DataError
from multiberts.stats.variance.crossing import crossing_of_tables
from multiberts.stats.variance.score_tables import score_table

NUM_BOOTSTRAP = 25


def replicate_variances(tables, seed_counts, example_counts, which="both"):
    """Those of one table or two, from counts of seeds and of examples, shared unless a list."""
    separate = isinstance(example_counts, list)
    seeds = {f"seeds {place}": counts for place, counts in enumerate(seed_counts or [])}
    sets = example_counts if separate else [] if example_counts is None else [example_counts]
    examples = {f"examples {place}": counts for place, counts in enumerate(sets)}
    crossing = crossing_of_tables(tables, which, shared_examples=not separate)
    return crossing.replicate_variances(seeds, examples)


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
        [score_table(table, 7)], None if seeds is None else [seeds], examples, which
    )
    loop = [
        crossing_of_tables([expanded(table, seeds, examples, replicate)], which)
        .unbiased_variance()
        .variance
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
        [score_table(base, 8), experiment], None if seeds[0] is None else seeds, given, which
    )
    loop = [
        crossing_of_tables(
            [
                expanded(base, seeds[0], examples[0], replicate),
                expanded(experiment, seeds[1], examples[1], replicate),
            ],
            which,
            shared,
        )
        .unbiased_variance()
        .variance
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
        crossing_of_tables([expanded(table, seeds, examples, replicate)])
        .unbiased_variance()
        .variance
        for replicate in range(NUM_BOOTSTRAP)
    ]
    np.testing.assert_allclose(ours, loop, rtol=1e-10)


def test_everything_drawn_once_is_the_estimate_itself():
    table = crossed_table(np.random.default_rng(3), 5, 40)
    once = np.ones((3, 5), int), np.ones((3, 40), int)
    ours = replicate_variances([table], [once[0]], once[1])
    np.testing.assert_allclose(
        ours, crossing_of_tables([table]).unbiased_variance().variance, rtol=1e-12
    )


@pytest.mark.parametrize("num_seeds", [3, 7, 11])
def test_one_seed_drawn_again_and_again_has_no_spread(num_seeds):
    table = 0.1 + np.random.default_rng(4).random((num_seeds, 13))
    counts = np.concatenate(
        [num_seeds * np.eye(num_seeds, dtype=int), np.ones((1, num_seeds), int)]
    )
    ours = replicate_variances([table], [counts], None, "seeds")
    assert (ours[:-1] == 0).all()
    assert ours[-1] == pytest.approx(
        crossing_of_tables([table], "seeds").unbiased_variance().variance
    )


def test_what_does_not_fit_is_refused():
    table = np.zeros((3, 4))
    with pytest.raises(DataError, match=r"seed counts of shape \(2, 2\), expected \[replicates, 3"):
        replicate_variances([table], [np.ones((2, 2))], None)
    with pytest.raises(DataError, match="rows that sum to 4"):
        replicate_variances([table], None, np.zeros((2, 4)))
    with pytest.raises(DataError, match="expected the same"):
        replicate_variances([table, np.zeros((3, 5))], None, np.ones((2, 4)))
