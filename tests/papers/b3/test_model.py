"""B3 against exact algebra, slow independent solvers, and worlds whose loss on new clusters is
known."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
from sklearn.metrics import mean_squared_error

from multiberts.papers.b3.fit import Regularisation, profile, solve
from multiberts.papers.b3.leakage import (
    LeakageDesign,
    LeakageSampling,
    binomial_matrix,
    leakage_levels,
    matching_purity,
)
from multiberts.papers.b3.model import B3Model, estimate
from multiberts.stats.errors import DataError

PLAIN = Regularisation(monotone=False, trend_order=None)  # algorithm 1 as printed
MONOTONE = Regularisation(trend_order=None)


def designed(groups, **sizes):
    return LeakageDesign(groups, LeakageSampling(**sizes))


def settings(options):
    """Takes the fields of the model and of the sampling out of some options."""
    options.setdefault("p_0", HALVES_P_0)
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


@pytest.mark.parametrize(("num_train", "condition"), [(5, 32), (10, 2e3), (20, 9e6), (50, 5e15)])
def test_published_condition_numbers(num_train, condition):
    """Those of m = 2 n' leakages from p_0 = .1 to 1."""
    matrix = binomial_matrix(num_train, rising_leakages(num_train))
    found = np.linalg.cond(matrix)
    if (
        num_train == 50
    ):  # above 1 / epsilon float64 has its order alone, another with another LAPACK
        assert found > 1 / np.finfo(float).eps and round(np.log10(found / condition)) == 0
    else:
        assert float(f"{found:.0e}" if condition != 32 else f"{found:.2g}") == condition


def test_rows_are_distributions_with_the_mean_of_the_leakage():
    leakages = rising_leakages(30)
    matrix = binomial_matrix(30, leakages)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(matrix @ np.arange(31), 30 * leakages, rtol=1e-12)
    np.testing.assert_allclose(matrix[3], scipy.stats.binom(30, leakages[3]).pmf(np.arange(31)))


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
def test_polynomials_below_the_order_cost_nothing(order):
    """However heavy the weight: their differences of that order are zero."""
    e = 0.1 + 0.6 * (1 - np.arange(101) / 100) ** (order - 1)
    leakages = rising_leakages(100)
    rules = Regularisation(trend_order=order, trend_weight=1e4)
    fit = solve(100, leakages, binomial_matrix(100, leakages) @ e, rules)
    np.testing.assert_allclose(fit.e, e, atol=1e-4)


def objective(e, matrix, b, rules):
    """Section 4 of the paper, as printed: D is the difference matrix of the order."""
    bends = np.diff(np.eye(len(e)), rules.trend_order, axis=0)
    return ((matrix @ e - b) ** 2).sum() + rules.trend_weight * ((bends @ e) ** 2).sum()


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("weight", [0.01, 0.1, 10.0])
def test_the_penalised_solution_equals_that_of_a_general_solver(order, weight):
    b = noisy(8, 0.1 + 0.5 * np.exp(-np.arange(9) / 2), 0.03, order)
    rules = Regularisation(trend_order=order, trend_weight=weight)
    matrix = binomial_matrix(8, rising_leakages(8))
    falls = -np.diff(np.eye(9), axis=0)
    theirs = scipy.optimize.minimize(
        objective, np.full(9, b.mean()), (matrix, b, rules), method="SLSQP", bounds=[(0, None)] * 9,
        constraints={"type": "ineq", "fun": lambda e: falls @ e}, options={"maxiter": 2000, "ftol": 1e-14},
    )  # fmt: skip
    ours = solve(8, rising_leakages(8), b, rules)
    assert objective(ours.e, matrix, b, rules) == pytest.approx(theirs.fun, abs=1e-8)
    np.testing.assert_allclose(ours.e, theirs.x, atol=2e-3)


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("weight", [0.001, 0.1, 10.0])
def test_no_feasible_direction_goes_down_at_full_size(order, weight):
    """n' = 100, as in the paper: the objective is convex, so a point that no feasible neighbour
    beats is the solution."""
    e = 0.1 + 0.4 / (1 + np.exp((np.arange(101) - 25) / 5))
    b = noisy(100, e, 0.01, order)
    rules = Regularisation(trend_order=order, trend_weight=weight)
    fit = solve(100, rising_leakages(100), b, rules)
    assert np.all(np.diff(fit.e) <= 0) and fit.e[-1] >= 0
    matrix = binomial_matrix(100, rising_leakages(100))
    best = objective(fit.e, matrix, b, rules)
    generator = np.random.default_rng(0)
    for other in [e, np.full(101, b.mean())] + [
        np.sort(generator.random(101))[::-1] for _ in range(50)
    ]:
        for reach in (1e-4, 1e-2, 1):
            near = fit.e + reach * (other - fit.e)
            assert objective(near, matrix, b, rules) >= best - 1e-9


def test_regularisation_is_what_makes_it_work():
    """At n' = 20 noise of .5 % ruins the plain solution."""
    e = 0.1 + 0.3 * (1 - np.arange(21) / 20) ** 2
    plain, kept = [], []
    for key in range(20):
        b = noisy(20, e, 0.005, key)
        plain.append(solve(20, rising_leakages(20), b, PLAIN).e_0)
        kept.append(solve(20, rising_leakages(20), b).e_0)
    assert np.abs(np.array(plain) - e[0]).mean() > 1
    assert np.abs(np.array(kept) - e[0]).mean() < 0.02


@pytest.mark.parametrize("shape", ["convex", "sigmoid"])
def test_every_smaller_p_0_explains_the_losses_too(shape):
    """So the smallest residual is always at the smallest candidate, and at p_0 = 0 B3 is the plain
    estimate."""
    j = np.arange(9) / 8
    e = 0.1 + (0.5 * (1 - j) ** 2 if shape == "convex" else 0.5 / (1 + np.exp((j - 0.4) * 15)))
    doses = np.linspace(0, 1, 17)
    b = binomial_matrix(8, leakage_levels(0.1, doses)) @ e
    candidates = [0.0, 0.03, 0.06, 0.1, 0.2, 0.4]
    found = profile(8, doses, b, candidates, regularisation=MONOTONE)
    assert np.all(found.residuals[:4] < 1e-7)
    assert found.e_0[0] == pytest.approx(b[0], abs=1e-7)
    assert found.e_0[3] == pytest.approx(e[0], abs=1e-6)
    assert np.all(np.diff(found.e_0) > 0)
    noise = b + 0.01 * np.random.default_rng(0).normal(size=17)
    residuals = profile(8, doses, noise, candidates, regularisation=MONOTONE).residuals
    assert np.all(np.diff(residuals) > -1e-9) and residuals.argmin() == 0


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
        (HALVES, {"p_0": HALVES_P_0}),
        (PAIRED, {"p_0": PAIRED_P_0, "purity": PAIRED_PURITY}),
        (PAIRED, {"p_0": PAIRED_P_0, "purity": None}),
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
    assert wide.fit.leakages[0] == HALVES_P_0


class Majority:
    def fit(self, X, y):
        self.value = np.bincount(y).argmax()

    def predict(self, X):
        return np.full(np.shape(X)[0], self.value)


@pytest.mark.parametrize("loss", ["squared", mean_squared_error])
def test_an_estimator_of_scikit_learn_and_a_loss_of_ones_own(loss):
    """Every cluster has a direction of its own, which a linear model learns; classes -1 and 1."""
    from sklearn.linear_model import RidgeClassifier

    generator = np.random.default_rng(0)
    x, tilts = generator.normal(size=(300, 3)), generator.normal(size=(5, 3))[TRUE]
    y = np.sign((x * (1 + tilts)).sum(axis=1)).astype(int)
    options = {"num_train": 5, "num_draws": 4, "rng": 4}
    wrong = estimated(RidgeClassifier(), HALVES, x, y, **options)
    squared = estimated(RidgeClassifier(), HALVES, x, y, **options, loss=loss)
    assert squared.e_0 == pytest.approx(4 * wrong.e_0, rel=0.2)


def test_any_object_with_fit_and_predict_will_do():
    y = np.zeros(300, dtype=int)
    for features in (np.zeros((300, 1)), [[0]] * 300, scipy.sparse.csr_array((300, 1))):
        result = estimated(
            Majority(), HALVES, features, y, num_train=5, num_draws=3, n_resamples=10
        )
        assert result.e_0 == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "cure",
    [
        {"learner": lambda train, test: 0.8 - (HALVES[train] == HALVES[test[0]]).mean() / 2},
        {"max_injection": 0.01},
        {"regularisation": Regularisation(monotone=False)},
    ],
    ids=["1 - accuracy", "lower doses", "not monotone"],
)
def test_rising_losses_have_cures(cure):
    """An accuracy passed as the loss; each cure of the message, carried out."""
    accuracy = {"learner": lambda train, test: 0.2 + (HALVES[train] == HALVES[test[0]]).mean() / 2}
    options = {"groups": HALVES, "num_train": 10, "num_draws": 20}
    with pytest.raises(DataError, match="rise with the leakage, from .* to .*, expected a fall"):
        estimated(**options, **accuracy)
    assert np.isfinite(estimated(**options, **(accuracy | cure)).e_0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": np.zeros(300)}, "one observed cluster only"),
        ({"groups": np.where(np.arange(300) < 9, np.nan, HALVES)}, "no group of sample 0"),
        ({"groups": np.arange(300)}, "clusters of one sample"),
        ({"p_0": 1.0}, "found p_0 1.0"),
        ({"p_0": -0.1}, "found p_0 -0.1"),
        ({"p_0": float("nan")}, "found p_0 nan"),
        ({"num_train": 301}, "num_train 301 for 300"),
        ({"num_train": 0}, "found num_train 0"),
        ({"purity": 0.05}, "found purity 0.05"),
        ({"purity": None, "p_0": 0.3}, "more of a sample's true cluster"),
        ({"num_test": 60}, "found num_test 60"),
        ({"num_levels": 1}, "found 1 levels"),
        ({"max_injection": 0.0}, "found max_injection 0.0"),
        ({"regularisation": Regularisation(trend_order=50)}, r"found trend_order 50.*order=2\)"),
        ({"num_train": 1}, r"found trend_order 2, .*; give Regularisation\(trend_order=1\)"),
        ({"regularisation": Regularisation(trend_weight=-1)}, "found trend_weight -1"),
        ({"learner": 3}, "found the learner 3"),
        ({"learner": Majority, "X": np.zeros((300, 1)), "y": TRUE}, "estimator .no class."),
        ({"learner": Majority(), "X": TRUE, "y": TRUE / 2}, "found 0.5, expected classes"),
        ({"learner": Majority(), "X": np.zeros((300, 1))}, r"y of shape \(\) for 300 groups"),
        ({"learner": lambda train, test: (HALVES[train] == HALVES[test[0]]).mean()}, "losses that rise"),
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
