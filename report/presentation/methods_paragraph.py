"""Methods paragraphs for papers, with their references: of comparisons and of rankings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from multiberts.report.presentation.formats import format_cell
from multiberts.report.presentation.ranking_words import numbers_of_seeds
from multiberts.report.presentation.words import (
    are_single,
    clusters_text,
    filled,
    form,
    not_empty,
    unseen_failures,
)
from multiberts.runs.errors import counted
from multiberts.stats.compare.result import arms_of
from multiberts.stats.score import metric_name

if TYPE_CHECKING:
    from multiberts.report.presentation.answer import FurtherAnswer
    from multiberts.stats.compare.ranking import ArmComparisons
    from multiberts.stats.compare.result import Comparison
    from multiberts.stats.intervals import ConfidenceInterval
    from multiberts.stats.results import ArmDifference, ArmSummary
    from multiberts.stats.settings import Design, Resample

# Resampled units in a methods paragraph; {}: name of the seeds.
_SAMPLED: Mapping[Resample, str] = {
    "both": "both {} and examples",
    "seeds": "{}, with the examples held fixed,",
    "examples": "examples, with the seeds held fixed,",
}
# {}: the base.
_DESIGNS: Mapping[Design, str] = {
    "paired": "Seeds were paired.",
    "unpaired": "Seeds of the two arms were drawn independently.",
    "fixed_baseline": "The runs of {} were held fixed.",
    "single": "",
}
# Texts by `ConfidenceInterval.method`.
_INTERVALS = {
    "t": "Student's t",
    "Newcombe": "Newcombe's (1998), from score intervals",
    "Wilson": "Wilson's (1927) score interval",
    "Clopper-Pearson": "Clopper and Pearson's (1934)",
    "Fisher z": "Student's t on Fisher's (1921) z",
    "range": "all that is possible, as nothing varies",
}
_REFERENCES = {
    "Newcombe": (
        "Newcombe, R. G. (1998). Improved Confidence Intervals for the Difference between Binomial "
        "Proportions Based on Paired Data. Statistics in Medicine 17(22)."
    ),
    "Wilson": (
        "Wilson, E. B. (1927). Probable Inference, the Law of Succession, and Statistical Inference. JASA "
        "22(158)."
    ),
    "Clopper-Pearson": (
        "Clopper, C. J. & Pearson, E. S. (1934). The Use of Confidence or Fiducial Limits Illustrated in the "
        "Case of the Binomial. Biometrika 26(4)."
    ),
    "Fisher z": (
        'Fisher, R. A. (1921). On the "Probable Error" of a Coefficient of Correlation Deduced from a Small '
        "Sample. Metron 1."
    ),
}
_SELLAM = (
    "Sellam, T. et al. (2022). The MultiBERTs: BERT Reproductions for Robustness Analysis. ICLR."
)
_SATTERTHWAITE = (
    "Satterthwaite, F. E. (1946). An Approximate Distribution of Estimates of Variance Components. "
    "Biometrics Bulletin 2(6)."
)
_SMYTH = (
    "Smyth, G. K. (2004). Linear Models and Empirical Bayes Methods for Assessing Differential "
    "Expression in Microarray Experiments. Stat. Appl. Genet. Mol. Biol. 3(1)."
)
_MOGSTAD = (
    "Mogstad, M., Romano, J. P., Shaikh, A. M. & Wilhelm, D. (2024). Inference for Ranks with "
    "Applications to Mobility across Neighbourhoods and Academic Achievement across Countries. "
    "Review of Economic Studies 91(1)."
)


def methods(
    items: Sequence[Comparison],
    seeds_are: str = "seeds",
    runs_are: str = "runs",
    answers: Sequence[FurtherAnswer] = (),
) -> str:
    """Writes the methods paragraph for a paper, with references.

    Args:
      items: comparisons with equal settings.
      seeds_are: name of the seeds, such as "pre-training seeds".
      runs_are: name of the runs of one seed, such as "fine-tuning runs".
      answers: answers to further questions about the first comparison.
    """
    item, arms = items[0], arms_of(items[0])
    metrics = dict.fromkeys(metric_name(each.metric) for each in items)
    numbers = " and ".join(str(len(arm.seeds)) for arm in arms)
    opening = [
        f"We report {' and '.join(metrics)}{_averaged(arms, runs_are, f'{seeds_are} ({numbers})')}, with "
        f"{item.confidence_level:.0%} confidence intervals that take "
        f"{_SAMPLED[item.resample].format(seeds_are)} as random samples (Sellam et al., 2022).",
        "" if item.resample == "examples" else _DESIGNS[item.design].format(item.base.name),
        filled("Examples were drawn in {}.", clusters_text(item.base)),
    ]
    closing, references = [], []
    if any(each.pooled_seeds for each in items):
        closing.append(
            "The mean squares of the seeds of the two arms were pooled where their ratio was below the "
            "90 % point of its F distribution."
        )
    moves = {"sign flip": "sign flips of", "permutation": "permutations of"}
    tests = [text for name, text in moves.items() if name in item.p_values]
    closing += [f"Randomisation tests use {test} the seeds." for test in tests[:1]]
    for answer in answers:
        sentences, of_answer = answer.methods()
        closing += sentences
        references += of_answer
    closing += dict.fromkeys(map(unseen_failures, items))
    if item.intervals:
        closing.append(f"Bootstrap intervals use {item.n_resamples:,} replicates (rng {item.rng}).")
    return _paragraph(opening, items, arms_of(*items), closing, references)


def _averaged(arms: Sequence[ArmSummary], runs_are: str, seeds: str) -> str:
    """Describes the averaging of scores, over the runs of each seed (if any has several) and over seeds."""
    if are_single(arms):
        return " of single runs"
    several = any(arm.num_runs > len(arm.seeds) for arm in arms)
    runs = f"the {runs_are} of each seed and over " if several else ""
    return f", averaged over {runs}{seeds}"


def _paragraph(
    opening: Sequence[str],
    differences: Sequence[Comparison | ArmDifference],
    arms: Sequence[ArmSummary],
    closing: Sequence[str],
    references: Sequence[str],
) -> str:
    """Joins the methods paragraph, with common sentences on intervals and missing predictions."""
    intervals, of_intervals = about_intervals(differences, arms)
    # by name, to count an arm of several comparisons once
    missing = {arm.name: f"{arm.num_missing:,} of {arm.name}" for arm in arms if arm.num_missing}
    of_missing = (
        "Missing predictions ({}) were left out of the scores of their runs, as if they were missing "
        "at random."
    )
    repeated = "The seeds here are repeats of an evaluation; no model was trained again."
    sentences = [
        *opening,
        repeated if any(arm.repeats for arm in arms) else "",
        *intervals,
        filled(of_missing, " and ".join(missing.values())),
        *closing,
    ]
    text = " ".join(not_empty(*sentences))
    return f"{text}\n\nReferences: {' '.join([_SELLAM, *of_intervals, *references])}"


def about_intervals(
    differences: Sequence[Comparison | ArmDifference], arms: Sequence[ArmSummary]
) -> tuple[list[str], list[str]]:
    """Returns sentences on intervals and tests for a methods paragraph, and their references.

    The intervals contain their methods, so that the sentences match the computation.
    """
    crossed = any(getattr(each, "resample", "both") == "both" for each in differences)
    of_what = "the crossed design" if crossed else "a mean"
    tested = [each.ci for each in differences if each.experiment is not None]
    scored = [arm.ci for arm in arms]
    sentences = [
        f"Standard errors come from an unbiased estimate of the variance of {of_what}, with "
        "Satterthwaite's (1946) degrees of freedom, for which mean squares are taken at the upper end of "
        "their likely range."
    ]
    subject = form(len(tested), "the difference are", "differences are")
    for start, intervals in (
        (f"Intervals and two-sided tests of {subject}", tested),
        ("Intervals of scores are", scored),
    ):
        counts = Counter(interval.method for interval in intervals).most_common()
        kinds = [f"{_INTERVALS[name]} ({number} of {len(intervals)})" for name, number in counts]
        if len(counts) == 1:
            kinds = [_INTERVALS[counts[0][0]]]
        sentences += not_empty(filled(f"{start} {{}}.", " and ".join(kinds)))
    used = dict.fromkeys(interval.method for interval in (*tested, *scored))
    return sentences, [_SATTERTHWAITE, *(_REFERENCES[name] for name in used if name in _REFERENCES)]


def method_names(intervals: Sequence[ConfidenceInterval]) -> str:
    """Returns the methods of intervals for a heading, such as `t, Newcombe`, by decreasing frequency."""
    counts = Counter(interval.method for interval in intervals)
    return ", ".join(name for name, _ in counts.most_common())


def ranking_methods(result: ArmComparisons) -> str:
    """Writes the methods paragraph for a paper, with references."""
    level, unpaired = f"{result.confidence_level:.0%}", result.design == "unpaired"
    pairs = "all pairs" if result.against is None else f"each with {result.against}"
    opening = [
        f"We compare {len(result.arms)} arms ({pairs}) by {metric_name(result.metric)}"
        f"{_averaged(result.arms, 'runs', f'{numbers_of_seeds(result)} seeds')}, and take "
        f"{_SAMPLED[result.resample].format('seeds')} as random samples (Sellam et al., 2022).",
        ""
        if result.resample == "examples"
        else "Seeds of the arms were drawn independently."
        if unpaired
        else "Seeds were paired across arms.",
    ]
    closing = [
        f"Intervals of the {counted(len(result.differences), 'difference')} hold simultaneously at {level} "
        f"(Bonferroni), and so do the {level} intervals of the ranks that follow from them (Mogstad et "
        "al., 2024)."
    ]
    references = [_MOGSTAD]
    if result.shared_degrees_of_freedom:
        moderated = (
            "Variances between seeds were moderated by their mean over "
            f"{'arms' if unpaired else 'pairs of arms'}, which counts for "
            f"{format_cell(result.shared_degrees_of_freedom)} degrees of freedom (Smyth, 2004)."
        )
        closing, references = [moderated, *closing], [_SMYTH, *references]
    return _paragraph(opening, result.differences, result.arms, closing, references)
