"""What few seeds do to intervals and tests: coverage, the seeds that failed, and the floor of p."""

import re

import numpy as np
import pytest
import scipy.stats
from scipy.special import ndtri

from multiberts.evaluate.metrics.register import METRICS
from multiberts.report.presentation.words import unseen_failures, warnings
from multiberts.stats import compare
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.compare.failures import failed_seeds, failures_of
from multiberts.stats.interval_rule import (
    interval_of_score,
    near_bounds_difference,
    t_interval,
    t_p_values,
)
from multiberts.stats.intervals import Interval
from multiberts.stats.runs_table import make_arm
from multiberts.stats.score import Score
from multiberts.tests.stats.crossings import crossing_of_tables


def test_cautious_degrees_of_freedom_keep_the_level_where_three_seeds_look_alike_by_chance():
    """Nine tenths of the variance from three seeds, a tenth from many examples.

    Satterthwaite's own degrees of freedom jump when the three happen to lie close; Monte Carlo
    error of a share of .05 is .004 here.
    """
    random = np.random.default_rng(11)
    errors = {"satterthwaite": 0, "cautious": 0}
    num_trials = 2500
    for _ in range(num_trials):
        seeds = random.normal(scale=np.sqrt(3 * 0.9), size=(3, 1))
        table = seeds + random.normal(scale=np.sqrt(60 * 0.1), size=(1, 60))
        found = crossing_of_tables([table]).unbiased_variance()
        error = np.sqrt(found.variance)
        for name, freedom in (
            ("satterthwaite", found.degrees_of_freedom),
            ("cautious", found.cautious_degrees_of_freedom),
        ):
            errors[name] += t_p_values(table.mean(), error, freedom).two_sided < 0.05
    assert errors["satterthwaite"] / num_trials > 0.065
    assert 0.035 < errors["cautious"] / num_trials < 0.06


@pytest.mark.parametrize(
    ("accuracy", "num_seeds", "plain_coverage"),
    [(0.993, 5, 0.79), (0.97, 10, 0.90), (0.993, 25, 0.81)],
)
def test_the_interval_of_a_high_accuracy_covers_and_stays_below_one(
    accuracy, num_seeds, plain_coverage
):
    """Answers by a probit with effects of seeds and of 50 examples; 400 trials."""
    random = np.random.default_rng(8)
    trials, covered, plain = 400, 0, 0
    centre = ndtri(accuracy) * np.sqrt(1 + 0.3**2 + 1)
    for _ in range(trials):
        seeds, examples = random.normal(0, 0.3, (num_seeds, 1)), random.normal(size=(1, 50))
        right = random.normal(size=(num_seeds, 50)) < centre + seeds + examples
        crossing = crossing_of_tables([right])
        estimate = float(right.mean())
        found = interval_of_score(crossing, estimate, 0.95, Score("score", ends=(0, 1)), 50)
        assert 0 <= found.low < found.high <= 1
        covered += found.low <= accuracy <= found.high
        variance = crossing.unbiased_variance()
        low, high = t_interval(
            estimate, np.sqrt(variance.variance), variance.cautious_degrees_of_freedom, 0.95
        )
        plain += low <= accuracy <= high
    assert covered / trials >= 0.93
    assert plain / trials == pytest.approx(plain_coverage, abs=0.06)


def test_sides_that_are_all_right_still_leave_room_for_new_examples():
    right = np.ones((3, 40))
    found = compare(right, right, "accuracy", labels=np.ones(40), n_resamples=40)
    reach = 1 - 0.025 ** (1 / 40)
    assert found.base.ci == pytest.approx((1 - reach, 1))
    assert found.ci == pytest.approx((-reach, reach))
    wrong = compare(0 * right, right, "accuracy", labels=np.ones(40), n_resamples=40)
    assert wrong.ci == pytest.approx((1 - np.hypot(reach, reach), 1))


def test_no_interval_leaves_the_range_of_the_metric():
    random = np.random.default_rng(9)
    labels = random.integers(0, 2, 12)
    base, experiment = (
        np.where(random.random((3, 12)) < skill, labels, 1 - labels) for skill in (0.1, 0.95)
    )
    for metric, low in (("accuracy", 0), ("f1", 0), ("matthews", -1), ("error", 0)):
        alone = compare(experiment, None, metric, design="single", labels=labels, n_resamples=60)
        both = compare(base, experiment, metric, design="unpaired", labels=labels, n_resamples=60)
        for ends in (alone.ci, alone.intervals["percentile"]):
            assert low - 1e-12 <= ends.low <= ends.high <= 1 + 1e-12
        for ends in (both.ci, both.intervals["percentile"]):
            assert max(map(abs, ends)) <= 1 - low + 1e-12


def answers(random, accuracy, spread, num_seeds, num_examples, fails):
    """Answers by a probit; seeds that fail answer at chance."""
    centre = ndtri(accuracy) * np.sqrt(2 + spread**2)
    seeds, examples = random.normal(0, spread, (num_seeds, 1)), random.normal(size=num_examples)
    right = random.normal(size=(num_seeds, num_examples)) < centre + seeds + examples
    right[fails] = random.random((int(fails.sum()), num_examples)) < 0.5
    return right.astype(float)


HALF = Interval(0.5, 0.5)


@pytest.mark.parametrize(("num_seeds", "least"), [(3, 0), (4, 0.9), (5, 0.9), (10, 0.95)])
def test_failed_seeds_are_flagged_and_others_hardly_ever(num_seeds, least):
    """Two others are too few: seeds that vary much often lie so."""
    random = np.random.default_rng(10)
    found, false, trials = 0, 0, 300
    for trial in range(trials):
        fails = np.arange(num_seeds) == trial % num_seeds
        right = answers(random, 0.9, 0.1, num_seeds, 500, fails)
        flags = failed_seeds(crossing_of_tables([right]), right.mean(axis=1), HALF)
        found += bool((flags == fails).all())
        accuracy, spread = [(0.9, 0.1), (0.65, 0.15), (0.6, 0.3)][trial % 3]
        right = answers(random, accuracy, spread, num_seeds, 277, fails & False)
        false += bool(failed_seeds(crossing_of_tables([right]), right.mean(axis=1), HALF).any())
    assert found / trials >= least
    assert false / trials <= 0.02


@pytest.mark.parametrize("num_seeds", [3, 5, 10, 25])
def test_seeds_that_vary_widely_are_not_called_failed(num_seeds):
    """Accuracy .78 with a standard deviation of about a logit, so scores of .3 to .98; 300 trials.

    Within two standard errors of 2 %. Three robust standard deviations alone are up in .13 to .8.
    """
    random, false, trials = np.random.default_rng(20), 0, 300
    labels = np.arange(500) % 2
    for _ in range(trials):
        right = answers(random, 0.78, 0.6, num_seeds, 500, np.zeros(num_seeds, bool))
        arm = make_arm("", np.where(right == 1, labels, 1 - labels), labels, range(num_seeds))
        job = ScoreJob(arm, METRICS["accuracy"], "seeds", None)
        failed, *_ = failures_of(job, crossing_of_tables([right]), right.mean(axis=1), 0.95)
        false += bool(failed)
    assert false / trials <= 0.02 + 2 * np.sqrt(0.02 * 0.98 / trials)


def test_chance_reaches_from_guessing_each_class_to_the_most_frequent():
    """A seed that guesses scores a half, where always the most frequent class scores .6."""
    random = np.random.default_rng(21)
    labels = (np.arange(1000) % 5 < 3).astype(int)
    right = answers(random, 0.9, 0.05, 6, 1000, np.zeros(6, bool)).astype(bool)
    for chance in (0.5, 0.6):
        right[3] = random.random(1000) < chance
        predictions = np.where(right, labels, 1 - labels)
        found = compare(
            predictions, None, "accuracy", design="single", labels=labels, n_resamples=40
        )
        assert found.base.failed_seeds == (3,)
        assert found.without_failed is None  # of one arm, only its top scores would be left


@pytest.mark.parametrize(("spread", "least", "most"), [(0.8, 0.9, 1), (0.0, 0, 0.02)])
def test_the_floor_of_seeds_is_named_where_seeds_carry_the_result(spread, least, most):
    """Five seeds and a large difference, by seeds whose scores differ or by examples alone."""
    random, flags = np.random.default_rng(12), 0
    for _ in range(100):
        effects = 3 + spread * random.normal(size=(5, 1))
        table = effects + random.normal(size=50) + 0.3 * random.normal(size=(5, 50))
        flags += compare(np.zeros((5, 50)), table, n_resamples=40).below_seed_floor
    assert least <= flags / 100 <= most


def test_the_floor_of_seeds_is_not_named_where_nothing_is_claimed():
    """Of two seeds every second difference without a truth has p below the floor of .25."""
    random, flags, below = np.random.default_rng(13), 0, 0
    for _ in range(100):
        table = random.normal(size=(2, 1)) + 0.1 * random.normal(size=(2, 20))
        found = compare(np.zeros((2, 20)), table, n_resamples=40)
        flags += found.below_seed_floor
        below += min(found.p_values["t"][:2]) < found.seed_floor
    assert below > 35
    assert flags <= 12


@pytest.mark.slow
@pytest.mark.seconds
@pytest.mark.parametrize(
    ("skills", "num_seeds", "num_examples"),
    [((0.999, 0.97), 5, 50), ((0.9995, 0.99), 10, 100), ((0.993, 0.993), 2, 50), ((0.999, 0.95), 3, 100)],
)  # fmt: skip
@pytest.mark.parametrize("design", ["paired", "unpaired"])
def test_the_interval_of_a_difference_near_the_ends_covers(skills, num_seeds, num_examples, design):
    """300 trials; the plain t interval of the first two covers .88 to .93, that of the last finds less."""
    random, trials, covered, plain, found_by_t = np.random.default_rng(13), 300, 0, 0, 0
    significant = 0
    for _ in range(trials):
        hard, effects = random.normal(size=num_examples), random.normal(size=(2, num_seeds, 1))
        tables = [
            random.normal(size=(num_seeds, num_examples))
            < ndtri(skill) * np.sqrt(2 + 0.3**2 + 0.5**2)
            + 0.3 * effects[side if design == "unpaired" else 0]
            + hard
            + 0.5 * random.normal(size=num_examples)
            for side, skill in enumerate(skills)
        ]
        found = compare(
            *tables, "accuracy", design=design, labels=np.ones(num_examples, bool), n_resamples=40,
        )  # fmt: skip
        truth = skills[1] - skills[0]
        covered += found.ci.low <= truth <= found.ci.high
        assert -1 <= found.ci.low <= found.ci.high <= 1
        assert (found.ci.low <= 0 <= found.ci.high) == (found.p_value >= 0.05)
        significant += found.significant
        low, high = t_interval(found.estimate, found.standard_error, found.df, 0.95)
        plain += low <= truth <= high
        found_by_t += not low <= 0 <= high
    assert covered / trials >= 0.93
    if truth == 0:
        assert significant / trials <= 0.05
    elif num_seeds == 3:  # one answer lost would outweigh more than the normal interval allows
        assert significant > found_by_t or (significant == found_by_t and design == "paired")
    else:
        assert plain / trials < 0.95


def test_the_test_near_the_ends_is_its_interval_turned_round():
    sides, rest = ((0.96, 0.012), (0.99, 0.006)), (9.0, 0.3, (0, 1), (100, 100))
    _, p_values = near_bounds_difference(*sides, *rest, 0.95)
    for tail, ends in ((p_values.two_sided, 0), (p_values.two_sided * 0.9, -1)):
        interval, _ = near_bounds_difference(*sides, *rest, 1 - tail)
        assert interval.low == pytest.approx(0, abs=1e-9) if ends == 0 else interval.low < 0
    assert p_values.greater == p_values.two_sided / 2 == 1 - p_values.less
    mirrored = near_bounds_difference(*sides[::-1], *rest, 0.95)[1]
    assert mirrored.less == pytest.approx(p_values.greater)
    same = near_bounds_difference(sides[0], sides[0], *rest, 0.95)[1]
    assert same.two_sided == 1


@pytest.mark.parametrize(("num_seeds", "is_said"), [(2, True), (5, True), (36, False)])
def test_few_seeds_without_a_failure_say_how_many_may_fail(num_seeds, is_said):
    """Below 36 seeds the limit is above one in ten, the rate of the calibration."""
    random = np.random.default_rng(17)
    labels = random.integers(0, 2, 400)
    right = answers(random, 0.9, 0.1, num_seeds, 400, np.zeros(num_seeds, bool)).astype(bool)
    predictions = np.where(right, labels, 1 - labels)
    both = compare(predictions, predictions[::-1], "accuracy", labels=labels, n_resamples=40)
    alone = compare(predictions, None, "accuracy", design="single", labels=labels, n_resamples=40)
    exact = scipy.stats.binomtest(0, num_seeds).proportion_ci(0.95, method="exact")
    for found in (both, alone):
        assert found.base.failed_seeds == ()
        assert found.base.failure_rate == pytest.approx(tuple(exact))
        assert found.to_dict()["base"]["failure_rate"]["high"] == pytest.approx(exact.high)
        assert bool(unseen_failures(found)) == is_said and not warnings(found)
        assert [text.count("failed to train") for text in (str(found), found.methods())] == [
            is_said
        ] * 2


def test_seeds_of_which_none_can_be_seen_to_fail_say_nothing_of_a_rate():
    random = np.random.default_rng(18)
    labels = random.integers(0, 2, 100)
    near_chance = np.where(random.random((5, 100)) < 0.6, labels, 1 - labels)
    scores = random.random((5, 100))
    sides = {
        "near chance": compare(near_chance, None, "accuracy", design="single", labels=labels),
        "no chance level": compare(scores, None, None, design="single"),
    }
    right = answers(random, 0.95, 0.1, 5, 100, np.zeros(5, bool)).astype(bool)
    predictions = np.where(right, labels, 1 - labels)
    options = {"labels": labels, "n_resamples": 40}
    sides["these seeds alone"] = compare(
        predictions, None, "accuracy", design="single", resample="examples", **options
    )
    for name, found in sides.items():
        assert found.base.failure_rate is None and "failed to train" not in str(found), name
    fixed = compare(predictions, predictions, "accuracy", design="fixed_baseline", **options)
    assert fixed.base.failure_rate is None and fixed.experiment.failure_rate is not None
    unlike = compare(predictions, predictions[:3], "accuracy", design="unpaired", **options)
    assert re.search("None of .*5 seeds of base and none of .*3 .*experiment failed", str(unlike))
    assert "up to 52 % and 71 %" in str(unlike)
    failed = predictions.copy()
    failed[2] = 1
    some = compare(predictions, failed, "accuracy", design="unpaired", **options)
    assert some.experiment.failure_rate == pytest.approx((0.0050507634, 0.716417936))
    assert re.search("None .*5 seeds of base failed", str(some))
    assert "of experiment failed" not in str(some)


def test_a_seed_of_one_class_is_flagged_among_any_number():
    random = np.random.default_rng(14)
    labels = random.integers(0, 2, 60)
    predictions = np.where(random.random((2, 60)) < 0.7, labels, 1 - labels)
    predictions[1] = 1
    found = compare(predictions, None, "accuracy", design="single", labels=labels, n_resamples=40)
    assert found.base.failed_seeds == (1,)
    constant = np.ones((2, 60), int)
    found = compare(constant, predictions, "accuracy", labels=labels, n_resamples=40)
    assert found.base.failed_seeds == ()  # a rule, perhaps
    assert (found.base.constant_seeds, found.experiment.constant_seeds) == ((0, 1), (1,))
    assert found.experiment.failed_seeds == (1,)
    assert found.without_failed is None  # one seed is left


def one_side_constant(texts: bool):
    """Five seeds at accuracy .9, and five that answer 1 (`yes`) to each of 200 examples."""
    random, labels = np.random.default_rng(15), (np.arange(200) % 20 < 9) * 1
    trained = np.where(random.random((5, 200)) < 0.9, labels, 1 - labels)
    names = np.array(["no", "yes"]) if texts else np.array([0, 1])
    return names[trained], np.full((5, 200), names[1]), names[labels]


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("metric", ["accuracy", "f1_macro"])
def test_a_side_of_one_class_is_named_and_not_called_trained(texts, metric):
    trained, constant, labels = one_side_constant(texts)
    options = {"labels": labels, "n_resamples": 40}
    found = compare(trained, constant, metric, **options).named("old", "new")
    assert found.experiment.constant_seeds == (0, 1, 2, 3, 4) and not found.base.constant_seeds
    assert found.experiment.failure_rate is None and found.base.failure_rate.high < 0.53
    assert found.to_dict()["experiment"]["constant_seeds"] == [0, 1, 2, 3, 4]
    text = str(found)
    assert re.search("All 5 seeds of new .*one class", text)
    assert re.search("None .*5 seeds of old failed", text)
    assert "None of the 5 seeds failed" not in text and "seeds of new failed" not in text
    both = compare(constant, constant, metric, **options).named("old", "new")
    assert "failed to train" not in str(both).replace("training failed", "")
    assert "All 5 seeds of old predict" in str(both) and "All 5 seeds of new predict" in str(both)


def test_own_scores_of_a_seed_that_is_wrong_on_every_example():
    """All wrong is a sign of failure where seeds like the others would hardly ever be; all right is none."""
    trained, _, labels = one_side_constant(texts=False)
    right = (trained == labels).astype(float)
    some = right.copy()
    some[2], some[3] = 0, 1
    found = compare(right, some, n_resamples=40)
    assert found.experiment.constant_seeds == found.experiment.failed_seeds == (2,)
    assert "(seed 2) scores 0" in str(found)
    found = compare(right, 0 * right, n_resamples=40)
    assert found.experiment.constant_seeds == (0, 1, 2, 3, 4)
    assert "5 seeds of experiment score 0" in str(found)
    assert not compare(right, 1 + 0 * right, n_resamples=40).experiment.constant_seeds
    of_seeds = np.repeat([[0.2], [0.4], [0.5]], 20, axis=1)  # one score per seed
    assert not compare(of_seeds, of_seeds, n_resamples=40).base.constant_seeds
    hard = np.zeros((5, 20))
    hard[range(1, 5), range(1, 5)] = 1  # one in twenty is right: all wrong in a third of seeds
    assert not compare(hard, hard, n_resamples=40).base.constant_seeds


@pytest.mark.parametrize("num_seeds", [5, 8, 25])
def test_a_seed_far_from_all_others_is_flagged_and_others_hardly_ever(num_seeds):
    """Half way to chance, of a metric without a chance level; 400 trials each."""
    random, found, false, trials = np.random.default_rng(15), 0, 0, 400
    for _ in range(trials):
        table = 0.9 + 0.01 * random.normal(size=(num_seeds, 1)) + 0.3 * random.normal(size=200)
        table = table + 0.1 * random.normal(size=(num_seeds, 200))
        false += failed_seeds(crossing_of_tables([table]), table.mean(axis=1), None).any()
        table[2] -= 0.5
        flags = failed_seeds(crossing_of_tables([table]), table.mean(axis=1), None)
        found += bool(flags[2] and flags.sum() == 1)
    assert found / trials >= 0.9
    assert false / trials <= 0.02


def test_two_sides_of_five_normal_seeds_are_hardly_ever_flagged():
    """The seeds carry everything; 1,500 trials."""
    random, false, trials = np.random.default_rng(16), 0, 1500
    for _ in range(trials):
        sides = random.normal(size=(2, 5, 1)) + np.zeros((2, 5, 3))
        false += any(
            failed_seeds(crossing_of_tables([side]), side.mean(axis=1), None).any()
            for side in sides
        )
    assert 0 < false / trials <= 0.02


def test_the_result_of_the_rest_is_that_without_failed_seeds():
    random = np.random.default_rng(16)
    base, experiment = ((random.random((6, 200)) < skill) + 0.0 for skill in (0.8, 0.9))
    labels = np.arange(200) % 2.0
    experiment[3] = random.random(200) < 0.5
    sides = [np.where(side == 1, labels, 1 - labels) for side in (base, experiment)]
    kept = [0, 1, 2, 4, 5]
    for design, first in (("paired", kept), ("unpaired", range(6))):
        found = compare(*sides, "accuracy", design=design, labels=labels, n_resamples=40)
        assert found.experiment.failed_seeds == (3,)
        alone = compare(
            sides[0][first], sides[1][kept], "accuracy", design=design, labels=labels, n_resamples=40,
        )  # fmt: skip
        assert found.without_failed.estimate == pytest.approx(alone.estimate)
        assert found.without_failed.ci == pytest.approx(alone.ci)
        assert found.without_failed.p_value == pytest.approx(alone.p_value)
    assert alone.without_failed is None
