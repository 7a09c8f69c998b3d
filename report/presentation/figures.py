"""Figures of comparisons, of scores over pre-training and of occupations."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import UNBOUNDED
from multiberts.report.presentation import drawing
from multiberts.report.presentation.formats import heading, metric_label, score_format, with_minus
from multiberts.report.presentation.words import SOURCES, drawn_unit
from multiberts.runs.errors import UserError, counted
from multiberts.runs.figure_style import COLOURS, GREY, canvas
from multiberts.stats.interval_rule import interval_of_mean
from multiberts.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from multiberts.stats.compare.ranking import ArmComparisons
    from multiberts.stats.compare.result import Comparison
    from multiberts.stats.intervals import Interval


@dataclass(frozen=True)
class Curve:
    """Scores of one procedure over pre-training.

    Attributes:
      steps: pre-training steps, increasing [steps].
      scores: score at each step by seed [steps]; NaN if not scored.
      ends: smallest and largest possible score, which limit the bands.
    """

    name: str
    steps: NDArray
    scores: Mapping[Any, NDArray[np.float64]]
    ends: tuple[float, float] = UNBOUNDED


@dataclass(frozen=True)
class OccupationScores:
    """Bias of one procedure on each occupation.

    Attributes:
      share: share of women in [0, 1] [occupations].
      values: bias score or probe, mean of a seed's runs [seeds, occupations].
      truth: true slope of synthetic data, or None if unknown.
      interval: interval of the slope over seeds and occupations, or None.
    """

    name: str
    share: NDArray[np.float64]
    values: NDArray[np.float64]
    truth: float | None = None
    interval: Interval | None = None


def _draw_difference(axes: Axes, row: int, item: Comparison, colour: str, marker: str) -> None:
    """Draws an estimate and its interval in a row; the marker is filled if the interval excludes 0."""
    clear = item.ci.low > 0 or item.ci.high < 0
    drawing.row(axes, row, item.estimate, item.ci, colour=colour, marker=marker, filled=clear)


def seed_figure(comparison: Comparison) -> Figure:
    """Draws the seeds of each arm, and those of their difference, beside the estimates with their intervals.

    Thin lines join paired seeds. Reference: Gardner & Altman (1986), Confidence Intervals rather than P
    Values.
    """
    arms = [arm for arm in (comparison.base, comparison.experiment) if arm is not None]
    scores = [arm.seed_scores for arm in arms]
    is_paired = comparison.design == "paired" and len(arms) == 2
    ratios = [len(arms), 1.1][: len(arms)]
    width = 0.9 + 1.05 * sum(ratios)
    with canvas(width, 3.2, len(arms), width_ratios=ratios, squeeze=False) as (figure, panels):
        left, *rest = panels[0]
        dots_at = [drawing.dots(left, values, row, row) for row, values in enumerate(scores)]
        for row, arm in enumerate(arms):
            drawing.estimate_beside(left, row + 0.27, arm.estimate, arm.ci, COLOURS[row])
        if is_paired:
            left.plot(np.array(dots_at), np.array(scores), color=GREY, linewidth=0.8, zorder=2)
        unit = drawn_unit(arms)
        names = [
            f"{textwrap.fill(arm.name, 13)}\n({counted(len(arm.seeds), unit)})" for arm in arms
        ]
        left.set_xticks(range(len(arms)), names)
        left.set_xlim(-0.45, len(arms) - 0.45)
        left.set_ylabel(metric_label(comparison.metric))
        left.set_title(comparison.evaluation_set)
        for right in rest:
            if is_paired:
                drawing.dots(right, np.subtract(scores[1], scores[0]), 0, 2)
            drawing.estimate_beside(right, 0.27, comparison.estimate, comparison.ci, "black")
            right.axhline(0, color="black", linewidth=0.9, linestyle=":")
            right.set_xlim(-0.45, 0.55)
            unit = score_format(comparison.metric, True)
            right.set_xticks(
                [0.1], [f"{heading('difference', unit)}\n{comparison.confidence_level:.0%} CI"]
            )
        for axes in panels[0]:
            drawing.show_unit(axes.yaxis, score_format(comparison.metric))
    return figure


# Quartile lines of a violin: percentage, half length, line style.
_QUARTILES = ((25, 0.13, ":"), (50, 0.2, "-"), (75, 0.13, ":"))


def _draw_violin(axes: Axes, samples: NDArray, position: float, index: int, across: bool) -> None:
    """Draws the distribution of bootstrap samples with quartile lines."""
    violin: Any = axes.violinplot(
        [samples], positions=[position], widths=0.75 if across else 0.6, showextrema=False,
        orientation="vertical" if across else "horizontal",
    )  # fmt: skip
    for body in violin["bodies"]:
        body.set(facecolor=COLOURS[index], edgecolor=COLOURS[index], alpha=0.35)
    draw: Any = axes.hlines if across else axes.vlines
    for share, reach, line in _QUARTILES:
        draw(
            np.percentile(samples, share), position - reach, position + reach, color="black",
            linewidth=1.1, linestyles=line,
        )  # fmt: skip


def bootstrap_figure(comparison: Comparison) -> Figure:
    """Draws the bootstrap distributions of two arms and of their difference, with two intervals.

    Both the recommended and the published interval are shown. The paper's notebooks have this figure for
    incremental against full CDA and for 1M against 2M steps.
    """
    if comparison.experiment is None:
        raise UserError(
            f"{comparison.name}: found a single design, expected a comparison of two arms; use "
            "multiberts.report.presentation.figures.sources_figure"
        )
    arms = (comparison.base, comparison.experiment)
    with canvas(5.1, 3.6, 2, width_ratios=[2, 1.15]) as (figure, (left, right)):
        for index, arm in enumerate(arms):
            _draw_violin(left, comparison.samples[:, index], index, index, True)
            left.plot(index, arm.estimate, zorder=4, **drawing.dot_style(index, size=7, edge=1))
        left.set_xticks(
            range(2), [f"{arm.name}\n({counted(len(arm.seeds), 'seed')})" for arm in arms]
        )
        left.set_xlim(-0.6, 1.6)
        left.set_ylabel(metric_label(comparison.metric))
        for axes in (left, right):
            drawing.show_unit(axes.yaxis, score_format(comparison.metric))
        left.set_title(comparison.evaluation_set, fontsize=10)
        _draw_violin(right, comparison.differences, 0, 4, True)
        _draw_intervals(right, comparison, 0.52, 0.2, True)
        right.axhline(0, color="black", linewidth=0.9, linestyle=":")
        right.set_xlim(-0.6, 0.95)
        right.set_xticks([0], [heading("difference", score_format(comparison.metric, True))])
        right.set_title(f"{comparison.experiment.name} - {comparison.base.name}", fontsize=10)
        drawing.legend_below(figure, [right], 1)
    return figure


def _draw_intervals(
    axes: Axes, item: Comparison, position: float, apart: float, across: bool
) -> None:
    """Draws the recommended and the published interval side by side, with their centres."""
    level = f"{item.confidence_level:.0%}"
    kinds = (
        (item.ci, item.estimate, f"estimate, {level} {item.ci.method} interval (recommended)"),
        (
            item.intervals["percentile"], item.bootstrap_mean,
            f"bootstrap mean, {level} percentile interval (published)",
        ),
    )  # fmt: skip
    for index, (interval, centre, label) in enumerate(kinds):
        style = drawing.curve_style(index) | {"linewidth": 2}
        where = [position + apart * index]
        line, point = (where * 2, list(interval)), (where, [centre])
        axes.plot(*(line if across else line[::-1]), **style | {"marker": None})
        axes.plot(*(point if across else point[::-1]), **style, markersize=6, label=label)


def sources_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Draws the bootstrap distributions of one difference by resampled units.

    Resampling seeds and examples, only seeds, and only examples shows what each adds to the width.

    Args:
      comparisons: comparisons of the same arms and measure; may be a single comparison.
    """
    if not comparisons:
        raise UserError("found no comparisons to draw, expected one per source of chance")
    first = comparisons[0]
    with canvas(6.0, 1.5 + 1.0 * len(comparisons)) as (figure, axes):
        for row, item in enumerate(comparisons):
            _draw_violin(axes, item.differences, row, 5, False)
            _draw_intervals(axes, item, row + 0.4, 0.14, False)
        if first.experiment is not None:
            axes.axvline(0, color="black", linewidth=0.9, linestyle=":")
        axes.set_yticks(
            np.arange(len(comparisons)), [SOURCES[item.resample] for item in comparisons]
        )
        axes.set_ylim(len(comparisons) - 0.25, -0.45)
        experiment = f"{first.experiment.name} - " if first.experiment else ""
        label = metric_label(first.metric, first.experiment is not None)
        axes.set_xlabel(f"{label}: {experiment}{first.base.name}")
        drawing.show_unit(axes.xaxis, score_format(first.metric))
        subtitle = "what is resampled"
        if len(comparisons) == 1:
            subtitle = f"{first.n_resamples} bootstrap samples"
        axes.set_title(f"{first.evaluation_set}: {subtitle}".removeprefix(": "))
        drawing.legend_below(figure, [axes], 1)
    return figure


def forest_figure(
    comparisons: Mapping[str, Comparison],
    title: str = "",
    p_values: Sequence[float] = (),
    correction: str = "Holm",
    last: Comparison | None = None,
) -> Figure:
    """Draws differences with their intervals, one row per comparison; in points if all metrics are shares.

    Args:
      comparisons: comparisons by name of the row.
      p_values: p-values of the rows, written at the right, or empty.
      correction: name of the correction of the p-values.
      last: mean over tasks, in a separate row below a line.
    """
    items = [*comparisons.values(), *([last] if last is not None else [])]
    room = 0.4 if len(p_values) else 0.0
    with canvas(6.6 + room, 1.3 + room + 0.36 * len(items)) as (figure, axes):
        for row, item in enumerate(comparisons.values()):
            _draw_difference(axes, row, item, COLOURS[0], "o")
        if last is not None:
            axes.axhline(len(items) - 1.5, color=GREY, linewidth=0.6)
            _draw_difference(axes, len(items) - 1, last, COLOURS[1], "D")
        if len(p_values):
            words = [*map(_p_text, p_values), *(["-"] if last is not None else [])]
            for height, text in [*enumerate(words), (-0.85, f"p ({correction})")]:
                axes.text(
                    1.02, height, text, va="center", transform=axes.get_yaxis_transform(),
                    fontsize=9,
                )  # fmt: skip
        axes.axvline(0, color="black", linewidth=0.9, linestyle=":")
        # A mean over tasks mixes correlations and shares.
        units = {
            score_format(item.metric, True) for item in ([last] if last is not None else items)
        }
        unit = units.pop() if len(units) == 1 else ""
        drawing.show_unit(axes.xaxis, unit)
        level = f"{items[0].confidence_level:.0%} CI (filled: it excludes 0)"
        names = [*comparisons, *([last.evaluation_set] if last is not None else [])]
        label = f"{heading('difference', unit)}, {level}"
        called = {item.name for item in items}
        shown = title or (items[0].name if len(called) == 1 else "")
        drawing.finish_rows(axes, names, label, shown)
    return figure


def _p_text(p: float) -> str:
    return "< 0.001" if p < 1e-3 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def training_figure(
    curves: Sequence[Curve], evaluation_set: str, metric: str, confidence_level: float | None = None
) -> Figure:
    """Draws scores against pre-training steps: seeds as thin lines, their mean as a thick line.

    Args:
      confidence_level: level of a band around the mean over seeds, at steps with two or more seeds; None:
        no band.
    """
    from matplotlib.ticker import EngFormatter

    with canvas(4.8, 3.3) as (figure, axes):
        for index, curve in enumerate(curves):
            colour = COLOURS[index % len(COLOURS)]
            for scores in curve.scores.values():
                axes.plot(
                    curve.steps, scores, ".-", color=colour, linewidth=0.7, markersize=4, alpha=0.55
                )
            table = np.array(list(curve.scores.values()))  # [seeds, steps]
            if confidence_level is not None:
                _draw_band(axes, curve, table, confidence_level, colour)
            axes.plot(
                curve.steps, np.nanmean(table, axis=0), linewidth=2.2,
                label=f"{curve.name}: mean of {counted(len(table), 'seed')}",
                **drawing.curve_style(index),
            )  # fmt: skip
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 600, 50k, 2M
        axes.set_xlabel("pre-training step")
        axes.set_ylabel(metric_label(metric))
        drawing.show_unit(axes.yaxis, score_format(metric))
        band = "" if confidence_level is None else f" (band: {confidence_level:.0%} CI over seeds)"
        axes.set_title(evaluation_set + band)
        drawing.legend_below(figure, [axes], 3)
    return figure


def _draw_band(
    axes: Axes, curve: Curve, table: NDArray[np.float64], confidence_level: float, colour: str
) -> None:
    """Draws intervals of the mean of `table` [seeds, steps] at steps with two or more seeds."""
    numbers = np.isfinite(table).sum(axis=0)
    several = np.flatnonzero(numbers > 1)
    if not several.size:
        return
    intervals = []
    for step in several:
        scores = table[np.isfinite(table[:, step]), step]
        error = float(scores.std(ddof=1)) / np.sqrt(len(scores))
        # Seeds with equal scores have no spread, and therefore no interval.
        score = Score("score", ends=curve.ends if error else UNBOUNDED)
        spread = float(scores.mean()), error, len(scores) - 1
        intervals.append(
            interval_of_mean(spread, confidence_level, score, len(scores), drawn=bool(error))
        )
    low, high = np.array(intervals).T
    axes.fill_between(
        np.asarray(curve.steps)[several], low, high, color=colour, alpha=0.18, linewidth=0, zorder=1
    )


def bias_figure(arms: Sequence[OccupationScores], label: str, title: str = "") -> Figure:
    """Draws the bias of occupations against their share of women: dots for means, a thin line for each seed.

    Thick lines are fitted to the means; a true slope is dotted, on top.
    """
    with canvas(4.7, 3.5 + 0.25 * len(arms)) as (figure, axes):
        axes.axhline(0, color=GREY, linewidth=0.6)
        for index, arm in enumerate(arms):
            _draw_occupations(axes, arm, index)
        axes.set_xlabel("women in the occupation (%)")
        axes.set_ylabel(label)
        axes.set_title(title)
        named = [f"{arm.name}: slope" for arm in arms]
        labels = axes.get_legend_handles_labels()[1]
        first = [label for name in named for label in labels if label.startswith(name)]
        drawing.legend_below(figure, [axes], 2, first)
    return figure


def _draw_occupations(axes: Axes, arm: OccupationScores, index: int) -> None:
    percent, by_seed = 100 * arm.share, np.atleast_2d(arm.values)
    mean, colour = by_seed.mean(axis=0), COLOURS[index % len(COLOURS)]
    style = drawing.dot_style(index, size=5, edge=0.4)
    axes.plot(percent, mean, alpha=0.6, **style)
    if percent.min() == percent.max():
        return
    slope = np.polyfit(arm.share, mean, 1)[0]
    interval = "" if arm.interval is None else " ({:z.2f} to {:z.2f})".format(*arm.interval)
    numbers = with_minus(f"{slope:z.2f}{interval}")
    ends = np.array([arm.share.min(), arm.share.max()])
    for values in by_seed if len(by_seed) > 1 else ():
        line = np.polyval(np.polyfit(arm.share, values, 1), ends)
        axes.plot(100 * ends, line, color=colour, linewidth=0.7, label="one seed")
    axes.plot(
        100 * ends, np.polyval(np.polyfit(arm.share, mean, 1), ends), color=colour, linewidth=2.2,
        label=f"{arm.name}: slope {numbers}",
    )  # fmt: skip
    if arm.truth is not None:
        line = mean.mean() + arm.truth * (ends - arm.share.mean())
        axes.plot(100 * ends, line, ":", color="black", linewidth=2, zorder=5, label="true slope")


def draw_ranking(result: ArmComparisons) -> Figure:
    """Draws score (or difference from the reference), ranks and group of each arm, starting with the best."""
    level, arms = f"{result.confidence_level:.0%}", result.arms
    against = {item.experiment: item for item in result.differences if result.against}
    with canvas(6.0, 1.5 + 0.34 * len(arms), 2, width_ratios=[1.4, 1]) as (figure, (left, right)):
        for row, arm in enumerate(arms):
            if result.against is None:
                drawing.row(left, row, arm.estimate, arm.ci)
                left.plot(
                    arm.seed_scores, [row + 0.25] * len(arm.seeds), ".", color=GREY, markersize=4
                )
            elif arm.name in against:
                item = against[arm.name]
                drawing.row(left, row, item.estimate, item.ci, filled=item.clear)
            right.plot([arm.rank_low, arm.rank_high], [row] * 2, color=COLOURS[1], linewidth=3)
            right.plot(arm.rank, row, "s", color=COLOURS[1], markersize=6)
            right.text(
                1.04, row, "".join(arm.groups), va="center", transform=right.get_yaxis_transform(),
            )  # fmt: skip
        metric = metric_label(result.metric, result.against is not None)
        drawing.show_unit(left.xaxis, score_format(result.metric))
        shown = f"{metric}, {level} CI of each"
        if result.against is not None:
            left.axvline(0, color=GREY, linewidth=0.9, linestyle=":")
            shown = f"{metric} minus that of {result.against}, {level} for all"
        right.set_xlim(0.5, len(arms) + 0.5)
        right.set_xticks(sorted({1, (len(arms) + 1) // 2, len(arms)}))
        title = result.name or result.evaluation_set
        drawing.finish_rows(left, [arm.name for arm in arms], shown, title)
        drawing.finish_rows(right, [""] * len(arms), f"rank, {level} for all")
        if arms[0].groups:
            right.set_title("same letter: tied", loc="right", fontsize=9)
    return figure
