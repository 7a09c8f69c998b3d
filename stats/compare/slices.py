"""Compares arms on slices of the examples: each slice's difference, and whether it differs from the rest's.

A slice has the comparison's seeds and clusters. What it has in common with the rest, the seeds, is in the
variance of the difference of differences.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.readers.columns import TEXT_NAMES
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.compare.checks import check_named
from multiberts.stats.compare.conclude import Names
from multiberts.stats.compare.slice_origin import arm_behind
from multiberts.stats.compare.undefined import undefined_seeds, undefined_why
from multiberts.stats.corrections import adjusted_p_values
from multiberts.stats.errors import DataError, UndefinedScore
from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.metrics import MetricLike
from multiberts.stats.reading import values_of_clusters
from multiberts.stats.recommended import (
    AnswerPairs,
    ScoreKind,
    interval_of_difference,
    interval_of_sum,
)
from multiberts.stats.results.comparison import ArmSummary
from multiberts.stats.results.slices import Slice, Slices
from multiberts.stats.runs_table import Arm
from multiberts.stats.settings import ComparisonSettings
from multiberts.stats.variance.crossing import Crossing

# With fewer examples a slice shows hardly more than its own noise; see docs/statistics.md for coverage.
LEAST = 30
MOST_SLICES = 50
# A column of more different numbers is cut at its quartiles.
_MOST_NUMBERS = 12


def slice_names(by: Any, data: Any, arm: Arm) -> tuple[str, NDArray]:
    """Returns the name of the column, and each example's slice [examples].

    Args:
      by: the name of a coordinate or variable along examples; `label`; `length`, the number of words of
        an example's texts; or one value per example, as clusters are given.
      data: the arm's labelled arrays.
      arm: whose examples they are.
    """
    if isinstance(by, str) and by == "label" and "label" not in getattr(data, "data_vars", ()):
        name, values = by, np.asarray(arm.labels)
    elif isinstance(by, str) and by == "length" and by not in data.coords:
        name, values = by, _lengths(data, arm)
    else:
        values, name = values_of_clusters("base", data, by, arm)
    values = np.asarray(values)
    check_named(values, f"a value of {name or 'by'}", "give each example one")
    # One by one: NumPy makes a table of values that are sequences.
    words = np.array([str(value) for value in values.tolist()])
    texts = _quartiles(values) if values.dtype.kind in "iuf" else words
    number = len({*texts.tolist()})
    if not 2 <= number <= MOST_SLICES:
        raise DataError(
            f"found {number} slices by {name or 'the values given'}, expected 2 to {MOST_SLICES}; name a "
            "column of few kinds of examples"
        )
    return name or "slice", texts


def _lengths(data: Any, arm: Arm) -> NDArray:
    """Returns the number of words of each example's texts."""
    names = [name for name in TEXT_NAMES if name in data.coords]
    if not names:
        raise DataError(
            "found no texts to count the words of, expected a coordinate such as text or question; name "
            "another column with by"
        )
    columns = [values_of_clusters("base", data, name, arm)[0] for name in names]
    return np.array(
        [sum(len(str(text).split()) for text in row) for row in zip(*columns, strict=True)]
    )


def _quartiles(values: NDArray) -> NDArray:
    """Returns the names of few different numbers, or of the quarters of many."""
    different = np.unique(values)
    if len(different) <= _MOST_NUMBERS:
        return np.array([f"{value:g}" for value in values])
    edges = np.unique(np.quantile(values, [0.25, 0.5, 0.75]))
    codes = np.searchsorted(edges, values, side="left")
    names = {
        code: f"{values[codes == code].min():g} to {values[codes == code].max():g}"
        for code in np.unique(codes)
    }
    return np.array([names[code] for code in codes])


class Spec(Protocol):
    """Parts of a `ComparisonSpec` that slices read."""

    crossing: Crossing
    pairs: AnswerPairs | None
    jobs: list[ScoreJob]

    def summaries(
        self, samples: NDArray, names: Names, settings: ComparisonSettings
    ) -> list[ArmSummary]:
        """Summarises each arm, from its samples [replicates, arms]."""


@dataclass(frozen=True)
class SpecOf:
    """Makes comparisons of a metric on some of the examples.

    Attributes:
      make: takes arms and the name of their examples.
    """

    make: Callable[[Sequence[Arm], str], Spec]
    metric: MetricLike
    kind: ScoreKind

    def __call__(self, arms: Sequence[Arm], name: str) -> Spec:
        return self.make(arms, name)


def sliced(
    arms: Sequence[Arm], spec_of: SpecOf, settings: ComparisonSettings, by: str, names: NDArray
) -> Slices:
    """Compares the arms on each slice.

    Args:
      spec_of: makes comparisons of them on some of the examples.
      names: each example's slice [examples].
    """
    clusters = arms[0].clusters
    order = _in_order(names)
    crossed = clusters is not None and len(
        np.unique(np.stack([clusters, [order.index(name) for name in names.tolist()]]), axis=1).T
    ) > len(np.unique(clusters))
    found = []
    for name in order:
        inside = np.flatnonzero(names == name)
        rest = np.flatnonzero(names != name)
        own = _part(arms, inside, f"{name} ", spec_of, settings)
        experiment = own.scores[1] if len(own.scores) > 1 else None
        made = Slice(
            name, len(inside), own.scores[0], experiment, own.estimate,
            undefined=own.undefined, undefined_seeds=own.undefined_seeds,
        )  # fmt: skip
        if own.crossing is not None and own.ci is not None:
            made = replace(made, ci=own.ci, p_value=own.p_value)
            others = None if crossed else _part(arms, rest, "rest ", spec_of, settings)
            if others is not None and others.crossing is not None:
                made = replace(made, **_against(own, others, spec_of.kind, settings))
            made = replace(made, rest_undefined=others is not None and any(others.undefined))
        found.append(made)
    for plain, corrected in (("p_value", "p_holm"), ("against_rest_p", "against_rest_p_holm")):
        places = [place for place, item in enumerate(found) if getattr(item, plain) is not None]
        if places:
            holm = adjusted_p_values([getattr(found[place], plain) for place in places], "holm")
            for place, p in zip(places, holm.tolist(), strict=True):
                found[place] = replace(found[place], **{corrected: p})
    behind = None if by in ("label", "length") else arm_behind(arms, spec_of.metric, names)
    made_from = "" if behind is None else ("base", "experiment")[behind]
    return Slices(by, LEAST, tuple(found), settings.confidence_level, crossed, made_from)


@dataclass
class _Part:
    """Scores, difference and interval on some of the examples; no crossing where these are too few, or
    where a score is 0/0 in every run, and so None.
    """

    scores: list[float | None]
    undefined: tuple[str, ...]
    undefined_seeds: tuple[tuple, ...]
    crossing: Crossing | None = None
    ci: ConfidenceInterval | None = None
    p_value: float | None = None

    @property
    def estimate(self) -> float | None:
        """Returns the difference, or the score of one arm."""
        first, last = self.scores[0], self.scores[-1]
        if first is None or last is None:
            return None
        return last - (first if len(self.scores) > 1 else 0.0)


def _part(
    arms: Sequence[Arm], rows: NDArray, name: str, spec_of: SpecOf, settings: ComparisonSettings
) -> _Part:
    chosen = [arm.with_examples(rows.tolist()) for arm in arms]
    spec = None
    if min(arm.num_units for arm in chosen) >= LEAST:
        with contextlib.suppress(UndefinedScore):
            spec = spec_of(chosen, name)
    jobs = spec.jobs if spec else [ScoreJob(arm, spec_of.metric, None, None) for arm in chosen]
    undefined = tuple(map(undefined_why, jobs))
    scores = [
        None if why else float(job.plain[0][0].mean())
        for why, job in zip(undefined, jobs, strict=True)
    ]
    part = _Part(scores, undefined, tuple(map(undefined_seeds, jobs)))
    if spec is None:
        return part
    summaries = spec.summaries(np.zeros((1, len(chosen))), Names(), settings)
    part.crossing, level = spec.crossing, settings.confidence_level
    if len(summaries) == 1:
        part.ci = summaries[0].ci
    else:
        part.ci, tests = interval_of_difference(
            summaries, spec.crossing, spec.pairs, spec_of.kind, settings.resample, level
        )
        part.p_value = tests.two_sided
    return part


def _against(
    own: _Part, rest: _Part, kind: ScoreKind, settings: ComparisonSettings
) -> Mapping[str, Any]:
    """Returns the fields of a slice against the rest: the difference of differences, by the t."""
    assert own.crossing is not None and rest.crossing is not None
    assert own.estimate is not None and rest.estimate is not None
    parts = [replace(part, weight=-part.weight) for part in rest.crossing.parts]
    variance = Crossing([*own.crossing.parts, *parts]).unbiased_variance()
    estimate, level = own.estimate - rest.estimate, settings.confidence_level
    reach = kind.width * len(own.scores)
    if variance.variance == 0:
        return {}
    interval, p_values = interval_of_sum(estimate, variance, level, (-reach, reach))
    return {
        "against_rest": estimate,
        "against_rest_ci": interval,
        "against_rest_p": p_values.two_sided,
    }


def _in_order(names: NDArray) -> list[str]:
    """Returns the different names, those that begin with a number by it."""

    def key(name: str) -> tuple[float, str]:
        try:
            return float(name.split(" to ")[0]), ""
        except ValueError:
            return math.inf, name

    return sorted({*names.tolist()}, key=key)
