"""Initial weights: a pure function of `pretrain_seed` and each variable's name."""

from __future__ import annotations

import numpy as np
from scipy import special

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.randomness import generator


def truncated_normal(
    shape: tuple[int, ...], standard_deviation: float, *key: int | str
) -> np.ndarray:
    """Normal draws cut at two standard deviations.

    By inversion of one uniform an element, so the values are the same on every platform that
    rounds IEEE arithmetic alike. The cut leaves a real standard deviation of 0.88 of the nominal.

    Args:
      shape: of the result.
      standard_deviation: of the normal before the cut.
      *key: the address of the draw.

    Returns:
      float32 array of `shape`.
    """
    low, high = special.ndtr(-2.0), special.ndtr(2.0)
    uniform = generator(*key).random(shape)
    values = special.ndtri(low + (high - low) * uniform) * standard_deviation
    return values.astype(np.float32)


def parameter_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all variables of a pre-trained model, as released."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (config.vocab_size, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
    }

    def add_layer_norm(name: str) -> None:
        shapes[f"{name}/beta"] = (hidden,)
        shapes[f"{name}/gamma"] = (hidden,)

    def add_dense(name: str, inputs: int, outputs: int) -> None:
        shapes[f"{name}/kernel"] = (inputs, outputs)
        shapes[f"{name}/bias"] = (outputs,)

    add_layer_norm("bert/embeddings/LayerNorm")
    for layer in range(config.num_hidden_layers):
        name = f"bert/encoder/layer_{layer}"
        for part in ("query", "key", "value"):
            add_dense(f"{name}/attention/self/{part}", hidden, hidden)
        add_dense(f"{name}/attention/output/dense", hidden, hidden)
        add_layer_norm(f"{name}/attention/output/LayerNorm")
        add_dense(f"{name}/intermediate/dense", hidden, inner)
        add_dense(f"{name}/output/dense", inner, hidden)
        add_layer_norm(f"{name}/output/LayerNorm")
    add_dense("bert/pooler/dense", hidden, hidden)
    add_dense("cls/predictions/transform/dense", hidden, hidden)
    add_layer_norm("cls/predictions/transform/LayerNorm")
    shapes["cls/predictions/output_bias"] = (config.vocab_size,)
    shapes["cls/seq_relationship/output_weights"] = (2, hidden)
    shapes["cls/seq_relationship/output_bias"] = (2,)
    return shapes


def initial_parameters(config: BertConfig, pretrain_seed: int) -> dict[str, np.ndarray]:
    """Weights at step 0: kernels and embeddings truncated normal, biases and beta 0, gamma 1.

    Args:
      config: the model's sizes; `initializer_range` is the nominal standard deviation.
      pretrain_seed: the seed; each variable draws from its own address, so adding a variable
        changes no other.

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
