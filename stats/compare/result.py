"""Methods of results: words, tables, figures, LaTeX, JSON and a methods paragraph."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from multiberts.stats.formats import decimals_for, with_decimals
from multiberts.stats.metric_names import metric_name, score_format
from multiberts.stats.presentation.answer import drawn
from multiberts.stats.presentation.figures import bootstrap_figure, forest_figure, sources_figure
from multiberts.stats.presentation.methods_paragraph import method_names, methods
from multiberts.stats.presentation.planning import needs_in_words
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.presentation.words import arms_of, finding, warnings
from multiberts.stats.public_names import public
from multiberts.stats.results import ComparisonResult, flat_values

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Readable:
    """Methods of all results that make output for readers."""

    def comparisons_shown(self) -> Sequence[ComparisonResult]:
        """Returns the comparisons of the result in display order."""
        return [cast("ComparisonResult", self)]

    def table(self) -> Table:
        """Returns estimates with intervals and the recommended p, first of the arms, then of the difference.

        Shares are shown in per cent unless the table has other metrics; `csv()` writes them from 0 to 1.
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
        """Returns the finding with short answers, and notes; for several tasks, those of their mean."""
        last = self.comparisons_shown()[-1]
        return [finding(last), *needs_in_words(last)], [f"Note: {note}" for note in warnings(last)]

    def __str__(self) -> str:
        """Returns the finding in words, short answers, a small table and notes."""
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
        """Returns the printed text as HTML for notebooks."""
        words, notes = ([f"<p>{html.escape(text)}</p>" for text in part] for part in self._texts())
        return "\n".join([*words, self.table().html(), *notes])

    def latex(self) -> str:
        """Returns the table in LaTeX with booktabs rules."""
        return self.table().latex()

    def methods(self) -> str:
        """Returns the paragraph on methods for a paper, with references."""
        return methods(self.comparisons_shown())

    def plot(self, ax: Axes | None = None) -> Figure | Axes:
        """Draws the arms and their difference with its intervals, or one row per comparison.

        Args:
          ax: Matplotlib axes to draw into, which are returned; for two arms only the difference is drawn.

        Examples:
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
        """Writes one HTML file with the answer, figures and all numbers, as `compare --html` does."""
        public("write_html")(self, path)  # by name, as pages are in a higher layer

    def to_frame(self) -> pandas.DataFrame:
        """Returns a data frame with one row per comparison and one column per number."""
        import pandas

        return pandas.DataFrame([flat_values(item.to_dict()) for item in self.comparisons_shown()])


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison(ComparisonResult, Readable):
    """The estimated difference experiment - base, or one arm's score (`single`), with tests.

    `print(result)` gives the finding in words and a small table; `to_frame()`, `to_dict()` (for JSON),
    `latex()`, `plot()`, `to_html(path)` and `methods()` (a paragraph for a paper) give the rest.

    Attributes:
      name, evaluation_set, metric: names of the comparison, the evaluation set and the metric.
      design: `paired` (the same seeds, drawn together), `unpaired` (own seeds),
        `fixed_baseline` (the base is exactly that set of runs, such as one published checkpoint)
        or `single` (base alone).
      resample: units that the intervals generalise to: `both` new seeds and new examples, or one of them.
      base, experiment: the two arms; `experiment` is None in a `single` design.
      num_examples: number of examples, the same in both arms.
      estimate: difference of the two arms' scores; the base's score in a `single` design.
      bootstrap_mean: mean of the bootstrap samples of `estimate`.
      bias: bootstrap estimate of the bias: bootstrap_mean - estimate.
      ci: recommended interval with level and method: estimate -+ t x standard error, within the metric's
        bounds. For one arm: on Fisher's z for correlations; Wilson's score interval near the bounds;
        Clopper and Pearson's if all answers are right or all wrong. For a difference: Newcombe's, from
        score intervals, if so few answers are wrong in both arms, or differ between paired arms, that it is
        far from normal. The whole range if nothing varies.
      p_value: recommended two-sided p, which matches `ci`; None in a `single` design.
      statistic: ratio of estimate and standard_error, Student's t if `ci.method` is `t`; None if nothing
        varies.
      df: degrees of freedom of t by Satterthwaite's formula, with mean squares at the upper end of their
        range.
      standard_error: root of an unbiased estimate of the crossed design's variance.
      intervals: other intervals by name: `percentile`, as published, too narrow with few seeds; in a paired
        design also `unpaired`, the interval if the seeds were unrelated.
      p_values: p-values by name, each with `greater`, `less` and `two_sided`; empty in a `single` design.
        `t`: recommended; `percentile`: (k + 1) / (B + 1) from the samples; `published`: k / B, at least 1 /
        B; `sign flip` (paired) or `permutation` (unpaired): randomisation tests of seeds, on these examples
        only; `unpaired` (paired designs): test of that interval.
      bootstrap_standard_error: exact standard deviation of the bootstrap distribution (of its linear part
        if the metric is not a mean).
      hedges_g: difference relative to the spread of seeds; None in a `single` design or with one seed.
      seed_floor: smallest one-sided p of a randomisation test of the seeds: 2**-R if paired or with a fixed
        baseline, else 1 / the number of assignments of seeds to arms; None if seeds are not resampled.
      below_seed_floor: whether the difference is significant, more than half of the variance comes from
        seeds, and p of t is below `seed_floor`; the result then relies on normally distributed seeds.
      n_resamples, rng: bootstrap replicates, and the number that identifies their draws.
      samples: bootstrap scores [replicates, 2] of (base, experiment), or [replicates, 1].
      degenerate_replicates: number of replicates in which a score was 0/0 and took its defined value.
      pairing: basis on which seeds are paired: `parent` if the data show that runs of one seed descend from
        one checkpoint (a common coordinate `parent`, `procedure` or `lineage`), else `seed number`, which
        may be arbitrary. None in other designs and if seeds are held fixed.
      without_failed: estimate, `ci` and `p_value` of the difference without seeds (pairs, if paired) whose
        training seems to have failed; None if there are none, if too few seeds are left, or in a `single`
        design.
      notes: notes on the data for readers, such as copies of one run under two seeds.
      over_labels: scores of base and experiment over the labels' classes alone, for a macro average to which
        answers outside the labels add classes; otherwise empty.
      tasks: names of the tasks of a mean over tasks; otherwise empty.
      variance_parts: mean squares of the standard error; None with a borrowed spread of seeds (`one_seed`).
      origin: tables and data of the comparison, for `same`, `slices` and other further answers.
      pooled_seeds: whether the mean squares of unpaired arms' seeds were similar enough to be pooled: 2R -
        2 degrees of freedom, where Welch's formula gives fewer.

    Examples:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> rows, dims = [[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]], ("pretrain_seed", "example")
      >>> right = DataArray(rows, {"pretrain_seed": [0, 1, 2]}, dims)
      >>> labels = DataArray([1, 1, 1, 1], dims="example")
      >>> result = stats.compare(right, None, "accuracy", design="single", labels=labels)
      >>> round(result.estimate, 3), result.base.seeds, result.p_value
      (0.667, (0, 1, 2), None)
      >>> print(result)
      Across 3 seeds and 4 examples, accuracy of base is 66.7 % (95 % CI 17.4 to 95.0 %).
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
        """Returns the result with other names in tables and texts; None keeps a name.

        Args:
          base: name of the base.
          experiment: name of the experiment.
          name: name of the comparison.
          evaluation_set: name of the evaluation set.

        Examples:
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
