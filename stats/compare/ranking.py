"""The result of comparing many arms: differences, ranks and ties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.errors import check_choice
from multiberts.stats.results import (
    ArmDifference,
    ArmSummary,
    EqualByContent,
    PrintedTable,
    RankedArm,
    Readable,
    flat_values,
)
from multiberts.stats.score import Score
from multiberts.stats.settings import Design, Pairing, Resample
from multiberts.stats.significance import adjusted_p_values

if TYPE_CHECKING:
    import pandas

Rows = Literal["differences", "arms"]


@dataclass(frozen=True, eq=False, repr=False)
class ArmComparisons(EqualByContent, Readable):
    """A ranking of many arms, with the differences of all pairs or from one reference arm.

    `print(result)` gives the finding in words and the ranking; `to_frame()` (a row per difference;
    `to_frame("arms")` per arm), `differences_table()`, `to_dict()` (for JSON), `latex()`, `plot()` and
    `methods()` (a paragraph for a paper) give the rest.

    Attributes:
      name, evaluation_set, metric: names of the comparison, the evaluation set and the metric.
      higher_is_better: direction of the metric; None if neither is better or it is unknown (highest first).
      design: `unpaired` (own seeds) or `paired` (the same seeds, drawn together).
      resample: units that the intervals generalise to, as in `Comparison`.
      against: name of the reference arm; None if all pairs are compared.
      arms: best first.
      differences: differences of the better and the worse arm, starting with pairs of the best arms; or of
        each arm and the reference arm.
      confidence_level: level of all intervals; simultaneous for differences and ranks.
      shared_degrees_of_freedom: weight, in degrees of freedom, of the mean variance of all arms in the
        variance of each arm (of all pairs in that of each pair, if paired).
      pairing: basis on which seeds are paired, as in `Comparison`.
      n_resamples, rng: bootstrap replicates, and the number that identifies their draws.
      data_notes, calibrated_scores: notes on the data, and the calibration errors that the arms would show by
        chance; `notes` has them in words.
      score: what is known of the score, as in `Comparison`.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> random = np.random.default_rng(0)
      >>> skills = {"small": 0.6, "medium": 0.79, "large": 0.8}
      >>> arms = {name: random.random((5, 400)) < skill for name, skill in skills.items()}
      >>> result = stats.compare_arms(arms, design="unpaired", name="sizes")
      >>> result.groups
      (('medium', 'large'), ('small',))
      >>> print(result.table().markdown())
      | rank | arm    | mean (%) | 95% CI (%)   | 95% ranks | group | seeds |
      |-----:|--------|---------:|-------------:|-----------|-------|------:|
      | 1    | medium | 79.7     | 77.0 to 82.4 | 1 to 2    | a     | 5     |
      | 2    | large  | 78.7     | 75.8 to 81.6 | 1 to 2    | a     | 5     |
      | 3    | small  | 60.5     | 56.0 to 64.9 | 3         | b     | 5     |
      <BLANKLINE>

    See also: `compare_arms`.
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
    data_notes: tuple[str, ...] = field(default=(), repr=False, compare=False)
    calibrated_scores: Sequence[tuple[str, float]] = field(default=(), repr=False, compare=False)
    score: Score = field(default=Score(""), repr=False, compare=False)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data for readers, as in `Comparison`."""
        return tuple(self._printing.notes(self))

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Returns the largest sets of arms without a clear difference, by name, best first."""
        letters = dict.fromkeys(letter for arm in self.arms for letter in arm.groups)
        return tuple(
            tuple(arm.name for arm in self.arms if letter in arm.groups) for letter in letters
        )

    def differences_table(self) -> PrintedTable:
        """Returns the differences with their simultaneous intervals and corrected p-values."""
        return cast("PrintedTable", self._printing.comparison_tables.differences_table(self))

    def __repr__(self) -> str:
        """Returns the type and the ranking; `print` shows the finding."""
        lines = [f"{arm.rank}. {arm.name} {arm.estimate:.4g}" for arm in self.arms]
        return f"<{type(self).__name__} {'; '.join(lines)}>"

    def to_frame(self, rows: Rows = "differences") -> pandas.DataFrame:
        """Returns a data frame with a row per difference, or per arm.

        Args:
          rows: `differences` or `arms`, the unit of a row.

        Raises:
          DataError: `rows` is neither.
        """
        import pandas

        check_choice("rows", rows, Rows)
        return pandas.DataFrame([flat_values(row) for row in self.to_dict()[rows]])


def level_of_each(confidence_level: float, number: int) -> float:
    """Returns the level of each of `number` intervals that hold together (Bonferroni)."""
    return 1 - (1 - confidence_level) / number


def corrected(differences: Sequence[ArmDifference]) -> tuple[ArmDifference, ...]:
    """Corrects the p-values of a family for its size: by Bonferroni, as the intervals, and by Holm."""
    p_values = [item.p_value for item in differences]
    bonferroni, holm = (
        adjusted_p_values(p_values, method).tolist() for method in ("bonferroni", "holm")
    )
    return tuple(
        replace(item, p_value=whole, p_values={"uncorrected": item.p_value, "holm": p})
        for item, whole, p in zip(differences, bonferroni, holm, strict=True)
    )


def ranked(
    arms: Sequence[ArmSummary], differences: Sequence[ArmDifference], sign: int
) -> tuple[RankedArm, ...]:
    """Ranks arms by their scores, with intervals of the ranks and groups of ties.

    Args:
      arms: best first.
      differences: differences of all pairs, or from one reference arm (groups are then empty).

    Reference: Mogstad, Romano, Shaikh & Wilhelm (2024), Inference for Ranks with Applications to
    Mobility across Neighbourhoods and Academic Achievement across Countries; Piepho (2004), An
    Algorithm for a Letter-Based Representation of All-Pairwise Comparisons.
    """
    number_of = {arm.name: number for number, arm in enumerate(arms)}
    better = np.zeros((len(arms), len(arms)), dtype=bool)  # [better, worse]
    for item in differences:
        if item.clear:
            pair = (item.experiment, item.base)
            winner, loser = pair if sign * item.estimate > 0 else pair[::-1]
            better[number_of[winner], number_of[loser]] = True
    groups: list[tuple[str, ...]] = [()] * len(arms)
    if len(differences) == len(arms) * (len(arms) - 1) // 2:
        groups = _letters(better | better.T)
    scores = sign * np.array([arm.estimate for arm in arms])
    return tuple(
        RankedArm(
            **{each.name: getattr(arm, each.name) for each in fields(ArmSummary)},
            rank=1 + int((scores > scores[number]).sum()),
            rank_low=1 + int(better[:, number].sum()),
            rank_high=len(arms) - int(better[number].sum()),
            groups=groups[number],
        )
        for number, arm in enumerate(arms)
    )


def _letters(differ: NDArray[np.bool_]) -> list[tuple[str, ...]]:
    """Returns letters for each arm: two arms differ clearly if they share no letter.

    The groups are the largest sets without a clear difference. Starting from one set of all arms, each
    clear difference splits the sets that hold both arms; subsets of other sets are dropped.
    """
    sets = [frozenset(range(len(differ)))]
    for pair in map(frozenset, np.argwhere(np.triu(differ)).tolist()):
        split = [group - {arm} for group in sets for arm in sorted(pair) if pair <= group]
        sets = [group for group in sets if not pair <= group]
        sets += [part for part in dict.fromkeys(split) if not any(part <= whole for whole in sets)]
    letters: list[list[str]] = [[] for _ in differ]
    for number, group in enumerate(sorted(sets, key=sorted)):
        for arm in group:
            letters[arm].append(chr(ord("a") + number % 26) + str(number // 26 or ""))
    return [tuple(group) for group in letters]
