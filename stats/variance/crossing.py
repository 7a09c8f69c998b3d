"""Variances of a sum of mean scores whose seeds and examples are drawn jointly or separately.

Every design is a sum of weighted tables. Each table draws its seeds from a pool and its examples from a
set: a paired difference is one table of differences, an unpaired difference two tables with a common set,
and a macro-average of tasks many tables with a common pool. All variances follow from three kinds of
independent draws: seeds of a pool, examples of a set, and both together. The formulas give the variance of
the bootstrap distribution and an unbiased estimate of the true variance.

Reference: Sellam et al. (2022), section 3.2, for the bootstrap of one table; Satterthwaite (1946) for
degrees of freedom; Gaylor & Hopper (1969), Estimating the degrees of freedom for linear combinations of
mean squares by Satterthwaite's formula, for a mean square that is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from multiberts.stats.errors import DataError
from multiberts.stats.variance.score_tables import Array, Deviations, TablePart, summed_table

Term = tuple[Any, float]  # a term of a variance (or draws of it [D]) and its degrees of freedom

# Quantile of F up to which two mean squares with equal degrees of freedom are pooled. With this preliminary
# test at 20 % (two-sided) the coverage is above .93 if the standard deviations of the arms' seeds differ by a
# factor of up to 3.
_ALIKE = 0.9


@dataclass(frozen=True)
class VarianceEstimate:
    """An estimated variance of a mean or difference.

    Attributes:
      degrees_of_freedom: Satterthwaite's degrees of freedom.
      cautious_degrees_of_freedom: degrees of freedom for t intervals and tests: Satterthwaite's formula with
        mean squares at the upper end of their likely range, because a few seeds can be similar by chance.
        Equal to `degrees_of_freedom` if only one kind of draw from one pool or set varies.
      pooled: whether the mean squares of two arms with equal numbers of seeds were similar enough to be
        pooled in the cautious degrees of freedom (2R - 2 instead of Welch's).
    """

    variance: float
    degrees_of_freedom: float
    cautious_degrees_of_freedom: float
    pooled: bool = False


@dataclass(frozen=True)
class VarianceParts:
    """The independent mean squares of a variance, as terms with degrees of freedom.

    Attributes:
      seeds: terms of the pools of seeds, each with a share of the residual.
      examples: terms of the sets of examples, each with a share of the residual.
      residual: terms of the tables in which both seeds and examples are drawn.
    """

    seeds: tuple[Term, ...]
    examples: tuple[Term, ...]
    residual: tuple[Term, ...]

    def estimate(self, independent: bool = True) -> VarianceEstimate:
        """Returns the estimated variance; arrays [D] if the mean squares are draws.

        Args:
          independent: whether mean squares are independent; False if they share a prior, so that their
            degrees of freedom do not add up.
        """
        groups = [list(terms) for terms in (self.seeds, self.examples) if terms]
        return _combined(groups, list(self.residual), independent)

    def scaled(self, seeds: float, examples: float) -> VarianceEstimate:
        return self.resized(seeds, examples).estimate()

    def resized(self, seeds: float, examples: float) -> VarianceParts:
        """Returns the expected mean squares with the numbers of seeds and examples multiplied."""
        # The residual decreases with both numbers, the remainder of a term with only one of them.
        shared = sum(value for value, _ in self.residual)
        both = seeds * examples
        growth = 1.0
        groups: list[tuple[Term, ...]] = []
        for terms, times in ((self.seeds, seeds), (self.examples, examples)):
            total = sum(value for value, _ in terms)
            beyond = np.maximum(total - shared, 0.0)
            varies = np.asarray(total > 0)
            shrunk = (beyond / times + (total - beyond) / both) / np.where(varies, total, 1.0)
            factor = _number(np.where(varies, shrunk, 1.0))
            groups.append(tuple((value * factor, times * (df + 1) - 1) for value, df in terms))
            fewest = min((df for _, df in terms), default=1.0)
            growth *= (times * (fewest + 1) - 1) / fewest
        residual = tuple((value / both, growth * df) for value, df in self.residual)
        return VarianceParts(groups[0], groups[1], residual)

    @property
    def seed_share(self) -> float:
        """Returns the share of the variance that is only reduced by more seeds."""
        total = self.scaled(1, 1).variance
        seeds, error = (sum(value for value, _ in terms) for terms in (self.seeds, self.residual))
        return max(seeds - error, 0.0) / total if total else 0.0


class Crossing:
    """A sum of weighted tables, and the variances of its mean.

    Parts with the same pool and set, such as the arms of a paired comparison, are first summed cell by
    cell, because their residuals are drawn together.
    """

    def __init__(self, parts: Sequence[TablePart], prior: Term = (0.0, 0.0)):
        """Sums parts with the same pool and set.

        Args:
          prior: variance between seeds from another source, and its degrees of freedom. The prior replaces
            the unknown variance of pools with one seed. Without such pools, each pool's variance is averaged
            with the prior, weighted by degrees of freedom (Smyth, 2004).
        """
        self.prior = prior
        together: dict[object, list[TablePart]] = {}
        for position, part in enumerate(parts):
            apart = part.pool is None or part.examples is None
            together.setdefault(position if apart else (part.pool, part.examples), []).append(part)
        self.parts = tuple(_summed(group) for group in together.values())

    @cached_property
    def deviations(self) -> list[Deviations]:
        return [part.table.deviations for part in self.parts]

    def _sums(
        self, key: Callable[[TablePart], str | None], value: Callable[[Deviations], Array]
    ) -> dict[str, Array]:
        """Sums the weighted deviations of the parts of each pool or set."""
        sums: dict[str, Array] = {}
        for part, split in zip(self.parts, self.deviations, strict=True):
            name = key(part)
            if name is not None:
                weighted = value(split)
                if part.weight != 1:  # avoids a copy of a million examples
                    weighted = part.weight * weighted
                if name in sums and len(sums[name]) != len(weighted):
                    raise DataError(
                        f"found tables of {len(sums[name])} and {len(weighted)} {name}, expected "
                        "the same; align them first"
                    )
                sums[name] = sums[name] + weighted if name in sums else weighted
        return sums

    @cached_property
    def seeds(self) -> dict[str, Array]:
        """Returns the deviation of each seed in the sum by pool [R]."""
        return self._sums(lambda part: part.pool, lambda split: split.seed)

    @cached_property
    def examples(self) -> dict[str, Array]:
        """Returns the deviation of each example in the sum by set [C]."""
        return self._sums(lambda part: part.examples, lambda split: split.example)

    @property
    def mean(self) -> float:
        """Returns the sum of the weighted means of the tables: the estimate."""
        pairs = zip(self.parts, self.deviations, strict=True)
        return float(sum(part.weight * split.mean for part, split in pairs))

    @property
    def _crossed(self) -> list[tuple[float, Deviations]]:
        """Returns squared weights and deviations of the parts with drawn seeds and examples."""
        return [
            (part.weight**2, split)
            for part, split in zip(self.parts, self.deviations, strict=True)
            if part.pool is not None and part.examples is not None
        ]

    def bootstrap_variance(self) -> float:
        """Returns the exact variance of the sum's bootstrap distribution (of its linear part)."""
        # Divide by n^2, not n (n - 1), because the bootstrap treats the sample as the population.
        main = sum(
            float(drawn @ drawn) / len(drawn) ** 2
            for drawn in (*self.seeds.values(), *self.examples.values())
        )
        return main + sum(
            weight * split.residual_squares / split.size**2 for weight, split in self._crossed
        )

    @cached_property
    def lone(self) -> list[str]:
        """Returns the pools with one seed, which use the prior; empty without a prior."""
        return [pool for pool, seeds in self.seeds.items() if len(seeds) == 1 and self.prior[1]]

    def unbiased_variance(self) -> VarianceEstimate:
        """Estimates the true variance of the sum without bias, with its degrees of freedom.

        For one table with mean squares A of seeds, B of examples and E of residuals the estimate is
        (A + B - E) / (R C), but at least the share of A or of B.
        """
        return self.variance_parts().estimate(independent=not self.prior[1])

    def variance_parts(self) -> VarianceParts:
        """Returns the independent mean squares of the unbiased variance."""
        cure = "add seeds or resample examples only"
        moderating = (0.0, 0.0) if self.lone else self.prior
        seeds = tuple(
            _main_term(seed, "seed", cure, moderating)
            for pool, seed in self.seeds.items()
            if pool not in self.lone
        )
        if self.lone:  # count the shared estimate once, because its error affects all pools alike
            variance, freedom = self.prior
            weights = [part.weight for part in self.parts if part.pool in self.lone]
            seeds = (*seeds, (sum(weight**2 * variance for weight in weights), freedom))
        examples = []
        for name, deviation in self.examples.items():
            parts = [part for part in self.parts if part.examples == name]
            value, freedom = _main_term(deviation, "example", "add some")
            if parts[0].sizes is not None:
                value, freedom = _cluster_term(deviation, parts[0].sizes)
            factor = max(map(self._factor, parts))
            shares = [part.scored for part in parts if part.scored]
            freedom = min([freedom, *map(_freedom_of_shares, shares)])
            examples.append((factor * value, freedom))
        residual = []
        for part, split in zip(self.parts, self.deviations, strict=True):
            crossed = part.pool is not None and part.examples is not None
            if crossed and part.pool not in self.lone:
                value, freedom = _residual_term(split)
                if part.scored:
                    freedom = min(freedom, (len(split.seed) - 1) * _freedom_of_shares(part.scored))
                residual.append((self._factor(part) * part.weight**2 * value, freedom))
        return VarianceParts(seeds, tuple(examples), tuple(residual))

    def _factor(self, part: TablePart) -> float:
        """Returns the factor of a table's variances over examples; 1 if all examples count."""
        if not part.scored:
            return 1.0
        # (C - 1) / C turns the unbiased mean square into the plug-in estimate, which the factor corrects.
        number = part.table.shape[1]
        return max(1.0, (number - 1) / number * _ratio_factor(part.scored))

    def tail_freedom(self) -> float:
        """Computes the cautious degrees of freedom with those of examples lowered for heavy tails."""
        parts = self.variance_parts()
        examples = tuple(
            (value, _heavy_tailed_freedom(values, freedom))
            for (value, freedom), values in zip(parts.examples, self.examples.values(), strict=True)
        )
        return replace(parts, examples=examples).estimate().cautious_degrees_of_freedom

    @property
    def example_error(self) -> float:
        """Returns the standard error from examples alone, with the seeds held fixed."""
        return math.sqrt(sum(value for value, _ in self.variance_parts().examples))


def _summed(parts: Sequence[TablePart]) -> TablePart:
    if len(parts) == 1:
        return parts[0]
    table = summed_table([part.table for part in parts], [part.weight for part in parts])
    scored = max((part.scored for part in parts), key=_ratio_factor)
    return replace(parts[0], table=table, weight=1.0, scored=scored)


def _ratio_factor(scored: tuple[float, ...]) -> float:
    """Returns the ratio of the variance of ratios with few examples to its plug-in estimate.

    For one ratio of n examples it is n / (n - 1). Averaged ratios are weighted by their variances, about 1
    / n.
    """
    if not scored:
        return 1.0
    # n can be 1, where a variance has no degrees of freedom: .5 keeps the factor finite.
    return sum(1 / max(n - 1, 0.5) for n in scored) / sum(1 / n for n in scored)


def _freedom_of_shares(scored: tuple[float, ...]) -> float:
    """Returns the degrees of freedom of the variance of an average of ratios of n examples each.

    Satterthwaite's formula, for variances of about 1 / n with n - 1 degrees of freedom.
    """
    total = sum(1 / n for n in scored)
    return max(1.0, total**2 / sum(1 / n**2 / max(n - 1, 0.5) for n in scored))


def _main_term(deviation: Array, unit: str, cure: str, prior: Term = (0.0, 0.0)) -> Term:
    """Returns the term of the seeds' or examples' mean square, from their deviations [n]."""
    number = len(deviation)
    if number < 2:
        raise DataError(f"found one {unit}, expected two or more to estimate their spread; {cure}")
    share, freedom = float(deviation @ deviation) / (number * (number - 1)), number - 1
    variance, weight = prior
    if not weight:
        return share, freedom
    return (freedom * share + weight * variance / number) / (freedom + weight), freedom + weight


def _cluster_term(deviation: Array, sizes: Array) -> Term:
    """Returns the term of the clusters' mean square, from their deviations [G] and numbers of examples.

    It is the jackknife's: leaving out cluster g of weight w changes the score by d / (G (1 - w)), because a
    large cluster pulls the score towards its mean. If all cluster means vary equally, Satterthwaite's
    degrees of freedom are those of the few large clusters; if examples vary within clusters, they are
    nearly G - 1. The geometric mean of the two covers .93 to .97 in simulations of both kinds
    (docs/calibration.md). Clusters of equal size have the plain mean square with G - 1.

    Reference: Bell & McCaffrey (2002), Bias reduction in standard errors for linear regression with
    multi-stage samples.
    """
    number, weights = len(deviation), sizes / sizes.sum()
    without = deviation / (number * (1 - weights))
    share = (number - 1) / number * float(without @ without)
    # The form of the cluster means m is m' A m, A = M' diag(a) M, M = I - 1 w'; its degrees of freedom
    # are (tr A)^2 / tr(A^2).
    a, together = (weights / (1 - weights)) ** 2, float(weights @ weights)
    trace = float(a @ (1 - 2 * weights + together))
    first, second = float(a @ weights), float(a @ weights**2)
    squares = (
        2 * a.sum() * second
        + (together * a.sum()) ** 2
        + 2 * first**2
        - 4 * together * a.sum() * first
        + float(a**2 @ (1 + 2 * (together - 2 * weights)))
    )
    return share, math.sqrt(trace**2 / squares * (number - 1))


def _heavy_tailed_freedom(deviation: Array, freedom: float) -> float:
    """Lowers the degrees of freedom of the mean square of deviations [n] for heavy tails.

    With excess kurtosis k, n - 1 becomes 2 / (2 / (n - 1) + k / n): about two if one example carries all
    variance, such as a single wrong answer. Light tails change nothing.

    Reference: Box (1953), Non-normality and tests on variances.
    """
    squares = deviation**2
    mean = float(squares.mean())
    excess = max(float((squares**2).mean()) / mean**2 - 3, 0.0) if mean else 0.0
    return freedom / (1 + excess * freedom / (2 * len(deviation)))


def _residual_term(parts: Deviations) -> Term:
    freedom = (len(parts.seed) - 1) * (len(parts.example) - 1)
    return parts.residual_squares / (freedom * parts.size), freedom


def _combined(
    groups: list[list[Term]], subtracted: list[Term], independent: bool
) -> VarianceEstimate:
    """Sums independent mean squares and computes the degrees of freedom.

    If the residual is large, the difference can fall below the seeds' or the examples' share, which it
    contains; the larger of these is then used.

    The summed variance of two means of R seeds has 2R - 2 degrees of freedom if the seeds' variances are
    equal. Welch's formula gives R - 1 to 2R - 2, and often near R - 1 by chance, so two similar mean
    squares are pooled in the cautious degrees of freedom.

    Args:
      groups: terms of seeds and terms of examples to add.
    """
    from scipy.special import fdtri

    satterthwaite = _freedom(groups, subtracted)
    cautious, alike = _cautious(groups, subtracted), np.asarray(False)
    if independent and len(groups[0]) == 2 and groups[0][0][1] == groups[0][1][1]:
        (first, freedom), (second, _) = groups[0]
        alike = np.maximum(first, second) <= fdtri(freedom, freedom, _ALIKE) * np.minimum(
            first, second
        )
        together = [[(first + second, 2 * freedom)], *groups[1:]]
        cautious = np.where(alike, _cautious(together, subtracted), cautious)
    return VarianceEstimate(
        _number(_guarded(groups, subtracted)), satterthwaite, _number(cautious), bool(alike.all())
    )


def _cautious(groups: list[list[Term]], subtracted: list[Term]) -> Any:
    """Computes degrees of freedom for t intervals and tests.

    A mean square with few degrees of freedom is often far too small by chance, and Satterthwaite's formula
    then follows the other one, which has many: with three seeds that carry nine tenths of the variance, 7.7
    % of tests at the 5 % level would err. If seeds and examples both vary, we therefore assume that each
    mean square lies at the lower quartile of its distribution. Generalised intervals, which draw mean
    squares from their whole range, are about as wide (docs/calibration.md).

    With five seeds or more the quantile .40, and a mean square below the residual's pooled with it, would
    give intervals that are 2 to 5 % narrower and cover .944 at 95 %. We do not use this, because tests at
    lower levels, such as Holm's, would err too often: with five seeds twice as often as nominal at .01 and
    eight times at .001, against 1.2 and 2.5 times (table in docs/calibration.md).
    """
    if len(groups) == 1:
        return _freedom(groups, subtracted)
    return _freedom([[_likely(term) for term in group] for group in groups], subtracted)


def _freedom(groups: list[list[Term]], subtracted: list[Term]) -> Any:
    """Computes Satterthwaite's degrees of freedom of a guarded sum."""
    everything = [term for group in groups for term in group]
    spread = np.asarray(sum(value**2 / freedom for value, freedom in everything + subtracted))
    varies = spread > 0
    # If the residual nearly hides the rest, the formula can fall below one degree of freedom. Satterthwaite
    # (1946): (sum a_i)^2 / sum(a_i^2 / f_i), for shares a_i with f_i degrees of freedom.
    df = np.maximum(1.0, _guarded(groups, subtracted) ** 2 / np.where(varies, spread, 1.0))
    return _number(np.where(varies, df, min(freedom for _, freedom in everything)))


def _guarded(groups: list[list[Term]], subtracted: list[Term]) -> Any:
    shares = [sum(value for value, _ in group) for group in groups]
    total = sum(shares) - sum(value for value, _ in subtracted)
    for share in shares:
        total = np.maximum(total, share)
    return total


def _number(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value


def _likely(term: Term) -> Term:
    """Increases a mean square, so that its expectation is below it with probability 3/4."""
    from scipy.special import chdtri

    value, freedom = term
    # value = s^2 f / f; chdtri(f, .75) is the lower quartile of chi-squared with f degrees, exceeded by 75 %.
    return value * freedom / float(chdtri(freedom, 0.75)), freedom
