"""Effect sizes: differences relative to the spread of seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

# A spread this small relative to the scores is rounding.
_RELATIVE_ROUNDING = 1e-14


@dataclass(frozen=True)
class EffectSizes:
    """Sizes of the difference experiment - base, from one score per seed.

    Attributes:
      relative_difference: the difference over the size of the base's mean; None where that is 0.
      cohens_d: the difference over the pooled standard deviation of seeds; of paired seeds d_z,
        over the standard deviation of their differences. None where there is no spread or one
        seed.
      hedges_g: `cohens_d` corrected for its bias with few seeds (exact for normal scores). None
        also with a single degree of freedom, where no correction exists.
      probability_of_superiority: the chance that a seed of the experiment scores above one of
        the base, ties counted half; of paired seeds, above its own pair.
      cliffs_delta: 2 probability_of_superiority - 1.
    """

    relative_difference: float | None
    cohens_d: float | None
    hedges_g: float | None
    probability_of_superiority: float
    cliffs_delta: float


def effect_sizes(
    base_seed_scores: ArrayLike, experiment_seed_scores: ArrayLike, paired: bool
) -> EffectSizes:
    """Computes the effect sizes of a difference.

    Args:
      base_seed_scores: the score of each seed, its runs averaged [R].
      experiment_seed_scores: the same [R']; if paired, in the same order of seeds.
      paired: whether the two arms have the same seeds.
    """
    base = np.asarray(base_seed_scores, dtype=np.float64)
    experiment = np.asarray(experiment_seed_scores, dtype=np.float64)
    difference = float(experiment.mean() - base.mean())
    differences = experiment - base if paired else experiment[:, None] - base
    samples = [differences] if paired else [base, experiment]
    freedom = sum(len(sample) - 1 for sample in samples)
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in samples)
    spread = float(np.sqrt(squares / freedom)) if freedom else 0.0
    is_rounding = spread <= _RELATIVE_ROUNDING * float(np.abs([*base, *experiment]).max())
    cohens_d = None if is_rounding else difference / spread
    superiority = float(np.mean(np.sign(differences)) + 1) / 2
    return EffectSizes(
        relative_difference=difference / abs(float(base.mean())) if base.mean() else None,
        cohens_d=cohens_d,
        hedges_g=None if cohens_d is None or freedom < 2 else cohens_d * bias_factor(freedom),
        probability_of_superiority=superiority,
        cliffs_delta=2 * superiority - 1,
    )


def bias_factor(degrees_of_freedom: float) -> float:
    """Computes Gamma(m / 2) / (sqrt(m / 2) Gamma((m - 1) / 2)), Hedges' exact correction of d."""
    from scipy.special import gammaln

    half = degrees_of_freedom / 2
    return float(np.exp(gammaln(half) - gammaln(half - 0.5)) / np.sqrt(half))
