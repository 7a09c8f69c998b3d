"""The rule of the recommended interval: what it counts, whatever the design, missing cells and clusters."""

import re

import numpy as np
import pytest
import xarray
from statsmodels.stats.proportion import proportion_confint

from multiberts import stats
from multiberts.stats.variance.crossing import Crossing
from multiberts.stats.variance.score_tables import TablePart, clustered_table, score_table


def few_differences(num_seeds=5, num_examples=100):
    """Two arms whose seeds answer alike but for three examples."""
    right = np.tile(np.random.default_rng(0).random(num_examples) < 0.8, (num_seeds, 1)).astype(
        float
    )
    other = right.copy()
    other[:, np.flatnonzero(right[0])[:2]] = 0
    other[: num_seeds // 2 + 1, np.flatnonzero(right[0] == 0)[0]] = 1
    return right, other


def test_clusters_of_one_example_leave_the_rule_as_it_is():
    arms = few_differences()
    plain, clustered = stats.compare(*arms), stats.compare(*arms, clusters=np.arange(100))
    assert clustered.ci.method == plain.ci.method == "Newcombe"
    assert clustered.ci == pytest.approx(plain.ci, abs=1e-9)
    assert clustered.p_value == pytest.approx(plain.p_value, abs=1e-9)


@pytest.mark.parametrize("in_arm", [0, 1, 2])
@pytest.mark.parametrize("num_cells", [1, 3])
def test_missing_cells_change_neither_the_method_nor_much_of_the_interval(num_cells, in_arm):
    arms = few_differences()
    whole = stats.compare(*arms, missing="omit")
    holes = [arm.copy() for arm in arms]
    for number in range(num_cells):
        for arm in holes if in_arm == 2 else [holes[in_arm]]:
            arm[number, 50 + number] = np.nan
    found = stats.compare(*holes, missing="omit")
    assert found.ci.method == whole.ci.method == "Newcombe"
    assert found.ci == pytest.approx(whole.ci, abs=0.003 * num_cells)
    assert found.p_value == pytest.approx(whole.p_value, abs=0.05 * num_cells)
    half = (found.ci.low + found.ci.high) / 2 - found.estimate
    assert half == pytest.approx((whole.ci.low + whole.ci.high) / 2 - whole.estimate, abs=0.003)


def test_a_seed_without_an_example_in_common_has_no_pairs():
    """Elsewhere the arms are alike: what differs is which examples their runs have."""
    base, experiment = few_differences()
    base[0, ::2] = experiment[0, 1::2] = np.nan
    found = stats.compare(base, experiment, missing="omit")
    assert found.ci.method == "t"
    assert -1 < found.ci.low < found.estimate < found.ci.high < 1


def test_many_clusters_with_a_difference_are_many():
    random = np.random.default_rng(1)
    base, experiment = (random.random((2, 5, 400)) < 0.8).astype(float)
    found = stats.compare(base, experiment, clusters=np.arange(400) // 4)
    assert found.ci.method == "t"


def test_few_differences_of_one_model_against_one_are_shares_too():
    """Two lost and one gained of 100: Newcombe's interval of these two shares, from Wilson's of each."""
    base, experiment = few_differences(1)
    found = stats.compare(base, experiment, resample="examples")
    of_lost, of_gained = (proportion_confint(n, 100, method="wilson") for n in (2, 1))
    below, above = of_lost[1] - 0.02, 0.01 - of_gained[0]
    correlation = -np.sqrt(0.02 * 0.01 / (0.98 * 0.99))  # of two shares of one multinomial
    reach = np.sqrt(below**2 + above**2 - 2 * correlation * below * above)
    assert found.ci.method == "Newcombe"
    assert found.ci.low == pytest.approx(-0.01 - reach, abs=0.003)
    assert found.p_value > 0.3
    fixed = stats.compare(base, few_differences()[1], design="fixed_baseline")
    assert fixed.ci.method == "Newcombe"
    assert fixed.ci.low < fixed.estimate - 1.96 * fixed.standard_error


def test_seeds_of_one_arm_held_fixed_count_by_their_mean():
    """Three base runs of which one answers one example otherwise: one unit differs, by a third."""
    base = np.ones((3, 60))
    base[0, 0] = 0
    experiment = np.ones((4, 60))
    experiment[:, 5] = 0
    found = stats.compare(base, experiment, design="fixed_baseline")
    assert found.ci.method == "Newcombe"
    assert found.estimate == pytest.approx(1 / 180 - 1 / 60)


def test_one_large_cluster_counts_for_little():
    """The jackknife over clusters, with degrees of freedom between those of the large ones and G - 1."""
    random = np.random.default_rng(2)
    sizes = np.array([40, 5, 5, 5, 5, 5, 5])
    clusters = np.repeat(np.arange(7), sizes)
    scores = random.random((1, 70))
    table = score_table(clustered_table(scores, clusters))
    part = TablePart(table, 1.0, None, "examples", sizes=sizes.astype(float))
    variance = Crossing([part]).unbiased_variance()
    means = [scores[:, clusters != left_out].mean() for left_out in range(7)]
    jackknife = 6 / 7 * ((np.array(means) - scores.mean()) ** 2).sum()
    assert variance.variance == pytest.approx(jackknife)
    weights = sizes / sizes.sum()
    centred = np.eye(7) - weights
    form = centred.T @ np.diag((weights / (1 - weights)) ** 2) @ centred
    of_large = np.trace(form) ** 2 / np.trace(form @ form)
    assert 1 < of_large < 2
    assert variance.degrees_of_freedom == pytest.approx(np.sqrt(6 * of_large))


@pytest.mark.parametrize(("spread", "number"), [(1.2, 30), (1.0, 10)])
def test_clusters_of_unlike_sizes_cover(spread, number):
    """Plain mean squares cover .870 and .900 here; 400 trials."""
    covered = 0
    for trial in range(400):
        random = np.random.default_rng([trial, number])
        sizes = np.maximum(1, np.exp(random.normal(np.log(10), spread, number))).astype(int)
        clusters = np.repeat(np.arange(number), sizes)
        effects = random.normal(0, 1.5, number)[clusters]
        scores = effects + random.normal(0, 1, len(clusters))
        table = score_table(clustered_table(scores[None], clusters))
        crossing = Crossing([TablePart(table, 1.0, None, "examples", sizes=sizes.astype(float))])
        variance = crossing.unbiased_variance()
        low, high = stats.interval_rule.interval_of_sum(crossing.mean, variance, 0.95)[0]
        covered += low <= 0 <= high
    assert covered / 400 >= 0.93


def agreement_of(answers):
    variables = {"prediction": (("run", "example"), answers)}
    seeds = {"pretrain_seed": ("run", [0, 0, 1, 1]), "finetune_seed": ("run", [0, 1, 0, 1])}
    return stats.zhong.agreement(xarray.Dataset(variables, seeds))


def test_agreement_stays_within_nought_and_one():
    answers = np.ones((4, 200), dtype=int)
    answers[2, 0] = 0
    found = agreement_of(answers)
    for estimate in (found.same_seed, found.different_seeds):
        assert 0.95 < estimate.interval.low < estimate.value < estimate.interval.high <= 1
    everywhere = agreement_of(np.ones((4, 200), dtype=int))
    assert everywhere.same_seed.interval == pytest.approx((0.025 ** (1 / 200), 1.0))
    assert everywhere.difference.interval.low < 0 < everywhere.difference.interval.high


def test_a_cluster_of_a_tenth_is_named():
    random = np.random.default_rng(4)
    base, experiment = (random.random((2, 3, 60)) < 0.7).astype(float)
    clusters = np.r_[np.zeros(12), np.arange(48)]
    few = stats.compare(base, experiment, clusters=clusters, n_resamples=39)
    assert re.search("largest of 48 clusters .*22 %", str(few))
    many = stats.compare(base, experiment, clusters=np.arange(60) // 3, n_resamples=39)
    assert "largest of" not in str(many)
