"""Scores of fine-tuning runs, computed from their prediction dumps alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from evaluate.predictions import find_runs, read_predictions
from runs.directory import RunDirectory
from runs.errors import UserError
from runs.files import write_atomically

if TYPE_CHECKING:
    import xarray

SCORES_FILE = "scores.csv"
COLUMNS = (
    "task",
    "evaluation_set",
    "metric",
    "procedure",
    "pretrain_seed",
    "step",
    "learning_rate",
    "finetune_seed",
    "score",
)


def score(*, run_dir: str, predictions: str | Sequence[str]) -> None:
    """Scores every finished fine-tuning run below a folder and writes `run_dir/scores.csv`.

    A tidy table with the columns `COLUMNS`, one row a run, evaluation set and metric, sorted by all of
    them.

    Args:
      run_dir: the directory of this run.
      predictions: a folder that is searched for finished fine-tuning runs, or several.

    Raises:
      UserError: no finished run there, or a dump that is damaged or not ours.
    """
    import pandas

    folders = [predictions] if isinstance(predictions, str) else list(predictions)
    found = [run for folder in folders for run in find_runs(folder)]
    if not found:
        raise UserError(
            f"{', '.join(folders)} holds no finished fine-tuning run (run.json beside DONE); run "
            "python -m finetune first, or give another folder"
        )
    run = RunDirectory(
        run_dir,
        stage="score",
        parameters={},
        inputs={"predictions": [path for path, _ in found]},
    )
    if run.done:
        return
    rows = [
        {**_description(content), "evaluation_set": name, "metric": metric, "score": value}
        for path, content in tqdm(found, desc="scoring", unit="run", disable=None)
        for name in content["evaluation_sets"]
        for metric, value in scores_of(path, name).items()
    ]
    table = pandas.DataFrame(rows, columns=list(COLUMNS)).sort_values(list(COLUMNS[:-1]))
    with run:
        write_atomically(run.path / SCORES_FILE, table.to_csv(index=False, lineterminator="\n"))
        run.finish([SCORES_FILE])


def _description(content: dict[str, Any]) -> dict[str, Any]:
    """What of run.json stands in the table."""
    return {name: content[name] for name in COLUMNS if name in content}


def scores_of(run_dir: Path, evaluation_set: str) -> dict[str, float]:
    """The scores of one run on one evaluation set, by metric.

    Args:
      run_dir: a finished fine-tuning run.
      evaluation_set: one that its run.json lists.

    Raises:
      UserError: a damaged dump, or a metric that is unknown or does not suit the predictions.
    """
    dataset = read_predictions([run_dir], evaluation_set)
    return {metric: _score(run_dir, dataset, metric) for metric in dataset.attrs["metrics"]}


def _score(run_dir: Path, dataset: xarray.Dataset, metric: str) -> float:
    from evaluate.metrics import METRICS, Metric, RankMetric, metric_input
    from evaluate.winogender import OCCUPATION_MEASURES, occupation_metric, occupation_scores

    definition: Metric | RankMetric
    if metric in OCCUPATION_MEASURES:
        dataset, definition = occupation_scores(dataset, metric), occupation_metric(metric)
    elif metric in METRICS:
        definition = METRICS[metric]
    else:
        raise UserError(
            f"{run_dir}/run.json names metric {metric!r}, expected one of "
            f"{', '.join(sorted([*METRICS, *OCCUPATION_MEASURES]))}; correct it there"
        )
    try:
        given = metric_input(definition, dataset["prediction"], dataset.get("scores"))
        return float(definition.score(dataset["label"], given)[0])
    except ValueError as error:
        raise UserError(f"{run_dir}: {metric} cannot be computed: {error}") from error
