"""Variances of a mean over seeds and examples: the bootstrap's, in closed form, and an unbiased
one.

X[i, j] is the score of seed i on example j, its runs averaged. For a metric that is no plain mean X
holds pseudo-values: the run's score plus the influence of the example, so that the same formulas
give the delta method's variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluate.metrics import Metric
from stats.arms import Arm, DataError

Array = NDArray[np.float64]
Resample = Literal["both", "seeds", "examples"]
Term = tuple[float, float]  # a share of a variance, its degrees of freedom


@dataclass(frozen=True)
class Deviations:
    """A table of scores taken apart.

    Attributes:
        mean: the grand mean.
        seed: deviations of seeds [R].
        example: deviations of examples [C].
        residual: what is left [R, C].
    """

    mean: float
    seed: Array
    example: Array
    residual: Array

    @property
    def residual_squares(self) -> float:
        return float(np.einsum("ij,ij->", self.residual, self.residual))


@dataclass(frozen=True)
class VarianceEstimate:
    """An estimated variance of a mean or difference, with Satterthwaite's degrees of freedom."""

    variance: float
    degrees_of_freedom: float


def deviations(scores: ArrayLike) -> Deviations:
    """Takes scores [R, C] apart into grand mean, rows, columns and residuals."""
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise DataError(f"found scores of shape {table.shape}, expected [seeds, examples]")
    mean = table.mean()
    seed = table.mean(axis=1) - mean
    example = table.mean(axis=0) - mean
    return Deviations(float(mean), seed, example, table - mean - seed[:, None] - example)


def pseudo_values(metric: Metric, labels: NDArray, predictions: NDArray) -> Array:
    """Per-example values whose mean is the score and whose spread is that of its linear part.

    For a metric that is a mean these are its column itself. Else the score + gradient of the finish
    at the mean of the columns, times the centred columns (the infinitesimal jackknife).

    Args:
        metric: columns and a finish.
        labels: [examples].
        predictions: [..., examples].

    Returns:
        float64 [..., examples].
    """
    columns = metric.columns(labels, predictions)  # [..., examples, K]
    if metric.mean_of is not None:
        return columns[..., metric.mean_of]
    means = columns.mean(axis=-2)
    centred = columns - means[..., None, :]
    influence = np.einsum(
        "...jk,...k->...j", centred, _gradient(metric, means, columns.std(axis=-2))
    )
    return metric.finish(means)[..., None] + influence


def _gradient(metric: Metric, means: Array, spreads: Array) -> Array:
    """Central differences of the finish at `means` [..., K], with steps in proportion to `spreads`
    [..., K].

    A column without spread has no influence, whatever its gradient: it is left 0.
    """
    gradient = np.zeros_like(means)
    relative = np.finfo(np.float64).eps ** (1 / 3)
    for column in range(means.shape[-1]):
        step = relative * spreads[..., column]
        above, below = means.copy(), means.copy()
        above[..., column] += step
        below[..., column] -= step
        width = above[..., column] - below[..., column]
        moved = width > 0
        difference = metric.finish(above) - metric.finish(below)
        gradient[..., column] = np.where(moved, difference / np.where(moved, width, 1.0), 0.0)
    return gradient


def seed_table(metric: Metric, arm: Arm) -> Array:
    """Pseudo-values with the runs of each seed averaged: float64 [seeds, examples]."""
    return arm.seed_weights.T @ pseudo_values(metric, arm.labels, arm.predictions)


def bootstrap_variance(scores: ArrayLike, resample: Resample = "both") -> float:
    """The exact variance of the Multi-Bootstrap distribution of the mean of scores [R, C].

    For a paired comparison give the difference of the two tables.
    """
    parts = deviations(scores)
    num_seeds, num_examples = parts.residual.shape
    seeds = float(parts.seed @ parts.seed) / num_seeds**2
    examples = float(parts.example @ parts.example) / num_examples**2
    both = parts.residual_squares / (num_seeds * num_examples) ** 2
    return {"seeds": seeds, "examples": examples, "both": seeds + examples + both}[resample]


def bootstrap_variance_unpaired(
    base: ArrayLike,
    experiment: ArrayLike,
    resample: Resample = "both",
    shared_examples: bool = True,
) -> float:
    """The exact variance of the bootstrap distribution of a difference whose arms draw their own
    seeds.

    Args:
        base: [R, C].
        experiment: [R', C]; [R', C'] without shared examples.
        resample: what is resampled.
        shared_examples: one draw of examples for both arms.
    """
    if not shared_examples:
        return bootstrap_variance(base, resample) + bootstrap_variance(experiment, resample)
    first, second = deviations(base), deviations(experiment)
    _check_shared(first, second)
    seeds = bootstrap_variance(base, "seeds") + bootstrap_variance(experiment, "seeds")
    difference = second.example - first.example
    examples = float(difference @ difference) / len(difference) ** 2
    residual = sum(parts.residual_squares / parts.residual.size**2 for parts in (first, second))
    return {"seeds": seeds, "examples": examples, "both": seeds + examples + residual}[resample]


def _check_shared(first: Deviations, second: Deviations) -> None:
    if len(first.example) != len(second.example):
        raise DataError(
            f"base has {len(first.example)} examples and experiment {len(second.example)}, "
            "expected the same"
        )


def unbiased_variance(scores: ArrayLike, resample: Resample = "both") -> VarianceEstimate:
    """An unbiased estimate of the true variance of the mean of scores [R, C].

    Seeds and examples are random samples, or one of them is held fixed. With mean squares A of
    seeds, B of examples and E of residuals, the estimate is (A + B - E) / (R C), never below A's or
    B's share alone. For a paired comparison give the difference of the two tables.

    Raises:
        DataError: what is resampled has one level only.
    """
    parts = deviations(scores)
    groups: list[list[Term]] = []
    if resample in ("both", "seeds"):
        groups.append([_seed_term(parts)])
    if resample in ("both", "examples"):
        groups.append([_example_term(parts.example)])
    return _combine(groups, [_residual_term(parts)] if resample == "both" else [])


def unbiased_variance_unpaired(
    base: ArrayLike,
    experiment: ArrayLike,
    resample: Resample = "both",
    shared_examples: bool = True,
) -> VarianceEstimate:
    """An unbiased estimate of the true variance of a difference whose arms have seeds of their own.

    Args:
        base: [R, C].
        experiment: [R', C]; [R', C'] without shared examples.
        resample: what varies; the other is held fixed.
        shared_examples: both arms were scored on the same examples.

    Raises:
        DataError: what is resampled has one level only.
    """
    arms = (deviations(base), deviations(experiment))
    groups: list[list[Term]] = []
    if resample in ("both", "seeds"):
        groups.append([_seed_term(parts) for parts in arms])
    if resample in ("both", "examples"):
        if shared_examples:
            _check_shared(*arms)
            groups.append([_example_term(arms[1].example - arms[0].example)])
        else:
            groups.append([_example_term(parts.example) for parts in arms])
    return _combine(groups, [_residual_term(parts) for parts in arms] if resample == "both" else [])


def _seed_term(parts: Deviations) -> Term:
    """The share of the seeds' mean square in the variance, and its degrees of freedom."""
    number = len(parts.seed)
    if number < 2:
        raise DataError(
            "found one seed, and its spread cannot be known; add seeds or resample examples"
        )
    return float(parts.seed @ parts.seed) / (number * (number - 1)), number - 1


def _example_term(example: Array) -> Term:
    number = len(example)
    if number < 2:
        raise DataError("found one example, and its spread cannot be known; add examples")
    return float(example @ example) / (number * (number - 1)), number - 1


def _residual_term(parts: Deviations) -> Term:
    num_seeds, num_examples = parts.residual.shape
    freedom = (num_seeds - 1) * (num_examples - 1)
    return parts.residual_squares / (freedom * num_seeds * num_examples), freedom


def _combine(groups: list[list[Term]], subtracted: list[Term]) -> VarianceEstimate:
    """A sum of independent mean squares with Satterthwaite's degrees of freedom.

    Where the residual is large the difference can fall below the seeds' or the examples' share,
    which it contains; the larger of these then stands.
    """
    everything = [term for group in groups for term in group]
    total = sum(value for value, _ in everything) - sum(value for value, _ in subtracted)
    shares = [sum(value for value, _ in group) for group in groups]
    guarded = max(total, *shares)
    spread = sum(value**2 / freedom for value, freedom in everything + subtracted)
    if spread == 0:
        return VarianceEstimate(0.0, float(min(freedom for _, freedom in everything)))
    # Where the residual all but hides the rest, the formula can fall below one degree of freedom.
    return VarianceEstimate(guarded, max(1.0, guarded**2 / spread))
