"""Seeds and examples that a comparison draws, as bootstrap jobs and as a sum of tables."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from multiberts.evaluate.metrics.answer_checks import labelled_averages
from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats.bootstrap.answer_pairs import paired_answers
from multiberts.stats.bootstrap.pseudo_values import job_table, scored_counts
from multiberts.stats.bootstrap.replicates import Replicates, ScoreJob, bootstrap, draws_of
from multiberts.stats.compare.checks import answers_of, are_repeats, check_defined, settings_of
from multiberts.stats.compare.failures import failures_of
from multiberts.stats.compare.prepared_arms import PreparedArms, check_seeds
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import AnswerPairs, interval_of_score, spread_of
from multiberts.stats.metrics import FunctionMetric, MetricLike
from multiberts.stats.results import ArmSummary
from multiberts.stats.runs_table import Arm
from multiberts.stats.score import Score
from multiberts.stats.settings import ComparisonSettings, Design, Pairing
from multiberts.stats.variance.crossing import Crossing, Term
from multiberts.stats.variance.score_tables import TablePart, rows_of

# Bootstrap scores, drawn when they are first asked for.
Draws = Callable[[], Replicates]

# Pools that the seeds of base and experiment are drawn from; None: held fixed.
_POOLS: Mapping[Design, tuple[str | None, ...]] = {
    "single": ("seeds",),
    "paired": ("seeds", "seeds"),
    "unpaired": ("seeds of base", "seeds of experiment"),
    "fixed_baseline": (None, "seeds"),
}
_ROLES = ("base", "experiment")


@dataclass(frozen=True, eq=False)
class ComparisonSpec:
    """Arms, metric and design as bootstrap jobs and as a crossing of tables.

    Attributes:
      prepared, settings: arms and settings of the comparison; design and resampled units are known.
      examples: name of the set of drawn examples, or None.
      jobs: bootstrap jobs of the arms' scores.
      prior: variance between seeds for arms with one seed, as in `Crossing`.
    """

    prepared: PreparedArms
    settings: ComparisonSettings
    examples: str | None
    jobs: tuple[ScoreJob, ...]
    prior: Term = (0.0, 0.0)

    @classmethod
    def of(
        cls,
        prepared: PreparedArms,
        settings: ComparisonSettings,
        examples: str = "",
        shared: SharedArms | None = None,
        prior: Term = (0.0, 0.0),
    ) -> ComparisonSpec:
        """Checks the drawn seeds and the scores, and makes the bootstrap jobs.

        Args:
          examples: name of the set of examples; specs with the same name share its draws.
        """
        settings = settings_of(prepared.arms, settings)
        if not prior[1]:
            _check_drawn_seeds(prepared.arms, settings)
        fixed = settings.resample == "examples"
        pools = [None if fixed else pool for pool in _POOLS[settings.laid_out]]
        name = None if settings.resample == "seeds" else f"{examples} examples"
        job = (shared or SharedArms()).job
        jobs = tuple(
            job(arm, prepared.metric, pool, name)
            for arm, pool in zip(prepared.arms, pools, strict=False)
        )
        for role, scored in zip(_ROLES, jobs, strict=False):
            check_defined(role, scored)
        return cls(prepared, settings, name, jobs, prior)

    @property
    def arms(self) -> tuple[Arm, ...]:
        return self.prepared.arms

    @property
    def metric(self) -> MetricLike:
        return self.prepared.metric

    @property
    def score(self) -> Score:
        return Score.of(self.metric)

    @cached_property
    def parts(self) -> list[TablePart]:
        """Returns the arms' tables, whose weighted sum is the estimate."""
        weights = [1.0] if len(self.jobs) == 1 else [-1.0, 1.0]
        return [part_of(job, weight) for job, weight in zip(self.jobs, weights, strict=True)]

    @cached_property
    def crossing(self) -> Crossing:
        return Crossing(self.parts, self.prior)

    @cached_property
    def crossings(self) -> list[Crossing]:
        """Returns a crossing for each arm. One with several seeds needs no borrowed variance."""
        return [
            Crossing(
                [replace(part, weight=1.0)], self.prior if part.table.shape[0] == 1 else (0.0, 0.0)
            )
            for part in self.parts
        ]

    @cached_property
    def pairs(self) -> AnswerPairs | None:
        """Returns the arms' answers to the same examples; None if they are not paired."""
        return paired_answers(*self.jobs) if len(self.jobs) > 1 else None

    @cached_property
    def unpaired(self) -> Crossing | None:
        """Returns the crossing with one pool of seeds per arm, for a paired design."""
        if self.settings.design != "paired" or self.settings.resample == "examples":
            return None
        pools = zip(self.parts, _POOLS["unpaired"], strict=True)
        return Crossing([replace(part, pool=pool) for part, pool in pools])

    @property
    def pairing(self) -> Pairing | None:
        return pairing_of(self.arms, self.settings)

    @property
    def is_defined(self) -> bool:
        """Returns whether no replicate can be 0/0: a mean over all examples always has some to divide by."""
        return self.score.is_mean and all(arm.observed is None for arm in self.arms)

    def without(self, summaries: Sequence[ArmSummary]) -> Crossing | None:
        """Returns the crossing without failed seeds; None if no seed failed or too few are left.

        It is None for a single arm, too: if the lowest seeds did train, leaving them out biases a score
        upwards (but not a difference).
        """
        if len(self.jobs) == 1:
            return None
        failed = [set(arm.failed_seeds) for arm in summaries]
        if self.jobs[0].pool is not None and len({job.pool for job in self.jobs}) == 1:
            failed = [set().union(*failed)] * len(failed)  # pairs
        if not any(failed):
            return None
        parts = []
        for part, arm, lost in zip(self.parts, self.arms, failed, strict=True):
            rows = [row for row, seed in enumerate(arm.seeds) if seed not in lost]
            if len(rows) < (1 if part.pool is None else 2):
                return None
            parts.append(replace(part, table=rows_of(part.table, rows)))
        return Crossing(parts, self.prior)

    def over_labels(self) -> tuple[float, ...]:
        """Returns `Comparison.over_labels`."""
        answers = answers_of(self.arms, self.metric)
        return labelled_averages(self.metric.name, self.arms[0].labels, answers) if answers else ()

    def summaries(self, names: Sequence[str], draws: Draws | None = None) -> list[ArmSummary]:
        """Summarises each arm; without draws, bootstrap intervals are left out."""
        arms = enumerate(zip(self.jobs, self.crossings, names, strict=False))
        return [summarise_arm(*arm, self.settings, draws, column) for column, arm in arms]


def _check_drawn_seeds(arms: Sequence[Arm], settings: ComparisonSettings) -> None:
    """Refuses a drawn arm with one seed; the message lists the ways out for its role."""
    drawn = [*zip(_ROLES, arms, strict=False)][settings.design == "fixed_baseline" :]
    for role, arm in drawn:
        cures = ["borrow their spread (seed_sd='NUMBER')"] * (arm.num_examples > 1)
        if role == "base" and len((*arms[-1].seeds, *arms[-1].left_out)) > 1:
            is_one = "fixed_baseline' to ask about this model alone"
            of_others = "unpaired' if seeds of one number are unrelated"
            cures.append(f"give design='{of_others if arm.left_out else is_one}")
        check_seeds({role: arm}, settings, cures)


def family_draws(jobs: Sequence[ScoreJob], settings: ComparisonSettings) -> Draws:
    """Returns the bootstrap of all jobs of a family of comparisons, drawn together when it is first called.

    It is drawn at once if a score may not be finite, which is refused: only our own metrics are known to
    define their value at 0/0.
    """

    @functools.cache
    def draw() -> Replicates:
        replicates = bootstrap(jobs, draws_of(settings), settings.n_resamples)
        if not np.isfinite(replicates.scores).all():
            names = sorted({job.score.name for job in jobs})
            raise DataError(
                f"found nan or infinite scores in bootstrap samples of {', '.join(names)}; define the "
                "score's value where it is 0/0"
            )
        return replicates

    if not all(map(_is_finite, jobs)):
        draw()
    return draw


def _is_finite(job: ScoreJob) -> bool:
    is_ours = Score.of(job.score).is_mean or job.score in METRICS.values()
    return is_ours and bool(np.isfinite(job.plain[0]).all())


def part_of(job: ScoreJob, weight: float = 1.0) -> TablePart:
    """Returns an arm's table [seeds, examples] as a term of a sum."""
    pools = job.pool, job.examples
    return TablePart(job_table(job), weight, *pools, scored_counts(job), job.arm.cluster_sizes)


def summarise_arm(
    job: ScoreJob,
    crossing: Crossing,
    name: str,
    settings: ComparisonSettings,
    draws: Draws | None,
    column: int,
) -> ArmSummary:
    """Summarises one arm, whose bootstrap scores are a column of the draws."""
    arm, scores, confidence_level = job.arm, job.plain[0][0], settings.confidence_level
    estimate = float(scores.mean())
    units = len(arm.seeds) if settings.resample == "seeds" else _num_scored(job, estimate)
    return ArmSummary(
        name,
        estimate,
        interval_of_score(crossing, estimate, confidence_level, Score.of(job.score), units),
        arm.seeds,
        scores,
        len(arm.run_seeds),
        arm.num_examples,
        None if arm.clusters is None else arm.num_units,
        arm.cluster_name,
        arm.left_out,
        *failures_of(job, crossing, scores, confidence_level),
        *spread_of(crossing),
        crossing.example_error,
        units,
        0 if arm.observed is None else int((~arm.observed).sum()),
        are_repeats(arm),
        None if draws is None else lambda: draws().scores[:, column],
    )


def _num_scored(job: ScoreJob, estimate: float) -> float:
    """Returns the effective number of examples of a score near its bounds.

    For an average of ratios it is the smallest denominator times the number of ratios. Near the lower bound
    F1 grows faster than the share of right answers, as if there were fewer examples.
    """
    counts = scored_counts(job)
    if not counts or isinstance(job.score, FunctionMetric):
        return job.arm.num_units
    low, high = Score.of(job.score).ends
    steepness = job.score.steepness if estimate < (low + high) / 2 else 1.0
    return max(1.0, len(counts) * min(counts) / steepness)


def pairing_of(arms: Sequence[Arm], settings: ComparisonSettings) -> Pairing | None:
    """Returns the basis of pairing: `parent` if all arms share their seeds' parents, else the seed number."""
    if settings.design != "paired" or settings.resample == "examples":
        return None
    shared = (
        first.shares_parent(second, seed)
        for first, second in itertools.combinations(arms, 2)
        for seed in first.seeds
    )
    return "parent" if all(shared) else "seed number"
