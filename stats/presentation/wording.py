"""Comparisons in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.runs.errors import counted
from multiberts.stats.formats import format_cell
from multiberts.stats.metric_names import (
    difference_text,
    higher_is_better,
    interval_decimals,
    metric_name,
    score_text,
)
from multiberts.stats.presentation.method_words import interval_sentences, name_of_test
from multiberts.stats.variance.plan import detectable_text, range_text, too_few

if TYPE_CHECKING:
    from multiberts.stats.intervals import Interval
    from multiberts.stats.presentation.answer import FurtherAnswer
    from multiberts.stats.results import ArmSummary, ComparisonResult
    from multiberts.stats.settings import Resample
    from multiberts.stats.variance.needs import Needs

# A rate of failures above this hides in few seeds, and lowers the coverage of intervals (calibration.md).
_HARMFUL_RATE = 0.1

PAIRED_BY_NUMBER = (
    "Seeds are paired by seed number only: nothing in the data says that runs of one seed have a "
    "common parent."
)
SELLAM = (
    "Sellam, T. et al. (2022). The MultiBERTs: BERT Reproductions for Robustness Analysis. ICLR."
)
# Resampled units, and their names in tables.
SOURCES: Mapping[Resample, str] = {
    "both": "seeds and examples",
    "seeds": "seeds only",
    "examples": "examples only",
}


def finding(
    item: ComparisonResult,
    adjusted: float | None = None,
    answers: Sequence[FurtherAnswer] = (),
    *,
    pairing: bool = True,
) -> str:
    """Describes the result in a few sentences, for a reader who is not a statistician.

    The arguments are those of `finding_sentences`.
    """
    return " ".join(finding_sentences(item, adjusted, answers, pairing=pairing))


def finding_sentences(
    item: ComparisonResult,
    adjusted: float | None = None,
    answers: Sequence[FurtherAnswer] = (),
    *,
    pairing: bool = True,
) -> list[str]:
    """Returns the result with its interval, and then what else there is to say of it.

    Args:
      adjusted: its p corrected by Holm for the number of comparisons, by which the result is then
        judged; None: the p of this comparison alone.
      answers: to further questions, whose sentences follow.
      pairing: whether it says how seeds are paired, as `interval_to_report` does, too.
    """
    metric = item.metric
    level = f"{level_text(item.confidence_level)} {estimate_text(item, item.ci)}"
    further = [text for answer in answers for text in answer.sentences()]
    if item.experiment is None:
        return [
            f"Across {_seeds(item.base)} and {_examples(item.base, item)}, {metric_name(metric)} of "
            f"{item.base.name} is {estimate_text(item, item.estimate)} ({level}).",
            *_over_labels(item),
            *further,
        ]
    base, experiment = item.base, item.experiment
    if _is_identical(item):
        places = {"seeds": "in any seed", "examples": "on any example"}
        drawn = places.get(item.resample, " or ".join(places.values()))
        same = (
            f"Across {scope(item)}, the scores of {experiment.name} and {base.name} are identical: "
            f"{metric_name(metric)} is {score_text(base.estimate, metric)} for both, without a difference "
            f"{drawn}, so there is nothing to test."
        )
        return [same, *further]
    if item.estimate == 0:
        change = (
            f"{metric_name(metric)} is the same for {experiment.name} and {base.name}, "
            f"{_arm_text(item, base)} (difference 0, {level})."
        )
    else:
        change = (
            f"{metric_name(metric)} of {experiment.name} is "
            f"{'higher' if item.estimate > 0 else 'lower'} than that of {base.name} by "
            f"{estimate_text(item, abs(item.estimate))}: {_arm_text(item, experiment)} "
            f"against {_arm_text(item, base)} "
            f"(difference {estimate_text(item, item.estimate)}, {level})."
        )
    return [
        f"Across {scope(item)}, {change}",
        _judgement(item, adjusted, answers),
        *_over_labels(item),
        *further,
        *_about_these(item),
        *(_pairing(item) if pairing else []),
    ]


def _is_identical(item: ComparisonResult) -> bool:
    """Returns whether nothing that is drawn differs between two arms, not even by turns (the residual)."""
    parts = item.variance_parts
    by_turns = parts is not None and any(share for share, _ in parts.residual)
    return item.estimate == 0 and item.standard_error == 0 and not by_turns


def _about_these(item: ComparisonResult) -> list[str]:
    """Says where the result is about the models that were compared, and not about new seeds of them."""
    assert item.experiment is not None
    base = item.base.name
    if item.resample == "examples":
        these = "two models" if item.base.num_runs == item.experiment.num_runs == 1 else "models"
        return [f"This is about these {these} on new examples, and not about other seeds of them."]
    if item.design == "fixed_baseline":
        these = (
            "this one model" if item.base.num_runs == 1 else f"these {item.base.num_runs} runs of"
        )
        return [f"This is about {these} {base}, and not about other seeds of it."]
    return []


def interval_to_report(item: ComparisonResult) -> str:
    """Says which interval belongs in a paper, and why; nothing of a single arm."""
    if item.experiment is None or _is_identical(item):
        return ""
    shown = estimate_text(item, item.ci)
    own = f"Report {shown}"
    if item.resample == "examples":
        return f"{own}: seeds are held fixed, so the interval is about new examples alone."
    left_out = [text for text in _pairing(item) if not text.startswith(PAIRED_BY_NUMBER)]
    if item.pairing == "seed number" and "unpaired" in item.intervals:
        unpaired = estimate_text(item, item.intervals["unpaired"])
        if shown == unpaired:
            return " ".join([f"{own}: it is the same whether seeds are paired or not.", *left_out])
        why = (
            "if seeds of one number share something in training, such as initialisation or order of data; "
            f"if not, report {unpaired} ({p_text(item.p_values['unpaired'].two_sided)}, "
            "--design=unpaired). The data do not say which."
        )
        return " ".join([own, why, *left_out])
    reasons = {
        "paired": "seeds are paired, and the data say what they share",
        "unpaired": "each arm has seeds of its own, so the interval is unpaired",
        "fixed_baseline": f"{item.base.name} is held fixed, so the interval is not about other seeds of it",
    }
    return " ".join([f"{own}: {reasons[item.design]}.", *left_out])


def estimate_text(item: ComparisonResult, number: float | Interval) -> str:
    """Returns a number in the unit of a comparison's estimate, with the decimals of its interval."""
    decimals = interval_decimals(item.ci, item.metric)
    if item.experiment is None:
        return score_text(number, item.metric, decimals)
    return difference_text(number, item.metric, decimals)


def error_text(item: ComparisonResult, error: float) -> str:
    """Returns a standard error with its unit, and a decimal more than the interval has, which is wider."""
    decimals = interval_decimals(item.ci, item.metric)
    return difference_text(error, item.metric, None if decimals is None else decimals + 1)


def _arm_text(item: ComparisonResult, arm: ArmSummary) -> str:
    return score_text(arm.estimate, item.metric, interval_decimals(item.ci, item.metric))


def level_text(confidence_level: float) -> str:
    """Returns what an interval is called in a sentence, `95 % CI`."""
    return f"{100 * confidence_level:g} % CI"


def scope(item: ComparisonResult) -> str:
    """Returns what a comparison of two arms rests on."""
    assert item.experiment is not None
    seeds = f"{_seeds(item.base)} against {_seeds(item.experiment)}"
    if item.design == "paired":
        seeds = (
            f"{counted(len(item.base.seeds), 'paired seed')} "
            f"({item.base.num_runs} and {counted(item.experiment.num_runs, 'run')})"
        )
    return f"{seeds} and {_examples(item.base, item, 'shared ')}"


def arms_of(item: ComparisonResult) -> list[ArmSummary]:
    """Returns the base, and the experiment if there is one."""
    return [arm for arm in (item.base, item.experiment) if arm is not None]


def _pairing(item: ComparisonResult) -> list[str]:
    """Says which seeds pairing left out, and what the answer is were they unrelated."""
    found = []
    for arm in arms_of(item):
        if arm.left_out:
            found.append(
                f"Left out, as the other arm lacks {'them' if len(arm.left_out) > 1 else 'it'}: "
                f"{seed_names(arm.left_out)} of {arm.name}."
            )
    if item.pairing == "seed number" and "unpaired" in item.intervals:
        found.append(
            f"{PAIRED_BY_NUMBER} Were they unrelated, the interval would be "
            f"{estimate_text(item, item.intervals['unpaired'])} "
            f"({p_text(item.p_values['unpaired'].two_sided)})."
        )
    return found


def _examples(arm: ArmSummary, item: ComparisonResult, kind: str = "") -> str:
    """Returns the number of examples of an arm, and of their clusters with their name."""
    text = f"{arm.num_examples} {kind}{units_of(item)}"
    if arm.num_clusters is None:
        return text
    name = f" ({arm.cluster_name})" if arm.cluster_name else ""
    return f"{text} in {counted(arm.num_clusters, 'cluster')}{name}"


def random_samples(resample: Resample, seeds_are: str) -> str:
    """Returns what a study takes as random samples, for its paragraph on methods."""
    return {
        "both": f"both {seeds_are} and examples",
        "seeds": f"{seeds_are}, with the examples held fixed,",
        "examples": "examples, with the seeds held fixed,",
    }[resample]


def methods(
    items: Sequence[ComparisonResult],
    seeds_are: str = "seeds",
    runs_are: str = "runs",
    answers: Sequence[FurtherAnswer] = (),
) -> str:
    """Writes the paragraph on methods for a paper, with references.

    Args:
      items: the comparisons; the first one's settings are those of all.
      seeds_are: what the data call seeds, such as "pre-training seeds".
      runs_are: what the data call several runs of one seed, such as "fine-tuning runs".
      answers: to further questions about the first one.
    """
    item = items[0]
    level, seeds = f"{item.confidence_level:.0%}", len(item.base.seeds)
    over_runs = any(arm.num_runs > len(arm.seeds) for arm in arms_of(item))
    what = " and ".join(dict.fromkeys(metric_name(found.metric) for found in items))
    drawn = random_samples(item.resample, seeds_are)
    designs = {
        "paired": "Seeds were paired.",
        "unpaired": "Seeds of the two arms were drawn independently.",
        "fixed_baseline": f"The runs of {item.base.name} were held fixed.",
        "single": "",
    }
    sentences = [
        f"We report {what}, averaged over {f'the {runs_are} of each seed and over ' * over_runs}{seeds_are} "
        f"({seeds}{f' and {len(item.experiment.seeds)}' if item.experiment else ''}), with {level} "
        f"confidence intervals that take {drawn} as random samples (Sellam et al., 2022).",
        designs[item.design],
    ]
    if item.base.num_clusters is not None:
        name = f" ({item.base.cluster_name})" if item.base.cluster_name else ""
        sentences.append(
            f"Examples were drawn in {counted(item.base.num_clusters, 'cluster')}{name}."
        )
    of_intervals, references = about_intervals(items)
    sentences += [*of_intervals, *missing_cells([arm for each in items for arm in arms_of(each)])]
    if any(found.pooled_seeds for found in items):
        sentences.append(
            "The mean squares of the seeds of the two arms were pooled where their ratio was below the "
            "90 % point of its F distribution."
        )
    if {"sign flip", "permutation"} & {*item.p_values}:
        test = "sign flips of" if "sign flip" in item.p_values else "permutations of"
        sentences.append(f"Randomisation tests use {test} the seeds.")
    for answer in answers:
        further, of_answer = answer.methods()
        sentences += further
        references += of_answer
    sentences += dict.fromkeys(map(unseen_failures, items))
    if item.intervals:
        sentences.append(
            f"Bootstrap intervals use {item.n_resamples:,} replicates (rng {item.rng})."
        )
    text = " ".join(sentence for sentence in sentences if sentence)
    return f"{text}\n\nReferences: {' '.join([SELLAM, *references])}"


def about_intervals(items: Sequence[ComparisonResult]) -> tuple[list[str], list[str]]:
    return interval_sentences(
        [each.ci for each in items if each.experiment is not None],
        [arm.ci for each in items for arm in arms_of(each)],
    )


def missing_cells(arms: Sequence[ArmSummary]) -> list[str]:
    """Says how many predictions of each arm are missing, and what was made of them."""
    numbers = {arm.name: arm.num_missing for arm in arms if arm.num_missing}
    if not numbers:
        return []
    of_arms = " and ".join(f"{number:,} of {name}" for name, number in numbers.items())
    return [
        f"Missing predictions ({of_arms}) were left out of the scores of their runs, as if they were missing "
        "at random."
    ]


def _seeds(arm: ArmSummary) -> str:
    return f"{counted(len(arm.seeds), 'seed')} ({counted(arm.num_runs, 'run')})"


def units_of(item: ComparisonResult) -> str:
    """Returns what a comparison calls its examples."""
    return "occupations" if item.metric in OCCUPATION_MEASURES else "examples"


def verdict(
    item: ComparisonResult,
    adjusted: float,
    better: bool | None,
    answers: Sequence[FurtherAnswer] = (),
) -> str:
    """Returns the result in one word or two, judged by the corrected p.

    Args:
      adjusted: its p corrected for the number of comparisons.
      better: whether a higher score is better; None where neither way is.
      answers: to further questions; one of them may decide instead of p.
    """
    if not _is_clear(item, adjusted, answers) or item.estimate == 0:
        return "not clear"
    if better is None:
        return "higher" if item.estimate > 0 else "lower"
    return "better" if (item.estimate > 0) == better else "worse"


def _is_clear(item: ComparisonResult, p: float, answers: Sequence[FurtherAnswer] = ()) -> bool:
    decided = [answer.clear for answer in answers if answer.clear is not None]
    # Rounded: 1 - 0.95 is above 0.05.
    return decided[0] if decided else p < round(1 - item.confidence_level, 12)


def p_text(value: float) -> str:
    """Writes a p-value for a sentence, `p = 0.03`."""
    text = format_cell(value, "p")
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def _judgement(
    item: ComparisonResult, adjusted: float | None, answers: Sequence[FurtherAnswer]
) -> str:
    """Says what p is: how often studies without a difference show one this large.

    It is not the probability that the difference is due to chance (Wasserstein & Lazar 2016, principle 2).
    """
    assert item.p_value is not None
    own = item.p_value
    judged = own if adjusted is None else adjusted
    drawn = {
        "both": f"seeds and {units_of(item)}",
        "seeds": "seeds",
        "examples": units_of(item),
    }
    if item.standard_error == 0 and own == 1 and item.estimate != 0:
        return f"Nothing varies over {drawn[item.resample]}, so there is neither an interval nor a test."
    test = f"The {name_of_test(item.ci)} over {drawn[item.resample]} gives {p_text(own)}"
    if adjusted is not None and format_cell(adjusted, "p") != format_cell(own, "p"):
        test = f"{test}, and {p_text(adjusted)} after Holm's correction"
    if not _is_clear(item, judged, answers):
        test = f"{test}: the data do not rule out zero difference"
        if item.ci.low < 0 < item.ci.high and math.isfinite(item.ci.high - item.ci.low):
            low, high = estimate_text(item, item.ci).split(" to ")
            test += f", only differences below {low} or above {high}"
        if adjusted is not None and not item.ci.low <= 0 <= item.ci.high:
            test += ", though the interval, which is of this comparison alone, excludes 0"
    if item.estimate == 0:
        return f"{test}."  # every study shows a difference of 0 or more
    known = item.metric in METRICS or item.metric in OCCUPATION_MEASURES
    neutral = known and higher_is_better(item.metric) is None
    look = "".join(answer.occasion for answer in answers)
    return (
        f"If both were {'alike' if neutral else 'equally good'}, a difference this large would come "
        f"up{look} in {rate_text(own)} of such studies. {test}."
    )


def _over_labels(item: ComparisonResult) -> list[str]:
    """Says what a macro average is without the classes that stray answers add to it."""
    if not item.over_labels:
        return []
    *base, last = (score_text(score, item.metric, 1) for score in item.over_labels)
    against = ""
    if base:
        first, second = item.over_labels
        against = (
            f" against {base[0]}, a difference of {difference_text(second - first, item.metric, 1)}"
        )
    return [
        f"This {metric_name(item.metric)} counts answers that no label has as classes: over the classes of "
        f"the labels alone it is {last}{against} (see the notes)."
    ]


def rate_text(p: float) -> str:
    """Returns a p-value as a rate, with as many digits as `p_text` shows."""
    return "fewer than 0.01 %" if p < 1e-4 else f"{100 * float(f'{p:.2g}'):g} %"


def about_seeds(arm: ArmSummary, metric: str, confidence_level: float, rest: str = "") -> list[str]:
    """Says which seeds of an arm seem to have failed, and whether all are constant."""
    found = [_failure(arm, metric, confidence_level) + rest] if arm.failed_seeds else []
    number = len(arm.seeds)
    if len(arm.constant_seeds) == number:
        seeds = f"All {number} seeds" if number > 1 else "The one seed"
        found.append(
            f"{seeds} of {arm.name} {_one_answer(arm, metric, number)}, as a fixed rule does, or a "
            "model whose training failed; their spread says nothing about seeds that train."
        )
    return found


def _failure(arm: ArmSummary, metric: str, confidence_level: float) -> str:
    """Says which seeds seem to have failed, how often that happens, and how often the sign is false."""
    failed, number = len(arm.failed_seeds), len(arm.seeds)
    pairs = zip(arm.seeds, arm.seed_scores, strict=True)
    rest = [score for seed, score in pairs if seed not in arm.failed_seeds]
    others = f" The others score {score_text(sum(rest) / len(rest), metric)} on average" * bool(
        rest
    )
    often = ""
    if others and {*arm.failed_seeds} - {*arm.constant_seeds}:
        others += ", which is too good a score should these have trained"
        often = " Up to 2 in 100 arms whose seeds all trained show such a gap, where scores vary widely."
    return (
        f"{failed} of {number} seeds of {arm.name} ({seed_names(arm.failed_seeds)}) "
        f"{_signs(arm, metric)}, and may have failed to train "
        f"({level_text(confidence_level)} of the rate {format_cell(arm.failure_rate)}).{often}"
        f"{others}{'.' * bool(others)} With failed seeds intervals of few seeds cover less than they say."
    )


def _signs(arm: ArmSummary, metric: str) -> str:
    """Names the signs by which seeds look failed."""
    constant = [seed for seed in arm.failed_seeds if seed in arm.constant_seeds]
    answer = _one_answer(arm, metric, len(constant))
    if len(constant) == len(arm.failed_seeds):
        return answer
    also = f" ({seed_names(constant)} {answer})" if constant else ""
    verb = "lies" if len(arm.failed_seeds) == 1 else "lie"
    return f"{verb} a wide gap away from all others{also}"


def _one_answer(arm: ArmSummary, metric: str, number: int) -> str:
    """Says what constant seeds do, such as `predict one class`."""
    found, s = METRICS.get(metric), "s" * (number == 1)
    if metric == "auc" or (found is not None and found.is_correlation):
        return f"predict{s} one value"
    if found is not None and found.uses_labels:
        return f"predict{s} one class"
    pairs = zip(arm.seeds, arm.seed_scores, strict=True)
    values = {float(score) for seed, score in pairs if seed in arm.constant_seeds}
    score = f"{values.pop():g}" if len(values) == 1 else "the same"
    return f"score{s} {score} on every example"


def seed_names(seeds: Sequence) -> str:
    """Returns the names of seeds, such as `seeds 3, 5`."""
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _without_failed(item: ComparisonResult) -> str:
    """Returns the result of the other seeds, of a comparison of two arms."""
    found = item.without_failed
    if found is None:
        return ""
    return (
        f" Without failed seeds the difference is {estimate_text(item, found.estimate)} "
        f"({level_text(item.confidence_level)} {estimate_text(item, found.ci)}, "
        f"{p_text(found.p_value)}), which holds only if they did fail."
    )


def unseen_failures(item: ComparisonResult) -> str:
    """Says how many seeds may fail although none of these did; nothing where that is known to be few.

    It limits the claim and is not a warning. Of 36 seeds without a failure and more, the 95 % limit of
    the rate is below `_HARMFUL_RATE`. Seeds that did fail, and arms of constant seeds, have a warning.
    """
    return unseen_failures_of(arms_of(item), item.confidence_level)


def unseen_failures_of(arms: Sequence[ArmSummary], confidence_level: float) -> str:
    """Says of arms what `unseen_failures` says of those of a comparison."""
    trained = [arm for arm in arms if arm.failure_rate is not None and not arm.failed_seeds]
    limits = [arm.failure_rate.high for arm in trained if arm.failure_rate is not None]
    if max(limits, default=0.0) <= _HARMFUL_RATE:
        return ""
    names = [f"None of the {len(arm.seeds)} seeds of {arm.name}" for arm in trained]
    if len(trained) == len(arms) and len(set(limits)) == 1:
        names, limits = [f"None of the {len(arms[0].seeds)} seeds"], limits[:1]
    rates = "a failure rate" if len(limits) == 1 else "failure rates"
    limit = " and ".join(f"{100 * high:.0f} %" for high in limits)
    return (
        f"{' and n'.join([names[0], *(name[1:] for name in names[1:])])} failed to train, which is "
        f"compatible with {rates} of up to {limit} ({level_text(confidence_level)}). The interval does "
        "not cover failed runs."
    )


def unseen_failures_of_all(items: Sequence[ComparisonResult]) -> str:
    """Says once for several comparisons what `unseen_failures` says of each."""
    if len(items) == 1:
        return unseen_failures(items[0])
    limits = {
        len(arm.seeds): arm.failure_rate.high
        for item in items
        if unseen_failures(item)
        for arm in arms_of(item)
        if arm.failure_rate is not None and not arm.failed_seeds
    }
    if not limits:
        return ""
    rates = " or ".join(f"{100 * high:.0f} % (of {number})" for number, high in limits.items())
    return (
        "Where none of an arm's seeds failed to train, its failure rate may still be up to "
        f"{rates}, {level_text(items[0].confidence_level)}. Intervals do not cover failed runs."
    )


def needs_in_words(
    item: ComparisonResult, adjusted: float | None = None, answers: Sequence[FurtherAnswer] = ()
) -> list[str]:
    """Says whether one seed would have misled, what these data can show, and what more is needed.

    Args:
      adjusted, answers: as in `finding`.

    Returns:
      A paragraph of answers, where there are any, and that of `unseen_failures`, where it has something
      to say.
    """
    needs, limit = item.needs, unseen_failures(item)
    limits = [limit] if limit else []
    if needs is None or item.standard_error == 0:
        return limits
    sentences = []
    if needs.opposite_chance is not None:
        one = "One random seed per arm" if item.design == "unpaired" else "A single random seed"
        chance = 100 * needs.opposite_chance
        shown = f"{chance:.0f}" if chance >= 1 else "below 1"
        sentences.append(f"{one} would have shown the opposite sign with probability {shown} %.")
    sentences.append(what_is_needed(item, adjusted, answers))
    if needs.detectable_difference is not None:
        sentences += _doubled(item, needs)
    return [" ".join(sentences), *limits]


def what_is_needed(
    item: ComparisonResult, adjusted: float | None = None, answers: Sequence[FurtherAnswer] = ()
) -> str:
    """Says what difference these data can show and what it takes to show more; nothing where nothing varies.

    Args:
      adjusted, answers: as in `finding`.
    """
    needs = item.needs
    if needs is None or item.standard_error == 0:
        return ""
    if needs.detectable_difference is None:
        number, units = _too_few(item, needs)
        return f"Nothing can be planned from {number:,g} {units}, which do not show how much {units} vary."
    text = partial(estimate_text, item)
    smallest = detectable_text(
        needs.detectable_difference, needs.detectable_difference_range, "80 %", text
    )
    sentences = [f"The {smallest}."]
    if item.significant and adjusted is not None and not _is_clear(item, adjusted):
        sentences.append(
            "Significant on its own, but not after correcting for the number of comparisons."
        )
    elif not item.significant:
        sentences += _needed(item, needs)
    return " ".join([*sentences, *(text for answer in answers for text in answer.more_needed())])


def _too_few(item: ComparisonResult, needs: Needs) -> tuple[float, str]:
    """Returns the number of what there is too little of to plan from, and its name."""
    if item.variance_parts is None or too_few(item.variance_parts) == "seeds":
        return needs.num_seeds, "seeds"
    arm = min(arms_of(item), key=lambda arm: arm.num_scored)
    clusters = "clusters" if arm.num_clusters is not None else units_of(item)
    if arm.num_scored < arm.num_units:
        return arm.num_scored, f"{clusters} that the score rests on"
    return arm.num_units, clusters


def _needed(item: ComparisonResult, needs: Needs) -> list[str]:
    """Says how many seeds or examples would find a difference of this size, where that can be planned."""
    if abs(item.estimate) <= item.standard_error:
        return [
            "The estimate is within one standard error of zero, too close to plan further seeds for it."
        ]
    of_seeds = "seeds per arm" if item.design == "unpaired" else "seeds"
    ways = [
        f"about {number:,} {what} ({range_text(found, count_text)})"
        for number, found, what in (
            (needs.seeds_needed, needs.seeds_needed_range, of_seeds),
            (needs.examples_needed, needs.examples_needed_range, units_of(item)),
        )
        if number is not None and found is not None
    ]
    assert needs.detectable_difference is not None
    if not ways and abs(item.estimate) < needs.detectable_difference:
        ways = [f"more of both seeds and {units_of(item)}"]
    if not ways:  # the present numbers are enough
        return []
    return [
        f"Detecting a true difference of {estimate_text(item, abs(item.estimate))} with 80 % power takes "
        f"{' or '.join(ways)}."
    ]


def _doubled(item: ComparisonResult, needs: Needs) -> list[str]:
    """Says what twice the seeds or examples would do for the standard error, the better one first."""
    pairs = (
        (needs.error_of_twice_the_seeds, "seeds"),
        (needs.error_of_twice_the_examples, units_of(item)),
    )
    errors = sorted((error, what) for error, what in pairs if error is not None)
    if not errors:
        return []
    best, what = errors[0]
    now, better, *rest = (
        error_text(item, error)
        for error in (item.standard_error, best, *(e for e, _ in errors[1:]))
    )
    others = "".join(
        f", doubling the {name} to {text}" for text, (_, name) in zip(rest, errors[1:], strict=True)
    )
    return [f"Doubling the {what} would reduce the standard error from {now} to {better}{others}."]


def count_text(number: int | Interval) -> str:
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number.low:,} to {number.high:,}"


def warnings(
    item: ComparisonResult, numbers: bool = True, answers: Sequence[FurtherAnswer] = ()
) -> list[str]:
    """Lists what a reader must know before believing the numbers.

    Args:
      numbers: whether to name the numbers of this comparison; without them the warnings of several
        comparisons are equal, and can be shown once.
      answers: to further questions.
    """
    found = [*item.notes, *(text for answer in answers for text in answer.warnings())]
    if item.below_seed_floor and item.seed_floor is not None:
        floor = Fraction(item.seed_floor).limit_denominator(10**9)
        own = f" (bootstrap {min(item.p_values['percentile'][:2]):.2g}, "
        own += f"t {min(item.p_values['t'][:2]):.2g})"
        flips = (
            f" The sign-flip test, which makes no assumption about this distribution and concerns "
            f"only these {units_of(item)}, gives p = {item.p_values['sign flip'].two_sided:.2g} (two-sided)."
            if "sign flip" in item.p_values
            else ""
        )
        found.append(
            "With so few seeds, a sign-flip or permutation test cannot give a one-sided p below "
            f"{floor} = {item.seed_floor:.2g}. Smaller values{own if numbers else ''} rely on the "
            "examples, or on the assumption that seed effects are normally distributed; with few "
            f"seeds the bootstrap's own p is too small.{flips if numbers else ''}"
        )
    for arm in arms_of(item):
        found += about_seeds(arm, item.metric, item.confidence_level, _without_failed(item))
    alike = [
        arm.name for arm in arms_of(item) if arm.ci.low < arm.ci.high and arm.estimate in arm.ci
    ]
    if alike:
        found.append(
            f"All answers of {' and of '.join(alike) if numbers else 'an arm'} are alike in every run, so "
            f"that nothing varies: the interval is that of Clopper and Pearson for the {units_of(item)}."
        )
    if item.experiment is not None and item.standard_error == 0 and not alike:
        found.append(
            f"The difference is the same for all seeds and {units_of(item)}. Nothing varies, so the interval "
            "is no more than what cannot be ruled out for new ones."
        )
    if item.degenerate_replicates:
        share = f"{item.degenerate_replicates} of {item.n_resamples}" if numbers else "some"
        found.append(
            f"In {share} bootstrap samples the score of some run was 0/0 and was taken as "
            f"{'one half' if item.metric == 'auc' else '0'}."
        )
    return found
