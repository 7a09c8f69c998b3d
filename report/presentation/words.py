"""Comparisons in words. See also `planning`, `ranking_words` and `methods_paragraph`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from multiberts.evaluate.metrics.register import METRICS
from multiberts.report.presentation.formats import (
    difference_text,
    format_cell,
    interval_decimals,
    metric_at_start,
    score_text,
    zero_means_no,
)
from multiberts.runs.errors import counted
from multiberts.stats.compare.result import arms_of
from multiberts.stats.results import seed_names
from multiberts.stats.score import UNKNOWN_DIRECTION, Score, metric_name

if TYPE_CHECKING:
    from multiberts.report.presentation.answer import FurtherAnswer
    from multiberts.stats.compare.result import Comparison
    from multiberts.stats.intervals import Interval
    from multiberts.stats.results import ArmSummary
    from multiberts.stats.settings import Design, Resample

# Failure rate from which unseen failures lower the coverage of intervals (calibration.md).
_HARMFUL_RATE = 0.1
# Share of the base's bias within which all of an interval must lie for the bias to be called removed.
_REMOVED = 0.1
# Maximum number of arms named in a sentence; of more arms, the last name is replaced by a number.
_MOST_NAMES = 6

# The data do not say whether runs of one seed have a common parent.
PAIRED_BY_NUMBER = (
    "Seeds are paired by their numbers; if runs of one number share nothing in training "
    "(initialisation, order of data), "
)
# Resampled units, and their names in tables.
SOURCES: Mapping[Resample, str] = {
    "both": "seeds and examples",
    "seeds": "seeds only",
    "examples": "examples only",
}
# Resampled units in sentences; {}: names of seeds and examples.
_DRAWN: Mapping[Resample, str] = {"both": "{}s and {}", "seeds": "{}s", "examples": "{1}"}
_NO_DIFFERENCE: Mapping[Resample, str] = {
    "both": "in any seed or on any example",
    "seeds": "in any seed",
    "examples": "on any example",
}
_WHY_REPORT: Mapping[Design, str] = {
    "paired": "seeds are paired, and the data say what they share",
    "unpaired": "each arm has seeds of its own, so the interval is unpaired",
    "fixed_baseline": "{} is held fixed, so the interval is not about other seeds of it",
}
# Words for a higher and a lower score, by `Score.more_is_better`.
WAYS = {True: ("better", "worse"), False: ("worse", "better"), None: ("higher", "lower")}
_TESTS = {"Newcombe": "two-sided test by Newcombe's interval"}


def finding(
    item: Comparison,
    adjusted: float | None = None,
    answers: Sequence[FurtherAnswer] = (),
    *,
    pairing: bool = True,
) -> str:
    """Describes the result in a few plain sentences.

    The arguments are those of `finding_sentences`.
    """
    return " ".join(finding_sentences(item, adjusted, answers, pairing=pairing))


def finding_sentences(
    item: Comparison,
    adjusted: float | None = None,
    answers: Sequence[FurtherAnswer] = (),
    *,
    pairing: bool = True,
) -> list[str]:
    """Returns sentences on the result and its interval, then on test, answers and pairing.

    Args:
      adjusted: p corrected for the number of comparisons (Holm), which decides the result; None: the
        uncorrected p decides.
      answers: answers to further questions; their sentences follow.
      pairing: whether to describe the pairing (also described by `interval_to_report`).
    """
    base, experiment, metric = item.base, item.experiment, metric_name(item.metric)
    size, level = partial(estimate_text, item), level_text(item.confidence_level)
    further = [text for answer in answers for text in answer.sentences()]
    if experiment is None:
        return not_empty(
            claim(arms_of(item), item.resample),
            f"Across {_sample(_seeds(base), item)}, {metric} of {base.name} is "
            f"{size(item.estimate)} ({level} {size(item.ci)}).",
            _over_labels(item),
            *further,
            _about_these(item),
        )
    if _is_identical(item):
        same = (
            f"Across {scope(item)}, the scores of {experiment.name} and {base.name} are identical: "
            f"{metric} is {score_text(base.estimate, item.metric)} for both, without a difference "
            f"{_NO_DIFFERENCE[item.resample]}, so there is nothing to test."
        )
        return not_empty(claim(arms_of(item), item.resample), same, *further)
    return not_empty(
        claim(arms_of(item), item.resample),
        lead(item, adjusted),
        _judgement(item, adjusted),
        _over_labels(item),
        *further,
        _about_these(item),
        *(_pairing(item) if pairing else []),
    )


def lead(item: Comparison, adjusted: float | None = None) -> str:
    """Returns the claim with both scores and the interval of their difference.

    For example `new is better than base: accuracy 76 % against 65 % (difference ...)`.
    """
    p = item.p_value if adjusted is None else adjusted
    assert item.experiment is not None and p is not None
    size, level = partial(estimate_text, item), level_text(item.confidence_level)
    clear = is_clear(item, p)
    # Without the corrected p the interval, of this comparison alone, would seem to contradict the claim.
    beyond = not (clear or item.ci.low <= 0 <= item.ci.high or adjusted is None)
    corrected = f", {p_text(p)} after Holm's correction" * beyond
    return (
        f"{_claim_of_scores(item, item.experiment, clear)} (difference {size(item.estimate)}, {level} "
        f"{size(item.ci)}{corrected})."
    )


def _claim_of_scores(item: Comparison, experiment: ArmSummary, clear: bool) -> str:
    base, metric, score = (
        item.base,
        metric_name(item.metric),
        partial(rounded_score, item.ci, item.metric),
    )
    scores = f"{metric} {score(experiment.estimate)} against {score(base.estimate)}"
    if item.estimate == 0:
        return f"{experiment.name} and {base.name} have the same {metric}, {score(base.estimate)}"
    if not clear:
        return f"No clear difference between {experiment.name} and {base.name}: {scores}"
    if change := change_of_absence(item):
        way = "falls" if item.estimate < 0 else "rises"
        return (
            f"{experiment.name} {change}: the {metric} {way} from {score(base.estimate)} to "
            f"{score(experiment.estimate)}"
        )
    if (better := item.score.more_is_better) is None:
        return (
            f"{metric_at_start(item.metric)} of {experiment.name} is {WAYS[None][item.estimate < 0]} than "
            f"that of {base.name}: {score(experiment.estimate)} against {score(base.estimate)}"
        )
    return f"{experiment.name} is {WAYS[better][item.estimate < 0]} than {base.name}: {scores}"


def change_of_absence(item: Comparison) -> str:
    """Names a clear change of a metric whose 0 means absence, such as `removes the bias of base`.

    Bias is removed if the experiment's whole interval is within a tenth of the base's score of 0.
    """
    absent, base, experiment = zero_means_no(item.metric), item.base, item.experiment
    if not absent or experiment is None:
        return ""
    of_base = f"the {absent} of {base.name}"
    was, now = (not arm.ci.low <= 0 <= arm.ci.high for arm in (base, experiment))
    if not was:  # the direction of a bias that may be none is unknown
        return f"adds {absent} to {base.name}" if now else ""
    if max(map(abs, experiment.ci)) < abs(base.estimate) * _REMOVED:
        return f"removes {of_base}"
    if now and (experiment.estimate > 0) != (base.estimate > 0):
        return f"reverses {of_base}"
    weaker = abs(experiment.estimate) < abs(base.estimate)
    return f"{'reduces' if weaker else 'increases'} {of_base}"


def not_empty(*texts: str) -> list[str]:
    return [text for text in texts if text]


def filled(template: str, value: object) -> str:
    """Inserts a value into a template; returns an empty text if the value is empty."""
    return template.format(value) if value else ""


def form(number: int, singular: str, plural: str) -> str:
    return singular if number == 1 else plural


def _is_identical(item: Comparison) -> bool:
    """Returns whether two arms do not differ at all over drawn units, including the residual."""
    parts = item.variance_parts
    by_turns = parts is not None and any(share for share, _ in parts.residual)
    return item.estimate == 0 and item.standard_error == 0 and not by_turns


def claim(arms: Sequence[ArmSummary], resample: Resample) -> str:
    """Gives the scope of a result, unless it is both new seeds and new examples."""
    if resample == "seeds":
        start = "Scores of whole runs: this" if arms[0].num_examples == 1 else "This"
        return f"{start} is about new {drawn_unit(arms)}s on these examples, and not about other examples."
    if resample == "both":
        return ""
    if not are_single(arms):
        return "This is about these models on new examples, and not about other seeds of them."
    if len(arms) == 1:
        return "One run: this is about this model on new examples, and not about training it again."
    return (
        "One run of each model: this is about these models on new examples, and not about training "
        "them again."
    )


def are_single(arms: Iterable[ArmSummary]) -> bool:
    return all(arm.num_runs == 1 for arm in arms)


def _about_these(item: Comparison) -> str:
    """States that a result is about the compared models or tasks only, if so."""
    base, experiment = item.base, item.experiment
    if item.tasks:
        return "The mean gives each task the same weight; tasks are not drawn, so it is about these tasks."
    repeats = about_repeats(arms_of(item))
    if item.resample == "examples":
        return ""  # already in `claim`
    if experiment is None or repeats:
        return repeats
    if item.design == "fixed_baseline":
        these = form(base.num_runs, "this one model", f"these {base.num_runs} runs of")
        return f"This is about {these} {base.name}, and not about other seeds of it."
    return ""


def about_repeats(arms: Iterable[ArmSummary]) -> str:
    names = [arm.name for arm in arms if arm.repeats]
    if not names:
        return ""
    these = form(len(names), "this model", "these models")
    return (
        f"The runs of {names_text(names)} are repeats of one evaluation: this is about evaluating {these} "
        "again, and not about training again."
    )


def interval_to_report(item: Comparison) -> str:
    """Gives the interval to report in a paper and the reason; empty for a single arm."""
    if item.experiment is None or _is_identical(item):
        return ""
    shown, unpaired = estimate_text(item, item.ci), _unpaired(item)
    if item.resample == "examples":
        return f"Report {shown}: seeds are held fixed, so the interval is about new examples alone."
    if item.design == "unpaired" and any(arm.repeats for arm in arms_of(item)):
        why = ": repeats of an evaluation have no partners, so the interval is unpaired."
    elif not unpaired:
        why = f": {_WHY_REPORT[item.design].format(item.base.name)}."
    elif unpaired == shown:
        why = ": it is the same whether seeds are paired or not."
    else:
        why = f". {PAIRED_BY_NUMBER}compare with --design=unpaired."
    return " ".join([f"Report {shown}{why}", *_left_out(item)])


def estimate_text(item: Comparison, number: float | Interval) -> str:
    """Formats a number in the unit of a comparison's estimate, with its interval's decimals."""
    text = score_text if item.experiment is None else difference_text
    return text(number, item.metric, interval_decimals(item.ci, item.metric))


def error_text(item: Comparison, error: float) -> str:
    """Formats a standard error with its unit and one decimal more than the wider interval."""
    decimals = interval_decimals(item.ci, item.metric)
    return difference_text(error, item.metric, None if decimals is None else decimals + 1)


def rounded_score(ci: Interval, metric: str, score: float | Interval) -> str:
    """Formats a score with the decimals of an interval."""
    return score_text(score, metric, interval_decimals(ci, metric))


def level_text(confidence_level: float) -> str:
    """Returns the name of an interval in a sentence, `95 % CI`."""
    return f"{100 * confidence_level:g} % CI"


def scope(item: Comparison) -> str:
    """Returns the seeds, runs and examples of a comparison of two arms."""
    assert item.experiment is not None
    seeds = f"{_seeds(item.base)} against {_seeds(item.experiment)}"
    if item.design == "paired":
        seeds = counted(len(item.base.seeds), "paired seed") + _runs_of_seeds(
            item.base, item.experiment
        )
    return _sample(seeds, item, "shared ")


def _sample(seeds: str, item: Comparison, kind: str = "") -> str:
    """Returns the seeds (or single runs), examples and tasks of a result."""
    if item.resample == "examples" and are_single(arms_of(item)):
        seeds = "one run of each" if item.experiment is not None else "one run"
    if item.base.num_examples > 1:
        seeds += f" and {_examples(item.base, item, kind)}"
    return f"{counted(len(item.tasks), 'task')}, {seeds}" if item.tasks else seeds


def _pairing(item: Comparison) -> list[str]:
    """Lists seeds dropped by pairing, and says when another design is right."""
    again = f"{PAIRED_BY_NUMBER}use the unpaired design." if _unpaired(item) else ""
    return not_empty(*_left_out(item), again)


def _left_out(item: Comparison) -> list[str]:
    return [
        f"Left out, as the other arm lacks {form(len(arm.left_out), 'it', 'them')}: "
        f"{seed_names(arm.left_out)} of {arm.name}."
        for arm in arms_of(item)
        if arm.left_out
    ]


def _unpaired(item: Comparison) -> str:
    """Returns the unpaired interval if seeds are paired by number only and may be unrelated, else ""."""
    if item.pairing != "seed number" or item.unpaired_interval is None:
        return ""
    return estimate_text(item, item.unpaired_interval)


def _examples(arm: ArmSummary, item: Comparison, kind: str = "") -> str:
    return f"{arm.num_examples} {kind}{units_of(item)}{filled(' in {}', clusters_text(arm))}"


def clusters_text(arm: ArmSummary) -> str:
    """Returns the number and name of an arm's clusters; empty without clusters."""
    if arm.num_clusters is None:
        return ""
    return f"{counted(arm.num_clusters, 'cluster')}{filled(' ({})', arm.cluster_name)}"


def _seeds(arm: ArmSummary) -> str:
    return counted(len(arm.seeds), drawn_unit([arm])) + _runs_of_seeds(arm)


def _runs_of_seeds(*arms: ArmSummary) -> str:
    """Returns the numbers of runs, such as ` (10 and 5 runs)`; empty with one run of each seed."""
    if all(arm.num_runs == len(arm.seeds) for arm in arms):
        return ""
    numbers = " and ".join(str(arm.num_runs) for arm in arms)
    return f" ({numbers} {form(arms[-1].num_runs, 'run', 'runs')})"


def drawn_unit(arms: Iterable[ArmSummary]) -> str:
    """Returns the name of the unit drawn besides examples: `seed` or `repeat`."""
    return "repeat" if all(arm.repeats for arm in arms) else "seed"


def _drawn(item: Comparison) -> str:
    return drawn_unit(arms_of(item))


def units_of(item: Comparison) -> str:
    """Returns the name of a comparison's examples."""
    return item.score.examples


def verdict(item: Comparison, adjusted: float) -> str:
    """Returns the result in one or two words, judged by the corrected p.

    Args:
      adjusted: p corrected for the number of comparisons.
    """
    if not is_clear(item, adjusted) or item.estimate == 0:
        return "not clear"
    return WAYS[item.score.more_is_better][item.estimate < 0]


def is_clear(item: Comparison, p: float) -> bool:
    return p < round(1 - item.confidence_level, 12)  # rounded, because 1 - 0.95 is above 0.05


def p_text(value: float) -> str:
    """Formats a p-value for a sentence, `p = 0.03`."""
    text = format_cell(value, "p")
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def _judgement(item: Comparison, adjusted: float | None) -> str:
    """Explains p as the rate of studies without a true difference that show one this large.

    p is not the probability that the difference is due to chance (Wasserstein & Lazar 2016, principle 2).
    """
    assert item.p_value is not None
    p, drawn = item.p_value, _DRAWN[item.resample].format(_drawn(item), units_of(item))
    if item.standard_error == 0 and p == 1 and item.estimate != 0:
        return f"Nothing varies over {drawn} ({scope(item)}), so there is neither an interval nor a test."
    test = f"the {_TESTS.get(item.ci.method, 'two-sided t test')} over {drawn} gives {p_text(p)}"
    if adjusted is not None and format_cell(adjusted, "p") != format_cell(p, "p"):
        test += f", and {p_text(adjusted)} after Holm's correction"
    if not is_clear(item, p if adjusted is None else adjusted):
        test += ": the data do not rule out zero difference"
        if item.ci.low < 0 < item.ci.high and math.isfinite(item.ci.high - item.ci.low):
            low, high = estimate_text(item, item.ci).split(" to ")
            test += f", only differences below {low} or above {high}"
        if adjusted is not None and not item.ci.low <= 0 <= item.ci.high:
            test += ", though the interval, which is of this comparison alone, excludes 0"
    test = f"Across {scope(item)}, {test}."
    if item.estimate == 0:
        return test  # every study shows a difference of 0 or more
    equal = "alike" if item.score.more_is_better is None else "equally good"
    return (
        f"{test} If both were {equal}, a difference this large would come up in {rate_text(p)} of such "
        "studies."
    )


def _over_labels(item: Comparison) -> str:
    """Gives a macro average without the classes added by answers outside the labels."""
    if not item.over_labels:
        return ""
    *first, last = item.over_labels
    score = partial(score_text, metric=item.metric, decimals=1)
    against = "".join(
        f" against {score(base)}, a difference of {difference_text(last - base, item.metric, 1)}"
        for base in first
    )
    return (
        f"This {metric_name(item.metric)} counts answers that no label has as classes: over the classes of "
        f"the labels alone it is {score(last)}{against} (see the notes)."
    )


def rate_text(p: float) -> str:
    """Formats a p-value as a rate with the digits of `p_text`."""
    return "fewer than 0.01 %" if p < 1e-4 else f"{100 * float(f'{p:.2g}'):g} %"


def about_seeds(arm: ArmSummary, metric: str, confidence_level: float, more: str = "") -> list[str]:
    """Lists the seeds of an arm that seem to have failed, and warns if all are constant.

    Args:
      more: text after the sentence on failed seeds.
    """
    texts = [_failure(arm, metric, confidence_level) + more] if arm.failed_seeds else []
    number = len(arm.seeds)
    if len(arm.constant_seeds) == number:
        texts.append(
            f"{form(number, 'The one seed', f'All {number} seeds')} of {arm.name} "
            f"{_one_answer(arm, metric, number)}, as a fixed rule does, or a "
            "model whose training failed; their spread says nothing about seeds that train."
        )
    return texts


def _failure(arm: ArmSummary, metric: str, confidence_level: float) -> str:
    """Lists the seeds that seem to have failed, the signs of failure, and the rate of false alarms."""
    failed, pairs = len(arm.failed_seeds), zip(arm.seeds, arm.seed_scores, strict=True)
    constant = [seed for seed in arm.failed_seeds if seed in arm.constant_seeds]
    signs = answer = _one_answer(arm, metric, len(constant))
    often = too_good = others = ""
    if len(constant) < failed:
        also = f" ({seed_names(constant)} {answer})" if constant else ""
        signs = f"{form(failed, 'lies', 'lie')} a wide gap away from all others{also}"
        often = " Up to 2 in 100 arms whose seeds all trained show such a gap, where scores vary widely."
        too_good = ", which is too good a score should these have trained"
    trained = [score for seed, score in pairs if seed not in arm.failed_seeds]
    if trained:
        mean = score_text(sum(trained) / len(trained), metric)
        others = f"{often} The others score {mean} on average{too_good}."
    return (
        f"{failed} of {len(arm.seeds)} seeds of {arm.name} ({seed_names(arm.failed_seeds)}) "
        f"{signs}, and may have failed to train "
        f"({level_text(confidence_level)} of the rate {format_cell(arm.failure_rate)}).{others} "
        "With failed seeds intervals of few seeds cover less than they say."
    )


def _one_answer(arm: ArmSummary, metric: str, number: int) -> str:
    """Describes constant seeds, such as `predict one class`."""
    metric_object, s = METRICS.get(metric), form(number, "s", "")
    if metric == "auc" or (metric_object is not None and metric_object.is_correlation):
        return f"predict{s} one value"
    if metric_object is not None and metric_object.uses_labels:
        return f"predict{s} one class"
    pairs = zip(arm.seeds, arm.seed_scores, strict=True)
    values = {float(score) for seed, score in pairs if seed in arm.constant_seeds}
    score = f"{values.pop():g}" if len(values) == 1 else "the same"
    return f"score{s} {score} on every example"


def unseen_failures(item: Comparison) -> str:
    """Gives the largest failure rate compatible with no failed seed; empty if it is low.

    The sentence limits the claim, but is not a warning. With 36 or more seeds and no failure, the 95 % limit
    of the rate is below `_HARMFUL_RATE`. There are warnings on failed seeds and on arms of constant seeds.
    """
    return unseen_failures_of(arms_of(item), item.confidence_level)


def unseen_failures_of(arms: Sequence[ArmSummary], confidence_level: float) -> str:
    """Returns `unseen_failures` for arms."""
    limits = _failure_limits(arms)
    if max((high for _, high in limits), default=0.0) <= _HARMFUL_RATE:
        return ""
    names = [f"one of the {len(arm.seeds)} seeds of {arm.name}" for arm, _ in limits]
    rates = [f"{100 * high:.0f} %" for _, high in limits]
    if len(limits) == len(arms) and len({high for _, high in limits}) == 1:
        names, rates = [f"one of the {len(arms[0].seeds)} seeds"], rates[:1]
    return (
        f"N{' and n'.join(names)} failed to train, which is compatible with "
        f"{form(len(rates), 'a failure rate', 'failure rates')} of up to {' and '.join(rates)} "
        f"({level_text(confidence_level)}). The interval does not cover failed runs."
    )


def _failure_limits(arms: Sequence[ArmSummary]) -> list[tuple[ArmSummary, float]]:
    """Returns the arms without failed seeds, with upper limits of their failure rates."""
    return [
        (arm, arm.failure_rate.high)
        for arm in arms
        if arm.failure_rate is not None and not arm.failed_seeds and not arm.repeats
    ]


def unseen_failures_of_all(items: Sequence[Comparison]) -> str:
    """Combines `unseen_failures` of several comparisons."""
    if len(items) == 1:
        return unseen_failures(items[0])
    concerned = [item for item in items if unseen_failures(item)]
    limits = {len(arm.seeds): high for arm, high in _failure_limits(arms_of(*concerned))}
    rates = " or ".join(f"{100 * high:.0f} % (of {number})" for number, high in limits.items())
    return filled(
        "Where none of an arm's seeds failed to train, its failure rate may still be up to "
        f"{{}}, {level_text(items[0].confidence_level)}. Intervals do not cover failed runs.",
        rates,
    )


def unknown_sense(score: Score) -> list[str]:
    """Returns a note if it is unknown whether higher or lower scores are better, else nothing."""
    return [f"Nothing is called better, because {UNKNOWN_DIRECTION}."] * score.is_unknown


def count_text(number: int | Interval) -> str:
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number.low:,} to {number.high:,}"


def warnings(item: Comparison, numbers: bool = True) -> list[str]:
    """Lists warnings on a comparison.

    Args:
      numbers: whether to include the numbers of this comparison; if not, equal warnings of several
        comparisons can be shown once.
    """
    texts = [*item.notes]
    if item.below_seed_floor and item.seed_floor is not None:
        texts.append(
            "With so few seeds, a small p assumes that seed effects are normally distributed: tests without "
            f"this assumption cannot give a two-sided p below {2 * item.seed_floor:.2g}."
        )
    without_failed = ""
    if item.without_failed is not None:
        others = item.without_failed
        without_failed = (
            f" Without failed seeds the difference is {estimate_text(item, others.estimate)} "
            f"({level_text(item.confidence_level)} {estimate_text(item, others.ci)}, "
            f"{p_text(others.p_value)}), which holds only if they did fail."
        )
    for arm in arms_of(item):
        texts += about_seeds(arm, item.metric, item.confidence_level, without_failed)
    alike = [
        arm.name for arm in arms_of(item) if arm.ci.low < arm.ci.high and arm.estimate in arm.ci
    ]
    if alike:
        texts.append(
            f"All answers of {' and of '.join(alike) if numbers else 'an arm'} are alike in every run, so "
            f"that nothing varies: the interval is that of Clopper and Pearson for the {units_of(item)}."
        )
    elif item.experiment is not None and item.standard_error == 0:
        texts.append(
            f"The difference is the same for all seeds and {units_of(item)}. Nothing varies, so the interval "
            "is no more than what cannot be ruled out for new ones."
        )
    if item.degenerate_replicates:
        share = f"{item.degenerate_replicates} of {item.n_resamples}" if numbers else "some"
        texts.append(
            f"In {share} bootstrap samples the score of some run was 0/0 and was taken as "
            f"{'one half' if item.metric == 'auc' else '0'}."
        )
    return texts


def names_text(names: Sequence[str]) -> str:
    """Joins names for a sentence; of many, the last is replaced by a number."""
    if len(names) > _MOST_NAMES:
        names = [*names[: _MOST_NAMES - 1], f"{len(names) - _MOST_NAMES + 1} more"]
    return " and ".join(not_empty(", ".join(names[:-1]), names[-1]))
