"""The short answers against simulations of what they claim."""

import json

import numpy as np
import pytest

from multiberts.stats import compare
from multiberts.stats.bootstrap.answers import (
    detectable_difference,
    opposite_chance,
    short_answers,
)
from multiberts.stats.bootstrap.crossing import VarianceParts, crossing_of_tables
from multiberts.stats.intervals import t_p_values

NUM_SEEDS, NUM_EXAMPLES = 6, 60


def true_parts(seed, example, residual, num_seeds=NUM_SEEDS, num_examples=NUM_EXAMPLES):
    """The parts of the variance whose components are known."""
    cells = num_seeds * num_examples
    return VarianceParts(
        ((seed / num_seeds + residual / cells, num_seeds - 1),),
        ((example / num_examples + residual / cells, num_examples - 1),),
        ((residual / cells, (num_seeds - 1) * (num_examples - 1)),),
    )


def share_found(effect, components, num_seeds, num_examples, trials=500):
    """Simulates studies and returns the share in which the recommended test finds the effect."""
    random, found = np.random.default_rng(num_seeds), 0
    seed, example, residual = np.sqrt(components)
    for _ in range(trials):
        table = effect + seed * random.normal(size=(num_seeds, 1))
        table = table + example * random.normal(size=num_examples)
        table = table + residual * random.normal(size=(num_seeds, num_examples))
        variance = crossing_of_tables([table]).unbiased_variance()
        error, freedom = np.sqrt(variance.variance), variance.cautious_degrees_of_freedom
        found += t_p_values(table.mean(), error, freedom).two_sided < 0.05
    return found / trials


@pytest.mark.parametrize("components", [(1.0, 1.0, 0.5), (0.05, 6.0, 1.0)])
def test_four_in_five_studies_find_the_detectable_difference(components):
    planned = true_parts(*components).scaled(1, 1)
    effect = detectable_difference(
        planned.variance, planned.cautious_degrees_of_freedom, alpha=0.05
    )
    share = share_found(effect, components, NUM_SEEDS, NUM_EXAMPLES)
    assert share == pytest.approx(0.8, abs=0.07)


@pytest.mark.parametrize("components", [(1.0, 1.0, 0.5), (0.05, 6.0, 1.0)])
def test_four_in_five_studies_find_it_with_the_seeds_or_examples_that_are_needed(components):
    effect = 0.9 * detectable_difference(true_parts(*components).scaled(1, 1).variance, 8, 0.05)
    answers = short_answers(
        true_parts(*components), effect, False, 0.05, NUM_SEEDS, NUM_EXAMPLES, []
    )
    ways = [(answers.seeds_needed, NUM_EXAMPLES), (NUM_SEEDS, answers.examples_needed)]
    shares = [share_found(effect, components, *way, trials=300) for way in ways if None not in way]
    assert shares and shares == pytest.approx([0.8] * len(shares), abs=0.08)
    fewer = short_answers(true_parts(*components), effect, True, 0.05, 6, 60, [])
    assert (fewer.seeds_needed, fewer.examples_needed) == (6, 60)


def test_scaled_parts_are_the_parts_of_the_larger_study():
    components = (0.3, 2.0, 0.7)
    larger = true_parts(*components, 3 * NUM_SEEDS, 2 * NUM_EXAMPLES).scaled(1, 1)
    scaled = true_parts(*components).scaled(3, 2)
    assert scaled.variance == pytest.approx(larger.variance, rel=1e-12)
    freedom = larger.cautious_degrees_of_freedom
    assert scaled.cautious_degrees_of_freedom == pytest.approx(freedom, rel=1e-3)
    parts = true_parts(*components)
    assert parts.seed_share == pytest.approx(0.05 / parts.scaled(1, 1).variance)


def test_what_no_number_can_do_is_said_and_what_buys_more():
    answers = short_answers(true_parts(0.0, 4.0, 0.1), 0.1, False, 0.05, 6, 60, [])
    assert answers.seeds_needed is None
    assert answers.examples_needed > 60
    assert answers.error_of_twice_the_examples < answers.error_of_twice_the_seeds
    of_seeds = VarianceParts(((0.1, 4),), (), ())
    answers = short_answers(of_seeds, 0.4, False, 0.05, 5, 60, [])
    assert answers.examples_needed is answers.error_of_twice_the_examples is None
    assert answers.seeds_needed > 5
    assert of_seeds.seed_share == 1


@pytest.mark.parametrize("sizes", [(5,), (3, 8)])
def test_one_random_seed_has_the_opposite_sign_as_often_as_predicted(sizes):
    """Differences between -5 and 5 standard deviations of a seed are as likely; 20,000 studies."""
    random = np.random.default_rng(0)
    predicted, opposite = [], []
    for _ in range(20_000):
        effect = random.uniform(-5, 5)
        samples = [random.normal(size=size) for size in sizes]
        estimate = effect + sum(sample.mean() for sample in samples)
        one_seed = effect + sum(random.normal() for _ in sizes)
        predicted.append(opposite_chance(estimate, samples))
        opposite.append(one_seed * estimate < 0)
    assert np.mean(predicted) == pytest.approx(np.mean(opposite), abs=0.012)
    near = np.array(predicted) > 0.3
    assert np.mean(np.array(opposite)[near]) == pytest.approx(
        np.mean(np.array(predicted)[near]), abs=0.03
    )


def test_the_chance_by_hand():
    assert opposite_chance(0.2, [np.array([0.1])]) is None
    assert opposite_chance(0.0, [np.array([-0.1, 0.1])]) == 0.5
    assert opposite_chance(0.2, [np.array([0.2, 0.2])]) == 0.0
    # t with one degree of freedom is Cauchy: 1/2 - arctan(1) / pi is a quarter.
    half = np.array([0.0, 2.0])
    assert opposite_chance(np.sqrt(3.0), [half]) == pytest.approx(0.25)


def test_every_comparison_has_the_answers_in_print_and_json():
    random = np.random.default_rng(1)
    base, experiment = (random.random((4, 50)) < skill for skill in (0.6, 0.7))
    for design in ("paired", "unpaired", "fixed_baseline"):
        found = compare(base + 0.0, experiment + 0.0, design=design, num_bootstrap=50)
        text = str(found)
        assert (
            f"chance of the opposite result would have been {found.answers.opposite_chance:.0%}"
            in text
        )
        assert "Four in five would find a difference" in text or found.significant
        assert "chance of the opposite" in found._repr_html_()
        kept = json.loads(json.dumps(found.to_dict()))["answers"]
        assert kept["detectable_difference"] == found.answers.detectable_difference
    alone = compare(base + 0.0, None, design="single", num_bootstrap=50)
    assert alone.answers is None and alone.to_dict()["answers"] is None
    fixed = compare(base + 0.0, experiment + 0.0, resample="examples", num_bootstrap=50)
    assert fixed.answers.seeds_needed is None
