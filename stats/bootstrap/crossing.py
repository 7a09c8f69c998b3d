"""Variances of a sum of mean scores whose seeds and examples are drawn jointly or apart.

Every design is a sum of weighted tables, each with a pool its seeds come from and a set its
examples come from: a paired difference is one table (of differences), an unpaired one two tables
with a set in common, a macro-average of tasks many tables with a pool in common. All of them follow
from three kinds of independent draws: seeds of a pool, examples of a set, and both together.

Reference: for one table, the moments of Sellam et al. (2022), section 4's bootstrap; Satterthwaite
(1946) for degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from numpy.typing import NDArray

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.replicate_variance import crossed_replicate_variances
from multiberts.stats.bootstrap.score_tables import Array, Deviations, Part, SumTable, deviations

Term = tuple[float, float]  # a share of a variance, its degrees of freedom


@dataclass(frozen=True)
class VarianceEstimate:
    """An estimated variance of a mean or difference.

    Attributes:
      variance: unbiased.
      degrees_of_freedom: Satterthwaite's.
      cautious_degrees_of_freedom: for t intervals and tests: the same from mean squares at the
        upper end of what is likely, so that few seeds that happen to look alike do not pass
        for many. Where one kind of draw varies they are Satterthwaite's.
    """

    variance: float
    degrees_of_freedom: float
    cautious_degrees_of_freedom: float


class Crossing:
    """A sum of parts.

    Parts that share both their pool and their set, such as the two sides of a paired comparison,
    are summed cell by cell first: their residuals are drawn together.
    """

    def __init__(self, parts: Sequence[Part]):
        together: dict[object, list[Part]] = {}
        for position, part in enumerate(parts):
            apart = part.pool is None or part.examples is None
            together.setdefault(position if apart else (part.pool, part.examples), []).append(part)
        self.parts = tuple(_summed(group) for group in together.values())

    @cached_property
    def deviations(self) -> list[Deviations]:
        """Each part's table taken apart."""
        return [deviations(part.table) for part in self.parts]

    def _sums(
        self, key: Callable[[Part], str | None], value: Callable[[Deviations], Array]
    ) -> dict[str, Array]:
        """Weighted sums of deviations over the parts of each pool or set.

        Raises:
          DataError: parts of one pool or set differ in its size.
        """
        sums: dict[str, Array] = {}
        for part, found in zip(self.parts, self.deviations, strict=True):
            name = key(part)
            if name is not None:
                weighted = part.weight * value(found)
                if name in sums and len(sums[name]) != len(weighted):
                    raise DataError(
                        f"found tables of {len(sums[name])} and {len(weighted)} {name}, expected "
                        "the same; align them first"
                    )
                sums[name] = sums[name] + weighted if name in sums else weighted
        return sums

    @cached_property
    def seeds(self) -> dict[str, Array]:
        """For each pool, how each seed deviates in the sum [R]."""
        return self._sums(lambda part: part.pool, lambda found: found.seed)

    @cached_property
    def examples(self) -> dict[str, Array]:
        """For each set, how each example deviates in the sum [C]."""
        return self._sums(lambda part: part.examples, lambda found: found.example)

    @property
    def _crossed(self) -> list[tuple[float, Deviations]]:
        """Squared weights and deviations of the parts whose seeds and examples are both drawn."""
        return [
            (part.weight**2, found)
            for part, found in zip(self.parts, self.deviations, strict=True)
            if part.pool is not None and part.examples is not None
        ]

    def bootstrap_variance(self) -> float:
        """The exact variance of the bootstrap distribution of the sum (of its linear part)."""
        main = sum(float(drawn @ drawn) / len(drawn) ** 2 for drawn in self.influences())
        return main + sum(
            weight * found.residual_squares / found.size**2 for weight, found in self._crossed
        )

    def unbiased_variance(self) -> VarianceEstimate:
        """An unbiased estimate of the true variance of the sum, with its degrees of freedom.

        Raises:
          DataError: a pool or set that is drawn from has one level only.
        """
        groups: list[list[Term]] = []
        if self.seeds:
            groups.append([_seed_term(seed) for seed in self.seeds.values()])
        if self.examples:
            groups.append([_example_term(example) for example in self.examples.values()])
        subtracted = []
        for weight, found in self._crossed:
            value, freedom = _residual_term(found)
            subtracted.append((weight * value, freedom))
        return _combined(groups, subtracted)

    def bootstrap_third_moment(self) -> float:
        """The exact third central moment of the bootstrap distribution of the sum.

        The replicate is a sum of A from the seeds of each pool, B from the examples of each set and
        D from both for each part. Given all other draws each has mean zero, so that of the products
        of three only A^3, B^3, A B D, A D^2, B D^2 and D^3 do not vanish.

        Raises:
          DataError: two parts share a pool but not their set.
        """
        total = sum(float((drawn**3).sum()) / len(drawn) ** 3 for drawn in self.influences())
        pools = [part.pool for part in self.parts if part.pool is not None]
        if len(set(pools)) < len(pools):
            raise DataError(
                "found tables that share their seeds but not their examples; their third moment is "
                "not offered"
            )
        for part, found in zip(self.parts, self.deviations, strict=True):
            if part.pool is None or part.examples is None:
                continue
            num_seeds, num_examples = len(found.seed), len(found.example)
            weight, example = part.weight, self.examples[part.examples]
            # A and D carry the weight of their part, B that of all parts of its set.
            total += 6 * weight**2 * float(example @ found.products) / found.size**2
            seeds = float(found.seed @ found.seed_squares)
            total += 3 * weight**3 * seeds / (found.size**2 * num_seeds)
            examples = float(example @ found.example_squares)
            total += 3 * weight**2 * examples / (found.size**2 * num_examples)
            total += weight**3 * found.residual_cubes / found.size**3
        return total

    def replicate_variances(
        self, seed_counts: Mapping[str, Array], example_counts: Mapping[str, NDArray]
    ) -> Array:
        """`unbiased_variance` of each bootstrap replicate's own tables: float64 [B].

        Args:
          seed_counts: by pool, how often each seed was drawn [B, R].
          example_counts: by set, how often each example was drawn [B, C].
        """
        return crossed_replicate_variances(self.parts, self.deviations, seed_counts, example_counts)

    def influences(self) -> list[Array]:
        """How much each seed and example moves the sum, for `stats.bootstrap.intervals.acceleration`."""
        return [*self.seeds.values(), *self.examples.values()]


def _summed(parts: Sequence[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    table = SumTable(tuple(part.table for part in parts), tuple(part.weight for part in parts))
    return Part(table, 1.0, parts[0].pool, parts[0].examples)


def _seed_term(seed: Array) -> Term:
    """The share of the seeds' mean square in the variance, and its degrees of freedom.

    Args:
      seed: deviations of seeds [R].

    Raises:
      DataError: there is one seed.
    """
    number = len(seed)
    if number < 2:
        raise DataError(
            "found one seed, and its spread cannot be known; add seeds or resample examples"
        )
    return float(seed @ seed) / (number * (number - 1)), number - 1


def _example_term(example: Array) -> Term:
    """The same of the examples' mean square, from their deviations [C].

    Raises:
      DataError: there is one example.
    """
    number = len(example)
    if number < 2:
        raise DataError("found one example, and its spread cannot be known; add examples")
    return float(example @ example) / (number * (number - 1)), number - 1


def _residual_term(parts: Deviations) -> Term:
    """The same of the residual's mean square."""
    freedom = (len(parts.seed) - 1) * (len(parts.example) - 1)
    return parts.residual_squares / (freedom * parts.size), freedom


def _combined(groups: list[list[Term]], subtracted: list[Term]) -> VarianceEstimate:
    """A sum of independent mean squares with its degrees of freedom.

    Where the residual is large the difference can fall below the seeds' or the examples' share,
    which it contains; the larger of these then stands.

    A mean square of few degrees of freedom is often far too small by chance, and Satterthwaite's
    formula then lets the other, of many, decide: three seeds with nine tenths of the variance
    would err 7.7 % at 5 %. Where seeds and examples both vary, the cautious formula is therefore
    given mean squares at the upper end of what is likely. The variance itself stays unbiased.
    """
    satterthwaite = _freedom(groups, subtracted)
    cautious = satterthwaite
    if len(groups) > 1:
        cautious = _freedom([[_likely(term) for term in group] for group in groups], subtracted)
    return VarianceEstimate(_guarded(groups, subtracted), satterthwaite, cautious)


def _freedom(groups: list[list[Term]], subtracted: list[Term]) -> float:
    """Satterthwaite's degrees of freedom of a guarded sum."""
    everything = [term for group in groups for term in group]
    spread = sum(value**2 / freedom for value, freedom in everything + subtracted)
    if spread == 0:
        return float(min(freedom for _, freedom in everything))
    # Where the residual all but hides the rest, the formula can fall below one degree of freedom.
    return max(1.0, _guarded(groups, subtracted) ** 2 / spread)


def _guarded(groups: list[list[Term]], subtracted: list[Term]) -> float:
    shares = [sum(value for value, _ in group) for group in groups]
    return max(sum(shares) - sum(value for value, _ in subtracted), *shares)


def _likely(term: Term) -> Term:
    """A mean square over the lower quartile of what it is as a multiple of its expectation.

    Three times in four its expectation lies below that.
    """
    from scipy.special import chdtri

    value, freedom = term
    return value * freedom / float(chdtri(freedom, 0.75)), freedom
