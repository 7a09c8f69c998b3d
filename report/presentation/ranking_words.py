"""Rankings of many arms in words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from multiberts.report.presentation.formats import difference_text, interval_decimals
from multiberts.report.presentation.words import (
    PAIRED_BY_NUMBER,
    WAYS,
    about_repeats,
    about_seeds,
    are_single,
    claim,
    drawn_unit,
    filled,
    form,
    level_text,
    names_text,
    not_empty,
    rounded_score,
)
from multiberts.runs.errors import counted
from multiberts.stats.score import metric_name

if TYPE_CHECKING:
    from multiberts.stats.compare.ranking import ArmComparisons
    from multiberts.stats.results import RankedArm


def ranking_lead(result: ArmComparisons) -> str:
    """Returns the sentence on the first arm of a ranking."""
    first = result.arms[0]
    score = partial(rounded_score, first.ci, result.metric)
    is_alone = not (_tied_with_first(result) or result.against)
    comes = "leads clearly" if is_alone else "comes first"
    if result.score.more_is_better is None:
        comes = "is clearly highest" if is_alone else "is highest"
    return (
        f"{filled('{} ', claim(result.arms, result.resample))}"
        f"{first.name} {comes} by {metric_name(result.metric)}{filled(' ({})', result.evaluation_set)}, with "
        f"{score(first.estimate)} "
        f"({level_text(result.confidence_level)} {score(first.ci)})."
    )


def _tied_with_first(result: ArmComparisons) -> list[str]:
    first, *others = result.arms
    return [arm.name for arm in others if {*arm.groups} & {*first.groups}]


def ranking_finding(result: ArmComparisons) -> str:
    """Describes a ranking in a few plain sentences."""
    first, clear = result.arms[0], sum(item.clear for item in result.differences)
    numbers = numbers_of_seeds(result)
    paired = "paired seed" if result.design == "paired" else drawn_unit(result.arms)
    each = f"{numbers} {paired}{'' if numbers == '1' else 's'} each"
    if first.num_examples > 1:
        each = "one run each" if are_single(result.arms) else each
        each += f" and {counted(first.num_examples, 'shared example')}"
    are = form(clear, "is", "are")
    number = counted(len(result.differences), "difference")
    count = f"Among {len(result.arms)} arms with {each}, {clear} of {number}"
    if result.against is not None:
        ways = WAYS[result.score.more_is_better]
        sides: dict[str, list[str]] = {way: [] for way in (*ways, "not clearly different")}
        for item in result.differences:
            way = ways[item.estimate <= 0] if item.clear else "not clearly different"
            sides[way].append(item.experiment)
        words = [
            f"{way.capitalize()} than {result.against}: {names_text(names)}."
            for way, names in sides.items()
            if names
        ]
        return " ".join(
            [ranking_lead(result), f"{count} from {result.against} {are} clear.", *words]
        )
    tied = _tied_with_first(result)
    ties = filled("{} cannot be distinguished from it. ", tied and names_text(tied))
    ahead = result.differences[0]
    decimals = interval_decimals(ahead.ci, result.metric)
    size, interval = (
        difference_text(value, result.metric, decimals) for value in (ahead.estimate, ahead.ci)
    )
    ties = (
        f"The difference from {ahead.base} is {size} ({level_text(result.confidence_level)}, for all pairs "
        f"together, {interval}). {ties}"
    )
    clear_at = f"{are} clear at {result.confidence_level:.0%} for all together."
    return f"{ranking_lead(result)} {ties}{count} {clear_at}"


def numbers_of_seeds(result: ArmComparisons) -> str:
    numbers = {len(arm.seeds) for arm in result.arms}
    return " to ".join(map(str, sorted({min(numbers), max(numbers)})))


def rank_text(arm: RankedArm) -> str:
    """Returns the interval of an arm's rank, such as `2 to 4`."""
    if arm.rank_low == arm.rank_high:
        return str(arm.rank_low)
    return f"{arm.rank_low} to {arm.rank_high}"


def ranking_notes(result: ArmComparisons) -> list[str]:
    """Lists warnings on a ranking."""
    texts = [
        f"The ranks and the {'groups' if result.arms[0].groups else 'differences'} hold for all arms "
        "together; an arm's own interval does not, and two of these may overlap where the difference is "
        "clear."
    ]
    for arm in result.arms:
        if arm.left_out:
            seeds = ", ".join(map(str, arm.left_out))
            texts.append(f"Left out of {arm.name}, as other arms lack them: seeds {seeds}.")
        texts += about_seeds(arm, result.metric, result.confidence_level)
    if result.pairing == "seed number":
        texts.append(f"{PAIRED_BY_NUMBER}use the unpaired design.")
    return not_empty(*texts, about_repeats(result.arms))


def ranking_caption(result: ArmComparisons) -> str:
    """Describes the figure of a ranking, whose numbers are in the table."""
    where, level = filled(" on {}", result.name), f"{result.confidence_level:.0%}"
    return (
        f"Ranking by {metric_name(result.metric)}{where}: scores with their own {level} intervals, ranks "
        f"with {level} intervals that hold for all arms together"
    )
