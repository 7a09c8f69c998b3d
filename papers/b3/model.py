"""Estimates the loss of a learner on new clusters, if clusters are known only approximately.

The Binomial Block Bootstrap (B3) of Barnes and Dubrawski, "The Binomial Block Bootstrap Estimator
for Evaluating Loss on Dependent Clusters" (UAI 2017), section 3.

Samples belong to latent clusters. Holding out the *observed* cluster of a test sample is not enough,
because other samples of its true cluster are in other observed clusters and leak into the training set.
B3 cannot remove this leakage, so it adds more leakage in known doses and extrapolates to none.

**The model.** A training set is `num_train` = n' draws with replacement. Each draw is from the test
sample's observed cluster (without the test samples) with probability q, and otherwise from all other
observed clusters. Write

* p_0: the probability that a draw from *other* observed clusters is of the test sample's true
  cluster (a true cluster that was split);
* r, the purity: the same probability for a draw from its *own* observed cluster.

By total probability a draw is of the same true cluster with probability

    p(q) = (1 - q) p_0 + q r,

and draws are independent, so the number of such draws is Binomial(n', p(q)). With e_j the expected
loss where j of the n' draws are of the test sample's true cluster, the expected loss at dose q is

    b(q) = sum_j Binomial(n', p(q)).pmf(j) e_j,

one row of A e = b for every dose. e_0 is the loss on a new cluster.

**Directions.** If samples leak from V to T only, observed clusters are parts of true ones: r = 1
(algorithm 1 of the paper). In two directions observed clusters also hold samples of other clusters, and r
< 1. Test samples then differ in their p and r; their means are the model's p_0 and r. The paper's
algorithm 3 has a joint binomial of the counts in the training and in the test set instead; in simulated
worlds it is as far from the truth (docs/departures.md).

**Assumptions.** p_0 and r are the same for every test sample; where they differ between samples the
counts are mixtures of binomials and only their means are right. Draws from a small own cluster
repeat (`max_injection` lowers the doses).

**An unknown p_0.** p(q) is linear in q whatever p_0 and r are, so b is the same polynomial in q of degree
n', and only its extrapolation to q = -p_0 / (r - p_0) depends on p_0. For *every* p_0 there is an e with
A e = b. So the paper's assumption 1 (section 3.3) does not hold, and its search for the p_0 with the
smallest residual (algorithms 2 and 4) cannot find it. With the monotone constraint more is true: a monotone
e at one p_0 gives a monotone one at each smaller p_0 (subdivision of a Bézier curve keeps its control
points in order), so the smallest residual is always that of the smallest candidate, which is the plain
estimate again. `profile` shows the estimate at several p_0 instead. If p_0 is unknown, use the plain
held-out estimate, `B3Fit.losses[0]`: a lower limit of the loss.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.papers.b3.fit import B3Fit, Regularisation, solve
from multiberts.papers.b3.leakage import (
    LeakageDesign,
    LeakageSampling,
    leakage_levels,
    matching_purity,
)
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import percentile_interval
from multiberts.stats.intervals import Interval

Floats = NDArray[np.float64]

_CHUNK_DRAWS = 4096
# p-value from which losses that rise with the leakage are refused: they are accuracies, for example.
_RISING = 1e-6


# --- The model ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class B3Model:
    """Leakage and penalty.

    Attributes:
      p_0: leakage of draws from other observed clusters; no default, because the estimate depends on it.
      purity: leakage of draws from the test sample's observed cluster; 1 if observed clusters are parts
        of true ones; None for `matching_purity`, if they are as large as true ones.
      regularisation: see `Regularisation`.

    Examples:
      >>> from multiberts import stats
      >>> stats.b3.B3Model(p_0=0.1).purity
      1.0

    See also: `estimate`.
    """

    p_0: float
    purity: float | None = 1.0
    regularisation: Regularisation = field(default_factory=Regularisation)

    def purity_in(self, design: LeakageDesign) -> float:
        """Returns the purity, given or derived from p_0."""
        if self.purity is not None:
            return self.purity
        return matching_purity(design.groups, self.p_0, design.min_size)

    def leakages(self, design: LeakageDesign) -> Floats:
        """Computes the leakage at each level [levels]; refuses impossible settings before training."""
        self.regularisation.check(design.num_train)
        return leakage_levels(self.p_0, design.injections, self.purity_in(design))


# --- The estimator ------------------------------------------------------------------------------


@dataclass(frozen=True)
class B3Result:
    """Estimated loss on new clusters.

    Attributes:
      interval: percentile interval over resampled tested clusters; p_0 and the training sets are held
        fixed, so it is too short if there are few training clusters. None if fewer than two clusters are
        tested.
      fit: solution of A e = b; `fit.losses[0]` is the plain held-out-cluster estimate.
      injections: doses [levels].
      losses: [levels, draws, tests].
    """

    e_0: float
    interval: Interval | None
    fit: B3Fit
    injections: Floats
    losses: Floats


def estimate(
    learner: Any,
    X: Any,
    y: Any,
    groups: ArrayLike,
    model: B3Model,
    sampling: LeakageSampling | None = None,
    *,
    loss: Literal["zero_one", "squared"] | Callable[[NDArray, NDArray], Any] = "zero_one",
    confidence_level: float = 0.95,
    n_resamples: int = 200,
) -> B3Result:
    """Estimates a learner's expected loss on samples of new clusters.

    The learner is trained once per draw and level.

    Args:
      learner: an estimator with `fit(X, y)` and `predict(X)`, copied for each draw; or a function (train
        [n'], test [tests]) -> losses [tests] or their mean, with indices of samples as arguments; X and y
        are then unused and may be None.
      X: features [samples, ...], an array, sparse matrix or data frame.
      y: targets [samples].
      groups: observed clusters [samples].
      model: leakage, such as `B3Model(p_0=0.1)`, and penalty.
      sampling: sizes and seed of the draws; `LeakageSampling()` by default.
      loss: `zero_one`, `squared`, or a function (y_true, y_pred) -> losses [tests] or their mean.
      confidence_level: level of the interval.
      n_resamples: number of bootstrap samples for the interval.

    Raises:
      DataError: clusters, sizes or leakages are impossible, a loss is not finite, or losses rise with the
        leakage.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> model = stats.b3.B3Model(p_0=0.1)
      >>> sampling = stats.b3.LeakageSampling(num_train=5, num_draws=4)
      >>> groups = np.repeat(range(4), 10)
      >>> result = stats.b3.estimate(lambda train, test: 0.25, None, None, groups, model, sampling)
      >>> round(result.e_0, 4), result.losses.shape
      (0.25, (11, 4, 1))

    See also: `solve`.

    Reference: Barnes & Dubrawski (2017), The Binomial Block Bootstrap Estimator for Evaluating Loss on
    Dependent Clusters.
    """
    design = LeakageDesign(groups, sampling)
    model.leakages(design)
    losses = sample_losses(design, _loss_function(learner, X, y, loss, len(design.groups)))
    return estimate_loss(design, losses, model, confidence_level, n_resamples)


def sample_losses(design: LeakageDesign, function: Callable[[NDArray, NDArray], Any]) -> Floats:
    """Trains and tests in all draws of all levels.

    Args:
      function: (train [n'], test [tests]) -> losses [tests], or their mean.

    Returns:
      Losses, float64 [levels, draws, tests], or [levels, draws, 1] if the function returns means.
    """
    from tqdm import tqdm

    table: Floats | None = None
    total = design.num_levels * design.num_draws
    with tqdm(total=total, desc="B3", disable=None) as bar:
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
                            f"{design.num_test}, one per tested sample"
                        )
                    if not np.isfinite(value).all():
                        raise DataError(
                            f"{where}: found the loss {value[~np.isfinite(value)][0]}, expected "
                            "finite losses; check the learner's predictions there"
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
    is_class = isinstance(learner, type)
    if is_class or not (hasattr(learner, "fit") and hasattr(learner, "predict")):
        if callable(learner) and not is_class:
            return cast("Callable[[NDArray, NDArray], Any]", learner)
        raise DataError(
            f"found the learner {learner!r}, expected an estimator (no class) with fit and predict, "
            "or a function of the indices (train, test)"
        )
    if not (callable(loss) or loss in _LOSSES):
        raise DataError(
            f"found loss {loss!r}, expected 'zero_one', 'squared' or a function of (y_true, y_pred)"
        )
    targets = np.asarray(y)
    if not np.shape(X)[:1] == targets.shape[:1] == (num_samples,):
        raise DataError(
            f"found X of shape {np.shape(X)} and y of shape {targets.shape} for {num_samples} groups, "
            "expected a row of both per group"
        )
    score = loss if callable(loss) else _LOSSES[loss]
    if loss == "zero_one" and targets.dtype.kind == "f" and (targets % 1 != 0).any():
        raise DataError(
            f"y: found {targets[targets % 1 != 0][0]:g}, expected classes for loss 'zero_one'; give "
            "loss='squared'"
        )
    features = getattr(X, "iloc", X if hasattr(X, "shape") else np.asarray(X))

    def train_and_test(train: NDArray, test: NDArray) -> Any:
        fitted = copy.deepcopy(learner)
        fitted.fit(features[train], targets[train])
        return score(targets[test], np.asarray(fitted.predict(features[test])))

    return train_and_test


def estimate_loss(
    design: LeakageDesign, losses: Floats, model: B3Model, confidence_level: float, n_resamples: int
) -> B3Result:
    """Estimates the loss on new clusters from losses [levels, draws, tests]; see `estimate`."""
    from scipy.stats import linregress

    means = losses.mean(axis=2)  # [levels, draws]
    levels = model.leakages(design)
    fit = solve(design.num_train, levels, means.mean(axis=1), model.regularisation)
    line = linregress(levels, fit.losses)
    if model.regularisation.monotone and line.slope > 0 and line.pvalue < _RISING:
        low, high = line.intercept + line.slope * levels[[0, -1]]
        raise DataError(
            f"found losses that rise with the leakage, from {low:.3g} to {high:.3g}, expected a fall; give "
            "losses (1 - accuracy, -score), a lower max_injection if the draws from small clusters "
            "repeat, or Regularisation(monotone=False)"
        )
    tested, codes = np.unique(design.clusters, return_inverse=True)
    interval = None
    if len(tested) >= 2 and n_resamples >= 1:
        member = np.eye(len(tested))[codes]  # [draws, clusters]
        sums, counts = means @ member, member.sum(axis=0)
        bits = np.random.Philox(key=[design.rng, 2**63])
        generator = np.random.Generator(bits)
        even = np.full(len(tested), 1 / len(tested))
        weights = generator.multinomial(len(tested), even, size=n_resamples)
        tables = (weights @ sums.T) / (weights @ counts)[:, None]  # [bootstrap, levels]
        replicates = [
            solve(design.num_train, levels, table, model.regularisation).e_0 for table in tables
        ]
        interval = percentile_interval(replicates, confidence_level)
    return B3Result(fit.e_0, interval, fit, design.injections, losses)
