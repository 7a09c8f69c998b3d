"""Hedges' g: the difference relative to the spread of seeds.

Reference: Hedges (1981), Distribution theory for Glass's estimator of effect size and related estimators.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A spread this small relative to the scores is rounding.
_RELATIVE_ROUNDING = 1e-14


def hedges_g(
    base: NDArray[np.float64], experiment: NDArray[np.float64], paired: bool
) -> float | None:
    """Returns the difference in pooled standard deviations of seeds; of pairs in those of their differences.

    It is corrected for the bias that few seeds give it (exactly, for normal scores).

    Args:
      base: the score of each seed, its runs averaged [R].
      experiment: the same [R']; if paired, in the same order of seeds.

    Returns:
      The size; None without spread, or with one degree of freedom, where there is no correction.
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
    """Computes Gamma(m / 2) / (sqrt(m / 2) Gamma((m - 1) / 2)), the exact correction."""
    from scipy.special import gammaln

    half = degrees_of_freedom / 2
    return float(np.exp(gammaln(half) - gammaln(half - 0.5)) / np.sqrt(half))
