"""Results that print themselves: in words, as tables, figures, LaTeX, JSON and a paragraph for a paper."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from multiberts.stats.intervals import Interval
from multiberts.stats.presentation.figures import bootstrap_figure, forest_figure
from multiberts.stats.presentation.metric_names import metric_name, score_format
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.presentation.wording import (
    finding,
    methods,
    short_answers_in_words,
    warnings,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from multiberts.stats.bootstrap.conclusion import Comparison


class EqualByContent:
    """Makes dataclasses that hold arrays comparable and hashable: equal where every number is."""

    def _content(self) -> tuple:
        return type(self), *(
            _hashable(getattr(self, f.name)) for f in dataclasses.fields(cast("Any", self))
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EqualByContent):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())


class Readable(EqualByContent):
    """What every result offers to readers."""

    def comparisons_shown(self) -> Sequence[Comparison]:
        """Returns the comparisons of the result, in the order in which readers see them."""
        return [cast("Comparison", self)]

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

    def to_dict(self) -> dict[str, Any]:
        """Returns every number but the bootstrap samples, as JSON can hold them.

        Intervals have the keys low and high; an infinite end, which JSON lacks, is None.
        """
        names = [field.name for field in dataclasses.fields(cast("Any", self))]
        names += ["answers"] * hasattr(self, "answers")
        return {name: _plain(getattr(self, name)) for name in names if name != "samples"}

    def to_frame(self) -> pandas.DataFrame:
        """Returns a data frame with a row per comparison and a column for every single number."""
        import pandas

        return pandas.DataFrame([flat_values(item.to_dict()) for item in self.comparisons_shown()])


def _plain(value: Any) -> Any:
    """Converts a value to what JSON can hold."""
    if isinstance(value, Readable):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flat_values(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Joins the names of nested values: `base_estimate`, `t_low`; lists are left as they are."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flat_values(value, f"{prefix}{name}_")
        else:
            flat[prefix + name] = value
    return flat


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in value.items())
    if dataclasses.is_dataclass(value):
        return tuple(_hashable(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple | list) and not isinstance(value, Interval):
        return tuple(_hashable(part) for part in value)
    return value
