"""Comparisons in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.runs.errors import counted
from multiberts.stats.presentation.metric_names import metric_label
from multiberts.stats.presentation.table_writer import format_cell

if TYPE_CHECKING:
    from multiberts.stats.bootstrap.conclusion import ArmSummary, Comparison
    from multiberts.stats.bootstrap.score_tables import Resample
    from multiberts.stats.planning.sequential import EarlyLook

# A rate of failures above this hides in few seeds, and lowers the coverage of intervals (calibration.md).
_HARMFUL_RATE = 0.1

# What is resampled, and how tables call it.
SOURCES: Mapping[Resample, str] = {
    "both": "seeds and examples",
    "seeds": "seeds only",
    "examples": "examples only",
}


def finding(item: Comparison, adjusted: float | None = None, early: EarlyLook | None = None) -> str:
    """Describes the result in a few sentences, for a reader who is not a statistician.

    Args:
      item: the comparison.
      adjusted: its p corrected by Holm for the number of comparisons, by which the result is then
        judged; None: the p of this comparison alone.
      early: see `verdict`; it is then said, too.
    """
    level = f"{item.confidence:.0%} CI {format_cell(item.t)}"
    if item.experiment is None:
        return (
            f"Across {_seeds(item.base)} and {_examples(item.base, item)}, {item.metric} of "
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
    sentences = [
        f"Across {_scope(item)}, {change}",
        _judgement(item, adjusted, early),
        *([] if early is None else [early_answer(early)]),
        *_pairing(item),
    ]
    return " ".join(sentences)


def _scope(item: Comparison) -> str:
    """Returns what a comparison of two sides rests on."""
    assert item.experiment is not None
    seeds = f"{_seeds(item.base)} against {_seeds(item.experiment)}"
    if item.design == "paired":
        seeds = (
            f"{counted(len(item.base.seeds), 'paired seed')} "
            f"({item.base.num_runs} and {counted(item.experiment.num_runs, 'run')})"
        )
    examples = _examples(item.base, item, "shared ")
    if item.examples == "separate":
        sets = [_examples(side, item) for side in (item.base, item.experiment)]
        examples = f"separate sets of {' and '.join(sets)}"
    return f"{seeds} and {examples}"


def _pairing(item: Comparison) -> list[str]:
    """Says which seeds pairing left out, and what the answer is were they unrelated."""
    found = []
    for side in (item.base, item.experiment):
        if side is not None and side.left_out:
            seeds = ", ".join(map(str, side.left_out))
            found.append(
                f"Left out, as the other side lacks {'them' if len(side.left_out) > 1 else 'it'}: "
                f"seed{'s' if len(side.left_out) > 1 else ''} {seeds} of {side.name}."
            )
    if item.pairing == "seed number" and item.unpaired_t and item.p_unpaired_t:
        found.append(
            "Seeds are paired by seed number only: nothing in the data says that runs of one seed "
            "have a common parent. Were they unrelated, the interval would be "
            f"{format_cell(item.unpaired_t)} ({_p(item.p_unpaired_t.two_sided)})."
        )
    return found


def _examples(side: ArmSummary, item: Comparison, kind: str = "") -> str:
    """Returns the number of examples of a side, and of their clusters with their name."""
    text = f"{side.num_examples} {kind}{_unit(item)}"
    if side.num_clusters is None:
        return text
    name = f" ({side.cluster_name})" if side.cluster_name else ""
    return f"{text} in {counted(side.num_clusters, 'cluster')}{name}"


def methods(items: Sequence[Comparison]) -> str:
    """Writes the paragraph on methods for a paper, with references."""
    item = items[0]
    level, seeds = f"{item.confidence:.0%}", len(item.base.seeds)
    what = " and ".join(dict.fromkeys(found.metric for found in items))
    drawn = {
        "both": "both pre-training seeds and examples",
        "seeds": "pre-training seeds, with the examples held fixed,",
        "examples": "examples, with the seeds held fixed,",
    }[item.resample]
    designs = {
        "paired": "Seeds were paired.",
        "unpaired": "Seeds of the two sides were drawn independently.",
        "fixed_baseline": f"The runs of {item.base.name} were held fixed.",
        "single": "",
    }
    sentences = [
        f"We report {what}, averaged over the fine-tuning runs of each seed and over seeds "
        f"({seeds}{f' and {len(item.experiment.seeds)}' if item.experiment else ''}), with {level} "
        f"confidence intervals that take {drawn} as random samples (Sellam et al., 2022).",
        designs[item.design],
    ]
    if item.base.num_clusters is not None:
        name = f" ({item.base.cluster_name})" if item.base.cluster_name else ""
        sentences.append(
            f"Examples were drawn in {counted(item.base.num_clusters, 'cluster')}{name}."
        )
    sentences.append(
        "Standard errors come from an unbiased estimate of the variance of the crossed design, and "
        "intervals and two-sided tests from Student's t with Satterthwaite's (1946) degrees of "
        "freedom, with mean squares at the upper end of their likely range."
    )
    if item.p_sign_flip or item.p_permutation:
        test = "sign flips of" if item.p_sign_flip else "permutations of"
        sentences.append(f"Randomisation tests use {test} the seeds.")
    sentences += dict.fromkeys(map(unseen_failures, items))
    sentences.append(
        f"Bootstrap intervals use {item.num_bootstrap:,} replicates (seed {item.bootstrap_seed})."
    )
    references = (
        "References: Sellam, T. et al. (2022). The MultiBERTs: BERT Reproductions for Robustness "
        "Analysis. ICLR. Satterthwaite, F. E. (1946). An Approximate Distribution of Estimates of "
        "Variance Components. Biometrics Bulletin 2(6)."
    )
    return " ".join(sentence for sentence in sentences if sentence) + "\n\n" + references


def _seeds(arm: ArmSummary) -> str:
    return f"{counted(len(arm.seeds), 'seed')} ({counted(arm.num_runs, 'run')})"


def _unit(item: Comparison) -> str:
    names = {*OCCUPATION_MEASURES, *map(metric_label, OCCUPATION_MEASURES)}
    return "occupations" if item.metric in names else "examples"


def verdict(
    item: Comparison, adjusted: float, better: bool | None, early: EarlyLook | None = None
) -> str:
    """Returns the result in one word or two, judged by the corrected p.

    Args:
      item: a comparison of two sides.
      adjusted: its p corrected for the number of comparisons.
      better: whether a higher score is better; None where neither way is.
      early: by which the result is judged instead, where not all planned seeds are there.
    """
    is_clear = adjusted < round(1 - item.confidence, 12) if early is None else early.is_enough
    if not is_clear or item.estimate == 0:
        return "not clear"
    if better is None:
        return "higher" if item.estimate > 0 else "lower"
    return "better" if (item.estimate > 0) == better else "worse"


def early_answer(look: EarlyLook) -> str:
    """Says of how many planned seeds a result is, and whether they are enough."""
    of_planned = f"{look.seeds} of {look.planned_seeds} planned seeds"
    level = format_cell(look.level, "p")
    bound = f"p {level}" if level.startswith("<") else f"p = {level}"
    if look.is_enough:
        return (
            f"This is early, from {of_planned}, and these are enough: the corrected p is at or below the "
            f"sequential boundary, {bound}."
        )
    if look.seeds_to_boundary is None:
        more = f"at this difference and noise all {look.planned_seeds} would not reach it"
    else:
        number = look.seeds_to_boundary - look.seeds
        more = f"at this difference and noise {counted(number, 'more seed')} would reach it"
    return (
        f"This is early, from {of_planned}, and not yet enough: the corrected p is above the sequential "
        f"boundary, {bound}; {more}."
    )


def answer(items: Sequence[Comparison], adjusted: Sequence[float], results: Sequence[str]) -> str:
    """Returns one sentence on what some comparisons of the same two sides say.

    Args:
      items: all of one design.
      adjusted: their corrected p-values; empty in a `single` design.
      results: of `verdict`, one per comparison; empty likewise.
    """
    if not adjusted:
        return " ".join(finding(item) for item in items[:1])
    place = min(range(len(items)), key=lambda number: adjusted[number])
    item, counts = items[place], Counter(results)
    assert item.experiment is not None
    tally = ", ".join(
        f"{word} on {counts[word]}"
        for word in ("better", "worse", "higher", "lower", "not clear")
        if counts[word]
    )
    arms = {other.experiment.name for other in items if other.experiment}
    sides, clearest = f"{item.experiment.name} against {item.base.name}", ""
    if len(arms) > 1:
        sides, clearest = f"{len(arms)} arms against {item.base.name}", f"{item.experiment.name}, "
    scope = (
        f"{len(items)} comparisons: {tally}; the clearest is"
        if len(items) > 1
        else f"{results[0]}:"
    )
    return (
        f"{sides}, {scope} {clearest}{item.metric} on {item.evaluation_set}, "
        f"{format_cell(item.experiment.estimate)} against {format_cell(item.base.estimate)}: "
        f"difference {format_cell(item.estimate)} ({item.confidence:.0%} CI {format_cell(item.t)}, "
        f"{_p(adjusted[place])}{' after correction' if len(items) > 1 else ''}), from "
        f"{_scope(item)}."
    )


def _p(value: float) -> str:
    text = format_cell(value, "p")
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def _judgement(item: Comparison, adjusted: float | None, early: EarlyLook | None) -> str:
    assert item.p_t is not None
    own = item.p_t.two_sided
    judged = own if adjusted is None else adjusted
    p = f"{_p(own)} (two-sided t test)"
    if adjusted is not None and format_cell(adjusted, "p") != format_cell(own, "p"):
        p = f"{p}, {_p(adjusted)} after Holm's correction"
    drawn = {"both": f"seeds and {_unit(item)}", "seeds": "seeds", "examples": _unit(item)}
    chance = f"due to chance in the choice of {drawn[item.resample]}"
    if judged < round(1 - item.confidence, 12) if early is None else early.is_enough:
        return f"This is unlikely to be {chance}: {p}."
    return f"This may be {chance}: {p}; the data do not rule out zero difference."


def _failure(side: ArmSummary, item: Comparison) -> str:
    """Says which seeds seem to have failed, how often that happens, and the score of the rest."""
    failed, number = len(side.failed_seeds), len(side.seeds)
    pairs = zip(side.seeds, side.seed_scores, strict=True)
    rest = [score for seed, score in pairs if seed not in side.failed_seeds]
    others = f"; the others score {format_cell(sum(rest) / len(rest))} on average" if rest else ""
    names = f"{'seed' if failed == 1 else 'seeds'} {', '.join(map(str, side.failed_seeds))}"
    return (
        f"Of {number} seeds of {side.name}, {failed} ({names}) scored "
        "far from the others, at chance or with one class alone, and may have failed to train "
        f"({item.confidence:.0%} CI of the rate {format_cell(side.failure_rate)}){others}. With failed seeds "
        f"intervals of few seeds cover less than they say.{_without_failed(item)}"
    )


def _without_failed(item: Comparison) -> str:
    """Returns the result of the other seeds, of a comparison of two sides."""
    found = item.without_failed
    if found is None or found.p_t is None:
        return ""
    return (
        f" Without failed seeds the difference is {format_cell(found.estimate)} "
        f"({item.confidence:.0%} CI {format_cell(found.t)}, {_p(found.p_t.two_sided)}); "
        "aggregate='iqm' keeps them and limits their weight."
    )


def unseen_failures(item: Comparison) -> str:
    """Says how many seeds may fail although none of these did; nothing where that is known to be few.

    It limits the claim and is not a warning. Of 36 seeds without a failure and more, the 95 % limit of
    the rate is below `_HARMFUL_RATE`. Seeds that did fail have a warning.
    """
    sides = [item.base, *([item.experiment] if item.experiment else [])]
    known = [
        (len(side.seeds), side.failure_rate.high, f" ({side.name})")
        for side in sides
        if side.failure_rate is not None
    ]
    failed = any(side.failed_seeds for side in sides)
    if failed or max((high for _, high, _ in known), default=0.0) <= _HARMFUL_RATE:
        return ""
    if len({number for number, _, _ in known}) == 1:
        known = [(*known[0][:2], "")]
    numbers = " or of ".join(f"{number}{name}" for number, _, name in known)
    limits = " or ".join(f"{high:.0%}" for _, high, _ in known)
    return (
        f"No seed of {numbers} failed to train: up to {limits} of seeds may ({item.confidence:.0%} "
        "Clopper-Pearson); the interval is about seeds that train."
    )


def short_answers_in_words(item: Comparison, adjusted: float | None = None) -> list[str]:
    """Says whether one seed would have misled, what these data can show or not, and what more is needed.

    Args:
      item: the comparison.
      adjusted: as in `finding`.

    Returns:
      A paragraph of answers, where there are any, and that of `unseen_failures`, where it has something
      to say.
    """
    answers, limit = item.answers, unseen_failures(item)
    limits = [limit] if limit else []
    if answers is None or item.standard_error == 0:
        return limits
    assert item.experiment is not None
    sentences = []
    if answers.opposite_chance is not None:
        one = "one seed" if item.design != "unpaired" else "one seed per side"
        sentences.append(
            f"Had there been {one}, drawn at random, the chance of the opposite result would have "
            f"been {answers.opposite_chance:.0%}."
        )
    sentences.append(
        "The smallest true difference that four in five such comparisons would find is "
        f"{format_cell(answers.detectable_difference)}."
    )
    if item.significant and adjusted is not None and adjusted >= round(1 - item.confidence, 12):
        sentences.append(
            "Alone, this one would need no more; among all comparisons of its table it is not clear."
        )
    elif item.significant:
        sentences.append("It takes no more to find this one.")
    else:
        of_seeds = "seeds per side" if item.design == "unpaired" else "seeds"
        ways = [
            f"{number:,} {what} in place of {now:,}"
            for number, now, what in (
                (answers.seeds_needed, answers.num_seeds, of_seeds),
                (answers.examples_needed, answers.num_examples, _unit(item)),
            )
            if number is not None
        ]
        found = " or ".join(ways) or f"more of both seeds and {_unit(item)}"
        sentences.append(
            f"Four in five would find a difference of {format_cell(abs(item.estimate))} with {found}."
        )
    errors = answers.error_of_twice_the_seeds, answers.error_of_twice_the_examples
    if errors[0] is not None and errors[1] is not None:
        names = ["seeds", _unit(item)]
        order = [0, 1] if errors[0] <= errors[1] else [1, 0]
        first, second = (
            f"twice the {names[place]} to {format_cell(errors[place])}" for place in order
        )
        sentences.append(
            f"More {names[order[0]]} buy more: {first} from {format_cell(item.standard_error)}, "
            f"{second} (standard errors)."
        )
    return [" ".join(sentences), *limits]


def warnings(item: Comparison, numbers: bool = True) -> list[str]:
    """Lists what a reader must know before believing the numbers.

    Args:
      item: the comparison.
      numbers: whether to name the numbers of this comparison; without them the warnings of several
        comparisons are equal, and can be shown once.
    """
    found = [*item.notes]
    if item.below_seed_floor and item.seed_floor is not None:
        assert item.p_t is not None and item.p_percentile is not None
        floor = Fraction(item.seed_floor).limit_denominator(10**9)
        own = f" (bootstrap {min(item.p_percentile[:2]):.2g}, t {min(item.p_t[:2]):.2g})"
        flips = (
            f" The sign-flip test, which makes no assumption about this distribution and concerns "
            f"only these {_unit(item)}, gives p = {item.p_sign_flip.two_sided:.2g} (two-sided)."
            if item.p_sign_flip
            else ""
        )
        found.append(
            "With so few seeds, a test that uses only their order cannot give a one-sided p below "
            f"{floor} = {item.seed_floor:.2g}. Smaller values{own if numbers else ''} rely on the "
            "examples, or on the assumption that seed effects are normally distributed; with few "
            f"seeds the bootstrap's own p is too small.{flips if numbers else ''}"
        )
    for side in (item.base, item.experiment):
        if side is not None and side.failed_seeds:
            found.append(_failure(side, item))
    alike = [
        side.name
        for side in (item.base, item.experiment)
        if side is not None and side.t.low < side.t.high and side.estimate in side.t
    ]
    if alike:
        found.append(
            f"All answers of {' and of '.join(alike) if numbers else 'an arm'} are alike in every run, so "
            f"that nothing varies: the interval is that of Clopper and Pearson for the {_unit(item)}."
        )
    if item.experiment is not None and item.t.low == item.t.high:
        found.append(
            f"The difference is the same for all seeds and {_unit(item)}, so that nothing varies: an "
            "interval of one point says nothing about others."
        )
    if item.degenerate_replicates:
        share = f"{item.degenerate_replicates} of {item.num_bootstrap}" if numbers else "some"
        found.append(
            f"In {share} bootstrap samples the score of some run was 0/0 and was taken as "
            f"{'one half' if item.metric in ('auc', metric_label('auc')) else '0'}."
        )
    return found
