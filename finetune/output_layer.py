"""A pre-trained encoder with a new output layer, where fine-tuning starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from multiberts.finetune.task import Arrays

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint


def with_output_layer(checkpoint: Checkpoint, num_outputs: int, *address: str | int) -> Arrays:
    """Returns the encoder's weights with a new output layer and without the pre-training heads.

    Args:
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
