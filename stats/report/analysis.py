"""All that a report shows, computed from finished runs: comparisons, figures, truths, choices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.runs.errors import UserError
from multiberts.stats.compare.ranking import ArmComparisons
from multiberts.stats.compare.result import Comparison
from multiberts.stats.corrections import adjusted_p_values
from multiberts.stats.formats import NONE
from multiberts.stats.presentation import figures, ranking_words, wording
from multiberts.stats.presentation.metric_names import (
    higher_is_better,
    metric_label,
    metric_name,
)
from multiberts.stats.presentation.ranking_figure import draw_ranking
from multiberts.stats.presentation.sections import ReportSection, slug
from multiberts.stats.report.dumps import NO_RANKING, Dump, compare_dumps, curve_of_dumps, rank_arms
from multiberts.stats.report.examples_by_seed import ExampleGrid, example_grid
from multiberts.stats.report.experiment import ReportedExperiment
from multiberts.stats.report.selection import (
    DumpReader,
    FinishedRun,
    LearningRateChoice,
    LearningRateRule,
    RunGroup,
    choose_learning_rate,
    last_steps,
    make_groups,
)
from multiberts.stats.results.sequential import EarlyLook, early_look
from multiberts.stats.settings import ComparisonSettings, Design, Resample

Truths = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class KnownTruth:
    """A known true value and its estimate.

    Attributes:
      truth: the value known from how the data were made.
      comparison: the single-design estimate.
    """

    truth: float
    comparison: Comparison

    @property
    def in_interval(self) -> bool:
        """Returns whether the t interval contains the truth."""
        return self.comparison.t.low <= self.truth <= self.comparison.t.high


@dataclass
class ComparedProcedures:
    """One requested comparison, on every evaluation set and metric that both sides have.

    Attributes:
      name, design: as requested.
      comparisons: one per evaluation set and metric.
      pictures: the figures of each comparison.
      overview: figures of all of them.
      unranked: notes on what could not be ranked.
      rankings: of all arms, where more than two have one base; those of a report's
        family are with the last of its comparisons.
      grids: examples by seeds, by name of the comparison and evaluation set.
      planned_seeds: how many seeds of each comparison are planned; None where no plan is known.
    """

    name: str
    design: str
    comparisons: list[Comparison] = field(default_factory=list)
    pictures: list[list[ReportSection]] = field(default_factory=list)
    overview: list[ReportSection] = field(default_factory=list)
    rankings: list[ArmComparisons] = field(default_factory=list)
    unranked: list[str] = field(default_factory=list)
    grids: dict[tuple[str, str], ExampleGrid] = field(default_factory=dict)
    planned_seeds: list[int | None] = field(default_factory=list)

    def add_ranking(self, ranking: ArmComparisons, name: str) -> None:
        """Adds a ranking and its figure, whose files have this name."""
        self.rankings.append(ranking)
        make = partial(draw_ranking, ranking)
        self.overview.append(ReportSection(name, ranking_words.caption(ranking), make))

    def add_grid(self, item: Comparison, dumps: Sequence[Dump]) -> None:
        """Adds the examples by seeds of a comparison, once per evaluation set, where they have scores."""
        key = item.name, item.evaluation_set
        if key in self.grids:
            return
        sides = [side.name for side in (item.base, item.experiment) if side is not None]
        grid = example_grid(dumps, sides, self.design)
        if grid is not None:
            self.grids[key] = grid

    @property
    def adjusted(self) -> list[float]:
        """Returns the recommended two-sided p-values, corrected for their number here (Holm)."""
        p_values = [item.p_t.two_sided for item in self.comparisons if item.p_t is not None]
        return [float(p) for p in adjusted_p_values(p_values, "holm")] if p_values else []

    @property
    def results(self) -> list[str]:
        """Returns the result of each comparison in words, by the corrected p."""
        rows = zip(self.comparisons, self.adjusted, self.early, strict=False)
        return [
            wording.verdict(item, p, higher_is_better(item.metric), look) for item, p, look in rows
        ]

    @property
    def judged(self) -> list[tuple[Comparison, float | None, str]]:
        """Returns each comparison with its corrected p and its result, or None and a dash."""
        rows = itertools.zip_longest(self.comparisons, self.adjusted, self.results)
        return [(item, p, result or NONE) for item, p, result in rows]

    @property
    def early(self) -> list[EarlyLook | None]:
        """Returns what fewer seeds than planned show of each comparison; None where all are there."""
        found = []
        rows = zip(self.comparisons, self.adjusted, self.planned_seeds, strict=False)
        for item, p, planned in rows:
            seeds = min(len(side.seeds) for side in (item.base, item.experiment) if side)
            look = None
            if planned is not None and 2 <= seeds < planned:
                look = early_look(p, seeds, planned, round(1 - item.confidence, 12))
            found.append(look)
        return found + [None] * (len(self.comparisons) - len(found))

    @property
    def answer(self) -> str:
        """Returns one sentence on all comparisons."""
        answer = wording.answer(self.comparisons, self.adjusted, self.results)
        if not self.adjusted:
            return answer
        look = self.early[self.adjusted.index(min(self.adjusted))]
        return answer if look is None else f"{answer} {wording.early_answer(look)}"


@dataclass
class ReportContent:
    """All that the page shows.

    Attributes:
      compared, truths, curves, choices, groups: what was computed, and from which runs.
      experiment: that the runs are part of, or None.
      missing: which planned runs were not there; empty where all were.
      seeds_are, runs_are: what the data call seeds, and runs of one seed.
    """

    compared: list[ComparedProcedures]
    truths: list[KnownTruth]
    curves: list[ReportSection]
    choices: list[LearningRateChoice]
    groups: list[RunGroup]
    experiment: ReportedExperiment | None = None
    missing: str = ""
    seeds_are: str = "pre-training seeds"
    runs_are: str = "fine-tuning runs"

    @property
    def pictures(self) -> list[ReportSection]:
        """Returns all figures, in the order of the page."""
        own = [
            picture
            for item in self.compared
            for group in (item.overview, *item.pictures)
            for picture in group
        ]
        return own + self.curves


@dataclass
class _Family:
    """Arms that are compared with one base on an evaluation set, and the last of the comparisons."""

    measure: str
    design: Design
    resample: Resample
    arms: dict[str, Dump]
    last: ComparedProcedures
    prefix: str


class _Analysis:
    """Runs with their chosen learning rates, and their dumps, each read once."""

    def __init__(
        self,
        settings: ComparisonSettings,
        truths: Truths,
        rule: LearningRateRule,
        experiment: ReportedExperiment | None,
    ):
        self.experiment = experiment
        self.settings = settings
        self.truths = truths
        self.rule = rule
        self.reader = DumpReader()
        self.choices: dict[tuple, LearningRateChoice] = {}
        # By base, design, resampling, evaluation set and measure.
        self.families: dict[tuple, _Family] = {}

    def groups(self, runs: Sequence[FinishedRun]) -> list[RunGroup]:
        """Groups of one learning rate each; choices are kept for the page."""
        chosen = []
        for group in make_groups(runs):
            kept, choice = choose_learning_rate(group, self.reader, self.rule)
            if choice is not None:
                self.choices[group.task, group.procedure, group.step, len(group.runs)] = choice
            chosen.append(kept)
        return chosen

    def shared(
        self, base: RunGroup, experiment: RunGroup | None = None
    ) -> Iterator[tuple[str, list[Dump]]]:
        """Every metric that both groups have on an evaluation set, with their dumps there."""
        sides = [group for group in (base, experiment) if group is not None]
        sets = [group.evaluation_sets() for group in sides]
        for evaluation_set, measures in sets[0].items():
            for measure in measures:
                if all(measure in known.get(evaluation_set, ()) for known in sets):
                    yield measure, [self.reader(group, evaluation_set) for group in sides]

    def planned_seeds(self, sides: Sequence[RunGroup], design: str) -> int | None:
        """Returns how many seeds of each side are planned; None where the plan does not have a side."""
        if self.experiment is None:
            return None
        found = [
            self.experiment.planned_seeds(side.task, side.procedure, side.step) for side in sides
        ]
        if not all(found):
            return None
        return len(frozenset.intersection(*found)) if design == "paired" else min(map(len, found))

    def truth_of(self, dump: Dump, measure: str) -> float | None:
        """Returns the known value of a measure; a key may name the task before the evaluation set."""
        for name in (dump.set_name, dump.evaluation_set):
            known = self.truths.get(f"{name}/{measure}", {})
            if dump.procedure in known:
                return known[dump.procedure]
        return None


def analyse(
    runs: Sequence[FinishedRun],
    requests: Sequence[Mapping[str, Any]],
    truths: Truths,
    settings: ComparisonSettings,
    rule: LearningRateRule,
    experiment: ReportedExperiment | None = None,
) -> ReportContent:
    """Makes every comparison of a report, and names its figures.

    Args:
      runs: all finished runs.
      requests: comparisons, checked (see `stats.report.reporting.report`), with the runs of `base`
        and `experiment` in place of what selects them.
      truths: known values by "<evaluation set>/<metric>" and procedure; may be empty.
      settings: how comparisons are made, but for their design and what is resampled.
      rule: how learning rates are chosen.
      experiment: that the runs are part of; None: none is known.

    Raises:
      UserError: two sides share nothing, or do not fit together.
    """
    from multiberts.runs.console import ProgressBar

    analysis = _Analysis(settings, truths, rule, experiment)
    compared = [
        _compare(analysis, request, f"{number}-{slug(request['name'])}")
        for number, request in enumerate(ProgressBar(requests, desc="comparisons"), start=1)
    ]
    for family in analysis.families.values():
        _rank(family, settings)
    known_truths = _known_truths(analysis, runs) if truths else []
    groups = analysis.groups(runs)
    curves = _training_pictures(analysis, groups)
    return ReportContent(
        compared,
        known_truths,
        curves,
        list(analysis.choices.values()),
        groups,
        experiment,
        experiment.missing(run.directory for run in runs) if experiment else "",
    )


def _compare(analysis: _Analysis, request: Mapping[str, Any], prefix: str) -> ComparedProcedures:
    found = ComparedProcedures(request["name"], request["design"])
    settings = replace(analysis.settings, design=request["design"], resample=request["resample"])
    bases = analysis.groups(request["base"])
    experiments: dict[str, RunGroup] | None = None
    if request["experiment"] is not None:
        experiments = {group.task: group for group in analysis.groups(request["experiment"])}
    for base in bases:
        experiment = experiments.get(base.task) if experiments else None
        if experiments and experiment is None:
            continue
        names = [base.name, "" if experiment is None else experiment.name]
        if experiment is not None and base.procedure != experiment.procedure:
            names = [base.procedure, experiment.procedure]
        for measure, dumps in analysis.shared(base, experiment):
            item = compare_dumps(
                dumps[0], dumps[1] if experiment else None, measure, settings,
                (names[0], names[1]), request["name"],
            )  # fmt: skip
            found.comparisons.append(item)
            sides = [side for side in (base, experiment) if side is not None]
            found.planned_seeds.append(analysis.planned_seeds(sides, found.design))
            if experiment is not None:
                key = (
                    base.name,
                    base.task,
                    found.design,
                    request["resample"],
                    dumps[0].set_name,
                    measure,
                )
                family = analysis.families.setdefault(
                    key, _Family(measure, found.design, request["resample"], {}, found, prefix)
                )
                family.arms |= {base.name: dumps[0], experiment.name: dumps[1]}
                family.last, family.prefix = found, prefix
            pictures = _pictures(analysis, item, dumps, measure, prefix)
            found.pictures.append(list(pictures))
            found.add_grid(item, dumps)
    if not found.comparisons:
        raise UserError(
            f"comparison {request['name']!r}: the two sides share no task, evaluation set and "
            "metric; fine-tune both on the same tasks"
        )
    # Differences of one unit share a figure; on one axis, a slope would hide a share.
    kinds = dict.fromkeys(item.metric for item in found.comparisons if found.design != "single")
    for metric in kinds:
        rows = {item.evaluation_set: item for item in found.comparisons if item.metric == metric}
        if len(rows) > 1:
            name = metric_name(metric)
            caption = f"Differences of {name} on all evaluation sets: {found.name}"
            make = partial(figures.forest_figure, rows, f"{found.name}: {name}")
            found.overview.append(ReportSection(f"{prefix}-all-{slug(name)}", caption, make))
    return found


def _rank(family: _Family, settings: ComparisonSettings) -> None:
    """Adds the ranking of a family of three arms or more to the last of its comparisons."""
    measured = {name: dump.measured(family.measure) for name, dump in family.arms.items()}
    (_, metric), set_name = next(iter(measured.values())), next(iter(family.arms.values())).set_name
    ranking = rank_arms(
        {name: data for name, (data, _) in measured.items()}, metric, family.design,
        set_name, **replace(settings, resample=family.resample).options(),
    )  # fmt: skip
    if ranking is not None:
        place = f"{family.prefix}-ranking-{slug(set_name)}-{slug(family.measure)}"
        family.last.add_ranking(ranking, place)
    elif len(measured) > 2:
        family.last.unranked.append(f"{set_name}, {metric_name(family.measure)}: {NO_RANKING}.")


def _pictures(
    analysis: _Analysis, item: Comparison, dumps: Sequence[Dump], measure: str, prefix: str
) -> Iterator[ReportSection]:
    place = f"{prefix}-{slug(item.evaluation_set)}-{slug(metric_name(item.metric))}"
    yield ReportSection(
        f"{place}-seeds", f"{metric_label(item.metric)} of every seed on {item.evaluation_set}",
        partial(figures.seed_figure, item),
    )  # fmt: skip
    yield ReportSection(
        f"{place}-difference",
        f"Bootstrap distribution and {item.confidence:.0%} intervals of {metric_name(item.metric)} on "
        f"{item.evaluation_set}: t {wording.estimate_text(item, item.t)}, "
        f"percentile {wording.estimate_text(item, item.percentile)}",
        partial(figures.sources_figure, [item]),
    )
    # A correlation would show the same dots as the slope before it.
    slope = measure.replace("correlation", "slope")
    if measure not in OCCUPATION_MEASURES or (slope != measure and slope in dumps[0].measures):
        return
    arms = []
    for dump, arm in zip(dumps, (item.base, item.experiment), strict=False):
        assert arm is not None
        truth = analysis.truth_of(dump, measure) if measure.endswith("slope") else None
        interval = arm.t if measure.endswith("slope") else None
        arms.append(dump.occupation_scores(measure, arm.name, arm.seeds, truth, interval))
    bias = OCCUPATION_MEASURES[measure][0] == "bias"
    label = "bias score of the occupation" if bias else "P(feminine pronoun)"
    names = " and ".join(arm.name for arm in arms)
    heading = f"{item.evaluation_set}: occupations, mean of seeds"
    yield ReportSection(
        f"{place}-occupations",
        f"{label} against the share of women in the occupation, for {names}",
        partial(figures.bias_figure, arms, label, heading),
    )


def _known_truths(analysis: _Analysis, runs: Sequence[FinishedRun]) -> list[KnownTruth]:
    found = []
    for group in analysis.groups(last_steps(runs)):
        for measure, (dump,) in analysis.shared(group):
            truth = analysis.truth_of(dump, measure)
            if truth is not None:
                item = compare_dumps(
                    dump, None, measure, replace(analysis.settings, design="single"),
                    (group.name, ""), group.name,
                )  # fmt: skip
                found.append(KnownTruth(truth, item))
    if not found:
        raise UserError(
            f"truth names {', '.join(sorted(analysis.truths))}, and no run has such an "
            "evaluation set, metric and procedure; correct its names"
        )
    return found


def _training_pictures(analysis: _Analysis, groups: Sequence[RunGroup]) -> list[ReportSection]:
    """Names a curve for every evaluation set and metric of a procedure with several steps."""
    series: dict[tuple[str, str], dict[str, list[Dump]]] = {}
    for group in groups:
        for measure, (dump,) in analysis.shared(group):
            if group.step is not None:
                dumps = series.setdefault((dump.set_name, measure), {})
                dumps.setdefault(group.procedure, []).append(dump)
    pictures = []
    for (name, measure), procedures in series.items():
        if max(len(dumps) for dumps in procedures.values()) < 2:
            continue
        curves = [curve_of_dumps(dumps, measure, all_steps=False) for dumps in procedures.values()]
        pictures.append(
            ReportSection(
                f"training-{slug(name)}-{slug(measure)}",
                f"{metric_label(measure)} on {name} against pre-training step",
                partial(
                    figures.training_figure,
                    curves,
                    name,
                    measure,
                    analysis.settings.confidence,
                ),
            )
        )
    return pictures
