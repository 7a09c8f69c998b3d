"""A run's answers as SQuAD's official scorer takes them: `multiberts squad-export`.

The files have the names and layouts of google-research/bert's run_squad.py: `predictions.json`, for
SQuAD 2.0 `null_odds.json`, and `nbest_predictions.json` where the run kept its n-best lists
(finetune.options = {"dump_n_best": True}). `scores.json` is what the official scorer prints for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.evaluate.metrics.squad import official_scores
from multiberts.evaluate.prediction_files.prediction_file import (
    ANSWERS,
    PREDICTION_TEXT,
    Predictions,
)
from multiberts.evaluate.prediction_files.predictions import read_run_predictions
from multiberts.finetune.squad.answers import BEST_TEXT, N_BEST_LOGITS, N_BEST_TEXTS, NULL_ODDS
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically


def squad_export(
    *,
    run_dir: str,
    predictions: str,
    evaluation_set: str = "dev",
    null_threshold: float | None = None,
) -> None:
    """Writes the answers of one fine-tuning run in the official layouts.

    Outputs in run_dir: `predictions.json` and `scores.json`; for SQuAD 2.0 `null_odds.json`; with
    n-best lists in the predictions `nbest_predictions.json`.

    Args:
      run_dir: the directory of this run.
      predictions: a finished fine-tuning run on questions.
      evaluation_set: which of its sets.
      null_threshold: questions with null odds above it go unanswered, such as the best threshold of
        `scores.json`; None: as the run decided. For SQuAD 2.0 only.
    """
    if null_threshold is not None and math.isnan(null_threshold):
        raise UserError("squad_export.null_threshold is not a number; give one, or leave it out")
    read = read_run_predictions(Path(predictions), evaluation_set)
    if PREDICTION_TEXT not in read.outputs or ANSWERS not in read.extras:
        raise UserError(
            f"{predictions}, set {evaluation_set}: has no text answers, expected those of a SQuAD "
            "task; give a run of one"
        )
    run = RunDirectory(
        run_dir,
        stage="squad_export",
        parameters={"evaluation_set": evaluation_set, "null_threshold": null_threshold},
        inputs={"predictions": [Path(predictions)]},
    )
    if run.done:
        return
    files = official_files(read, null_threshold, predictions)
    with run:
        for name, content in files.items():
            write_atomically(run.path / name, json.dumps(content, indent=4) + "\n")
        run.finish(list(files))


def official_files(
    predictions: Predictions, null_threshold: float | None, source: str
) -> dict[str, Mapping[str, Any]]:
    """Returns the files' contents by name."""
    texts = [str(text) for text in predictions.outputs[PREDICTION_TEXT]]
    null_odds = None
    if NULL_ODDS in predictions.outputs:
        null_odds = [float(odds) for odds in predictions.outputs[NULL_ODDS]]
    if null_threshold is not None:
        if null_odds is None or BEST_TEXT not in predictions.outputs:
            raise UserError(
                f"{source} has no null odds, as all its questions have answers; leave "
                "squad_export.null_threshold out"
            )
        best = [str(text) for text in predictions.outputs[BEST_TEXT]]
        texts = [
            "" if odds > null_threshold else text
            for text, odds in zip(best, null_odds, strict=True)
        ]
    ids = list(predictions.example_ids)
    references = [tuple(answers) for answers in predictions.extras[ANSWERS]]
    files: dict[str, Mapping[str, Any]] = {
        "predictions.json": dict(zip(ids, texts, strict=True)),
        "scores.json": official_scores(references, texts, null_odds),
    }
    if null_odds is not None:
        files["null_odds.json"] = dict(zip(ids, null_odds, strict=True))
    if N_BEST_TEXTS in predictions.outputs:
        lists = zip(
            predictions.outputs[N_BEST_TEXTS], predictions.outputs[N_BEST_LOGITS], strict=True
        )
        entries = [_n_best(found, logits) for found, logits in lists]
        files["nbest_predictions.json"] = dict(zip(ids, entries, strict=True))
    return files


def _n_best(texts: Sequence[str], logits: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the n-best list of a question, with probabilities among its answers."""
    pairs = [tuple(map(float, pair.split())) for pair in logits]
    highest = max(start + end for start, end in pairs)
    weights = [math.exp(start + end - highest) for start, end in pairs]
    return [
        {
            "text": text,
            "probability": weight / sum(weights),
            "start_logit": start,
            "end_logit": end,
        }
        for text, weight, (start, end) in zip(texts, weights, pairs, strict=True)
    ]
