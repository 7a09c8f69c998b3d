"""Rankings of many arms in plain words and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiberts.runs.errors import counted
from multiberts.stats.formats import Cell, format_cell, with_decimals
from multiberts.stats.metric_names import (
    interval_decimals,
    metric_name,
    score_format,
    score_text,
)
from multiberts.stats.presentation.method_words import interval_sentences
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.presentation.wording import (
    PAIRED_BY_NUMBER,
    SELLAM,
    about_seeds,
    level_text,
    missing_cells,
    random_samples,
)

if TYPE_CHECKING:
    from multiberts.stats.results import RankedArm, RankingResult

_MOST_NAMES = 6


def finding(result: RankingResult) -> str:
    """Describes a ranking in a few sentences, for a reader who is not a statistician."""
    first, clear = result.arms[0], sum(item.clear for item in result.differences)
    numbers, paired = _numbers_of_seeds(result), "paired " * (result.design == "paired")
    decimals = _decimals(result)
    scope = (
        f"Among {len(result.arms)} arms with {numbers} {paired}seed{'s' * (numbers != '1')} each and "
        f"{counted(first.num_examples, 'shared example')}, {first.name} comes first by "
        f"{metric_name(result.metric)}, with {score_text(first.estimate, result.metric, decimals)} "
        f"({level_text(result.confidence_level)} {score_text(first.ci, result.metric, decimals)})."
    )
    count = f"{clear} of {counted(len(result.differences), 'difference')}"
    are = "is" if clear == 1 else "are"
    if result.against is not None:
        words = [
            f"{word} than {result.against}: {_names(found)}."
            for word, found in _sorted_by_result(result).items()
            if found
        ]
        return " ".join([scope, f"{count} from {result.against} {are} clear.", *words])
    tied = [arm.name for arm in result.arms[1:] if set(arm.groups) & set(first.groups)]
    ahead = f"{_names(tied)} cannot be distinguished from it." if tied else "It leads clearly."
    return f"{scope} {ahead} {count} {are} clear at {result.confidence_level:.0%} for all together."


def _numbers_of_seeds(result: RankingResult) -> str:
    seeds = sorted({len(arm.seeds) for arm in result.arms})
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def _sorted_by_result(result: RankingResult) -> dict[str, list[str]]:
    words = {True: ("Better", "Worse"), False: ("Worse", "Better"), None: ("Higher", "Lower")}
    above, below = words[result.higher_is_better]
    found: dict[str, list[str]] = {above: [], below: [], "Not clearly different": []}
    for item in result.differences:
        word = (above if item.estimate > 0 else below) if item.clear else "Not clearly different"
        found[word].append(item.experiment)
    return found


def _names(names: list[str]) -> str:
    shown = names if len(names) <= _MOST_NAMES else names[: _MOST_NAMES - 1]
    last = shown[-1:] if len(shown) == len(names) else [f"{len(names) - len(shown)} more"]
    rest = shown[: len(shown) - (len(shown) == len(names))]
    return " and ".join([text for text in (", ".join(rest), *last) if text])


def arms_table(result: RankingResult) -> Table:
    """Makes the table of the arms, best first."""
    level, metric = f"{result.confidence_level:.0%}", metric_name(result.metric)
    records: list[dict[str, Cell]] = [
        {
            "rank": arm.rank,
            f"{level} ranks": rank_text(arm),
            "arm": arm.name,
            metric: arm.estimate,
            f"{level} CI": arm.ci,
            "seeds": len(arm.seeds),
            **({"group": "".join(arm.groups)} if arm.groups else {}),
        }
        for arm in result.arms
    ]
    shown = with_decimals(score_format(result.metric), _decimals(result))
    return Table.from_records(records, dict.fromkeys((metric, f"{level} CI"), shown))


def _decimals(result: RankingResult) -> int | None:
    return interval_decimals(result.arms[0].ci, result.metric)


def rank_text(arm: RankedArm) -> str:
    """Returns the ranks that an arm may have, such as `2 to 4`."""
    if arm.rank_low == arm.rank_high:
        return str(arm.rank_low)
    return f"{arm.rank_low} to {arm.rank_high}"


def differences_table(result: RankingResult) -> Table:
    level = f"simultaneous {result.confidence_level:.0%} CI"
    records = [
        {
            "arm": item.experiment,
            "against": item.base,
            "difference": item.estimate,
            level: item.ci,
            "p": item.p_values["uncorrected"],
            "p (Bonferroni)": item.p_value,
            "p (Holm)": item.p_values["holm"],
            "result": "clear" if item.clear else "not clear",
        }
        for item in result.differences
    ]
    shown = with_decimals(score_format(result.metric, True), _decimals(result))
    formats = dict.fromkeys(("difference", level), shown)
    return Table.from_records(
        records, formats | dict.fromkeys(("p", "p (Bonferroni)", "p (Holm)"), "p")
    )


def notes(result: RankingResult) -> list[str]:
    """Lists what a reader must know before believing a ranking."""
    found = [
        f"The ranks and the {'groups' if result.arms[0].groups else 'differences'} hold for all arms "
        "together; an arm's own interval does not, and two of these may overlap where the difference is "
        "clear."
    ]
    for arm in result.arms:
        if arm.left_out:
            seeds = ", ".join(map(str, arm.left_out))
            found.append(f"Left out of {arm.name}, as other arms lack them: seeds {seeds}.")
        found += about_seeds(arm, result.metric, result.confidence_level)
    if result.pairing == "seed number":
        found.append(f"{PAIRED_BY_NUMBER} If they are unrelated, give design='unpaired'.")
    return found


def methods(result: RankingResult) -> str:
    """Writes the paragraph on methods for a paper, with references."""
    level = f"{result.confidence_level:.0%}"
    drawn = random_samples(result.resample, "seeds")
    over_runs = any(arm.num_runs > len(arm.seeds) for arm in result.arms)
    of_intervals, references = interval_sentences(
        [item.ci for item in result.differences], [arm.ci for arm in result.arms]
    )
    pairs = "all pairs" if result.against is None else f"each with {result.against}"
    sentences = [
        f"We compare {len(result.arms)} arms ({pairs}) by {metric_name(result.metric)}, averaged over "
        f"{'the runs of each seed and over ' * over_runs}{_numbers_of_seeds(result)} seeds, and take {drawn} "
        "as random samples (Sellam et al., 2022).",
        "Seeds of the arms were drawn independently."
        if result.design == "unpaired"
        else "Seeds were paired across arms.",
        *of_intervals,
        *missing_cells(result.arms),
    ]
    if result.shared_degrees_of_freedom:
        sentences.append(
            "Variances between seeds were moderated by their mean over "
            f"{'arms' if result.design == 'unpaired' else 'pairs of arms'}, which counts for "
            f"{format_cell(result.shared_degrees_of_freedom)} degrees of freedom (Smyth, 2004)."
        )
        references.append(
            "Smyth, G. K. (2004). Linear Models and Empirical Bayes Methods for Assessing Differential "
            "Expression in Microarray Experiments. Stat. Appl. Genet. Mol. Biol. 3(1)."
        )
    sentences.append(
        f"Intervals of the {counted(len(result.differences), 'difference')} hold simultaneously at {level} "
        f"(Bonferroni), and so do the {level} intervals of the ranks that follow from them (Mogstad et "
        "al., 2024)."
    )
    references.append(
        "Mogstad, M., Romano, J. P., Shaikh, A. M. & Wilhelm, D. (2024). Inference for Ranks with "
        "Applications to Mobility across Neighbourhoods and Academic Achievement across Countries. "
        "Review of Economic Studies 91(1)."
    )
    return f"{' '.join(sentences)}\n\nReferences: {' '.join([SELLAM, *references])}"


def caption(result: RankingResult) -> str:
    """Describes the figure of a ranking with its numbers, for readers who cannot see it."""
    arms = [
        f"{arm.name} {score_text(arm.estimate, result.metric, _decimals(result))}, rank {rank_text(arm)}"
        f"{', group ' + ''.join(arm.groups) if arm.groups else ''}"
        for arm in result.arms
    ]
    where = f" on {result.name}" if result.name else ""
    level = f"{result.confidence_level:.0%}"
    return f"Ranking by {metric_name(result.metric)}{where} with {level} rank intervals: {'; '.join(arms)}"
