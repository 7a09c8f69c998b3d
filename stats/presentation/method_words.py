"""Methods of intervals and tests in words, read from the intervals: so they name what was computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from multiberts.stats.intervals import ConfidenceInterval

_WORDS = {
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
SATTERTHWAITE = (
    "Satterthwaite, F. E. (1946). An Approximate Distribution of Estimates of Variance Components. "
    "Biometrics Bulletin 2(6)."
)


def method_names(intervals: Sequence[ConfidenceInterval]) -> str:
    """Returns the methods of intervals for a heading, such as `t, Newcombe`; the most frequent first."""
    counts = Counter(interval.method for interval in intervals)
    return ", ".join(name for name, _ in counts.most_common())


def name_of_test(interval: ConfidenceInterval) -> str:
    """Returns what a sentence calls the test that agrees with an interval."""
    if interval.method == "Newcombe":
        return "two-sided test by Newcombe's interval"
    return "two-sided t test"


def interval_sentences(
    differences: Sequence[ConfidenceInterval], scores: Sequence[ConfidenceInterval]
) -> tuple[list[str], list[str]]:
    """Returns sentences on intervals and tests for a paragraph on methods, and their references.

    Args:
      differences: their intervals; none of a single arm.
    """
    sentences = [
        "Standard errors come from an unbiased estimate of the variance of the crossed design, with "
        "Satterthwaite's (1946) degrees of freedom, for which mean squares are taken at the upper end of "
        "their likely range."
    ]
    if differences:
        what = "differences are" if len(differences) > 1 else "the difference are"
        sentences.append(f"Intervals and two-sided tests of {what} {_kinds(differences)}.")
    if scores:
        sentences.append(f"Intervals of scores are {_kinds(scores)}.")
    methods = dict.fromkeys(interval.method for interval in (*differences, *scores))
    return sentences, [
        SATTERTHWAITE,
        *(_REFERENCES[name] for name in methods if name in _REFERENCES),
    ]


def _kinds(intervals: Sequence[ConfidenceInterval]) -> str:
    counts = Counter(interval.method for interval in intervals).most_common()
    if len(counts) == 1:
        return _WORDS[counts[0][0]]
    return " and ".join(f"{_WORDS[name]} ({number} of {len(intervals)})" for name, number in counts)
