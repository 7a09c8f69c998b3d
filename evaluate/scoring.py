"""Scores fine-tuning runs from their prediction files, and checks the files."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.answer_checks import (
    Answers,
    are_placeholders,
    check_answers,
    undefined_runs,
    why_undefined,
)
from multiberts.evaluate.metrics.classification import CLASS_METRICS
from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.probability import is_calibratable, reliability
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import METRICS, metric_input, metric_variables
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES, occupation_scores
from multiberts.evaluate.prediction_files.prediction_file import Predictions
from multiberts.evaluate.prediction_files.predictions import (
    aligned,
    labelled_array,
    read_run_predictions,
)
from multiberts.evaluate.prediction_files.run_checks import RUN_KEY, RunEntry, RunProblem, find_all
from multiberts.evaluate.prediction_files.run_file import read_run, run_directories, set_of
from multiberts.runs.console import ProgressBar, joined, progress, warn
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError, counted, nearest
from multiberts.runs.files import as_cell, write_atomically
from multiberts.runs.identity import Identity, opened

if TYPE_CHECKING:
    import xarray

CHECKS_FILE = "checks.csv"
_RUN = ("procedure", "pretrain_seed", "step", "learning_rate", "finetune_seed")
COLUMNS = ("task", "evaluation_set", "metric", *_RUN, "score", "missing_runs")
TABLE_COLUMNS = {
    "scores.csv": COLUMNS,
    "parts.csv": (
        *("task", "evaluation_set", "metric", "by", "part", "label", *_RUN),
        *("examples", "score"),
    ),
    "calibration.csv": (
        *("task", "evaluation_set", *_RUN),
        *("low", "high", "examples", "confidence", "accuracy"),
    ),
    CHECKS_FILE: ("check", "task", "evaluation_set", *_RUN, "message"),
}
# Maximum number of findings on the terminal; `checks.csv` lists all.
_SHOWN = 20


@dataclass
class Tables:
    """Rows of the tables, problems and warnings.

    Attributes:
      problems: one line per prediction file that cannot be scored.
      unlabelled: number of runs with unlabelled predictions, by task and evaluation set.
    """

    scores: list[dict[str, Any]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    calibration: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    findings: list[RunProblem] = field(default_factory=list)
    unlabelled: dict[tuple[str, str], int] = field(default_factory=dict)


IDENTITY = Identity({"predictions": opened})


def score(
    *, run_dir: str, predictions: str | Sequence[str], extra_metrics: Sequence[str] = ()
) -> None:
    """Scores and checks every finished fine-tuning run below a folder.

    Writes sorted, tidy tables (`TABLE_COLUMNS`) to run_dir; a later call replaces them if there are new runs:

    * `scores.csv`: one row per run, evaluation set and metric. Early checkpoints are sets such as
      `dev@2.5`. `missing_runs` counts the missing runs in the row's grid of runs.
    * `parts.csv`: the same for parts of the examples (the heuristics of HANS, genders, labels), with
      the first metric that is a mean over examples; and for every label of a multi-label task (`by`
      is `class`), with the metrics that are macro averages of them.
    * `calibration.csv`: the reliability table of every run with logits.
    * `checks.csv`: warnings: missing, unfinished and repeated runs, missing evaluation sets, mixed
      vocabularies or training data, sets without labels, which have no score, answers of classes
      that no label has, answers far below chance, scores that are 0/0, and unknown metrics, such as
      one of a removed task.

    Args:
      run_dir: the directory of this run.
      predictions: one or several folders with finished fine-tuning runs, at any depth.
      extra_metrics: metrics to compute wherever they apply, in addition to those in run.json, such as
        `ece` and `brier`.

    Raises:
      UserError: no finished run; or prediction files that are damaged, foreign, repeat an example, or
        disagree on examples or labels (one line each on standard error). Nothing is written then.
    """
    parameters, _ = IDENTITY.of(locals())
    unknown = sorted(set(extra_metrics) - set(METRICS))
    if unknown:
        raise UserError(
            f"score.extra_metrics names {unknown[0]!r}, which is not a metric; "
            f"{nearest(unknown[0], sorted(METRICS))}"
        )
    folders = [predictions] if isinstance(predictions, str) else list(predictions)
    tables = Tables()
    runs = list(_runs(folders, tables.problems))
    if not runs and not tables.problems:
        raise UserError(
            f"{', '.join(folders)} holds no finished fine-tuning run (run.json next to DONE); run "
            "multiberts finetune first, or give another folder"
        )
    _refuse(tables.problems)
    run = RunDirectory(
        run_dir,
        stage="score",
        parameters=parameters,
        inputs={"predictions": [path for path, _ in runs]},
        renewed_by=["predictions"],
    )
    if run.done:
        return
    if run.is_renewed:
        progress(f"{run.path} has scores of a different set of runs; they are replaced")
    unfinished = [path for folder in folders for path in run_directories(folder, finished=False)]
    tables.findings += find_all(runs, unfinished)
    _score_all(runs, extra_metrics, tables)
    _refuse(tables.problems)
    unknown_metrics = [finding for finding in tables.findings if finding.check == "unknown metric"]
    if unknown_metrics and not tables.scores:
        raise UserError(unknown_metrics[0].message)
    _count_missing(tables)
    for (task, name), number in sorted(tables.unlabelled.items()):
        message = f"{task}, {name}: labels are unknown; {counted(number, 'run')} not scored on it"
        tables.findings.append(
            RunProblem("no labels", message, {"task": task, "evaluation_set": name})
        )
    for finding in tables.findings[:_SHOWN]:
        warn(finding.message)
    if len(tables.findings) > _SHOWN:
        warn(f"{len(tables.findings) - _SHOWN} more are in {run.path / CHECKS_FILE}")
    checks = [
        {**finding.where, "check": finding.check, "message": finding.message}
        for finding in tables.findings
    ]
    with run:
        contents = (tables.scores, tables.parts, tables.calibration, checks)
        for (file, columns), rows in zip(TABLE_COLUMNS.items(), contents, strict=True):
            write_atomically(run.path / file, _csv(rows, columns))
        run.finish(list(TABLE_COLUMNS))


def scores_of(
    run_dir: Path, evaluation_set: str, content: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Computes the scores of one run on one evaluation set, by metric.

    Args:
      evaluation_set: name of the set; `dev@2.5` for an early checkpoint.
      content: content of the run's run.json if the file is not written yet.
    """
    content = read_run(run_dir) if content is None else content
    predictions = read_run_predictions(run_dir, evaluation_set, content=content)
    dataset = labelled_array([run_dir], [content], [predictions], evaluation_set)
    return {metric: _score(run_dir, dataset, metric) for metric in dataset.attrs["metrics"]}


def describe_run(run_dir: str) -> str:
    """Returns the scores of a fine-tuning run, for the terminal."""
    path = Path(run_dir)
    lines = []
    for name, entry in read_run(path)["evaluation_sets"].items():
        scores = scores_of(path, name) if entry["metrics"] else {}
        lines += [f"  {name:<20}{metric:<28}{score:.4f}" for metric, score in scores.items()]
        if not scores:
            lines.append(f"  {name:<20}no labels, predictions only")
    return joined([run_dir, *lines])


def describe_scores(run_dir: str) -> str:
    """Returns the mean score of each procedure and learning rate on each set, for the terminal."""
    with (Path(run_dir) / "scores.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        keys = ("task", "evaluation_set", "metric", "procedure", "step", "learning_rate")
        groups.setdefault(tuple(row[name] for name in keys), []).append(float(row["score"]))
    rates = Counter(key[:-1] for key in groups)
    lines = [
        f"  {task}/{name}  {metric} of {procedure}{f' at step {step}' if step else ''}"
        + f", learning rate {rate or 'unknown'}" * (rates[task, name, metric, procedure, step] > 1)
        + f": {np.mean(scores):.4f} ({counted(len(scores), 'run')})"
        for (task, name, metric, procedure, step, rate), scores in groups.items()
    ]
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return joined([f"{run_dir}: {', '.join(TABLE_COLUMNS)}", *lines[:_SHOWN], *more])


def _runs(folders: Iterable[str], problems: list[str]) -> Iterator[RunEntry]:
    """Yields finished runs; an unreadable run.json becomes a problem."""
    for folder in folders:
        for path in run_directories(folder):
            try:
                yield path, read_run(path)
            except UserError as error:
                problems.append(str(error))


def _refuse(problems: Sequence[str]) -> None:
    """Raises a UserError if there are problems, and prints several, one line each."""
    if len(problems) > 1:
        for problem in problems:
            progress(f"found: {problem}")
        raise UserError(
            f"{len(problems)} prediction files cannot be scored (named above); remove these runs "
            "or run them again"
        )
    if problems:
        raise UserError(problems[0])


def _score_all(runs: Sequence[RunEntry], extra_metrics: Sequence[str], tables: Tables) -> None:
    sets: dict[tuple[str, str], list[RunEntry]] = {}
    for path, content in runs:
        for name in content["evaluation_sets"]:
            sets.setdefault((content["task"], name), []).append((path, content))
    first: dict[tuple[str, str], tuple[Path, Predictions]] = {}  # by evaluation set, for all epochs
    cache: dict[tuple, np.ndarray] = {}
    bar = ProgressBar(total=sum(map(len, sets.values())), desc="scoring", unit="prediction file")
    with bar:
        for (task, name), members in sorted(sets.items()):
            for path, content in members:
                bar.update()
                entry = content["evaluation_sets"][name]
                try:
                    predictions = read_run_predictions(path, name, content=content, cache=cache)
                    key = (task, set_of(name, entry))
                    first.setdefault(key, (path, predictions))
                    predictions = aligned(path, predictions, *first[key])
                    dataset = labelled_array([path], [content], [predictions], name)
                    dataset.attrs["classes"] = content.get("classes")
                    where = {**_description(content), "evaluation_set": name}
                    _score_predictions(path, dataset, where, extra_metrics, tables)
                except UserError as error:
                    tables.problems.append(str(error))
            cache.clear()


def _description(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: content[name] for name in ("task", *_RUN)}


def _score_predictions(
    path: Path,
    dataset: xarray.Dataset,
    where: Mapping[str, Any],
    extra_metrics: Sequence[str],
    tables: Tables,
) -> None:
    labels, answers = dataset["label"].to_numpy(), dataset["prediction"].to_numpy()
    needed = [METRICS[name].uses_labels for name in dataset.attrs["metrics"] if name in METRICS]
    unknown = np.isnan(labels).all() or are_placeholders(labels, answers)
    if unknown and (all(needed) or not needed):
        key = (where["task"], where["evaluation_set"])
        tables.unlabelled[key] = tables.unlabelled.get(key, 0) + 1
        return
    metric_names = {*METRICS, *OCCUPATION_MEASURES}
    metrics = [metric for metric in dataset.attrs["metrics"] if metric in metric_names]
    for metric in dataset.attrs["metrics"]:
        if metric not in metric_names:
            message = str(_unknown_metric(path, metric))
            tables.findings.append(RunProblem("unknown metric", message, where))
    for metric in metrics:
        row = {**where, "metric": metric, "score": _score(path, dataset, metric)}
        tables.scores.append(row)
    notes = " ".join(dict.fromkeys(_notes_of_answers(path, dataset, metrics)))
    if notes:
        tables.findings.append(RunProblem("answers", notes, where))
    for metric in extra_metrics:
        if metric in metrics:
            continue
        try:
            row = {**where, "metric": metric, "score": _score(path, dataset, metric)}
        except UserError as error:
            tables.findings.append(RunProblem("metric does not apply", str(error), where))
        else:
            tables.scores.append(row)
    tables.parts += _rows_of_parts(where, dataset, metrics)
    predictions, scores = dataset["prediction"].to_numpy()[0], dataset["scores"].to_numpy()[0]
    if is_calibratable(labels, predictions, scores):
        tables.calibration += [
            {**where, **vars(reliability_bin)} for reliability_bin in reliability(labels, scores)
        ]


def _score(run_dir: Path, dataset: xarray.Dataset, metric: str) -> float:
    definition: Metric | RankMetric
    if metric in OCCUPATION_MEASURES:
        dataset, definition = occupation_scores(dataset, metric), OCCUPATION_MEASURES[metric].metric
    elif metric in METRICS:
        definition = METRICS[metric]
    else:
        raise _unknown_metric(run_dir, metric)
    try:
        labels, answers = _compared(definition, dataset)
        return float(definition.score(labels, answers)[0])
    except ValueError as error:
        raise UserError(f"{run_dir}: {metric} cannot be computed: {error}") from error


def _notes_of_answers(path: Path, dataset: xarray.Dataset, metrics: Sequence[str]) -> Iterator[str]:
    classes = dataset.attrs["classes"]
    for metric in metrics:
        if metric not in METRICS or np.isnan(dataset["label"].to_numpy()).any():
            continue
        labels, answers = _compared(METRICS[metric], dataset)
        if undefined_runs(METRICS[metric], labels, answers).any():
            why = why_undefined(labels, answers)
            yield f"{metric} of {path} is 0/0 ({why}); its score is the value defined for that."
        if classes and metric in CLASS_METRICS:  # text classes of imported files
            labels, answers = (np.array(classes)[side.astype(int)] for side in (labels, answers))
        try:
            (notes,) = check_answers(metric, labels, [Answers(answers)])
        except ValueError as error:  # a single run may have failed to train
            notes = [f"{{arm}}: {error}"]
        yield from (note.replace("{arm}", str(path)) for note in notes)


def _unknown_metric(run_dir: Path, metric: str) -> UserError:
    return UserError(
        f"{run_dir}/run.json names metric {metric!r}, expected one of "
        f"{', '.join(sorted([*METRICS, *OCCUPATION_MEASURES]))}; correct it there"
    )


def _compared(
    metric: Metric | RankMetric, dataset: xarray.Dataset
) -> tuple[np.ndarray, np.ndarray]:
    label, prediction = metric_variables(metric, dataset)
    answers = metric_input(metric, dataset[prediction], dataset.get("scores"))
    return dataset[label].to_numpy(), answers


def _rows_of_parts(
    where: Mapping[str, Any], dataset: xarray.Dataset, metrics: Sequence[str]
) -> Iterator[dict[str, Any]]:
    for name in metrics:
        averaged = METRICS.get(name)
        if isinstance(averaged, Metric) and averaged.by_class is not None:
            labels, answers = _compared(averaged, dataset)
            for part_name, score in averaged.by_class(labels, answers[0]).items():
                values_of_part = {"by": "class", "part": part_name, "examples": len(labels)}
                yield {**where, "metric": name, **values_of_part, "label": None, "score": score}
    means = [name for name in metrics if name in METRICS and METRICS[name].mean_of is not None]
    if not means:
        return
    metric = METRICS[means[0]]
    assert isinstance(metric, Metric)
    values = metric.columns(*_compared(metric, dataset))[0, :, metric.mean_of]  # [examples]
    columns = {
        str(name): column.to_numpy()
        for name, column in dataset.coords.items()
        if column.dims == ("example",) and name != "example_id"
    }
    for part in parts_of(dataset["label"].to_numpy(), columns):
        yield {
            **where,
            "metric": metric.name,
            "by": part.by,
            "part": part.part,
            "label": part.label,
            "examples": len(part.rows),
            "score": float(values[part.rows].mean()),
        }


# A column with more values names examples, not parts.
MOST_PARTS = 128
MOST_LABELS = 10


@dataclass(frozen=True)
class ExamplePart:
    """A part of the examples.

    Attributes:
      by: the column of the split, or `label`.
      label: label of the examples, or None for all labels.
      rows: numbers of the examples, int64 [rows].
    """

    by: str
    part: str
    label: float | None
    rows: NDArray[np.int64]


def parts_of(labels: NDArray, columns: Mapping[str, NDArray]) -> Iterator[ExamplePart]:
    """Splits examples by label, and by every column of texts with few values.

    Each part of a column is yielded whole and per label, for example the entailed and the non-entailed half
    of a heuristic of HANS (McCoy et al., 2019, table 2).

    Args:
      columns: columns [examples] by name; only texts are used.
    """
    values = np.unique(labels)
    if not 1 < len(values) <= MOST_LABELS or (values != np.round(values)).any():
        values = np.zeros(0)
    for value in values.tolist():
        yield ExamplePart("label", f"{value:g}", value, np.flatnonzero(labels == value))
    for name, column in sorted(columns.items()):
        if column.dtype.kind != "U":
            continue
        names = np.unique(column)
        if not 1 < len(names) <= min(MOST_PARTS, len(column) // 2):
            continue
        for part in names.tolist():
            inside = column == part
            yield ExamplePart(name, part, None, np.flatnonzero(inside))
            for value in values.tolist():
                rows = np.flatnonzero(inside & (labels == value))
                if rows.size:
                    yield ExamplePart(name, part, value, rows)


def _count_missing(tables: Tables) -> None:
    """Adds the number of missing runs of its task, procedure, step and learning rate to every score."""
    holes: dict[tuple, int] = {}
    for finding in tables.findings:
        if finding.check == "missing run":
            key = _grid(finding.where)
            holes[key] = holes.get(key, 0) + 1
    for row in tables.scores:
        row["missing_runs"] = holes.get(_grid(row), 0)


def _grid(row: Mapping[str, Any]) -> tuple:
    return tuple(row[name] for name in RUN_KEY if name not in ("pretrain_seed", "finetune_seed"))


def _csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    import pandas

    table = pandas.DataFrame(rows, columns=list(columns)).map(as_cell)
    text: str = table.sort_values(list(columns), kind="stable").to_csv(
        index=False, lineterminator="\n"
    )
    return text
