"""Instances in the original's TFRecord layout: written from a corpus, and trained on as they are.

One `tf.train.Example` an instance (google-research/bert, `create_pretraining_data.py`): `input_ids`,
`input_mask`, `segment_ids` int64 [length], `masked_lm_positions`, `masked_lm_ids` int64 [predictions],
`masked_lm_weights` float [predictions], `next_sentence_labels` int64 [1]. Masks are fixed.

Imported instances lie in flat NumPy files, memory-mapped, so that batches of them are addressed by
(data_seed, step) as those of a corpus are.

TensorFlow is imported when records are read or written, and not before.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.randomness import permuted_index
from bert.tokenization import Tokenizer
from pretrain.batches import instance_order, masked_features
from pretrain.instances import InstanceTable
from pretrain.token_store import ArrayWriter, TokenStore, open_array
from runs.errors import UserError
from runs.files import PathLike, read_bytes, replaced

DESCRIPTION = "corpus.json"
VOCABULARY = "vocab.txt"

# What `corpus.json` says of imported instances.
KIND = "original TFRecords"

# Width of each feature, and how it is kept.
_SEQUENCE = {"input_ids": np.uint16, "input_mask": np.uint8, "segment_ids": np.uint8}
_PREDICTIONS = {
    "masked_lm_positions": np.uint16,
    "masked_lm_ids": np.uint16,
    "masked_lm_weights": np.float32,
}
_LABEL = {"next_sentence_labels": np.uint8}
STORED = _SEQUENCE | _PREDICTIONS | _LABEL

_AT_ONCE = 256


def feature_file(name: str) -> str:
    """The file that holds a feature of imported instances."""
    return f"{name}.npy"


def instances_in_turn(
    corpus: PathLike,
    *,
    max_predictions_per_sequence: int,
    masked_lm_probability: float,
    whole_word_masks: bool,
    sequence_length: int,
    instance_seed: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Yields all instances of a corpus with the masks that belong to them, some at a time.

    Their order is a keyed permutation of `instance_seed`, as the original shuffles before it writes.

    Args:
        corpus: directory that `prepare` made.
        max_predictions_per_sequence, masked_lm_probability, whole_word_masks, sequence_length: as in
            `pretrain.batches.pretraining_batch`.
        instance_seed: that of the corpus.
    """
    store, table = TokenStore(corpus), InstanceTable(corpus)
    tokenizer = Tokenizer(Path(corpus) / VOCABULARY)
    for first in range(0, len(table), _AT_ONCE):
        place = np.arange(first, min(first + _AT_ONCE, len(table)))
        instance = permuted_index(place, len(table), "export", instance_seed)
        yield masked_features(
            store,
            table.rows[instance],
            ("masks", instance_seed, instance[:, None]),
            tokenizer=tokenizer,
            sequence_length=sequence_length,
            max_predictions_per_sequence=max_predictions_per_sequence,
            masked_lm_probability=masked_lm_probability,
            whole_word_masks=whole_word_masks,
        )


def write_records(path: PathLike, batches: Iterator[dict[str, np.ndarray]]) -> None:
    """Writes instances into a TFRecord file of the original's layout.

    Args:
        path: the file.
        batches: features [n, width] by name.
    """
    import tensorflow as tf

    with replaced(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
        for batch in batches:
            for row in range(len(batch["input_ids"])):
                writer.write(_example({name: batch[name][row] for name in STORED}, tf))


def _example(instance: dict[str, np.ndarray], tf: Any) -> bytes:
    feature = {
        name: (
            tf.train.Feature(float_list=tf.train.FloatList(value=value.tolist()))
            if name == "masked_lm_weights"
            else tf.train.Feature(
                int64_list=tf.train.Int64List(value=np.atleast_1d(value).tolist())
            )
        )
        for name, value in instance.items()
    }
    serialized: bytes = tf.train.Example(
        features=tf.train.Features(feature=feature)
    ).SerializeToString(deterministic=True)
    return serialized


def record_widths(path: PathLike) -> tuple[int, int]:
    """Returns sequence length and predictions of the first record of a file.

    Raises:
        UserError: the file is missing, or holds no record of the original's layout.
    """
    import tensorflow as tf

    for record in _records(path, tf):
        try:
            features = tf.train.Example.FromString(record).features.feature
        except Exception as error:  # protobuf's own kind
            raise UserError(
                f"{path} record 0 is no tf.train.Example ({error}); is it a file of "
                "create_pretraining_data.py?"
            ) from error
        missing = sorted(STORED.keys() - features.keys())
        if missing:
            raise UserError(
                f"{path} record 0 lacks {', '.join(missing)}, expected the features of "
                "create_pretraining_data.py; give its output"
            )
        return (
            len(features["input_ids"].int64_list.value),
            len(features["masked_lm_ids"].int64_list.value),
        )
    raise UserError(f"{path} holds no record; give a file with instances in it")


def read_records(
    path: PathLike, sequence_length: int, predictions: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the instances of a TFRecord file, some at a time.

    Args:
        path: the file.
        sequence_length, predictions: widths of the features, as from `record_widths`.

    Raises:
        UserError: the file is damaged, or a record has other features or widths.
    """
    import tensorflow as tf

    specification = {
        name: tf.io.FixedLenFeature(
            [_width(name, sequence_length, predictions)],
            tf.float32 if name == "masked_lm_weights" else tf.int64,
        )
        for name in STORED
    }
    number = 0
    block: list[bytes] = []

    def parsed() -> dict[str, np.ndarray]:
        try:
            features = tf.io.parse_example(block, specification)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(
                f"{path} records {number - len(block)} to {number - 1}: {error.message}; expected "
                f"{sequence_length} tokens and {predictions} predictions in every record"
            ) from error
        return {name: value.numpy() for name, value in features.items()}

    for record in _records(path, tf):
        block.append(record)
        number += 1
        if len(block) == _AT_ONCE:
            yield parsed()
            block = []
    if block:
        yield parsed()


def _records(path: PathLike, tf: Any) -> Iterator[bytes]:
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist; check the sources")
    kind = "GZIP" if Path(path).suffix == ".gz" else None
    try:
        yield from tf.data.TFRecordDataset(str(path), compression_type=kind).as_numpy_iterator()
    except tf.errors.DataLossError as error:
        raise UserError(
            f"{path} is no whole TFRecord file ({error.message}); copy it again"
        ) from error


def _width(name: str, sequence_length: int, predictions: int) -> int:
    if name in _LABEL:
        return 1
    return sequence_length if name in _SEQUENCE else predictions


def write_imported(
    directory: Path,
    sources: Sequence[PathLike],
    sequence_length: int,
    predictions: int,
    vocabulary_size: int,
) -> dict[str, int]:
    """Writes the instances of TFRecord files into flat NumPy files.

    Args:
        directory: where the files shall be, one a feature.
        sources: TFRecord files.
        sequence_length, predictions: widths of the features.
        vocabulary_size: ids must be below it.

    Returns:
        How many `instances` there are, and `random_next` of them.

    Raises:
        UserError: a file is damaged, has other widths, or ids that the vocabulary has not.
    """
    counts = {"instances": 0, "random_next": 0}
    with contextlib.ExitStack() as stack:
        writers = {
            name: stack.enter_context(
                ArrayWriter(
                    stack.enter_context(replaced(directory / feature_file(name))), np.dtype(kind)
                )
            )
            for name, kind in STORED.items()
        }
        for source in sources:
            for features in read_records(source, sequence_length, predictions):
                for name, limit in (
                    ("input_ids", vocabulary_size),
                    ("masked_lm_ids", vocabulary_size),
                    ("masked_lm_positions", sequence_length),
                    ("segment_ids", 2),
                    ("input_mask", 2),
                    ("next_sentence_labels", 2),
                ):
                    values = features[name]
                    if values.size and (values.min() < 0 or values.max() >= limit):
                        raise UserError(
                            f"{source}: {name} holds {values.min()} to {values.max()}, expected 0 to "
                            f"{limit - 1}; give the vocabulary that the records were made with"
                        )
                for name, writer in writers.items():
                    writer.append(features[name].astype(STORED[name]).ravel())
                counts["instances"] += len(features["input_ids"])
                counts["random_next"] += int(features["next_sentence_labels"].sum())
    return counts


class ImportedBatches:
    """What any step sees, from imported instances, the order's seed and the step alone.

    Attributes:
        corpus: their directory.
        vocabulary_path: its `vocab.txt`.
        tokenizer: of that vocabulary.
        num_instances: how many there are.
        batch_size: sequences a step.
    """

    def __init__(
        self,
        corpus: PathLike,
        *,
        data_seed: int,
        batch_size: int,
        sequence_length: int,
        max_predictions_per_sequence: int,
    ):
        """Opens imported instances.

        Args:
            corpus: the directory that `python -m pretrain.import_records` made.
            data_seed: of the order of the instances.
            batch_size: sequences a step.
            sequence_length: tokens a sequence; no shorter than the records'.
            max_predictions_per_sequence: no fewer than the records have.

        Raises:
            UserError: a file is missing or damaged, or the instances are larger than asked for.
        """
        self.corpus = Path(corpus)
        facts = json.loads(read_bytes(self.corpus / DESCRIPTION))
        length, predictions = facts["sequence_length"], facts["max_predictions_per_sequence"]
        if sequence_length < length or max_predictions_per_sequence < predictions:
            raise UserError(
                f"{corpus} holds sequences of {length} tokens with up to {predictions} predictions, "
                f"more than pretrain.sequence_length {sequence_length} and "
                f"pretrain.max_predictions_per_sequence {max_predictions_per_sequence}; raise them"
            )
        self.vocabulary_path = self.corpus / VOCABULARY
        self.tokenizer = Tokenizer(self.vocabulary_path)
        self.batch_size = batch_size
        self.num_instances: int = facts["counts"]["instances"]
        self._data_seed = data_seed
        self._widths = {
            name: _width(name, sequence_length, max_predictions_per_sequence) for name in STORED
        }
        # [instances, width of the records]
        self._features = {
            name: open_array(self.corpus / feature_file(name), np.dtype(kind)).reshape(
                self.num_instances, _width(name, length, predictions)
            )
            for name, kind in STORED.items()
        }

    def instance_ids(self, step: int) -> np.ndarray:
        """The instances in the batch of that step, int64 [batch]."""
        position = step * self.batch_size + np.arange(self.batch_size)
        return instance_order(position, self.num_instances, self._data_seed)

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step, as from `pretrain.batches.pretraining_batch`."""
        instance = self.instance_ids(step)
        batch = {}
        for name, array in self._features.items():
            kind = np.float32 if name == "masked_lm_weights" else np.int32
            values = np.zeros((self.batch_size, self._widths[name]), kind)
            values[:, : array.shape[1]] = array[instance]
            batch[name] = values[:, 0] if name in _LABEL else values
        return batch
