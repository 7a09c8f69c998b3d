"""Solves A e = b: expected losses by the number of training samples from the test sample's cluster.

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
from multiberts.stats.errors import DataError, check_choice

SearchRule = Literal["largest_consistent", "smallest_residual"]
Floats = NDArray[np.float64]

# Largest increase of the sum of squares for an accepted p_0, in noise variances: about the 95 % point of a
# profile likelihood in one parameter.
_SEARCH_NOISE = 4.0


class SearchProfile(NamedTuple):
    """Solutions for all candidates of a search.

    Attributes:
      candidates: increasing values of p_0 [candidates].
      e_0: loss on a new cluster at each candidate [candidates].
    """

    candidates: Floats
    residuals: Floats
    e_0: Floats


@dataclass(frozen=True)
class B3Fit:
    """A solution of A e = b.

    Attributes:
      e: expected loss if j of n' training samples are from the test sample's cluster [n' + 1].
      e_0: first element of `e`, the loss on a new cluster.
      residual: ||A e - b||, without the penalty.
      objective: minimised value, with the penalty.
      p_0: leakage of the first level.
      purity: leakage of draws from the sample's observed cluster; 1 in one direction, or if only leakages are
        given.
      leakages: p_i [levels].
      losses: b [levels].
      fitted: A e [levels].
      search: profile over p_0, or None if p_0 was given.
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


def solve(
    num_train: int,
    leakages: ArrayLike,
    losses: ArrayLike,
    regularisation: Regularisation | None = None,
) -> B3Fit:
    """Solves A e = b for e.

    See `stats.b3.trend_filter.solve_regularised` for the methods. Without constraints e is useless if n' is
    above about 15.

    Args:
      num_train: n'.
      leakages: p_i [levels], starting with p_0.
      losses: b_i, mean loss at each leakage [levels].
      regularisation: penalty and constraints; by default monotone, with an l1 trend filter of order 2 and
        weight .1.

    Raises:
      DataError: shapes differ, a value is not finite or not a probability, or the losses do not determine e
        (without a trend filter or bounds).

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> levels = stats.b3.leakage_levels(0.1, np.linspace(0, 1, 21))
      >>> by_count = 0.5 - 0.02 * np.arange(11)  # loss with 0 to 10 samples of the own cluster
      >>> losses = stats.b3.binomial_matrix(10, levels) @ by_count
      >>> round(float(losses[0]), 2), round(stats.b3.solve(10, levels, losses).e_0, 2)
      (0.48, 0.5)

    See also: `estimate`, `search`.

    Reference: Barnes & Dubrawski (2017), The Binomial Block Bootstrap Estimator for Evaluating Loss on
    Dependent Clusters.
    """
    rules = regularisation or Regularisation()
    rules.check(num_train)
    matrix = binomial_matrix(num_train, leakages)
    levels = np.asarray(leakages, dtype=np.float64)
    b = np.asarray(losses, dtype=np.float64)
    if b.shape != levels.shape:
        raise DataError(
            f"found {b.shape} losses and {levels.shape} leakages, expected one loss per leakage"
        )
    if not np.isfinite(b).all():
        raise DataError(
            f"losses: found {b[~np.isfinite(b)][0]} at level {int(np.argmax(~np.isfinite(b)))}, "
            "expected finite values; check the learner's runs there"
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


def search(
    num_train: int,
    injections: ArrayLike,
    losses: ArrayLike,
    candidates: Sequence[float],
    purities: Sequence[float] | None = None,
    rule: SearchRule = "largest_consistent",
    regularisation: Regularisation | None = None,
) -> B3Fit:
    """Solves A e = b for each candidate p_0 and chooses one by the residuals.

    Args:
      num_train: n'.
      injections: increasing doses q [levels].
      losses: b [levels].
      candidates: values of p_0 to try.
      purities: r for each candidate; 1 for all by default.
      rule: `largest_consistent` chooses the largest p_0 with the smallest sum of squares up to noise;
        `smallest_residual` chooses the smallest sum of squares, which is always that of the smallest
        candidate if e is monotone (see `stats.b3.model`).
      regularisation: as in `solve`.

    Raises:
      DataError: there are no candidates, or one is out of range.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> levels = stats.b3.leakage_levels(0.1, np.linspace(0, 1, 21))
      >>> by_count = 0.5 - 0.02 * np.arange(11)  # loss with 0 to 10 samples of the own cluster
      >>> losses = stats.b3.binomial_matrix(10, levels) @ by_count
      >>> fit = stats.b3.search(10, np.linspace(0, 1, 21), losses, [0.05, 0.1, 0.2])
      >>> 0.4 < fit.e_0 < 0.7
      True

    See also: `estimate`, `solve`.

    Reference: Barnes & Dubrawski (2017), The Binomial Block Bootstrap Estimator for Evaluating Loss on
    Dependent Clusters.
    """
    values = np.asarray(candidates, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise DataError("found no candidates for p_0; give at least one, such as 0.1")
    check_choice("search rule", rule, SearchRule)
    pure = np.ones(len(values)) if purities is None else np.asarray(purities, dtype=np.float64)
    if pure.shape != values.shape:
        raise DataError(f"found {len(pure)} purities for {len(values)} candidates of p_0")
    order = np.argsort(values, kind="stable")
    values, pure = values[order], pure[order]
    fits = [
        replace(
            solve(num_train, leakage_levels(p_0, injections, r), losses, regularisation),
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
    """Estimates the variance of the noise of b [levels] around a smooth curve.

    Differences of order k (here 4) of independent noise have (2k choose k) times the noise's variance,
    whereas those of a smooth curve are almost 0.
    """
    from scipy.special import comb

    b = np.asarray(losses, dtype=np.float64)
    order = min(4, len(b) - 1)
    if order < 1:
        return 0.0
    return float(np.mean(np.diff(b, order) ** 2) / comb(2 * order, order))


# --- The distribution of the loss ---------------------------------------------------------------


class LossHistogram(NamedTuple):
    """The distribution of the loss on new clusters.

    Attributes:
      edges: edges of the bins [bins + 1].
      probabilities: probabilities of a loss on a new cluster [bins], with sum 1.
      by_count: probabilities if j of n' training samples are from the test sample's cluster [n' + 1, bins];
        the first row is `probabilities`.
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
    """Estimates the distribution of losses on new clusters, not only their mean.

    The indicator that a loss reaches an inner edge is a 0/1 loss, and is solved like one; with a monotone e,
    training samples of the test sample's cluster do not make large losses more likely. Isotonic regression
    over edges at each j then makes the solutions monotone over edges (and preserves the order over j), so
    that probabilities of bins are not negative and sum to 1.

    Args:
      leakages: p_i [levels], as `B3Fit.leakages`.
      losses: single losses [levels, draws] or [levels, draws, tests], as `B3Result.losses`.
      edges: increasing edges of the bins [bins + 1]; as in NumPy a bin includes its lower edge, and the last
        bin both edges.
      regularisation: as in `solve`, but with the bounds 0 and 1.
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
        reached[:, column] = np.clip(solve(num_train, leakages, share, rules).e, 0, 1)
    for row in reached:
        row[1:-1] = isotonic_regression(row[1:-1], increasing=False).x if len(row) > 2 else []
    bins = -np.diff(reached, axis=1)
    return LossHistogram(limits, bins[0], bins)
