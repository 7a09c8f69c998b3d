"""Heads on a pre-trained encoder: a new output layer to train, or the masked-LM head as it is."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.finetune.features import encoder_inputs
from multiberts.finetune.task import Arrays, EvaluationSet, Learner, LearnerArguments
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import CompileChoice, ForwardPass


POOLER = "bert/pooler/dense/kernel", "bert/pooler/dense/bias"


def with_output_layer(
    checkpoint: Checkpoint, num_outputs: int, *address: str | int, reads_pooler: bool = True
) -> Arrays:
    """Returns the encoder's weights with a new output layer and without the pre-training heads.

    Args:
      address: names the layer's initial weights, the fine-tuning seed among it.
      reads_pooler: whether a missing pooler is drawn, too.

    Returns:
      The trained weights by name, `output_weights` float32 [num_outputs, hidden] (truncated normal) and
      `output_bias` float32 [num_outputs] (zeros) among them.
    """
    from multiberts.bert.model.initialization import truncated_normal

    encoder = {
        name: values for name, values in checkpoint.parameters.items() if name.startswith("bert/")
    }
    config = checkpoint.config
    hidden, deviation = config.hidden_size, config.initializer_range
    weights = truncated_normal((num_outputs, hidden), deviation, *address, "output_weights")
    if reads_pooler and POOLER[0] not in encoder:
        kernel = truncated_normal((hidden, hidden), deviation, *address, POOLER[0])
        encoder |= zip(POOLER, (kernel, np.zeros(hidden, np.float32)), strict=True)
    return {**encoder, "output_weights": weights, "output_bias": np.zeros(num_outputs, np.float32)}


# Logits [batch, positions, pieces] and the batch -> what is kept of them, by name.
Answers = Callable[[Any, Any], dict[str, Any]]


class MaskedLmData(abc.ABC):
    """Sequences with masked words, for a task that trains nothing."""

    task: ClassVar[str]
    train_groups = np.zeros(0, np.int64)

    @abc.abstractmethod
    def answers(self) -> Answers:
        """Returns what is compiled of the logits; the same object for equal data, a key for caches."""

    @abc.abstractmethod
    def predicted(
        self, predictor: ForwardPass, parameters: Mapping[str, np.ndarray]
    ) -> EvaluationSet:
        """Returns what a checkpoint's weights answer; batches have `masked_lm_positions`."""

    def learner(self, checkpoint: Checkpoint, **how: Unpack[LearnerArguments]) -> Learner:
        if "cls/predictions/output_bias" not in checkpoint.parameters:
            raise UserError(
                f"{checkpoint.directory} has no masked-LM head (cls/predictions/...), which "
                f"task {self.task} needs; give a pre-training checkpoint"
            )
        predictor = _predictor(checkpoint.config, self.answers(), how["compile_step"])

        def evaluate(parameters: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
            yield self.predicted(predictor, parameters)

        return Learner(
            trainer=None,
            initial_parameters=lambda: dict(checkpoint.parameters),
            batch=lambda _: {},
            evaluate=evaluate,
        )


@functools.lru_cache(maxsize=4)
def _predictor(config: BertConfig, answers: Answers, compile_step: CompileChoice) -> ForwardPass:
    from multiberts.bert.model.encoder import encode
    from multiberts.bert.model.heads import masked_lm_logits
    from multiberts.bert.training.engine import ForwardPass

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        sequence = encode(parameters, config, *encoder_inputs(batch))
        logits = masked_lm_logits(parameters, config, sequence, batch["masked_lm_positions"])
        return answers(logits, batch)

    return ForwardPass(predict, compile_step=compile_step)
