"""Figures of instance-level analyses, after those of Zhong et al. (Findings of ACL 2021).

Each function takes the result of `papers.zhong.analysis.analyse_sizes`, or a part of it, and returns a
Matplotlib figure; `report_of_sizes` returns a page with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from multiberts.papers.zhong.analysis import (
    ZERO_ONE,
    InstanceAnalysis,
    PairOfSizes,
    SizeAccuracy,
    Triple,
)
from multiberts.papers.zhong.decomposition import Decomposition
from multiberts.papers.zhong.instance_level import Distribution, InstanceBound
from multiberts.papers.zhong.size_momentum import Momentum
from multiberts.papers.zhong.tables import all_tables, level_name
from multiberts.papers.zhong.variance_by_bias import VarianceCurve
from multiberts.report.presentation import drawing
from multiberts.report.presentation.formats import PERCENT
from multiberts.report.presentation.readable_names import readable
from multiberts.report.presentation.sections import Report, ReportSection, slug
from multiberts.report.presentation.table_writer import Table
from multiberts.runs.figure_style import COLOURS, GREY, LINES, MARKERS, canvas
from multiberts.stats.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = 3.1  # inches per task


def report_of_sizes(
    analysis: InstanceAnalysis, further: Mapping[str, Table] | None = None
) -> Report:
    """Returns a page with all tables and figures that the data allow.

    Args:
      further: further tables by name, placed after the figures.
    """
    tables = {**(further or {}), **all_tables(analysis)}
    by_name = {
        name: ReportSection(
            name, f"{caption}.", partial(tables.__getitem__, name), title=table.title
        )
        for name, table in tables.items()
        if (caption := _CAPTIONS[name].rstrip("."))
    }
    first = [by_name.pop("improvement")] if analysis.pairs else []
    sections = [*first, *figure_sections(analysis), *by_name.values()]
    return Report("Model sizes compared example by example", sections, _findings(analysis.pairs))


_EXAMPLES = (
    "Examples that the larger size did {} on in these runs, by at least the threshold of the bound, the "
    "clearest first; some differ by chance. Among all examples with p (BH) up to 0.05, at most 5 % are "
    "expected to be examples on which the sizes do not differ."
)
# Captions by the name of the table or figure.
_CAPTIONS = {
    "decaying_examples": _EXAMPLES.format("worse"),
    "improving_examples": _EXAMPLES.format("better"),
    "accuracy": "Accuracy of every size, its spread over seeds, and that of votes of a seed's runs "
    "(Zhong et al., table 8)",
    "decay": "The share of examples that the larger size is worse on: its 95% lower limit, and bounds that "
    "leave sampling error out",
    "bounds": "From the row's size to the column's, a bound on the share of examples that get better, by all "
    "runs and without sampling error: to a smaller size, the share that decay with size (Zhong et al., "
    "tables 2 and 9)",
    "relative_bias": "How much larger a bound by votes is because its threshold was chosen on the same "
    "seeds, relative to the bound with new seeds (Zhong et al., table 10)",
    "thresholds": "Examples whose votes fall by so much, and how many of them chance alone explains "
    "(Zhong et al., table 3)",
    "seeds": "What fewer seeds of each size would have shown (Zhong et al., tables 4 and 11)",
    "improvement": "The share of examples that the larger size is better on, and worse on. At least: the "
    "95% lower limit. The bound leaves sampling error out and can be above the true share. One run each: how "
    "often a run of the larger size is right and one of the smaller is wrong, and the reverse, chance "
    "included: two runs of one size differ, too (Zhong et al., section 3)",
    "decomposition": "The loss as squared bias and variances over pre-training and fine-tuning, and over the "
    "checkpoints of a run if it predicted early, too; then two ratios of variances, the second of one run's "
    "score on an example to its mean score. SE: over examples, for fixed seeds (Zhong et al., table 7, "
    "section 6 and appendix H.1)",
    "disagreement": "How often two runs disagree in being right, by the seed that they share "
    "(Zhong et al., table 1)",
    "momentum": "Whether examples that improve from the small to the middle size improve further: "
    "correlation of the two true gains where the middle size is equally accurate",
    "momentum_index": "The paper's correlation of the two estimated gains. Noise of few seeds pulls it far "
    "below the true one: use it only to compare tasks of equal numbers of seeds. Not held equal: over all "
    "examples (Zhong et al., tables 6 and 12, section 5)",
    "figure_accuracy": "Accuracy by size: a dot per pre-training seed, the means and the votes",
    "figure_histogram": "How many examples are right in what share of the seeds "
    "(Zhong et al., figure 2a)",
    "figure_bounds": "Bounds on the share of examples that get worse with size, before sampling error",
    "figure_decomposition": "The loss by size, in parts",
    "figure_decay": "How the votes on examples change with size, and what chance alone would give",
    "figure_momentum": "Correlation of the two true gains, with 95% intervals over seeds and examples",
    "figure_variance_given_bias": "The variance of an example against its bias",
}


def _findings(pairs: Sequence[PairOfSizes]) -> list[str]:
    # The smallest size against the largest answers first: it is the last pair of the smallest.
    smallest = {pair.task: pair.small for pair in reversed(pairs)}
    widest = {pair.task: pair for pair in pairs if pair.small == smallest[pair.task]}
    return [
        f"{readable(pair.task, {})}, from {pair.small} to {pair.large}: accuracy changes by "
        f"{100 * pair.gain:+.1f} points; at least {pair.improvement.lower:.1%} of {pair.decay.num_examples} "
        f"examples get better and at least {pair.decay.lower:.1%} get worse (95% lower confidence limits; "
        f"before sampling error, the bounds are {pair.improvement.bound:.1%} and {pair.decay.bound:.1%})."
        for pair in [*widest.values(), *(pair for pair in pairs if pair not in widest.values())]
    ]


def figure_sections(analysis: InstanceAnalysis) -> list[ReportSection]:
    """Returns a section per figure that the data allow, and one that raises per refused curve."""
    sections = []

    def add(name: str, make: Callable[[], Figure], data: str = "", key: Sequence[str] = ()) -> None:
        title = _CAPTIONS[f"figure_{name}"] + f" ({data})" * bool(data)
        file = "_".join(("figure", name, *key))
        sections.append(ReportSection(file, f"{title}.", make, title=title))

    add("accuracy", partial(accuracy_figure, analysis.accuracies))
    add("histogram", partial(histogram_figure, analysis.accuracies))
    if analysis.pairs:
        add("bounds", partial(bounds_figure, analysis.pairs))
    for loss in dict.fromkeys(
        name for (_, name), sizes in analysis.decompositions.items() if sizes
    ):
        chosen = {
            task: sizes for (task, name), sizes in analysis.decompositions.items() if name == loss
        }
        data, key = _named(loss)
        add("decomposition", partial(decomposition_figure, chosen), data.removeprefix(", "), key)
    for pair in analysis.pairs:
        key, data = (pair.task, pair.small, pair.large), f"{pair.small} to {pair.large}"
        add("decay", partial(decay_figure, pair), f"{readable(pair.task, {})}: {data}", key)
    for task, triples in analysis.momenta.items():
        if triples:
            make = partial(momentum_figure, triples, task)
            add("momentum", make, readable(task, {}), (task,))
    for (task, loss), levels in analysis.curves.items():
        data, key = _named(loss)
        for level, curves in levels.items():
            make = partial(variance_curve_figure, curves, level, task)
            title = f"{readable(task, {})}: {level_name(level)}{data}"
            if curves:
                add("variance_given_bias", make, title, (task, level, *key))
    for ((task, loss), level, size), error in analysis.refused_curves.items():
        data, key = _named(loss)
        title = f"{readable(task, {})}: {level_name(level)}, {size}{data}"
        add("variance_given_bias", partial(_refuse, error), title, (task, level, size, *key))
    return sections


def _named(loss: str) -> tuple[str, Sequence[str]]:
    """Returns a loss other than 0/1 as the end of a title and of a file name."""
    return ("", ()) if loss == ZERO_ONE else (f", loss: {loss}", (slug(loss),))


def _refuse(error: DataError) -> NoReturn:
    raise error


def accuracy_figure(accuracies: Mapping[str, Mapping[str, SizeAccuracy]]) -> Figure:
    """Draws the accuracy of each size by seed, with lines for the means and (dashed) the ensembles."""
    with _panels(accuracies, 3.4, "accuracy (%)", 3) as (figure, panels):
        for axes, (task, sizes) in zip(panels, accuracies.items(), strict=True):
            positions = np.arange(len(sizes))
            for position, accuracy in zip(positions, sizes.values(), strict=True):
                # Place the dots left of the means, which would cover them.
                drawing.dots(
                    axes, accuracy.seed_scores, position - 0.25, 5, marker="o", markersize=4, alpha=0.8,
                    markeredgewidth=0.4, zorder=1,
                    label="a pre-training seed" if position == 0 else None,
                )  # fmt: skip
            axes.plot(
                positions, [accuracy.mean for accuracy in sizes.values()], LINES[0], marker=MARKERS[1],
                color=COLOURS[0], label="mean",
            )  # fmt: skip
            votes = [size.ensembled for size in sizes.values() if size.ensembled is not None]
            if len(votes) == len(sizes):
                axes.plot(
                    positions, votes, linestyle=LINES[1], marker=MARKERS[2], color=COLOURS[1],
                    label="fine-tuning runs ensembled",
                )  # fmt: skip
            _name_sizes(axes, sizes, task)
            drawing.show_unit(axes.yaxis, PERCENT)
    return figure


def histogram_figure(accuracies: Mapping[str, Mapping[str, SizeAccuracy]]) -> Figure:
    """Draws the histogram of instance accuracy of each size, in ten bins."""
    with _panels(accuracies, 3.4, "examples (%)", 3) as (figure, panels):
        for axes, (task, sizes) in zip(panels, accuracies.items(), strict=True):
            for number, (size, bound) in enumerate(sizes.items()):
                axes.stairs(
                    100 * bound.shares, np.arange(11) / 10, label=size, linewidth=1.6,
                    color=COLOURS[number % len(COLOURS)], linestyle=LINES[number % len(LINES)],
                )  # fmt: skip
            axes.set_xlabel("share of the seeds that are right (%)")
            drawing.show_unit(axes.xaxis, PERCENT)
            axes.set_xlim(0, 1)
            axes.set_ylim(bottom=0)
            axes.set_title(readable(task, {}))
    return figure


@contextmanager
def _panels(
    tasks: Collection[str], height: float, label: str, ncols: int, left: float = 0.6
) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """Opens a figure with one panel per task and a common legend; `left` is the space for labels."""
    with canvas(left + _PANEL * len(tasks), height, len(tasks), squeeze=False) as (figure, panels):
        yield figure, panels[0]
        panels[0, 0].set_ylabel(label)
        drawing.legend_below(figure, panels[0, :1], 1 if len(tasks) == 1 else ncols)


def _name_sizes(axes: Axes, sizes: Mapping[str, object], title: str) -> None:
    axes.set_xticks(range(len(sizes)), list(sizes))
    if max(map(len, sizes)) * len(sizes) > 28:
        for label in axes.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_title(readable(title, {}))


def decay_figure(pair: PairOfSizes) -> Figure:
    """Draws observed differences and random baseline as CDFs, whose gap is the bound, and histograms."""
    with canvas(6.0, 3.6, 2) as (figure, (left, right)):  # 6 inches fit a phone
        _draw_gap(left, pair.decay)
        _draw_histogram(right, pair.decay)
        drawing.title_above(figure, f"{readable(pair.task, {})}: {pair.large} against {pair.small}")
        drawing.legend_below(figure, [left], 3)
    return figure


def _draw_histogram(axes: Axes, bound: InstanceBound) -> None:
    width = max(1 / max(bound.num_seeds), 0.05)
    edges = (np.arange(-1 - width / 2, 1 + width, width)).round(12)
    for number, distribution in enumerate((bound.difference, bound.baseline)):
        heights = np.histogram(distribution.support, edges, weights=distribution.probability)[0]
        axes.stairs(
            100 * heights, edges, color=COLOURS[number], linewidth=1.6, linestyle=LINES[number],
            fill=False, zorder=3 - number,
        )  # fmt: skip
        if number == 0:
            axes.stairs(100 * heights, edges, color=COLOURS[0], alpha=0.2, fill=True)
    axes.set_yscale("symlog", linthresh=1, linscale=0.6)
    axes.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xlabel("difference (points)")
    drawing.show_unit(axes.xaxis, PERCENT)
    axes.set_ylabel("examples (%)")
    axes.set_title("all differences\n(log scale above 1 %)", fontsize=10)


def _steps(distribution: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """Returns the corners of the CDF from -1 to just below 0."""
    support = distribution.support
    inside = support[support < 0]
    positions = np.concatenate([[-1.05], inside, [0.0]])
    shares = distribution.cdf(np.concatenate([[-1.05], inside]))
    return positions, 100 * np.append(shares, shares[-1])


def _draw_gap(axes: Axes, bound: InstanceBound) -> None:
    for number, (name, distribution) in enumerate(
        (("observed", bound.difference), ("random baseline", bound.baseline))
    ):
        axes.plot(
            *_steps(distribution), drawstyle="steps-post", linestyle=LINES[number], linewidth=1.8,
            color=COLOURS[number], label=name,
        )  # fmt: skip
    if np.isfinite(bound.threshold):
        points = np.unique(
            np.concatenate([bound.difference.support, bound.baseline.support, [-1.05, 0.0]])
        )
        points = points[points <= 0]
        upper, lower = (100 * item.cdf(points) for item in (bound.difference, bound.baseline))
        upper[-1], lower[-1] = upper[-2], lower[-2]
        axes.fill_between(
            points, lower, np.maximum(upper, lower), step="post", color=COLOURS[4], alpha=0.35,
            linewidth=0, hatch="....", edgecolor=GREY, label="more decay than chance",
        )  # fmt: skip
        top, bottom = (
            100 * float(item.cdf(bound.threshold)) for item in (bound.difference, bound.baseline)
        )
        axes.annotate(
            "", (bound.threshold, top), (bound.threshold, bottom),
            arrowprops={"arrowstyle": "<->", "color": "black", "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
    axes.set_xlim(-1.03, 0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("difference at most (points)")
    drawing.show_unit(axes.xaxis, PERCENT)
    axes.set_ylabel("examples (%)")
    axes.set_title(
        f"decaying: at least {bound.lower:.2%}\n(95% limit; bound {bound.bound:.2%})", fontsize=10
    )


def bounds_figure(pairs: Sequence[PairOfSizes]) -> Figure:
    """Draws the decay bounds of each pair of sizes by all methods, one panel per task."""
    tasks = list(dict.fromkeys(pair.task for pair in pairs))
    rows = max(sum(pair.task == task for pair in pairs) for task in tasks)
    left = drawing.width_of_names(f"{pair.small} to {pair.large}" for pair in pairs)
    with _panels(tasks, 1.5 + 0.5 * rows, "", 2, left=left) as (figure, panels):
        for axes, task in zip(panels, tasks, strict=True):
            chosen = [pair for pair in pairs if pair.task == task]
            for row, pair in enumerate(chosen):
                _draw_bounds(axes, row, pair)
            axes.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
            names = [f"{pair.small} to {pair.large}" for pair in chosen]
            title = readable(task, {})
            drawing.finish_rows(axes, names, "bound on decaying examples (%)", title)
    return figure


def _draw_bounds(axes: Axes, row: int, pair: PairOfSizes) -> None:
    one_run_each = pair.of_one_seed is None and pair.single.bound == pair.decay.bound
    values = [
        ("fine-tuning runs of one pre-training seed", pair.of_one_seed, 3, -0.24),
        ("one run per seed", None if one_run_each else pair.single.bound, 1, -0.08),
        ("ensembled", pair.decay.bound, 2, 0.08),
    ]
    for name, value, style, shift in values:
        if value is not None:
            axes.plot(100 * value, row + shift, label=name, **drawing.dot_style(style))
    bias = pair.decay_bias
    axes.plot([100 * bias.low, 100 * bias.high], [row + 0.26] * 2, color=COLOURS[0], linewidth=1.6)
    name = "ensembled, corrected, 95% interval"
    axes.plot(100 * bias.corrected, row + 0.26, label=name, **drawing.dot_style(0))


def decomposition_figure(decompositions: Mapping[str, Mapping[str, Decomposition]]) -> Figure:
    """Draws the loss of each size as a stack of squared bias and variances, one panel per task."""
    chosen = {task: sizes for task, sizes in decompositions.items() if sizes}
    with _panels(chosen, 3.7, "expected loss", 4) as (figure, panels):
        for axes, (task, sizes) in zip(panels, chosen.items(), strict=True):
            names = dict.fromkeys(
                name for split in sizes.values() for name in split.parts if name != "loss"
            )
            positions, bottom = np.arange(len(sizes)), np.zeros(len(sizes))
            for fill, name in enumerate(names):
                parts = [split.parts.get(name) for split in sizes.values()]
                # Unbiased estimates of small variances can be negative and are drawn as 0.
                heights = np.array([max(part.mean, 0.0) if part else 0.0 for part in parts])
                errors = np.array([part.standard_error if part else 0.0 for part in parts])
                label = level_name(name) + ("" if name == "bias_squared" else " variance")
                axes.bar(positions, heights, 0.68, bottom, label=label, **drawing.fill_style(fill))
                bottom += heights
                axes.errorbar(
                    positions, bottom, errors, fmt="none", ecolor="black", elinewidth=0.9, capsize=2
                )
            _name_sizes(axes, sizes, task)
    return figure


def variance_curve_figure(
    curves: Mapping[str, VarianceCurve], level: str = "finetune_seed", title: str = ""
) -> Figure:
    """Draws the expected variance given squared bias, with one curve and band per size."""
    with canvas(5.2, 3.7) as (figure, axes):
        for number, (size, curve) in enumerate(curves.items()):
            colour = COLOURS[number % len(COLOURS)]
            # A variance is at least 0; unbiased estimates and their bands can be below.
            mean, low, high = np.maximum([curve.mean, curve.low, curve.high], 0.0)
            axes.fill_between(curve.grid, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.plot(
                curve.grid, mean, markersize=5, linewidth=1.6, label=size,
                markevery=(3 + 3 * number, max(1, len(curve.grid) // 5)), **drawing.curve_style(number),
            )  # fmt: skip
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("squared bias")
        axes.set_ylabel(f"{level_name(level)} variance")
        axes.set_title(readable(title, {}))
        figure.legend(loc="outside lower left", ncols=min(5, len(curves)))
    return figure


def momentum_figure(momenta: Mapping[Triple, Momentum], title: str = "") -> Figure:
    """Draws correlations of two successive improvements with intervals, one row per triple of sizes."""
    names = [" to ".join(sizes) for sizes in momenta]
    with canvas(4.6 + drawing.width_of_names(names), 1.3 + 0.36 * len(momenta)) as (figure, axes):
        for row, item in enumerate(momenta.values()):
            drawing.row(axes, row, item.r, (item.low, item.high))
        axes.axvline(0, color="black", linewidth=0.9, linestyle=":")
        axes.set_xlim(-1.03, 1.03)
        confidence_level = next(iter(momenta.values())).confidence_level
        label = f"r of true improvements, {confidence_level:.0%} interval (no dot: unknown)"
        drawing.finish_rows(axes, names, label, readable(title, {}))
    return figure
