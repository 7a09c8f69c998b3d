"""Results that print themselves: in words, as tables, figures, LaTeX, JSON and a paragraph for a paper."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from multiberts.stats.presentation.figures import bootstrap_figure, forest_figure
from multiberts.stats.presentation.metric_names import metric_name, score_format
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.presentation.wording import (
    finding,
    methods,
    short_answers_in_words,
    warnings,
)
from multiberts.stats.results.comparison import ComparisonResult
from multiberts.stats.results.content import flat_values

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class Readable:
    """What every result offers to readers."""

    def comparisons_shown(self) -> Sequence[ComparisonResult]:
        """Returns the comparisons of the result, in the order in which readers see them."""
        return [cast("ComparisonResult", self)]

    def table(self) -> Table:
        """Returns estimates with intervals, and the recommended p: sides, then the difference.

        Readers see shares in per cent, unless there are other metrics beside them; `csv()` holds them
        as they are, from 0 to 1.
        """
        rows: list[tuple] = []
        items = self.comparisons_shown()
        for item in items:
            where = [item.name or item.metric] if len(items) > 1 else []
            sides = [item.base, *([item.experiment] if item.experiment else [])]
            for side in sides:
                rows.append((*where, side.name, side.estimate, side.t, len(side.seeds), None))
            if item.experiment is not None and item.p_t is not None:
                seeds = min(len(side.seeds) for side in sides)
                rows.append(
                    (*where, "difference", item.estimate, item.t, seeds, item.p_t.two_sided)
                )
                if len(items) == 1 and item.p_unpaired_t and item.pairing == "seed number":
                    p = item.p_unpaired_t.two_sided
                    rows.append(("... unpaired", item.estimate, item.unpaired_t, seeds, p))
        level = f"{items[0].confidence:.0%} t interval"
        score = metric_name(items[0].metric) if len(items) == 1 else "score"
        columns = ["", score, level, "seeds", "p (t)"]
        if len(items) > 1:
            columns.insert(0, "task")
        if all(row[-1] is None for row in rows):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        formats = {"p (t)": "p"} if "p (t)" in columns else {}
        units = {score_format(item.metric) for item in items}
        formats |= dict.fromkeys((score, level), units.pop() if len(units) == 1 else "")
        return Table(columns, rows, formats)

    def _texts(self) -> tuple[list[str], list[str]]:
        """Returns the finding and short answers (of several tasks, those of their mean), and notes."""
        last = self.comparisons_shown()[-1]
        return [finding(last), *short_answers_in_words(last)], [
            f"Note: {note}" for note in warnings(last)
        ]

    def __str__(self) -> str:
        """Returns the finding in words, three short answers, a small table, and notes."""
        words, notes = self._texts()
        return "\n\n".join([*words, self.table().markdown().rstrip("\n"), *notes])

    def __repr__(self) -> str:
        """Returns the result's type and estimates; `print` shows the finding."""
        found = [
            f"{item.name or item.metric}: {item.estimate:.4g} ({item.t.low:.4g} to {item.t.high:.4g})"
            for item in self.comparisons_shown()
        ]
        return f"<{type(self).__name__} {'; '.join(found)}>"

    def _repr_html_(self) -> str:
        """Returns the same as `print`, as HTML for notebooks."""
        words, notes = (
            [f"<p>{html.escape(text)}</p>" for text in found] for found in self._texts()
        )
        return "\n".join([*words, self.table().html(), *notes])

    def latex(self) -> str:
        """Returns the table in LaTeX, with rules of the booktabs package."""
        return self.table().latex()

    def methods(self) -> str:
        """Returns the paragraph on methods for a paper, with references."""
        return methods(self.comparisons_shown())

    def plot(self) -> Figure:
        """Draws the difference with its intervals, or a row for each of several comparisons."""
        items = self.comparisons_shown()
        if len(items) == 1:
            return bootstrap_figure(items[0])
        return forest_figure({item.name: item for item in items})

    def to_frame(self) -> pandas.DataFrame:
        """Returns a data frame with a row per comparison and a column for every single number."""
        import pandas

        return pandas.DataFrame([flat_values(item.to_dict()) for item in self.comparisons_shown()])


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison(ComparisonResult, Readable):
    """The estimated difference experiment - base, or one procedure's score (`single`), with tests.

    `print(result)` gives the finding in words and a small table; `to_frame()`, `to_dict()` (for JSON),
    `latex()`, `plot()` and `methods()` (a paragraph for a paper) give the rest. Its attributes are those
    of `stats.results.comparison.ComparisonResult`.

    Example:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> rows, dims = [[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]], ("pretrain_seed", "example")
      >>> right = DataArray(rows, {"pretrain_seed": [0, 1, 2]}, dims)
      >>> labels = DataArray([1, 1, 1, 1], dims="example")
      >>> result = stats.compare(right, None, "accuracy", "single", labels=labels)
      >>> round(result.estimate, 3), result.base.seeds, result.p_t
      (0.667, (0, 1, 2), None)
      >>> print(result)
      Across 3 seeds (3 runs) and 4 examples, accuracy of base is 66.67 % (95 % CI 17.39 to 95.00 %).
      <BLANKLINE>
      |      | accuracy (%) | 95% t interval (%) | seeds |
      |------|-------------:|-------------------:|------:|
      | base | 66.67        | 17.39 to 95.00     | 3     |
    """
