"""Finds the inputs of the MultiBERTs paper's tables and figures among some predictions.

Numbers of tables and figures are those of Sellam et al. (ICLR 2022) and of its published notebooks:
tables 1 and 2 and figure 3 belong to section 4 (coreference, gender bias), table 4 and figures 5 and
6 to appendix D, 1M against 2M steps to appendix E.1 and the original BERT to E.2.

By default the draws are those of the published library, so that the same predictions give the same
samples; the recommended interval and p stand alongside the published ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.stats.compare import tasks as task_family
from multiberts.stats.compare.question import TaskData
from multiberts.stats.compare.result import Comparison
from multiberts.stats.compare.tasks import TaskComparisons
from multiberts.stats.errors import DataError
from multiberts.stats.instances.run_agreement import Agreement, agreement
from multiberts.stats.paper.figures import ScorePanel
from multiberts.stats.presentation.wording import SOURCES
from multiberts.stats.report.dumps import Dump, RunScores, compare_dumps, step_name
from multiberts.stats.report.selection import LearningRateChoice
from multiberts.stats.settings import ComparisonSettings, Design, Resample
from multiberts.stats.variance.components import VarianceComponents

Key = tuple[str, str]  # task, evaluation set
Pairs = Sequence[tuple[Dump, Dump]]
ACCURACY = "accuracy"
BIAS = "bias_correlation"
HANS, NOT_ENTAILED = "hans", 0  # the label of `finetune.text.challenge_sets.TWO_WAY`
# Its draws, so that the same predictions give the same samples; it has no studentised interval.
PUBLISHED = ComparisonSettings(draws="published", studentised=False)
GROUP_MEASURES = (ACCURACY, *OCCUPATION_MEASURES)


@dataclass(frozen=True)
class Roles:
    """Procedures by their part in the paper.

    Attributes:
      base: pre-trained as BERT was.
      incremental: the base's checkpoints trained further on counterfactual data; paired with it.
      full: trained on counterfactual data from the start; has seeds of its own.
      original: the published BERT checkpoint.
      extra: the base's first seeds with many fine-tuning runs each.
    """

    base: str = "base"
    incremental: str = "cda_incr"
    full: str = "cda_full"
    original: str = "original"
    extra: str = "base_extra_seeds"


def compare_pair(
    base: Dump,
    experiment: Dump,
    measure: str,
    design: Design = "paired",
    settings: ComparisonSettings | None = None,
    resample: Resample = "both",
    names: tuple[str, str] | None = None,
) -> Comparison:
    """Compares two dumps by a measure, named by what differs between them: procedure or step."""
    settings = replace(settings or PUBLISHED, design=design, resample=resample)
    return compare_dumps(base, experiment, measure, settings, names or _names(base, experiment))


def _names(base: Dump, experiment: Dump) -> tuple[str, str]:
    if base.procedure != experiment.procedure:
        return base.procedure, experiment.procedure
    if base.step == experiment.step or base.step is None or experiment.step is None:
        return f"{base.name} (base)", f"{experiment.name} (experiment)"
    return step_name(base.step), step_name(experiment.step)


def compare_checkpoints(
    dump: Dump,
    base_seed: Hashable,
    experiment_seed: Hashable,
    measure: str = BIAS,
    settings: ComparisonSettings | None = None,
) -> Comparison:
    """Compares two pre-training seeds of one procedure, with only examples resampled.

    The paper's table 4: such a comparison is about these two checkpoints, not about a procedure.

    Raises:
      DataError: the dump lacks a seed.
    """
    seeds = dump.data["pretrain_seed"].to_numpy().tolist()
    sides = []
    for seed in (base_seed, experiment_seed):
        rows = [row for row, own in enumerate(seeds) if own == seed]
        if not rows:
            raise DataError(
                f"{dump.set_name} of {dump.name} has no pre-training seed {seed!r}, only "
                f"{sorted(set(seeds), key=str)}; choose two of these"
            )
        sides.append(replace(dump, data=dump.data.isel(run=rows)))
    names = (f"seed {base_seed}", f"seed {experiment_seed}")
    return compare_pair(sides[0], sides[1], measure, "unpaired", settings, "examples", names)


def compare_family(
    pairs: Pairs, design: Design = "paired", settings: ComparisonSettings | None = None
) -> TaskComparisons:
    """Compares two procedures on several evaluation sets with shared draws of seeds.

    Uses each set's first measure. The result has the macro-average, and p-values corrected for the
    number of sets.

    Args:
      pairs: (base, experiment) dumps, one pair per evaluation set.
      design: of all.
      settings: how; by default with the draws of the published library.

    Raises:
      DataError: there are no pairs, or the dumps do not fit together.
    """
    tasks = {}
    for base, experiment in pairs:
        data, metric = base.measured(base.measures[0])
        tasks[base.set_name] = TaskData(data, experiment.measured(base.measures[0])[0], metric)
    names = _names(*pairs[0]) if pairs else ("base", "experiment")
    return task_family.compare_family(tasks, replace(settings or PUBLISHED, design=design), names)


@dataclass
class Catalogue:
    """Dumps sorted by their part in the paper, and what is made of them, each thing once.

    All methods raise DataError where the dumps they need are missing.

    Attributes:
      dumps: predictions of all procedures; the last step of each is used.
      roles: which procedure is which.
      settings: how comparisons are made.
      early_step: the step of the base that its last is compared with; None: half of the last.
      parts: by name of an evaluation set, the coordinate of its examples (or `label`) by which its
        scores are drawn separately, such as {"hans": "label"}.
      choices: how learning rates were chosen, for a table.
      made_comparisons: all comparisons that were made so far.
    """

    dumps: Sequence[Dump]
    roles: Roles = field(default_factory=Roles)
    settings: ComparisonSettings = PUBLISHED
    early_step: int | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    choices: Sequence[LearningRateChoice] = ()
    made_comparisons: list[Comparison] = field(default_factory=list)

    def last(self, procedure: str) -> dict[Key, Dump]:
        """Returns the dumps of a procedure at its last step, by task and evaluation set."""
        found: dict[Key, Dump] = {}
        for dump in self.dumps:
            if dump.procedure == procedure:
                known = found.setdefault((dump.task, dump.evaluation_set), dump)
                if (dump.step or -1) > (known.step or -1):
                    found[dump.task, dump.evaluation_set] = dump
        return found

    def biased(self, *procedures: str) -> list[Dump]:
        """Returns the dumps of some procedures that bias can be measured on, one at least."""
        found = [
            dump
            for name in procedures
            for dump in self.last(name).values()
            if BIAS in dump.measures
        ]
        if not found:
            names = " or ".join(map(repr, procedures))
            raise DataError(f"found no dump of {names} with the measure {BIAS}")
        return found

    @property
    def winogender_groups(self) -> list[Dump]:
        """Returns one dump per procedure that bias was measured on."""
        roles = self.roles
        return self.biased(roles.base, roles.extra, roles.incremental, roles.full)

    @cached_property
    def scores(self) -> dict[tuple[str, str], list[RunScores]]:
        """Scores of the base and the original, by evaluation set and measure."""
        original = self.last(self.roles.original)
        return {
            (dump.set_name, measure): [
                arm.run_scores(measure) for arm in (dump, original.get(key)) if arm is not None
            ]
            for key, dump in self.last(self.roles.base).items()
            for measure in dump.measures
        }

    @property
    def plain_sets(self) -> dict[Key, Dump]:
        """Sets of the base that are scored example by example, not by occupation."""
        found = {
            key: dump
            for key, dump in self.last(self.roles.base).items()
            if not set(dump.measures) & set(OCCUPATION_MEASURES)
        }
        if not found:
            raise DataError("found no evaluation set of the base except those of gender bias")
        return found

    @cached_property
    def panels(self) -> list[ScorePanel]:
        """Scores of the base on every plain set, with the original as reference."""
        original = self.last(self.roles.original)
        panels = []
        for key, dump in self.plain_sets.items():
            measure, reference = dump.measures[0], original.get(key)
            arms = [dump.run_scores(measure, self.roles.base)]
            panel = ScorePanel(dump.set_name, measure, arms)
            if reference is not None:
                scores = reference.run_scores(measure, self.roles.original)
                panel = replace(panel, reference=scores)
            panels.append(panel)
        return panels

    @cached_property
    def step_panels(self) -> list[ScorePanel]:
        """Scores of the base at an early step and at its last on every plain set, figure 8."""
        return [
            ScorePanel(
                late.set_name,
                late.measures[0],
                [
                    dump.run_scores(late.measures[0], step_name(dump.step or 0))
                    for dump in (early, late)
                ],
            )
            for early, late in self.pairs_of_steps
        ]

    @cached_property
    def hans(self) -> Dump:
        """Returns the base on the pairs of HANS that are not entailed, figure 4."""
        for dump in self.last(self.roles.base).values():
            if dump.evaluation_set.lower() == HANS:
                data = dump.data.isel(example=np.flatnonzero(dump.data["label"] == NOT_ENTAILED))
                return replace(dump, evaluation_set=f"{HANS}, not entailed", data=data)
        raise DataError(f"found no dump of the base on the evaluation set {HANS!r}")

    def part_panels(self, evaluation_set: str, by: str) -> list[ScorePanel]:
        """Scores of the base on the parts of an evaluation set."""
        for (_, name), dump in self.last(self.roles.base).items():
            if name == evaluation_set:
                measure = dump.measures[0]
                return [
                    ScorePanel(part_name, measure, [part.run_scores(measure, self.roles.base)])
                    for part_name, part in dump.split(by).items()
                ]
        raise DataError(f"found no dump of the base on the evaluation set {evaluation_set!r}")

    def _compare(
        self,
        asked: Iterable[tuple[Dump, Dump, str]],
        design: Design,
        resample: Resample = "both",
    ) -> list[Comparison]:
        """Compares base and experiment by a measure, for each of those asked for."""
        found = [compare_pair(*item, design, self.settings, resample) for item in asked]
        self.made_comparisons += found
        return found

    def _on_winogender(self, base: str, experiment: str) -> list[tuple[Dump, Dump, str]]:
        sides = [self.biased(name)[0] for name in (base, experiment)]
        return [(sides[0], sides[1], measure) for measure in (ACCURACY, BIAS)]

    @cached_property
    def paired(self) -> list[Comparison]:
        """Compares the base with incremental CDA, table 1."""
        return self._compare(self._on_winogender(self.roles.base, self.roles.incremental), "paired")

    @cached_property
    def unpaired(self) -> list[Comparison]:
        """Incremental against full CDA, the first rows of table 2."""
        asked = self._on_winogender(self.roles.incremental, self.roles.full)
        return self._compare(asked, "unpaired")

    @cached_property
    def sources(self) -> list[Comparison]:
        """Incremental against full CDA by what is resampled, the rest of table 2."""
        asked = self._on_winogender(self.roles.incremental, self.roles.full)[1:]
        return [self._compare(asked, "unpaired", source)[0] for source in SOURCES]

    @cached_property
    def checkpoints(self) -> Comparison:
        """Two of the seeds with many fine-tuning runs, as in the paper, or else of the base."""
        name = self.roles.extra
        if not any(BIAS in dump.measures for dump in self.last(name).values()):
            name = self.roles.base
        dump = self.biased(name)[0]
        seeds = dump.run_scores(BIAS).seeds
        if len(seeds) < 2:
            raise DataError(f"{dump.set_name}: found one seed of {dump.name}, expected two")
        found = compare_checkpoints(dump, seeds[0], seeds[1], settings=self.settings)
        self.made_comparisons.append(found)
        return found

    def _pairs(self, first: Mapping[Key, Dump], second: Mapping[Key, Dump], what: str) -> Pairs:
        pairs = [(first[key], second[key]) for key in first if key in second]
        if not pairs:
            raise DataError(f"found no evaluation set with dumps of both {what}")
        return pairs

    @cached_property
    def pairs_of_steps(self) -> Pairs:
        """Returns the base at an early step and at its last, by evaluation set."""
        last = self.plain_sets
        early: dict[Key, Dump] = {}
        for dump in self.dumps:
            key = (dump.task, dump.evaluation_set)
            if dump.procedure == self.roles.base and key in last and dump.step is not None:
                final = last[key].step or 0
                wanted = final // 2 if self.early_step is None else self.early_step
                if dump.step == wanted != final:
                    early[key] = dump
        what = "half the last step" if self.early_step is None else step_name(self.early_step)
        return self._pairs(early, last, f"the base at {what} and at its last")

    @cached_property
    def steps(self) -> list[Comparison]:
        """Early against late checkpoints of the same seeds, by each set's first measure."""
        asked = [(early, late, early.measures[0]) for early, late in self.pairs_of_steps]
        return self._compare(asked, "paired")

    @cached_property
    def original(self) -> list[Comparison]:
        """Compares the original BERT, a fixed baseline, with the base by every measure of both.

        In the paper the one seed of the original was drawn with replacement, which leaves it as it is.
        """
        pairs = self._pairs(
            self.last(self.roles.original), self.plain_sets, "the original and the base"
        )
        asked = [
            (base, experiment, measure)
            for base, experiment in pairs
            for measure in experiment.measures
            if measure in base.measures
        ]
        return self._compare(asked, "fixed_baseline")

    @cached_property
    def family_of_steps(self) -> TaskComparisons:
        """Early against late checkpoints on all sets together."""
        return compare_family(self.pairs_of_steps, settings=self.settings)

    @cached_property
    def agreements(self) -> dict[str, Agreement]:
        """Agreement of two runs, by evaluation set and part of it."""
        found: dict[str, Agreement] = {}
        for dump in self.plain_sets.values():
            dumps = {dump.set_name: dump}
            if dump.evaluation_set in self.parts:
                for name, part in dump.split(self.parts[dump.evaluation_set]).items():
                    dumps[f"{dump.set_name}, {name}"] = part
            for name, part in dumps.items():
                found[name] = agreement(part.data, confidence_level=self.settings.confidence_level)
        return found

    @cached_property
    def components(self) -> dict[tuple[str, str], VarianceComponents]:
        """Variance components of the base, by evaluation set and measure (two per set)."""
        return {
            (dump.set_name, measure): dump.components(measure)
            for dump in self.last(self.roles.base).values()
            for measure in dump.measures[:2]
        }


def group_scores(dumps: Sequence[Dump]) -> dict[tuple[str, str], list[RunScores]]:
    """Scores groups of runs on Winogender, by (evaluation set, measure).

    Sellam et al. (ICLR 2022), section 4 and appendix D: of each group the mean over pre-training
    seeds, the runs of a seed averaged first, and the deviation over seeds. For the base the published
    notebook prints accuracy 62.7 +- 1.2 %, bias correlation 0.42 +- 0.10 and slope 0.45 +- 0.11 (the
    appendix calls the last a correlation).

    Args:
      dumps: on Winogender, one per group, in the order of the rows.

    Raises:
      DataError: there are no dumps, or they are of several evaluation sets.
    """
    names = sorted({dump.set_name for dump in dumps})
    if len(names) != 1:
        raise DataError(
            f"found groups of {', '.join(names) or 'no evaluation set'}, expected one set for all"
        )
    measures = [name for name in GROUP_MEASURES if all(name in dump.measures for dump in dumps)]
    return {
        (names[0], measure): [dump.run_scores(measure, dump.procedure) for dump in dumps]
        for measure in measures
    }


def group_panels(dumps: Sequence[Dump]) -> list[ScorePanel]:
    """Returns the scores of `group_scores` as panels, one per measure."""
    return [ScorePanel("", measure, arms) for (_, measure), arms in group_scores(dumps).items()]
