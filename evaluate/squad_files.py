"""Writes a run's answers in the format of SQuAD's official scorer: `multiberts export --path=FOLDER`.

The files have the names and layouts of google-research/bert's run_squad.py: `predictions.json`, for
SQuAD 2.0 `null_odds.json`, and `nbest_predictions.json` where the run kept its n-best lists
(finetune.options = {"dump_n_best": True}). The official scorer prints `scores.json` for them.
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
    BEST_TEXT,
    N_BEST_LOGITS,
    N_BEST_TEXTS,
    NULL_ODDS,
    PREDICTION_TEXT,
    Predictions,
)
from multiberts.evaluate.prediction_files.predictions import read_run_predictions
from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, write_outputs


def write_squad_files(
    folder: PathLike, run: PathLike, evaluation_set: str, null_threshold: float | None
) -> None:
    """Writes the answers of one fine-tuning run in the official layouts.

    Args:
      folder: folder for `predictions.json`, `scores.json`, `null_odds.json` (SQuAD 2.0 only) and
        `nbest_predictions.json` (if the predictions have n-best lists).
      null_threshold: questions with higher null odds are left unanswered; None keeps the run's decisions.
    """
    if null_threshold is not None and math.isnan(null_threshold):
        raise UserError("export.null_threshold is not a number; give one, or leave it out")
    predictions = read_run_predictions(Path(run), evaluation_set)
    if PREDICTION_TEXT not in predictions.outputs or ANSWERS not in predictions.extras:
        raise UserError(
            f"{run}, set {evaluation_set}: has no text answers, expected those of a SQuAD task; give a run "
            "of one, or a path that ends in .parquet or .csv"
        )
    files = official_files(predictions, null_threshold, str(run))
    write_outputs({Path(folder) / name: json.dumps(files[name], indent=4) + "\n" for name in files})
    console.report(f"{folder}: {', '.join(files)}")


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
                "export.null_threshold out"
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
