"""Networks on the states of two spans that decide whether both refer to the same entity.

`finetune/coreference/heads.py` has their uses and references.
"""

from __future__ import annotations

from typing import Any

from multiberts.bert.model.addressed_dropout import dropout
from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.backend_ops import PLAIN, BackendOps
from multiberts.bert.model.encoder import HEAD_SITE, Parameters, dense, gelu, layer_norm

Array = Any

SIDES = ("pronoun", "candidate")
_DROPOUT_RATE = 0.3


def coreference_logits(
    representation: str,
    parameters: Parameters,
    batch: Parameters,
    dropout_key: Array | None = None,
    backend: BackendOps = PLAIN,
) -> Array:
    """Returns scores of pairs: not coreferent, coreferent.

    Args:
      representation: `endpoints`, `mean` or `self_attention`.
      parameters: arrays by name, `coreference/hidden/kernel` and others.
      batch: `pronouns` and `candidates`, float32 [batch, width]; for self-attention their tokens
        [batch, length, width], with `pronouns_mask` and `candidates_mask` [batch, length].
      dropout_key: uint32 [2] in training; None for none.
      backend: operations with a version per backend.

    Returns:
      float32 [batch, 2].
    """
    if representation == "self_attention":
        return _from_attention(parameters, batch, dropout_key, backend)
    with_product = representation == "endpoints"
    parts = [batch["pronouns"], batch["candidates"]]
    if with_product:
        parts.append(batch["pronouns"] * batch["candidates"])
    features = ops.concatenate(parts, axis=-1)
    hidden = dense(parameters, "coreference/hidden", features, backend)  # [batch, hidden units]
    hidden = gelu(hidden) if with_product else ops.relu(hidden)
    return dense(parameters, "coreference/output", hidden, backend)


def _from_attention(
    parameters: Parameters, batch: Parameters, dropout_key: Array | None, backend: BackendOps
) -> Array:
    def pooled(side: str) -> Array:
        tokens, mask = batch[f"{side}s"], batch[f"{side}s_mask"]
        projected = dense(parameters, f"coreference/{side}/projection", tokens, backend)
        scores = dense(parameters, f"coreference/{side}/attention", projected, backend)[..., 0]
        weights = ops.softmax(ops.where(mask > 0, scores, -1e9), axis=-1)  # [batch, length]
        return ops.sum(weights[..., None] * projected, axis=1)  # [batch, hidden units]

    spans = [pooled(side) for side in SIDES]
    features = ops.concatenate(spans, axis=-1)
    hidden = ops.tanh(dense(parameters, "coreference/hidden", features, backend))
    hidden = layer_norm(parameters, "coreference/LayerNorm", hidden)
    hidden = dropout(hidden, _DROPOUT_RATE, dropout_key, HEAD_SITE)
    return dense(parameters, "coreference/output", hidden, backend)
