"""Hedges' g: a difference relative to the spread of seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A smaller spread, relative to the scores, is rounding error.
_RELATIVE_ROUNDING = 1e-14


def hedges_g(
    base: NDArray[np.float64], experiment: NDArray[np.float64], paired: bool
) -> float | None:
    """Returns Hedges' g: the difference in pooled standard deviations of seeds (of pairs, if paired).

    g includes the correction for the bias of few seeds, which is exact for normal scores.

    Args:
      base: scores of the base's seeds, averaged over the runs of each seed [R].
      experiment: scores of the experiment's seeds [R'], in the same order of seeds if paired.

    Returns:
      g; None if there is no spread, or only one degree of freedom, for which there is no correction.
    """
    samples = [experiment - base] if paired else [base, experiment]
    freedom = sum(len(sample) - 1 for sample in samples)
    if freedom < 2:
        return None
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in samples)
    spread = float(np.sqrt(squares / freedom))
    if spread <= _RELATIVE_ROUNDING * float(np.abs([*base, *experiment]).max()):
        return None
    return float(experiment.mean() - base.mean()) / spread * bias_factor(freedom)


def bias_factor(degrees_of_freedom: float) -> float:
    """Computes the exact correction Gamma(m / 2) / (sqrt(m / 2) Gamma((m - 1) / 2))."""
    from scipy.special import gammaln

    half = degrees_of_freedom / 2
    return float(np.exp(gammaln(half) - gammaln(half - 0.5)) / np.sqrt(half))
