"""Slices of the examples: results on each slice and against all other examples (`stats.slices`).

Slices have the seeds and clusters of the comparison. The variance of the difference between a slice and the
other examples takes their common seeds into account.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.readers.rows import TEXT_NAMES
from multiberts.report.presentation import drawing
from multiberts.report.presentation.answer import FurtherAnswer, finished
from multiberts.report.presentation.formats import (
    Cell,
    heading,
    metric_at_start,
    metric_label,
    score_format,
)
from multiberts.report.presentation.sections import ReportSection
from multiberts.report.presentation.table_writer import Table
from multiberts.runs.console import printable
from multiberts.runs.figure_style import COLOURS, GREY, canvas
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.compare.checks import check_named, undefined_seeds, undefined_why
from multiberts.stats.compare.comparison_spec import ComparisonSpec
from multiberts.stats.compare.prepared_arms import PreparedArms
from multiberts.stats.compare.result import Comparison, Names, arms_of
from multiberts.stats.errors import DataError, UndefinedScore
from multiberts.stats.interval_rule import interval_of_difference, interval_of_sum
from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.reading import arms_in, arms_of_arrays, table_of, values_of_clusters
from multiberts.stats.results import flat_values, plain_value, seed_names
from multiberts.stats.runs_table import Arm
from multiberts.stats.significance import adjusted_p_values
from multiberts.stats.variance.crossing import Crossing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Minimum number of examples for an interval; see docs/statistics.md for coverage.
LEAST = 30
MOST_SLICES = 50
# Columns of numbers with more distinct values are cut at their quartiles.
_MOST_NUMBERS = 12


@dataclass(frozen=True)
class Slice:
    """One slice of the examples: scores, difference, and its deviation from the other examples.

    Attributes:
      base, experiment: scores on the slice; None if the score is 0/0 in every run, and for the experiment
        in a `single` design.
      estimate: difference of the scores; the base's score in a `single` design.
      ci: recommended interval, with the comparison's seeds and clusters; None if there are fewer than
        `Slices.least` examples, or an arm has no score.
      p_value: two-sided p of this slice alone; None without an interval, and in a `single` design.
      p_holm: p-value corrected for the number of slices with an interval.
      against_rest: estimate minus that on all other examples (the interaction); None if either has no
        interval, or if clusters are in both.
      against_rest_p, against_rest_p_holm: uncorrected and corrected p of `against_rest`.
      undefined: reasons why base and experiment have no score on the slice; empty if they have one.
      undefined_seeds: seeds of base and experiment whose score on the slice is 0/0 and replaced by the value
        defined for 0/0.
      rest_undefined: whether an arm has no score on all other examples.
    """

    name: str
    num_examples: int
    base: float | None
    experiment: float | None
    estimate: float | None
    ci: ConfidenceInterval | None = None
    p_value: float | None = None
    p_holm: float | None = None
    against_rest: float | None = None
    against_rest_ci: ConfidenceInterval | None = None
    against_rest_p: float | None = None
    against_rest_p_holm: float | None = None
    undefined: tuple[str, ...] = ()
    undefined_seeds: tuple[tuple, ...] = ()
    rest_undefined: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Slices(FurtherAnswer):
    """Slices of the examples by one column.

    Attributes:
      by: name of the column.
      least: smallest number of examples (or drawn clusters) of a slice with an interval.
      slices: slices sorted by name or number.
      level: level of all intervals.
      clusters_cross: whether a cluster is in several slices; if so, no slice is compared with the other
        examples.

    See also: `slices`.
    """

    key: ClassVar[str] = "slices"
    parameter: ClassVar[str] = "by"

    by: str
    least: int
    slices: tuple[Slice, ...]
    level: float
    clusters_cross: bool = False

    def columns(self) -> dict[str, Any]:
        by_name = {
            part.name: plain_value(replace(part, undefined_seeds=())) for part in self.slices
        }
        values = flat_values({self.key: by_name})
        return {name: value for name, value in values.items() if not isinstance(value, list)}

    def heading(self) -> str:
        return f"By {self.by}"

    def table(self) -> Table:
        item, level = self.comparison, f"{self.level:.0%} CI"
        rows: list[dict[str, Cell]] = []
        paired = item.experiment is not None
        for part in self.slices:
            row: dict[str, Cell] = {self.by: part.name, "examples": part.num_examples}
            if paired:
                row |= {
                    "base": part.base, "experiment": part.experiment, "difference": part.estimate,
                }  # fmt: skip
            else:
                row |= {"score": part.estimate}
            row |= {level: part.ci} | ({"p (Holm)": part.p_holm} if paired else {})
            row |= {
                "against the rest": part.against_rest, f"its {level}": part.against_rest_ci,
                "its p (Holm)": part.against_rest_p_holm,
            }  # fmt: skip
            rows.append(row)
        share, points = score_format(item.metric), score_format(item.metric, True)
        formats = {
            **dict.fromkeys(("base", "experiment", "score"), share),
            **dict.fromkeys(("difference", "against the rest", f"its {level}"), points),
            level: points if paired else share,
            **dict.fromkeys(("p (Holm)", "its p (Holm)"), "p"),
        }
        note = (
            f"Slices of fewer than {self.least} examples (or clusters) have no interval; p is corrected "
            "for the number of slices (Holm)."
        )
        if self.clusters_cross:
            note += " Clusters lie in several slices, so none is set against the rest."
        return replace(Table.from_records(rows, formats), note=" ".join([note, *self._undefined()]))

    def _undefined(self) -> Iterator[str]:
        """Yields sentences on slices whose score is 0/0 in all seeds or in some."""
        metric, names = (
            metric_at_start(self.comparison.metric),
            [arm.name for arm in arms_of(self.comparison)],
        )
        without_rest = [item.name for item in self.slices if item.rest_undefined]
        for item in self.slices:
            for why in dict.fromkeys(filter(None, item.undefined)):
                undefined = [
                    name for name, text in zip(names, item.undefined, strict=True) if text == why
                ]
                of = "" if len(undefined) == len(names) else f" of {undefined[0]}"
                yield f"{metric}{of} has no value where {self.by} is {item.name}: {why}."
            for name, why, seeds in zip(names, item.undefined, item.undefined_seeds, strict=False):
                if seeds and not why:
                    yield (
                        f"{metric} of {name} is 0/0 in {seed_names(seeds)} where {self.by} is {item.name} "
                        "and counts there with the value defined for that."
                    )
        if without_rest:
            yield (
                f"Where {self.by} is {' or '.join(without_rest)}, nothing is set against the rest, which has "
                "no score."
            )

    def figure(self) -> ReportSection:
        item = self.comparison
        return ReportSection(
            "slices",
            f"{metric_label(item.metric, item.experiment is not None)} by {self.by}, and by how much "
            "each slice differs from the other examples; the numbers are in the table below",
            partial(_draw, self),
        )


def slices(result: Comparison | FurtherAnswer, by: Any) -> Slices:
    """Compares the arms on slices of the examples, separately and against all other examples.

    Args:
      result: comparison of one or two arms.
      by: name of a column or coordinate along `example` of the base data (numbers are cut at their
        quartiles); `label`; `length`, the number of words of an example's texts; or one value per example.

    Raises:
      DataError: the column is missing or has one value or too many, or the spread is borrowed (`one_seed`).

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> right = np.random.default_rng(0).random((2, 5, 400)) < [[[0.7]], [[0.8]]]
      >>> answer = stats.slices(stats.compare(*right), by=["even", "odd"] * 200)
      >>> {one.name: one.num_examples for one in answer.slices}
      {'even': 200, 'odd': 200}

    See also: `compare`, `Slices`.

    Reference: Gelman & Stern (2006), The Difference Between "Significant" and "Not Significant" is not Itself
    Statistically Significant; Holm (1979), A simple sequentially rejective multiple test procedure.
    """
    result = finished(result)
    spec = result.computed_from().spec
    if spec is None:
        raise DataError(
            "found a mean of tasks, which have examples of their own; give the comparison of one task"
        )
    if spec.prior[1]:
        raise DataError(
            "found seed_sd with slices (by), but a borrowed standard deviation does not apply to slices; "
            "leave one of them out"
        )
    parts = slices_of(spec, result.computed_from().data, by)
    return Slices(result, parts.by, LEAST, parts.slices, result.confidence_level, *parts[2:])


class SlicedArms(NamedTuple):
    """Comparisons of the arms on each slice; see `Slices`."""

    by: str
    slices: tuple[Slice, ...]
    clusters_cross: bool


def slices_of(spec: ComparisonSpec, data: Any, by: Any) -> SlicedArms:
    """Compares arms on slices of the examples.

    Args:
      spec: specification of the comparison on all examples.
      data: data of the base, which may have unread columns; or None.
      by: as in `slices`.
    """
    arm = spec.arms[0]
    if isinstance(by, str) and by not in ("label", "length", *arm.of_examples) and data is not None:
        arms = arms_in(data, "base", by) or arms_of_arrays(data)
        table = table_of("base", next(iter(arms.values())) if arms else data, spec.metric, by)
        arm = replace(arm, of_examples={**arm.of_examples, **table.of_examples})
    called, values = slice_names(by, arm)
    return _sliced(spec, called, values)


def slice_names(by: Any, arm: Arm) -> tuple[str, NDArray]:
    """Returns the name of the column and the slice of each example [examples].

    Args:
      by: name of a column of examples; `label`; `length`, the number of words of an example's texts; or one
        value per example, in the forms of clusters.
    """
    if isinstance(by, str) and by == "label":
        name, values = by, arm.of_examples.get(by, arm.labels)
    elif isinstance(by, str) and by == "length" and by not in arm.of_examples:
        name, values = by, _lengths(arm)
    else:
        values, name = values_of_clusters("base", by, arm)
    values = np.asarray(values)
    check_named(values, f"a value of {name or 'by'}", "give each example one")
    # Fill in a loop, because NumPy would convert values that are sequences to a table.
    words = np.array([printable(str(value), "") for value in values.tolist()])
    texts = _quartiles(values) if values.dtype.kind in "iuf" else words
    number = len({*texts.tolist()})
    if not 2 <= number <= MOST_SLICES:
        raise DataError(
            f"found {number} slices by {name or 'the values given'}, expected 2 to {MOST_SLICES}; name a "
            "column of few kinds of examples"
        )
    return name or "slice", texts


def _lengths(arm: Arm) -> NDArray:
    """Returns the number of words of each example's texts."""
    columns = [arm.of_examples[name] for name in TEXT_NAMES if name in arm.of_examples]
    if not columns:
        raise DataError(
            "found no texts to count the words of, expected a coordinate such as text or question; name "
            "another column with by"
        )
    return np.array(
        [sum(len(str(text).split()) for text in row) for row in zip(*columns, strict=True)]
    )


def _quartiles(values: NDArray) -> NDArray:
    """Returns the names of a few distinct numbers, or of the quarters of many."""
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


def _sliced(spec: ComparisonSpec, by: str, names: NDArray) -> SlicedArms:
    """Compares the arms on each slice.

    Args:
      names: slice of each example [examples].
    """
    clusters = spec.arms[0].clusters
    order = _in_order(names)
    crossed = clusters is not None and len(
        np.unique(np.stack([clusters, [order.index(name) for name in names.tolist()]]), axis=1).T
    ) > len(np.unique(clusters))
    rows = []
    for name in order:
        inside = np.flatnonzero(names == name)
        outside = np.flatnonzero(names != name)
        part = _part(spec, inside, f"{name} ")
        experiment = part.scores[1] if len(part.scores) > 1 else None
        piece = Slice(
            name, len(inside), part.scores[0], experiment, part.estimate,
            undefined=part.undefined, undefined_seeds=part.undefined_seeds,
        )  # fmt: skip
        if part.crossing is not None and part.ci is not None:
            piece = replace(piece, ci=part.ci, p_value=part.p_value)
            others = None if crossed else _part(spec, outside, "rest ")
            if others is not None and others.crossing is not None:
                piece = replace(piece, **_against(part, others, spec))
            piece = replace(piece, rest_undefined=others is not None and any(others.undefined))
        rows.append(piece)
    for plain, corrected in (("p_value", "p_holm"), ("against_rest_p", "against_rest_p_holm")):
        tested = [row for row, item in enumerate(rows) if getattr(item, plain) is not None]
        if tested:
            holm = adjusted_p_values([getattr(rows[row], plain) for row in tested], "holm")
            for row, p in zip(tested, holm.tolist(), strict=True):
                rows[row] = replace(rows[row], **{corrected: p})
    return SlicedArms(by, tuple(rows), crossed)


@dataclass
class _Part:
    """Results on a part of the examples; crossing is None if they are too few or a score is always 0/0."""

    scores: list[float | None]
    undefined: tuple[str, ...]
    undefined_seeds: tuple[tuple, ...]
    crossing: Crossing | None = None
    ci: ConfidenceInterval | None = None
    p_value: float | None = None

    @property
    def estimate(self) -> float | None:
        """Returns the difference, or the score of a single arm."""
        first, last = self.scores[0], self.scores[-1]
        if first is None or last is None:
            return None
        return last - (first if len(self.scores) > 1 else 0.0)


def _part(whole: ComparisonSpec, rows: NDArray, name: str) -> _Part:
    chosen = [replace(arm, of_examples={}).with_examples(rows.tolist()) for arm in whole.arms]
    spec, settings = None, whole.settings
    if min(arm.num_units for arm in chosen) >= LEAST:
        with contextlib.suppress(UndefinedScore):
            prepared = PreparedArms(tuple(chosen), whole.metric)
            spec = ComparisonSpec.of(prepared, settings, name)
    jobs = spec.jobs if spec else [ScoreJob(arm, whole.metric, None, None) for arm in chosen]
    undefined = tuple(map(undefined_why, jobs))
    scores = [
        None if why else float(job.plain[0][0].mean())
        for why, job in zip(undefined, jobs, strict=True)
    ]
    part = _Part(scores, undefined, tuple(map(undefined_seeds, jobs)))
    if spec is None:
        return part
    summaries = spec.summaries(Names().arms)
    part.crossing, level = spec.crossing, settings.confidence_level
    if len(summaries) == 1:
        part.ci = summaries[0].ci
    else:
        part.ci, tests = interval_of_difference(
            summaries, spec.crossing, spec.pairs, spec.score, settings.drawn, level
        )
        part.p_value = tests.two_sided
    return part


def _against(inside: _Part, outside: _Part, spec: ComparisonSpec) -> Mapping[str, Any]:
    """Returns the fields for a slice against the other examples: difference of differences and its t test."""
    assert inside.crossing is not None and outside.crossing is not None
    assert inside.estimate is not None and outside.estimate is not None
    parts = [replace(part, weight=-part.weight) for part in outside.crossing.parts]
    variance = Crossing([*inside.crossing.parts, *parts]).unbiased_variance()
    estimate, level = inside.estimate - outside.estimate, spec.settings.confidence_level
    reach = spec.score.width * len(inside.scores)
    if variance.variance == 0:
        return {}
    interval, p_values = interval_of_sum(estimate, variance, level, (-reach, reach))
    return {
        "against_rest": estimate,
        "against_rest_ci": interval,
        "against_rest_p": p_values.two_sided,
    }


def _in_order(names: NDArray) -> list[str]:
    """Returns the distinct names, sorted, with numbers first."""

    def key(name: str) -> tuple[float, str]:
        try:
            return float(name.split(" to ")[0]), ""
        except ValueError:
            return math.inf, name

    return sorted({*names.tolist()}, key=key)


def _draw(answer: Slices) -> Figure:
    """Draws the difference (or score) and interval of each slice, below those of all examples.

    A second panel shows the deviation from the other examples. Slices with too few examples for an interval
    have empty dots; slices without a score have no dots.
    """
    comparison, level = answer.comparison, f"{answer.level:.0%} intervals"
    paired = comparison.experiment is not None
    apart = any(item.against_rest_ci is not None for item in answer.slices)
    names = ["all examples", *(f"{item.name} ({item.num_examples})" for item in answer.slices)]
    size = (4 + 2.6 * apart, 1.3 + 0.34 * len(names))
    with canvas(*size, 1 + apart, squeeze=False) as (figure, grid):
        panels = grid[0]
        drawing.row(panels[0], 0, comparison.estimate, comparison.ci, colour=COLOURS[1], marker="D")
        panels[0].axhline(0.5, color=GREY, linewidth=0.6)
        for row, item in enumerate(answer.slices, start=1):
            if item.estimate is not None:
                ends = item.ci or (item.estimate, item.estimate)
                drawing.row(panels[0], row, item.estimate, ends, filled=item.ci is not None)
            if item.against_rest is not None and item.against_rest_ci is not None:
                drawing.row(panels[1], row, item.against_rest, item.against_rest_ci, marker="s")
        for number, axes in enumerate(panels):
            difference = paired or number == 1
            unit = score_format(comparison.metric, difference)
            kind = "difference" if paired else metric_label(comparison.metric)
            label = heading("less that of the others" if number else kind, unit)
            drawing.show_unit(axes.xaxis, unit)
            drawing.finish_rows(axes, [""] * len(names) if number else names, label)
            if difference:
                axes.axvline(0, color="black", linewidth=0.9, linestyle=":")
        drawing.title_above(figure, f"By {answer.by}, {level}")
    return figure
