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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.b3.fit import (
    B3Fit,
    SearchProfile,
    SearchRule,
    noise_variance,
    search_b3,
    solve_b3,
)
from multiberts.stats.b3.leakage import (
    Draws,
    LeakageDesign,
    binomial_matrix,
    leakage_levels,
    matching_purity,
)
from multiberts.stats.b3.trend_filter import Regularisation
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.intervals import Interval, percentile_interval

__all__ = [
    "B3Fit",
    "B3Result",
    "Draws",
    "LeakageDesign",
    "Regularisation",
    "SearchProfile",
    "b3",
    "binomial_matrix",
    "leakage_levels",
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
    model = B3Model(directions, p_0, purity, candidates, search_rule, regularisation)
    model.check(design)
    losses = sample_losses(design, _loss_function(learner, X, y, loss, len(design.groups)))
    return estimate_loss(design, losses, model, confidence, num_bootstrap)


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
class B3Model:
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


def estimate_loss(
    design: LeakageDesign, losses: Floats, model: B3Model, confidence: float, num_bootstrap: int
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
