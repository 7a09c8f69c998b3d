"""The figure of a ranking: scores or differences, and the ranks that they allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiberts.runs.figure_style import COLOURS, GREY, canvas
from multiberts.stats.metric_names import metric_label, score_format
from multiberts.stats.presentation import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from multiberts.stats.results import RankingResult


def draw_ranking(result: RankingResult) -> Figure:
    """Draws a row per arm, best first, with its score (or its difference from the one that all are
    compared with), its possible ranks, and the letters of its groups.
    """
    level, arms = f"{result.confidence_level:.0%}", result.arms
    against = {item.experiment: item for item in result.differences if result.against}
    with canvas(7.2, 1.5 + 0.34 * len(arms), 2, width_ratios=[1.4, 1]) as (figure, (left, right)):
        for row, arm in enumerate(arms):
            if result.against is None:
                drawing.row(left, row, arm.estimate, arm.ci)
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
        shown = f"{metric}, each with its own {level} interval"
        if result.against is not None:
            left.axvline(0, color=GREY, linewidth=0.9, linestyle=":")
            shown = f"{metric} minus that of {result.against}, simultaneous {level} interval"
        right.set_xlim(0.5, len(arms) + 0.5)
        right.set_xticks(sorted({1, (len(arms) + 1) // 2, len(arms)}))
        title = result.name or result.evaluation_set
        drawing.finish_rows(left, [arm.name for arm in arms], shown, title)
        drawing.finish_rows(right, [""] * len(arms), f"rank, {level} for all together")
        if arms[0].groups:
            right.set_title("same letter: tied", loc="right", fontsize=9)
    return figure
