"""The short answers: what is planned from a comparison, what is not, and how they are said."""

import json
import math
import re

import numpy as np
import pytest

from multiberts.stats import compare
from multiberts.stats.variance.components import VarianceComponents
from multiberts.stats.variance.crossing import VarianceParts
from multiberts.stats.variance.needs import needs_of, opposite_chance
from multiberts.stats.variance.plan import estimated_plan


def plan_of(seed, example, residual, estimate, num_seeds=6, num_examples=60):
    """The plan of a study whose mean squares are those of the components."""
    parts = VarianceComponents(seed, example, residual).plan(num_seeds, 1, num_examples).parts
    return estimated_plan(parts, num_seeds, num_examples, "paired", 0.05, estimate)


def test_what_no_number_can_do_is_said_and_what_buys_more():
    answers = needs_of(plan_of(0.0, 4.0, 0.1, 0.4), None, False)
    assert answers.seeds_needed is None and answers.seeds_needed_range is None
    assert answers.examples_needed > 60
    low, high = answers.examples_needed_range
    assert 60 < low < answers.examples_needed < high
    assert answers.error_of_twice_the_examples < answers.error_of_twice_the_seeds
    of_seeds = VarianceParts(((0.1, 4),), (), ())
    answers = needs_of(estimated_plan(of_seeds, 5, 60, "paired", 0.05, 0.4), None, False)
    assert answers.examples_needed is answers.error_of_twice_the_examples is None
    assert answers.seeds_needed > 5
    assert of_seeds.seed_share == 1
    parts = VarianceComponents(0.3, 2.0, 0.7).plan(6, 1, 60).parts
    assert parts.seed_share == pytest.approx(0.05 / parts.scaled(1, 1).variance)


def test_numbers_are_only_given_where_more_are_needed_for_a_difference_that_is_there():
    """It was "5 seeds in place of 5", and thousands of seeds for a null estimate."""
    error = math.sqrt(plan_of(1.0, 1.0, 0.5, 1.0).variance)
    for estimate, found in ((0.9 * error, False), (6 * error, False), (2 * error, True)):
        answers = needs_of(plan_of(1.0, 1.0, 0.5, estimate), None, found)
        assert answers.seeds_needed is answers.examples_needed is None
        assert answers.detectable_difference > 2 * error
    answers = needs_of(plan_of(1.0, 1.0, 0.5, 2 * error), None, False)
    assert answers.seeds_needed > 6


@pytest.mark.parametrize("sizes", [(5,), (3, 8)])
def test_a_new_seed_is_as_far_from_the_estimate_as_often_as_predicted(sizes):
    """The chance to lie beyond a number that is itself drawn as new seeds are is uniform up to a half."""
    random, chances = np.random.default_rng(0), []
    for _ in range(4000):
        samples = [random.normal(size=size) for size in sizes]
        away = sum(random.normal() - sample.mean() for sample in samples)
        chances.append(opposite_chance(away, samples))
    for limit in (0.01, 0.05, 0.1, 0.2, 0.4):
        error = np.sqrt(2 * limit * (1 - 2 * limit) / len(chances))
        assert np.mean(np.array(chances) < limit) == pytest.approx(2 * limit, abs=4 * error)


def test_the_chance_by_hand():
    assert opposite_chance(0.2, [np.array([0.1])]) is None
    assert opposite_chance(0.0, [np.array([-0.1, 0.1])]) == 0.5
    assert opposite_chance(0.2, [np.array([0.2, 0.2])]) == 0.0
    # t with one degree of freedom is Cauchy: 1/2 - arctan(1) / pi is a quarter.
    half = np.array([0.0, 2.0])
    assert opposite_chance(np.sqrt(3.0), [half]) == pytest.approx(0.25)


def arms(seeds, shift, spread=0.3):
    """Paired arms of 60 examples; `spread` is of the difference between seeds."""
    random = np.random.default_rng(1)
    base = random.normal(size=60) + random.normal(scale=0.2, size=(seeds, 1))
    base = base + random.normal(scale=0.5, size=(seeds, 60))
    own = random.normal(scale=spread, size=(seeds, 1))
    experiment = base + own - own.mean() + shift + random.normal(scale=0.5, size=(seeds, 60))
    return base, experiment


def test_a_chance_that_is_small_is_not_said_to_be_none():
    found = compare(*arms(5, 2.0), n_resamples=50)
    assert 0 < found.needs.opposite_chance < 0.005
    assert "with probability below 1 %" in str(found)


def test_every_comparison_has_the_answers_in_print_and_json():
    for design in ("paired", "unpaired", "fixed_baseline"):
        found = compare(*arms(5, 0.2), design=design, n_resamples=50)
        text, answers = str(found), found.needs
        chance = f"opposite sign with probability {100 * answers.opposite_chance:.0f} %"
        assert chance in text and chance in found._repr_html_()
        low, high = answers.detectable_difference_range
        assert low < answers.detectable_difference < high
        assert re.search(r"Doubling the seeds would reduce .*from \S+ to", text)
        kept = json.loads(json.dumps(found.to_dict()))["needs"]
        assert kept["detectable_difference"] == answers.detectable_difference
        assert kept["detectable_difference_range"] == {"low": low, "high": high}
    alone = compare(arms(5, 0.2)[0], None, design="single", n_resamples=50)
    assert alone.needs is None and alone.to_dict()["needs"] is None
    fixed = compare(*arms(5, 0.2), resample="examples", n_resamples=50)
    assert fixed.needs.seeds_needed is None and "doubling the seeds" not in str(fixed).lower()


def test_of_two_seeds_nothing_is_planned_and_of_few_what_the_plan_says():
    two = compare(*arms(2, 0.3), n_resamples=50).needs
    assert two.detectable_difference is two.error_of_twice_the_seeds is None
    assert two.opposite_chance is not None
    found = compare(*arms(5, 0.25), n_resamples=50)
    needs, plan = found.needs, found.plan()
    assert not found.significant and needs.seeds_needed == plan.seeds_needed() > 5
    assert needs.seeds_needed_range == plan.needed_range("seeds")
    assert needs.seeds_needed_range.low < needs.seeds_needed < needs.seeds_needed_range.high
