"""Plans against statsmodels' power, brute force over whole numbers, and simulation of the very test."""

import math

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.power import TTestPower

from multiberts.stats import compare
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import t_p_values
from multiberts.stats.variance.components import (
    VarianceComponents,
    nested_variance_components,
    variance_components,
)
from multiberts.stats.variance.crossing import VarianceParts
from multiberts.stats.variance.plan import estimated_plan
from multiberts.tests.stats.crossings import crossing_of_tables

SEEDS_ONLY = VarianceComponents(seed=1.0, example=0.0, residual=0.0)
ALL = VarianceComponents(seed=0.04, example=0.5, residual=0.9, run=0.09, run_residual=0.7)


def test_variance_of_the_text():
    """V(R, F, C) = sa/R + sf/(R F) + sb/C + se/(R C), runs' own residual over F too."""
    expected = 0.04 / 5 + 0.09 / (5 * 3) + 0.5 / 100 + 0.9 / 500 + 0.7 / 1500
    assert ALL.plan(5, 3, 100).variance == pytest.approx(expected)
    seeds = expected - 0.5 / 100
    assert ALL.plan(5, 3, 100, "unpaired").variance == pytest.approx(expected + seeds)
    # As seeds grow the examples' share remains.
    assert ALL.plan(10**12, 3, 100).variance == pytest.approx(0.5 / 100)


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 12, 40])
@pytest.mark.parametrize("effect", [0.0, 0.3, 0.8, 2.0])
def test_power_of_seeds_alone_equals_statsmodels(num_seeds, effect):
    for sides, alternative in ((1, "larger"), (2, "two-sided")):
        expected = TTestPower().power(effect, num_seeds, 0.05, alternative=alternative)
        ours = SEEDS_ONLY.plan(num_seeds, sides=sides).power(effect)
        assert ours == pytest.approx(expected, rel=1e-8)


def simulated_tables(random, components, sizes, design):
    """The tables of one study whose true difference is 0: of the difference, or of each arm."""
    seeds, examples = sizes
    spread = np.sqrt([components.seed, components.example, components.residual])
    pools = 2 if design == "unpaired" else 1
    tables = [
        spread[0] * random.normal(size=(seeds, 1)) + spread[2] * random.normal(size=sizes)
        for _ in range(pools)
    ]
    tables[-1] += spread[1] * random.normal(size=examples)  # of the difference
    return tables


# Where seeds carry the variance, where examples do, and the three unpaired seeds whose Welch degrees of
# freedom vary most: the noncentral t with the expected ones would promise .80 for .70.
DESIGNS = [
    ("paired", (3, 100), VarianceComponents(1.0, 20.0, 10.0)),
    ("paired", (5, 60), VarianceComponents(0.02, 20.0, 10.0)),
    ("paired", (10, 60), VarianceComponents(1.0, 1.0, 1.0)),
    ("unpaired", (3, 60), VarianceComponents(1.0, 0.01, 1.0)),
    ("unpaired", (5, 60), VarianceComponents(0.2, 20.0, 10.0)),
]


@pytest.mark.parametrize(("design", "sizes", "components"), DESIGNS)
def test_power_is_that_of_the_recommended_test(design, sizes, components):
    """A linear effect shifts the estimate alone, so that each table is tested at three effects."""
    random, trials = np.random.default_rng(0), 800
    plan = components.plan(sizes[0], num_examples=sizes[1], design=design)
    effects = plan.minimum_detectable_effect() * np.array([0.0, 0.6, 1.0])
    found = np.zeros(3)
    for _ in range(trials):
        crossing = crossing_of_tables(simulated_tables(random, components, sizes, design))
        variance = crossing.unbiased_variance()
        error, freedom = math.sqrt(variance.variance), variance.cautious_degrees_of_freedom
        found += [t_p_values(crossing.mean + e, error, freedom).two_sided < 0.05 for e in effects]
    for share, effect in zip(found / trials, effects, strict=True):
        power = plan.power(effect)
        assert abs(share - power) < 3.3 * math.sqrt(power * (1 - power) / trials)
    assert plan.power(effects[2]) == pytest.approx(0.8)


def test_power_without_variance_or_effect():
    nothing = VarianceComponents(0.0, 0.0, 0.0)
    assert nothing.plan(3).power(0.1) == nothing.plan(3).power(-0.1) == 1
    assert nothing.plan(3, sides=1).power(-0.1) == nothing.plan(5).minimum_detectable_effect() == 0
    assert nothing.plan(3).power(0.0) == 0.05
    assert SEEDS_ONLY.plan(3).power(0.0) == pytest.approx(0.05)
    assert SEEDS_ONLY.plan(9).power(-0.7) == pytest.approx(SEEDS_ONLY.plan(9).power(0.7))


@pytest.mark.parametrize("design", ["paired", "unpaired"])
@pytest.mark.parametrize("num_seeds", [2, 3, 5, 25])
def test_the_minimum_effect_is_found_with_its_power(num_seeds, design):
    plan = ALL.plan(num_seeds, 2, 300, design, target_power=0.9)
    assert plan.power(plan.minimum_detectable_effect()) == pytest.approx(0.9, rel=1e-9)


def test_numbers_needed_are_the_least():
    plan = ALL.plan(5, 2, 200, target_power=0.85)
    number = plan.seeds_needed(0.3)
    assert plan.at(number).power(0.3) >= 0.85 > plan.at(number - 1).power(0.3)
    number = plan.examples_needed(0.6)
    assert plan.at(None, number).power(0.6) >= 0.85 > plan.at(None, number - 1).power(0.6)
    assert SEEDS_ONLY.plan(5).seeds_needed(100.0) == 2


@pytest.mark.parametrize("design", ["paired", "unpaired"])
def test_a_plan_with_other_numbers_is_the_plan_of_these_numbers(design):
    moved = ALL.plan(2, 3, 40, design).at(25, 700)
    direct = ALL.plan(25, 3, 700, design)
    for terms in ("seeds", "examples", "residual"):
        found, expected = getattr(moved.parts, terms), getattr(direct.parts, terms)
        np.testing.assert_allclose(np.array(found), np.array(expected), rtol=1e-12)
    assert moved.power(0.2) == pytest.approx(direct.power(0.2), rel=1e-9)


def test_no_number_of_seeds_beats_the_floor_of_the_examples():
    # sb/C = .5/50 = .01: with any number of seeds an effect of .1 is one standard error.
    plan = ALL.plan(5, num_examples=50)
    with pytest.raises(DataError, match=r"power 0.165 .*0.01 .*from examples"):
        plan.seeds_needed(0.1)
    assert plan.at(10**6).power(0.1) == pytest.approx(0.165, abs=0.001)
    with pytest.raises(DataError, match="0.026 .*from seeds alone"):
        plan.examples_needed(0.1)
    assert SEEDS_ONLY.plan(2).seeds_needed(-0.8) == SEEDS_ONLY.plan(2).seeds_needed(0.8)


def test_power_curve_is_power_at_each_point():
    curve = ALL.plan(2, 3, 400).power_curve([0.0, 0.1, 0.4], [2, 5, 9])
    assert curve.shape == (3, 3)
    assert curve[1, 2] == pytest.approx(ALL.plan(5, 3, 400).power(0.4), rel=1e-9)
    assert (np.diff(curve, axis=1) > 0).all() and (np.diff(curve[:, 1:], axis=0) > 0).all()


def test_a_component_taken_as_0_is_named():
    parts = VarianceComponents(0.0, 0.1, 0.05, truncated=("seed",))
    with pytest.warns(UserWarning, match="components seed .*below 0") as warned:
        parts.plan(5)
    assert warned[0].filename == __file__


# --- Plans from data ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def arms():
    """Seeds, examples and both vary, and differ between arms."""
    random = np.random.default_rng(3)
    common = random.normal(size=80) + random.normal(scale=0.4, size=(5, 1))
    return [
        shift + common + random.normal(scale=0.8, size=80) + random.normal(scale=0.3, size=(5, 1))
        + random.normal(size=(5, 80))
        for shift in (0.0, 0.45)
    ]  # fmt: skip


def test_a_result_and_its_components_give_one_plan(arms):
    """Where the two planners were, the same study got 5 seeds from one and 24 from the other."""
    base, experiment = arms
    random = np.random.default_rng(0)
    luck = random.normal(scale=0.3, size=(5, 80)) + random.normal(scale=0.1, size=(5, 1))
    runs = list(np.stack([experiment - base - luck, experiment - base + luck], axis=1))
    plans = [
        compare(base, experiment, "mean", n_resamples=39).plan(),
        variance_components(experiment - base).plan(5, num_examples=80),
        nested_variance_components(runs).plan(5, 2, 80),
    ]
    for ask in (
        lambda plan: plan.variance,
        lambda plan: plan.power(0.3),
        lambda plan: plan.minimum_detectable_effect(),
        lambda plan: plan.seeds_needed(0.6),
    ):
        first, *others = map(ask, plans)
        assert others == pytest.approx([first] * 2, rel=1e-6)


def test_the_plan_of_a_result_has_its_own_test(arms):
    """The estimate is planned for; seeds, examples and the effect can be others."""
    result = compare(*arms, "mean", n_resamples=39)
    plan = result.plan()
    assert plan.effect == result.estimate and plan.alpha == pytest.approx(0.05)
    assert plan.variance == pytest.approx(result.standard_error**2)
    more = result.plan(num_seeds=20, num_examples=320, effect=0.2, target_power=0.9, sides=1)
    assert (more.num_seeds, more.num_examples, more.sides, more.target_power) == (20, 320, 1, 0.9)
    assert more.variance == result.variance_parts.scaled(4, 4).variance
    assert more.power() == more.power(0.2) > plan.power(0.2)
    low, high = more.needed_range("seeds")
    assert low <= more.seeds_needed() <= high
    low, high = more.minimum_detectable_range()
    assert str(more) == (
        "With 20 seeds, 320 examples, the smallest difference detectable with 90 % power is about "
        f"{more.minimum_detectable_effect():.3f} (80 % range {low:.3f} to {high:.3f}). A true "
        f"difference of 0.200 is detected with {100 * more.power():.0f} % power."
    )
    known = str(SEEDS_ONLY.plan(4, 2, design="unpaired"))
    assert known.startswith("With 4 seeds per arm, 2 runs") and "range" not in known


@pytest.mark.slow
@pytest.mark.parametrize("design", ["paired", "unpaired"])
def test_ranges_hold_the_truth_in_four_of_five_studies(design):
    """Five seeds of a known world; the standard error of the share is .033."""
    components, random, trials = VarianceComponents(1.0, 20.0, 10.0), np.random.default_rng(1), 150
    true = components.plan(5, num_examples=100, design=design)
    truth = true.minimum_detectable_effect()
    held = 0
    for _ in range(trials):
        crossing = crossing_of_tables(simulated_tables(random, components, (5, 100), design))
        plan = estimated_plan(crossing.variance_parts(), 5, 100, design, 0.05, 0.0)
        low, high = plan.minimum_detectable_range()
        held += low <= truth <= high
    assert held / trials == pytest.approx(0.8, abs=0.085)


def test_of_seeds_alone_the_range_is_that_of_chi_squared():
    parts = VarianceParts(((0.1, 4),), (), ())
    plan = estimated_plan(parts, 5, 100, "paired", 0.05, 1.0)
    chi = scipy.stats.chi2(4)
    expected = [plan.minimum_detectable_effect() * math.sqrt(4 / chi.ppf(p)) for p in (0.9, 0.1)]
    assert plan.minimum_detectable_range() == pytest.approx(expected, rel=0.01)
    low, high = plan.needed_range("seeds", 0.6)
    known = [VarianceComponents(v, 0.0, 0.0) for v in 0.5 * 4 / chi.ppf([0.9, 0.1])]
    assert [low, high] == pytest.approx([one.plan(5).seeds_needed(0.6) for one in known], abs=1)


def test_two_seeds_are_too_few_to_plan_from(arms):
    base, experiment = arms
    for design in ("paired", "unpaired", "fixed_baseline"):
        kept = base[:2] if design == "paired" else base
        found = compare(kept, experiment[:2], "mean", design=design, n_resamples=39)
        with pytest.raises(DataError, match="too few seeds .*three"):
            found.plan()
    with pytest.raises(DataError, match="found too few seeds"):
        variance_components(experiment[:2]).plan(5)
    # Where seeds are not drawn, their number does not matter.
    fixed = compare(base[:2], experiment[:2], "mean", resample="examples", n_resamples=39)
    assert fixed.plan().minimum_detectable_effect() > 0


def test_an_estimate_near_zero_is_not_planned_for(arms):
    base, experiment = arms
    found = compare(base, experiment, "mean", n_resamples=39)
    null = compare(base, experiment - 0.9 * found.estimate, "mean", n_resamples=39)
    assert 0 < abs(null.estimate) < null.standard_error
    with pytest.raises(DataError, match="within one standard error .*effect"):
        null.plan().seeds_needed()
    assert null.plan(effect=0.4).seeds_needed() == null.plan().seeds_needed(0.4)


def test_examples_in_clusters_are_planned_from_two_clusters_on():
    """A difference this large needs fewer examples than one cluster has."""
    random = np.random.default_rng(0)
    base, experiment = (random.random((2, 5, 100)) < np.array([0.2, 0.95])[:, None, None]) * 1
    found = compare(base, experiment, clusters=np.arange(100) // 20, n_resamples=40)
    assert found.plan(effect=0.9).examples_needed() >= 40
    assert "no interval" not in str(found)
