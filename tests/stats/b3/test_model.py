"""B3 against exact algebra, slow independent solvers, and worlds whose loss on new clusters is
known."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from multiberts.stats.b3.fit import loss_histogram, noise_variance, search, solve
from multiberts.stats.b3.leakage import (
    LeakageDesign,
    LeakageSampling,
    binomial_matrix,
    leakage_levels,
    matching_purity,
)
from multiberts.stats.b3.model import B3CrossValidator, B3Model, estimate, sample_losses
from multiberts.stats.b3.trend_filter import Regularisation, penalty
from multiberts.stats.errors import DataError

PLAIN = Regularisation(monotone=False, trend_order=None, lower=None)
MONOTONE = Regularisation(trend_order=None)


def designed(groups, **sizes):
    return LeakageDesign(groups, LeakageSampling(**sizes))


def settings(options):
    """Takes the fields of the model and of the sampling out of some options."""
    return (
        kind(**{name: options.pop(name) for name in kind.__dataclass_fields__ if name in options})
        for kind in (B3Model, LeakageSampling)
    )


def estimated(learner, groups, X=None, y=None, **options):
    """`estimate` with its settings by name."""
    model, sampling = settings(options)
    return estimate(learner, X, y, groups, model, sampling, **options)


def rising_leakages(num_train, p_0=0.1):
    return np.linspace(p_0, 1, 2 * num_train + 1)


def noisy(num_train, e, size, key):
    b = binomial_matrix(num_train, rising_leakages(num_train)) @ e
    return b + size * np.random.default_rng(key).normal(size=len(b))


# --- A ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_train", "condition"), [(5, 32), (10, 2e3), (20, 9e6)])
def test_published_condition_numbers(num_train, condition):
    """Those of m = 2 n' leakages from p_0 = .1 to 1."""
    matrix = binomial_matrix(num_train, rising_leakages(num_train))
    found = np.linalg.cond(matrix)
    assert float(f"{found:.0e}" if condition != 32 else f"{found:.2g}") == condition


def test_the_last_published_condition_number_is_beyond_rounding():
    """5e15 for n' = 50: above 1 / epsilon float64 has its order alone, another with another LAPACK."""
    found = np.linalg.cond(binomial_matrix(50, rising_leakages(50)))
    assert found > 1 / np.finfo(float).eps and round(np.log10(found / 5e15)) == 0


def test_rows_are_distributions_with_the_mean_of_the_leakage():
    leakages = rising_leakages(30)
    matrix = binomial_matrix(30, leakages)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(matrix @ np.arange(31), 30 * leakages, rtol=1e-12)
    np.testing.assert_allclose(matrix[3], scipy.stats.binom(30, leakages[3]).pmf(np.arange(31)))


# --- Solving ------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_train", [1, 3, 5, 8])
def test_exact_losses_give_back_e(num_train):
    e = np.sort(np.random.default_rng(num_train).random(num_train + 1))[::-1]
    leakages = rising_leakages(num_train)
    b = binomial_matrix(num_train, leakages) @ e
    for rules in (PLAIN, MONOTONE):
        fit = solve(num_train, leakages, b, rules)
        np.testing.assert_allclose(fit.e, e, atol=1e-9)
        assert fit.e_0 == fit.e[0]
        assert fit.residual < 1e-10


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("kind", ["l1", "squared"])
def test_polynomials_below_the_order_cost_nothing(order, kind):
    """However heavy the weight: their differences of that order are zero."""
    e = 0.1 + 0.6 * (1 - np.arange(101) / 100) ** (order - 1)
    leakages = rising_leakages(100)
    rules = Regularisation(trend_order=order, trend_weight=10.0, penalty=kind, upper=1.0)
    fit = solve(100, leakages, binomial_matrix(100, leakages) @ e, rules)
    np.testing.assert_allclose(fit.e, e, atol=1e-4)


def reference(num_train, b, rules):
    """The same problem by SciPy's sequential quadratic programming, with |.| as two positive
    parts."""
    size, order = num_train + 1, rules.trend_order
    matrix = binomial_matrix(num_train, rising_leakages(num_train))
    bends = np.diff(np.eye(size), order, axis=0)
    steps = -np.diff(np.eye(size), axis=0)

    # Bends in units of 1 / weight, which brings all variables to one scale.
    unit = 1 / rules.trend_weight

    def objective(z):
        return ((matrix @ z[:size] - b) ** 2).sum() + z[size:].sum()

    def gradient(z):
        return np.concatenate([2 * matrix.T @ (matrix @ z[:size] - b), np.ones(len(bends))])

    above = np.hstack([bends, unit * np.eye(len(bends))])
    below = np.hstack([-bends, unit * np.eye(len(bends))])
    constraints = [above, below]
    if rules.monotone:
        constraints.append(np.hstack([steps, np.zeros((len(steps), len(bends)))]))
    rows = np.vstack(constraints)
    start = np.concatenate([np.full(size, b.mean()), np.ones(len(bends))])
    bounds = [(rules.lower, rules.upper)] * size + [(0, None)] * len(bends)
    # It may end in "positive directional derivative", its way to say that rounding stops it; the
    # value that is compared tells whether it had arrived.
    return scipy.optimize.minimize(
        objective, start, jac=gradient, bounds=bounds, method="SLSQP",
        constraints={"type": "ineq", "fun": lambda z: rows @ z, "jac": lambda z: rows},
        options={"maxiter": 2000, "ftol": 1e-14},
    )  # fmt: skip


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("weight", [0.01, 0.1, 10.0])
@pytest.mark.parametrize("monotone", [True, False])
def test_trend_filter_equals_a_slow_solver(order, weight, monotone):
    e = 0.1 + 0.5 * np.exp(-np.arange(9) / 2)
    b = noisy(8, e, 0.03, order)
    rules = Regularisation(monotone, order, weight, lower=0.0, upper=0.7)
    ours = solve(8, rising_leakages(8), b, rules)
    theirs = reference(8, b, rules)
    assert ours.objective == pytest.approx(theirs.fun, abs=1e-9)
    np.testing.assert_allclose(ours.e, theirs.x[:9], atol=2e-4)


@pytest.mark.parametrize("num_train", [5, 20, 100])
def test_quadratic_programme_equals_nnls(num_train):
    """An upper bound that does not bind sends the same problem down the other way."""
    e = 0.1 + 0.3 * (1 - np.arange(num_train + 1) / num_train) ** 2
    b = noisy(num_train, e, 0.005, num_train)
    for order in (None, 3):
        steps = solve(
            num_train, rising_leakages(num_train), b, Regularisation(True, order, 0.1, "squared")
        )
        assert np.all(np.diff(steps.e) <= 0)
        assert steps.e[-1] >= 0
        if steps.e_0 < 5:
            rules = Regularisation(True, order, 0.1, "squared", upper=10.0)
            programme = solve(num_train, rising_leakages(num_train), b, rules)
            assert programme.objective == pytest.approx(steps.objective, rel=1e-6)


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("weight", [0.001, 0.1, 10.0])
def test_no_feasible_direction_goes_down_at_full_size(order, weight):
    """n' = 100, as in the paper: the objective is convex, so a point that no feasible neighbour
    beats is the solution."""
    e = 0.1 + 0.4 / (1 + np.exp((np.arange(101) - 25) / 5))
    b = noisy(100, e, 0.01, order)
    rules = Regularisation(trend_order=order, trend_weight=weight, upper=1.0)
    fit = solve(100, rising_leakages(100), b, rules)
    assert np.all(np.diff(fit.e) <= 1e-7) and fit.e[-1] >= -1e-7 and fit.e_0 <= 1 + 1e-7
    matrix = binomial_matrix(100, rising_leakages(100))
    generator = np.random.default_rng(0)
    for other in [e, np.full(101, b.mean())] + [
        np.sort(generator.random(101))[::-1] for _ in range(50)
    ]:
        for reach in (1e-4, 1e-2, 1):
            near = fit.e + reach * (other - fit.e)
            value = ((matrix @ near - b) ** 2).sum() + penalty(near, rules)
            assert value >= fit.objective - 1e-9


def test_an_e_that_the_losses_do_not_determine_is_refused_with_a_cure():
    """Falling without a floor, leakages from .3, n' = 100: A sees next to nothing of the first e."""
    levels = np.linspace(0.3, 1, 201)
    b = binomial_matrix(100, levels) @ (0.2 + 0.35 * np.exp(-np.arange(101) / 30))
    b += 0.01 * np.random.default_rng(1).normal(size=201)
    with pytest.raises(DataError, match="trend_order=2, or both a lower and an upper bound"):
        solve(100, levels, b, Regularisation(trend_order=None, lower=None))
    for rules in (
        Regularisation(trend_order=2, lower=None),
        Regularisation(trend_order=None, lower=0.0, upper=1.0),
    ):
        assert 0.3 < solve(100, levels, b, rules).e_0 < 1.1


def test_regularisation_is_what_makes_it_work():
    """At n' = 20 noise of .5 % ruins the plain solution."""
    e = 0.1 + 0.3 * (1 - np.arange(21) / 20) ** 2
    plain, kept = [], []
    for key in range(20):
        b = noisy(20, e, 0.005, key)
        plain.append(solve(20, rising_leakages(20), b, PLAIN).e_0)
        kept.append(solve(20, rising_leakages(20), b, Regularisation(trend_order=3)).e_0)
    assert np.abs(np.array(plain) - e[0]).mean() > 1
    assert np.abs(np.array(kept) - e[0]).mean() < 0.02


# --- Searching ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["convex", "sigmoid"])
def test_every_smaller_p_0_explains_the_losses_too(shape):
    """So the smallest residual is always at the smallest candidate, and at p_0 = 0 B3 is the plain
    estimate."""
    j = np.arange(9) / 8
    e = 0.1 + (0.5 * (1 - j) ** 2 if shape == "convex" else 0.5 / (1 + np.exp((j - 0.4) * 15)))
    doses = np.linspace(0, 1, 17)
    b = binomial_matrix(8, leakage_levels(0.1, doses)) @ e
    candidates = [0.0, 0.03, 0.06, 0.1, 0.2, 0.4]
    fit = search(8, doses, b, candidates, regularisation=MONOTONE)
    assert np.all(fit.search.residuals[:4] < 1e-7)
    assert fit.search.e_0[0] == pytest.approx(b[0], abs=1e-7)
    assert fit.search.e_0[3] == pytest.approx(e[0], abs=1e-6)
    assert np.all(np.diff(fit.search.e_0) > 0)
    noise = b + 0.01 * np.random.default_rng(0).normal(size=17)
    searched = search(8, doses, noise, candidates, None, "smallest_residual", MONOTONE)
    assert np.all(np.diff(searched.search.residuals) > -1e-9)
    assert searched.p_0 == 0


def test_search_finds_p_0_where_losses_are_level_first():
    """Losses that start to fall only at some samples of the cluster admit no larger p_0."""
    e = np.where(np.arange(21) < 6, 0.8, 0.1)
    doses = np.linspace(0, 1, 41)
    exact = binomial_matrix(20, leakage_levels(0.1, doses)) @ e
    candidates = np.arange(0, 31) / 100
    found, losses = [], []
    for key in range(10):
        b = exact + 0.003 * np.random.default_rng(key).normal(size=41)
        fit = search(20, doses, b, candidates, regularisation=MONOTONE)
        found.append(fit.p_0)
        losses.append(fit.e_0)
    assert np.mean(found) == pytest.approx(0.1, abs=0.03)
    assert np.mean(losses) == pytest.approx(0.8, abs=0.02)
    assert exact[0] < 0.8 - 0.005


def test_noise_variance_sees_no_smooth_curve():
    curve = np.exp(-np.linspace(0, 3, 201))
    noise = 0.01 * np.random.default_rng(0).normal(size=201)
    assert noise_variance(curve) < 1e-12
    assert noise_variance(curve + noise) == pytest.approx(1e-4, rel=0.3)


# --- Draws --------------------------------------------------------------------------------------

TRUE = np.repeat(np.arange(5), 60)
HALVES = 2 * TRUE + np.arange(300) % 2  # every true cluster is two observed ones
PAIRED = (TRUE + np.arange(300) % 2) % 5  # every observed cluster is halves of two true ones
HALVES_P_0 = 30 / 270  # the other half, among all others
PAIRED_P_0, PAIRED_PURITY = 30 / 240, 29 / 59


@pytest.mark.parametrize(
    ("observed", "p_0", "purity"), [(HALVES, HALVES_P_0, 1), (PAIRED, PAIRED_P_0, PAIRED_PURITY)]
)
def test_drawn_leakage_is_that_of_the_model(observed, p_0, purity):
    design = designed(observed, num_train=20, num_draws=3000, num_test=3, rng=1)
    leakages = leakage_levels(p_0, design.injections, purity)
    for level in (0, 10, 20, 40):
        drawn = design.draws(level)
        same = TRUE[drawn.train][:, :, None] == TRUE[drawn.test][:, None, :]
        error = np.sqrt(leakages[level] * (1 - leakages[level]) / (3000 * 20))
        # Tests of a draw share its training set, so their mean has the error of one.
        assert abs(same.mean() - leakages[level]) < 4 * error + 1e-12
        counts = np.bincount(same[:, :, 0].sum(axis=1), minlength=21) / 3000
        expected = binomial_matrix(20, leakages[level])[0]
        assert np.abs(counts - expected).max() < 4 * np.sqrt(0.25 / 3000)


def test_tests_are_never_trained_on_and_doses_are_kept():
    design = designed(HALVES, num_train=20, num_draws=500, rng=3)
    for level in (0, 7, 40):
        train, test, cluster = design.draws(level)
        assert not (train[:, :, None] == test[:, None, :]).any()
        assert (HALVES[test] == cluster[:, None]).all()
        share = (HALVES[train] == cluster[:, None]).mean()
        assert share == pytest.approx(design.injections[level], abs=0.02)
        assert all(len(set(row)) == len(row) for row in test)


def test_every_sample_is_tested_alike():
    sizes = [4, 10, 30]
    groups = np.repeat(["a", "b", "c"], sizes)
    design = designed(groups, num_train=5, num_draws=4400, num_test=1)
    tested = np.bincount(design.draws(0).test.ravel(), minlength=44)
    assert np.abs(tested - 100).max() < 5 * np.sqrt(100)
    shares = np.bincount(design.clusters) / 4400
    np.testing.assert_allclose(shares, np.array(sizes) / 44, atol=0.001)


def test_draws_do_not_depend_on_order_or_number():
    design = designed(HALVES, num_train=7, num_draws=50, rng=9)
    more = designed(HALVES, num_train=7, num_draws=90, rng=9)
    whole = design.draws(5)
    for part, expected in zip(more.draws(5, 20, 30), whole, strict=True):
        np.testing.assert_array_equal(part, expected[20:30])
    other = designed(HALVES, num_train=7, num_draws=50, rng=10).draws(5)
    assert not np.array_equal(other.train, whole.train)
    assert not np.array_equal(design.draws(6).train, whole.train)


def test_matching_purity_is_the_counted_one():
    assert matching_purity(PAIRED, PAIRED_P_0) == pytest.approx(PAIRED_PURITY)
    assert matching_purity(PAIRED, 0.0) == 1


# --- The four algorithms ------------------------------------------------------------------------


def made_up_learner(curve, key=0, noise=0.1):
    """Losses that depend on the number of same-cluster samples alone, so e is known."""
    generator = np.random.default_rng(key)

    def learner(train, test):
        same = (TRUE[train][:, None] == TRUE[test]).sum(axis=0)
        return curve[same] + noise * generator.normal(size=len(test))

    return learner


def repeated(curve, observed, num_draws=200, **options):
    """Five runs with other noise and other draws."""
    return [
        estimated(made_up_learner(curve, key), observed, num_draws=num_draws, n_resamples=0,
           num_train=len(curve) - 1, rng=key, **options)
        for key in range(5)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("observed", "options"),
    [
        (HALVES, {"directions": "one", "p_0": HALVES_P_0}),
        (PAIRED, {"directions": "two", "p_0": PAIRED_P_0, "purity": PAIRED_PURITY}),
        (PAIRED, {"directions": "two", "p_0": PAIRED_P_0}),
    ],
    ids=["one", "two", "two, purity by sizes"],
)
def test_known_p_0_recovers_the_loss_on_new_clusters(observed, options):
    curve = 0.1 + 0.4 * (1 - np.arange(11) / 10) ** 2
    rules = Regularisation(trend_order=3, trend_weight=0.1)
    results = repeated(curve, observed, regularisation=rules, **options)
    estimates = np.array([result.e_0 for result in results])
    plain = np.array([result.fit.losses[0] for result in results])
    error = estimates.std(ddof=1) / np.sqrt(5)
    assert error < 0.01
    assert abs(estimates.mean() - 0.5) < 4 * error + 0.004
    assert plain.mean() < 0.45


@pytest.mark.parametrize(
    ("observed", "directions", "p_0"),
    [(HALVES, "one", HALVES_P_0), (PAIRED, "two", PAIRED_P_0)],
    ids=["one", "two"],
)
def test_searched_p_0_recovers_it_where_it_can_be_found(observed, directions, p_0):
    """Losses level up to two of ten samples, so the plain estimate is off and a larger p_0 does not
    fit."""
    curve = np.where(np.arange(11) < 3, 0.8, 0.1)
    rules = Regularisation(trend_order=None, upper=0.85)
    options = {"directions": directions, "p_0": None, "regularisation": rules}
    results = repeated(curve, observed, num_draws=600, **options)
    estimates = np.array([result.e_0 for result in results])
    found = np.array([result.fit.p_0 for result in results])
    assert np.mean([result.fit.losses[0] for result in results]) < 0.74
    assert abs(estimates.mean() - 0.8) < 4 * estimates.std(ddof=1) / np.sqrt(5)
    assert abs(estimates.mean() - 0.8) < 0.03
    assert found.mean() == pytest.approx(p_0, abs=0.04)


def test_interval_covers_draws_and_clusters():
    curve = 0.1 + 0.4 * (1 - np.arange(6) / 5)
    options = {"p_0": HALVES_P_0, "num_train": 5, "n_resamples": 100}
    wide = estimated(made_up_learner(curve), HALVES, num_draws=20, **options)
    tight = estimated(made_up_learner(curve), HALVES, num_draws=500, **options)
    assert tight.interval.high - tight.interval.low < (wide.interval.high - wide.interval.low) / 3
    assert tight.interval.low < 0.5 < tight.interval.high
    again = estimated(made_up_learner(curve), HALVES, num_draws=500, **options)
    assert again.interval == tight.interval and again.e_0 == tight.e_0
    assert wide.losses.shape == (11, 20, 10)
    assert wide.fit.p_0 == HALVES_P_0


# --- The distribution of the loss ---------------------------------------------------------------


def test_histogram_recovers_the_distribution_on_new_clusters():
    """Losses 0, 1 or 2 whose probabilities move with the number of same-cluster samples."""
    share = np.arange(11) / 10
    two, one = 0.5 * (1 - share) ** 2, 0.3 * (1 - share)
    generator = np.random.default_rng(0)

    def learner(train, test):
        same = (TRUE[train][:, None] == TRUE[test]).sum(axis=0)
        number = generator.random(len(test))
        return np.where(number < two[same], 2.0, np.where(number < two[same] + one[same], 1.0, 0.0))

    result = estimated(learner, HALVES, num_train=10, num_draws=1000, n_resamples=0,
                p_0=HALVES_P_0, regularisation=Regularisation(trend_order=3))  # fmt: skip
    histogram = loss_histogram(
        10, result.fit.leakages, result.losses, [0, 0.5, 1.5, 2], Regularisation(trend_order=3)
    )
    np.testing.assert_allclose(histogram.probabilities, [0.2, 0.3, 0.5], atol=0.03)
    plain = np.histogram(result.losses[0], [0, 0.5, 1.5, 2])[0] / result.losses[0].size
    assert plain[2] < 0.44
    np.testing.assert_allclose(histogram.by_count.sum(axis=1), 1, atol=1e-12)
    assert (histogram.by_count >= 0).all()
    # More samples of the cluster make no loss more likely to be large.
    assert np.all(np.diff(histogram.by_count[:, ::-1].cumsum(axis=1), axis=0) <= 1e-6)
    mean = histogram.probabilities @ [0, 1, 2]
    assert mean == pytest.approx(result.e_0, abs=0.02)


def test_histogram_of_one_level_is_the_histogram():
    """Where e is constant, bins are plain shares."""
    losses = np.random.default_rng(0).random((3, 400))
    losses[1:] = losses[0]
    edges = np.linspace(0, 1, 6)
    found = loss_histogram(2, [0.1, 0.5, 0.9], losses, edges, MONOTONE)
    expected = np.histogram(losses[0], edges)[0] / 400
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    with pytest.raises(DataError, match="outside the edges"):
        loss_histogram(2, [0.1, 0.5, 0.9], losses + 1, edges)


# --- scikit-learn -------------------------------------------------------------------------------


def tilted_data(key=0):
    """Every cluster has a direction of its own, which a linear model learns from its samples."""
    generator = np.random.default_rng(key)
    x = generator.normal(size=(300, 3))
    tilts = generator.normal(size=(5, 3))[TRUE]
    y = np.sign((x * (1 + tilts)).sum(axis=1))
    return x, y.astype(int)


@pytest.mark.seconds
def test_cross_validator_works_in_scikit_learn():
    from sklearn.linear_model import RidgeClassifier
    from sklearn.metrics import mean_squared_error
    from sklearn.model_selection import cross_val_score, cross_validate

    x, y = tilted_data()
    validator = B3CrossValidator(
        *settings({"p_0": HALVES_P_0, "num_train": 5, "num_draws": 4, "rng": 4})
    )
    scores = cross_val_score(RidgeClassifier(), x, y, groups=HALVES, cv=validator)
    assert len(scores) == validator.get_n_splits() == 11 * 4
    assert np.isfinite(scores).all()
    result = validator.estimate(1 - scores, HALVES)
    same = estimated(RidgeClassifier(), HALVES, x, y, p_0=HALVES_P_0, num_train=5, num_draws=4,
              rng=4)  # fmt: skip
    assert result.e_0 == pytest.approx(same.e_0, abs=1e-9)
    assert result.interval == pytest.approx(same.interval, abs=1e-6)
    both = cross_validate(
        RidgeClassifier(), x, y, groups=HALVES, cv=validator, scoring=["accuracy", "f1_macro"]
    )
    np.testing.assert_array_equal(both["test_accuracy"], scores)
    squared = estimated(RidgeClassifier(), HALVES, x, y, p_0=HALVES_P_0, num_train=5, num_draws=4,
                 rng=4, loss=mean_squared_error)  # fmt: skip
    assert squared.e_0 == pytest.approx(4 * same.e_0, rel=0.2)


def test_cross_validator_says_the_leakage_of_each_split():
    x, y = tilted_data()
    validator = B3CrossValidator(*settings({"p_0": HALVES_P_0, "num_train": 10, "num_draws": 40}))
    same = [
        (TRUE[train][:, None] == TRUE[test]).mean() for train, test in validator.split(x, y, HALVES)
    ]
    by_level = np.reshape(same, (21, 40)).mean(axis=1)
    expected = validator.leakages(HALVES).reshape(21, 40)[:, 0]
    np.testing.assert_allclose(by_level, expected, atol=4 * np.sqrt(0.25 / 400))
    assert expected[0] == HALVES_P_0 and expected[-1] == 1


def test_any_object_with_fit_and_predict_will_do():
    class Majority:
        def fit(self, X, y):
            self.value = np.bincount(y).argmax()

        def predict(self, X):
            return np.full(len(X), self.value)

    y = np.zeros(300, dtype=int)
    result = estimated(
        Majority(), HALVES, np.zeros((300, 1)), y, num_train=5, num_draws=3, n_resamples=10
    )
    assert result.e_0 == pytest.approx(0, abs=1e-6)


# --- Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": np.zeros(300)}, "one observed cluster only"),
        ({"groups": np.arange(300)}, "clusters of one sample"),
        ({"p_0": 1.0}, "found p_0 1.0"),
        ({"p_0": -0.1}, "found p_0 -0.1"),
        ({"p_0": float("nan")}, "found p_0 nan"),
        ({"num_train": 301}, "num_train 301 for 300"),
        ({"num_train": 0}, "found num_train 0"),
        ({"directions": "three"}, "one of one, two"),
        ({"purity": 0.5}, "set directions to 'two'"),
        ({"directions": "two", "purity": 0.05}, "found purity 0.05"),
        ({"directions": "two", "p_0": 0.3}, "more of a sample's true cluster"),
        ({"candidates": [0.1]}, "set p_0 to None"),
        ({"p_0": None, "candidates": [0.1, 1.5]}, "found p_0 1.5"),
        ({"p_0": None, "candidates": []}, "found no candidates"),
        ({"p_0": None, "search_rule": "best"}, "found search rule 'best'"),
        ({"num_test": 60}, "found num_test 60"),
        ({"num_levels": 1}, "found 1 levels"),
        ({"max_injection": 0.0}, "found max_injection 0.0"),
        ({"regularisation": Regularisation(trend_order=50)}, "found trend_order 50"),
        ({"regularisation": Regularisation(trend_weight=-1)}, "found trend_weight -1"),
        ({"regularisation": Regularisation(lower=1.0, upper=0.0)}, "lower < upper"),
        ({"learner": 3}, "found the learner 3"),
        ({"learner": lambda train, test: np.nan}, "level 0, draw 0: found the loss nan"),
        ({"learner": lambda train, test: np.ones(3)}, r"losses of shape \(3,\)"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(options, message):
    given = {"learner": lambda train, test: 0.5, "groups": HALVES}
    given |= {"num_train": 10, "num_draws": 2} | options
    with pytest.raises(DataError, match=message) as caught:
        estimated(**given)
    assert "\n" not in str(caught.value)


def test_bad_arrays_are_refused():
    with pytest.raises(DataError, match="expected one loss per leakage"):
        solve(5, [0.1, 0.5], [0.3])
    with pytest.raises(DataError, match="found nan at level 1"):
        solve(5, [0.1, 0.5], [0.3, np.nan])
    with pytest.raises(DataError, match="probabilities"):
        binomial_matrix(5, [0.5, 1.1])
    with pytest.raises(DataError, match="rows of X"):
        estimate(type("E", (), {"fit": 0, "predict": 0})(), np.zeros((3, 1)), [0, 1, 1], HALVES)
    validator = B3CrossValidator(*settings({"num_train": 5, "num_draws": 2}))
    with pytest.raises(DataError, match="found no groups"):
        validator.split(np.zeros((300, 1)))
    with pytest.raises(DataError, match="each of the 22 splits"):
        validator.estimate(np.zeros(3), HALVES)
    with pytest.raises(DataError, match="found nan at split 1"):
        validator.estimate([0.0, np.nan] + [0.0] * 20, HALVES)
    design = designed(HALVES, num_train=5, num_draws=2)
    with pytest.raises(DataError, match="found level 11"):
        design.draws(11)
    assert sample_losses(design, lambda train, test: 0.5).shape == (11, 2, 1)
