"""The list of answers for terminal, page, JSON and CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from multiberts.report.answers.borrowed_spread import OneSeed, one_seed
from multiberts.report.answers.sameness import Sameness, same
from multiberts.report.answers.slicing import Slices, slices
from multiberts.report.presentation.answer import FurtherAnswer
from multiberts.stats.compare.result import Comparison
from multiberts.stats.settings import ComparisonSettings

# Function of (comparison, parameter's value) by kind of answer, in display order; it may return None.
ANSWERS: dict[type[FurtherAnswer], Callable[[Any, Any], FurtherAnswer | None]] = {
    Sameness: same,
    OneSeed: one_seed,
    Slices: slices,
}


def asked(questions: Mapping[str, Any]) -> list[type[FurtherAnswer]]:
    """Returns the kinds of answers with a set parameter, starting with those that replace the comparison."""
    kinds = [kind for kind in ANSWERS if questions.get(kind.parameter) is not None]
    return sorted(kinds, key=lambda kind: not kind.replaces)


def settings_for(questions: Mapping[str, Any], settings: ComparisonSettings) -> ComparisonSettings:
    """Returns the settings of the comparison needed for the questions."""
    for kind in asked(questions):
        settings = kind.settings_for(settings)
    return settings


def answers_to(
    questions: Mapping[str, Any], comparison: Comparison
) -> tuple[Comparison, list[FurtherAnswer]]:
    """Answers further questions about a comparison.

    Args:
      questions: values by parameter, such as {"margin": 0.5, "by": None}.

    Returns:
      The comparison to show, and the answers in display order.
    """
    answers: list[FurtherAnswer] = []
    for kind in asked(questions):
        answer = ANSWERS[kind](comparison, questions[kind.parameter])
        if answer is not None:
            comparison = answer.comparison
            answers.append(answer)
    return comparison, sorted(answers, key=lambda answer: [*ANSWERS].index(type(answer)))


def why_unranked(questions: Mapping[str, Any]) -> str:
    """Returns the reason why three or more arms are not ranked; empty if they are."""
    return "; ".join(filter(None, (kind.no_ranking for kind in asked(questions))))
