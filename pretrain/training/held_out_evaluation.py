"""Evaluation of masked words and next sentences on text that is not trained on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.training.log import HELD_OUT
from multiberts.pretrain.batches.corpus_batches import EVALUATION_DATA_SEED, Batches
from multiberts.pretrain.batches.masking import Masking
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

if TYPE_CHECKING:
    from multiberts.bert.training.engine import ForwardPass


def open_held_out(
    corpus: PathLike, num_batches: int, masking: Masking, trained: Batches
) -> Batches:
    """Opens the batches of a held-out corpus, the same for all runs.

    Args:
      num_batches: number of batches to use.
      masking: settings that make sequences, as for the training corpus.
    """
    batches = Batches(
        corpus, masking, data_seed=EVALUATION_DATA_SEED, batch_size=trained.batch_size
    )
    if differ := batches.vocabulary.difference(trained.vocabulary):
        raise UserError(
            f"{differ}; prepare the held-out corpus with prepare.vocabulary set to the latter"
        )
    most = batches.num_instances // batches.batch_size
    if not 1 <= num_batches <= most:
        raise UserError(
            f"pretrain.evaluation_batches is {num_batches}, but {corpus} has "
            f"{batches.num_instances} instances, {most} batches of {batches.batch_size}; give 1 to "
            f"{most}, or more text"
        )
    return batches


def evaluate_held_out(
    parameters: Mapping[str, np.ndarray],
    config: BertConfig,
    batches: Batches,
    *,
    num_batches: int,
    compile_step: bool = True,
) -> dict[str, float]:
    """Losses and accuracies without dropout, over all masked words and all pairs.

    Args:
      parameters: the weights, float32 by name.
      batches: batches of the held-out corpus; the first `num_batches` are used.
      compile_step: whether to compile the forward pass with XLA.

    Returns:
      `held_out_masked_lm_loss` and `_accuracy` (means over masked words) and
      `held_out_next_sentence_loss` and `_accuracy` (means over pairs), to six decimals.
    """
    predictor = _predictor(config, compile_step)
    sums: dict[str, float] = {}
    words, pairs = 0.0, 0
    for number in range(num_batches):
        batch = batches.batch(number)
        count = float(batch["masked_lm_weights"].sum())
        words, pairs = words + count, pairs + batches.batch_size
        for name, value in predictor(parameters, batch).items():
            # The loss function divides by its count of words, made safe against none.
            weight = count + 1e-5 if name.startswith("masked_lm") else batches.batch_size
            sums[name] = sums.get(name, 0.0) + float(value) * weight
    return {
        HELD_OUT + name: round(total / (words if name.startswith("masked_lm") else pairs), 6)
        for name, total in sums.items()
    }


@functools.lru_cache(maxsize=2)
def _predictor(config: BertConfig, compile_step: bool) -> ForwardPass:
    from multiberts.bert.model.heads import pretraining_loss
    from multiberts.bert.training.engine import ForwardPass

    def metrics(parameters: Any, batch: Any) -> Any:
        return pretraining_loss(parameters, config, batch, None)[1]

    return ForwardPass(metrics, compile_step=compile_step)
