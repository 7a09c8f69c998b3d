"""Solves A e = b: expected losses by the number of training samples from the test sample's cluster.

The model and its derivation are in `papers.b3.model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.papers.b3.leakage import binomial_matrix, leakage_levels
from multiberts.stats.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Regularisation:
    """Penalty on e and its constraint, as in section 4 of the paper.

    e minimises ||A e - b||^2 + weight x ||D^k e||^2, with D^k the differences of order k, and
    e_0 >= e_1 >= ... >= e_n' >= 0: training samples of the same cluster do no harm.

    Attributes:
      monotone: False for neither constraint.
      trend_order: k (paper: 2 to 4, the trend filters T2 to T4); None for no penalty.
      trend_weight: lambda (paper: 10 for real data with n' = 100, .1 for synthetic data). 1 to 100 differ
        little with order 2; .1 is too light at n' = 100.

    Examples:
      >>> from multiberts import stats
      >>> stats.b3.Regularisation(trend_order=3).trend_weight
      10.0

    See also: `solve`.
    """

    monotone: bool = True
    trend_order: int | None = 2
    trend_weight: float = 10.0

    def check(self, num_train: int) -> None:
        """Refuses settings that cannot be solved."""
        order = self.trend_order
        if order is not None and not 1 <= order <= num_train:
            raise DataError(
                f"found trend_order {order}, expected None or 1 to num_train = {num_train}; give "
                f"Regularisation(trend_order={min(2, num_train)})"
            )
        if not (np.isfinite(self.trend_weight) and self.trend_weight >= 0):
            raise DataError(f"found trend_weight {self.trend_weight}, expected 0 or more")


@dataclass(frozen=True)
class B3Fit:
    """A solution of A e = b.

    Attributes:
      e: expected loss if j of n' training samples are from the test sample's cluster [n' + 1].
      e_0: first element of `e`, the loss on a new cluster.
      residual: ||A e - b||, without the penalty.
      leakages: p_i [levels].
      losses: b [levels].
      fitted: A e [levels].
    """

    e: Floats
    e_0: float
    residual: float
    leakages: Floats
    losses: Floats
    fitted: Floats


def solve(
    num_train: int,
    leakages: ArrayLike,
    losses: ArrayLike,
    regularisation: Regularisation | None = None,
) -> B3Fit:
    """Solves A e = b for e.

    A falling e of 0 or more is a sum of steps of 0 or more, which `scipy.optimize.nnls` finds; without the
    constraint e is the least squares solution of smallest norm. Without penalty and constraint e is
    useless if n' is above about 15.

    Args:
      num_train: n'.
      leakages: p_i [levels], starting with p_0.
      losses: b_i, mean loss at each leakage [levels].
      regularisation: penalty and constraint, `Regularisation()` by default.

    Raises:
      DataError: shapes differ, a value is not finite or not a probability, or a loss is negative.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> levels = stats.b3.leakage_levels(0.1, np.linspace(0, 1, 21))
      >>> by_count = 0.5 - 0.02 * np.arange(11)  # loss with 0 to 10 samples of the own cluster
      >>> losses = stats.b3.binomial_matrix(10, levels) @ by_count
      >>> round(float(losses[0]), 2), round(stats.b3.solve(10, levels, losses).e_0, 2)
      (0.48, 0.5)

    See also: `estimate`, `profile`.

    Reference: Barnes & Dubrawski (2017), The Binomial Block Bootstrap Estimator for Evaluating Loss on
    Dependent Clusters, section 4.
    """
    from scipy.optimize import nnls

    rules = regularisation or Regularisation()
    rules.check(num_train)
    matrix = binomial_matrix(num_train, leakages)
    levels = np.asarray(leakages, dtype=np.float64)
    b = np.asarray(losses, dtype=np.float64)
    if b.shape != levels.shape:
        raise DataError(
            f"found {b.shape} losses and {levels.shape} leakages, expected one loss per leakage"
        )
    wrong = ~np.isfinite(b) | (b < 0) if rules.monotone else ~np.isfinite(b)
    if wrong.any():
        raise DataError(
            f"losses: found {b[wrong][0]} at level {int(np.argmax(wrong))}, expected finite losses of 0 or "
            "more; give 1 - accuracy, or the negative of a score such as neg_mean_squared_error"
        )
    rows, target = matrix, b
    if rules.trend_order is not None:
        bends = np.diff(np.eye(num_train + 1), rules.trend_order, axis=0)
        rows = np.vstack([matrix, np.sqrt(rules.trend_weight) * bends])
        target = np.concatenate([b, np.zeros(len(bends))])
    if rules.monotone:
        # e_j is the sum of the steps from j on.
        steps, _ = nnls(np.cumsum(rows, axis=1), target, maxiter=100 * rows.shape[1])
        e = np.cumsum(steps[::-1])[::-1]
    else:
        e = np.linalg.lstsq(rows, target, rcond=None)[0]
    fitted = matrix @ e
    return B3Fit(e, float(e[0]), float(np.linalg.norm(fitted - b)), levels, b, fitted)


class SensitivityProfile(NamedTuple):
    """Solutions for several values of p_0.

    Attributes:
      p_0: candidates, in their order [candidates].
      e_0: loss on a new cluster at each candidate [candidates].
      residuals: ||A e - b|| [candidates].
    """

    p_0: Floats
    e_0: Floats
    residuals: Floats


def profile(
    num_train: int,
    injections: ArrayLike,
    losses: ArrayLike,
    candidates: Sequence[float],
    purity: float = 1.0,
    regularisation: Regularisation | None = None,
) -> SensitivityProfile:
    """Solves A e = b for several values of p_0, to see how much the estimate depends on it.

    The residuals do not show which p_0 is right: that of a smaller one is never larger (see
    `papers.b3.model`). The paper's search (algorithms 2 and 4) takes the smallest residual, which is that
    of the smallest candidate.

    Args:
      num_train: n'.
      injections: doses q [levels], as `B3Result.injections`.
      losses: b [levels].
      candidates: values of p_0.
      purity: r, the same for all candidates.
      regularisation: as in `solve`.

    Raises:
      DataError: there are no candidates, or one is out of range.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> doses = np.linspace(0, 1, 21)
      >>> by_count = 0.5 - 0.02 * np.arange(11)  # loss with 0 to 10 samples of the own cluster
      >>> losses = stats.b3.binomial_matrix(10, stats.b3.leakage_levels(0.1, doses)) @ by_count
      >>> stats.b3.profile(10, doses, losses, [0.0, 0.1]).e_0.round(2).tolist()
      [0.48, 0.5]

    See also: `estimate`, `solve`.

    Reference: Barnes & Dubrawski (2017), The Binomial Block Bootstrap Estimator for Evaluating Loss on
    Dependent Clusters, section 3.3.
    """
    values = np.asarray(candidates, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise DataError("found no candidates for p_0; give at least one, such as 0.1")
    fits = [
        solve(num_train, leakage_levels(p_0, injections, purity), losses, regularisation)
        for p_0 in values
    ]
    return SensitivityProfile(
        values, np.array([fit.e_0 for fit in fits]), np.array([fit.residual for fit in fits])
    )
