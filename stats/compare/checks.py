"""Checks that the arms of a comparison are comparable, and writes notes for readers.

`stats.compare.prepared_arms.prepare_arms` checks every comparison with it, from files or arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.answer_checks import Answers, check_answers, why_undefined
from multiberts.evaluate.metrics.classification import CLASS_METRICS
from multiberts.evaluate.metrics.probability import calibrated_ece
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.readers.rows import BY_TIME, FACT_NAMES, POSITION, UNNAMED, ArmTable
from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.errors import DataError, UndefinedScore, as_data_errors
from multiberts.stats.metrics import FunctionMetric, MetricLike
from multiberts.stats.runs_table import Arm
from multiberts.stats.score import metric_name
from multiberts.stats.settings import ComparisonSettings

# Minimum number of examples: two good models can agree on all of a few examples.
_FEWEST_EXAMPLES = 20


def are_repeats(data: ArmTable | Arm) -> bool:
    """Returns whether the seeds of an arm are logs of one model, ordered by time."""
    return data.read.columns.get("seed") == BY_TIME


def settings_of(data: Sequence[ArmTable | Arm], settings: ComparisonSettings) -> ComparisonSettings:
    """Fills in the design and the resampled units that the data allow.

    One score per run allows new seeds only; one run of each drawn arm allows new examples only. Arms are
    paired, unless one has a single seed or the user holds unlike seeds fixed. Where pairing would leave out
    more seeds than it keeps, the design must be given.

    Args:
      data: data of the base, then of the other arms.
    """
    design, resample = settings.laid_out, settings.resample
    # The first logs of two models are unrelated, so logs cannot be paired.
    if design == "paired" and any(map(are_repeats, data)):
        design = "unpaired"
    # Count the seeds left out by pairing, too.
    seeds = [{*arm.seeds, *getattr(arm, "left_out", ())} for arm in data]
    sizes = {arm.num_examples if isinstance(arm, Arm) else arm.values.shape[1] for arm in data}
    if resample is None and sizes == {1}:
        resample = "seeds"
    elif resample is None and all(len(each) == 1 for each in seeds[design == "fixed_baseline" :]):
        resample = "examples"
    if design == "paired" and seeds.count(seeds[0]) < len(seeds):
        # Seeds that are not drawn need no partner, and a single seed is refused or not drawn.
        are_fixed = resample == "examples" and None in (settings.design, settings.resample)
        if are_fixed or (settings.design is None and min(map(len, seeds)) == 1):
            design = "unpaired"
        elif settings.design is None:
            _check_partners(data, seeds)
    return replace(settings, design=design, resample=resample or "both")


def _check_partners(data: Sequence[ArmTable | Arm], seeds: Sequence[set[Any]]) -> None:
    """Refuses to pair named seeds if that leaves out more than it keeps of each further arm."""
    kept = len(set.intersection(*seeds))
    lost = sum(map(len, seeds)) - kept * len(seeds)
    is_named = all(arm.read.columns.get("seed") not in UNNAMED for arm in data)
    if is_named and 0 < kept * (len(seeds) - 1) < lost:
        numbers = " and ".join(str(len(each)) for each in seeds)
        common = f", or design='paired' to compare only the {kept} common seeds" * (kept > 1)
        raise DataError(
            f"found {numbers} seeds with {kept} in common, so that "
            f"pairing them would leave out {lost}; give design='unpaired' for runs that share nothing{common}"
        )


def check_tables(tables: Mapping[str, ArmTable], design: str) -> None:
    """Refuses tables that cannot be compared with each other.

    Args:
      tables: table of each arm by name.
    """
    if len(tables) < 2:
        return
    kinds = {name: table.kind for name, table in tables.items() if table.kind}
    if len({*kinds.values()}) > 1:
        columns = {name: tables[name].read.columns.get(kind) for name, kind in kinds.items()}
        kinds_read = " and ".join(
            f"{kind}s of {name}" + f" ({columns[name]!r})" * bool(columns[name])
            for name, kind in kinds.items()
        )
        raise DataError(
            f"found {kinds_read}, expected the same of all; give predictions and labels of both "
            "(prediction='COLUMN', label='COLUMN'), or each example's own score of both (score='COLUMN')"
        )
    unnamed: dict[str, list[str]] = {}
    for name, table in tables.items():
        if (by := table.read.columns.get("seed")) in UNNAMED:
            unnamed.setdefault(str(by), []).append(name)
    numbers = {name: table.seeds for name, table in tables.items()}
    if design == "paired" and unnamed and len({*map(frozenset, numbers.values())}) > 1:
        seeds_read = ", ".join(
            f"{counted(len(each), 'seed')} of {name}" for name, each in numbers.items()
        )
        origins = " and ".join(
            f"those of {' and '.join(names)} are known only by the {by}"
            for by, names in unnamed.items()
        )
        raise DataError(
            f"found {seeds_read}, and {origins}, so that pairs may be of different seeds; "
            "name the seeds (a column or coordinate, files seed_0.csv), or use design='unpaired'"
        )


def check_aligned(arms: Sequence[Arm]) -> None:
    """Refuses arms that use the same id for different examples.

    Args:
      arms: base and experiment, examples in one order. Columns that identify an example, such as the
        harness's hash of the document, must be equal.
    """
    base, experiment = arms
    for name in base.read.identifying:
        if not all(name in arm.read.identifying and name in arm.of_examples for arm in arms):
            continue
        first, second = base.of_examples[name], experiment.of_examples[name]
        empty = is_empty(first) & is_empty(second)  # nan != nan
        different = np.flatnonzero((first != second) & ~empty)
        # Columns with different sets of texts, such as prompts, do not identify examples.
        is_fact = name in FACT_NAMES or {*first.tolist()} == {*second.tolist()}
        if different.size and is_fact:
            row = int(different[0])
            shown = row if base.example_ids is None else base.example_ids.tolist()[row]
            raise DataError(
                f"base and experiment have different {name!r} for {counted(different.size, 'example')} of "
                f"one id, first {shown!r}: {first[row]!r} and {second[row]!r}; compare runs on the same "
                "data, or name the column of ids with example='COLUMN'"
            )


def is_empty(values: NDArray) -> NDArray[np.bool_]:
    """Returns whether each value is missing."""
    if values.dtype.kind != "O":
        return np.isnan(values) if values.dtype.kind in "fc" else np.zeros(values.shape, bool)
    import pandas

    return np.asarray(pandas.isna(values))


def check_scales(arms: Sequence[Arm], metric: MetricLike) -> None:
    """Refuses scores from 0 to 1 mixed with scores from 0 to 100."""
    if metric.uses_labels or any(arm.predictions.dtype.kind not in "biuf" for arm in arms):
        return
    scales: dict[str, list[str]] = {"0 to 1": [], "0 to 100": []}
    for name, arm in zip(("base", "experiment"), arms, strict=False):
        for seed, values in zip(arm.run_seeds, arm.predictions, strict=True):
            low, high = float(values.min()), float(values.max())
            if low >= 0 and 0.5 < high <= 1:
                scales["0 to 1"].append(f"{name}, seed {seed}")
            if low >= 0 and 50 < high <= 100:
                scales["0 to 100"].append(f"{name}, seed {seed}")
    runs = sum(len(arm.run_seeds) for arm in arms)
    if all(scales.values()) and sum(map(len, scales.values())) == runs:
        examples = " and ".join(f"from {scale} ({names[0]})" for scale, names in scales.items())
        raise DataError(f"found scores {examples}, expected one scale; divide per cent by 100")


def answers_of(arms: Sequence[Arm], metric: MetricLike) -> list[Answers]:
    """Returns the arms' answers for `check_answers`; empty for an unknown metric."""
    if metric is not METRICS.get(metric.name) or any(arm.predictions.ndim != 2 for arm in arms):
        return []
    roles = ("base", "experiment") if len(arms) > 1 else ("",)
    return [
        Answers(arm.predictions, role, arm.observed, arm.seed_weights.mean(axis=1), arm.num_units)
        for role, arm in zip(roles, arms, strict=False)
    ]


def check_labels(arms: Sequence[Arm], metric: MetricLike) -> list[list[str]]:
    """Compares the answers of each arm with the labels; see `check_answers`."""
    answers = answers_of(arms, metric)
    if not answers:
        return [[] for _ in arms]
    with as_data_errors():
        return check_answers(metric.name, arms[0].labels, answers)


def check_named(values: NDArray, lacking: str, cure: str) -> None:
    """Refuses examples with an empty cell."""
    missing = int(is_empty(values).sum())
    if values.dtype.kind in "OU":
        missing += sum(isinstance(value, str) and not value.strip() for value in values.tolist())
    if missing:
        raise DataError(
            f"found {counted(missing, 'example')} of {len(values)} without {lacking}; {cure}"
        )


def notes_of_clusters(arm: Arm) -> list[str]:
    """Returns a note if one cluster has a tenth of the examples or more."""
    sizes = arm.cluster_sizes
    if sizes is None or sizes.max() < 0.1 * sizes.sum():
        return []
    called = f" ({arm.cluster_name})" if arm.cluster_name else ""
    return [
        f"The largest of {counted(len(sizes), 'cluster')}{called} holds "
        f"{100 * sizes.max() / sizes.sum():.0f} % of the examples, so that the result rests on few clusters; "
        "its interval takes their sizes into account."
    ]


def notes_of(arm: Arm, design: str, *, has_no_clusters: bool = True) -> list[str]:
    """Returns notes for readers on an arm; `{arm}` is replaced by its name."""
    notes = []
    seed, is_file = arm.read.columns.get("seed"), arm.read.files is not None
    if seed in UNNAMED and is_file and design == "paired":
        notes.append(f"Seeds of {{arm}} are paired by the {seed}: nothing else names them.")
    if arm.read.columns.get("example") == POSITION and is_file:
        notes.append(
            "Examples of {arm} are known by the order of rows: no column has one value for each example "
            "of every run; name one if there is."
        )
    if arm.read.one_checkpoint:
        notes.append(
            "The seeds of {arm} are fine-tuning seeds of one checkpoint: the result is about this "
            "checkpoint only, and not about pre-training again."
        )
    if arm.read.pooled:
        notes.append(arm.read.pooled)
    if has_no_clusters and (name := arm.read.possible_cluster):
        notes.append(
            f"Several examples share each value of {name!r}: if they depend on each other, the interval is "
            f"too short; --cluster={name} (in Python cluster={name!r} of stats.read) takes them as one."
        )
    if arm.observed is not None:
        missing = int((~arm.observed).sum())
        notes.append(
            f"{missing:,} of {arm.observed.size:,} predictions of {{arm}} are missing and left out, as if "
            "they were missing at random."
        )
    return [*notes, *_copies(arm)]


def _is_constant(values: np.ndarray) -> bool:
    if values.dtype.kind == "O":  # NumPy would compare tuples item by item
        return len({*values.ravel().tolist()}) == 1
    return bool((values == values.flat[0]).all())


def _copies(arm: Arm) -> list[str]:
    """Returns notes on different seeds whose predictions are all equal."""
    if arm.num_examples < _FEWEST_EXAMPLES:
        return []
    seeds: dict[Any, list] = {}
    for seed, values in zip(arm.run_seeds, arm.predictions, strict=True):
        if _is_constant(values) or (
            values.shape == arm.labels.shape and (values == arm.labels).all()
        ):
            continue
        key = tuple(values.tolist()) if values.dtype.kind == "O" else values.tobytes()
        twins = seeds.setdefault(key, [])
        if seed not in twins:
            twins.append(seed)
    return [
        f"Seeds {', '.join(map(str, alike[:-1]))} and {alike[-1]} of {{arm}} have the same predictions on "
        f"all {arm.num_examples} examples; if they are copies of one run, keep one."
        for alike in seeds.values()
        if len(alike) > 1
    ]


# --- Scores that are 0/0: arms without a score, and seeds with the value defined for 0/0 ---

# Metrics that are 0 without a positive label, or 0/0 if no positive is predicted either.
_OF_POSITIVES = ("f1", "precision")


def undefined_why(job: ScoreJob) -> str:
    """Returns why an arm has no score; empty if any run has one."""
    arm = job.arm
    # It is unknown when a caller's function is undefined.
    if isinstance(job.score, FunctionMetric):
        return ""
    if job.plain[1].all() and job.run_scores(None)[1].all():
        reason = why_undefined(arm.labels, arm.predictions, arm.observed)
        return f"it is 0/0 in every seed, as {reason}"
    if job.score.name in _OF_POSITIVES and not np.any(arm.labels == 1):
        return f"it is 0 whatever is predicted, as all {arm.num_examples} labels are 0"
    return ""


def undefined_seeds(job: ScoreJob) -> tuple:
    """Returns the seeds with a run whose score is 0/0 and replaced by the value defined for 0/0."""
    return tuple(
        seed for seed, flag in zip(job.arm.seeds, job.plain[1][0].tolist(), strict=True) if flag
    )


def check_defined(name: str, job: ScoreJob) -> None:
    """Refuses an arm that has no score."""
    with as_data_errors():  # from the metric, about its input
        why = undefined_why(job)
    if not why:
        return
    metric = job.score.name
    instead = "accuracy" if metric in CLASS_METRICS else "mae" if job.score.is_correlation else ""
    raise UndefinedScore(
        f"{metric_name(metric)} of {name} has no value: {why}; give examples "
        f"and runs that have a score{f', or another metric, such as {instead}' * bool(instead)}"
    )


def calibrated_scores(metric: MetricLike, arms: Sequence[Arm]) -> list[float]:
    """Returns the ECE that calibrated models with each arm's confidences show; empty for other metrics."""
    return [_calibrated_score(arm) for arm in arms] if metric.name == "ece" else []


def _calibrated_score(arm: Arm) -> float:
    seen = arm.observed
    runs = np.array(
        [
            calibrated_ece(arm.labels, values)
            if seen is None
            else calibrated_ece(arm.labels[seen[run]], values[seen[run]])
            for run, values in enumerate(arm.predictions)
        ]
    )
    return float((arm.seed_weights.T @ runs).mean())
