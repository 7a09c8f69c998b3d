"""The base class of answers to further questions about a comparison.

Each module of `report/answers` has one kind of answer with its numbers, sentences, table and figure.
Terminal, page, JSON and CSV loop over `answers.listed.ANSWERS`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from multiberts.report.presentation.table_writer import Table
from multiberts.runs.figure_style import drawn_into
from multiberts.stats.compare.result import Comparison
from multiberts.stats.errors import DataError
from multiberts.stats.results import EqualByContent, flat_values, no_truth
from multiberts.stats.settings import ComparisonSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from multiberts.report.presentation.sections import ReportSection


@dataclass(frozen=True, eq=False, repr=False)
class FurtherAnswer(EqualByContent):
    """An answer to a further question about a finished comparison.

    Attributes:
      key: key of the answer's numbers in JSON, and prefix of its columns in CSV.
      parameter: setting for the question, such as `margin`.
      replaces: whether `comparison` replaces the original comparison.
      of_means: whether the question also applies to a mean over tasks.
      no_ranking: reason why this question excludes a ranking of arms; empty if it does not.
      comparison: comparison shown with the answer.
    """

    key: ClassVar[str]
    parameter: ClassVar[str]
    replaces: ClassVar[bool] = False
    of_means: ClassVar[bool] = False
    no_ranking: ClassVar[str] = ""

    comparison: Comparison = field(repr=False, compare=False)

    __bool__ = no_truth

    @classmethod
    def settings_for(cls, settings: ComparisonSettings) -> ComparisonSettings:
        """Returns the settings of the question's comparison."""
        return settings

    @classmethod
    def corrected(cls, answers: Sequence[tuple[Self, float | None]]) -> list[Self]:
        """Returns the answers for a list of comparisons, corrected for the length of the list.

        Args:
          answers: pairs of an answer and the corrected p of its comparison.
        """
        return [answer for answer, _ in answers]

    @property
    def claims(self) -> bool:
        """Returns whether the answer shows more than the comparison."""
        return False

    def record(self) -> Any:
        """Returns the answer's numbers in JSON types."""
        return self.to_dict()

    def columns(self) -> dict[str, Any]:
        """Returns the answer's scalars for CSV."""
        values = flat_values({self.key: self.record()})
        return {name: value for name, value in values.items() if not isinstance(value, list)}

    def sentences(self) -> list[str]:
        """Returns the answer's sentences, to be shown after the finding."""
        return []

    def summary(self) -> list[str]:
        """Returns the answer's sentences for a short summary of many comparisons."""
        return []

    def more_needed(self) -> list[str]:
        """Returns sentences on the effect of more seeds or examples."""
        return []

    def methods(self) -> tuple[list[str], list[str]]:
        """Returns sentences for the methods paragraph, and their references."""
        return [], []

    def heading(self) -> str:
        """Returns the heading of the answer's table."""
        return self.key

    def table(self) -> Table | None:
        """Returns the answer's table."""
        return None

    def figure(self) -> ReportSection | None:
        """Returns the answer's figure."""
        return None

    def plot(self, ax: Axes | None = None) -> Any:
        """Draws the figure, or a one-panel figure into `ax`, and returns it; None without a figure."""
        section = self.figure()
        return None if section is None else drawn(cast("Callable[[], Figure]", section.make), ax)

    def _text(self) -> str:
        return " ".join([*self.sentences(), *self.more_needed()])

    def __str__(self) -> str:
        """Returns the answer's sentences and table."""
        table = self.table()
        shown = "" if table is None else table.markdown().rstrip()
        return "\n\n".join(filter(None, (self._text(), shown)))

    def __repr__(self) -> str:
        """Returns the type and the names of the arms; `print` shows the answer."""
        names = [self.comparison.name, self.comparison.metric]
        return f"<{type(self).__name__} {': '.join(filter(None, names))}>"

    def _repr_html_(self) -> str:
        """Returns the printed text as HTML for notebooks."""
        text, table = self._text(), self.table()
        shown = "" if table is None else table.html()
        return "\n".join(filter(None, (text and f"<p>{html.escape(text)}</p>", shown)))


def drawn(draw: Callable[[], Figure], ax: Axes | None) -> Figure | Axes:
    """Returns the figure or axes drawn by a function."""
    if ax is None:
        return draw()
    if not hasattr(ax, "figure"):
        raise DataError(
            f"found ax={ax!r}, expected Matplotlib axes; to write a file, result.plot().savefig({str(ax)!r})"
        )
    with drawn_into(ax):
        draw()
    return ax


def finished(result: Any) -> Comparison:
    """Returns a comparison, or the comparison of an answer; refuses other objects."""
    if isinstance(result, FurtherAnswer):
        return result.comparison
    if not isinstance(result, Comparison):
        raise DataError(
            f"found {type(result).__name__}, expected a finished comparison; give stats.compare(base, "
            "experiment), or one of the comparisons of several tasks"
        )
    return result
