"""Figures of the MultiBERTs paper (Sellam et al., ICLR 2022), from prediction sets.

Each function returns a Matplotlib figure, to be rendered by `runs.figure_style.figure_bytes`. `score_figure`
draws figures 1 and 2 (section 2.2) and 8 (appendix E.1), `seeds_figure` figures 3 (section 4), 4 (appendix
C), 5 and 6 (appendix D). Figures of bootstrap distributions are in `report.presentation.figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from multiberts.papers.multiberts.run_agreement import Agreement
from multiberts.papers.multiberts.tables import COMPONENT_NAMES, CORRECTION_NAMES
from multiberts.report.prediction_sets import PredictionSet, RunScores
from multiberts.report.presentation import drawing
from multiberts.report.presentation.figures import bias_figure, forest_figure
from multiberts.report.presentation.formats import metric_label, score_format
from multiberts.report.presentation.readable_names import readable
from multiberts.runs.errors import counted
from multiberts.runs.figure_style import COLOURS, GREY, LINES, MARKERS, canvas
from multiberts.stats.compare.tasks import TaskComparisons
from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import sorted_seeds
from multiberts.stats.score import metric_name
from multiberts.stats.variance.components import VarianceComponents
from multiberts.stats.variance.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Components in the order of the bars, with their `fill_style`.
_FILLS = {"seed": 2, "run": 1, "example": 0, "residual": 4, "run_residual": 3}
# Minimum number of runs of a seed, and of seeds, for a box plot.
_ENOUGH_FOR_BOX = 8
_ENOUGH_SEEDS = 4
_PANELS_A_ROW = 4


@dataclass(frozen=True)
class ScorePanel:
    """Scores of procedures on one evaluation set.

    Attributes:
      arms: scores of procedures, drawn as a box and one dot per seed.
      reference: scores of one checkpoint for comparison, such as the original BERT, or None.
    """

    title: str
    measure: str
    arms: Sequence[RunScores]
    reference: RunScores | None = None


def score_figure(panels: Sequence[ScorePanel], title: str = "", one_scale: bool = False) -> Figure:
    """Draws the scores of pre-training seeds as dots and box plots, one panel per evaluation set.

    A dot is the mean of a seed's runs; a dashed line shows the reference. Panels are evaluation sets, or the
    parts of HANS or of stress sets.

    Args:
      panels: panels, one per evaluation set or part of one.
      title: a line above the figure.
      one_scale: whether all panels share the score axis.
    """
    if not panels or not all(panel.arms for panel in panels):
        raise DataError("found nothing to draw scores of, expected a procedure in every panel")
    names = list(dict.fromkeys(arm.name for panel in panels for arm in panel.arms))
    columns = min(len(panels), _PANELS_A_ROW)
    rows = -(-len(panels) // columns)
    width = 1.0 + columns * max(1.45, 0.75 + 0.6 * len(names))
    options = {"squeeze": False, "sharey": one_scale}
    with canvas(width, 0.7 + 2.4 * rows, columns, rows, **options) as (figure, grid):
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_scores(axes, panel, names)
            if one_scale:
                axes.label_outer()
        # Procedures first, then references, in the order of `names`.
        first = [readable(name, {}) for name in names]
        drawing.legend_below(figure, grid.flat[: len(panels)], 1 if columns < 3 else 3, first)
        drawing.title_above(figure, title)
    return figure


def _draw_scores(axes: Axes, panel: ScorePanel, names: Sequence[str]) -> None:
    for position, arm in enumerate(panel.arms):
        drawing.dots(
            axes, arm.seed_scores, position, names.index(arm.name), spread=1.8, alpha=0.85,
            box=0.62 if len(arm.seeds) >= _ENOUGH_SEEDS else 0.0, label=readable(arm.name, {}),
            markersize=5,
        )  # fmt: skip
    if panel.reference is not None:
        axes.axhline(
            panel.reference.mean, color="black", linewidth=1.3, linestyle="--", zorder=2,
            label=readable(panel.reference.name, {}),
        )  # fmt: skip
    axes.set_xlim(-0.6, len(panel.arms) - 0.4)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.margins(y=0.08)
    _show_measure(axes, panel.measure)
    axes.set_title(readable(panel.title, {}), fontsize=10)


def _show_measure(axes: Axes, measure: str) -> None:
    axes.set_ylabel(metric_label(measure))
    drawing.show_unit(axes.yaxis, score_format(measure))


def seeds_figure(arms: Sequence[RunScores], measure: str) -> Figure:
    """Draws the scores of each pre-training seed, with a grey line between the procedures of one seed.

    A small dot is a run, a large marker the mean of a seed; seeds with many runs have a box. Seeds are sorted
    by the scores of the first procedure.
    """
    if not arms:
        raise DataError("found no scores to draw seeds of, expected at least one procedure")
    order = [arms[0].seeds[position] for position in np.argsort(arms[0].seed_scores, kind="stable")]
    others = sorted_seeds([seed for arm in arms for seed in arm.seeds if seed not in order])
    column = {seed: position for position, seed in enumerate([*order, *others])}
    shift = 0.5 / len(arms)
    width = min(10.0, 1.4 + len(column) * max(0.24, 0.12 + 0.12 * len(arms)))
    most = max(len(scores) for arm in arms for scores in arm.by_seed.values())
    if most >= _ENOUGH_FOR_BOX:
        width = min(10.0, 1.4 + 0.75 * len(column) * len(arms))
    with canvas(max(4.2, width), 3.6) as (figure, axes):
        for seed, position in column.items():
            means = [
                (position + shift * (index - (len(arms) - 1) / 2), float(arm.by_seed[seed].mean()))
                for index, arm in enumerate(arms)
                if seed in arm.by_seed
            ]
            axes.plot(*zip(*means, strict=True), color=GREY, linewidth=1.0, zorder=2)
        for index, arm in enumerate(arms):
            _draw_seeds(axes, arm, column, shift * (index - (len(arms) - 1) / 2), index)
        if min(scores.min() for arm in arms for scores in arm.by_seed.values()) < 0:
            axes.axhline(0, color="black", linewidth=0.6, linestyle=":", zorder=0)
        axes.set_xticks(list(column.values()), [str(seed) for seed in column])
        axes.set_xlim(-0.7, len(column) - 0.3)
        axes.set_xlabel("pre-training seed")
        _show_measure(axes, measure)
        figure.legend(loc="outside lower left", ncols=2 if len(arms) > 1 and width > 6 else 1)
    return figure


def _draw_seeds(axes: Axes, arm: RunScores, column: Mapping, shift: float, index: int) -> None:
    colour, name = COLOURS[index % len(COLOURS)], readable(arm.name, {})
    means = []
    for seed, scores in arm.by_seed.items():
        position = column[seed] + shift
        if len(scores) > 1:
            drawing.dots(
                axes, scores, position, index, box=0.4 if len(scores) >= _ENOUGH_FOR_BOX else 0.0,
                marker=".", markersize=4, alpha=0.55, markeredgewidth=0,
            )  # fmt: skip
        means.append((position, float(scores.mean())))
    runs = sorted({len(scores) for scores in arm.by_seed.values()})
    number = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    axes.plot(
        *zip(*means, strict=True), zorder=4, **drawing.dot_style(index, size=6.5, edge=0.6),
        label=f"{name}: mean of {number} run{'s' if number != '1' else ''}",
    )  # fmt: skip
    axes.axhline(
        arm.mean, color=colour, linewidth=1.2, linestyle=LINES[(index + 1) % len(LINES)], zorder=1,
        label=f"{name}: mean of {counted(len(arm.seeds), 'seed')}",
    )  # fmt: skip


def occupations_figure(prediction_sets: Sequence[PredictionSet], measure: str) -> Figure:
    """Draws mean bias of occupations against their share of women, with fit, one panel per procedure."""
    arms = [
        predictions.occupation_scores(measure, predictions.procedure)
        for predictions in prediction_sets
    ]
    label = "P(feminine pronoun)" if measure.startswith("probe") else "bias score of the occupation"
    return bias_figure(arms, label)


def agreement_figure(agreements: Mapping[str, Agreement]) -> Figure:
    """Draws the agreement of two runs, with equal and with different seeds, by evaluation set."""
    if not agreements:
        raise DataError("found no agreements to draw, expected at least one evaluation set")
    with canvas(6.4, 1.4 + 0.42 * len(agreements)) as (figure, axes):
        for row, item in enumerate(agreements.values()):
            for index, (seeds, estimate, shift) in enumerate(
                (("same", item.same_seed, -0.14), ("different", item.different_seeds, 0.14))
            ):
                if estimate is not None:
                    drawing.row(
                        axes, row + shift, 100 * estimate.value,
                        [100 * end for end in estimate.interval], colour=COLOURS[index],
                        marker=MARKERS[index],
                        label=f"{seeds} pre-training seed{'s' * (seeds != 'same')}",
                    )  # fmt: skip
        names = [
            readable(name, {}) + (" (r)" if item.kind == "correlation" else "")
            for name, item in agreements.items()
        ]
        on_a_scale = any(item.kind == "correlation" for item in agreements.values())
        label = "pairs of runs that agree (%)" + "; r: correlation of answers, x 100" * on_a_scale
        drawing.finish_rows(axes, names, label)
        drawing.legend_below(figure, [axes], 2)
    return figure


def family_figure(family: TaskComparisons) -> Figure:
    """Draws a forest plot of the tasks and the macro-average, with Holm's p-values at the right.

    Args:
      family: see `stats.compare_tasks`.
    """
    first = family.macro_average
    if first.experiment is None:
        raise DataError("found tasks of a single design, expected comparisons of two arms")
    rows = {
        f"{readable(task, {})}, {metric_name(item.metric)}": item
        for task, item in family.comparisons.items()
    }
    return forest_figure(
        rows,
        f"{first.experiment.name} - {first.base.name}",
        family.adjusted["holm"].tolist(),
        CORRECTION_NAMES["holm"],
        family.macro_average,
    )


def variance_figure(
    components: Mapping[str, VarianceComponents], sizes: Mapping[str, tuple[float, float, float]]
) -> Figure:
    """Draws shares of variance by source, for one run on one example and for the mean score.

    Args:
      components: variance components by evaluation set.
      sizes: numbers of seeds, runs per seed and examples of the mean by evaluation set.
    """
    if not components:
        raise DataError("found no variance components to draw, expected at least one set")
    one_of_each: Mapping = dict.fromkeys(components, (1, 1, 1))
    panels = {"of one run on one example": one_of_each, "of the mean score": sizes}
    with canvas(7.8, 1.7 + 0.36 * len(components), 2, sharey=True) as (figure, grid):
        for axes, (name, numbers) in zip(grid, panels.items(), strict=True):
            parts = {key: part.of_mean(*numbers[key]) for key, part in components.items()}
            _draw_shares(axes, parts)
            names = [readable(key, {}) for key in components]
            drawing.finish_rows(axes, names, "share of variance (%)")
            axes.set_title(name, fontsize=10)
        drawing.legend_below(figure, grid[:1], 3)
    return figure


def _draw_shares(axes: Axes, parts: Mapping[str, Mapping[str, float]]) -> None:
    rows, left = np.arange(len(parts)), np.zeros(len(parts))
    totals = np.array([sum(of_measure.values()) for of_measure in parts.values()])
    for name, fill in _FILLS.items():
        values = np.array([of_measure[name] for of_measure in parts.values()])
        shares = 100 * np.divide(values, totals, out=np.zeros(len(parts)), where=totals > 0)
        axes.barh(rows, shares, 0.66, left, label=COMPONENT_NAMES[name], **drawing.fill_style(fill))
        left += shares
    axes.set_xlim(0, 100)


def power_figure(
    effects: Sequence[float], numbers_of_seeds: ArrayLike, plan: Plan, title: str = ""
) -> Figure:
    """Draws power against the number of pre-training seeds, one curve per effect.

    Args:
      numbers_of_seeds: whole numbers from 2 on, increasing.
      plan: everything except the number of seeds; its target power is drawn as a line, and the legend
        gives the number of seeds that reach it.
      title: a line above the figure.
    """
    seeds = np.asarray(numbers_of_seeds)
    if not len(effects) or not seeds.size:
        raise DataError("found no effects or no numbers of seeds to draw power for, expected both")
    table = plan.power_curve(effects, seeds)  # [seeds, effects]
    from matplotlib.ticker import MaxNLocator

    with canvas(5.4, 3.9) as (figure, axes):
        for line, (effect, curve) in enumerate(zip(effects, table.T, strict=True)):
            reached = np.flatnonzero(curve >= plan.target_power)
            enough = f"{seeds[reached[0]]} seeds" if reached.size else f"over {seeds[-1]} seeds"
            axes.plot(
                seeds, curve, linewidth=1.7, markersize=5,
                markevery=(line, max(1, len(seeds) // 6)),
                label=f"effect {effect:.3g}: {enough}", **drawing.curve_style(line),
            )  # fmt: skip
        axes.axhline(plan.target_power, color=GREY, linewidth=0.9, linestyle=":")
        axes.set_ylim(0, 1.02)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("pre-training seeds" + (" of each arm" if plan.design != "single" else ""))
        axes.set_ylabel(f"power at level {plan.alpha:g}, {plan.sides}-sided")
        axes.set_title(title or f"{plan.design} design, {counted(plan.num_runs, 'run')} per seed")
        figure.legend(
            loc="outside lower left", ncols=2, title=f"seeds for a power of {plan.target_power:g}",
            alignment="left", title_fontsize=9,
        )  # fmt: skip
    return figure
