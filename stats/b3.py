"""The loss of a learner on new clusters, where the clusters are known only roughly.

The Binomial Block Bootstrap (B3) of Barnes and Dubrawski, "The Binomial Block Bootstrap Estimator
for Evaluating Loss on Dependent Clusters" (UAI 2017).

Samples fall into latent clusters. Holding out the *observed* cluster of a test sample is not
enough: the rest of its true cluster hides in other observed clusters and leaks into the training
set. B3 cannot take that leakage away, so it adds more, in known doses, and works back to none.

**The model.** A training set is `num_train` = n' draws with replacement. Each draw comes, with
probability q, from the test sample's own observed cluster (without the samples tested), and
otherwise from all other observed clusters. Write

* p_0: the probability that a draw from *other* observed clusters is of the test sample's true
  cluster (a true cluster that was split);
* r, the purity: the same probability for a draw from its *own* observed cluster.

By total probability a draw is of the same true cluster with probability

    p(q) = (1 - q) p_0 + q r,

and draws are independent, so the number of such draws is Binomial(n', p(q)). With e_j the expected
loss where j of the n' draws are of the test sample's true cluster, the expected loss at dose q is

    b(q) = sum_j Binomial(n', p(q)).pmf(j) e_j,

one row of A e = b for every dose. e_0 is the loss on a new cluster.

**Four algorithms.** In *one* direction leakage comes only from outside: observed clusters are
parts of true ones, r = 1, so p(q) = p_0 + q (1 - p_0). In *two* directions observed clusters also
hold strangers, r < 1, which is given or follows from p_0 where observed clusters are as large as
true ones (`matching_purity`). In each, p_0 is known or searched.

**What is assumed.** p_0 and r are those of every test sample; where they differ between samples the
counts are mixtures of binomials and only their means are right. Draws of one's own cluster repeat
where it is small (`max_injection` lowers the doses).

**What a search can and cannot find.** p(q) is linear in q whatever p_0 and r are, so b is the same
polynomial in q of degree n', and only its extrapolation to q = -p_0 / (r - p_0) depends on p_0.
Some e with A e = b therefore exists for *every* p_0. With the monotone constraint more is true: a
monotone e at one p_0 gives a monotone one at each smaller p_0 (subdivision of a Bézier curve keeps
its control points in order), so the residual never falls as p_0 grows, and its smallest value is
always at the smallest candidate, which is the plain estimate again. The losses bound p_0 from
above, not from below. The search here thus takes the *largest* p_0 whose residual is as small as
the smallest but for noise. It finds the truth where the losses are level before they fall (a few
samples of a cluster do not help yet), and otherwise errs to a large e_0. `B3Fit.search` holds the
whole profile; a known p_0 is always better.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stats.arms import DataError
from stats.b3_fit import (
    B3Fit,
    SearchProfile,
    SearchRule,
    noise_variance,
    search_b3,
    solve_b3,
)
from stats.intervals import Interval, percentile_interval
from stats.leakage import (
    Draws,
    LeakageDesign,
    binomial_matrix,
    leakage_levels,
    matching_purity,
)
from stats.trend_filter import Regularisation

__all__ = [
    "B3CrossValidator",
    "B3Fit",
    "B3Result",
    "Draws",
    "LeakageDesign",
    "LossHistogram",
    "Regularisation",
    "SearchProfile",
    "b3",
    "binomial_matrix",
    "leakage_levels",
    "loss_histogram",
    "matching_purity",
    "noise_variance",
    "sample_losses",
    "search_b3",
    "solve_b3",
]

Directions = Literal["one", "two"]
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_CHUNK_DRAWS = 4096


# --- The estimator ------------------------------------------------------------------------------


@dataclass(frozen=True)
class B3Result:
    """The loss on new clusters.

    Attributes:
        e_0: the estimate.
        interval: percentile interval over observed clusters resampled as tested; p_0 and the
            training sets stay, so it is too short where few clusters train. None where fewer than
            two clusters are tested.
        fit: the solution behind it; `fit.losses[0]` is the plain held-out-cluster estimate.
        injections: doses [levels].
        losses: [levels, draws, tests].
    """

    e_0: float
    interval: Interval | None
    fit: B3Fit
    injections: Floats
    losses: Floats


def b3(
    learner: Any,
    X: Any,
    y: Any,
    groups: ArrayLike,
    *,
    loss: Literal["zero_one", "squared"] | Callable[[NDArray, NDArray], Any] = "zero_one",
    p_0: float | None = 0.1,
    directions: Directions = "one",
    purity: float | None = None,
    candidates: Sequence[float] | None = None,
    search_rule: SearchRule = "largest_consistent",
    num_train: int = 100,
    num_levels: int | None = None,
    num_draws: int = 2500,
    max_injection: float = 1.0,
    num_test: int | None = None,
    regularisation: Regularisation | None = None,
    confidence: float = 0.95,
    num_bootstrap: int = 200,
    bootstrap_seed: int = 0,
) -> B3Result:
    """A learner's expected loss on samples of clusters it has not seen.

    The four algorithms are `directions` with p_0 given or None (searched). The learner is trained
    `num_levels` x `num_draws` times.

    Args:
        learner: an estimator with `fit(X, y)` and `predict(X)`, copied for every draw; or a
            function (train [n'], test [tests]) -> losses [tests] or their mean, of indices of
            samples, for which X and y are not used and may be None.
        X: features [samples, ...], an array or data frame.
        y: targets [samples].
        groups: observed clusters [samples].
        loss: `zero_one`, `squared`, or a function (y_true, y_pred) -> losses [tests] or their mean.
        p_0: leakage of draws from other observed clusters (paper: .1), or None to search it.
        directions: `one` where observed clusters are parts of true ones, `two` where they also
            hold samples of others.
        purity: with `two`, the leakage of draws from the own observed cluster; None for
            `matching_purity`.
        candidates: values of p_0 for the search; 0, .01, ..., .3 by default.
        search_rule: see `search_b3`.
        num_train: n' (paper: 100).
        num_levels: levels; None for 2 n' + 1.
        num_draws: draws at each level (paper: 2500).
        max_injection: the largest dose.
        num_test: samples tested a draw; see `LeakageDesign`.
        regularisation: as in `solve_b3`.
        confidence: level of the interval.
        num_bootstrap: bootstrap samples for it.
        bootstrap_seed: names all draws.

    Raises:
        DataError: bad clusters, sizes, leakages, or losses that are not finite.
    """
    design = LeakageDesign(
        groups,
        num_train=num_train,
        num_levels=num_levels,
        num_draws=num_draws,
        max_injection=max_injection,
        num_test=num_test,
        bootstrap_seed=bootstrap_seed,
    )
    model = _Model(directions, p_0, purity, candidates, search_rule, regularisation)
    model.check(design)
    losses = sample_losses(design, _loss_function(learner, X, y, loss, len(design.groups)))
    return _estimate(design, losses, model, confidence, num_bootstrap)


def sample_losses(
    design: LeakageDesign, function: Callable[[NDArray, NDArray], Any], progress: bool = True
) -> Floats:
    """Trains and tests in every draw of every level.

    Args:
        design: the draws.
        function: (train [n'], test [tests]) -> losses [tests], or their mean.
        progress: whether to show a bar on a terminal.

    Returns:
        float64 [levels, draws, tests], or [levels, draws, 1] where the function gives means.

    Raises:
        DataError: a loss is not finite or has another shape.
    """
    from tqdm import tqdm

    table: Floats | None = None
    total = design.num_levels * design.num_draws
    with tqdm(total=total, desc="B3", disable=None if progress else True) as bar:
        for level in range(design.num_levels):
            for start in range(0, design.num_draws, _CHUNK_DRAWS):
                stop = min(start + _CHUNK_DRAWS, design.num_draws)
                drawn = design.draws(level, start, stop)
                for row in range(stop - start):
                    value = np.asarray(function(drawn.train[row], drawn.test[row]), np.float64)
                    value = np.atleast_1d(value)
                    where = f"level {level}, draw {start + row}"
                    if value.shape not in ((1,), (design.num_test,)):
                        raise DataError(
                            f"{where}: found losses of shape {value.shape}, expected one number or "
                            f"{design.num_test}, one a sample tested"
                        )
                    if not np.isfinite(value).all():
                        raise DataError(
                            f"{where}: found the loss {value[~np.isfinite(value)][0]}, expected "
                            "finite losses; look at what the learner predicts there"
                        )
                    if table is None:
                        table = np.empty((design.num_levels, design.num_draws, len(value)))
                    table[level, start + row] = value
                bar.update(stop - start)
    assert table is not None
    return table


_LOSSES: dict[str, Callable[[NDArray, NDArray], NDArray]] = {
    "zero_one": lambda truth, predicted: (truth != predicted).astype(np.float64),
    "squared": lambda truth, predicted: (truth - predicted) ** 2,
}


def _loss_function(
    learner: Any, X: Any, y: Any, loss: Any, num_samples: int
) -> Callable[[NDArray, NDArray], Any]:
    if not (hasattr(learner, "fit") and hasattr(learner, "predict")):
        if callable(learner):
            return learner
        raise DataError(
            f"found the learner {learner!r}, expected an estimator with fit and predict, or a "
            "function of the indices (train, test)"
        )
    if not (callable(loss) or loss in _LOSSES):
        raise DataError(
            f"found loss {loss!r}, expected 'zero_one', 'squared' or a function of (y_true, y_pred)"
        )
    targets = np.asarray(y)
    if len(X) != num_samples or len(targets) != num_samples:
        raise DataError(
            f"found {len(X)} rows of X and {len(targets)} of y for {num_samples} groups, expected "
            "as many of each"
        )
    score = loss if callable(loss) else _LOSSES[loss]
    features = X.iloc if hasattr(X, "iloc") else np.asarray(X)

    def train_and_test(train: NDArray, test: NDArray) -> Any:
        fitted = copy.deepcopy(learner)
        fitted.fit(features[train], targets[train])
        return score(targets[test], np.asarray(fitted.predict(features[test])))

    return train_and_test


@dataclass(frozen=True)
class _Model:
    """One of the four algorithms."""

    directions: Directions
    p_0: float | None
    purity: float | None
    candidates: Sequence[float] | None
    search_rule: SearchRule
    regularisation: Regularisation | None

    def check(self, design: LeakageDesign) -> None:
        """Refuses bad leakages before anything is trained."""
        if self.directions not in ("one", "two"):
            raise DataError(f"found directions {self.directions!r}, expected 'one' or 'two'")
        if self.directions == "one" and self.purity not in (None, 1, 1.0):
            raise DataError(
                f"found purity {self.purity} with one direction, where it is 1; set directions to "
                "'two'"
            )
        if self.p_0 is not None and self.candidates is not None:
            raise DataError(
                f"found both p_0 {self.p_0} and candidates; set p_0 to None to search among them"
            )
        (self.regularisation or Regularisation()).check(design.num_train)
        if self.p_0 is None:
            self._searched(design)
        else:
            leakage_levels(self.p_0, design.injections, self.purity_at(design, self.p_0))

    def purity_at(self, design: LeakageDesign, p_0: float) -> float:
        if self.directions == "one":
            return 1.0
        if self.purity is not None:
            return self.purity
        return matching_purity(design.groups, p_0, design.min_size)

    def _searched(self, design: LeakageDesign) -> tuple[list[float], list[float]]:
        given = self.candidates is not None
        values = list(self.candidates) if self.candidates is not None else [
            number / 100 for number in range(31)
        ]  # fmt: skip
        purities = [self.purity_at(design, p_0) for p_0 in values]
        if not given:  # a default that cannot be is left out; one that was asked for is refused
            kept = [row for row, p_0 in enumerate(values) if p_0 < purities[row]]
            values, purities = [values[row] for row in kept], [purities[row] for row in kept]
        for p_0, r in zip(values, purities, strict=True):
            leakage_levels(p_0, design.injections, r)
        return values, purities

    def fit(self, design: LeakageDesign, losses: Floats) -> B3Fit:
        """Solves for b [levels]."""
        if self.p_0 is None:
            values, purities = self._searched(design)
            return search_b3(
                design.num_train, design.injections, losses, values, purities,
                self.search_rule, self.regularisation,
            )  # fmt: skip
        purity = self.purity_at(design, self.p_0)
        levels = leakage_levels(self.p_0, design.injections, purity)
        fit = solve_b3(design.num_train, levels, losses, self.regularisation)
        return replace(fit, purity=purity)


def _estimate(
    design: LeakageDesign, losses: Floats, model: _Model, confidence: float, num_bootstrap: int
) -> B3Result:
    means = losses.mean(axis=2)  # [levels, draws]
    fit = model.fit(design, means.mean(axis=1))
    tested, codes = np.unique(design.clusters, return_inverse=True)
    interval = None
    if len(tested) >= 2 and num_bootstrap >= 1:
        member = np.eye(len(tested))[codes]  # [draws, clusters]
        sums, counts = means @ member, member.sum(axis=0)
        bits = np.random.Philox(key=[design.bootstrap_seed, 2**63])
        generator = np.random.Generator(bits)
        even = np.full(len(tested), 1 / len(tested))
        weights = generator.multinomial(len(tested), even, size=num_bootstrap)
        tables = (weights @ sums.T) / (weights @ counts)[:, None]  # [bootstrap, levels]
        levels = fit.leakages
        replicates = [
            solve_b3(design.num_train, levels, table, model.regularisation).e_0 for table in tables
        ]
        interval = percentile_interval(replicates, confidence)
    return B3Result(fit.e_0, interval, fit, design.injections, losses)


# --- The distribution of the loss ---------------------------------------------------------------


class LossHistogram(NamedTuple):
    """The distribution of the loss on new clusters.

    Attributes:
        edges: of the bins [bins + 1].
        probabilities: of a loss on a new cluster [bins]; they sum to 1.
        by_count: the same with j of n' training samples of the test sample's cluster
            [n' + 1, bins]; its first row is `probabilities`.
    """

    edges: Floats
    probabilities: Floats
    by_count: Floats


def loss_histogram(
    num_train: int,
    leakages: ArrayLike,
    losses: ArrayLike,
    edges: ArrayLike,
    regularisation: Regularisation | None = None,
) -> LossHistogram:
    """How losses on new clusters are distributed, and not their mean alone.

    Whether a loss reaches an inner edge is a loss itself, of 0 or 1, and is solved like one; a
    monotone e means that samples of the own cluster make no loss more likely to be large. The
    solutions for all edges are then put in order together (isotonic regression over edges at each
    j, which keeps the order over j), so that bins are not negative and sum to 1.

    Args:
        num_train: n'.
        leakages: p_i [levels], as `B3Fit.leakages`.
        losses: single losses [levels, draws] or [levels, draws, tests], as `B3Result.losses`.
        edges: of the bins, rising [bins + 1]; as in NumPy a bin holds its lower edge, the last one
            both.
        regularisation: as in `solve_b3`; its bounds are replaced by 0 and 1.

    Raises:
        DataError: edges do not rise, or a loss is outside of them.
    """
    from scipy.optimize import isotonic_regression

    limits = np.asarray(edges, dtype=np.float64)
    values = np.asarray(losses, dtype=np.float64)
    if limits.ndim != 1 or len(limits) < 2 or not np.all(np.diff(limits) > 0):
        raise DataError(f"found edges {limits}, expected two or more that rise")
    if values.ndim not in (2, 3) or len(values) != len(np.asarray(leakages)):
        raise DataError(
            f"found losses of shape {values.shape} for {len(np.asarray(leakages))} leakages, "
            "expected [levels, draws] or [levels, draws, tests]"
        )
    low, high = float(values.min()), float(values.max())
    if not (low >= limits[0] and high <= limits[-1]):
        raise DataError(
            f"found losses from {low:.4g} to {high:.4g} outside the edges {limits[0]:.4g} to "
            f"{limits[-1]:.4g}; widen the edges"
        )
    rules = replace(regularisation or Regularisation(), lower=0.0, upper=1.0)
    reached = np.ones((num_train + 1, len(limits)))  # P(loss >= edge) by count and edge
    reached[:, -1] = 0
    flat = values.reshape(len(values), -1)
    for column, edge in enumerate(limits[1:-1], start=1):
        share = (flat >= edge).mean(axis=1)
        reached[:, column] = np.clip(solve_b3(num_train, leakages, share, rules).e, 0, 1)
    for row in reached:
        row[1:-1] = isotonic_regression(row[1:-1], increasing=False).x if len(row) > 2 else []
    bins = -np.diff(reached, axis=1)
    return LossHistogram(limits, bins[0], bins)


# --- scikit-learn -------------------------------------------------------------------------------


class B3CrossValidator:
    """B3 as a cross-validator: any estimator, through `sklearn.model_selection`.

    Example:
        validator = B3CrossValidator(p_0=0.1, num_train=50, num_draws=20)
        scores = cross_val_score(estimator, X, y, groups=groups, cv=validator)  # accuracy
        result = validator.estimate(1 - scores, groups)

    Splits come level by level, `num_draws` each; `levels` and `leakages` tell which is which.
    Training indices repeat, as draws with replacement do.
    """

    def __init__(
        self,
        *,
        p_0: float | None = 0.1,
        directions: Directions = "one",
        purity: float | None = None,
        candidates: Sequence[float] | None = None,
        search_rule: SearchRule = "largest_consistent",
        num_train: int = 100,
        num_levels: int | None = None,
        num_draws: int = 25,
        max_injection: float = 1.0,
        num_test: int | None = None,
        regularisation: Regularisation | None = None,
        bootstrap_seed: int = 0,
    ):
        """Arguments are those of `b3`; `num_draws` has a default for estimators that take time."""
        self.num_train, self.num_draws = num_train, num_draws
        self.num_levels = 2 * num_train + 1 if num_levels is None else num_levels
        self.max_injection, self.num_test = max_injection, num_test
        self.bootstrap_seed = bootstrap_seed
        self._model = _Model(directions, p_0, purity, candidates, search_rule, regularisation)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Levels x draws."""
        return self.num_levels * self.num_draws

    @property
    def levels(self) -> Indices:
        """Level of each split [splits]."""
        return np.repeat(np.arange(self.num_levels), self.num_draws)

    def leakages(self, groups: ArrayLike) -> Floats:
        """Leakage of each split [splits].

        Raises:
            DataError: p_0 is searched, so it is not known before `estimate`.
        """
        design = self._design(groups)
        if self._model.p_0 is None:
            raise DataError("leakages of splits are not known where p_0 is searched; give p_0")
        self._model.check(design)
        purity = self._model.purity_at(design, self._model.p_0)
        return leakage_levels(self._model.p_0, design.injections, purity)[self.levels]

    def split(
        self, X: Any, y: Any = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Training [n'] and test [tests] indices of every draw of every level.

        Raises:
            DataError: groups are missing or do not allow it.
        """
        if groups is None:
            raise DataError("found no groups; give the observed cluster of every sample")
        if X is not None and len(X) != len(np.asarray(groups)):
            raise DataError(
                f"found {len(X)} samples and {len(np.asarray(groups))} groups, expected one a "
                "sample"
            )
        design = self._design(groups)
        self._model.check(design)
        return self._pairs(design)

    def _pairs(self, design: LeakageDesign) -> Iterator[tuple[Indices, Indices]]:
        for level in range(design.num_levels):
            drawn = design.draws(level)
            yield from zip(drawn.train, drawn.test, strict=True)

    def estimate(
        self,
        losses: ArrayLike,
        groups: ArrayLike,
        confidence: float = 0.95,
        num_bootstrap: int = 200,
    ) -> B3Result:
        """The loss on new clusters, from the losses of the splits.

        Args:
            losses: one a split, smaller is better [splits]: 1 - accuracy, or minus scikit-learn's
                `neg_...` scores.
            groups: the observed clusters of `split` [samples].
            confidence: level of the interval.
            num_bootstrap: bootstrap samples for it.

        Raises:
            DataError: there are not as many losses as splits, or one is not finite.
        """
        values = np.asarray(losses, dtype=np.float64)
        if values.shape != (self.get_n_splits(),):
            raise DataError(
                f"found losses of shape {values.shape}, expected one for each of the "
                f"{self.get_n_splits()} splits"
            )
        if not np.isfinite(values).all():
            raise DataError(
                f"losses: found {values[~np.isfinite(values)][0]} at split "
                f"{int(np.argmax(~np.isfinite(values)))}, expected finite values; use "
                "error_score='raise' to see why the estimator failed"
            )
        design = self._design(groups)
        self._model.check(design)
        table = values.reshape(self.num_levels, self.num_draws, 1)
        return _estimate(design, table, self._model, confidence, num_bootstrap)

    def _design(self, groups: ArrayLike) -> LeakageDesign:
        return LeakageDesign(
            groups,
            num_train=self.num_train,
            num_levels=self.num_levels,
            num_draws=self.num_draws,
            max_injection=self.max_injection,
            num_test=self.num_test,
            bootstrap_seed=self.bootstrap_seed,
        )
