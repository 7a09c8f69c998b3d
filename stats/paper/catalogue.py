"""What the tables and figures of the MultiBERTs paper are made of, found among some dumps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.conclusion import Comparison
from multiberts.stats.bootstrap.task_family import TaskComparisons
from multiberts.stats.instances.run_agreement import Agreement, agreement
from multiberts.stats.paper import comparisons as paper_comparisons
from multiberts.stats.paper.comparisons import BIAS, Bootstrap
from multiberts.stats.paper.figures import ScorePanel
from multiberts.stats.planning.components import VarianceComponents
from multiberts.stats.report.dumps import Dump, RunScores, step_name
from multiberts.stats.report.selection import Choice

Key = tuple[str, str]  # task, evaluation set
Pairs = list[tuple[Dump, Dump]]


@dataclass(frozen=True)
class Roles:
    """Which procedure plays which part of the paper.

    Attributes:
      base: pre-trained as BERT was.
      incremental: the base's checkpoints trained on with counterfactual data; paired with it.
      full: trained with counterfactual data from the start; seeds of its own.
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

    Everything raises DataError where the dumps it needs are not there.

    Attributes:
      dumps, roles, bootstrap, parts, choices: as `stats.paper.folder.paper_report` was given.
      made_comparisons: all comparisons that were made so far.
    """

    def __init__(
        self,
        dumps: Sequence[Dump],
        roles: Roles,
        bootstrap: Bootstrap,
        early_step: int | None,
        parts: Mapping[str, str],
        choices: Sequence[Choice],
    ):
        self.dumps = list(dumps)
        self.roles = roles
        self.bootstrap = bootstrap
        self._early_step = early_step
        self.parts = parts
        self.choices = choices
        self.made_comparisons: list[Comparison] = []

    def last(self, procedure: str) -> dict[Key, Dump]:
        """By task and evaluation set, the dump of a procedure at its last step."""
        found: dict[Key, Dump] = {}
        for dump in self.dumps:
            if dump.procedure != procedure:
                continue
            key = (dump.task, dump.evaluation_set)
            known = found.get(key)
            if known is None or (dump.step or -1) > (known.step or -1):
                found[key] = dump
        return found

    def _pairs(self, first: Mapping[Key, Dump], second: Mapping[Key, Dump], what: str) -> Pairs:
        pairs = [(first[key], second[key]) for key in first if key in second]
        if not pairs:
            raise DataError(f"found no evaluation set with dumps of both {what}")
        return pairs

    def biased(self, procedure: str) -> Dump:
        """The dump of a procedure that bias can be measured on."""
        for dump in self.last(procedure).values():
            if BIAS in dump.measures:
                return dump
        raise DataError(f"found no dump of {procedure!r} with the measure {BIAS}")

    @property
    def winogender_groups(self) -> list[Dump]:
        """Of the procedures that bias was measured on, a dump each."""
        names = (self.roles.base, self.roles.extra, self.roles.incremental, self.roles.full)
        found = [
            dump for name in names for dump in self.last(name).values() if BIAS in dump.measures
        ]
        if not found:
            raise DataError(f"found no dump with the measure {BIAS}")
        return found

    def _keep(self, comparisons: list[Comparison]) -> list[Comparison]:
        self.made_comparisons += comparisons
        return comparisons

    @cached_property
    def scores(self) -> dict[tuple[str, str], list[RunScores]]:
        """By evaluation set and measure, the base and the original."""
        base, original = (self.last(name) for name in (self.roles.base, self.roles.original))
        scores = {}
        for key, dump in base.items():
            for measure in dump.measures:
                arms = [dump, *([original[key]] if key in original else [])]
                scores[dump.set_name, measure] = [arm.run_scores(measure) for arm in arms]
        return scores

    @property
    def plain_sets(self) -> dict[Key, Dump]:
        """Sets of the base that are scored example by example, not by occupation."""
        found = {
            key: dump
            for key, dump in self.last(self.roles.base).items()
            if not set(dump.measures) & set(OCCUPATION_MEASURES)
        }
        if not found:
            raise DataError("found no evaluation set of the base but those of gender bias")
        return found

    @cached_property
    def panels(self) -> list[ScorePanel]:
        original = self.last(self.roles.original)
        return [
            ScorePanel(
                dump.set_name,
                dump.measures[0],
                [dump.run_scores(dump.measures[0], self.roles.base)],
                original[key].run_scores(dump.measures[0], self.roles.original)
                if key in original
                else None,
            )
            for key, dump in self.plain_sets.items()
        ]

    def part_panels(self, evaluation_set: str, by: str) -> list[ScorePanel]:
        dumps = [
            dump for (_, name), dump in self.last(self.roles.base).items() if name == evaluation_set
        ]
        if not dumps:
            raise DataError(f"found no dump of the base on the evaluation set {evaluation_set!r}")
        measure = dumps[0].measures[0]
        return [
            ScorePanel(name, measure, [part.run_scores(measure, self.roles.base)])
            for name, part in dumps[0].split(by).items()
        ]

    @cached_property
    def paired(self) -> list[Comparison]:
        base, incremental = (
            self.biased(name) for name in (self.roles.base, self.roles.incremental)
        )
        return self._keep(
            paper_comparisons.compare_measures(base, incremental, bootstrap=self.bootstrap)
        )

    @cached_property
    def unpaired(self) -> list[Comparison]:
        sides = [self.biased(name) for name in (self.roles.incremental, self.roles.full)]
        return self._keep(
            paper_comparisons.compare_measures(
                sides[0], sides[1], design="unpaired", bootstrap=self.bootstrap
            )
        )

    @cached_property
    def sources(self) -> list[Comparison]:
        sides = [self.biased(name) for name in (self.roles.incremental, self.roles.full)]
        return self._keep(
            paper_comparisons.compare_sources(sides[0], sides[1], bootstrap=self.bootstrap)
        )

    @cached_property
    def checkpoints(self) -> Comparison:
        """Of the seeds with many fine-tuning runs, as in the paper; where there are none, the base."""
        try:
            dump = self.biased(self.roles.extra)
        except DataError:
            dump = self.biased(self.roles.base)
        seeds: tuple[Hashable, ...] = dump.run_scores(BIAS).seeds
        if len(seeds) < 2:
            raise DataError(f"{dump.set_name}: found one seed of {dump.name}, expected two")
        return self._keep(
            [
                paper_comparisons.compare_checkpoints(
                    dump, seeds[0], seeds[1], bootstrap=self.bootstrap
                )
            ]
        )[0]

    @cached_property
    def pairs_of_steps(self) -> Pairs:
        last = self.plain_sets
        early: dict[Key, Dump] = {}
        for dump in self.dumps:
            key = (dump.task, dump.evaluation_set)
            if dump.procedure != self.roles.base or key not in last or dump.step is None:
                continue
            wanted = self._early_step
            if wanted is None and last[key].step:
                wanted = (last[key].step or 0) // 2
            if dump.step == wanted and dump.step != last[key].step:
                early[key] = dump
        what = "half the last step"
        if self._early_step is not None:
            what = step_name(self._early_step)
        return self._pairs(early, last, f"the base at {what} and at its last")

    @cached_property
    def steps(self) -> list[Comparison]:
        return self._keep(paper_comparisons.compare_steps(self.pairs_of_steps, self.bootstrap))

    @cached_property
    def original(self) -> list[Comparison]:
        pairs = self._pairs(
            self.last(self.roles.original), self.plain_sets, "the original and the base"
        )
        return self._keep(paper_comparisons.compare_with_checkpoint(pairs, self.bootstrap))

    @cached_property
    def family_of_steps(self) -> TaskComparisons:
        return paper_comparisons.compare_family(self.pairs_of_steps, bootstrap=self.bootstrap)

    @cached_property
    def agreements(self) -> dict[str, Agreement]:
        found: dict[str, Agreement] = {}
        for dump in self.plain_sets.values():
            found[dump.set_name] = agreement(dump.data, confidence=self.bootstrap.confidence)
            if dump.evaluation_set in self.parts:
                for name, part in dump.split(self.parts[dump.evaluation_set]).items():
                    found[f"{dump.set_name}, {name}"] = agreement(
                        part.data, confidence=self.bootstrap.confidence
                    )
        return found

    @cached_property
    def components(self) -> dict[tuple[str, str], VarianceComponents]:
        """By evaluation set and measure, of the base; of two measures a set."""
        return {
            (dump.set_name, measure): dump.components(measure)
            for dump in self.last(self.roles.base).values()
            for measure in dump.measures[:2]
        }
