"""The base class of answers to further questions about a comparison.

Each answer is a file of `stats/answers` with its numbers, sentences, table and figure. Terminal, page, JSON
and CSV loop over `answers.listed.ANSWERS`.
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
      key: key of its numbers in JSON, and prefix of its columns in CSV.
      parameter: setting that asks the question, such as `margin`.
      replaces: whether `comparison` replaces the original comparison.
      occasion: addition to the sentence on the rate of such studies, such as " at this look".
      list_column: column in the list of comparisons: heading, cell without an answer, legend; empty for no
        column.
      of_means: whether it also applies to a mean over tasks.
      no_ranking: reason why this question excludes a ranking of arms; empty if it does not.
      comparison: comparison that it is shown with.
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
          answers: (answer, corrected p of its comparison) pairs.
        """
        return [answer for answer, _ in answers]

    @property
    def clear(self) -> bool | None:
        """Returns whether the comparison is clear, if the answer decides that; None: its p decides."""
        return None

    @property
    def claims(self) -> bool:
        """Returns whether it shows something beyond the comparison."""
        return False

    def record(self) -> Any:
        """Returns its numbers in types that JSON has."""
        return self.to_dict()

    def columns(self) -> dict[str, Any]:
        """Returns the scalars of its record, for CSV."""
        values = flat_values({self.key: self.record()})
        return {name: value for name, value in values.items() if not isinstance(value, list)}

    def list_cell(self) -> str:
        """Returns its cell in `list_column`."""
        return ""

    def sentences(self) -> list[str]:
        """Returns its sentences, which follow the finding."""
        return []

    def summary(self) -> list[str]:
        """Returns its sentences for a short summary of many comparisons."""
        return []

    def more_needed(self) -> list[str]:
        """Returns sentences on the effect of more seeds or examples."""
        return []

    def warnings(self) -> list[str]:
        """Returns warnings for readers."""
        return []

    def methods(self) -> tuple[list[str], list[str]]:
        """Returns sentences for the methods paragraph, and their references."""
        return [], []

    def heading(self) -> str:
        """Returns the heading of its table."""
        return self.key

    def table(self) -> Table | None:
        """Returns its table."""
        return None

    def figure(self) -> ReportSection | None:
        """Returns its figure."""
        return None

    def plot(self, ax: Axes | None = None) -> Any:
        """Draws its figure, or a one-panel figure into `ax`, which it returns; None without a figure."""
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
        """Returns the printed text as HTML for notebooks."""
        texts, table = self._parts()
        shown = [] if table is None else [table.html()]
        return "\n".join([*(f"<p>{html.escape(text)}</p>" for text in texts if text), *shown])


def drawn(draw: Callable[[], Figure], ax: Axes | None) -> Figure | Axes:
    """Returns the figure that a function draws, or the axes that it drew into."""
    if ax is None:
        return draw()
    with drawn_into(ax):
        draw()
    return ax


def finished(result: Any) -> ComparisonResult:
    """Returns a comparison, or the comparison of an answer; refuses other data."""
    if isinstance(result, FurtherAnswer):
        return result.comparison
    if not isinstance(result, ComparisonResult):
        raise DataError(
            f"found {type(result).__name__}, expected a finished comparison; give stats.compare(base, "
            "experiment), or one of the comparisons of several tasks"
        )
    return result
