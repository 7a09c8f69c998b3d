"""The result of comparing many arms, as data: their differences, their ranks, and which are tied."""

from __future__ import annotations

from dataclasses import dataclass

from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.results.comparison import ArmSummary, Pairing
from multiberts.stats.results.content import EqualByContent
from multiberts.stats.settings import Design, Resample


@dataclass(frozen=True)
class ArmDifference:
    """The difference of two of many arms.

    Attributes:
      estimate: score of the experiment minus that of the base.
      standard_error: of the estimate, from variances of seeds that are moderated by those of all arms.
      ci: simultaneous: all intervals of the family hold the truth at its level.
      p_value: two-sided, corrected for the number of differences as the interval is (Bonferroni): below
        1 - level where the interval excludes 0.
      p_values: two-sided: `uncorrected`, of this difference alone; and `holm`, which is never larger than
        `p_value`, so that it may show what the interval does not.
    """

    base: str
    experiment: str
    estimate: float
    standard_error: float
    df: float
    ci: ConfidenceInterval
    p_value: float
    p_values: dict[str, float]

    @property
    def clear(self) -> bool:
        """Returns whether the simultaneous interval excludes 0."""
        return self.ci.low > 0 or self.ci.high < 0


@dataclass(frozen=True, eq=False)
class RankedArm(ArmSummary):
    """One of many arms: its score with its own interval, and its place among the arms.

    Attributes:
      rank: 1 plus the number of arms with a better score.
      rank_low, rank_high: the ranks that it may truly have, simultaneously for all arms: 1 plus the
        number of arms that are clearly better, up to the last place but for those clearly worse.
      groups: letters of the groups that it belongs to; two arms differ clearly where they have none in
        common. Empty where all are compared with one arm only.
    """

    rank: int = 1
    rank_low: int = 1
    rank_high: int = 1
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class RankingResult(EqualByContent):
    """The numbers of `stats.ArmComparisons`, which adds words, tables and figures. The
    attributes are described there.
    """

    name: str
    evaluation_set: str
    metric: str
    higher_is_better: bool | None
    design: Design
    resample: Resample
    against: str | None
    arms: tuple[RankedArm, ...]
    differences: tuple[ArmDifference, ...]
    confidence_level: float
    shared_degrees_of_freedom: float
    pairing: Pairing | None
    n_resamples: int
    rng: int
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Returns the largest sets of arms none of which differ clearly, by name, best first."""
        letters = dict.fromkeys(letter for arm in self.arms for letter in arm.groups)
        return tuple(
            tuple(arm.name for arm in self.arms if letter in arm.groups) for letter in letters
        )
