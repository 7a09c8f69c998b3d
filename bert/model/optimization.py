"""BERT's optimiser: its Adam, its schedule, its clipping by gradient shard."""

from __future__ import annotations

from typing import Any

from keras import ops

Array = Any

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-6
CLIP_NORM = 1.0


def learning_rate_schedule(step: int, peak: float, warmup_steps: int, num_steps: int) -> float:
    """Returns the learning rate of the update that follows `step` finished updates.

    Linear from 0 over the warm-up; afterwards linear decay of the global step to 0 at `num_steps`,
    not offset by the warm-up, so the first value after it is peak x (1 - warmup_steps / num_steps).

    Args:
      step: finished updates, from 0.
      peak: the nominal learning rate.
      warmup_steps: updates of warm-up.
      num_steps: updates in all.

    Reference: google-research/bert, `optimization.create_optimizer`.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * max(0.0, 1.0 - step / num_steps)


def is_decayed(name: str) -> bool:
    """Returns whether weight decay applies: to all but layer normalisation and biases."""
    return not ("LayerNorm" in name or "layer_norm" in name or "bias" in name)


def clipping_scale(gradients: dict[str, Array]) -> tuple[Array, Array]:
    """Returns the factor that brings a shard's gradient to a norm over all variables of at most 1.

    Returns:
      The factor, and the norm without it (float32 scalars).
    """
    square = sum(ops.sum(ops.square(gradients[name])) for name in sorted(gradients))
    norm = ops.sqrt(square)
    return CLIP_NORM / ops.maximum(norm, CLIP_NORM), norm


def adam_update(
    parameter: Array,
    gradient: Array,
    m: Array,
    v: Array,
    learning_rate: Array,
    weight_decay_rate: float,
) -> tuple[Array, Array, Array]:
    """Updates one variable: Adam without bias correction, decoupled weight decay.

    Args:
      parameter: float32 array.
      gradient: of the same shape, as are m and v.
      m: mean of gradients.
      v: mean of squared gradients.
      learning_rate: float32 scalar.
      weight_decay_rate: 0 for variables that are not decayed.

    Returns:
      The new parameter, m and v.

    Reference: google-research/bert, `optimization.AdamWeightDecayOptimizer`.
    """
    m = BETA_1 * m + (1.0 - BETA_1) * gradient
    v = BETA_2 * v + (1.0 - BETA_2) * ops.square(gradient)
    update = m / (ops.sqrt(v) + EPSILON)
    if weight_decay_rate:
        update = update + weight_decay_rate * parameter
    return parameter - learning_rate * update, m, v
