"""Documents from TensorFlow Datasets, by name.

A source is a name as `tensorflow_datasets.builder` takes it, with a split behind a colon if it is not
`train`: `wikipedia/20230601.en`, `pg19:test`. What has not been prepared on this machine is downloaded
and prepared first, which some data sets cannot do without a network or Apache Beam.

TensorFlow is imported when a dataset is opened, and not before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from multiberts.pretrain.corpus.documents import Piece
from multiberts.runs.dataset_builder import open_builder
from multiberts.runs.errors import UserError, listed


def dataset_size(source: str, data_dir: str | None) -> tuple[int, int]:
    """Returns the number of examples of a source, and their size in bytes."""
    _, split = _open(source, data_dir)
    return split.num_examples, split.num_bytes


def dataset_fingerprint(source: str, data_dir: str | None) -> str:
    """Returns name, version and split of a dataset with a checksum of the content it declares."""
    builder, split = _open(source, data_dir)
    facts = {
        "features": str(builder.info.features),
        "shards": [int(length) for length in split.shard_lengths],
        "bytes": int(split.num_bytes),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{builder.info.full_name}:{split.name}@{digest}"


def read_dataset(piece: Piece, text_field: str, data_dir: str | None) -> Iterator[list[str]]:
    """Yields the texts of examples `piece.begin` to `piece.end`, each as its lines.

    Args:
      text_field: feature that holds the text; `a/b` is feature b within a.
      data_dir: folder of prepared datasets; None: the default of TensorFlow Datasets.
    """
    import tensorflow_datasets as tfds

    builder, split = _open(piece.source, data_dir)
    path = text_field.split("/")
    feature: Any = builder.info.features
    for name in path:
        if name not in feature:
            raise UserError(
                f"{piece.source} has no feature {text_field!r}, only "
                f"{listed(builder.info.features)}; set prepare.text_field"
            )
        feature = feature[name]
    wanted: Any = True
    for name in reversed(path):
        wanted = {name: wanted}
    instruction = tfds.core.ReadInstruction(split.name, from_=piece.begin, to=piece.end, unit="abs")
    examples = builder.as_dataset(
        split=instruction,
        shuffle_files=False,
        decoders=tfds.decode.PartialDecoding(wanted),
        # Files are read sequentially, so that the order of the text is fixed.
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )
    for number, example in enumerate(tfds.as_numpy(examples), start=piece.begin):
        text = example
        for name in path:
            text = text[name]
        if not isinstance(text, bytes):
            raise UserError(
                f"{piece.source} example {number}: feature {text_field!r} holds "
                f"{type(text).__name__}, expected text; set prepare.text_field"
            )
        try:
            yield text.decode().split("\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{piece.source} example {number}: byte 0x{text[error.start]:02x} at offset "
                f"{error.start} of {text_field!r} is not UTF-8; correct the dataset"
            ) from error


def _open(source: str, data_dir: str | None) -> tuple[Any, Any]:
    name, _, split = source.partition(":")
    builder = open_builder(name, data_dir, parameter="prepare.datasets_dir")
    splits = builder.info.splits
    split = split or "train"
    if split not in splits:
        raise UserError(
            f"{name} has no split {split!r}, only {listed(splits)}; write "
            f"{name}:{next(iter(splits), 'split')}"
        )
    return builder, splits[split]
