"""The base of answers to further questions about a comparison.

An answer is a file of `stats/answers`: its numbers, its sentences, its table and its figure. Terminal, page,
JSON and CSV loop over the answers of `answers.listed.ANSWERS` and know none of them by name.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from multiberts.runs.figure_style import drawn_into
from multiberts.stats.errors import DataError
from multiberts.stats.guessed import KnowsGuesses
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.results import ComparisonResult, EqualByContent, flat_values
from multiberts.stats.settings import ComparisonSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from multiberts.stats.presentation.sections import ReportSection


@dataclass(frozen=True, eq=False, repr=False)
class FurtherAnswer(EqualByContent, KnowsGuesses):
    """An answer to a further question about a finished comparison.

    Attributes:
      key: of its numbers in JSON; the names of its columns in CSV begin with it.
      parameter: the setting that asks the question, such as `margin`.
      replaces: whether `comparison` is another than that which was asked about.
      occasion: of a sentence that says how often studies come out so, such as " at this look".
      list_column: heading of a column in the list of comparisons, what it holds where this was not asked,
        and what the legend says of it; empty where there is none.
      of_means: whether it is asked of a mean over tasks, too.
      no_ranking: why three arms or more are not ranked where this is asked; empty where they are.
      comparison: that readers see it with.
    """

    key: ClassVar[str]
    parameter: ClassVar[str]
    replaces: ClassVar[bool] = False
    occasion: ClassVar[str] = ""
    list_column: ClassVar[tuple[str, str, str]] = ("", "", "")
    of_means: ClassVar[bool] = False
    no_ranking: ClassVar[str] = ""

    comparison: ComparisonResult = field(repr=False, compare=False)

    @classmethod
    def settings_for(cls, settings: ComparisonSettings) -> ComparisonSettings:
        """Returns the settings of the comparison that the question is about."""
        return settings

    @classmethod
    def corrected(cls, answers: Sequence[tuple[Self, float | None]]) -> list[Self]:
        """Returns the answers to a list of comparisons, corrected for its length.

        Args:
          answers: each with the corrected p of its comparison.
        """
        return [answer for answer, _ in answers]

    @property
    def clear(self) -> bool | None:
        """Returns whether the comparison is clear where the answer decides that; None: its p does."""
        return None

    @property
    def claims(self) -> bool:
        """Returns whether it shows something that the comparison does not."""
        return False

    def record(self) -> Any:
        """Returns its numbers as JSON can hold them."""
        return self.to_dict()

    def columns(self) -> dict[str, Any]:
        """Returns the single numbers and texts of its record, for CSV."""
        values = flat_values({self.key: self.record()})
        return {name: value for name, value in values.items() if not isinstance(value, list)}

    def list_cell(self) -> str:
        """Returns its cell in `list_column`."""
        return ""

    def sentences(self) -> list[str]:
        """Returns what it says after the finding."""
        return []

    def summary(self) -> list[str]:
        """Returns those of them that belong to a short answer to many comparisons, too."""
        return []

    def more_needed(self) -> list[str]:
        """Returns what more seeds or examples would do for it."""
        return []

    def warnings(self) -> list[str]:
        """Returns what a reader must know before believing it."""
        return []

    def methods(self) -> tuple[list[str], list[str]]:
        """Returns sentences for the paragraph on methods, and their references."""
        return [], []

    def heading(self) -> str:
        """Returns what stands above its table."""
        return self.key

    def table(self) -> Table | None:
        """Returns its table."""
        return None

    def figure(self) -> ReportSection | None:
        """Returns its figure."""
        return None

    def plot(self, ax: Axes | None = None) -> Any:
        """Draws its figure, or a figure of one panel into given axes, which it returns; None without one."""
        section = self.figure()
        return None if section is None else drawn(cast("Callable[[], Figure]", section.make), ax)

    def _parts(self) -> tuple[list[str], Table | None]:
        notes = [f"Note: {text}" for text in self.warnings()]
        return [" ".join([*self.sentences(), *self.more_needed()]), *notes], self.table()

    def __str__(self) -> str:
        """Returns its sentences and its table."""
        texts, table = self._parts()
        shown = [] if table is None else [table.markdown().rstrip()]
        return "\n\n".join(text for text in [texts[0], *shown, *texts[1:]] if text)

    def __repr__(self) -> str:
        """Returns the type and what was compared; `print` shows the answer."""
        names = [self.comparison.name, self.comparison.metric]
        return f"<{type(self).__name__} {': '.join(filter(None, names))}>"

    def _repr_html_(self) -> str:
        """Returns the same as `print`, as HTML for notebooks."""
        texts, table = self._parts()
        shown = [] if table is None else [table.html()]
        return "\n".join([*(f"<p>{html.escape(text)}</p>" for text in texts if text), *shown])


def drawn(draw: Callable[[], Figure], ax: Axes | None) -> Figure | Axes:
    """Returns the figure that a function draws, or the axes into which it drew."""
    if ax is None:
        return draw()
    with drawn_into(ax):
        draw()
    return ax


def finished(result: Any) -> ComparisonResult:
    """Returns the comparison that a question is about: itself, or that of an answer; refuses other data."""
    if isinstance(result, FurtherAnswer):
        return result.comparison
    if not isinstance(result, ComparisonResult):
        raise DataError(
            f"found {type(result).__name__}, expected a finished comparison; give stats.compare(base, "
            "experiment), or one of the comparisons of several tasks"
        )
    return result
