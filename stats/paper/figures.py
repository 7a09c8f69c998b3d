"""Figures of the MultiBERTs paper (Sellam et al., ICLR 2022), from dumps.

Every function returns a Matplotlib figure, which `runs.figure_style.save_figure` writes. The
paper shows scores on GLUE and SQuAD over pre-training seeds beside the original BERT (`score_figure`), and in
figure 3 (section 4) and figures 5 and 6 (appendix D) the gender bias of coreference
(`seeds_figure`, `occupations_figure`). Figures of bootstrap distributions are in
`stats.paper.bootstrap_figures`, of planning and of variance in `stats.paper.design_figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.figure_style import COLOURS, GREY, LINES, MARKERS, canvas
from multiberts.stats.bootstrap.arms import DataError, sorted_seeds
from multiberts.stats.instances.run_agreement import Agreement
from multiberts.stats.paper.comparisons import BIAS
from multiberts.stats.presentation.figures import Cloud, Curve, bias_figure, jitter
from multiberts.stats.report.dumps import Dump, RunScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Runs of a seed from which on a box sums them up.
_ENOUGH_FOR_BOX = 8
# Seeds from which on a box sums them up.
_ENOUGH_SEEDS = 4
_PANELS_A_ROW = 4


@dataclass(frozen=True)
class ScorePanel:
    """Scores of procedures on one evaluation set.

    Attributes:
      title, measure: of the panel.
      arms: procedures, each with a box and a dot a seed.
      reference: one checkpoint to hold them against, such as the original BERT, or None.
    """

    title: str
    measure: str
    arms: Sequence[RunScores]
    reference: RunScores | None = None


def score_figure(panels: Sequence[ScorePanel], title: str = "", one_scale: bool = False) -> Figure:
    """Scores over pre-training seeds, a panel an evaluation set: a dot a seed (the mean of its
    runs), a box, and a dashed line where the reference scores.

    The paper's figures of the GLUE tasks and of SQuAD 1.1 and 2.0; with the parts of HANS or of
    stress sets as panels the same for these.

    Args:
      panels: one an evaluation set, or a part of one.
      title: stands above.
      one_scale: whether all panels share one axis of scores.

    Raises:
      DataError: no panels, or one without procedures.
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
        found: dict[str, Any] = {}
        for axes in grid.flat[: len(panels)]:
            handles, labels = axes.get_legend_handles_labels()
            found |= dict(zip(labels, handles, strict=True))
        order = [name for name in names if name in found]
        order += [name for name in found if name not in order]
        figure.legend(
            [found[name] for name in order], order, loc="outside lower left",
            ncols=1 if columns < 3 else 3,
        )  # fmt: skip
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _draw_scores(axes: Axes, panel: ScorePanel, names: Sequence[str]) -> None:
    for place, arm in enumerate(panel.arms):
        style = names.index(arm.name)
        scores = arm.seed_scores
        if len(scores) >= _ENOUGH_SEEDS:
            _draw_box(axes, scores, place, 0.62)
        axes.plot(
            place + 1.8 * jitter(len(scores)), scores, MARKERS[style % len(MARKERS)],
            color=COLOURS[style % len(COLOURS)], markersize=5, alpha=0.85,
            markeredgecolor="white", markeredgewidth=0.5, zorder=3, label=arm.name,
        )  # fmt: skip
    if panel.reference is not None:
        axes.axhline(
            panel.reference.mean, color="black", linewidth=1.3, linestyle="--", zorder=2,
            label=panel.reference.name,
        )  # fmt: skip
    axes.set_xlim(-0.6, len(panel.arms) - 0.4)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.margins(y=0.08)
    axes.set_ylabel(panel.measure.replace("_", " "))
    axes.set_title(panel.title, fontsize=10)


def _draw_box(axes: Axes, values: NDArray, place: float, width: float) -> None:
    boxes = axes.boxplot(
        [values], positions=[place], widths=width, showfliers=False, patch_artist=True, zorder=1,
        manage_ticks=False, medianprops={"color": "black", "linewidth": 1.4},
        boxprops={"color": GREY, "linewidth": 0.8}, whiskerprops={"color": GREY, "linewidth": 0.8},
        capprops={"color": GREY, "linewidth": 0.8},
    )  # fmt: skip
    boxes["boxes"][0].set_facecolor("#F2F2F2")


def seeds_figure(arms: Sequence[RunScores], measure: str, title: str = "") -> Figure:
    """Every pre-training seed by itself: a small dot a run, a large marker the mean of the seed, a
    box where a seed has many runs; a grey line joins what two procedures make of one seed.

    The paper's figure of the bias correlation of every seed before and after incremental CDA; with
    the base's first five seeds and 25 runs of each its figure 6. Seeds stand in the order of the
    first procedure's scores.

    Raises:
      DataError: no procedure was given.
    """
    if not arms:
        raise DataError("found no scores to draw seeds of, expected one procedure at least")
    order = [arms[0].seeds[place] for place in np.argsort(arms[0].seed_scores, kind="stable")]
    others = sorted_seeds([seed for arm in arms for seed in arm.seeds if seed not in order])
    column = {seed: place for place, seed in enumerate([*order, *others])}
    shift = 0.5 / len(arms)
    width = min(10.0, 1.4 + len(column) * max(0.24, 0.12 + 0.12 * len(arms)))
    most = max(len(scores) for arm in arms for scores in arm.by_seed.values())
    if most >= _ENOUGH_FOR_BOX:
        width = min(10.0, 1.4 + 0.75 * len(column) * len(arms))
    with canvas(max(4.2, width), 3.6) as (figure, axes):
        for seed, place in column.items():
            means = [
                (place + shift * (index - (len(arms) - 1) / 2), float(arm.by_seed[seed].mean()))
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
        axes.set_ylabel(measure.replace("_", " "))
        if title:
            axes.set_title(title)
        figure.legend(loc="outside lower left", ncols=2 if len(arms) > 1 and width > 6 else 1)
    return figure


def _draw_seeds(axes: Axes, arm: RunScores, column: Mapping, shift: float, index: int) -> None:
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    means = []
    for seed, scores in arm.by_seed.items():
        place = column[seed] + shift
        if len(scores) >= _ENOUGH_FOR_BOX:
            _draw_box(axes, scores, place, 0.4)
        if len(scores) > 1:
            axes.plot(
                place + jitter(len(scores)), scores, ".", color=colour, markersize=4, alpha=0.55,
                markeredgewidth=0, zorder=3,
            )  # fmt: skip
        means.append((place, float(scores.mean())))
    runs = sorted({len(scores) for scores in arm.by_seed.values()})
    number = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    axes.plot(
        *zip(*means, strict=True), marker, color=colour, markersize=6.5, markeredgecolor="white",
        markeredgewidth=0.6, linestyle="none", zorder=4,
        label=f"{arm.name}: mean of {number} run{'s' if number != '1' else ''}",
    )  # fmt: skip
    axes.axhline(
        arm.mean, color=colour, linewidth=1.2, linestyle=LINES[(index + 1) % len(LINES)], zorder=1,
        label=f"{arm.name}: mean of {len(arm.seeds)} seeds",
    )  # fmt: skip


def occupations_figure(dumps: Sequence[Dump], measure: str = BIAS, title: str = "") -> Figure:
    """Bias of every occupation against its share of women, a panel a procedure, with the fitted
    line; the mean over seeds of their runs' means.

    Raises:
      UserError: a dump lacks occupations, genders or shares.
    """
    clouds = []
    for dump in dumps:
        data, _ = dump.measured(measure)
        means = data["prediction"].groupby("pretrain_seed").mean().mean("pretrain_seed")
        clouds.append(Cloud(dump.procedure, data["label"].to_numpy(), means.to_numpy()))
    label = "P(feminine pronoun)" if measure.startswith("probe") else "bias score of the occupation"
    return bias_figure(clouds, label, title)


def curve_of_dumps(dumps: Sequence[Dump], measure: str) -> Curve:
    """Scores of one procedure along its steps, for `stats.presentation.figures.training_figure`.

    Seeds that lack a step are left out: a mean that loses or gains seeds on its way moves without
    any of them moving.

    Args:
      dumps: of one procedure and evaluation set, each with a step.
      measure: their score.

    Raises:
      DataError: a step is not known, the dumps are not of one procedure, or no seed has every
        step.
    """
    procedures = sorted({dump.procedure for dump in dumps})
    if len(procedures) != 1 or any(dump.step is None for dump in dumps):
        raise DataError(
            f"found dumps of {', '.join(procedures) or 'no procedure'} at steps "
            f"{[dump.step for dump in dumps]}, expected one procedure at known steps"
        )
    ordered = sorted(dumps, key=lambda dump: dump.step or 0)
    found = [dump.run_scores(measure) for dump in ordered]
    tables = [dict(zip(scores.seeds, scores.seed_scores, strict=True)) for scores in found]
    seeds = sorted_seeds(list(set.intersection(*(set(table) for table in tables))))
    if not seeds:
        raise DataError(
            f"{ordered[0].set_name}: no seed of {procedures[0]} has every step of "
            f"{[dump.step for dump in ordered]}; leave steps out or add runs"
        )
    table = {seed: np.array([scores[seed] for scores in tables]) for seed in seeds}
    return Curve(procedures[0], np.array([dump.step for dump in ordered]), table)


def agreement_figure(agreements: Mapping[str, Agreement], title: str = "") -> Figure:
    """Agreement of two runs of one pre-training seed and of two, a line an evaluation set, with
    intervals over examples."""
    if not agreements:
        raise DataError("found no agreements to draw, expected one evaluation set at least")
    with canvas(6.4, 1.4 + 0.42 * len(agreements)) as (figure, axes):
        for row, item in enumerate(agreements.values()):
            for index, (estimate, label) in enumerate(
                (
                    (item.same_seed, "same pre-training seed"),
                    (item.different_seeds, "different pre-training seeds"),
                )
            ):
                if estimate is None:
                    continue
                place = row + (-0.14, 0.14)[index]
                axes.plot(
                    100 * np.array(estimate.interval), [place] * 2, color=COLOURS[index],
                    linewidth=1.8,
                )  # fmt: skip
                axes.plot(
                    100 * estimate.value, place, MARKERS[index], color=COLOURS[index],
                    markersize=6.5, markeredgecolor="white", markeredgewidth=0.5, label=label,
                )  # fmt: skip
        names = [
            name + (" (r)" if item.kind == "correlation" else "")
            for name, item in agreements.items()
        ]
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        on_a_scale = any(item.kind == "correlation" for item in agreements.values())
        axes.set_xlabel(
            "pairs of runs that agree (%)" + ("; r: correlation of answers, x 100" * on_a_scale)
        )
        if title:
            axes.set_title(title)
        handles, labels = axes.get_legend_handles_labels()
        known = dict(zip(labels, handles, strict=True))
        figure.legend(list(known.values()), list(known), loc="outside lower left", ncols=2)
    return figure
