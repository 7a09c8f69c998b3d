"""Hidden states of a frozen encoder at spans, computed once per checkpoint and used by all runs on it.

Only what a head needs of spans is kept, not whole windows: of a base encoder on OntoNotes' training
documents (156 thousand mentions) 0.5 GB of means, 1.1 GB of tokens or 1.4 GB of endpoints in place of
5 GB. In memory, or in files that are mapped, so that a sweep that was killed resumes without encoding
again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.finetune.coreference.mention_pairs import MentionPairs
from multiberts.finetune.features import encoder_inputs, evaluation_batches, sequence_batch
from multiberts.runs.console import ProgressBar
from multiberts.runs.environment import JAX, engine
from multiberts.runs.errors import UserError
from multiberts.runs.files import replaced
from multiberts.runs.lease_holder import lock_file

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import CompileChoice, ForwardPass

_BATCH_SIZE = 32

# The states kept of a span: its first token, its last and the mean of its tokens, joined; the mean; or
# every token.
ENDPOINTS, MEAN, TOKENS = "endpoints", "mean", "tokens"


@dataclasses.dataclass(frozen=True, eq=False)
class SpanStates:
    """States of the spans of a set.

    Attributes:
      values: float32 [rows, width]: of endpoints and mean one row per span, else one row per token.
      offsets: int64 [spans + 1]: where the rows of each span begin.
    """

    values: np.ndarray
    offsets: np.ndarray

    def pooled(self, spans: np.ndarray) -> np.ndarray:
        """Returns float32 [batch, width]: the one row of each span."""
        returned: np.ndarray = self.values[spans]
        return returned

    def tokens(self, spans: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens of each span, padded.

        Args:
          spans: int64 [batch].
          length: at least the longest span's tokens.

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


@dataclasses.dataclass(frozen=True)
class FrozenEncoder:
    """A checkpoint, equal to any other of the same content; a key for caches."""

    checkpoint: Checkpoint = dataclasses.field(compare=False)
    fingerprint: str


def span_states(
    sets: Mapping[str, MentionPairs],
    encoder: FrozenEncoder,
    kept: str,
    *,
    compile_step: CompileChoice,
    folder: Path | None = None,
) -> dict[str, SpanStates]:
    """Encodes the windows of every set and keeps the requested states of their spans.

    Args:
      sets: spans in windows, by name.
      kept: `ENDPOINTS`, `MEAN` or `TOKENS`.
      compile_step: whether XLA compiles the encoder.
      folder: where states are kept for other processes, and found; None: in this one's memory only.
        They can be deleted whenever no run uses them.
    """
    predictor = _predictor(encoder.checkpoint.config, compile_step)
    if folder is None:
        return {
            name: _encoded(pairs, predictor, encoder.checkpoint, kept, name)
            for name, pairs in sets.items()
        }
    place = folder / _address(sets, encoder, kept, compile_step)
    with _alone(place):
        if not place.is_dir():
            with replaced(place) as unfinished:
                unfinished.mkdir()
                for name, pairs in sets.items():
                    file = unfinished / f"{name}.npy"
                    _encoded(pairs, predictor, encoder.checkpoint, kept, name, file)
    return {
        name: SpanStates(np.load(place / f"{name}.npy", mmap_mode="r"), _offsets(pairs, kept))
        for name, pairs in sets.items()
    }


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Waits until no other process makes the same states."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = open(f"{place}.lock", "w")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"option encodings_dir: cannot write {place.parent}: {error.strerror or error}; give a "
            "folder that can be written, or leave the option out"
        ) from error
    with lock:
        lock_file(lock.fileno(), lock.name, wait=True)
        yield


def _address(
    sets: Mapping[str, MentionPairs], encoder: FrozenEncoder, kept: str, compile_step: CompileChoice
) -> str:
    """Returns a name that only equal inputs have; the engine's version, which affects rounding, counts."""
    if engine() == JAX:
        import jax

        version, device = f"jax {jax.__version__}", jax.default_backend() != "cpu"
    else:
        import tensorflow as tf

        version, device = tf.__version__, len(tf.config.list_physical_devices("GPU")) > 0
    versions = version, importlib.metadata.version("keras")
    form = encoder.checkpoint.config.hidden_act
    address = hashlib.sha256(
        repr((encoder.fingerprint, form, kept, compile_step, versions, device)).encode()
    )
    for name, pairs in sorted(sets.items()):
        address.update(name.encode())
        for array in (pairs.sequences.input_ids, pairs.sequences.lengths, pairs.spans):
            address.update(repr(array.shape).encode())
            address.update(np.ascontiguousarray(array).tobytes())
    return f"{kept}-{address.hexdigest()[:32]}"


def _offsets(pairs: MentionPairs, kept: str) -> np.ndarray:
    rows = pairs.spans[:, 2] - pairs.spans[:, 1] + 1
    if kept != TOKENS:
        rows = np.ones_like(rows)
    return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])


def _encoded(
    pairs: MentionPairs,
    predictor: ForwardPass,
    checkpoint: Checkpoint,
    kept: str,
    name: str,
    file: Path | None = None,
) -> SpanStates:
    """Returns the states of one set, written to a file if given."""
    offsets = _offsets(pairs, kept)
    hidden_size = checkpoint.config.hidden_size
    shape = (int(offsets[-1]), 3 * hidden_size if kept == ENDPOINTS else hidden_size)
    values: np.ndarray
    if file is None or 0 in shape:
        values = np.zeros(shape, np.float32)
    else:
        values = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
    for spans, tokens, ends in _span_tokens(pairs, predictor, checkpoint, name):
        if kept == TOKENS:
            # The row of every token: its span's first row plus its place in the span.
            begins = ends - (pairs.spans[spans, 2] - pairs.spans[spans, 1] + 1)
            shift = np.repeat(offsets[spans] - begins, ends - begins)
            values[np.arange(len(tokens)) + shift] = tokens
        else:
            values[spans] = _pooled(tokens, ends, kept)
    if isinstance(values, np.memmap):
        values.flush()
    elif file is not None:
        np.save(file, values)
    return SpanStates(values, offsets)


def _span_tokens(
    pairs: MentionPairs, predictor: ForwardPass, checkpoint: Checkpoint, name: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields per batch: spans int64 [spans]; the states of their tokens, float32 [tokens, hidden], one
    span after the other; and where each span ends among them, int64 [spans].
    """
    by_window = np.argsort(pairs.spans[:, 0], kind="stable")
    begins = np.searchsorted(pairs.spans[by_window, 0], np.arange(len(pairs.sequences) + 1))
    lengths = pairs.sequences.lengths
    predictor = predictor.suited_to(checkpoint.parameters, int(lengths.sum()))
    batches = evaluation_batches(lengths, _BATCH_SIZE, is_compiled=predictor.is_compiled)
    for rows, count in ProgressBar(batches, desc=f"encoding {name}", unit="batch"):
        batch = sequence_batch(pairs.sequences, rows)
        hidden = predictor(checkpoint.parameters, batch)["hidden"]  # [batch, length, hidden]
        places = [by_window[begins[window] : begins[window + 1]] for window in rows[:count]]
        spans = np.concatenate(places)
        row = np.repeat(np.arange(count), [len(place) for place in places])  # [spans]
        first, last = pairs.spans[spans, 1], pairs.spans[spans, 2]
        lengths = last - first + 1
        ends = np.cumsum(lengths)
        position = np.arange(ends[-1]) + np.repeat(first - (ends - lengths), lengths)  # [tokens]
        yield spans, hidden[np.repeat(row, lengths), position], ends


def _pooled(tokens: np.ndarray, ends: np.ndarray, kept: str) -> np.ndarray:
    """Returns float32 [spans, width]."""
    lengths = np.diff(ends, prepend=0)
    begins = ends - lengths
    mean = np.empty((len(ends), tokens.shape[1]), np.float32)
    # Spans of one length at once: a mean over an axis adds in the order of the tokens, np.add.reduceat
    # in another one, which would change last bits.
    for length in np.unique(lengths):
        spans = np.flatnonzero(lengths == length)
        mean[spans] = tokens[begins[spans, None] + np.arange(length)].mean(axis=1)
    if kept == MEAN:
        return mean
    return np.concatenate([tokens[begins], tokens[ends - 1], mean], axis=1)


@functools.lru_cache(maxsize=4)
def _predictor(config: BertConfig, compile_step: CompileChoice) -> ForwardPass:
    from multiberts.bert.model.encoder import encode
    from multiberts.bert.training.engine import ForwardPass

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        return {"hidden": encode(parameters, config, *encoder_inputs(batch))}

    return ForwardPass(predict, compile_step=compile_step)
