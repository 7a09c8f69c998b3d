"""Computes the contents of a report from finished runs: comparisons, figures, truths, choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from multiberts.report.evidence import (
    ComparedArms,
    Pair,
    Request,
    compare_all,
)
from multiberts.report.experiment import ReportedExperiment
from multiberts.report.prediction_sets import (
    PredictionSet,
    compare_prediction_sets,
    curve_of_prediction_sets,
)
from multiberts.report.presentation import figures
from multiberts.report.presentation.formats import metric_label
from multiberts.report.presentation.readable_names import readable
from multiberts.report.presentation.sections import ReportSection, slug
from multiberts.report.selection import (
    SEEDS,
    FinishedRun,
    LearningRateChoice,
    LearningRateRule,
    PredictionSetReader,
    RunGroup,
    choose_learning_rate,
    last_steps,
    make_groups,
)
from multiberts.runs.errors import UserError
from multiberts.stats.compare.result import Comparison
from multiberts.stats.errors import UndefinedScore
from multiberts.stats.score import metric_name
from multiberts.stats.settings import ComparisonSettings

Truths = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class KnownTruth:
    """A known true value and its estimate.

    Attributes:
      truth: true value from the construction of the data.
      comparison: comparison with the estimate, in a `single` design.
    """

    truth: float
    comparison: Comparison

    @property
    def in_interval(self) -> bool:
        return self.comparison.ci.low <= self.truth <= self.comparison.ci.high


@dataclass
class ReportContent:
    """The contents of the page.

    Attributes:
      experiment: experiment of the runs, or None.
      missing: sentence on missing planned runs; empty if none is missing.
      name_of: function that converts a name in code to a readable one.
    """

    compared: list[ComparedArms]
    truths: list[KnownTruth]
    curves: list[ReportSection]
    choices: list[LearningRateChoice]
    groups: list[RunGroup]
    experiment: ReportedExperiment | None = None
    missing: str = ""
    seeds_are: str = SEEDS["pretrain"]
    runs_are: str = "fine-tuning runs"
    name_of: Callable[[str], str] = str

    @property
    def asked(self) -> ComparedArms:
        """Returns the comparisons at the top of the page: the first with a primary one, else the first."""
        return next((each for each in self.compared if each.primary is not None), self.compared[0])

    @property
    def is_ranked(self) -> bool:
        """Returns whether the page starts with a ranking without a base."""
        return bool(self.asked.rankings) and self.asked.asked.comparison.experiment is None

    @property
    def pictures(self) -> list[ReportSection]:
        """Returns all figures in page order."""
        of_comparisons = [
            picture
            for item in self.compared
            for group in (item.overview, *(reported.figures for reported in item.items))
            for picture in group
        ]
        return of_comparisons + self.curves


class _Analysis:
    """Runs at their chosen learning rates, with cached prediction sets."""

    def __init__(
        self,
        settings: ComparisonSettings,
        truths: Truths,
        rule: LearningRateRule,
        experiment: ReportedExperiment | None,
        missing: str,
        name_of: Callable[[str], str],
    ):
        self.missing = missing
        self.name_of = name_of
        self.experiment = experiment
        self.settings = settings
        self.truths = truths
        self.rule = rule
        self.reader = PredictionSetReader()
        self.choices: dict[tuple, LearningRateChoice] = {}

    def groups(self, runs: Sequence[FinishedRun]) -> list[RunGroup]:
        """Returns groups with one learning rate each, and stores the choices for the page."""
        chosen = []
        for group in make_groups(runs):
            best, choice = choose_learning_rate(group, self.reader, self.rule)
            if choice is not None:
                self.choices[group.task, group.procedure, group.step, len(group.runs)] = choice
            chosen.append(best)
        return chosen

    def shared(
        self, base: RunGroup, experiment: RunGroup | None = None
    ) -> Iterator[tuple[str, list[PredictionSet]]]:
        """Yields each common metric of two groups on an evaluation set, with their prediction sets."""
        arms = [group for group in (base, experiment) if group is not None]
        sets = [group.evaluation_sets() for group in arms]
        for evaluation_set, measures in sets[0].items():
            for measure in measures:
                if all(measure in of_group.get(evaluation_set, ()) for of_group in sets):
                    yield measure, [self.reader(group, evaluation_set) for group in arms]

    def truth_of(self, predictions: PredictionSet, measure: str) -> float | None:
        """Returns the true value of a measure, or None. Keys may begin with the task."""
        for key in _keys(predictions, measure):
            by_procedure = self.truths.get(key, {})
            if predictions.procedure in by_procedure:
                return by_procedure[predictions.procedure]
        return None


def _keys(predictions: PredictionSet, measure: str) -> list[str]:
    """Returns the keys of a measure of an evaluation set, with and without its task."""
    names = (predictions.set_name, predictions.evaluation_set)
    return [f"{name}/{measure}" for name in dict.fromkeys(names)]


def analyse(
    runs: Sequence[FinishedRun],
    requests: Sequence[Mapping[str, Any]],
    truths: Truths,
    settings: ComparisonSettings,
    rule: LearningRateRule,
    experiment: ReportedExperiment | None = None,
    names: Mapping[str, str] | None = None,
) -> ReportContent:
    """Makes all comparisons of a report and names its figures.

    Args:
      requests: checked comparisons (see `report.reporting.report`); `base` and `experiment` hold the
        selected runs.
      truths: true values by "<evaluation set>/<metric>" and procedure; may be empty.
      settings: settings of all comparisons; each has its own design and resampled units.
      experiment: experiment of the runs; None if unknown.
      names: readable name by procedure, task or evaluation set (see `readable`).
    """
    name_of = partial(readable, names=names or {})
    missing = experiment.missing(run.directory for run in runs) if experiment else ""
    analysis = _Analysis(settings, truths, rule, experiment, missing, name_of)
    asked = [
        _request(analysis, request, f"{number}-{slug(request['name'])}")
        for number, request in enumerate(requests, start=1)
    ]
    compared = compare_all(asked, analysis.truth_of, name_of)
    known_truths, without_truth = _known_truths(analysis, runs) if truths else ([], [])
    if without_truth:
        compared[-1].unranked += without_truth
    groups = analysis.groups(runs)
    curves = _training_pictures(analysis, groups)
    return ReportContent(
        compared,
        known_truths,
        curves,
        list(analysis.choices.values()),
        groups,
        experiment,
        analysis.missing,
        SEEDS[runs[0].seed_is],
        "runs" if runs[0].seed_is == "finetune" else "fine-tuning runs",
        name_of=name_of,
    )


def _request(analysis: _Analysis, request: Mapping[str, Any], prefix: str) -> Request:
    """Returns the pairs of a requested comparison: each task, evaluation set and metric of both arms."""
    how = {name: request[name] for name in ("design", "resample")}
    settings = replace(analysis.settings, **how)
    pairs: list[Pair] = []
    experiments: dict[str, RunGroup] | None = None
    bases = analysis.groups(request["base"])
    ranked = request.get("ranked")
    if request["experiment"] is not None:
        experiments = {group.task: group for group in analysis.groups(request["experiment"])}
    for base in bases:
        experiment = experiments.get(base.task) if experiments else None
        if experiments and experiment is None:
            continue
        groups = [group for group in (base, experiment) if group is not None]
        names = (base.name, "" if experiment is None else experiment.name)
        if experiment is not None and base.procedure != experiment.procedure:
            names = (base.procedure, experiment.procedure)
        for measure, prediction_sets in analysis.shared(base, experiment):
            stem = f"{prefix}-{slug(prediction_sets[0].set_name)}-{slug(metric_name(measure))}"
            arms = [base.procedure] if ranked else [group.name for group in groups]
            name = arms[0] if ranked else request["name"]
            stem += f"-{slug(arms[0])}" * bool(ranked)
            counts = prediction_sets[0].counts(measure)
            pairs.append(Pair(prediction_sets, measure, names, name, stem, arms, counts))
    if not pairs:
        raise UserError(
            f"comparison {request['name']!r}: the two arms share no task, evaluation set and "
            "metric; fine-tune both on the same tasks"
        )
    return Request(
        request["name"],
        settings,
        pairs,
        {"margin": request["margin"]},
        prefix,
        _primary(request, pairs, bool(analysis.missing)),
        ranked,
    )


def _primary(request: Mapping[str, Any], pairs: Sequence[Pair], is_partial: bool) -> int | None:
    """Returns the index of the primary pair of a comparison, or None.

    Args:
      is_partial: whether planned runs are missing; the primary pair may then not exist yet.
    """
    if request.get("primary") is None:
        return None
    keys = [_keys(pair.prediction_sets[0], pair.measure) for pair in pairs]
    for index, names in enumerate(keys):
        if request["primary"] in names:
            return index
    if is_partial:  # the page reports the missing runs
        return None
    raise UserError(
        f"comparison {request['name']!r}: primary is {request['primary']!r}, expected an evaluation set "
        f"and metric of both arms: {', '.join(names[0] for names in keys)}"
    )


def _known_truths(
    analysis: _Analysis, runs: Sequence[FinishedRun]
) -> tuple[list[KnownTruth], list[str]]:
    """Returns the estimates of true values, and notes on scores that are 0/0."""
    estimates, left_out = [], []
    for group in analysis.groups(last_steps(runs)):
        for measure, (predictions,) in analysis.shared(group):
            truth = analysis.truth_of(predictions, measure)
            if truth is not None:
                try:
                    item = compare_prediction_sets(
                        predictions, None, measure, replace(analysis.settings, design="single"),
                        (group.name, ""), group.name,
                    )  # fmt: skip
                except UndefinedScore as error:
                    left_out.append(f"Left out: {error}.")
                    continue
                estimates.append(KnownTruth(truth, item))
    if not estimates and not left_out:
        raise UserError(
            f"truth names {', '.join(sorted(analysis.truths))}, and no run has such an "
            "evaluation set, metric and procedure; correct its names"
        )
    return estimates, left_out


def _training_pictures(analysis: _Analysis, groups: Sequence[RunGroup]) -> list[ReportSection]:
    """Returns a figure of scores over steps for each evaluation set and metric with three steps or more."""
    series: dict[tuple[str, str], dict[str, list[PredictionSet]]] = {}
    for group in groups:
        for measure, (predictions,) in analysis.shared(group):
            if group.step is not None:
                prediction_sets = series.setdefault((predictions.set_name, measure), {})
                prediction_sets.setdefault(group.procedure, []).append(predictions)
    pictures = []
    for (name, measure), procedures in series.items():
        # The table of comparisons shows two points already.
        if max(len(prediction_sets) for prediction_sets in procedures.values()) < 3:
            continue
        shown = analysis.name_of(name)
        curves = [
            replace(
                curve_of_prediction_sets(prediction_sets, measure, all_steps=False),
                name=analysis.name_of(procedure),
            )
            for procedure, prediction_sets in procedures.items()
        ]
        pictures.append(
            ReportSection(
                f"training-{slug(name)}-{slug(measure)}",
                f"{metric_label(measure)} on {shown} against pre-training step",
                partial(
                    figures.training_figure,
                    curves,
                    shown,
                    measure,
                    analysis.settings.confidence_level,
                ),
            )
        )
    return pictures
