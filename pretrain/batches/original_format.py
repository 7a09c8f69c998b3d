"""Instances in the original's TFRecord layout, as files.

One `tf.train.Example` per instance (google-research/bert, `create_pretraining_data.py`): `input_ids`,
`input_mask`, `segment_ids` int64 [length], `masked_lm_positions`, `masked_lm_ids` int64 [predictions],
`masked_lm_weights` float [predictions], `next_sentence_labels` int64 [1]. Masks are fixed.

TensorFlow is imported only when records are read or written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, replaced

# Type of each feature once it is imported, by its width: the sequence, the predictions, or one.
_SEQUENCE = {"input_ids": np.uint16, "input_mask": np.uint8, "segment_ids": np.uint8}
_PREDICTIONS = {
    "masked_lm_positions": np.uint16,
    "masked_lm_ids": np.uint16,
    "masked_lm_weights": np.float32,
}
_LABEL = {"next_sentence_labels": np.uint8}
STORED = _SEQUENCE | _PREDICTIONS | _LABEL

_AT_ONCE = 256


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
                f"{path} record 0 is not a tf.train.Example ({error}); is it a file of "
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
    raise UserError(f"{path} holds no records; give a file with instances in it")


def read_records(
    path: PathLike, sequence_length: int, predictions: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the instances of a TFRecord file, some at a time.

    Args:
      path: the file.
      sequence_length: tokens of a record, as from `record_widths`.
      predictions: likewise.

    Raises:
      UserError: the file is damaged, or a record has other features or widths.
    """
    import tensorflow as tf

    specification = {
        name: tf.io.FixedLenFeature(
            [feature_width(name, sequence_length, predictions)],
            tf.float32 if name == "masked_lm_weights" else tf.int64,
        )
        for name in STORED
    }
    records = _records(path, tf)
    number = 0
    while block := list(itertools.islice(records, _AT_ONCE)):
        try:
            features = tf.io.parse_example(block, specification)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(
                f"{path} records {number} to {number + len(block) - 1}: {_first_line(error)}; expected "
                f"{sequence_length} tokens and {predictions} predictions in every record; import "
                "files of one kind"
            ) from error
        yield {name: value.numpy() for name, value in features.items()}
        number += len(block)


def _records(path: PathLike, tf: Any) -> Iterator[bytes]:
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist or is not a file; check import_records.sources")
    kind = "GZIP" if Path(path).suffix == ".gz" else None
    try:
        yield from tf.data.TFRecordDataset(str(path), compression_type=kind).as_numpy_iterator()
    except tf.errors.OpError as error:
        raise UserError(
            f"{path} is not a whole TFRecord file ({_first_line(error)}); copy it again"
        ) from error


def _first_line(error: Any) -> str:
    return str(error.message).strip().partition("\n")[0]


def feature_width(name: str, sequence_length: int, predictions: int) -> int:
    """Returns how many numbers a feature has.

    Args:
      name: of `STORED`.
      sequence_length: of the records.
      predictions: of the records.
    """
    if name in _LABEL:
        return 1
    return sequence_length if name in _SEQUENCE else predictions
