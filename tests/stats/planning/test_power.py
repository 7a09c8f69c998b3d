"""Planning against statsmodels' power, brute force over whole numbers, and simulation."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.power import TTestIndPower, TTestPower

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.planning.components import VarianceComponents
from multiberts.stats.planning.power import Study

SEEDS_ONLY = VarianceComponents(seed=1.0, example=0.0, residual=0.0)
ALL = VarianceComponents(seed=0.04, example=0.5, residual=0.9, run=0.09, run_residual=0.7)


def test_variance_of_the_text():
    """V(R, F, C) = sa/R + sf/(R F) + sb/C + se/(R C), runs' own residual over F too."""
    expected = 0.04 / 5 + 0.09 / (5 * 3) + 0.5 / 100 + 0.9 / 500 + 0.7 / 1500
    assert Study(ALL, 5, 3, 100).variance == pytest.approx(expected)
    seeds = expected - 0.5 / 100
    assert Study(ALL, 5, 3, 100, "unpaired").variance == pytest.approx(expected + seeds)
    # As seeds grow the examples' share remains.
    assert Study(ALL, 1e12, 3, 100).variance == pytest.approx(0.5 / 100)
    with pytest.raises(DataError, match="expected one of paired, unpaired, single"):
        Study(ALL, 5, design="nested")


def test_variance_of_the_text_by_simulation():
    random = np.random.default_rng(0)
    trials, seeds, runs, examples = 20_000, 3, 2, 4

    def effect(variance, *shape):
        return random.normal(scale=math.sqrt(variance), size=(trials, *shape))

    scores = (
        effect(ALL.seed, seeds, 1, 1)
        + effect(ALL.run, seeds, runs, 1)
        + effect(ALL.example, 1, 1, examples)
        + effect(ALL.residual, seeds, 1, examples)
        + effect(ALL.run_residual, seeds, runs, examples)
    )
    simulated = scores.mean(axis=(1, 2, 3)).var()
    expected = Study(ALL, seeds, runs, examples).variance
    assert abs(simulated / expected - 1) < 4 * math.sqrt(2 / trials)


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 12, 40])
@pytest.mark.parametrize("effect", [0.0, 0.3, 0.8, 2.0])
def test_power_equals_statsmodels(num_seeds, effect):
    for sides, alternative in ((1, "larger"), (2, "two-sided")):
        paired = TTestPower().power(effect, num_seeds, 0.05, alternative=alternative)
        assert Study(SEEDS_ONLY, num_seeds, sides=sides).power(effect) == pytest.approx(
            paired, rel=1e-8
        )
        unpaired = TTestIndPower().power(effect, num_seeds, 0.05, alternative=alternative)
        ours = Study(SEEDS_ONLY, num_seeds, design="unpaired", sides=sides).power(effect)
        assert ours == pytest.approx(unpaired, rel=1e-8)


def test_power_of_a_simulated_experiment():
    random = np.random.default_rng(1)
    trials, effect, seeds = 20_000, 0.3, 6
    parts = VarianceComponents(seed=0.05, example=0.0, residual=0.4)
    scores = effect + random.normal(scale=math.sqrt(0.05), size=(trials, seeds))
    scores += random.normal(scale=math.sqrt(0.4 / 50), size=(trials, seeds))
    found = scipy.stats.ttest_1samp(scores, 0, axis=1).pvalue <= 0.05
    expected = Study(parts, seeds, num_examples=50).power(effect)
    assert abs(found.mean() - expected) < 4 * math.sqrt(0.25 / trials)


def test_power_without_variance_or_effect():
    nothing = VarianceComponents(0.0, 0.0, 0.0)
    assert Study(nothing, 3).power(0.1) == Study(nothing, 3).power(-0.1) == 1
    assert Study(nothing, 3, sides=1).power(-0.1) == 0
    assert Study(nothing, 3).power(0.0) == 0.05
    assert Study(SEEDS_ONLY, 3).power(0.0) == pytest.approx(0.05)
    assert Study(SEEDS_ONLY, 9).power(-0.7) == pytest.approx(Study(SEEDS_ONLY, 9).power(0.7))
    with pytest.raises(DataError, match="found 1 seed"):
        Study(SEEDS_ONLY, 1).power(0.1)
    with pytest.raises(DataError, match="found alpha 5 and 2 sides"):
        Study(SEEDS_ONLY, 5, alpha=5).power(0.1)


@pytest.mark.parametrize("design", ["paired", "unpaired"])
@pytest.mark.parametrize("num_seeds", [2, 3, 5, 25])
def test_the_minimum_effect_is_found_with_its_power(num_seeds, design):
    least = Study(ALL, num_seeds, 2, 300, design).minimum_detectable_effect(target_power=0.9)
    assert Study(ALL, num_seeds, 2, 300, design).power(least) == pytest.approx(0.9, rel=1e-9)


def test_the_minimum_effect_of_the_text():
    """(t_{1-a} + t_{power}) sqrt V, and how far that is from the exact one."""
    for num_seeds in (5, 10, 25):
        t = scipy.stats.t(num_seeds - 1)
        variance = Study(ALL, num_seeds, 2, 300).variance
        expected = (t.ppf(0.975) + t.ppf(0.8)) * math.sqrt(variance)
        formula = Study(ALL, num_seeds, 2, 300).minimum_detectable_effect(exact=False)
        assert formula == pytest.approx(expected)
        assert Study(ALL, num_seeds, 2, 300).minimum_detectable_effect() == pytest.approx(
            formula, rel=0.02
        )
    t = scipy.stats.t(8)
    one_sided = Study(SEEDS_ONLY, 5, design="unpaired", sides=1).minimum_detectable_effect(
        exact=False
    )
    assert one_sided == pytest.approx((t.ppf(0.95) + t.ppf(0.8)) * math.sqrt(2 / 5))
    assert Study(VarianceComponents(0.0, 0.0, 0.0), 5).minimum_detectable_effect() == 0
    with pytest.raises(DataError, match="a power between alpha"):
        Study(ALL, 5).minimum_detectable_effect(target_power=0.01)


def test_seeds_needed_equals_statsmodels():
    for effect in (0.5, 0.8, 1.5):
        paired = TTestPower().solve_power(effect, alpha=0.05, power=0.8)
        assert Study(SEEDS_ONLY).seeds_needed(effect) == math.ceil(paired)
        unpaired = TTestIndPower().solve_power(effect, alpha=0.05, power=0.8)
        assert Study(SEEDS_ONLY, design="unpaired").seeds_needed(effect) == math.ceil(unpaired)


def test_seeds_needed_is_the_least_number():
    number = Study(ALL, num_runs=2, num_examples=200).seeds_needed(0.3, target_power=0.85)
    assert Study(ALL, number, 2, 200).power(0.3) >= 0.85 > Study(ALL, number - 1, 2, 200).power(0.3)
    assert Study(SEEDS_ONLY).seeds_needed(100.0) == 2


def test_no_number_of_seeds_beats_the_floor_of_the_examples():
    # sb/C = .5/50 = .01: with any number of seeds an effect of .1 is one standard error.
    with pytest.raises(
        DataError, match=r"found power 0.17 .* sb/C = 0.01 that seeds do not reduce"
    ):
        Study(ALL, num_examples=50).seeds_needed(0.1)
    assert Study(ALL, 10**6, num_examples=50).power(0.1) == pytest.approx(0.170, abs=0.001)
    for effect in (0.0, -0.4):
        with pytest.raises(DataError, match="expected one that the test can find"):
            Study(SEEDS_ONLY, sides=1).seeds_needed(effect)
    assert Study(SEEDS_ONLY).seeds_needed(-0.8) == Study(SEEDS_ONLY).seeds_needed(0.8)


def test_power_curve_is_power_at_each_point():
    curve = Study(ALL, num_runs=3, num_examples=400).power_curve([0.0, 0.1, 0.4], [2, 5, 9])
    assert curve.shape == (3, 3)
    assert curve[1, 2] == Study(ALL, 5, 3, 400).power(0.4)
    assert (np.diff(curve, axis=1) > 0).all() and (np.diff(curve[:, 1:], axis=0) > 0).all()


def cheapest(cost_pretrain, cost_finetune, parts, num_examples, most=400):
    always, by_run = (
        parts.seed + parts.residual / num_examples,
        parts.run + parts.run_residual / num_examples,
    )
    products = [
        (always + by_run / runs) * (cost_pretrain + runs * cost_finetune) for runs in range(1, most)
    ]
    return 1 + int(np.argmin(products))


def test_best_runs_is_the_square_root_rule_and_the_best_whole_number():
    # sqrt(100 x 1 / (1 x .25)) = 20 exactly.
    parts = VarianceComponents(seed=0.25, example=0.1, residual=0.0, run=1.0)
    assert Study(parts).best_runs_per_seed(100, 1) == 20
    random = np.random.default_rng(2)
    for _ in range(200):
        parts = VarianceComponents(*random.random(5))
        costs = random.uniform(1, 50), random.uniform(0.1, 5)
        examples = float(random.integers(1, 50))
        expected = cheapest(*costs, parts, examples)
        assert Study(parts, num_examples=examples).best_runs_per_seed(*costs) == expected


def test_best_runs_at_the_ends():
    assert Study(SEEDS_ONLY).best_runs_per_seed(100, 1) == 1  # runs do not differ
    assert Study(ALL).best_runs_per_seed(0, 1) == 1  # seeds cost nothing: always another seed
    only_runs = VarianceComponents(seed=0.0, example=0.1, residual=0.0, run=1.0)
    with pytest.raises(DataError, match="one seed with ever more runs is best"):
        Study(only_runs).best_runs_per_seed(10, 1)
    with pytest.raises(DataError, match="found costs 1 and 0"):
        Study(ALL).best_runs_per_seed(1, 0)


@pytest.mark.parametrize("design", ["paired", "unpaired", "single"])
def test_best_plan_is_the_best_of_all_that_fit(design):
    budget, pretrain, finetune = 330.0, 20.0, 1.5
    sides = 1 if design == "single" else 2
    plan = Study(ALL, num_examples=100, design=design).best_plan(budget, pretrain, finetune)
    assert plan.cost(pretrain, finetune) == pytest.approx(
        sides * plan.num_seeds * (pretrain + plan.num_runs * finetune)
    )
    assert plan.cost(pretrain, finetune) <= budget and plan.num_seeds >= 2
    fitting = [
        Study(ALL, seeds, runs, 100, design).variance
        for seeds in range(2, 17)
        for runs in range(1, 220)
        if sides * seeds * (pretrain + runs * finetune) <= budget
    ]
    assert plan.variance == pytest.approx(min(fitting), rel=1e-12)


def test_best_plan_near_the_rule_and_beyond_the_budget():
    parts = VarianceComponents(seed=0.25, example=0.0, residual=0.0, run=1.0)
    plan = Study(parts, design="single").best_plan(1e6, 100, 1)
    assert plan.num_runs == pytest.approx(Study(parts).best_runs_per_seed(100, 1), abs=1)
    assert Study(parts, design="single").best_plan(2 * (10 + 1), 10, 1).num_seeds == 2
    with pytest.raises(DataError, match="found a budget of 21, expected at least 22"):
        Study(parts, design="single").best_plan(21, 10, 1)


def test_numbers_that_cannot_be_are_refused():
    parts = VarianceComponents(0.01, 0.1, 0.05)
    nan = float("nan")
    for wrong in ({"num_seeds": nan}, {"num_runs": 0}, {"num_examples": -5}, {"num_examples": nan}):
        with pytest.raises(
            DataError, match=f"found {next(iter(wrong))} .*expected a whole number of 1 or more"
        ):
            Study(parts, **wrong)
    with pytest.raises(DataError, match="found component seed nan"):
        VarianceComponents(nan, 0.1, 0.1)
    with pytest.raises(DataError, match="found component seed -0.01, expected 0 or more"):
        Study(VarianceComponents(-0.01, 0.1, 0.1))
    study = Study(parts, num_seeds=5, num_examples=100)
    for call in (
        lambda: study.power(nan),
        lambda: study.seeds_needed(nan),
        lambda: study.seeds_needed(0.1, nan),
        lambda: study.minimum_detectable_effect(nan),
        lambda: study.best_plan(nan, 1, 1),
        lambda: study.best_plan(100, nan, 1),
    ):
        with pytest.raises(DataError, match="nan"):
            call()


def test_a_component_taken_as_0_is_named():
    parts = VarianceComponents(0.0, 0.1, 0.05, truncated=("seed",))
    with pytest.warns(UserWarning, match="the components seed were estimated below 0"):
        Study(parts, num_seeds=5)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda study: dataclasses.replace(study, num_seeds=2.5),
            "found num_seeds 2.5, expected a whole",
        ),
        (lambda study: study.power_curve([0.1], [np.nan]), "found num_seeds nan"),
        (lambda study: study.power_curve([0.1], [2.7]), "found num_seeds 2.7"),
        (lambda study: study.cost(np.nan, 1), "found costs nan and 1"),
        (lambda study: study.cost(-1, 1), "found costs -1 and 1"),
    ],
)
def test_impossible_numbers_are_refused(ask, message):
    with pytest.raises(DataError, match=message):
        ask(Study(VarianceComponents(1.0, 1.0, 1.0), num_seeds=5))
