"""Hidden states of a frozen encoder at spans, computed once per checkpoint and shared by all runs on it.

Only the states of the spans are kept, not of whole windows: for BERT-Base on OntoNotes' training
documents (156 thousand mentions) 0.5 GB of means, 1.1 GB of tokens or 1.4 GB of endpoints instead of
5 GB. They are in memory, or in memory-mapped files, so that an interrupted sweep need not encode again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.training.state import DeviceWeights
from multiberts.finetune.coreference.mention_pairs import MentionPairs
from multiberts.finetune.features import evaluation_batches, sequence_batch
from multiberts.finetune.model import Network, forward_pass
from multiberts.runs.console import ProgressBar
from multiberts.runs.environment import JAX, engine
from multiberts.runs.errors import UserError
from multiberts.runs.files import replaced
from multiberts.runs.lease_holder import lock_file

if TYPE_CHECKING:
    from multiberts.bert.training.engine import CompileChoice, ForwardPass

_BATCH_SIZE = 32

# States of a span: first token, last token and mean of its tokens, concatenated; the mean; or all tokens.
ENDPOINTS, MEAN, TOKENS = "endpoints", "mean", "tokens"


@dataclasses.dataclass(frozen=True, eq=False)
class SpanStates:
    """States of the spans of a set.

    Attributes:
      values: float32 [rows, width]: one row per span for endpoints and mean, else one row per token.
      offsets: int64 [spans + 1]: first row of each span.
    """

    values: np.ndarray
    offsets: np.ndarray

    def pooled(self, spans: np.ndarray) -> np.ndarray:
        """Returns float32 [batch, width]: the single row of each span."""
        return np.asarray(self.values[spans])

    def tokens(self, spans: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens of each span, padded.

        Args:
          spans: numbers of the spans, int64 [batch].
          length: tokens to pad to, at least those of the longest span.

        Returns:
          float32 [batch, length, width], and the mask, float32 [batch, length].
        """
        begins, ends = self.offsets[spans], self.offsets[spans + 1]
        rows = begins[:, None] + np.arange(length)  # [batch, length]
        inside = rows < ends[:, None]
        values = self.values[np.where(inside, rows, begins[:, None])]
        return values * inside[:, :, None], inside.astype(np.float32)

    @property
    def lengths(self) -> np.ndarray:
        """Returns int64 [spans]: rows of each span."""
        return np.diff(self.offsets)


def span_states(
    sets: Mapping[str, MentionPairs],
    checkpoint: Checkpoint,
    pooling: str,
    *,
    compile_step: CompileChoice,
    folder: Path | None = None,
) -> dict[str, SpanStates]:
    """Encodes the windows of every set and returns the requested states of their spans.

    Args:
      sets: spans in windows, by name.
      pooling: `ENDPOINTS`, `MEAN` or `TOKENS`.
      compile_step: whether XLA compiles the encoder.
      folder: cache that processes share; None: memory only. It can be deleted whenever no run uses it.
    """
    predictor = forward_pass(FrozenEncoder(checkpoint.config), compile_step)
    given = predictor, checkpoint, pooling
    if folder is None:
        return {name: _encoded(*given, name, pairs) for name, pairs in sets.items()}
    states_dir = folder / _address(sets, checkpoint, pooling, compile_step)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(f"{states_dir}.lock", "w")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"option encodings_dir: cannot write {folder}: {error.strerror or error}; give a "
            "folder that can be written, or leave the option out"
        ) from error
    with lock:
        lock_file(lock.fileno(), lock.name, wait=True)  # another process may make the same states
        if not states_dir.is_dir():
            with replaced(states_dir) as unfinished:
                unfinished.mkdir()
                for name, pairs in sets.items():
                    _encoded(*given, name, pairs, unfinished / f"{name}.npy")
    return {
        name: SpanStates(
            np.load(states_dir / f"{name}.npy", mmap_mode="r"), _offsets(pairs, pooling)
        )
        for name, pairs in sets.items()
    }


def _address(
    sets: Mapping[str, MentionPairs],
    checkpoint: Checkpoint,
    pooling: str,
    compile_step: CompileChoice,
) -> str:
    """Returns a hash of the inputs, and of the engine's version, which affects rounding."""
    if engine() == JAX:
        import jax

        version, device = f"jax {jax.__version__}", jax.default_backend() != "cpu"
    else:
        import tensorflow as tf

        version, device = tf.__version__, len(tf.config.list_physical_devices("GPU")) > 0
    versions = version, importlib.metadata.version("keras")
    address = hashlib.sha256(
        repr((checkpoint.identity, pooling, compile_step, versions, device)).encode()
    )
    for name, pairs in sorted(sets.items()):
        address.update(name.encode())
        for array in (pairs.sequences.input_ids, pairs.sequences.lengths, pairs.spans):
            address.update(repr(array.shape).encode())
            address.update(np.ascontiguousarray(array).tobytes())
    return f"{pooling}-{address.hexdigest()[:32]}"


def _offsets(pairs: MentionPairs, pooling: str) -> np.ndarray:
    rows = pairs.spans[:, 2] - pairs.spans[:, 1] + 1
    if pooling != TOKENS:
        rows = np.ones_like(rows)
    return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])


def _encoded(
    predictor: ForwardPass,
    checkpoint: Checkpoint,
    pooling: str,
    name: str,
    pairs: MentionPairs,
    file: Path | None = None,
) -> SpanStates:
    """Returns the states of one set, written to a file if given."""
    offsets = _offsets(pairs, pooling)
    hidden_size = checkpoint.config.hidden_size
    shape = (int(offsets[-1]), 3 * hidden_size if pooling == ENDPOINTS else hidden_size)
    values: np.ndarray
    if file is None or 0 in shape:
        values = np.zeros(shape, np.float32)
    else:
        values = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
    for spans, tokens, ends in _span_tokens(predictor, checkpoint, name, pairs):
        if pooling == TOKENS:
            # Row of a token: first row of its span + its position in the span.
            begins = ends - (pairs.spans[spans, 2] - pairs.spans[spans, 1] + 1)
            shift = np.repeat(offsets[spans] - begins, ends - begins)
            values[np.arange(len(tokens)) + shift] = tokens
        else:
            lengths = np.diff(ends, prepend=0)
            begins = ends - lengths
            mean = np.empty((len(ends), hidden_size), np.float32)
            # Spans of one length at once: `mean` adds in token order, np.add.reduceat does not, which
            # would change the last bits.
            for length in np.unique(lengths):
                alike = np.flatnonzero(lengths == length)
                mean[alike] = tokens[begins[alike, None] + np.arange(length)].mean(axis=1)
            joined = [tokens[begins], tokens[ends - 1], mean]
            values[spans] = mean if pooling == MEAN else np.concatenate(joined, axis=1)
    if isinstance(values, np.memmap):
        values.flush()
    elif file is not None:
        np.save(file, values)
    return SpanStates(values, offsets)


def _span_tokens(
    predictor: ForwardPass, checkpoint: Checkpoint, name: str, pairs: MentionPairs
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields per batch: spans int64 [spans]; their tokens' states float32 [tokens, hidden], concatenated;
    and the end of each span in them, int64 [spans].
    """
    by_window = np.argsort(pairs.spans[:, 0], kind="stable")
    begins = np.searchsorted(pairs.spans[by_window, 0], np.arange(len(pairs.sequences) + 1))
    lengths, weights = pairs.sequences.lengths, DeviceWeights(checkpoint.parameters)
    predictor = predictor.suited_to(weights, int(lengths.sum()))
    batches = evaluation_batches(lengths, _BATCH_SIZE, is_compiled=predictor.is_compiled)
    for rows, count in ProgressBar(batches, desc=f"encoding {name}", unit="batch"):
        batch = sequence_batch(pairs.sequences, rows)
        hidden = predictor(weights, batch)["hidden"]  # [batch, length, hidden]
        span_numbers = [by_window[begins[window] : begins[window + 1]] for window in rows[:count]]
        spans = np.concatenate(span_numbers)
        row = np.repeat(np.arange(count), [len(numbers) for numbers in span_numbers])  # [spans]
        first, last = pairs.spans[spans, 1], pairs.spans[spans, 2]
        lengths = last - first + 1
        ends = np.cumsum(lengths)
        position = np.arange(ends[-1]) + np.repeat(first - (ends - lengths), lengths)  # [tokens]
        yield spans, hidden[np.repeat(row, lengths), position], ends


class FrozenEncoder(Network):
    """The pre-trained encoder alone."""

    def predict(self, parameters: Any, batch: Any) -> dict[str, Any]:
        states, _ = self.encoded(parameters, batch)
        return {"hidden": states}
