"""Results that print themselves: in words, as tables, figures, LaTeX, JSON and a paragraph for a paper."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from multiberts.stats.formats import decimals_for, with_decimals
from multiberts.stats.guessed import KnowsGuesses
from multiberts.stats.metric_names import metric_name, score_format
from multiberts.stats.presentation.answer import drawn
from multiberts.stats.presentation.figures import bootstrap_figure, forest_figure, sources_figure
from multiberts.stats.presentation.planning import needs_in_words
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.presentation.words import arms_of, finding, method_names, methods, warnings
from multiberts.stats.public_names import public
from multiberts.stats.results import ComparisonResult, flat_values

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Readable(KnowsGuesses):
    """Methods that every result has for readers."""

    def comparisons_shown(self) -> Sequence[ComparisonResult]:
        """Returns the comparisons of the result, in the order in which readers see them."""
        return [cast("ComparisonResult", self)]

    def table(self) -> Table:
        """Returns estimates with intervals, and the recommended p: arms, then the difference.

        Readers see shares in per cent, unless there are other metrics beside them; `csv()` holds them
        as they are, from 0 to 1.
        """
        rows: list[tuple] = []
        items = self.comparisons_shown()
        for item in items:
            where = [item.name or item.metric] if len(items) > 1 else []
            arms = arms_of(item)
            for arm in arms:
                rows.append((*where, arm.name, arm.estimate, arm.ci, len(arm.seeds), None))
            if item.experiment is not None:
                seeds = min(len(arm.seeds) for arm in arms)
                rows.append((*where, "difference", item.estimate, item.ci, seeds, item.p_value))
                is_by_number = "unpaired" in item.p_values and item.pairing == "seed number"
                if len(items) == 1 and is_by_number:
                    interval, p = item.intervals["unpaired"], item.p_values["unpaired"].two_sided
                    rows.append(("... unpaired", item.estimate, interval, seeds, p))
        intervals = [row[-3] for row in rows]
        tests = [item.ci for item in items if item.experiment is not None]
        level = f"{items[0].confidence_level:.0%} CI ({method_names(intervals)})"
        score = metric_name(items[0].metric) if len(items) == 1 else "score"
        p_value = f"p ({method_names(tests)})"
        columns = ["", score, level, "seeds", p_value]
        if len(items) > 1:
            columns.insert(0, "task")
        if all(row[-1] is None for row in rows):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        formats = {p_value: "p"} if p_value in columns else {}
        units = {score_format(item.metric) for item in items}
        unit = units.pop() if len(units) == 1 else ""
        shown = with_decimals(unit, decimals_for(items[-1].ci, unit))
        formats |= dict.fromkeys((score, level), shown)
        return Table(columns, rows, formats)

    def _texts(self) -> tuple[list[str], list[str]]:
        """Returns the finding and short answers (of several tasks, those of their mean), and notes."""
        last = self.comparisons_shown()[-1]
        return [finding(last), *needs_in_words(last)], [f"Note: {note}" for note in warnings(last)]

    def __str__(self) -> str:
        """Returns the finding in words, three short answers, a small table, and notes."""
        words, notes = self._texts()
        return "\n\n".join([*words, self.table().markdown().rstrip("\n"), *notes])

    def __repr__(self) -> str:
        """Returns the result's type and estimates; `print` shows the finding."""
        lines = [
            f"{item.name or item.metric}: {item.estimate:.4g} ({item.ci.low:.4g} to {item.ci.high:.4g})"
            for item in self.comparisons_shown()
        ]
        return f"<{type(self).__name__} {'; '.join(lines)}>"

    def _repr_html_(self) -> str:
        """Returns the same as `print`, as HTML for notebooks."""
        words, notes = ([f"<p>{html.escape(text)}</p>" for text in part] for part in self._texts())
        return "\n".join([*words, self.table().html(), *notes])

    def latex(self) -> str:
        """Returns the table in LaTeX, with rules of the booktabs package."""
        return self.table().latex()

    def methods(self) -> str:
        """Returns the paragraph on methods for a paper, with references."""
        return methods(self.comparisons_shown())

    def plot(self, ax: Axes | None = None) -> Figure | Axes:
        """Draws the arms and their difference with its intervals, or a row for each of several comparisons.

        Args:
          ax: Matplotlib axes to draw into, which are returned; of two arms, the difference alone.

        Example:
          >>> from matplotlib.figure import Figure
          >>> from multiberts import stats
          >>> result = stats.compare([[1, 0, 1], [1, 1, 0]], [[1, 1, 1], [0, 1, 1]])
          >>> result.plot(ax=Figure().subplots()).get_xlabel()
          'mean (points): experiment - base'
        """
        items = self.comparisons_shown()
        if len(items) > 1 or "percentile" not in items[0].intervals:
            return drawn(lambda: forest_figure({item.name: item for item in items}), ax)
        if ax is None and items[0].experiment is not None:
            return bootstrap_figure(items[0])
        return drawn(lambda: sources_figure(items), ax)

    def to_html(self, path: str | Path) -> None:
        """Writes one HTML file with the answer, its figures and all numbers, as `compare --html` does."""
        public("write_html")(self, path)  # it lies above, as all pages do

    def to_frame(self) -> pandas.DataFrame:
        """Returns a data frame with a row per comparison and a column for every single number."""
        import pandas

        return pandas.DataFrame([flat_values(item.to_dict()) for item in self.comparisons_shown()])


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison(ComparisonResult, Readable):
    """The estimated difference experiment - base, or one arm's score (`single`), with tests.

    `print(result)` gives the finding in words and a small table; `to_frame()`, `to_dict()` (for JSON),
    `latex()`, `plot()`, `to_html(path)` and `methods()` (a paragraph for a paper) give the rest.

    Attributes:
      name, evaluation_set, metric: what is compared, on what, by which score.
      design: `paired` (the same seeds, drawn together), `unpaired` (own seeds),
        `fixed_baseline` (the base is exactly that set of runs, such as one published checkpoint)
        or `single` (base alone).
      resample: what the intervals generalise to: `both` new seeds and new examples, or one of them.
      base, experiment: the two arms; `experiment` is None in a `single` design.
      num_examples: examples of both arms.
      estimate: the plug-in estimate: the difference of the two arms' scores; the base's score in a
        `single` design.
      bootstrap_mean: mean of its bootstrap samples.
      bias: the bootstrap's estimate of the bias of `estimate`: bootstrap_mean - estimate.
      ci: the recommended interval, with its level and method: estimate -+ t x standard error, within the
        metric's bounds. For one arm it is computed on Fisher's z (correlations) or, near the
        bounds, is Wilson's score interval; where all answers are right, or wrong, it
        is Clopper and Pearson's on the examples. Where so few examples are wrong in both arms of a
        difference, or so few differ between paired arms, that it is far from normal, it comes from
        score intervals (Newcombe). It reaches from one end of the range to the other where nothing
        varies and nothing follows from that.
      p_value: the recommended p, two-sided, of the same interval; None in a `single` design.
      statistic: estimate / standard_error, Student's t where `ci.method` is `t`; None without spread.
      df: degrees of freedom of the t, Satterthwaite's with mean squares at the upper end of their range.
      standard_error: of `estimate`, the root of an unbiased variance of the crossed design.
      intervals: the others, by name: `percentile`, the published one, too narrow with few seeds; in a
        paired design `unpaired`, what `ci` would be were the seeds unrelated.
      p_values: by name, each with `greater`, `less` and `two_sided`, empty in a `single` design: `t`, the
        recommended; `percentile`, (k + 1) / (B + 1) from the samples; `published`, k / B and at least
        1 / B; `sign flip` of paired seeds or `permutation` of unpaired ones, randomisation tests on
        these examples only, which do not ask whether new examples would agree; in a paired design
        `unpaired`, of that interval.
      bootstrap_standard_error: the exact standard deviation of the bootstrap distribution (of
        its linear part, where the metric is not a mean).
      hedges_g: the difference relative to the spread of seeds; None in a `single` design, and with one seed.
      seed_floor: the smallest one-sided p that the order of the seeds alone can give: 2**-R paired
        or against a fixed baseline, else one over the number of ways to assign the seeds to the
        two arms; None where seeds are not resampled.
      below_seed_floor: whether the difference is significant, seeds carry it (more than half of
        the variance) and the t's p lies under that floor, so that it relies on seeds being normally
        distributed.
      n_resamples, rng: bootstrap replicates, and the number that identifies their draws.
      samples: bootstrap scores [replicates, 2] of (base, experiment), or [replicates, 1].
      degenerate_replicates: replicates where a score was 0/0 and took its defined value.
      pairing: what pairs the seeds of a paired design: `parent` where the data say that runs of one
        seed descend from one checkpoint (by a coordinate `parent`, `procedure` or `lineage` that
        both arms have in common), else `seed number`, which may be chance. None in other designs,
        and where seeds are held fixed.
      without_failed: estimate, `ci` and `p_value` of a difference without the seeds that look as if their
        training had failed (of a paired design, without their pairs); None where there are none, or too
        few others, and in a `single` design.
      notes: what readers must know of the data, such as copies of one run under two seeds.
      over_labels: of a macro average to which answers that no label has add classes, the scores of base and
        experiment over the classes of the labels alone; empty elsewhere.
      tasks: of a mean over tasks, their names; empty elsewhere.
      variance_parts: the mean squares behind the standard error; None where a spread of seeds is borrowed
        (`one_seed`).
      origin: what it was computed from, for `same`, `slices` and other further answers.
      pooled_seeds: whether the seeds of unpaired arms were alike enough for their mean squares to be
        pooled, which gives 2R - 2 degrees of freedom where Welch's formula gives fewer.

    Example:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> rows, dims = [[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]], ("pretrain_seed", "example")
      >>> right = DataArray(rows, {"pretrain_seed": [0, 1, 2]}, dims)
      >>> labels = DataArray([1, 1, 1, 1], dims="example")
      >>> result = stats.compare(right, None, "accuracy", design="single", labels=labels)
      >>> round(result.estimate, 3), result.base.seeds, result.p_value
      (0.667, (0, 1, 2), None)
      >>> print(result)
      Across 3 seeds (3 runs) and 4 examples, accuracy of base is 66.7 % (95 % CI 17.4 to 95.0 %).
      <BLANKLINE>
      |      | accuracy (%) | 95% CI (Wilson) (%) | seeds |
      |------|-------------:|--------------------:|------:|
      | base | 66.7         | 17.4 to 95.0        | 3     |

    See also: `compare`, `ConfidenceInterval`, `PValues`.
    """

    def named(
        self,
        base: str | None = None,
        experiment: str | None = None,
        *,
        name: str | None = None,
        evaluation_set: str | None = None,
    ) -> Self:
        """Returns the result with other names in tables and texts; those that are None stay.

        Args:
          base: of the base.
          experiment: of the experiment.
          name: of the comparison.
          evaluation_set: of the evaluation set.

        Example:
          >>> from multiberts import stats
          >>> result = stats.compare([[1, 0, 1, 1], [1, 1, 1, 0]], design="single")
          >>> result.named("RoBERTa").base.name
          'RoBERTa'
        """
        arms = {"base": self.base, "experiment": self.experiment}
        for role, called in (("base", base), ("experiment", experiment)):
            arm = arms[role]
            if called is not None and arm is not None:
                arms[role] = dataclasses.replace(arm, name=called)
        others = {"name": name, "evaluation_set": evaluation_set}
        others = {key: value for key, value in others.items() if value is not None}
        result = dataclasses.replace(self, **cast("dict[str, Any]", arms | others))
        if self.origin is None or self.origin.spec is None:
            return result
        return dataclasses.replace(result, notes=self.origin.spec.notes(arms_of(result)))
