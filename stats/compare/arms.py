"""Compares many arms, in all pairs or with one reference arm, and ranks them.

Every difference has the variance of the crossed design (see `stats.variance.crossing`). With few seeds
variances are noisy, and among many differences some are far too small by chance. We therefore moderate the
variances between seeds: each is averaged with the mean over all arms. The mean weighs more if the variances
are similar, but never more than the arm's seeds. Bonferroni's correction makes intervals and ranks
simultaneous; it is nearly exact, because each difference has its own variance.

Reference: Smyth (2004), Linear models and empirical Bayes methods, for moderated variances; Mogstad,
Romano, Shaikh & Wilhelm (2024), Inference for Ranks, for ranks from simultaneous differences.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from multiberts.evaluate.readers.rows import ArmTable
from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.answer_pairs import paired_answers
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.compare.checks import (
    calibrated_scores,
    check_defined,
    check_tables,
    settings_of,
)
from multiberts.stats.compare.comparison_spec import (
    family_draws,
    pairing_of,
    part_of,
    summarise_arm,
)
from multiberts.stats.compare.prepared_arms import (
    TaskData,
    check_seeds,
    named_notes,
    prepare_arms,
)
from multiberts.stats.compare.ranking import ArmComparisons, corrected, level_of_each, ranked
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.errors import DataError, as_data_errors, check_choice
from multiberts.stats.interval_rule import interval_of_difference
from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.metrics import MetricLike, ScoreFunction, named_metric
from multiberts.stats.reading import arms_in, metric_as_read, metric_of
from multiberts.stats.results import ArmDifference, ArmSummary
from multiberts.stats.runs_table import Arm, common_seeds, with_common_seeds
from multiberts.stats.score import Score, as_read
from multiberts.stats.settings import ComparisonSettings, Missing, Resample, whole_number
from multiberts.stats.variance.crossing import Crossing, Term
from multiberts.stats.variance.score_tables import TablePart

ManyDesign = Literal["unpaired", "paired"]

# With fewer arms the spread of their variances cannot be estimated (see `seed_prior`).
_LEAST_ARMS = 4


def compare_arms(  # noqa: PLR0913 -- users see every option with its default
    arms: Any,
    metric: str | MetricLike | ScoreFunction | None = None,
    *,
    design: ManyDesign | None = None,
    against: str | None = None,
    labels: Any = None,
    clusters: Any = None,
    missing: Missing = "refuse",
    resample: Resample | None = None,
    less_is_better: bool | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    rng: int | np.random.Generator = 42,
    name: str = "",
    evaluation_set: str = "",
) -> ArmComparisons:
    """Compares many arms on the same examples: differences, ranks and ties.

    Args:
      arms: by name, predictions or scores as `stats.compare` takes them; or a table or file with a
        column `arm` or `model` (`stats.read` takes other names).
      metric: as in `stats.compare`.
      design: `paired` uses the seeds that all arms have and draws them together, for arms whose runs of one
        seed descend from one checkpoint; `unpaired` draws the seeds of each arm separately, for different
        models. Default as in `stats.compare`.
      against: name of the reference arm; by default all pairs are compared.
      labels: as in `stats.compare`.
      clusters: as in `stats.compare`; values follow the first arm's examples.
      missing: as in `stats.compare`.
      resample: as in `stats.compare`.
      less_is_better: as in `stats.compare`.
      confidence_level: as in `stats.compare`.
      n_resamples: as in `stats.compare`.
      rng: as in `stats.compare`.
      name: name of the comparison in tables and texts.
      evaluation_set: name of the evaluation set in tables and texts.

    Raises:
      DataError: fewer than two arms, no arm named `against`, incompatible arms, or too few seeds.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> random = np.random.default_rng(0)
      >>> skills = {"small": 0.6, "large": 0.8, "large, again": 0.8}
      >>> arms = {name: random.random((5, 400)) < skill for name, skill in skills.items()}
      >>> result = stats.compare_arms(arms, design="unpaired")
      >>> for arm in result.arms:
      ...     print(arm.name, arm.rank_low, arm.rank_high, *arm.groups)
      large 1 2 a
      large, again 1 2 a
      small 3 3 b
      >>> result.differences[-1].base, result.differences[-1].clear
      ('small', True)

    See also: `compare`, `adjusted_p_values`.

    Reference: Smyth (2004), Linear models and empirical Bayes methods; Mogstad, Romano, Shaikh &
    Wilhelm (2024), Inference for Ranks.
    """
    check_choice("design", "paired" if design is None else design, ManyDesign)
    settings = ComparisonSettings(
        design, resample, n_resamples, whole_number(rng), confidence_level
    )
    by_name = _by_name(arms)
    if len(by_name) < 2:
        raise DataError(
            f"found {counted(len(by_name), 'arm')} ({', '.join(by_name) or 'none'}), expected two or more; "
            "stats.compare with design='single' describes one"
        )
    if against is not None and against not in by_name:
        raise DataError(f"found no arm {against!r} to compare with, only {', '.join(by_name)}")
    task = TaskData(None, None, metric, labels, clusters, missing, less_is_better=less_is_better)
    result = compare_named_arms(by_name, task, settings, against, SharedArms(copies=True))
    return replace(result, name=name, evaluation_set=evaluation_set)


def compare_named_arms(
    data_of: Mapping[str, Any],
    task: TaskData,
    settings: ComparisonSettings,
    against: str | None = None,
    shared: SharedArms | None = None,
) -> ArmComparisons:
    """Compares arms by name; see `compare_arms`."""
    shared = shared or SharedArms()
    read_for = metric_as_read(task.metric)
    tables = {
        name: shared.table(name, data, read_for, task.labels, settings.resample)
        for name, data in data_of.items()
    }
    # The tables now contain the labels.
    task = replace(task, metric=metric_of(tables, task.metric), labels=None)
    settings = settings_of([*tables.values()], settings)
    arms, metric, notes = _prepared(tables, task, settings, shared)
    scored = _scored_arms(arms, metric, settings, shared)
    draws = family_draws([arm.job for arm in scored.values()], settings)
    summaries = {
        name: summarise_arm(arm.job, Crossing([arm.part]), name, settings, draws, column)
        for column, (name, arm) in enumerate(scored.items())
    }
    known = Score.of(metric)
    order = sorted(arms, key=lambda name: -known.sign * summaries[name].estimate)
    pairs = [(worse, better) for better, worse in itertools.combinations(order, 2)]
    if against is not None:
        pairs = [(against, arm_name) for arm_name in order if arm_name != against]
    differences, weight = _differences(pairs, scored, summaries, settings)
    return ArmComparisons(
        name="",
        evaluation_set="",
        metric=metric.name,
        higher_is_better=known.more_is_better,
        design=settings.laid_out,
        resample=settings.drawn,
        against=against,
        arms=ranked([summaries[name] for name in order], differences, known.sign),
        differences=differences,
        confidence_level=settings.confidence_level,
        shared_degrees_of_freedom=weight,
        pairing=pairing_of(list(arms.values()), settings),
        n_resamples=settings.n_resamples,
        rng=settings.rng,
        data_notes=notes,
        score=known,
        calibrated_scores=[*zip(arms, calibrated_scores(metric, [*arms.values()]), strict=False)],
    )


def seed_prior(variances: ArrayLike, degrees_of_freedom: ArrayLike) -> Term:
    """Estimates the common variance of seeds and its weight in degrees of freedom.

    If all true variances were equal, the logarithms of the estimates would have a known variance (trigamma
    of half their degrees of freedom). Any excess is the spread of the true variances and sets the weight of
    their mean. The weight never exceeds that of an arm's seeds.

    Args:
      variances: variance between the seeds of each arm, or between the differences of each pair of arms
        [n].
      degrees_of_freedom: degrees of freedom of each variance [n].

    Returns:
      The mean variance and its degrees of freedom; both 0 if any variance is 0.

    Reference: Smyth (2004), section 6.2.
    """
    from scipy.optimize import brentq
    from scipy.special import polygamma

    estimates, freedoms = np.asarray(variances, float), np.asarray(degrees_of_freedom, float)
    if not estimates.all():
        return 0.0, 0.0
    mean, most = float(freedoms @ estimates / freedoms.sum()), float(freedoms.min())
    spread = float(np.log(estimates).var(ddof=1) - polygamma(1, freedoms / 2).mean())
    if spread <= polygamma(1, most / 2):
        return mean, most
    return mean, float(brentq(lambda weight: polygamma(1, weight / 2) - spread, 1e-6, most))


@dataclass(frozen=True)
class _ScoredArm:
    """One arm with the bootstrap job of its score and its table."""

    job: ScoreJob
    part: TablePart


def _by_name(arms: Any) -> dict[str, Any]:
    by_name = arms_in(arms, "arms")
    if by_name is None and isinstance(arms, Mapping) and not hasattr(arms, "coords"):
        by_name = {str(name): data for name, data in arms.items()}
    if by_name is None or "" in by_name:
        names = getattr(arms, "columns", ())
        columns = f" of columns {', '.join(map(str, names))}" * bool(len(names))
        raise DataError(
            f"found {type(arms).__name__}{columns}, expected arms by name, such as {{'a': ..., 'b': ...}}, "
            "or a long table with columns such as arm, seed, example and score; "
            "stats.read(table, arm='COLUMN') takes columns of other names"
        )
    return by_name


def _prepared(
    tables: Mapping[str, ArmTable], task: TaskData, settings: ComparisonSettings, shared: SharedArms
) -> tuple[dict[str, Arm], MetricLike, tuple[str, ...]]:
    """Aligns the examples of all arms with the first; a paired design keeps the common seeds.

    Returns:
      The arms by name, their metric, and notes for readers.
    """
    (first, base), *others = tables.items()
    check_tables(tables, settings.laid_out)
    unpaired = replace(settings, design="unpaired")
    prepared: dict[str, Arm] = {}
    notes: list[str] = []
    for name, data in others:
        with as_data_errors(f"{name} (experiment) against {first} (base)"):
            pair = prepare_arms(replace(task, base=base, experiment=data), unpaired, shared)
        prepared |= dict(zip((first, name), pair.arms, strict=True))
        notes += named_notes(pair.notes, (first, name))
    arms = {name: prepared[name] for name in tables}
    if settings.design == "paired":
        common = common_seeds(arms.values())
        if not common:
            raise DataError(
                f"found no seed that all of {', '.join(arms)} have; give design='unpaired'"
            )
        arms = {name: with_common_seeds(arm, common) for name, arm in arms.items()}
    check_seeds(arms, settings)
    every = list(arms.values())
    score = named_metric(task.metric or "mean", every)
    return arms, as_read(score, every, task.less_is_better), (*dict.fromkeys(notes),)


def _scored_arms(
    arms: Mapping[str, Arm], metric: MetricLike, settings: ComparisonSettings, shared: SharedArms
) -> dict[str, _ScoredArm]:
    """Makes the table of each arm; all arms share draws of examples, and paired arms draws of seeds."""
    examples = None if settings.resample == "seeds" else " examples"
    scored = {}
    for name, arm in arms.items():
        pool: str | None = "seeds" if settings.design == "paired" else f"seeds of {name}"
        if settings.resample == "examples":
            pool = None
        job = shared.job(arm, metric, pool, examples)
        check_defined(name, job)
        scored[name] = _ScoredArm(job, part_of(job))
    return scored


def _differences(
    pairs: Sequence[tuple[str, str]],
    scored: Mapping[str, _ScoredArm],
    summaries: Mapping[str, ArmSummary],
    settings: ComparisonSettings,
) -> tuple[tuple[ArmDifference, ...], float]:
    """Compares pairs of (base, experiment); also returns the degrees of freedom of the prior."""
    prior = _prior(scored, settings)
    level = level_of_each(settings.confidence_level, len(pairs))
    score = Score.of(next(iter(scored.values())).job.score)
    differences = []
    for base, experiment in pairs:
        pair = [summaries[base], summaries[experiment]]
        parts = [replace(scored[base].part, weight=-1.0), scored[experiment].part]
        crossing = Crossing(parts, prior)
        variance = crossing.unbiased_variance()
        answers = paired_answers(scored[base].job, scored[experiment].job)
        interval, p_values = interval_of_difference(
            pair, crossing, answers, score, settings.drawn, level
        )
        differences.append(
            ArmDifference(
                base,
                experiment,
                estimate=pair[1].estimate - pair[0].estimate,
                standard_error=math.sqrt(variance.variance),
                df=variance.cautious_degrees_of_freedom,
                ci=ConfidenceInterval(*interval, settings.confidence_level, interval.method),
                p_value=p_values.two_sided,
                p_values={},
            )
        )
    return corrected(differences), prior[1]


def _prior(scored: Mapping[str, _ScoredArm], settings: ComparisonSettings) -> Term:
    """Returns `seed_prior` of all arms, or of all pairs in a paired design."""
    if len(scored) < _LEAST_ARMS or settings.resample == "examples":
        return 0.0, 0.0
    parts = [arm.part for arm in scored.values()]
    deviations = [next(iter(Crossing([part]).seeds.values())) for part in parts]
    freedoms = [float(part.table.shape[0] - 1) for part in parts]
    if settings.design == "paired":
        deviations = [second - first for first, second in itertools.combinations(deviations, 2)]
        freedoms = [freedoms[0]] * len(deviations)
    variances = [float(deviation @ deviation) / (len(deviation) - 1) for deviation in deviations]
    return seed_prior(variances, freedoms)
