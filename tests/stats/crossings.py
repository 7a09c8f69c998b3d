"""Crossings of plain tables, for tests of their variances."""

from collections.abc import Sequence

from multiberts.stats.settings import Resample
from multiberts.stats.variance.crossing import Crossing
from multiberts.stats.variance.score_tables import Scores, TablePart, score_table


def crossing_of_tables(tables: Sequence[Scores], resample: Resample = "both") -> Crossing:
    """Builds the crossing of one table [seeds, examples], or of the difference of two arms."""
    signs = [1.0] if len(tables) == 1 else [-1.0, 1.0]
    return Crossing(
        [
            TablePart(
                score_table(table),
                sign,
                None if resample == "examples" else f"seeds {position}",
                None if resample == "seeds" else "examples",
            )
            for position, (table, sign) in enumerate(zip(tables, signs, strict=True))
        ]
    )
