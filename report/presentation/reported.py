"""Comparisons for the list in a report, with corrected p, result in words and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from multiberts.report.presentation import words
from multiberts.report.presentation.answer import FurtherAnswer
from multiberts.report.presentation.formats import NONE, interval_decimals, score_text
from multiberts.report.presentation.sections import ReportSection
from multiberts.stats.compare.result import Comparison
from multiberts.stats.score import metric_name
from multiberts.stats.significance import adjusted_p_values


@dataclass(frozen=True)
class ReportedComparison:
    """One comparison of a list, with its result by the corrected p.

    Attributes:
      adjusted: recommended two-sided p, corrected for the length of the list (Holm); None in a `single`
        design.
      result: result in one or two words, by the corrected p; a dash in a `single` design.
      answers: answers to further questions, corrected for the length of the list.
    """

    comparison: Comparison
    adjusted: float | None
    result: str
    answers: Sequence[FurtherAnswer] = ()
    figures: Sequence[ReportSection] = ()

    def finding(self, pairing: bool = True) -> str:
        """Returns `words.finding` of the comparison."""
        return words.finding(self.comparison, self.adjusted, self.answers, pairing=pairing)


def judged(
    comparisons: Sequence[Comparison],
    answers: Sequence[Sequence[FurtherAnswer]] | None = None,
    figures: Sequence[Sequence[ReportSection]] | None = None,
) -> list[ReportedComparison]:
    """Determines the result of each comparison by p, corrected for the length of the list.

    Args:
      answers: answers to further questions about each comparison.
    """
    number = len(comparisons)
    tested = [item.p_value for item in comparisons if item.p_value is not None]
    corrected = iter(adjusted_p_values(tested, "holm").tolist() if tested else [])
    p_values = [None if item.p_value is None else next(corrected) for item in comparisons]
    every = _corrected(answers or [()] * number, p_values)
    rows = zip(comparisons, p_values, every, figures or [()] * number, strict=True)
    return [
        ReportedComparison(
            item,
            p,
            NONE if p is None else words.verdict(item, p),
            row_answers,
            row_figures,
        )
        for item, p, row_answers, row_figures in rows
    ]


def _corrected(
    answers: Sequence[Sequence[FurtherAnswer]], p_values: Sequence[float | None]
) -> list[list[FurtherAnswer]]:
    """Corrects the answers of each kind for the number of answers."""
    every = [list(of_row) for of_row in answers]
    for kind in dict.fromkeys(type(answer) for of_row in every for answer in of_row):
        cells = [
            (row, column)
            for row, of_row in enumerate(every)
            for column, answer in enumerate(of_row)
            if type(answer) is kind
        ]
        corrected = kind.corrected([(every[row][column], p_values[row]) for row, column in cells])
        for (row, column), answer in zip(cells, corrected, strict=True):
            every[row][column] = answer
    return every


def clearest(items: Sequence[ReportedComparison]) -> ReportedComparison:
    """Returns the comparison with the smallest corrected p, or the first of single arms."""
    return min(items, key=lambda item: 0.0 if item.adjusted is None else item.adjusted)


def means_of(items: Sequence[ReportedComparison]) -> list[ReportedComparison]:
    """Returns the means over tasks."""
    return [item for item in items if item.comparison.tasks]


def tally(items: Sequence[ReportedComparison]) -> str:
    """Counts the results in a list, except means over tasks, such as `better on 3, not clear on 2`."""
    counts = Counter(item.result for item in items if not item.comparison.tasks)
    results = ("better", "worse", "higher", "lower", "not clear")
    return ", ".join(f"{word} on {counts[word]}" for word in results if counts[word])


def against_base(items: Sequence[ReportedComparison]) -> str:
    """Returns which of several arms are better or worse than their base, by means over tasks if any."""
    rows = [row for row in means_of(items) or items if row.comparison.experiment is not None]
    names: dict[str, list[str]] = {}
    for row in rows:
        assert row.comparison.experiment is not None
        names.setdefault(row.result, []).append(row.comparison.experiment.name)
    arms = {name for of_result in names.values() for name in of_result}
    if len(arms) < 2 or len(rows) > len(arms):  # several tasks or metrics without a mean
        return ""
    base = rows[0].comparison.base.name
    order = ("better", "higher", "worse", "lower")
    told = [
        f"{words.names_text(names[result])} {'is' if len(names[result]) == 1 else 'are'} {result} than {base}"
        for result in order
        if result in names
    ]
    if unclear := names.get("not clear"):
        start = "no clear difference from it" if told else f"No clear difference from {base}"
        told.append(f"{start} for {words.names_text(unclear)}")
    return "; ".join(told) + "."


def answer(items: Sequence[ReportedComparison], asked: ReportedComparison) -> str:
    """Returns one or two sentences on a list: the counts of results, and the primary comparison."""
    first, number = asked, len(items) - len(means_of(items))
    item = first.comparison
    if first.adjusted is None:
        return f"{item.evaluation_set}: {first.finding()}"
    assert item.experiment is not None
    arms = {row.comparison.experiment.name for row in items if row.comparison.experiment}
    contrast, named = f"{item.experiment.name} against {item.base.name}", ""
    if len(arms) > 1:
        contrast, named = f"{len(arms)} arms against {item.base.name}", f"{item.experiment.name}, "
    several = len(items) > 1
    which = "their mean is" if item.tasks else "the clearest is"
    lead = f"{number} comparisons: {tally(items)}; {which}" if several else f"{first.result}:"
    scores = [
        score_text(arm.estimate, item.metric, interval_decimals(item.ci, item.metric))
        for arm in (item.experiment, item.base)
    ]
    where = "" if item.tasks else f" on {item.evaluation_set}"
    sentence = (
        f"{contrast}, {lead} {named}{metric_name(item.metric)}{where}, "
        f"{' against '.join(scores)}: difference "
        f"{words.estimate_text(item, item.estimate)} ({words.level_text(item.confidence_level)} "
        f"{words.estimate_text(item, item.ci)}, {words.p_text(first.adjusted)}"
        f"{' after correction' * (several and not item.tasks)}), from {words.scope(item)}."
    )
    return " ".join([sentence, *(text for each in first.answers for text in each.summary())])
