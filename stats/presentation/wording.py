"""Comparisons in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.stats.presentation.comparison_tables import format_p
from multiberts.stats.presentation.table_writer import format_cell

if TYPE_CHECKING:
    from multiberts.stats.bootstrap.conclusion import ArmSummary, Comparison
    from multiberts.stats.bootstrap.score_tables import Resample

# What is resampled, and how tables call it.
SOURCES: Mapping[Resample, str] = {
    "both": "seeds and examples",
    "seeds": "seeds only",
    "examples": "examples only",
}


def finding(item: Comparison) -> str:
    """Describes the result in a few sentences, for a reader who is not a statistician."""
    level = f"{item.confidence:.0%} CI {format_cell(item.t)}"
    if item.experiment is None:
        return (
            f"Across {_seeds(item.base)} and {item.num_examples} {_unit(item)}, {item.metric} of "
            f"{item.base.name} is {format_cell(item.estimate)} ({level})."
        )
    base, experiment = item.base, item.experiment
    if item.estimate == 0:
        change = (
            f"{item.metric} is the same for {experiment.name} and {base.name}, "
            f"{format_cell(base.estimate)} (difference 0, {level})."
        )
    else:
        change = (
            f"{item.metric} of {experiment.name} is {'higher' if item.estimate > 0 else 'lower'} "
            f"than that of {base.name} by {format_cell(abs(item.estimate))}: "
            f"{format_cell(experiment.estimate)} against {format_cell(base.estimate)} "
            f"(difference {format_cell(item.estimate)}, {level})."
        )
    seeds = f"{_seeds(base)} against {_seeds(experiment)}"
    if item.design == "paired":
        seeds = (
            f"{_number(len(base.seeds), 'paired seed')} "
            f"({base.num_runs} and {experiment.num_runs} runs)"
        )
    scope = f"Across {seeds} and {item.num_examples} shared {_unit(item)}"
    return f"{scope}, {change} {_verdict(item)}"


def _seeds(arm: ArmSummary) -> str:
    return f"{_number(len(arm.seeds), 'seed')} ({_number(arm.num_runs, 'run')})"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def _unit(item: Comparison) -> str:
    return "occupations" if item.metric in OCCUPATION_MEASURES else "examples"


def _verdict(item: Comparison) -> str:
    assert item.p_t is not None
    p = format_p(item.p_t)
    p = f"p {p}" if p.startswith("<") else f"p = {p}"
    drawn = {"both": f"seeds and {_unit(item)}", "seeds": "seeds", "examples": _unit(item)}
    chance = f"due to chance in the choice of {drawn[item.resample]}"
    if item.p_t.two_sided < 1 - item.confidence:
        return f"This is unlikely to be {chance}: {p} (two-sided t test)."
    return (
        f"This may be {chance}: {p} (two-sided t test); the data do not rule out zero difference."
    )


def warnings(item: Comparison) -> list[str]:
    """Lists what a reader must know before believing the numbers."""
    found = []
    if item.below_seed_floor and item.seed_floor is not None:
        assert item.p_t is not None and item.p_percentile is not None
        floor = Fraction(item.seed_floor).limit_denominator(10**9)
        flips = (
            f" The sign-flip test, which makes no assumption about this distribution and concerns "
            f"only these {_unit(item)}, gives p = {item.p_sign_flip.two_sided:.2g} (two-sided)."
            if item.p_sign_flip
            else ""
        )
        found.append(
            "With so few seeds, a test that uses only their order cannot give a one-sided p below "
            f"{floor} = {item.seed_floor:.2g}. Smaller values (bootstrap "
            f"{min(item.p_percentile[:2]):.2g}, t {min(item.p_t[:2]):.2g}) rely on the examples, or "
            "on the assumption that seed effects are normally distributed; with few seeds the "
            f"bootstrap's own p is too small.{flips}"
        )
    if item.degenerate_replicates:
        found.append(
            f"In {item.degenerate_replicates} of {item.num_bootstrap} bootstrap samples the score of "
            "some run was 0/0 and was taken as 0."
        )
    return found
