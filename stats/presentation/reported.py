"""Comparisons as a report lists them: each with its corrected p, its result in words, and its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from multiberts.stats.corrections import adjusted_p_values
from multiberts.stats.formats import NONE
from multiberts.stats.metric_names import (
    higher_is_better,
    interval_decimals,
    metric_name,
    score_text,
)
from multiberts.stats.presentation import wording
from multiberts.stats.presentation.sections import ReportSection
from multiberts.stats.results.comparison import ComparisonResult, Sameness
from multiberts.stats.results.sequential import EarlyLook, early_look


@dataclass(frozen=True)
class ReportedComparison:
    """One comparison of a list, judged among all of the list.

    Attributes:
      adjusted: its recommended two-sided p, corrected for the length of the list (Holm); None in a
        `single` design.
      result: in a word or two, by the corrected p; a dash in a `single` design.
      early: fewer seeds than planned; None where all are there, or no plan is known.
      sameness: its tests of sameness within a margin, Holm-corrected; None without a margin.
    """

    comparison: ComparisonResult
    adjusted: float | None
    result: str
    early: EarlyLook | None = None
    figures: Sequence[ReportSection] = ()
    sameness: Sameness | None = None


def judged(
    comparisons: Sequence[ComparisonResult],
    planned_seeds: Sequence[int | None] | None = None,
    figures: Sequence[Sequence[ReportSection]] | None = None,
) -> list[ReportedComparison]:
    """Judges each comparison of a list by its p, corrected for the length of the list.

    Args:
      planned_seeds: how many seeds of each are planned, None where no plan is known.
    """
    number = len(comparisons)
    tested = [item.p_value for item in comparisons if item.p_value is not None]
    corrected = iter(adjusted_p_values(tested, "holm").tolist() if tested else [])
    rows = zip(comparisons, planned_seeds or [None] * number, figures or [()] * number, strict=True)
    found = []
    for item, planned, own in rows:
        if item.p_value is None:
            found.append(ReportedComparison(item, None, NONE, figures=own))
            continue
        p, look = float(next(corrected)), None
        seeds = min(len(arm.seeds) for arm in (item.base, item.experiment) if arm)
        if planned is not None and 2 <= seeds < planned:
            look = early_look(p, seeds, planned, round(1 - item.confidence_level, 12))
        result = wording.verdict(item, p, higher_is_better(item.metric), look)
        found.append(ReportedComparison(item, p, result, look, own))
    return _with_sameness(found)


def _with_sameness(items: list[ReportedComparison]) -> list[ReportedComparison]:
    """Corrects both one-sided tests of every comparison with a margin for their number."""
    tests = [one.comparison.sameness for one in items]
    found = [test for test in tests if test is not None]
    if not found:
        return items
    corrected = (
        adjusted_p_values([getattr(test, name) for test in found], "holm").tolist()
        for name in ("p_lower", "p_upper")
    )
    pairs = iter(zip(*corrected, strict=True))
    made = []
    for one, test in zip(items, tests, strict=True):
        if test is not None:
            p_lower, p_upper = next(pairs)
            one = replace(one, sameness=replace(test, p_lower=p_lower, p_upper=p_upper))
        made.append(one)
    return made


def clearest(items: Sequence[ReportedComparison]) -> ReportedComparison:
    """Returns the comparison with the smallest corrected p; of single arms, the first."""
    return min(items, key=lambda one: 0.0 if one.adjusted is None else one.adjusted)


def tally(items: Sequence[ReportedComparison]) -> str:
    """Counts the results of a list, such as `better on 3, not clear on 2`."""
    counts = Counter(one.result for one in items)
    words = ("better", "worse", "higher", "lower", "not clear")
    return ", ".join(f"{word} on {counts[word]}" for word in words if counts[word])


def answer(items: Sequence[ReportedComparison]) -> str:
    """Returns one or two sentences on a list of comparisons: how many are clear, and the clearest."""
    first = clearest(items)
    item = first.comparison
    if first.adjusted is None:
        return f"{item.evaluation_set}: {wording.finding(item)}"
    assert item.experiment is not None
    arms = {one.comparison.experiment.name for one in items if one.comparison.experiment}
    contrast, named = f"{item.experiment.name} against {item.base.name}", ""
    if len(arms) > 1:
        contrast, named = f"{len(arms)} arms against {item.base.name}", f"{item.experiment.name}, "
    several = len(items) > 1
    lead = (
        f"{len(items)} comparisons: {tally(items)}; the clearest is"
        if several
        else f"{first.result}:"
    )
    scores = [
        score_text(arm.estimate, item.metric, interval_decimals(item.ci, item.metric))
        for arm in (item.experiment, item.base)
    ]
    sentence = (
        f"{contrast}, {lead} {named}{metric_name(item.metric)} on {item.evaluation_set}, "
        f"{' against '.join(scores)}: difference "
        f"{wording.estimate_text(item, item.estimate)} ({wording.level_text(item.confidence_level)} "
        f"{wording.estimate_text(item, item.ci)}, {wording.p_text(first.adjusted)}"
        f"{' after correction' * several}), from {wording.scope(item)}."
    )
    sentence = " ".join([sentence, *wording.borrowed_spread(item)])
    return sentence if first.early is None else (f"{sentence} {wording.early_answer(first.early)}")
