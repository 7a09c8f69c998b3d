"""Finds the inputs of the MultiBERTs paper's tables and figures in prediction sets.

Numbers of tables and figures are those of Sellam et al. (ICLR 2022) and of its published notebooks: tables 1
and 2 are from section 4 (coreference, gender bias), table 4 from appendix D, table 5 (1M against 2M steps)
from appendix E.1, the original BERT from appendices E and E.2.

By default the draws are those of the published library, so that equal predictions give equal samples; the
recommended interval and p are shown with the published ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.papers.multiberts.figures import ScorePanel
from multiberts.papers.multiberts.run_agreement import Agreement, agreement
from multiberts.report.prediction_sets import (
    PredictionSet,
    RunScores,
    compare_prediction_sets,
    step_name,
)
from multiberts.report.presentation.words import SOURCES
from multiberts.report.selection import LearningRateChoice
from multiberts.stats.compare import tasks as task_family
from multiberts.stats.compare.prepared_arms import TaskData
from multiberts.stats.compare.result import Comparison
from multiberts.stats.compare.tasks import TaskComparisons
from multiberts.stats.errors import DataError
from multiberts.stats.score import metric_name
from multiberts.stats.settings import ComparisonSettings, Design, Resample
from multiberts.stats.variance.components import VarianceComponents

Key = tuple[str, str]  # task, evaluation set
Pairs = Sequence[tuple[PredictionSet, PredictionSet]]
ACCURACY = "accuracy"
BIAS = "bias_correlation"
HANS, NOT_ENTAILED = "hans", 0  # the label of `finetune.text.challenge_sets.TWO_WAY`
# Draws as in the paper, so that equal predictions give equal samples.
PUBLISHED = ComparisonSettings(draws="published")
GROUP_MEASURES = (ACCURACY, *OCCUPATION_MEASURES)


# Procedure that trains the base's checkpoints further on counterfactual data; seeds are paired with the base.
INCREMENTAL = "cda_incr"
# Procedure that trains on counterfactual data from scratch, with other seeds.
FULL = "cda_full"
# First seeds of the base, with many fine-tuning runs each.
EXTRA = "base_extra_seeds"


@dataclass(frozen=True)
class Roles:
    """Names of procedures, if they differ from the paper's configuration.

    Attributes:
      base: procedure that is pre-trained like BERT.
      original: procedure of the published BERT checkpoint.
    """

    base: str = "base"
    original: str = "original"


def compare_pair(
    base: PredictionSet,
    experiment: PredictionSet,
    measure: str,
    design: Design = "paired",
    settings: ComparisonSettings | None = None,
    resample: Resample = "both",
    names: tuple[str, str] | None = None,
) -> Comparison:
    """Compares two prediction sets by a measure; their names contain the differing procedure or step."""
    settings = replace(settings or PUBLISHED, design=design, resample=resample)
    return compare_prediction_sets(
        base, experiment, measure, settings, names or _names(base, experiment)
    )


def _names(base: PredictionSet, experiment: PredictionSet) -> tuple[str, str]:
    if base.procedure != experiment.procedure:
        return base.procedure, experiment.procedure
    if base.step == experiment.step or base.step is None or experiment.step is None:
        return f"{base.name} (base)", f"{experiment.name} (experiment)"
    return step_name(base.step), step_name(experiment.step)


def compare_checkpoints(
    predictions: PredictionSet,
    base_seed: Hashable,
    experiment_seed: Hashable,
    settings: ComparisonSettings | None = None,
) -> Comparison:
    """Compares two pre-training seeds of one procedure, with only examples resampled.

    As in the paper's table 4, the result is about these two checkpoints, not about a procedure.
    """
    seeds = predictions.data["pretrain_seed"].to_numpy().tolist()
    arms = []
    for seed in (base_seed, experiment_seed):
        rows = [row for row, run_seed in enumerate(seeds) if run_seed == seed]
        if not rows:
            raise DataError(
                f"{predictions.set_name} of {predictions.name} has no pre-training seed {seed!r}, only "
                f"{sorted(set(seeds), key=str)}; choose two of these"
            )
        arms.append(replace(predictions, data=predictions.data.isel(run=rows)))
    names = (f"seed {base_seed}", f"seed {experiment_seed}")
    return compare_pair(arms[0], arms[1], BIAS, "unpaired", settings, "examples", names)


def compare_family(
    pairs: Pairs, design: Design = "paired", settings: ComparisonSettings | None = None
) -> TaskComparisons:
    """Compares two procedures on several evaluation sets with shared draws of seeds.

    Uses each set's first measure. The result has the macro-average, and p-values corrected for the
    number of sets.

    Args:
      pairs: (base, experiment) prediction sets, one pair per evaluation set.
      settings: settings of the comparison; by default with the published library's draws.
    """
    tasks = {}
    for base, experiment in pairs:
        data, metric = base.measured(base.measures[0])
        tasks[base.set_name] = TaskData(data, experiment.measured(base.measures[0])[0], metric)
    names = _names(*pairs[0]) if pairs else ("base", "experiment")
    return task_family.compare_family(tasks, replace(settings or PUBLISHED, design=design), names)


@dataclass
class Catalogue:
    """Prediction sets by role in the paper, and their cached comparisons.

    All methods raise DataError if their prediction sets are missing.

    Attributes:
      prediction_sets: predictions of all procedures; the last step of each is used.
      early_step: early step of the base, compared with its last; None: half of the last.
      steps_set: task or evaluation set of figure 7; None: the first set.
      parts: coordinate of examples (or `label`) that splits an evaluation set in figures, by name of the set,
        such as {"hans": "label"}.
      choices: choices of learning rates, for a table.
    """

    prediction_sets: Sequence[PredictionSet]
    roles: Roles = field(default_factory=Roles)
    settings: ComparisonSettings = PUBLISHED
    early_step: int | None = None
    steps_set: str | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    choices: Sequence[LearningRateChoice] = ()
    made_comparisons: list[Comparison] = field(default_factory=list)

    def last(self, procedure: str) -> dict[Key, PredictionSet]:
        """Returns the prediction sets of a procedure at its last step, by task and evaluation set."""
        sets = self._by_key(procedure)
        return {key: max(steps, key=lambda item: item.step or -1) for key, steps in sets.items()}

    def _by_key(self, procedure: str) -> dict[Key, list[PredictionSet]]:
        """Returns the prediction sets of all steps of a procedure, by task and evaluation set."""
        by_key: dict[Key, list[PredictionSet]] = {}
        for item in self.prediction_sets:
            if item.procedure == procedure:
                by_key.setdefault((item.task, item.evaluation_set), []).append(item)
        return by_key

    @property
    def trained(self) -> dict[str, list[PredictionSet]]:
        """Returns the steps of the base, by name of a set that has several."""
        steps = (
            [item for item in sets if item.step is not None]
            for sets in self._by_key(self.roles.base).values()
        )
        return {sets[0].set_name: sets for sets in steps if len(sets) > 1}

    def biased(self, *procedures: str) -> list[PredictionSet]:
        """Returns the prediction sets of these procedures with a bias measure; refuses none."""
        prediction_sets = [
            predictions
            for name in procedures
            for predictions in self.last(name).values()
            if BIAS in predictions.measures
        ]
        if not prediction_sets:
            names = " or ".join(procedures)
            raise DataError(f"found no predictions of {names} with the metric {metric_name(BIAS)}")
        return prediction_sets

    @property
    def winogender_groups(self) -> list[PredictionSet]:
        """Returns one prediction set with a bias measure per procedure."""
        return self.biased(self.roles.base, EXTRA, INCREMENTAL, FULL)

    @cached_property
    def scores(self) -> dict[tuple[str, str], list[RunScores]]:
        """Scores of the base and the original, by evaluation set and measure."""
        original = self.last(self.roles.original)
        return {
            (predictions.set_name, measure): [
                arm.run_scores(measure)
                for arm in (predictions, original.get(key))
                if arm is not None
            ]
            for key, predictions in self.last(self.roles.base).items()
            for measure in predictions.measures
        }

    @property
    def plain_sets(self) -> dict[Key, PredictionSet]:
        """Returns the base's sets with example scores, not occupation scores."""
        plain = {
            key: predictions
            for key, predictions in self.last(self.roles.base).items()
            if not set(predictions.measures) & set(OCCUPATION_MEASURES)
        }
        if not plain:
            raise DataError("found no evaluation set of the base except those of gender bias")
        return plain

    @cached_property
    def panels(self) -> list[ScorePanel]:
        """Scores of the base on every plain set, with the original as reference."""
        base, original = self.roles.base, self.roles.original
        references = self.last(original)
        return [
            ScorePanel(
                item.set_name,
                measure := item.measures[0],
                [item.run_scores(measure, base)],
                references[key].run_scores(measure, original) if key in references else None,
            )
            for key, item in self.plain_sets.items()
        ]

    @cached_property
    def step_panels(self) -> list[ScorePanel]:
        """Scores of the base's seeds that have both steps, on every plain set, figure 8."""
        panels = []
        for pair in self.pairs_of_steps:
            measure = pair[1].measures[0]
            early, late = (item.run_scores(measure, step_name(item.step or 0)) for item in pair)
            both = {seed: scores for seed, scores in late.by_seed.items() if seed in early.by_seed}
            panels.append(
                ScorePanel(pair[1].set_name, measure, [early, replace(late, by_seed=both)])
            )
        return panels

    @cached_property
    def hans(self) -> PredictionSet:
        """Returns the base on the pairs of HANS that are not entailed, figure 4."""
        for predictions in self.last(self.roles.base).values():
            if predictions.evaluation_set.lower() == HANS:
                data = predictions.data.isel(
                    example=np.flatnonzero(predictions.data["label"] == NOT_ENTAILED)
                )
                return replace(predictions, evaluation_set=f"{HANS}, not entailed", data=data)
        raise DataError(f"found no predictions of the base on the evaluation set {HANS}")

    def part_panels(self, evaluation_set: str, by: str) -> list[ScorePanel]:
        for (_, name), predictions in self.last(self.roles.base).items():
            if name == evaluation_set:
                measure = predictions.measures[0]
                return [
                    ScorePanel(part_name, measure, [part.run_scores(measure, self.roles.base)])
                    for part_name, part in predictions.split(by).items()
                ]
        raise DataError(f"found no predictions of the base on the evaluation set {evaluation_set}")

    def _compare(
        self,
        asked: Iterable[tuple[PredictionSet, PredictionSet, str]],
        design: Design,
        resample: Resample = "both",
    ) -> list[Comparison]:
        """Makes each requested comparison of base and experiment by a measure."""
        comparisons = [compare_pair(*item, design, self.settings, resample) for item in asked]
        self.made_comparisons += comparisons
        return comparisons

    def _on_winogender(
        self, base: str, experiment: str
    ) -> list[tuple[PredictionSet, PredictionSet, str]]:
        arms = [self.biased(name)[0] for name in (base, experiment)]
        return [(arms[0], arms[1], measure) for measure in (ACCURACY, BIAS)]

    @cached_property
    def paired(self) -> list[Comparison]:
        """Compares the base with incremental CDA, table 1."""
        return self._compare(self._on_winogender(self.roles.base, INCREMENTAL), "paired")

    @cached_property
    def unpaired(self) -> list[Comparison]:
        """Incremental against full CDA, the first rows of table 2."""
        asked = self._on_winogender(INCREMENTAL, FULL)
        return self._compare(asked, "unpaired")

    @cached_property
    def sources(self) -> list[Comparison]:
        """Compares incremental with full CDA by resampled units, the rest of table 2."""
        asked = self._on_winogender(INCREMENTAL, FULL)[1:]
        return [self._compare(asked, "unpaired", source)[0] for source in SOURCES]

    @cached_property
    def checkpoints(self) -> Comparison:
        """Compares two seeds with many fine-tuning runs, as in the paper, else two of the base."""
        name = EXTRA
        if not any(BIAS in predictions.measures for predictions in self.last(name).values()):
            name = self.roles.base
        predictions = self.biased(name)[0]
        seeds = predictions.run_scores(BIAS).seeds
        if len(seeds) < 2:
            raise DataError(
                f"{predictions.set_name}: found one seed of {predictions.name}, expected two"
            )
        comparisons = compare_checkpoints(predictions, seeds[0], seeds[1], settings=self.settings)
        self.made_comparisons.append(comparisons)
        return comparisons

    def _pairs(
        self, first: Mapping[Key, PredictionSet], second: Mapping[Key, PredictionSet], arms: str
    ) -> Pairs:
        pairs = [(first[key], second[key]) for key in first if key in second]
        if not pairs:
            raise DataError(f"found no evaluation set with predictions of both {arms}")
        return pairs

    @cached_property
    def early(self) -> dict[Key, PredictionSet]:
        """Returns the base at its early step, where that is not its last; may be empty."""
        steps = self._by_key(self.roles.base)
        early: dict[Key, PredictionSet] = {}
        for key, latest in self.plain_sets.items():
            final = latest.step or 0
            wanted = final // 2 if self.early_step is None else self.early_step
            early.update((key, item) for item in steps[key] if item.step == wanted != final)
        return early

    @property
    def pairs_of_steps(self) -> Pairs:
        """Returns the base at an early step and at its last, by evaluation set."""
        early_name = "half the last step" if self.early_step is None else step_name(self.early_step)
        return self._pairs(self.early, self.plain_sets, f"the base at {early_name} and at its last")

    @cached_property
    def steps(self) -> list[Comparison]:
        """Early against late checkpoints of the same seeds, by each set's first measure."""
        asked = [(early, late, early.measures[0]) for early, late in self.pairs_of_steps]
        return self._compare(asked, "paired")

    @property
    def shown_steps(self) -> Comparison:
        """Returns early against late checkpoints on one evaluation set, figure 7."""
        for (early, _), item in zip(self.pairs_of_steps, self.steps, strict=True):
            if self.steps_set in (None, early.task, early.evaluation_set, early.set_name):
                return item
        names = ", ".join(early.set_name for early, _ in self.pairs_of_steps)
        raise DataError(
            f"found no {self.steps_set!r} among the evaluation sets of both steps ({names})"
        )

    @cached_property
    def original(self) -> list[Comparison]:
        """Compares the original BERT, a fixed baseline, with the base by every measure of both.

        The paper drew the single seed of the original with replacement, which changes nothing.
        """
        return self._against_original(self.plain_sets)

    @cached_property
    def early_original(self) -> list[Comparison]:
        """Compares the base at its early step, too (appendix E); nothing without its predictions."""
        original = self.last(self.roles.original)
        early = {
            key: replace(item, procedure=f"{item.procedure}, {step_name(item.step or 0)}")
            for key, item in self.early.items()
            if key in original
        }
        return self._against_original(early) if early else []

    def _against_original(self, sets: Mapping[Key, PredictionSet]) -> list[Comparison]:
        original = self.last(self.roles.original)
        asked = [
            (base, experiment, measure)
            for base, experiment in self._pairs(original, sets, "the original and the base")
            for measure in experiment.measures
            if measure in base.measures
        ]
        return self._compare(asked, "fixed_baseline")

    @cached_property
    def family_of_steps(self) -> TaskComparisons:
        """Compares early with late checkpoints on all tasks together, by each task's first set."""
        by_task: dict[str, tuple[PredictionSet, PredictionSet]] = {}
        for pair in self.pairs_of_steps:
            by_task.setdefault(pair[0].task, pair)
        return compare_family(list(by_task.values()), settings=self.settings)

    @cached_property
    def agreements(self) -> dict[str, Agreement]:
        """Agreement of two runs, by evaluation set and part of it."""
        shares: dict[str, Agreement] = {}
        for predictions in self.plain_sets.values():
            prediction_sets = {predictions.set_name: predictions}
            if predictions.evaluation_set in self.parts:
                for name, part in predictions.split(self.parts[predictions.evaluation_set]).items():
                    prediction_sets[f"{predictions.set_name}, {name}"] = part
            for name, part in prediction_sets.items():
                shares[name] = agreement(part.data, confidence_level=self.settings.confidence_level)
        return shares

    @cached_property
    def components(self) -> dict[tuple[str, str], VarianceComponents]:
        return {
            (predictions.set_name, measure): predictions.components(measure)
            for predictions in self.last(self.roles.base).values()
            for measure in predictions.measures[:2]
        }


def group_scores(
    prediction_sets: Sequence[PredictionSet],
) -> dict[tuple[str, str], list[RunScores]]:
    """Scores groups of runs on Winogender, by (evaluation set, measure).

    Sellam et al. (ICLR 2022), section 4.1 and appendix D: mean over pre-training seeds of each group, after
    averaging the runs of a seed, and deviation over seeds. For the base the published notebook prints
    accuracy 62.7 +- 1.2 %, bias correlation 0.42 +- 0.10 and slope 0.45 +- 0.11 (the appendix calls the
    last a correlation).

    Args:
      prediction_sets: prediction sets on Winogender, one per group, in row order.
    """
    names = sorted({predictions.set_name for predictions in prediction_sets})
    if len(names) != 1:
        raise DataError(
            f"found groups of {', '.join(names) or 'no evaluation set'}, expected one set for all"
        )
    measures = [
        name
        for name in GROUP_MEASURES
        if all(name in predictions.measures for predictions in prediction_sets)
    ]
    return {
        (names[0], measure): [
            predictions.run_scores(measure, predictions.procedure)
            for predictions in prediction_sets
        ]
        for measure in measures
    }


def group_panels(prediction_sets: Sequence[PredictionSet]) -> list[ScorePanel]:
    """Returns the scores of `group_scores` as panels, one per measure."""
    return [
        ScorePanel("", measure, arms)
        for (_, measure), arms in group_scores(prediction_sets).items()
    ]
