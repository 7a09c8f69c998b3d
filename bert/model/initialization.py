"""Initial weights: a pure function of `pretrain_seed` and each variable's name."""

from __future__ import annotations

import numpy as np
from scipy import special

from multiberts.bert.model.configuration import BertConfig, parameter_shapes
from multiberts.bert.randomness import generator


def truncated_normal(
    shape: tuple[int, ...], standard_deviation: float, *key: int | str
) -> np.ndarray:
    """Draws from a normal distribution cut at two standard deviations.

    Inverts one uniform number per element, so the values are equal on all platforms with the same IEEE
    rounding. After truncation the standard deviation is 0.88 times the nominal one.

    Args:
      standard_deviation: SD of the normal before truncation.

    Returns:
      float32 array of `shape`.
    """
    low, high = special.ndtr(-2.0), special.ndtr(2.0)
    uniform = generator(*key).random(shape)
    # TensorFlow redraws values beyond the cut; its number of draws depends on the values, so elements cannot
    # have addresses.
    values = special.ndtri(low + (high - low) * uniform) * standard_deviation
    return np.asarray(values, np.float32)


def initial_parameters(config: BertConfig, pretrain_seed: int) -> dict[str, np.ndarray]:
    """Returns the weights at step 0: kernels and embeddings truncated normal, biases and beta 0, gamma 1.

    Args:
      config: the model's sizes; `initializer_range` is the nominal standard deviation.
      pretrain_seed: seed of the draws; each variable has a separate address, so a new variable does not
        change others.

    Returns:
      float32 arrays by released variable name.

    Reference: google-research/bert, `modeling.create_initializer`.
    """
    parameters = {}
    for name, shape in parameter_shapes(config).items():
        if name.endswith("/gamma"):
            parameters[name] = np.ones(shape, np.float32)
        elif name.endswith(("/beta", "bias")):
            parameters[name] = np.zeros(shape, np.float32)
        else:
            parameters[name] = truncated_normal(
                shape, config.initializer_range, "initial_parameters", pretrain_seed, name
            )
    return parameters
