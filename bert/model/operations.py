"""Floating-point operations of a training step, and what a device could do at the most.

The share of its peak that a device spends on the model's own products (MFU) is
`model_flops_per_step / (seconds a step * peak of all devices)`. Recomputation, dropout's hashing,
normalisation and the optimiser count nothing: they are the cost of a step, not its purpose.

Reference: Chowdhery et al., PaLM, 2022, appendix B (model FLOPs utilisation).
"""

from __future__ import annotations

import re
import time

from multiberts.bert.model.configuration import BertConfig

# A product's gradient is two products of its size: one for each factor.
_FORWARD_AND_BACKWARD = 3

# Dense peaks of one device in FLOP/s, as the maker's data sheets give them, by words of the name
# that the driver reports; the first that stand in the name count. Products of bfloat16, and of
# float32 as TensorFlow runs them by default (TF32, where the device has it). None: no fast path.
_PEAKS: tuple[tuple[str, float | None, float | None], ...] = (
    ("H200", 989e12, 495e12),
    ("H100 PCIe", 756e12, 378e12),
    ("H100 NVL", 835e12, 417e12),
    ("H100", 989e12, 495e12),
    ("A100", 312e12, 156e12),
    ("A10G", 70e12, 35e12),
    ("A10", 125e12, 62.5e12),
    ("L40S", 362e12, 183e12),
    ("L40", 181e12, 90.5e12),
    ("L4", 121e12, 60e12),
    ("V100", None, 15.7e12),
    ("T4", None, 8.1e12),
)


def model_flops_per_step(
    config: BertConfig,
    batch_size: int,
    sequence_length: int,
    max_predictions_per_sequence: int = 0,
    *,
    trained: bool = True,
) -> int:
    """Multiplications and additions in the matrix products of one pre-training step.

    With h the hidden size, i the intermediate size, n the length, p the predictions of a sequence
    and V the vocabulary, the forward pass of one sequence takes

    * each layer, projections and feed-forward: n (8 h^2 + 4 h i)
    * each layer, scores and mixtures of attention: 4 n^2 h
    * masked-word head, on masked positions only: p (2 h^2 + 2 h V)
    * pooler and next-sentence head: 2 h^2 + 4 h

    and the backward pass twice as much. Lookups of embeddings are no products. Padding counts: a
    device multiplies it like the rest.

    Args:
      config: the model's sizes.
      batch_size: sequences a step.
      sequence_length: pieces a sequence.
      max_predictions_per_sequence: masked positions of a sequence, filled or not; 0: no head.
      trained: with the backward pass; False: the forward pass only.

    Returns:
      Floating-point operations, two for each multiply-add. Without attention and heads: 6 x (kernels
      of the layers) a token.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    layer = sequence_length * (8 * hidden**2 + 4 * hidden * inner) + 4 * sequence_length**2 * hidden
    head = max_predictions_per_sequence * (2 * hidden**2 + 2 * hidden * config.vocab_size)
    pooler = 2 * hidden**2 + 4 * hidden
    forward = batch_size * (config.num_hidden_layers * layer + head + pooler)
    return forward * (_FORWARD_AND_BACKWARD if trained else 1)


def peak_flops_per_second(device_kind: str, compute_dtype: str = "float32") -> float | None:
    """The peak of one accelerator by its maker's data sheet, without sparsity.

    Args:
      device_kind: the name its driver reports, such as `NVIDIA A100-SXM4-40GB`.
      compute_dtype: `float32` or `bfloat16`, of the products.

    Returns:
      FLOP/s; None where the device is not known. A CPU is not: see `measured_flops_per_second`.
    """
    for words, bfloat16, float32 in _PEAKS:
        # Whole words: an L40 is no L4, and a T400 no T4.
        if re.search(rf"\b{words}\b", device_kind, re.IGNORECASE):
            return bfloat16 if compute_dtype == "bfloat16" else float32
    return None


def measured_flops_per_second(
    compute_dtype: str = "float32", size: int = 1024, repeats: int = 5
) -> float:
    """What this machine's default device reaches in a square product, the best of a few.

    For CPUs, whose peak depends on clock and load: a share of it says how far a step is from
    products alone, on this machine and now.

    Args:
      compute_dtype: of the factors.
      size: of their sides.
      repeats: products timed.

    Returns:
      FLOP/s.
    """
    import tensorflow as tf

    factor = tf.cast(tf.random.stateless_normal((size, size), seed=(0, 0)), compute_dtype)
    best = float("inf")
    for _ in range(repeats + 1):  # the first makes threads and memory ready
        start = time.perf_counter()
        tf.linalg.matmul(factor, factor).numpy()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
