"""Instance-level bounds against enumeration, theory and SciPy."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from multiberts.papers.zhong.ensembles import ensemble, runs_of_seed, single_runs
from multiberts.papers.zhong.instance_level import (
    decay_bound,
    fisher_tests,
    improvement_bound,
    instance_accuracy,
    relative_threshold_bias,
    threshold_bias,
)
from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import make_runs
from multiberts.stats.significance import adjusted_p_values


def enumerated(small: np.ndarray, large: np.ndarray) -> dict[float, float]:
    """The baseline by listing every split, from seed means [seeds, examples]."""
    few, many = len(small), len(large)
    mean = few * many / (few + many)
    found: dict[float, float] = {}
    for exchanged in {math.floor(mean), math.ceil(mean)}:
        chance = 1 - abs(mean - exchanged)
        splits = [
            (kept, moved)
            for kept in itertools.combinations(range(many), many - exchanged)
            for moved in itertools.combinations(range(few), exchanged)
        ]
        for kept, moved in splits:
            one = large[list(kept)].sum(axis=0) + small[list(moved)].sum(axis=0)
            other = small.sum(axis=0) + large.sum(axis=0) - one
            for value in (one / many - other / few).round(9).tolist():
                found[value] = found.get(value, 0) + chance / len(splits) / small.shape[1]
    return found


def check_baseline(small, large, expected):
    baseline = decay_bound(small, large).baseline
    np.testing.assert_allclose(baseline.support, sorted(expected), atol=1e-9)
    probabilities = [expected[value] for value in sorted(expected)]
    np.testing.assert_allclose(baseline.probability, probabilities, atol=1e-12)


@pytest.mark.parametrize(("few", "many"), [(1, 1), (2, 2), (3, 3), (4, 4), (2, 3), (5, 2), (1, 4)])
@pytest.mark.parametrize("num_runs", [1, 3])
def test_baseline_equals_the_mean_over_all_splits(few, many, num_runs):
    random = np.random.default_rng(few * 10 + many)
    small, large = (random.integers(0, 2, (n, num_runs, 40)) for n in (few, many))
    check_baseline(small, large, enumerated(small.mean(axis=1), large.mean(axis=1)))
    accuracies = [own.mean(axis=(0, 1)) for own in (small, large)]
    np.testing.assert_allclose([instance_accuracy(own) for own in (small, large)], accuracies)
    difference = decay_bound(small, large).difference
    for value in np.linspace(-1, 1, 9) + 1e-6:
        assert difference.cdf(value) == pytest.approx((np.diff(accuracies, axis=0) <= value).mean())


def test_baseline_of_unequal_numbers_of_runs_equals_enumeration():
    random = np.random.default_rng(3)
    keys = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]
    small = make_runs(random.integers(0, 2, (6, 30)), keys)
    large = make_runs(random.integers(0, 2, (6, 30)), keys)
    means = (runs.averaged(1).predictions for runs in (small, large))
    check_baseline(small, large, enumerated(*means))


def test_baseline_of_right_or_wrong_seeds_is_a_convolution_of_hypergeometric_draws():
    """Ten seeds a side, 7 and 4 of them right: five of each change sides."""
    small, large = np.arange(10) < 7, np.arange(10) < 4
    draws = [scipy.stats.hypergeom(10, right, 5).pmf(np.arange(11)) for right in (7, 4)]
    first = np.convolve(*draws)
    expected = {round((2 * total - 11) / 10, 9): p for total, p in enumerate(first) if p > 0}
    check_baseline(small[:, None], large[:, None], expected)


def test_swapping_the_sizes_mirrors_everything():
    random = np.random.default_rng(5)
    small, large = random.integers(0, 2, (3, 200)), random.integers(0, 2, (5, 200))
    ours, swapped = (
        decay_bound(small, large).baseline,
        decay_bound(large, small).baseline.mirrored(),
    )
    np.testing.assert_allclose(ours.support, swapped.support)
    np.testing.assert_allclose(ours.probability, swapped.probability)
    better, worse = improvement_bound(small, large), decay_bound(large, small)
    assert better.bound == worse.bound
    assert better.threshold == -worse.threshold
    assert better.num_seeds == (3, 5)
    np.testing.assert_allclose(
        better.difference.probability, decay_bound(small, large).difference.probability
    )


def counter_example() -> tuple[np.ndarray, np.ndarray]:
    """Two seeds of 5 runs on 100 examples, in the expected proportions: the small model is right in
    all runs of a seed with probability .1, else in none; the large one in 1 of 5 always."""
    states = [(0, 0)] * 81 + [(0, 1)] * 9 + [(1, 0)] * 9 + [(1, 1)]
    small = np.repeat(np.array(states).T[:, None, :], 5, axis=1)
    large = np.zeros((2, 5, 100), int)
    large[:, 2] = 1
    return small, large


def test_means_of_runs_give_no_bound_in_the_papers_counter_example():
    """The large model is better on every example (.2 against .1), and yet the excess is .01."""
    small, large = counter_example()
    found = decay_bound(small, large, threshold=-0.8)
    assert found.difference.cdf(-0.8) == pytest.approx(0.01)
    assert found.baseline.cdf(-0.8) == 0
    assert found.bound == pytest.approx(0.01)
    assert instance_accuracy(small).mean() < instance_accuracy(large).mean()
    # At -.3 it is worse: a fifth of the examples, of which the baseline explains half.
    assert decay_bound(small, large).bound == pytest.approx(0.10)


def test_voted_runs_of_the_counter_example_do_decay():
    """Its vote is always wrong, so that the large ensemble is truly worse, everywhere."""
    small, large = (ensemble(runs) for runs in counter_example())
    found = decay_bound(small, large)
    assert large.predictions.max() == 0
    # P(-1) = .01 and P(-.5) = .18; the baseline is at -.5 whenever the seeds differ, half the time.
    assert found.difference.cdf([-1, -0.5]) == pytest.approx([0.01, 0.19])
    assert found.baseline.cdf([-1, -0.5]) == pytest.approx([0, 0.18 / 2])
    assert found.bound == pytest.approx(0.10)
    assert found.threshold == -0.5


def expected_excess(few: int, many: int, worse: float, better: float) -> np.ndarray:
    """E[P(difference <= t) - P(baseline <= t)] for all t < 0, over every outcome of the seeds."""
    outcomes = np.array(list(itertools.product((0, 1), repeat=few + many))).T
    small, large = outcomes[:few], outcomes[few:]
    chance = np.where(small, worse, 1 - worse).prod(axis=0)
    chance = chance * np.where(large, better, 1 - better).prod(axis=0)
    thresholds = np.unique((large.mean(axis=0) - small.mean(axis=0)).round(9))
    thresholds = thresholds[thresholds < 0]
    values = np.zeros(len(thresholds))
    for column, weight in enumerate(chance):
        found = decay_bound(small[:, [column]], large[:, [column]])
        values += weight * (found.difference.cdf(thresholds) - found.baseline.cdf(thresholds))
    return values


@pytest.mark.parametrize(("few", "many"), [(2, 2), (3, 3), (2, 3), (4, 1)])
def test_examples_that_do_not_decay_add_nothing_in_expectation(few, many):
    """Exactly, over all outcomes of right-or-wrong seeds; and nothing at all where both are equally
    good."""
    for worse, better in [(0.1, 0.2), (0.3, 0.9), (0.5, 0.6), (0.7, 0.7)]:
        excess = expected_excess(few, many, worse, better)
        assert (excess <= 1e-12).all()
        if worse == better:
            np.testing.assert_allclose(excess, 0, atol=1e-12)
    assert expected_excess(few, many, 0.9, 0.1).max() > 0.1


def test_the_bound_is_the_largest_gap_of_the_two_cdfs():
    random = np.random.default_rng(9)
    small, large = random.integers(0, 2, (4, 3, 300)), random.integers(0, 2, (4, 3, 300))
    found = decay_bound(small, large)
    grid = np.linspace(-1.1, -1e-6, 5000)
    gaps = found.difference.cdf(grid) - found.baseline.cdf(grid)
    assert found.bound == pytest.approx(gaps.max(), abs=1e-12)
    assert found.bound == pytest.approx(
        found.difference.cdf(found.threshold) - found.baseline.cdf(found.threshold), abs=1e-12
    )


def test_the_standard_error_is_that_over_examples():
    random = np.random.default_rng(10)
    small, large = random.integers(0, 2, (3, 30)), random.integers(0, 2, (3, 30))
    found = decay_bound(small, large, threshold=-0.5)
    values = [
        decay_bound(small[:, [column]], large[:, [column]], threshold=-0.5).bound
        for column in range(30)
    ]
    assert found.bound == pytest.approx(np.mean(values))
    assert found.standard_error == pytest.approx(np.std(values) / np.sqrt(29))


def test_threshold_bias_corrects_the_bound_towards_that_of_new_examples():
    """Mean error of the adaptive bound, the corrected and the cross-fitted one, against the value of
    the same threshold on all other examples of the same seeds."""
    random = np.random.default_rng(11)
    errors = []
    for trial in range(40):
        accuracy = random.random(8000)
        small, large = (random.random((6, 8000)) < accuracy for _ in range(2))
        found = decay_bound(small[:, :200], large[:, :200])
        if not np.isfinite(found.threshold):
            continue
        truth = decay_bound(small[:, 200:], large[:, 200:], threshold=found.threshold).bound
        bias = threshold_bias(small[:, :200], large[:, :200], n_resamples=100, rng=trial)
        assert bias.bound == pytest.approx(found.bound)
        assert bias.corrected == pytest.approx(bias.bound - bias.bias)
        errors.append((found.bound - truth, bias.corrected - truth, bias.cross_fitted - truth))
    adaptive, corrected, cross_fitted = np.mean(errors, axis=0)
    noise = np.std(errors, axis=0) / np.sqrt(len(errors))
    assert adaptive > 4 * noise[0]
    assert abs(corrected) < adaptive / 2
    assert cross_fitted < adaptive - 2 * noise[2]


def test_the_relative_bias_is_that_of_drawing_seeds_and_bounding_anew():
    """Appendix E of Zhong et al. by `decay_bound` alone, whose baseline is exact."""
    random = np.random.default_rng(13)
    small, large = random.random((5, 100)) < 0.5, random.random((5, 100)) < 0.55
    pairs = []
    for _ in range(150):
        draws = [side[random.integers(0, 5, 5)] for side in (small, large, small, large)]
        tuned = decay_bound(*draws[:2])
        fresh = 0.0
        if np.isfinite(tuned.threshold):
            fresh = decay_bound(*draws[2:], threshold=tuned.threshold).bound
        pairs.append((tuned.bound, fresh))
    adaptive, honest = np.mean(pairs, axis=0)
    noise = np.std(np.subtract(*np.transpose(pairs))) / np.sqrt(len(pairs)) / honest
    found = relative_threshold_bias(small, large, n_resamples=1500)
    assert found == pytest.approx(adaptive / honest - 1, abs=5 * noise)
    assert found == relative_threshold_bias(large, small, "improvement", n_resamples=1500)
    # All differences are -1: one threshold alone can be picked.
    assert relative_threshold_bias(np.ones((4, 20), int), np.zeros((4, 20), int)) == 0
    assert np.isnan(relative_threshold_bias(np.zeros((4, 20), int), np.ones((4, 20), int)))


def test_threshold_bias_is_the_same_every_time_and_zero_with_one_threshold():
    random = np.random.default_rng(12)
    small, large = random.integers(0, 2, (4, 200)), random.integers(0, 2, (4, 200))
    first, second = (threshold_bias(small, large, n_resamples=50) for _ in range(2))
    assert first == second
    other = threshold_bias(small, large, n_resamples=50, rng=1)
    assert other.bias != first.bias
    up = threshold_bias(small, large, "improvement", n_resamples=50)
    assert up.bound == improvement_bound(small, large).bound
    # All differences are -1, so that one threshold alone can be picked.
    clear = threshold_bias(np.ones((4, 20), int), np.zeros((4, 20), int), n_resamples=50)
    assert clear.bias == pytest.approx(0, abs=1e-12)
    assert clear.bound == pytest.approx(1)


def test_votes():
    runs = make_runs(
        np.array([[0, 1, 2], [1, 1, 2], [1, 0, 0], [2, 0, 0], [2, 1, 0], [1, 2, 1]]),
        [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
    )
    voted = ensemble(runs, labels=[1, 1, 1])
    assert voted.keys == ((0,), (1,))
    # Of seed 1 the answers to the second example are 0, 1, 2: the first run decides.
    np.testing.assert_array_equal(voted.predictions, [[1, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(
        ensemble(runs, labels=[1, 0, 9]).predictions, [[1, 0, 0], [0, 1, 0]]
    )
    tied = make_runs([[1, 0, 1], [0, 1, 1]], [(0, 0), (0, 1)])
    np.testing.assert_array_equal(ensemble(tied).predictions, [[1, 0, 1]])
    # Of two classes votes on answers are votes on correctness.
    random = np.random.default_rng(13)
    answers, labels = random.integers(0, 2, (4, 4, 500)), random.integers(0, 2, 500)
    np.testing.assert_array_equal(
        ensemble(answers, labels).predictions, ensemble(answers == labels).predictions
    )


def test_parts_of_the_tree():
    scores = np.arange(8).reshape(2, 2, 2)
    np.testing.assert_array_equal(single_runs(scores).predictions, [[0, 1], [4, 5]])
    one = runs_of_seed(scores, 1)
    assert one.keys == ((0,), (1,)) and one.levels == ("finetune_seed",)
    np.testing.assert_array_equal(one.predictions, [[4, 5], [6, 7]])
    with pytest.raises(DataError, match="no runs below"):
        runs_of_seed(scores, 5)


def test_fisher_equals_scipy_on_every_table():
    right = list(itertools.product(range(5), range(8)))
    small = np.array([[seed < few for few, _ in right] for seed in range(4)], int)
    large = np.array([[seed < many for _, many in right] for seed in range(7)], int)
    for direction, alternative in (("decay", "greater"), ("improvement", "less")):
        tests = fisher_tests(small, large, direction)
        expected = [
            scipy.stats.fisher_exact([[few, 4 - few], [many, 7 - many]], alternative).pvalue
            for few, many in right
        ]
        np.testing.assert_allclose(tests.p_values, expected, rtol=1e-9)
        np.testing.assert_array_equal(tests.adjusted, adjusted_p_values(tests.p_values, "bh"))


def test_the_bound_is_tight_where_single_tests_find_nothing():
    """The paper's extreme example (appendix F): one example in 10,000 decays, and one improves."""
    small, large = np.ones((2, 2, 10_000), int)
    large[:, 0] = small[:, 1] = 0
    found = decay_bound(small, large)
    assert found.bound == pytest.approx(1e-4) and found.baseline.cdf(-0.1) == 0
    tests = fisher_tests(small, large, level=0.5)
    assert tests.p_values.min() == pytest.approx(1 / 6) and tests.num_discoveries == 0


def test_discoveries_at_ten_seeds():
    small, large = np.ones((10, 100), int), np.ones((10, 100), int)
    large[:, :5] = 0
    tests = fisher_tests(small, large, level=0.1)
    assert tests.num_discoveries == 5
    assert tests.discovered[:5].all()
    assert tests.share == pytest.approx(0.9 * 5 / 100)


def simulated(random, num_seeds, spread, share, gain):
    """0/1 answers of two sizes; a share of the examples is worse, the rest gain; seeds differ."""
    skill = 1.2 * random.normal(size=300) + 0.5
    worse = np.arange(300) < share * 300
    sizes = skill, skill + np.where(worse, -6.0, gain)
    return [
        (random.normal(size=(num_seeds, 300)) < own + spread * random.normal(size=(num_seeds, 1)))
        for own in sizes
    ]


@pytest.mark.parametrize(
    ("num_seeds", "spread", "share", "gain"),
    [
        *((2, 0.0, 0, 0), (2, 0.3, 0, 0)),
        *(
            pytest.param(*study, marks=pytest.mark.slow)
            for study in ((2, 0.3, 0.05, 0.0), (5, 0.0, 0, 0), (5, 0.3, 0, 0), (5, 0.3, 0.05, 0.0))
        ),
    ],
)
def test_the_lower_limit_holds_where_the_bound_does_not(num_seeds, spread, share, gain):
    """40 studies each; the bound itself exceeds the true share in up to nine of ten."""
    random, limits, bounds = np.random.default_rng(num_seeds), [], []
    for _ in range(40):
        found = decay_bound(*simulated(random, num_seeds, spread, share, gain))
        limits.append(found.lower)
        bounds.append(found.bound)
    assert np.mean(np.array(limits) > share) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 40)
    if share == 0:
        assert np.mean(np.array(bounds) > share) > 0.4


def test_each_half_of_the_examples_has_the_threshold_that_the_other_chose():
    small, large = simulated(np.random.default_rng(17), 5, 0.3, 0.2, 0.3)
    order = np.random.Generator(np.random.Philox(key=0)).permutation(300)
    values = []
    for own, other in itertools.permutations((order[:150], order[150:])):
        chosen = decay_bound(small[:, other], large[:, other]).threshold
        values.append(decay_bound(small[:, own], large[:, own], threshold=chosen).bound)
    assert values[0] != values[1]
    # Nothing is taken off at a confidence of a half.
    assert decay_bound(small, large).lower_limit(0.5) == pytest.approx(np.mean(values))


def test_the_lower_limit_finds_decay_and_is_shown_first():
    random = np.random.default_rng(18)
    small, large = simulated(random, 10, 0.0, 0.2, 0.3)
    found = decay_bound(small, large)
    assert 0.05 < found.lower < found.bound < 0.2 and found.adaptive
    assert improvement_bound(small, large).bound < 0.8
    assert found.lower_limit(0.99) < found.lower < found.lower_limit(0.8)
    assert str(found).startswith(f"At least {found.lower:.2%} of 300 examples are worse")
    better = improvement_bound(large, small)
    assert better.lower == pytest.approx(found.lower)
    assert "are better under" in str(better)
    fixed = decay_bound(small, large, threshold=found.threshold)
    assert 0.05 < fixed.lower < fixed.bound == found.bound and not fixed.adaptive
    assert decay_bound(small[:1], large).lower == 0
    nothing, everything = np.zeros((3, 20), int), np.ones((3, 20), int)
    none = decay_bound(nothing, everything)
    assert (none.bound, none.threshold) == (0, -np.inf)
    assert improvement_bound(nothing, everything).bound == 1
    for number in (1, 2, 3):  # examples, of which a half cannot show how they vary
        ones = np.ones((4, number), int)
        assert decay_bound(ones, 0 * ones).lower == 0
