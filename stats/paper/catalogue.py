"""What the tables and figures of the MultiBERTs paper are made of, found among some dumps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.conclusion import Comparison, Design
from multiberts.stats.bootstrap.task_family import TaskComparisons
from multiberts.stats.instances.run_agreement import Agreement, agreement
from multiberts.stats.paper import comparisons as paper_comparisons
from multiberts.stats.paper.comparisons import BIAS, Bootstrap
from multiberts.stats.paper.figures import ScorePanel
from multiberts.stats.planning.components import VarianceComponents
from multiberts.stats.report.dumps import Dump, RunScores, step_name
from multiberts.stats.report.learning_rate_choice import LearningRateChoice

Key = tuple[str, str]  # task, evaluation set
Pairs = list[tuple[Dump, Dump]]
GROUP_MEASURES = ("accuracy", *OCCUPATION_MEASURES)


@dataclass(frozen=True)
class Roles:
    """Which procedure plays which part of the paper.

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


class Catalogue:
    """Dumps sorted by their part in the paper, and what is made of them, each thing once.

    All methods raise DataError where the dumps they need are missing.

    Attributes:
      dumps, roles, bootstrap, parts, choices: as given to `stats.paper.reproduction.paper_report`.
      made_comparisons: all comparisons that were made so far.
    """

    def __init__(
        self,
        dumps: Sequence[Dump],
        roles: Roles,
        bootstrap: Bootstrap,
        early_step: int | None,
        parts: Mapping[str, str],
        choices: Sequence[LearningRateChoice],
    ):
        self.dumps = list(dumps)
        self.roles = roles
        self.bootstrap = bootstrap
        self._early_step = early_step
        self.parts = parts
        self.choices = choices
        self.made_comparisons: list[Comparison] = []

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

    def _keep(self, comparisons: list[Comparison]) -> list[Comparison]:
        self.made_comparisons += comparisons
        return comparisons

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

    def _compare_bias(self, base: str, experiment: str, design: Design) -> list[Comparison]:
        sides = [self.biased(name)[0] for name in (base, experiment)]
        return self._keep(
            paper_comparisons.compare_measures(
                sides[0], sides[1], design=design, bootstrap=self.bootstrap
            )
        )

    @cached_property
    def paired(self) -> list[Comparison]:
        """Returns the base against incremental CDA."""
        return self._compare_bias(self.roles.base, self.roles.incremental, "paired")

    @cached_property
    def unpaired(self) -> list[Comparison]:
        """Incremental against full CDA."""
        return self._compare_bias(self.roles.incremental, self.roles.full, "unpaired")

    @cached_property
    def sources(self) -> list[Comparison]:
        """Incremental against full CDA, by what is resampled."""
        sides = [self.biased(name)[0] for name in (self.roles.incremental, self.roles.full)]
        return self._keep(
            paper_comparisons.compare_sources(sides[0], sides[1], bootstrap=self.bootstrap)
        )

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
        found = paper_comparisons.compare_checkpoints(
            dump, seeds[0], seeds[1], bootstrap=self.bootstrap
        )
        return self._keep([found])[0]

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
                wanted = final // 2 if self._early_step is None else self._early_step
                if dump.step == wanted != final:
                    early[key] = dump
        what = "half the last step" if self._early_step is None else step_name(self._early_step)
        return self._pairs(early, last, f"the base at {what} and at its last")

    @cached_property
    def steps(self) -> list[Comparison]:
        """Early against late checkpoints."""
        return self._keep(paper_comparisons.compare_steps(self.pairs_of_steps, self.bootstrap))

    @cached_property
    def original(self) -> list[Comparison]:
        """Returns the original BERT against the base."""
        pairs = self._pairs(
            self.last(self.roles.original), self.plain_sets, "the original and the base"
        )
        return self._keep(paper_comparisons.compare_with_checkpoint(pairs, self.bootstrap))

    @cached_property
    def family_of_steps(self) -> TaskComparisons:
        """Early against late checkpoints on all sets together."""
        return paper_comparisons.compare_family(self.pairs_of_steps, bootstrap=self.bootstrap)

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
                found[name] = agreement(part.data, confidence=self.bootstrap.confidence)
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
