"""How losses on new clusters are distributed, by B3; `stats.b3.model` has the model."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.b3.fit import solve_b3
from multiberts.stats.b3.trend_filter import Regularisation
from multiberts.stats.bootstrap.arms import DataError

Floats = NDArray[np.float64]


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
