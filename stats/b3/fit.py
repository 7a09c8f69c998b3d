"""Solving A e = b: expected losses by the number of training samples from the test sample's cluster.

The model and its derivation are in `stats.b3.model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.b3.leakage import binomial_matrix, leakage_levels
from multiberts.stats.b3.trend_filter import Regularisation, penalty, solve_regularised
from multiberts.stats.bootstrap.arms import DataError

SearchRule = Literal["largest_consistent", "smallest_residual"]
Floats = NDArray[np.float64]

# A search takes p_0 for consistent while the sum of squares grows by this many noise variances:
# about the 95 % point of a profile likelihood in one parameter.
_SEARCH_NOISE = 4.0


class SearchProfile(NamedTuple):
    """What every candidate of a search gives.

    Attributes:
      candidates: p_0 [candidates], rising.
      residuals: ||A e - b|| at each.
      e_0: the loss on a new cluster at each.
    """

    candidates: Floats
    residuals: Floats
    e_0: Floats


@dataclass(frozen=True)
class B3Fit:
    """A solution of A e = b.

    Attributes:
      e: expected loss with j of n' training samples of the test sample's cluster [n' + 1].
      e_0: the first of them, the loss on a new cluster.
      residual: ||A e - b||, without the penalty.
      objective: what was made small, penalty and all.
      p_0: leakage of the first level.
      purity: leakage of draws from the own observed cluster; 1 in one direction, or where only
        leakages were given.
      leakages: p_i [levels].
      losses: b [levels].
      fitted: A e [levels].
      search: the profile over p_0, or None where it was known.
    """

    e: Floats
    e_0: float
    residual: float
    objective: float
    p_0: float
    purity: float
    leakages: Floats
    losses: Floats
    fitted: Floats
    search: SearchProfile | None = None


def solve_b3(
    num_train: int,
    leakages: ArrayLike,
    losses: ArrayLike,
    regularisation: Regularisation | None = None,
) -> B3Fit:
    """Solves A e = b for e.

    Without an l1 penalty or upper bound a monotone e is a cumulative sum of non-negative steps, and
    the steps are `scipy.optimize.nnls`. An unconstrained e is least squares of smallest norm
    (useless beyond n' of about 15). All else is one convex quadratic programme.

    Args:
      num_train: n'.
      leakages: p_i [levels], the first p_0.
      losses: b_i, mean loss at each [levels].
      regularisation: by default monotone, with an l1 trend filter of order 2 and weight .1.

    Raises:
      DataError: shapes differ, or a value is not finite or not a probability.
    """
    rules = regularisation or Regularisation()
    rules.check(num_train)
    matrix = binomial_matrix(num_train, leakages)
    levels = np.asarray(leakages, dtype=np.float64)
    b = np.asarray(losses, dtype=np.float64)
    if b.shape != levels.shape:
        raise DataError(
            f"found {b.shape} losses and {levels.shape} leakages, expected one loss a leakage"
        )
    if not np.isfinite(b).all():
        raise DataError(
            f"losses: found {b[~np.isfinite(b)][0]} at level {int(np.argmax(~np.isfinite(b)))}, "
            "expected finite values; look at the learner's runs there"
        )
    e = solve_regularised(matrix, b, rules)
    fitted = matrix @ e
    residual = float(np.linalg.norm(fitted - b))
    return B3Fit(
        e=e,
        e_0=float(e[0]),
        residual=residual,
        objective=residual**2 + penalty(e, rules),
        p_0=float(levels[0]),
        purity=1.0,
        leakages=levels,
        losses=b,
        fitted=fitted,
    )


# --- Searching p_0 ------------------------------------------------------------------------------


def search_b3(
    num_train: int,
    injections: ArrayLike,
    losses: ArrayLike,
    candidates: Sequence[float],
    purities: Sequence[float] | None = None,
    rule: SearchRule = "largest_consistent",
    regularisation: Regularisation | None = None,
) -> B3Fit:
    """Solves A e = b for every candidate p_0 and chooses one by the residuals.

    Args:
      num_train: n'.
      injections: doses q [levels], rising.
      losses: b [levels].
      candidates: values of p_0 to try.
      purities: r for each candidate; 1 for all by default.
      rule: `largest_consistent` takes the largest p_0 whose sum of squares is as small as the
        smallest but for noise; `smallest_residual` takes the smallest as it stands, which the
        monotone constraint always puts at the smallest candidate (see the module's
        docstring).
      regularisation: as in `solve_b3`.

    Raises:
      DataError: there are no candidates, or one is out of range.
    """
    values = np.sort(np.asarray(candidates, dtype=np.float64))
    if values.ndim != 1 or not values.size:
        raise DataError("found no candidates for p_0; give at least one, such as 0.1")
    if rule not in ("largest_consistent", "smallest_residual"):
        raise DataError(
            f"found search rule {rule!r}, expected 'largest_consistent' or 'smallest_residual'"
        )
    pure = np.ones(len(values)) if purities is None else np.asarray(purities, dtype=np.float64)
    if pure.shape != values.shape:
        raise DataError(f"found {len(pure)} purities for {len(values)} candidates of p_0")
    pure = pure[np.argsort(np.asarray(candidates, dtype=np.float64), kind="stable")]
    fits = [
        replace(
            solve_b3(num_train, leakage_levels(p_0, injections, r), losses, regularisation),
            p_0=float(p_0),
            purity=float(r),
        )
        for p_0, r in zip(values, pure, strict=True)
    ]
    residuals = np.array([fit.residual for fit in fits])
    if rule == "smallest_residual":
        chosen = int(np.argmin(residuals))
    else:
        b = np.asarray(losses, dtype=np.float64)
        limit = residuals.min() ** 2 + _SEARCH_NOISE * noise_variance(b) + 1e-16 * float(b @ b)
        chosen = int(np.flatnonzero(residuals**2 <= limit).max())
    profile = SearchProfile(values, residuals, np.array([fit.e_0 for fit in fits]))
    return replace(fits[chosen], search=profile)


def noise_variance(losses: ArrayLike) -> float:
    """Variance of the noise of b [levels] around any smooth curve, from fourth differences.

    Differences of order k of independent noise have (2k choose k) times its variance, those of a
    smooth curve next to none.
    """
    from scipy.special import comb

    b = np.asarray(losses, dtype=np.float64)
    order = min(4, len(b) - 1)
    if order < 1:
        return 0.0
    return float(np.mean(np.diff(b, order) ** 2) / comb(2 * order, order))
