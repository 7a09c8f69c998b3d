"""Closed-form variances against enumeration, simulation and the bootstrap itself."""

import itertools

import numpy as np
import pytest

from multiberts.evaluate.metrics.column_metric import reference_array
from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats.bootstrap.pseudo_values import arm_table
from multiberts.stats.runs_table import make_arm
from multiberts.stats.variance.score_tables import deviations
from multiberts.tests.stats.crossings import crossing_of_tables


def pseudo_values(metric, labels, predictions) -> np.ndarray:
    """[runs, examples], each run a seed of its own."""
    arm = make_arm("arm", predictions, labels, range(len(predictions)))
    return np.concatenate(list(arm_table(arm, metric).blocks()), axis=1)


def every_draw(number: int) -> np.ndarray:
    """Counts of all number**number equally likely draws [draws, number]."""
    draws = itertools.product(range(number), repeat=number)
    return np.array([np.bincount(draw, minlength=number) for draw in draws])


@pytest.mark.parametrize("which", ["both", "seeds", "examples"])
def test_bootstrap_variance_equals_enumeration_of_all_draws(which):
    table = np.random.default_rng(0).normal(size=(3, 4))
    seeds = every_draw(3) / 3 if which != "examples" else np.full((1, 3), 1 / 3)
    examples = every_draw(4) / 4 if which != "seeds" else np.full((1, 4), 1 / 4)
    means = seeds @ table @ examples.T
    assert crossing_of_tables([table], which).bootstrap_variance() == pytest.approx(
        means.var(), rel=1e-12
    )


@pytest.mark.parametrize("which", ["both", "seeds", "examples"])
def test_unpaired_bootstrap_variance_equals_enumeration(which):
    random = np.random.default_rng(1)
    base, experiment = random.normal(size=(2, 3)), random.normal(size=(3, 3))
    fixed = {number: np.full((1, number), 1 / number) for number in (2, 3)}
    drawn = {number: every_draw(number) / number for number in (2, 3)}
    seeds = fixed if which == "examples" else drawn
    examples = (fixed if which == "seeds" else drawn)[3]
    first = seeds[2] @ base @ examples.T  # [draws of base seeds, draws of examples]
    second = seeds[3] @ experiment @ examples.T
    differences = second[None, :, :] - first[:, None, :]
    ours = crossing_of_tables([base, experiment], which).bootstrap_variance()
    assert ours == pytest.approx(differences.var(), rel=1e-12)


def texts(random) -> tuple[np.ndarray, np.ndarray]:
    """References [200] and predictions [3, 200]: the reference with some words lost."""
    words = np.array(["the", "a", "cat", "dog", "sat", "on", "mat", "of", "red", "hat"])
    references = [" ".join(random.choice(words, size=8)) for _ in range(200)]
    kept = [
        [" ".join(w for w in text.split() if random.random() < 0.8) or "the" for text in references]
        for _ in range(3)
    ]
    return reference_array([[text] for text in references]), np.array(kept)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_pseudo_values_average_to_the_score_and_predict_small_changes(name):
    random = np.random.default_rng(5)
    labels = random.integers(0, 2, 200)
    predictions = np.where(random.random((3, 200)) < 0.75, labels, 1 - labels)
    metric = METRICS[name]
    if metric.uses in ("positive_score", "scores"):
        predictions = np.clip(0.6 * predictions + 0.4 * random.random((3, 200)), 0.01, 0.99)
    elif name.startswith("squad"):
        labels, predictions = texts(random)
    elif name == "span_f1":
        tags = np.array(["B-PER I-PER O", "B-PER O O", "O B-LOC O", "O O B-PER"])
        labels, predictions = random.choice(tags, 200), random.choice(tags, (3, 200))
    elif name.startswith("multilabel_"):
        sets = np.array(["", "a", "b", "a|b", "b|c"])
        labels, predictions = random.choice(sets, 200), random.choice(sets, (3, 200))
    if name.startswith("top_"):
        labels, predictions = random.integers(0, 12, 200), random.dirichlet(np.ones(12), (3, 200))
    values = pseudo_values(metric, labels, predictions)
    plain = metric.score(labels, predictions)
    np.testing.assert_allclose(values.mean(axis=-1), plain, rtol=1e-9, atol=1e-9)
    # The change of the score under weights that hardly differ from one, without its curvature.
    shift = 1e-4 * random.normal(size=200)
    moved = metric.score(labels, predictions, np.array([1 + shift, 1 - shift]))
    change = (moved[:, 0] - moved[:, 1]) / 2
    predicted = ((values - plain[:, None]) * shift).mean(axis=-1)
    np.testing.assert_allclose(change, predicted, rtol=1e-5, atol=1e-9)
    assert np.abs(predicted).max() > 1e-7


def test_constant_predictions_have_no_influence():
    labels = np.array([0, 1, 0, 1])
    for name in ("matthews", "pearson"):
        values = pseudo_values(METRICS[name], labels, np.zeros((1, 4), int))
        np.testing.assert_array_equal(values, 0)
    assert np.isfinite(pseudo_values(METRICS["f1"], labels, np.zeros((1, 4), int))).all()


def simulated(random, num_seeds, num_examples, sa, sb, se):
    seeds = random.normal(scale=np.sqrt(sa), size=(num_seeds, 1))
    examples = random.normal(scale=np.sqrt(sb), size=(1, num_examples))
    return seeds + examples + random.normal(scale=np.sqrt(se), size=(num_seeds, num_examples))


def test_satterthwaite_by_the_mean_squares():
    """(A + B - E)^2 / (A^2/(R-1) + B^2/(C-1) + E^2/((R-1)(C-1))) of seeds, examples, residual."""
    random = np.random.default_rng(12)
    table = simulated(random, 6, 20, 1.0, 0.8, 0.3)
    parts = deviations(table)
    a = 20 * (parts.seed**2).sum() / 5
    b = 6 * (parts.example**2).sum() / 19
    e = parts.residual_squares / (5 * 19)
    estimate = crossing_of_tables([table]).unbiased_variance()
    assert estimate.variance == pytest.approx((a + b - e) / 120, rel=1e-12)
    freedom = (a + b - e) ** 2 / (a**2 / 5 + b**2 / 19 + e**2 / (5 * 19))
    assert estimate.degrees_of_freedom == pytest.approx(freedom, rel=1e-12)


def test_expectation_of_the_bootstrap_variance_is_exactly_the_text_s():
    """A quadratic form's expectation is the sum of its values at every single effect of size one:
    seeds and examples are shrunk, and the residual is counted nearly three times."""
    number, other = 5, 4
    x, y = 1 - 1 / number, 1 - 1 / other
    ones = np.ones((number, other))
    cells = [np.outer(row, column) for row in np.eye(number) for column in np.eye(other)]
    of_seed, of_example, of_cell = (
        sum(crossing_of_tables([effect]).bootstrap_variance() for effect in effects)
        for effects in ([row[:, None] * ones for row in np.eye(number)], np.eye(other)[:, None] * ones, cells)
    )  # fmt: skip
    assert of_seed == pytest.approx(x / number) == pytest.approx(0.8 / 5)
    assert of_example == pytest.approx(y / other)
    assert of_cell == pytest.approx((x + y + x * y) / (number * other))


def test_unpaired_is_unbiased_too():
    random = np.random.default_rng(8)
    trials, num_examples = 1500, 15
    estimates = np.empty(trials)
    for trial in range(trials):
        shared = random.normal(scale=3.0, size=(1, num_examples))  # cancels in the difference
        base = simulated(random, 4, num_examples, 1.0, 0.5, 2.0) + shared
        experiment = simulated(random, 6, num_examples, 2.0, 0.5, 2.0) + shared
        estimates[trial] = crossing_of_tables([base, experiment]).unbiased_variance().variance
    true = 1 / 4 + 2 / 6 + 2 * 0.5 / num_examples + 2 / (4 * num_examples) + 2 / (6 * num_examples)
    assert abs(estimates.mean() - true) < 4 * estimates.std() / np.sqrt(trials)


def test_one_factor_alone_is_the_textbook_standard_error():
    table = np.random.default_rng(9).normal(size=(6, 30))
    seeds, examples = (
        crossing_of_tables([table], which).unbiased_variance() for which in ("seeds", "examples")
    )
    assert seeds.variance == pytest.approx(table.mean(axis=1).var(ddof=1) / 6)
    assert seeds.degrees_of_freedom == pytest.approx(5)
    assert examples.variance == pytest.approx(table.mean(axis=0).var(ddof=1) / 30)
    assert examples.degrees_of_freedom == pytest.approx(29)
    for found in (seeds, examples):
        assert found.cautious_degrees_of_freedom == found.degrees_of_freedom


def test_never_below_the_share_of_seeds_or_examples():
    random = np.random.default_rng(10)
    guarded = 0
    for _ in range(200):
        table = random.normal(size=(3, 10))
        seeds, examples = (
            crossing_of_tables([table], which).unbiased_variance()
            for which in ("seeds", "examples")
        )
        both = crossing_of_tables([table]).unbiased_variance()
        larger = max(seeds.variance, examples.variance)
        assert both.variance >= larger * (1 - 1e-12)
        guarded += both.variance == pytest.approx(larger, rel=1e-12)
    assert 0 < guarded < 200
