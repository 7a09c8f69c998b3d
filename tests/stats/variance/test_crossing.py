"""Closed-form variances against enumeration, simulation and the bootstrap itself."""

import itertools

import numpy as np
import pytest
import sklearn.metrics

from multiberts.evaluate.metrics.column_metric import reference_array
from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats.bootstrap.pseudo_values import arm_table
from multiberts.stats.bootstrap.replicates import PublishedDraws, ScoreJob, bootstrap
from multiberts.stats.runs_table import make_arm
from multiberts.stats.variance.score_tables import deviations, summed_table
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


def test_both_is_seeds_and_examples_and_the_residual():
    table = np.random.default_rng(2).normal(size=(5, 40))
    parts = deviations(table)
    rest = parts.residual_squares / table.size**2
    total = (
        crossing_of_tables([table], "seeds").bootstrap_variance()
        + crossing_of_tables([table], "examples").bootstrap_variance()
        + rest
    )
    assert crossing_of_tables([table]).bootstrap_variance() == pytest.approx(total, rel=1e-14)


@pytest.mark.parametrize("paired", [True, False])
def test_monte_carlo_standard_error_agrees_with_the_exact_one(paired):
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, 80)
    base_seeds, experiment_seeds = [0, 0, 1, 2, 3, 3], [0, 1, 1, 2, 3] if paired else [7, 8, 9, 9]
    arms = [
        make_arm("arm", (random.random((len(seeds), 80)) < 0.7) == labels, labels, seeds)
        for seeds in (base_seeds, experiment_seeds)
    ]
    n_resamples = 6_000
    pools = ("seeds", "seeds") if paired else ("seeds of base", "seeds of experiment")
    jobs = [
        ScoreJob(arm, METRICS["accuracy"], pool, "examples")
        for arm, pool in zip(arms, pools, strict=True)
    ]
    replicates = bootstrap(jobs, PublishedDraws(np.random.default_rng(0)), n_resamples)
    simulated = (replicates.scores[:, 1] - replicates.scores[:, 0]).std()
    tables = [arm_table(arm, METRICS["accuracy"]) for arm in arms]
    exact = (
        crossing_of_tables([summed_table(tables, [-1.0, 1.0])]).bootstrap_variance()
        if paired
        else crossing_of_tables([*tables]).bootstrap_variance()
    )
    assert abs(simulated / np.sqrt(exact) - 1) < 4 / np.sqrt(2 * n_resamples)


@pytest.mark.parametrize("name", ["pearson", "slope", "matthews", "f1"])
def test_linearised_variance_agrees_with_the_bootstrap(name):
    """With 500 examples the curvature of the score is small beside its slope."""
    random = np.random.default_rng(4)
    if METRICS[name].name in ("pearson", "slope"):
        labels = random.normal(size=500)
        predictions = 0.6 * labels + random.normal(size=(4, 500))
    else:
        labels = random.integers(0, 2, 500)
        predictions = np.where(random.random((4, 500)) < 0.8, labels, 1 - labels)
    arm = make_arm("arm", predictions, labels, range(4))
    n_resamples = 8_000
    jobs = [ScoreJob(arm, METRICS[name], "seeds", "examples")]
    replicates = bootstrap(jobs, PublishedDraws(np.random.default_rng(1)), n_resamples)
    exact = np.sqrt(crossing_of_tables([arm_table(arm, METRICS[name])]).bootstrap_variance())
    assert replicates.scores.std() / exact == pytest.approx(1, abs=0.05)


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


def test_pseudo_values_of_pearson_equal_the_known_influence_function():
    random = np.random.default_rng(6)
    x, y = random.normal(size=100), random.normal(size=100)
    u, v = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    r = (u * v).mean()
    expected = r + u * v - r * (u**2 + v**2) / 2
    np.testing.assert_allclose(
        pseudo_values(METRICS["pearson"], x, y[None])[0], expected, atol=1e-8
    )


def test_constant_predictions_have_no_influence():
    labels = np.array([0, 1, 0, 1])
    for name in ("matthews", "pearson", "f1"):
        values = pseudo_values(METRICS[name], labels, np.zeros((1, 4), int))
        if name != "f1":
            np.testing.assert_array_equal(values, 0)
        assert np.isfinite(values).all()
    assert sklearn.metrics.matthews_corrcoef(labels, np.zeros(4)) == 0


def simulated(random, num_seeds, num_examples, sa, sb, se):
    seeds = random.normal(scale=np.sqrt(sa), size=(num_seeds, 1))
    examples = random.normal(scale=np.sqrt(sb), size=(1, num_examples))
    return seeds + examples + random.normal(scale=np.sqrt(se), size=(num_seeds, num_examples))


def test_unbiased_where_the_bootstrap_is_not():
    """sa/R + sb/C + se/(RC), against the expectation of the bootstrap's own variance."""
    sa, sb, se, num_seeds, num_examples, trials = 1.0, 0.4, 0.3, 5, 20, 1500
    random = np.random.default_rng(7)
    true = sa / num_seeds + sb / num_examples + se / (num_seeds * num_examples)
    x, y = 1 - 1 / num_seeds, 1 - 1 / num_examples
    shrunk = x * sa / num_seeds + y * sb / num_examples
    shrunk += (x + y + x * y) * se / (num_seeds * num_examples)
    estimates = np.empty((trials, 2))
    for trial in range(trials):
        table = simulated(random, num_seeds, num_examples, sa, sb, se)
        estimates[trial] = (
            crossing_of_tables([table]).unbiased_variance().variance,
            crossing_of_tables([table]).bootstrap_variance(),
        )
    error = estimates.std(axis=0) / np.sqrt(trials)
    assert abs(estimates[:, 0].mean() - true) < 4 * error[0]
    assert abs(estimates[:, 1].mean() - shrunk) < 4 * error[1]
    assert abs(estimates[:, 1].mean() - true) > 10 * error[1]


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
    of_seed = sum(
        crossing_of_tables([row[:, None] * ones]).bootstrap_variance() for row in np.eye(number)
    )
    of_example = sum(
        crossing_of_tables([column * ones]).bootstrap_variance() for column in np.eye(other)
    )
    of_cell = sum(
        crossing_of_tables([np.outer(row, column)]).bootstrap_variance()
        for row in np.eye(number)
        for column in np.eye(other)
    )
    assert of_seed == pytest.approx(x / number) == pytest.approx(0.8 / 5)
    assert of_example == pytest.approx(y / other)
    assert of_cell == pytest.approx((x + y + x * y) / (number * other))


def test_resampling_runs_too_would_add_their_variance_once_more():
    """Enumerated: the runs of every seed drawn are drawn again, R = F = 2."""
    runs = np.random.default_rng(13).normal(size=(2, 2))  # [seeds, runs]
    both_runs = list(itertools.product(range(2), repeat=2))
    means = [
        np.mean([runs[seed, list(drawn)].mean() for seed, drawn in zip(seeds, draws, strict=True)])
        for seeds in itertools.product(range(2), repeat=2)
        for draws in itertools.product(both_runs, repeat=2)
    ]
    added = (
        np.var(means)
        - crossing_of_tables([runs.mean(axis=1, keepdims=True)], "seeds").bootstrap_variance()
    )
    fine_var = runs.var(axis=1, ddof=1).mean()
    assert added == pytest.approx((1 - 1 / 2) * fine_var / (2 * 2), rel=1e-12)


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


def test_a_table_without_spread_has_no_variance():
    assert crossing_of_tables([np.ones((3, 4))]).unbiased_variance().variance == 0
