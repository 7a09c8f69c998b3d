"""BERT's optimiser: its Adam, its schedule, its clipping by gradient shard."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.backend_ops import PLAIN

Array = Any

CLIP_NORM = 1.0

Decay = Literal["linear", "cosine", "constant"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamSettings:
    """The optimiser's settings besides the learning rate.

    Attributes:
      weight_decay_rate: decay of all weights except layer normalisation and biases.
      beta_1: share of the mean gradient that each update keeps.
      beta_2: share of the mean squared gradient that each update keeps.
      epsilon: added to the root of the mean squared gradient.
      bias_correction: whether moments are corrected for their initial zeros.
      factor_of: name -> factor of a variable's learning rate; 0 freezes the variable and excludes it from
        the gradient norm. None: 1.
    """

    weight_decay_rate: float = 0.01
    # As google-research/bert, `optimization.create_optimizer`; Kingma and Ba (2015) have an epsilon of 1e-8.
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = False
    factor_of: Callable[[str], float] | None = None


def learning_rate_schedule(
    step: int, peak: float, warmup_steps: int, num_steps: int, decay: Decay = "linear"
) -> float:
    """Returns the learning rate of the update that follows `step` finished updates.

    Linear from 0 over the warm-up; afterwards linear decay of the global step to 0 at `num_steps`,
    not offset by the warm-up, so the first value after it is peak x (1 - warmup_steps / num_steps).
    Cosine (half a period, down to 0) and constant decay start at the peak after the warm-up.

    Args:
      step: finished updates, from 0.

    Reference: google-research/bert, `optimization.create_optimizer`; Loshchilov and Hutter, 2017, equation 5
    (cosine, without restarts).

    Examples:
      >>> [learning_rate_schedule(5, 1.0, 2, 8, decay) for decay in ("linear", "cosine", "constant")]
      [0.375, 0.5, 1.0]
    """
    # The first update has rate 0, as the original's: it moves m and v, and no weight.
    if step < warmup_steps:
        return peak * step / warmup_steps
    if decay == "constant":
        return peak
    if decay == "cosine":
        done = min(1.0, (step - warmup_steps) / max(1, num_steps - warmup_steps))
        return peak * (1.0 + math.cos(math.pi * done)) / 2
    return peak * max(0.0, 1.0 - step / num_steps)


def is_decayed(name: str) -> bool:
    """Returns whether weight decay applies: to all but layer normalisation and biases."""
    # The original's `exclude_from_weight_decay` searches for these patterns anywhere in a name.
    return not ("LayerNorm" in name or "layer_norm" in name or "bias" in name)


def clipping_scale(
    gradients: dict[str, Array], square: Callable[[Array], Array] = PLAIN.square
) -> tuple[Array, Array]:
    """Returns the factor that clips a shard's gradient to global norm 1.

    Args:
      gradients: {variable name: gradient}.
      square: backend's function that squares elements before a sum.

    Returns:
      The factor and the norm before clipping (float32 scalars).
    """
    # Sorted by name: float32 sums depend on the order, and callers' mappings have no fixed order.
    norm = ops.sqrt(sum(ops.sum(square(gradients[name])) for name in sorted(gradients)))
    # `tf.clip_by_global_norm` without a branch: the factor is exactly 1 up to the norm of 1.
    return CLIP_NORM / ops.maximum(norm, CLIP_NORM), norm


def adam_update(
    parameter: Array,
    gradient: Array,
    m: Array,
    v: Array,
    learning_rate: Array,
    settings: AdamSettings,
    decays: bool,
    corrections: tuple[Array, Array] | None = None,
) -> tuple[Array, Array, Array]:
    """Updates one variable: Adam, without bias correction in the recipe, with decoupled weight decay.

    Args:
      parameter: float32 array.
      gradient: gradient, same shape; m and v too.
      learning_rate: float32 scalar.
      decays: whether weight decay applies to this variable.
      corrections: divisors of m and v, see `bias_corrections`; None: 1.

    Returns:
      The new parameter, m and v.

    Reference: google-research/bert, `optimization.AdamWeightDecayOptimizer`; Kingma and Ba, 2015,
    algorithm 1 (corrections).
    """
    beta_1, beta_2, epsilon = settings.beta_1, settings.beta_2, settings.epsilon
    m = beta_1 * m + (1.0 - beta_1) * gradient
    v = beta_2 * v + (1.0 - beta_2) * ops.square(gradient)
    if corrections is None:
        # Without corrections the first update is 0.1 g / sqrt(0.001 g^2), three times the corrected one; it
        # meets the small learning rates of the warm-up.
        update = m / (ops.sqrt(v) + epsilon)
    else:
        update = m / corrections[0] / (ops.sqrt(v / corrections[1]) + epsilon)
    # Added to the update, not to the gradient: else sqrt(v) would divide it (Loshchilov and Hutter, 2019).
    if decays and settings.weight_decay_rate:
        update = update + settings.weight_decay_rate * parameter
    return parameter - learning_rate * update, m, v


def adam_updates(
    parameters: Mapping[str, Array],
    gradients: Mapping[str, Array],
    m: Mapping[str, Array],
    v: Mapping[str, Array],
    learning_rate: Array,
    settings: AdamSettings,
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    """Updates all variables.

    Args:
      parameters: float32 arrays by name.
      learning_rate: float32 scalar; or [3], with the two of `bias_corrections` after it.

    Returns:
      The new parameters, m and v by name.
    """
    corrections = None
    if len(learning_rate.shape):
        corrections = learning_rate[1], learning_rate[2]
        learning_rate = learning_rate[0]
    new: tuple[dict[str, Array], dict[str, Array], dict[str, Array]] = ({}, {}, {})
    for name in sorted(parameters):
        factor = 1.0 if settings.factor_of is None else settings.factor_of(name)
        # Skip weight decay too: a frozen variable keeps its exact bits.
        if factor == 0:
            updated = parameters[name], m[name], v[name]
        else:
            updated = adam_update(
                parameters[name],
                gradients[name],
                m[name],
                v[name],
                learning_rate if factor == 1 else learning_rate * factor,
                settings,
                is_decayed(name),
                corrections,
            )
        for part, values in zip(new, updated, strict=True):
            part[name] = values
    return new


def bias_corrections(step: int, settings: AdamSettings) -> tuple[float, float]:
    """Returns the divisors of the moments in the update that follows `step` finished updates.

    Examples:
      >>> [round(correction, 6) for correction in bias_corrections(0, AdamSettings())]
      [0.1, 0.001]
    """
    return 1.0 - settings.beta_1 ** (step + 1), 1.0 - settings.beta_2 ** (step + 1)


_LAYER = re.compile(r"bert/encoder/layer_(\d+)/")


def learning_rate_factor(
    name: str, num_layers: int, layer_decay: float = 1.0, frozen_layers: int | None = None
) -> float:
    """Returns the factor of a variable's learning rate in fine-tuning.

    Args:
      layer_decay: the factor of a layer is that of the layer above it times this; pooler and head have 1.
      frozen_layers: the embeddings and the first N layers have 0; None: nothing has.

    Reference: Howard and Ruder, 2018, section 3.2 (discriminative fine-tuning).


    Examples:
      >>> [learning_rate_factor(name, 12, 0.5) for name in ("output_weights",
      ...  "bert/encoder/layer_11/output/dense/kernel", "bert/encoder/layer_10/output/dense/kernel")]
      [1.0, 0.5, 0.25]
      >>> learning_rate_factor("bert/embeddings/word_embeddings", 12, frozen_layers=0)
      0.0
    """
    match = _LAYER.match(name)
    if match is None and not name.startswith("bert/embeddings/"):
        return 1.0
    depth = 0 if match is None else int(match[1]) + 1
    if frozen_layers is not None and depth <= frozen_layers:
        return 0.0
    return layer_decay ** (num_layers + 1 - depth)
