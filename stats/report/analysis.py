"""All that a report shows, computed from groups of runs: comparisons, pictures, truths, choices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.runs.errors import UserError
from multiberts.stats.bootstrap.comparison import compare
from multiberts.stats.bootstrap.conclusion import Comparison
from multiberts.stats.bootstrap.corrections import adjusted_p_values
from multiberts.stats.bootstrap.intervals import PValues
from multiberts.stats.presentation import figures, tables
from multiberts.stats.report.selection import (
    Choice,
    Group,
    LearningRateRule,
    PredictionReader,
    Run,
    choose_learning_rate,
    last_steps,
    make_groups,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """How every comparison of a report is made."""

    num_bootstrap: int
    bootstrap_seed: int
    confidence: float
    learning_rate_rule: LearningRateRule = "dev"


@dataclass(frozen=True)
class TruthRow:
    """A known true value beside its estimate.

    Attributes:
      truth: the value known from how the data were made.
      comparison: the single-design estimate.
    """

    truth: float
    comparison: Comparison

    @property
    def holds(self) -> bool:
        """Whether the t interval holds the truth."""
        return self.comparison.t.low <= self.truth <= self.comparison.t.high


@dataclass(frozen=True)
class Picture:
    """A figure under a file name without ending, with a text for those who cannot see it."""

    name: str
    text: str
    figure: Figure


@dataclass
class Section:
    """One requested comparison, on every evaluation set and metric that both sides have."""

    name: str
    design: str
    comparisons: list[Comparison] = field(default_factory=list)
    pictures: dict[int, list[Picture]] = field(default_factory=dict)
    overview: list[Picture] = field(default_factory=list)

    @property
    def adjusted(self) -> list[PValues]:
        """The recommended p-values corrected for their number in this section (Holm)."""
        p_values = [item.p_t for item in self.comparisons if item.p_t is not None]
        columns = [adjusted_p_values(side, "holm") for side in zip(*p_values, strict=True)]
        return [PValues(*(float(p) for p in row)) for row in zip(*columns, strict=True)]


@dataclass
class Content:
    """All that the page shows."""

    sections: list[Section]
    truths: list[TruthRow]
    curves: list[Picture]
    choices: list[Choice]
    groups: list[Group]


class _Analysis:
    """Groups with their chosen learning rates and cached predictions."""

    def __init__(self, settings: Settings, truths: Mapping[str, Mapping[str, float]]):
        from multiberts.evaluate.dumps.predictions import read_predictions

        self.settings = settings
        self.truths = truths
        self.reader = PredictionReader(read_predictions)
        self.choices: dict[tuple, Choice] = {}

    def groups(self, runs: Sequence[Run]) -> list[Group]:
        """Groups of one learning rate each; choices are kept for the page."""
        chosen = []
        for group in make_groups(runs):
            kept, choice = choose_learning_rate(
                group, self.reader, self.settings.learning_rate_rule
            )
            if choice is not None:
                key = (group.task, group.procedure, -1 if group.step is None else group.step)
                self.choices[(*key, len(group.runs))] = choice
            chosen.append(kept)
        return chosen

    def compare(
        self,
        base: Group,
        experiment: Group | None,
        evaluation_set: str,
        measure: str,
        request: Mapping[str, Any],
    ) -> Comparison:
        base_data, metric = self.reader.measured(base, evaluation_set, measure)
        other = None
        if experiment is not None:
            other, _ = self.reader.measured(experiment, evaluation_set, measure)
        names = _arm_names(base, experiment)
        try:
            return compare(
                base_data,
                other,
                metric,
                request["design"],
                resample=request["resample"],
                num_bootstrap=self.settings.num_bootstrap,
                bootstrap_seed=self.settings.bootstrap_seed,
                confidence=self.settings.confidence,
                name=request["name"],
                evaluation_set=set_name(base.task, evaluation_set),
                base_name=names[0],
                experiment_name=names[1],
            )
        except ValueError as error:
            raise UserError(
                f"comparison {request['name']!r} on {set_name(base.task, evaluation_set)}, "
                f"{measure}: "
                f"{error}"
            ) from error

    def truth_of(self, group: Group, evaluation_set: str, measure: str) -> float | None:
        """The known value of a measure; a key may name the task before the evaluation set."""
        for key in (
            f"{set_name(group.task, evaluation_set)}/{measure}",
            f"{evaluation_set}/{measure}",
        ):
            if group.procedure in self.truths.get(key, {}):
                return self.truths[key][group.procedure]
        return None


def set_name(task: str, evaluation_set: str) -> str:
    """How an evaluation set is called in tables: with its task, unless the name says it already."""
    if evaluation_set.lower().startswith(task.lower()) or task.lower().endswith(
        evaluation_set.lower()
    ):
        return evaluation_set
    return f"{task}/{evaluation_set}"


def _arm_names(base: Group, experiment: Group | None) -> tuple[str, str]:
    if experiment is None:
        return base.name, ""
    if base.procedure == experiment.procedure:
        return base.name, experiment.name
    return base.procedure, experiment.procedure


def analyse(
    runs: Sequence[Run],
    requests: Sequence[Mapping[str, Any]],
    selected: Sequence[Mapping[str, list[Run]]],
    truths: Mapping[str, Mapping[str, float]],
    settings: Settings,
) -> Content:
    """Makes every comparison and picture of a report.

    Args:
      runs: all finished runs.
      requests: comparisons, checked (see `stats.report.reporting.report`).
      selected: for each request the runs of its `base` and `experiment`.
      truths: known values by "<evaluation set>/<metric>" and procedure; may be empty.
      settings: bootstrap and confidence.

    Raises:
      UserError: two sides share nothing, or do not fit together.
    """
    from tqdm import tqdm

    analysis = _Analysis(settings, truths)
    sections = [
        _section(analysis, request, sides)
        for request, sides in tqdm(
            list(zip(requests, selected, strict=True)), desc="comparisons", disable=None
        )
    ]
    for number, section in enumerate(sections, start=1):
        _illustrate(analysis, section, f"{number}-{_slug(section.name)}")
    truth_rows = _truth_rows(analysis, runs) if truths else []
    everything = analysis.groups(runs)
    return Content(
        sections,
        truth_rows,
        _training_pictures(analysis, everything),
        list(analysis.choices.values()),
        everything,
    )


def _shared(base: Group, experiment: Group | None) -> list[tuple[str, str]]:
    """(evaluation set, metric) that both groups have, in the base's order."""
    first = base.evaluation_sets()
    second = first if experiment is None else experiment.evaluation_sets()
    return [
        (evaluation_set, measure)
        for evaluation_set, measures in first.items()
        for measure in measures
        if measure in second.get(evaluation_set, [])
    ]


def _section(
    analysis: _Analysis, request: Mapping[str, Any], sides: Mapping[str, list[Run]]
) -> Section:
    section = Section(request["name"], request["design"])
    bases = analysis.groups(sides["base"])
    experiments = {}
    if "experiment" in sides:
        experiments = {group.task: group for group in analysis.groups(sides["experiment"])}
    for base in bases:
        experiment = experiments.get(base.task)
        if experiments and experiment is None:
            continue
        for evaluation_set, measure in _shared(base, experiment):
            item = analysis.compare(base, experiment, evaluation_set, measure, request)
            index = len(section.comparisons)
            section.comparisons.append(item)
            if measure in OCCUPATION_MEASURES and not _repeats_cloud(base, evaluation_set, measure):
                groups = [group for group in (base, experiment) if group is not None]
                section.pictures[index] = [
                    _bias_picture(analysis, item, groups, evaluation_set, measure)
                ]
    if not section.comparisons:
        raise UserError(
            f"comparison {request['name']!r}: the two sides share no task, evaluation set and "
            "metric; "
            "fine-tune both on the same tasks"
        )
    return section


def _repeats_cloud(group: Group, evaluation_set: str, measure: str) -> bool:
    """Whether a correlation would show the same dots as the slope beside it."""
    slope = measure.replace("correlation", "slope")
    return slope != measure and slope in group.evaluation_sets()[evaluation_set]


def _bias_picture(
    analysis: _Analysis,
    item: Comparison,
    groups: Sequence[Group],
    evaluation_set: str,
    measure: str,
) -> Picture:
    clouds = []
    for group, arm in zip(groups, (item.base, item.experiment), strict=False):
        dataset, _ = analysis.reader.measured(group, evaluation_set, measure)
        assert arm is not None
        by_seed = dataset["prediction"].groupby("pretrain_seed").mean()
        kept = by_seed.sel(pretrain_seed=list(arm.seeds)).mean("pretrain_seed")
        truth = None
        if measure.endswith("slope"):
            truth = analysis.truth_of(group, evaluation_set, measure)
        clouds.append(figures.Cloud(arm.name, dataset["label"].to_numpy(), kept.to_numpy(), truth))
    label = (
        "bias score of the occupation"
        if OCCUPATION_MEASURES[measure][0] == "bias"
        else "P(feminine pronoun)"
    )
    heading = f"{item.evaluation_set}: occupations, mean of seeds"
    return Picture(
        "occupations",
        f"{label} against the share of women in the occupation, for "
        + " and ".join(cloud.name for cloud in clouds),
        figures.bias_figure(clouds, label, heading),
    )


def _illustrate(analysis: _Analysis, section: Section, prefix: str) -> None:
    """Adds the figures of every comparison, and the overview of all."""
    for index, item in enumerate(section.comparisons):
        place = f"{prefix}-{_slug(item.evaluation_set)}-{_slug(item.metric)}"
        own = [
            Picture(
                "seeds",
                f"{item.metric} of every seed on {item.evaluation_set}",
                figures.seed_figure(item),
            ),
            Picture(
                "difference",
                f"Bootstrap distribution and {item.confidence:.0%} intervals of {item.metric} on "
                f"{item.evaluation_set}: t {tables.format_interval(item.t)}, percentile "
                f"{tables.format_interval(item.percentile)}",
                figures.delta_figure(item),
            ),
            *section.pictures.get(index, []),
        ]
        section.pictures[index] = [
            Picture(f"{place}-{picture.name}", picture.text, picture.figure) for picture in own
        ]
    if len(section.comparisons) > 1 and section.design != "single":
        section.overview = [
            Picture(
                f"{prefix}-all",
                f"Differences on all evaluation sets: {section.name}",
                figures.forest_figure(section.comparisons),
            )
        ]


def _truth_rows(analysis: _Analysis, runs: Sequence[Run]) -> list[TruthRow]:
    rows = []
    request = {"design": "single", "resample": "both"}
    for group in analysis.groups(last_steps(runs)):
        for evaluation_set, measure in _shared(group, None):
            truth = analysis.truth_of(group, evaluation_set, measure)
            if truth is not None:
                item = analysis.compare(
                    group, None, evaluation_set, measure, {**request, "name": group.name}
                )
                rows.append(TruthRow(truth, item))
    if not rows:
        raise UserError(
            f"truth names {', '.join(sorted(analysis.truths))}, and no run has such an "
            "evaluation set, "
            "metric and procedure; correct its names"
        )
    return rows


def _training_pictures(analysis: _Analysis, groups: Sequence[Group]) -> list[Picture]:
    """A curve for every evaluation set and metric of a procedure with more than one step."""
    series: dict[tuple[str, str, str], dict[str, list[Group]]] = {}
    for group in groups:
        for evaluation_set, measure in _shared(group, None):
            if group.step is not None:
                key = (group.task, evaluation_set, measure)
                series.setdefault(key, {}).setdefault(group.procedure, []).append(group)
    pictures = []
    for (task, evaluation_set, measure), procedures in series.items():
        if max(len(steps) for steps in procedures.values()) < 2:
            continue
        curves = [
            _curve(analysis, name, steps, evaluation_set, measure)
            for name, steps in procedures.items()
        ]
        name = set_name(task, evaluation_set)
        pictures.append(
            Picture(
                f"training-{_slug(name)}-{_slug(measure)}",
                f"{measure} on {name} against pre-training step",
                figures.training_figure(curves, name, measure),
            )
        )
    return pictures


def _curve(
    analysis: _Analysis, name: str, groups: Sequence[Group], evaluation_set: str, measure: str
) -> figures.Curve:
    seeds = sorted({seed for group in groups for seed in group.seeds})
    scores = {seed: np.full(len(groups), np.nan) for seed in seeds}
    for position, group in enumerate(groups):
        of_runs = analysis.reader.run_scores(group, evaluation_set, measure)
        run_seeds = np.array([run.facts["pretrain_seed"] for run in group.runs])
        for seed in group.seeds:
            scores[seed][position] = of_runs[run_seeds == seed].mean()
    return figures.Curve(name, np.array([group.step for group in groups]), scores)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
