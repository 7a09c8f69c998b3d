"""Parts of all results: equality by content, JSON, printing by name; and the summary of one arm."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.errors import nearest
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import percentile_interval
from multiberts.stats.intervals import ConfidenceInterval, Interval
from multiberts.stats.public_names import printing, public

if TYPE_CHECKING:
    from pathlib import Path

    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Result = TypeVar("_Result", bound="EqualByContent")


class EqualByContent:
    """Makes dataclasses with arrays comparable by content, hashable and convertible to JSON.

    Their numbers are the fields (except those with `compare=False`) and the cached properties.
    """

    # Fields that stay behind when a result is pickled: they hold functions.
    _not_pickled: ClassVar[tuple[str, ...]] = ()

    if not TYPE_CHECKING:  # otherwise mypy and editors accept any attribute

        def __getattr__(self, name: str) -> Any:
            line = f"{type(self).__name__} has no attribute {name}"
            if not name.startswith("_"):  # pickle, copy and notebooks ask for these
                names = [each for each in dir(self) if not each.startswith("_")]
                line += f"; {nearest(name, names, 'to_dict() has every number')}"
            raise AttributeError(line)

    @classmethod
    def _numbers(cls) -> list[str]:
        """Returns the names of the numbers: fields first, then what is computed, as the class lists them."""
        names = [each.name for each in dataclasses.fields(cast("Any", cls)) if each.compare]
        for base in reversed(cls.__mro__):
            computed = [name for name, it in vars(base).items() if isinstance(it, cached_property)]
            names += [name for name in computed if not name.startswith("_")]
        return names

    def _content(self) -> tuple:
        return type(self), *(_hashable(getattr(self, name)) for name in self._numbers())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EqualByContent):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state with every number computed, because the data stay behind."""
        if not self._not_pickled:
            return self.__dict__
        numbers = {name: getattr(self, name) for name in self._numbers()}
        return self.__dict__ | numbers | dict.fromkeys(self._not_pickled)

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers except the bootstrap samples, in JSON types.

        Intervals have the keys low, high, level and method; infinite limits become None.
        """
        names = [name for name in self._numbers() if name != "samples"]
        return {name: plain_value(getattr(self, name)) for name in names}


def with_values(result: _Result, **values: Any) -> _Result:
    """Returns a copy with some numbers given; those not computed yet are still computed from the data."""
    copied = object.__new__(type(result))
    vars(copied).update(vars(result) | values)
    return copied


def plain_value(value: Any) -> Any:
    """Converts a value to JSON types."""
    if isinstance(value, EqualByContent):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {
            each.name: plain_value(getattr(value, each.name)) for each in dataclasses.fields(value)
        }
    if isinstance(value, ConfidenceInterval):
        value = {"low": value.low, "high": value.high, "level": value.level, "method": value.method}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain_value(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain_value(part) for name, part in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [plain_value(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flat_values(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Joins the names of nested values: `base_estimate`, `ci_low`; lists are unchanged."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flat_values(value, f"{prefix}{name}_".replace(" ", "_"))
        else:
            flat[prefix + name] = value
    return flat


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in value.items())
    if dataclasses.is_dataclass(value):
        fields = [each for each in dataclasses.fields(value) if each.compare]
        return tuple(_hashable(getattr(value, each.name)) for each in fields)
    if isinstance(value, tuple | list) and not isinstance(value, Interval):
        return tuple(_hashable(part) for part in value)
    return value


def no_truth(result: Any) -> bool:
    """Refuses the truth of a result, which would be true whatever was found."""
    parts = "comparison", "macro_average", "differences"
    part = next((each for each in parts if hasattr(result, each)), "")
    where = f"result.{part}{'[0]' * (part == 'differences')}." if part else "result."
    where = "result." if "p_value" in result._numbers() else where
    line = f"found {type(result).__name__} as a condition, expected a number or a bool"
    raise DataError(f"{line}; ask {where}p_value or {where}ci")


class PrintedTable(Protocol):
    """A table for readers."""

    def markdown(self) -> str: ...

    def latex(self) -> str: ...

    def csv(self) -> str: ...

    def html(self) -> str: ...


class Readable:
    """Methods of results that make output for readers.

    What prints is in `multiberts.report.printing`, which each method calls by name.
    """

    __bool__ = no_truth

    def comparisons_shown(self) -> Sequence[Any]:
        """Returns the `Comparison`s of the result in display order."""
        return [self]

    @property
    def _printing(self) -> Any:
        return printing()

    def table(self) -> PrintedTable:
        """Returns estimates with intervals and the recommended p, first of the arms, then of the difference.

        Of many arms it has scores, intervals, ranks and groups. Shares are shown in per cent unless the table
        has other metrics; `csv()` writes them from 0 to 1.
        """
        return cast("PrintedTable", self._printing.table(self))

    def __str__(self) -> str:
        """Returns the finding in words, short answers, a small table and notes."""
        words, notes = self._printing.texts(self)
        return "\n\n".join([*words, self.table().markdown().rstrip("\n"), *notes])

    def __repr__(self) -> str:
        """Returns the result's type and estimates; `print` shows the finding."""
        lines = [
            f"{item.name or item.metric}: {item.estimate:.4g} ({item.ci.low:.4g} to {item.ci.high:.4g})"
            for item in self.comparisons_shown()
        ]
        return f"<{type(self).__name__} {'; '.join(lines)}>"

    def _repr_html_(self) -> str:
        """Returns the printed text as HTML for notebooks."""
        words, notes = (
            [f"<p>{html.escape(text)}</p>" for text in part] for part in self._printing.texts(self)
        )
        return "\n".join([*words, self.table().html(), *notes])

    def latex(self) -> str:
        """Returns the table in LaTeX with booktabs rules."""
        return self.table().latex()

    def methods(self) -> str:
        """Returns the paragraph on methods for a paper, with references."""
        return str(self._printing.methods(self))

    def plot(self, ax: Axes | None = None) -> Figure | Axes:
        """Draws the arms and their difference with its intervals, one row per comparison, or ranks.

        Args:
          ax: Matplotlib axes to draw into, which are returned; for two arms only the difference is drawn.
            A ranking has two panels and takes none.

        Examples:
          >>> from matplotlib.figure import Figure
          >>> from multiberts import stats
          >>> result = stats.compare([[1, 0, 1], [1, 1, 0]], [[1, 1, 1], [0, 1, 1]])
          >>> result.plot(ax=Figure().subplots()).get_xlabel()
          'mean (points): experiment - base'
        """
        return cast("Figure | Axes", self._printing.plot(self, ax))

    def to_html(self, path: str | Path) -> None:
        """Writes one HTML file with the answer, figures and all numbers, as `compare --html` does."""
        public("write_html")(self, path)

    def to_frame(self) -> pandas.DataFrame:
        """Returns a data frame with one row per comparison and one column per number."""
        import pandas

        return pandas.DataFrame([flat_values(item.to_dict()) for item in self.comparisons_shown()])


def percentile_interval_of(
    samples: NDArray[np.float64], confidence_level: float
) -> ConfidenceInterval:
    ends = percentile_interval(samples, confidence_level)
    return ConfidenceInterval(*ends, confidence_level, "percentile")


def seed_names(seeds: Sequence) -> str:
    """Returns the names of seeds, such as `seeds 3, 5`."""
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"


@dataclass(frozen=True, eq=False)
class ArmSummary(EqualByContent):
    """One arm of a comparison.

    Attributes:
      estimate: mean over seeds of the mean over runs of the score on all examples.
      ci: recommended interval for the drawn units of the comparison.
      seeds: pre-training seeds [R].
      seed_scores: score of each seed, averaged over its runs [R].
      num_runs: total number of runs; for a mean over tasks, the number for one task.
      num_clusters: number of clusters of examples, or None if examples are drawn one by one.
      cluster_name: name of the clusters, or empty.
      left_out: seeds left out by pairing, because the other arm lacks them.
      failed_seeds: seeds whose training seems to have failed, see `failed_seeds`.
      failure_rate: Clopper and Pearson's interval of the failure rate of seeds. None if no seed failed and
        nothing is known about the rate, because a failed seed could not be recognised (`failures_show`),
        every seed is constant, or seeds are not drawn.
      constant_seeds: seeds whose runs all give every example the same answer: one class (one value for
        correlations and the AUC), or one score below 1 if the data are scores. They are also failed seeds if
        other seeds are not constant.
      standard_error, df: standard error of the estimate and its degrees of freedom, as in `Comparison`.
      example_error: standard error from examples alone, with the seeds held fixed.
      num_scored: effective number of examples (or clusters) near the bounds: all for accuracy, the
        positives for recall (`evaluate.metrics.column_metric.Metric.scored`).
      num_missing: number of missing predictions, left out of the scores of their runs.
      repeats: whether the seeds are repeated evaluations of one model, ordered by time.
      draw: returns the bootstrap scores [replicates]; None if nothing is drawn.
    """

    _not_pickled = ("draw",)

    name: str
    estimate: float
    ci: ConfidenceInterval
    seeds: tuple
    seed_scores: NDArray[np.float64]
    num_runs: int
    num_examples: int
    num_clusters: int | None = None
    cluster_name: str = ""
    left_out: tuple = ()
    failed_seeds: tuple = ()
    failure_rate: Interval | None = None
    constant_seeds: tuple = ()
    standard_error: float = 0.0
    df: float = math.inf
    example_error: float = 0.0
    num_scored: float = math.inf
    num_missing: int = 0
    repeats: bool = False
    draw: Callable[[], NDArray[np.float64]] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def intervals(self) -> dict[str, ConfidenceInterval]:
        """Other intervals by name: `percentile` of the bootstrap, which is drawn when it is asked for."""
        if self.draw is None:
            return {}
        return {"percentile": percentile_interval_of(self.draw(), self.ci.level)}

    @classmethod
    def _numbers(cls) -> list[str]:
        names = super()._numbers()
        names.insert(names.index("ci") + 1, names.pop(names.index("intervals")))
        return names

    @property
    def num_units(self) -> int:
        return self.num_clusters or self.num_examples


@dataclass(frozen=True)
class WithoutFailed:
    """The result without failed seeds; see `Comparison`."""

    estimate: float
    ci: ConfidenceInterval
    p_value: float


@dataclass(frozen=True)
class ArmDifference:
    """The difference between two of many arms.

    Attributes:
      estimate: score of the experiment minus that of the base.
      standard_error: standard error from variances of seeds moderated by those of all arms.
      ci: simultaneous interval: its level is the probability that all intervals of the family contain the
        truth.
      p_value: two-sided p, corrected like the interval (Bonferroni); below 1 - level if the interval excludes
        0.
      p_values: other two-sided p: `uncorrected`, and `holm`, which is at most `p_value` and may be
        significant if the interval is not.
    """

    base: str
    experiment: str
    estimate: float
    standard_error: float
    df: float
    ci: ConfidenceInterval
    p_value: float
    p_values: dict[str, float]

    @property
    def clear(self) -> bool:
        """Returns whether the simultaneous interval excludes 0."""
        return self.ci.low > 0 or self.ci.high < 0


@dataclass(frozen=True, eq=False)
class RankedArm(ArmSummary):
    """One of many arms with its score, interval and rank.

    Attributes:
      rank: 1 plus the number of arms with a better score.
      rank_low, rank_high: simultaneous interval of the true rank, from 1 plus the number of clearly better
        arms to the number of arms that are not clearly worse.
      groups: letters of the arm's groups; two arms differ clearly if they share none. Empty if all arms are
        compared with a reference arm.
    """

    rank: int = 1
    rank_low: int = 1
    rank_high: int = 1
    groups: tuple[str, ...] = ()
