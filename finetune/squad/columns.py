"""Answers to questions as columns of a run's predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from multiberts.evaluate.dumps.prediction_file import PREDICTION_TEXT
from multiberts.finetune.squad.answers import Answer, Candidate

BEST_TEXT = "best_text"
NULL_ODDS = "null_odds"
N_BEST_TEXTS = "n_best_texts"
N_BEST_LOGITS = "n_best_logits"


def answer_columns(answers: Sequence[Answer]) -> dict[str, Any]:
    """What a run answers.

    Args:
      answers: [questions].

    Returns:
      Columns [questions]:

      * `prediction_text`: the answer given, "" for none;
      * `start`, `end`: its place in the paragraph in characters, end exclusive; -1 for none;
      * `start_logit`, `end_logit`: of the best answer, given or not;
      * SQuAD 2.0: `best_text`, the best answer, given or not, and `null_odds`, how much higher no
        answer scores.
    """
    columns: dict[str, Any] = {
        PREDICTION_TEXT: [answer.chosen.text for answer in answers],
        "start": np.array([answer.chosen.start for answer in answers], np.int64),
        "end": np.array([answer.chosen.end for answer in answers], np.int64),
        "start_logit": np.array([answer.best.start_logit for answer in answers], np.float32),
        "end_logit": np.array([answer.best.end_logit for answer in answers], np.float32),
    }
    if not any(math.isnan(answer.null_odds) for answer in answers):
        columns[BEST_TEXT] = [answer.best.text for answer in answers]
        columns[NULL_ODDS] = np.array([answer.null_odds for answer in answers], np.float32)
    return columns


def n_best_columns(lists: Sequence[Sequence[Candidate]]) -> dict[str, Any]:
    """The n-best lists of all questions: the texts, and `start end` logits of each as a text."""
    return {
        N_BEST_TEXTS: [[one.text for one in found] for found in lists],
        N_BEST_LOGITS: [[f"{one.start_logit} {one.end_logit}" for one in found] for found in lists],
    }
