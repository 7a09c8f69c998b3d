"""Winogender scores of every group of runs: base, with many fine-tuning runs, and both ways of CDA.

Sellam et al. (ICLR 2022), section 4 and appendix D. Of each group the mean over pre-training seeds,
the runs of a seed averaged first, and the deviation over seeds: for the base the published notebook
prints accuracy 62.7 +- 1.2 %, bias correlation 0.42 +- 0.10 and slope 0.45 +- 0.11 (the appendix calls
the last a correlation).
"""

from __future__ import annotations

from collections.abc import Sequence

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.paper.figures import ScorePanel
from multiberts.stats.report.dumps import Dump, RunScores

MEASURES = ("accuracy", *OCCUPATION_MEASURES)


def group_scores(dumps: Sequence[Dump]) -> dict[tuple[str, str], list[RunScores]]:
    """Scores of the groups by (evaluation set, measure), for `stats.paper.tables.score_table`.

    Args:
      dumps: on Winogender, one a group, in the order of the rows.

    Raises:
      DataError: no dumps, or of several evaluation sets.
    """
    names = sorted({dump.set_name for dump in dumps})
    if len(names) != 1:
        raise DataError(
            f"found groups of {', '.join(names) or 'no evaluation set'}, expected one set for all"
        )
    measures = [name for name in MEASURES if all(name in dump.measures for dump in dumps)]
    return {
        (names[0], measure): [dump.run_scores(measure, dump.procedure) for dump in dumps]
        for measure in measures
    }


def group_panels(dumps: Sequence[Dump]) -> list[ScorePanel]:
    """The same for `stats.paper.figures.score_figure`: a panel a measure.

    Raises:
      DataError: as `group_scores`.
    """
    return [ScorePanel("", measure, arms) for (_, measure), arms in group_scores(dumps).items()]
