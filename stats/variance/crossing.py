"""Variances of a sum of mean scores whose seeds and examples are drawn jointly or separately.

Every design is a sum of weighted tables. Each table has a pool that its seeds come from and a set
that its examples come from: a paired difference is one table (of differences), an unpaired one is
two tables with a common set, and a macro-average of tasks is many tables with a common pool. All
variances follow from three kinds of independent draws: seeds of a pool, examples of a set, and both
together. The formulas cover the variance of the bootstrap distribution, and an unbiased estimate of the
true variance.

Reference: Sellam et al. (2022), section 4, for the bootstrap of one table; Satterthwaite (1946) for
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

Term = tuple[Any, float]  # a share of a variance (or draws of it [D]), its degrees of freedom

# Two mean squares with equal degrees of freedom count as one unless their ratio lies beyond this
# quantile of F. A preliminary test at 20 % (two-sided): coverage stays above .93 until the standard
# deviations of the arms' seeds differ by a factor of 3.
_ALIKE = 0.9


@dataclass(frozen=True)
class VarianceEstimate:
    """An estimated variance of a mean or difference.

    Attributes:
      variance: unbiased.
      degrees_of_freedom: Satterthwaite's.
      cautious_degrees_of_freedom: for t intervals and tests: Satterthwaite's formula with mean
        squares at the upper end of their likely range, so that a few seeds that happen to look
        alike do not count as many. Equal to `degrees_of_freedom` where one kind of draw varies, from
        one pool or set.
      pooled: whether the mean squares of two arms with equally many seeds were alike enough to be
        pooled in the cautious degrees of freedom (2R - 2 instead of Welch's).
    """

    variance: float
    degrees_of_freedom: float
    cautious_degrees_of_freedom: float
    pooled: bool = False


@dataclass(frozen=True)
class VarianceParts:
    """The independent mean squares behind a variance, as shares of it with degrees of freedom.

    Attributes:
      seeds: of the seeds of each pool; that of seeds contains a share of the residual.
      examples: of the examples of each set; it contains a share of the residual, too.
      residual: of the residual of each table whose seeds and examples are both drawn.
    """

    seeds: tuple[Term, ...]
    examples: tuple[Term, ...]
    residual: tuple[Term, ...]

    def estimate(self, independent: bool = True) -> VarianceEstimate:
        """Returns the variance that these mean squares estimate; arrays [D] where they are draws.

        Args:
          independent: False where mean squares have a prior in common, so that their degrees of freedom
            do not add up.
        """
        groups = [list(terms) for terms in (self.seeds, self.examples) if terms]
        return _combined(groups, list(self.residual), independent)

    def scaled(self, seeds: float, examples: float) -> VarianceEstimate:
        return self.resized(seeds, examples).estimate()

    def resized(self, seeds: float, examples: float) -> VarianceParts:
        """Returns the mean squares to be expected with multiples of the seeds and the examples."""
        # The residual falls with both numbers, and what lies beyond it with one.
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
        """Returns the share of the variance that more seeds, and nothing else, would reduce."""
        total = self.scaled(1, 1).variance
        seeds, error = (sum(value for value, _ in terms) for terms in (self.seeds, self.residual))
        return max(seeds - error, 0.0) / total if total else 0.0


class Crossing:
    """A sum of weighted tables, and the variances of its mean.

    Parts that share both their pool and their set, such as the two arms of a paired comparison,
    are first summed cell by cell: their residuals are drawn together.
    """

    def __init__(self, parts: Sequence[TablePart], prior: Term = (0.0, 0.0)):
        """Sums parts that share both their pool and their set.

        Args:
          prior: a variance between the seeds of a pool that is known from elsewhere, and the degrees of
            freedom that it counts for. It stands for pools of one seed, which show none; without
            such a pool, the variance of each is a mean of its own and the prior, weighted by their degrees of
            freedom (Smyth, 2004).
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
        """Sums weighted deviations over the parts of each pool or set."""
        sums: dict[str, Array] = {}
        for part, split in zip(self.parts, self.deviations, strict=True):
            name = key(part)
            if name is not None:
                weighted = value(split)
                if part.weight != 1:  # no second array of a million examples where it is
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
        """By pool, the deviation of each seed in the sum [R]."""
        return self._sums(lambda part: part.pool, lambda split: split.seed)

    @cached_property
    def examples(self) -> dict[str, Array]:
        """By set, the deviation of each example in the sum [C]."""
        return self._sums(lambda part: part.examples, lambda split: split.example)

    @property
    def mean(self) -> float:
        """Returns the sum of the weighted means of the tables: the estimate."""
        pairs = zip(self.parts, self.deviations, strict=True)
        return float(sum(part.weight * split.mean for part, split in pairs))

    @property
    def _crossed(self) -> list[tuple[float, Deviations]]:
        """Squared weights and deviations of the parts whose seeds and examples are both drawn."""
        return [
            (part.weight**2, split)
            for part, split in zip(self.parts, self.deviations, strict=True)
            if part.pool is not None and part.examples is not None
        ]

    def bootstrap_variance(self) -> float:
        """Returns the exact variance of the bootstrap distribution of (the linear part of) the sum."""
        main = sum(
            float(drawn @ drawn) / len(drawn) ** 2
            for drawn in (*self.seeds.values(), *self.examples.values())
        )
        return main + sum(
            weight * split.residual_squares / split.size**2 for weight, split in self._crossed
        )

    @cached_property
    def lone(self) -> list[str]:
        """Returns the pools of one seed, whose spread is the prior's; none without a prior."""
        return [pool for pool, seeds in self.seeds.items() if len(seeds) == 1 and self.prior[1]]

    def unbiased_variance(self) -> VarianceEstimate:
        """Estimates the true variance of the sum without bias, with its degrees of freedom.

        For one table with mean squares A of seeds, B of examples and E of residuals the estimate is
        (A + B - E) / (R C), never below A's or B's share alone.
        """
        return self.variance_parts().estimate(independent=not self.prior[1])

    def variance_parts(self) -> VarianceParts:
        """Returns the independent mean squares that the unbiased variance is made of."""
        cure = "add seeds or resample examples only"
        moderating = (0.0, 0.0) if self.lone else self.prior
        seeds = tuple(
            _main_term(seed, "seed", cure, moderating)
            for pool, seed in self.seeds.items()
            if pool not in self.lone
        )
        if self.lone:  # one number for all of them, not one each: its error is theirs in common
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
        """Returns the factor of a table's variances over examples; 1 where all examples count."""
        if not part.scored:
            return 1.0
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
        """Returns the standard error that examples alone give, with the seeds held fixed."""
        return math.sqrt(sum(value for value, _ in self.variance_parts().examples))


def _summed(parts: Sequence[TablePart]) -> TablePart:
    if len(parts) == 1:
        return parts[0]
    table = summed_table([part.table for part in parts], [part.weight for part in parts])
    scored = max((part.scored for part in parts), key=_ratio_factor)
    return replace(parts[0], table=table, weight=1.0, scored=scored)


def _ratio_factor(scored: tuple[float, ...]) -> float:
    """Returns by how much the variance of shares of few examples each exceeds its plug-in estimate.

    A share's own is n / (n - 1). Shares that are averaged weigh by their variances, about 1 / n.
    """
    if not scored:
        return 1.0
    return sum(1 / max(n - 1, 0.5) for n in scored) / sum(1 / n for n in scored)


def _freedom_of_shares(scored: tuple[float, ...]) -> float:
    """Returns the degrees of freedom of the variance of an average of shares of n examples each.

    They are Satterthwaite's, for variances of about 1 / n with n - 1 degrees of freedom.
    """
    total = sum(1 / n for n in scored)
    return max(1.0, total**2 / sum(1 / n**2 / max(n - 1, 0.5) for n in scored))


def _main_term(deviation: Array, unit: str, cure: str, prior: Term = (0.0, 0.0)) -> Term:
    """Returns the share of the seeds' or examples' mean square, from their deviations [n]."""
    number = len(deviation)
    if number < 2:
        raise DataError(f"found one {unit}, expected two or more to estimate their spread; {cure}")
    share, freedom = float(deviation @ deviation) / (number * (number - 1)), number - 1
    variance, weight = prior
    if not weight:
        return share, freedom
    return (freedom * share + weight * variance / number) / (freedom + weight), freedom + weight


def _cluster_term(deviation: Array, sizes: Array) -> Term:
    """Returns the share of the clusters' mean square, from their deviations [G] and numbers of examples.

    It is the jackknife's: without cluster g of weight w the score would be another by d / (G (1 - w)), as a
    large one pulls the score towards its own. Were all cluster means to vary alike, Satterthwaite's degrees
    of freedom would be those of the few large clusters; where examples vary within clusters they are nearly
    G - 1. The geometric mean of the two covers .93 to .97 in simulations of either kind (docs/statistics.md).
    Clusters of one size have the plain mean square with G - 1.

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

    With excess kurtosis k, n - 1 become 2 / (2 / (n - 1) + k / n): two where one example carries all, as
    one wrong answer does. Light tails add none.

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

    Where the residual is large the difference can fall below the seeds' or the examples' share,
    which it contains; the larger of these is then taken.

    The sum of the variances of two means of R seeds each is known with 2R - 2 degrees of freedom where the
    seeds' variances are equal. Welch's formula gives R - 1 to 2R - 2, and near R - 1 by chance alone, so
    two mean squares that are alike are pooled in the cautious degrees of freedom.

    Args:
      groups: mean squares that are added: of seeds, of examples.
      independent: as in `VarianceParts.estimate`.
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

    A mean square with few degrees of freedom is often far too small by chance, and Satterthwaite's
    formula then follows the other, which has many: with three seeds that carry nine tenths of the
    variance, 7.7 % of tests at the 5 % level would err. Where seeds and examples both vary, each mean
    square is therefore taken as if it lay at the lower quartile of its law. Generalised intervals, which draw
    the mean squares from all of their range, are about as wide (docs/statistics.md).

    With five seeds or more the quantile .40, and a mean square below the residual's pooled with it, would
    give intervals that are 2 to 5 % narrower and cover .944 at 95 %. They were not taken, because tests at
    lower levels, such as Holm's, would err too often: with five seeds twice as often as they say at .01
    and eight times at .001, where these err 1.2 and 2.5 times (docs/statistics.md has the table).
    """
    if len(groups) == 1:
        return _freedom(groups, subtracted)
    return _freedom([[_likely(term) for term in group] for group in groups], subtracted)


def _freedom(groups: list[list[Term]], subtracted: list[Term]) -> Any:
    """Computes Satterthwaite's degrees of freedom of a guarded sum."""
    everything = [term for group in groups for term in group]
    spread = np.asarray(sum(value**2 / freedom for value, freedom in everything + subtracted))
    varies = spread > 0
    # Where the residual all but hides the rest, the formula can fall below one degree of freedom.
    # Satterthwaite (1946): (sum a_i)^2 / sum(a_i^2 / f_i), for shares a_i with f_i degrees of freedom.
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
    """Scales a mean square up so that its expectation lies below it three times in four."""
    from scipy.special import chdtri

    value, freedom = term
    # value = s^2 f / f; chdtri(f, .75) is the lower quartile of chi-squared with f degrees, exceeded by 75 %.
    return value * freedom / float(chdtri(freedom, 0.75)), freedom
