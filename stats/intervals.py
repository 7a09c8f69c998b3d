"""Formulas of intervals and p-values; `stats.recommended` decides which of them is used."""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# All 2**R sign patterns are enumerated up to this R.
MAX_EXACT_SIGN_FLIP_SEEDS = 15
# All permutations of seeds to two arms are enumerated up to this number: 10 against 10 have 184,756.
MAX_EXACT_PERMUTATIONS = 200_000
_RANDOM_SAMPLES = 19_999


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class ConfidenceInterval(Interval):
    """A confidence interval with its level and the method that made it.

    It unpacks into (low, high), as SciPy's does.

    Attributes:
      low, high: its ends, in the unit of the score (shares from 0 to 1).
      level: the confidence level, in (0, 1).
      method: what made it: `t` (Student's t), `Wilson`, `Clopper-Pearson`, `Fisher z` or `Newcombe`
        for the recommended one; `range` where nothing varies, so that it is all that
        the score can be; `percentile` for that of the bootstrap.

    Example:
      >>> from multiberts import stats
      >>> ci = stats.ConfidenceInterval(0.1, 0.3, 0.95, "t")
      >>> low, high = ci
      >>> high, ci.level, ci.method
      (0.3, 0.95, 't')

    See also: `Comparison`.
    """

    level: float
    method: str

    def __new__(
        cls, low: float, high: float, level: float = math.nan, method: str = ""
    ) -> ConfidenceInterval:
        """Makes it; without level and method only to unpickle."""
        made = super().__new__(cls, low, high)
        made.level, made.method = level, method
        return made

    def __repr__(self) -> str:
        """Returns all four."""
        ends = f"low={self.low}, high={self.high}"
        return f"ConfidenceInterval({ends}, level={self.level}, method={self.method!r})"


class PValues(NamedTuple):
    """p-values against a difference of zero.

    Attributes:
      greater: one-sided, small where the difference is positive.
      less: one-sided, small where it is negative.
      two_sided: small in either case.

    Example:
      >>> from multiberts import stats
      >>> result = stats.compare([[0, 1, 0], [1, 0, 0]], [[1, 1, 0], [1, 0, 1]])
      >>> result.p_values["sign flip"].greater
      0.25

    See also: `Comparison`.
    """

    greater: float
    less: float
    two_sided: float


def percentile_interval(samples: ArrayLike, confidence_level: float) -> Interval:
    """Returns the middle `confidence_level` of bootstrap samples.

    Args:
      samples: bootstrap samples [replicates], in the score's unit.

    Example:
      >>> percentile_interval([0.1, 0.2, 0.3, 0.4, 0.5], 0.5)
      Interval(low=0.2, high=0.4)

    Reference: Davison & Hinkley (1997), Bootstrap Methods and their Application, chapter 5.
    """
    tail = _tail(confidence_level)
    low, high = np.quantile(np.asarray(samples), [tail, 1 - tail])
    return Interval(float(low), float(high))


def t_interval(
    estimate: float, standard_error: float, degrees_of_freedom: float, confidence_level: float
) -> Interval:
    """Computes estimate -+ t x standard error.

    Example:
      >>> low, high = t_interval(0.80, 0.01, 4, 0.95)
      >>> round(low, 3), round(high, 3)
      (0.772, 0.828)

    Reference: Student (1908), The probable error of a mean.
    """
    from scipy.special import stdtrit

    reach = float(stdtrit(degrees_of_freedom, 1 - _tail(confidence_level))) * standard_error
    return Interval(estimate - reach, estimate + reach)


def fisher_t_interval(
    estimate: float, standard_error: float, degrees_of_freedom: float, confidence_level: float
) -> Interval:
    """Computes `t_interval` of a correlation on Fisher's scale, z = atanh r, and transforms it back.

    A correlation without spread, or of -1 or 1, where z is infinite, gets the plain interval.

    Args:
      estimate: a correlation.
      standard_error: of the correlation; that of z is this over 1 - r^2.

    Example:
      >>> low, high = fisher_t_interval(0.9, 0.05, 9, 0.95)
      >>> round(low, 2), round(high, 2)
      (0.7, 0.97)

    Reference: Fisher (1921), On the "probable error" of a coefficient of correlation.
    """
    if standard_error == 0 or abs(estimate) >= 1:
        return t_interval(estimate, standard_error, degrees_of_freedom, confidence_level)
    error = standard_error / (1 - estimate**2)
    low, high = t_interval(math.atanh(estimate), error, degrees_of_freedom, confidence_level)
    return Interval(math.tanh(low), math.tanh(high))


def clopper_pearson_interval(number: int, trials: float, confidence_level: float) -> Interval:
    """Computes Clopper and Pearson's interval of a rate.

    Args:
      number: how often it happened.
      trials: of how many, 1 or more; a mean over runs need not be whole.

    Example:
      >>> low, high = clopper_pearson_interval(0, 5, 0.95)
      >>> low, round(high, 3)
      (0.0, 0.522)

    Reference: Clopper & Pearson (1934), The use of confidence or fiducial limits.
    """
    from scipy.special import betaincinv

    tail = _tail(confidence_level)
    if number == 0:
        return Interval(0.0, 1 - tail ** (1 / trials))
    if number == trials:
        return Interval(tail ** (1 / trials), 1.0)
    low = betaincinv(number, trials - number + 1, tail)
    high = betaincinv(number + 1, trials - number, 1 - tail)
    return Interval(float(low), float(high))


def clipped_interval(interval: Interval, bounds: tuple[float, float]) -> Interval:
    """Cuts an interval off at the bounds of a score; an infinite end stays, as nothing is known."""
    ends = [min(max(end, bounds[0]), bounds[1]) if math.isfinite(end) else end for end in interval]
    return Interval(*ends)


def difference_of_intervals(
    base: tuple[float, Interval],
    experiment: tuple[float, Interval],
    correlation: float = 0.0,
) -> Interval:
    """Computes the interval of a difference from the arms' own estimates and intervals.

    Args:
      correlation: of the two estimates, as of arms with seeds or examples in common.

    Reference: Zou & Donner (2008), Construction of confidence limits about effect measures; Newcombe
    (1998), Improved confidence intervals for the difference between binomial proportions based on
    paired data, for the correlation.
    """
    (first, of_first), (second, of_second) = base, experiment
    difference = second - first

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(one**2 + other**2 - 2 * correlation * one * other, 0.0))

    return Interval(
        difference - reach(second - of_second.low, of_first.high - first),
        difference + reach(of_second.high - second, first - of_first.low),
    )


def score_interval(
    estimate: float,
    standard_error: float,
    degrees_of_freedom: float,
    confidence_level: float,
    bounds: tuple[float, float],
    num_units: float,
    tail_freedom: float = math.inf,
) -> Interval:
    """Computes Wilson's score interval with Student's quantile, of as many answers as the spread stands for.

    That is the number of right and wrong answers whose share would have this standard error. It can
    exceed the number of examples, as several seeds answer each; where few examples carry all errors
    the standard error, and with it this number, is known badly. The interval is then that of
    `tail_freedom`, but no wider than with one answer per example. Where every unit has the score of a
    bound, as where all answers are right, nothing varies, and it is Clopper and Pearson's for as many
    units.

    Args:
      bounds: the smallest and the largest possible score.
      num_units: independent examples (or clusters, or seeds) behind the score.
      tail_freedom: degrees of freedom where heavy tails of the examples count; see
        `stats.variance.crossing.Crossing.tail_freedom`.

    Example:
      >>> low, high = score_interval(0.98, 0.02, 9, 0.95, (0, 1), 50)
      >>> round(low, 2), round(high, 3)
      (0.87, 0.997)

    Reference: Wilson (1927), Probable inference, the law of succession, and statistical inference; Korn
    & Graubard (1998), Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data, for numbers of answers that a standard error stands for.
    """
    (low, high), width = bounds, bounds[1] - bounds[0]
    if standard_error == 0 or estimate in bounds:
        reach = width * clopper_pearson_interval(0, num_units, confidence_level).high
        # All answers of one seed can be right, and its spread come from other seeds.
        spread = t_interval(0.0, standard_error, degrees_of_freedom, confidence_level).high
        reach = min(max(reach, spread), width)
        return Interval(low, low + reach) if estimate == low else Interval(high - reach, high)
    share = (estimate - low) / width
    size = share * (1 - share) * (width / standard_error) ** 2

    def half(freedom: float, answers: float) -> float:
        return t_interval(0.0, 1.0, freedom, confidence_level).high ** 2 / (2 * answers)

    shift = half(degrees_of_freedom, size)
    if tail_freedom < degrees_of_freedom and size > num_units:
        shift = min(half(tail_freedom, size), half(degrees_of_freedom, num_units))
    reach = math.sqrt(2 * shift * share * (1 - share) + shift**2)
    ends = ((share + shift + sign * reach) / (1 + 2 * shift) for sign in (-1, 1))
    return clipped_interval(Interval(*(low + width * end for end in ends)), bounds)


def near_bounds_difference(
    base: tuple[float, float],
    experiment: tuple[float, float],
    degrees_of_freedom: float,
    correlation: float,
    bounds: tuple[float, float],
    num_units: tuple[float, float],
    confidence_level: float,
    null: float = 0.0,
) -> tuple[Interval, PValues]:
    """Computes interval and test of a difference of two scores that are both near their bounds.

    The interval is Newcombe's: it comes from the score intervals of the arms, which are skewed there.
    Its end towards the bound is near, too near where a standard error is small by chance, so that
    neither end is nearer than that of the normal interval. It stays within what a difference can be.
    p is one less the level at which it begins to hold the difference that is tested.

    Args:
      base: estimate and standard error.
      bounds: the smallest and the largest possible score.
      num_units: independent examples (or clusters) behind each.
      confidence_level: level of the interval, in (0, 1).
      null: the difference that is tested.

    Reference: Newcombe (1998), Improved confidence intervals for the difference between binomial
    proportions based on paired data.
    """
    width, errors = bounds[1] - bounds[0], (base[1], experiment[1])
    squares = errors[0] ** 2 + errors[1] ** 2 - 2 * correlation * errors[0] * errors[1]
    error = math.sqrt(max(squares, 0.0))

    def interval(level: float) -> Interval:
        one, other = (
            (arm[0], score_interval(*arm, degrees_of_freedom, level, bounds, units))
            for arm, units in zip((base, experiment), num_units, strict=True)
        )
        low, high = difference_of_intervals(one, other, correlation)
        normal = t_interval(experiment[0] - base[0], error, math.inf, level)
        ends = Interval(min(low, normal.low), max(high, normal.high))
        return clipped_interval(ends, (-width, width))

    def holds_null(level: float) -> bool:
        low, high = interval(level)
        return low <= null <= high

    low, high = 0.0, 1 - 1e-12  # levels at which it is outside, and inside or the last one
    if holds_null(1e-9):
        high = 0.0
    # Halving 50 times finds p to 2^-50, near what float64 holds of 1 - p.
    for _ in range(50 if high else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if holds_null(middle) else (middle, high)
    p = 1 - high
    small, large = p / 2, 1 - p / 2
    above = experiment[0] - base[0] > null
    return interval(confidence_level), PValues(
        small if above else large, large if above else small, p
    )


def _tail(confidence_level: float) -> float:
    if not 0 < confidence_level < 1:
        raise ValueError(
            f"found confidence_level {confidence_level}, expected a number between 0 and 1"
        )
    return (1 - confidence_level) / 2


def _slack(differences: NDArray) -> float:
    """Returns the size of rounding errors in differences: within it they are ties."""
    return 1e-12 * float(np.abs(differences).max(initial=0.0))


def bootstrap_p_values(differences: ArrayLike) -> PValues:
    """Computes (k + 1) / (B + 1) from bootstrap samples of a difference [replicates].

    k counts the samples at zero or on the other side of it, up to rounding. The two-sided p is
    twice the smaller, at most 1.
    """
    differences = np.asarray(differences)
    slack = _slack(differences)
    greater = (int((differences <= slack).sum()) + 1) / (len(differences) + 1)
    less = (int((differences >= -slack).sum()) + 1) / (len(differences) + 1)
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def published_p_values(differences: ArrayLike) -> PValues:
    """Computes the one-sided p of the published library: the share k / B of contradicting samples.

    Too small with few seeds, and at least 1 / B. The two-sided p is twice the smaller, at most 1.

    Args:
      differences: bootstrap samples of experiment - base [replicates].
    """
    differences = np.asarray(differences)
    least = 1.0 / len(differences)
    greater, less = (float(share.mean()) or least for share in (differences <= 0, differences >= 0))
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def t_p_values(estimate: float, standard_error: float, degrees_of_freedom: float) -> PValues:
    """Tests a difference by Student's t; without any spread p is 0 or 1 (1 for no difference).

    Args:
      estimate: a difference from the hypothesis.

    Example:
      >>> round(t_p_values(0.02, 0.01, 8).two_sided, 3)
      0.081

    Reference: Student (1908), The probable error of a mean.
    """
    from scipy.special import stdtr

    if standard_error == 0:
        if estimate == 0:
            return PValues(1.0, 1.0, 1.0)
        return PValues(float(estimate < 0), float(estimate > 0), 0.0)
    statistic = estimate / standard_error
    less = float(stdtr(degrees_of_freedom, statistic))
    greater = float(stdtr(degrees_of_freedom, -statistic))
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def sign_flip_p_values(differences: ArrayLike) -> PValues:
    """Tests paired seeds by random signs: under the null either sign of a difference is as likely.

    Exact (all 2**R patterns) up to `MAX_EXACT_SIGN_FLIP_SEEDS` seeds; beyond, random patterns with
    the +1 form. Its one-sided p is at least 2**-R.

    Args:
      differences: one per seed [R].

    Example:
      >>> sign_flip_p_values([0.01, 0.03, 0.02]).greater  # at least 2**-3
      0.125

    Reference: Fisher (1935), The Design of Experiments, section 21.
    """
    differences = np.asarray(differences, dtype=np.float64)
    number = len(differences)
    if number <= MAX_EXACT_SIGN_FLIP_SEEDS:
        bits = (np.arange(2**number)[:, None] >> np.arange(number)) & 1  # [2**R, R]
        signs = 1.0 - 2 * bits
        extra = 0
    else:
        signs = _random_signs(number)
        extra = 1  # the observed signs
    sums = signs @ differences
    return _counted_p_values(sums, differences.sum(), 1e-12 * np.abs(differences).sum(), extra)


def _counted_p_values(statistics: NDArray, seen: float, slack: float, extra: int) -> PValues:
    """Counts the statistics that reach the observed one; within `slack` they tie."""
    reached = (
        statistics >= seen - slack,
        statistics <= seen + slack,
        np.abs(statistics) >= abs(seen) - slack,
    )
    number = len(statistics) + extra
    return PValues(*((int(which.sum()) + extra) / number for which in reached))


@functools.lru_cache(maxsize=2)
def _random_signs(number: int) -> NDArray[np.float64]:
    """Returns random signs [samples, number]; cached for repeated tests."""
    generator = np.random.Generator(np.random.Philox(key=0))
    bits = generator.integers(0, 2, (_RANDOM_SAMPLES, number))
    return np.asarray(1.0 - 2 * bits, dtype=np.float64)


@functools.lru_cache(maxsize=2)
def _random_permutations(number: int, size: int, permutation_seed: int) -> NDArray[np.int64]:
    """Returns random choices of `size` out of `number` [samples, size]; cached for repeated tests."""
    generator = np.random.Generator(np.random.Philox(key=permutation_seed))
    order = generator.permuted(np.tile(np.arange(number), (_RANDOM_SAMPLES, 1)), axis=1)
    return order[:, :size].copy()


@functools.lru_cache(maxsize=2)
def _all_permutations(number: int, size: int) -> NDArray[np.int64]:
    """Returns every choice of `size` out of `number` [choices, size]; cached for repeated tests."""
    chosen = itertools.combinations(range(number), size)
    return np.fromiter(itertools.chain.from_iterable(chosen), np.int64).reshape(-1, size)


def permutation_p_values(
    base_scores: ArrayLike, experiment_scores: ArrayLike, permutation_seed: int = 0
) -> PValues:
    """Tests unpaired seeds by permutations: under the null any seed may be in either arm.

    The statistic is the difference of the two means; two-sided counts the permutations with at
    least its size. Exact up to `MAX_EXACT_PERMUTATIONS` assignments of the seeds to the arms;
    beyond, random permutations with the +1 form.

    Args:
      base_scores: one per seed [R].
      experiment_scores: one per seed [R'].
      permutation_seed: identifies the random permutations, used where there are many.

    Example:
      >>> round(permutation_p_values([0.80, 0.81], [0.84, 0.86]).two_sided, 3)
      0.333

    Reference: Pitman (1937), Significance tests which may be applied to samples from any populations.
    """
    base = np.asarray(base_scores, dtype=np.float64)
    experiment = np.asarray(experiment_scores, dtype=np.float64)
    pooled = np.concatenate([base, experiment])
    pooled -= pooled.mean()  # changes no difference and improves precision
    if math.comb(len(pooled), len(base)) <= MAX_EXACT_PERMUTATIONS:
        sums = pooled[_all_permutations(len(pooled), len(base))].sum(axis=1)
        extra = 0
    else:
        chosen = _random_permutations(len(pooled), len(base), permutation_seed)
        sums = pooled[chosen].sum(axis=1)
        extra = 1  # the observed permutation
    # The arms' sums add to zero, so the difference of means falls with the base's sum alone.
    slack = 1e-12 * float(np.abs(pooled).sum())
    return _counted_p_values(-sums, -float(pooled[: len(base)].sum()), slack, extra)
