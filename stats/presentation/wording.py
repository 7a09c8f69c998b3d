"""Comparisons in plain words."""

from __future__ import annotations

from fractions import Fraction

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.stats.bootstrap.conclusion import ArmSummary, Comparison
from multiberts.stats.presentation.tables import format_interval, format_number, format_p


def finding(item: Comparison) -> str:
    """What the numbers say, in a few sentences for a reader who is no statistician."""
    if item.experiment is None:
        return (
            f"Across {_seeds(item.base)} and {item.num_examples} {_unit(item)}, {item.metric} of "
            f"{item.base.name} is {format_number(item.estimate)} ({_level(item)})."
        )
    direction = "higher" if item.estimate > 0 else "lower"
    change = (
        f"{item.metric} of {item.experiment.name} is {direction} than that of {item.base.name} by "
        f"{format_number(abs(item.estimate))}: {format_number(item.experiment.estimate)} against "
        f"{format_number(item.base.estimate)} (difference {format_number(item.estimate)}, "
        f"{_level(item)})."
    )
    if item.estimate == 0:
        change = (
            f"{item.metric} is the same for {item.experiment.name} and {item.base.name}, "
            f"{format_number(item.base.estimate)} (difference 0, {_level(item)})."
        )
    return f"{_scope(item)}, {change} {_verdict(item)}"


def _seeds(arm: ArmSummary) -> str:
    return f"{_number(len(arm.seeds), 'seed')} ({_number(arm.num_runs, 'run')})"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def _unit(item: Comparison) -> str:
    return "occupations" if item.metric in OCCUPATION_MEASURES else "examples"


def _level(item: Comparison) -> str:
    return f"{item.confidence:.0%} CI {format_interval(item.t)}"


def _scope(item: Comparison) -> str:
    assert item.experiment is not None
    if item.design == "paired":
        runs = f"{item.base.num_runs} and {item.experiment.num_runs} runs"
        seeds = (
            f"{len(item.base.seeds)} paired seed{'s' if len(item.base.seeds) > 1 else ''} ({runs})"
        )
    else:
        seeds = f"{_seeds(item.base)} against {_seeds(item.experiment)}"
    return f"Across {seeds} and {item.num_examples} shared {_unit(item)}"


def _verdict(item: Comparison) -> str:
    assert item.p_t is not None
    p = format_p(item.p_t)
    p = f"p {p}" if p.startswith("<") else f"p = {p}"
    luck = {
        "both": f"the luck of seeds and {_unit(item)}",
        "seeds": "the luck of seeds",
        "examples": f"the luck of {_unit(item)}",
    }[item.resample]
    if item.p_t.two_sided < 1 - item.confidence:
        return f"That is unlikely to be {luck}: {p} (two-sided t)."
    return f"That may well be {luck}: {p} (two-sided t); no difference is not excluded."


def warnings(item: Comparison) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    if item.below_seed_floor and item.seed_floor is not None:
        floor = Fraction(item.seed_floor).limit_denominator(10**9)
        percentile = min(item.p_percentile.greater, item.p_percentile.less)  # type: ignore[union-attr]
        flips = (
            f" The sign-flip test, which assumes nothing about their shape and asks about these very "
            f"{_unit(item)}, gives p = {item.p_sign_flip.two_sided:.2g} (two-sided)."
            if item.p_sign_flip
            else ""
        )
        found.append(
            f"With so few seeds their order alone cannot give a one-sided p below {floor} = "
            f"{item.seed_floor:.2g}. Smaller ones (bootstrap {percentile:.2g}, t "
            f"{min(item.p_t.greater, item.p_t.less):.2g}) "  # type: ignore[union-attr]
            "rest on seed effects being spread like a normal distribution, or on the examples; "
            "the bootstrap's own p is too small with few seeds." + flips
        )
    if item.degenerate_replicates:
        found.append(
            f"In {item.degenerate_replicates} of {item.num_bootstrap} bootstrap samples the "
            "score of "
            "some run was 0/0 and was taken as 0."
        )
    return found
