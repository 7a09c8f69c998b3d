"""Variance as a function of bias, to compare the noise of sizes on examples of equal difficulty.

Zhong, Ghosh, Klein and Steinhardt, "Are Larger Pretrained Language Models Uniformly Better?"
(Findings of ACL 2021), section 6 and appendix I. Variance depends strongly on the difficulty of an example,
so sizes are compared at equal squared bias, by Gaussian process regression over the examples.

An exact Gaussian process over n examples needs n^2 memory and n^3 time, too much for a test set of 10,000 or
more. Examples are therefore grouped by bias, and the process is fitted to the means of the groups, with the
variance of each mean as its noise. Little information is lost if groups are much narrower than the length
scale of the curve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.papers.zhong.decomposition import decompose
from multiberts.papers.zhong.ensembles import Runs, as_runs
from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class VarianceCurve:
    """Expected variance given squared bias.

    Attributes:
      grid: squared biases [points].
      mean: expected variance [points].
      low, high: pointwise 95 % band for the expected variance [points].
    """

    grid: Array
    mean: Array
    low: Array
    high: Array


def variance_curve(
    bias_squared: ArrayLike, variance: ArrayLike, num_bins: int = 60
) -> VarianceCurve:
    """Fits the expected variance as a smooth function of squared bias.

    The kernel is squared exponential in the absolute bias (negative estimates keep their sign), because near
    0 the variance would be infinitely steep as a function of squared bias. The noise of each group is
    computed from its spread; amplitude and length scale maximise the marginal likelihood. Estimate the two
    arguments from different runs, as in `conditional_variance`, because otherwise noise that raises one
    lowers the other.

    Args:
      bias_squared: squared bias [examples].
      variance: [examples].
      num_bins: number of groups with about equal numbers of examples; examples with equal bias are in one
        group.
    """
    from scipy.stats import norm

    x, y = np.asarray(bias_squared, dtype=float), np.asarray(variance, dtype=float)
    if x.ndim != 1 or x.shape != y.shape:
        raise DataError(f"found shapes {x.shape} and {y.shape}, expected [examples] twice")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("found a bias or variance that is not finite; leave such examples out")
    bias, means, errors = groups_by_bias(x, y, num_bins)
    centre, spread = means.mean(), means.std() or 1.0
    positions = _absolute(bias)
    points = np.linspace(max(x.min(), 0.0), x.max(), 101)
    fitted, deviation = _gaussian_process(
        positions, (means - centre) / spread, (errors / spread) ** 2, _absolute(points)
    )
    mean, reach = (centre + spread * fitted, norm.ppf(0.975) * spread * deviation)
    return VarianceCurve(points, mean, mean - reach, mean + reach)


def _gaussian_process(x: Array, y: Array, noise: Array, points: Array) -> tuple[Array, Array]:
    """Predicts by a Gaussian process, with a squared exponential kernel of maximum marginal likelihood.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), Algorithm 2.1 and
    equation 5.9.

    Args:
      x: [groups], increasing.
      y: [groups].
      noise: variance of each y [groups].

    Returns:
      Mean and standard deviation [points].
    """
    from scipy.linalg import cho_factor, cho_solve, solve_triangular
    from scipy.optimize import minimize

    squares = (x[:, None] - x[None]) ** 2

    def negative_log_likelihood(logarithms: Array) -> tuple[float, Array]:
        variance, length = np.exp(logarithms)
        kernel = variance * np.exp(-0.5 * squares / length**2)
        factor = cho_factor(kernel + np.diag(noise), lower=True)
        weights = cho_solve(factor, y)
        value = y @ weights / 2 + np.log(np.diag(factor[0])).sum()
        slopes = (kernel, kernel * squares / length**2)  # optimised on a log scale
        inner = cho_solve(factor, np.eye(len(x))) - np.outer(weights, weights)
        return value, np.array([(inner * slope).sum() / 2 for slope in slopes])

    width = x[-1] - x[0]
    # The length scale of a straight or flat curve is not finite, so it gets the upper limit.
    bounds = np.log([(1e-2, 1e3), (width / 20, width * 10)])
    start = np.log([1.0, width / 4])
    best = minimize(negative_log_likelihood, start, jac=True, method="L-BFGS-B", bounds=bounds)
    variance, length = np.exp(best.x).tolist()
    factor = cho_factor(variance * np.exp(-0.5 * squares / length**2) + np.diag(noise), lower=True)
    across = variance * np.exp(-0.5 * (points[:, None] - x[None]) ** 2 / length**2)
    explained = solve_triangular(factor[0], across.T, lower=True)
    left = np.maximum(variance - (explained**2).sum(0), 0.0)  # rounding can make it negative
    return across @ cho_solve(factor, y), np.sqrt(left)


def _absolute(bias_squared: Array) -> Array:
    return np.sign(bias_squared) * np.sqrt(np.abs(bias_squared))


def groups_by_bias(x: Array, y: Array, num_bins: int) -> tuple[Array, Array, Array]:
    """Computes the mean bias, the mean variance and its standard error for each group."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    starts = np.unique(np.searchsorted(x, x[np.arange(num_bins) * len(x) // num_bins]))
    counts = np.diff(np.append(starts, len(x)))
    if len(starts) < 3:
        raise DataError(
            f"found {counted(len(starts), 'group')} of examples that differ in bias, expected 3 or "
            "more; give more examples or more runs"
        )
    means = np.add.reduceat(y, starts) / counts
    squares = (y - np.repeat(means, counts)) ** 2
    # Add one example's share of the common spread, because the spread of small groups is uncertain.
    common = squares.sum() / (len(y) - len(starts)) if len(y) > len(starts) else y.var()
    spread = (np.add.reduceat(squares, starts) + common) / counts
    floor = 1e-8 * max(float(y.var()), np.finfo(float).tiny)
    errors = np.sqrt(np.maximum(spread, floor) / counts)
    return np.add.reduceat(x, starts) / counts, means, errors


def conditional_variance(
    runs: Runs, level: str = "finetune_seed", num_bins: int = 60
) -> VarianceCurve:
    """Fits the expected variance of one level given squared bias, from the runs of one size.

    The bias is estimated from a random half of the pre-training seeds and the variance from the other half,
    so that their noise is independent. The bias is noisy with few seeds.

    Args:
      runs: correctness or probabilities of the right answer, as a `RunsTable` or an array
        [pretrain_seeds, ..., examples], of 4 or more pre-training seeds.
      level: level of the variance, such as `finetune_seed`.
      num_bins: see `variance_curve`.

    Raises:
      DataError: there are fewer than 4 seeds, or no such level.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> random, chance = np.random.default_rng(0), np.linspace(0.1, 0.9, 100)
      >>> runs = random.random((6, 3, 100)) < chance  # seeds, runs, examples
      >>> curve = stats.zhong.conditional_variance(runs, num_bins=10)
      >>> bool((curve.low < curve.high).all())
      True

    See also: `decompose`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", appendix I.
    """
    nested = as_runs(runs)
    if level not in nested.levels:
        raise DataError(f"found no level {level}, only {', '.join(nested.levels)}")
    if len(nested.seeds) < 4:
        raise DataError(
            f"found {counted(len(nested.seeds), 'pre-training seed')}, expected 4 or more"
        )
    order = np.random.Generator(np.random.Philox(key=0)).permutation(len(nested.seeds))
    first, second = (
        decompose(nested.with_seeds([nested.seeds[row] for row in part]))
        for part in np.array_split(order, 2)
    )
    return variance_curve(first.bias_squared, second.variances[level], num_bins)
