"""A pre-trained encoder with a new output layer, where fine-tuning starts."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from multiberts.finetune.family import Arrays, Learner
from multiberts.finetune.training_options import RECIPE, TrainingOptions

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class TrainingStart:
    """Where and how the training of a whole encoder starts.

    Attributes:
      checkpoint: the encoder's weights.
      finetune_seed: of the head's initial weights.
      compile_step: whether XLA compiles training and prediction.
      training: the options beside the recipe's.
    """

    checkpoint: Checkpoint
    finetune_seed: int
    compile_step: bool
    training: TrainingOptions

    def parameters(self, num_outputs: int, address: str) -> Callable[[], Arrays]:
        """Returns what gives the weights before the first step, see `with_output_layer`."""
        given = self.checkpoint, num_outputs, address, self.finetune_seed
        return functools.partial(with_output_layer, *given)


class WholeEncoderData(abc.ABC):
    """Data on which the whole encoder is trained with a new output layer."""

    @abc.abstractmethod
    def joined(self, start: TrainingStart) -> Learner:
        """Joins the data with a checkpoint."""

    def learner(
        self,
        checkpoint: Checkpoint,
        *,
        fingerprint: str,
        finetune_seed: int,
        compile_step: bool,
        training: TrainingOptions = RECIPE,
    ) -> Learner:
        """Joins the data with a checkpoint."""
        del fingerprint  # the encoder is trained: nothing of it can be kept between runs
        return self.joined(TrainingStart(checkpoint, finetune_seed, compile_step, training))


def with_output_layer(checkpoint: Checkpoint, num_outputs: int, *address: str | int) -> Arrays:
    """Returns the encoder's weights with a new output layer and without the pre-training heads.

    Args:
      checkpoint: the weights to start from.
      num_outputs: rows of the new layer.
      address: names the layer's initial weights, the fine-tuning seed among it.

    Returns:
      The trained weights by name, `output_weights` float32 [num_outputs, hidden] (truncated normal) and
      `output_bias` float32 [num_outputs] (zeros) among them.
    """
    from multiberts.bert.model.initialization import truncated_normal

    encoder = {
        name: values for name, values in checkpoint.parameters.items() if name.startswith("bert/")
    }
    config = checkpoint.config
    weights = truncated_normal(
        (num_outputs, config.hidden_size), config.initializer_range, *address, "output_weights"
    )
    return {**encoder, "output_weights": weights, "output_bias": np.zeros(num_outputs, np.float32)}
