"""Computes the result of a comparison from samples, exact variances and seed scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.compare.result import Comparison
from multiberts.stats.interval_rule import (
    AnswerPairs,
    ScoreKind,
    interval_of_difference,
    interval_of_score,
    interval_of_sum,
    percentile_interval,
)
from multiberts.stats.intervals import ConfidenceInterval, PValues
from multiberts.stats.results import ArmSummary, Origin, Pairing, WithoutFailed
from multiberts.stats.settings import ComparisonSettings
from multiberts.stats.significance import (
    bootstrap_p_values,
    permutation_p_values,
    published_p_values,
    sign_flip_p_values,
)
from multiberts.stats.variance.crossing import Crossing


@dataclass(frozen=True)
class Names:
    """Names of a comparison and its arms in tables and texts."""

    name: str = ""
    evaluation_set: str = ""
    base: str = "base"
    experiment: str = "experiment"


def concluded(
    arms: Sequence[ArmSummary],
    crossing: Crossing,
    samples: NDArray[np.float64],
    undefined: NDArray[np.bool_],
    settings: ComparisonSettings,
    names: Names,
    kind: ScoreKind,
    pairs: AnswerPairs | None = None,
    unpaired: Crossing | None = None,
    pairing: Pairing | None = None,
    not_failed: Crossing | None = None,
) -> Comparison:
    """Computes intervals and tests.

    Args:
      arms: base and, unless the design is single, experiment.
      crossing: tables whose sum is the estimate.
      samples: bootstrap scores [replicates, arms].
      undefined: whether a score was 0/0, bool [replicates, jobs].
      pairs: paired answers of the arms to the same examples.
      unpaired: crossing of the same tables with one pool of seeds per arm, for a paired design.
      pairing: see `Comparison`.
      not_failed: crossing without the failed seeds; None if no seed failed.
    """
    base = arms[0]
    experiment = arms[1] if len(arms) > 1 else None
    differences = samples[:, 0] if experiment is None else samples[:, 1] - samples[:, 0]
    estimate = base.estimate if experiment is None else experiment.estimate - base.estimate
    unbiased, parts = crossing.unbiased_variance(), crossing.variance_parts()
    standard_error = math.sqrt(unbiased.variance)
    level = settings.confidence_level
    bounds = kind.bounds
    width = bounds[1] - bounds[0]
    span = bounds if experiment is None else (-width, width)
    intervals = percentile_of(differences, level)
    p_values: dict[str, PValues] = {}
    if experiment is None:
        ci = interval_of_score(crossing, estimate, level, kind, base.num_scored)
    else:
        ci, p_values["t"] = interval_of_difference(
            arms, crossing, pairs, kind, settings.drawn, level
        )
        p_values["percentile"] = bootstrap_p_values(differences)
        p_values["published"] = published_p_values(differences)
        p_values |= _seed_tests(arms, settings)
    if unpaired is not None:
        intervals["unpaired"], p_values["unpaired"] = interval_of_difference(
            arms, unpaired, None, kind, settings.drawn, level
        )
    floor = _seed_floor(settings, [len(arm.seeds) for arm in arms])
    mean = float(differences.mean())
    return Comparison(
        name=names.name,
        evaluation_set=names.evaluation_set,
        metric=kind.metric,
        design=settings.design,
        resample=settings.drawn,
        base=base,
        experiment=experiment,
        num_examples=base.num_examples,
        estimate=estimate,
        ci=ci,
        standard_error=standard_error,
        df=unbiased.cautious_degrees_of_freedom,
        intervals=intervals,
        p_values=p_values,
        bootstrap_mean=mean,
        bias=mean - estimate,
        bootstrap_standard_error=math.sqrt(crossing.bootstrap_variance()),
        hedges_g=(
            hedges_g(base.seed_scores, experiment.seed_scores, settings.design == "paired")
            if experiment is not None and min(len(arm.seeds) for arm in arms) > 1
            else None
        ),
        seed_floor=floor,
        below_seed_floor=(
            floor is not None
            and "t" in p_values
            and parts.seed_share > 0.5
            and p_values["t"].two_sided < 1 - level
            and min(p_values["t"][:2]) < floor
        ),
        n_resamples=settings.n_resamples,
        rng=settings.rng,
        samples=samples,
        degenerate_replicates=int(undefined.any(axis=1).sum()),
        pairing=pairing,
        variance_parts=parts,
        pooled_seeds=unbiased.pooled and len(parts.seeds) == 2,
        without_failed=None if not_failed is None else without_failed(not_failed, level, span),
        origin=Origin(kind, crossing, pairs),
    )


def without_failed(crossing: Crossing, level: float, span: tuple[float, float]) -> WithoutFailed:
    """Returns the difference without failed seeds.

    Args:
      crossing: crossing without the failed seeds.
      level: level of the interval, in (0, 1).
      span: smallest and largest possible difference.
    """
    ci, p_values = interval_of_sum(crossing.mean, crossing.unbiased_variance(), level, span)
    return WithoutFailed(crossing.mean, ci, p_values.two_sided)


def percentile_of(
    samples: NDArray[np.float64], confidence_level: float
) -> dict[str, ConfidenceInterval]:
    ends = percentile_interval(samples, confidence_level)
    return {"percentile": ConfidenceInterval(*ends, confidence_level, "percentile")}


def _seed_tests(arms: Sequence[ArmSummary], settings: ComparisonSettings) -> dict[str, PValues]:
    """Tests paired seeds by sign flips and unpaired seeds by permutations."""
    first, second = (arm.seed_scores for arm in arms)
    if settings.resample == "examples":
        return {}
    if settings.design == "paired":
        return {"sign flip": sign_flip_p_values(second - first)}
    if settings.design == "unpaired":
        return {"permutation": permutation_p_values(first, second)}
    return {}


def _seed_floor(settings: ComparisonSettings, numbers: Sequence[int]) -> float | None:
    if settings.design == "single" or settings.resample == "examples":
        return None
    if settings.design == "unpaired":
        return 1 / math.comb(sum(numbers), numbers[0])
    return 2.0 ** -numbers[-1]


# --- Hedges' g ---

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
