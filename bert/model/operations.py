"""Floating-point operations of a training step, and the peaks of devices.

The share of its peak that a device spends on the model's own products (MFU) is
`model_flops_per_step / (seconds per step * peak of all devices)`. Recomputation, dropout's hashing,
normalisation and the optimiser are not counted, as they are overhead. The last layer is counted in full,
although pre-training computes only the positions that the heads use: 5.7 % fewer products for BERT-Base at
512 / 80.

Reference: Chowdhery et al., PaLM, 2022, appendix B (model FLOPs utilisation).
"""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any

from multiberts.bert.model.configuration import BertConfig

# A product's gradient is two products of its size: one for each factor.
_FORWARD_AND_BACKWARD = 3


@functools.cache
def device_peaks() -> dict[str, dict[str, Any]]:
    """Returns the tables of `peaks.toml` by device: FLOP/s by type, `source` and `date`."""
    return tomllib.loads(Path(__file__).with_name("peaks.toml").read_text())


def model_flops_per_step(
    config: BertConfig,
    batch_size: int,
    sequence_length: int,
    max_predictions_per_sequence: int = 0,
    *,
    trained: bool = True,
) -> int:
    """Returns the multiplications and additions in the matrix products of one pre-training step.

    With h the hidden size, i the intermediate size, n the length, p the predictions of a sequence
    and V the vocabulary, the forward pass of one sequence takes

    * per layer, projections and feed-forward: n (8 h^2 + 4 h i)
    * per layer, scores and mixtures of attention: 4 n^2 h
    * masked-word head, on masked positions only: p (2 h^2 + 2 h V)
    * pooler and next-sentence head: 2 h^2 + 4 h

    and the backward pass twice as much. Lookups of embeddings are not products. Padding counts, as devices
    multiply it, too.

    Args:
      batch_size: sequences per step.
      sequence_length: pieces per sequence.
      max_predictions_per_sequence: masked positions of a sequence, filled or not; 0: no head.
      trained: whether to count the backward pass too.

    Returns:
      Floating-point operations, two for each multiply-add. Without attention and heads: 6 x (kernels
      of the layers) per token.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    layer = sequence_length * (8 * hidden**2 + 4 * hidden * inner) + 4 * sequence_length**2 * hidden
    head = max_predictions_per_sequence * (2 * hidden**2 + 2 * hidden * config.vocab_size)
    pooler = 2 * hidden**2 + 4 * hidden
    forward = batch_size * (config.num_hidden_layers * layer + head + pooler)
    return forward * (_FORWARD_AND_BACKWARD if trained else 1)


def peak_flops_per_second(device_kind: str, compute_dtype: str = "float32") -> float | None:
    """Returns the peak of one accelerator from its maker's data sheet, without sparsity.

    Args:
      device_kind: the name its driver reports, such as `NVIDIA A100-SXM4-40GB`.
      compute_dtype: `float32` or `bfloat16`, of the products.

    Returns:
      FLOP/s; None for unknown devices, such as CPUs.
    """
    for words, peaks in device_peaks().items():
        # Match whole words: an L40 is not an L4, and a T400 is not a T4.
        if re.search(rf"\b{words}\b", device_kind, re.IGNORECASE):
            return peaks.get("bfloat16" if compute_dtype == "bfloat16" else "float32")
    return None
