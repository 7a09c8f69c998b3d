r"""Reads TFRecords of the original's layout into a directory that can be trained on.

    multiberts import-records --gin_param='import_records.sources = ["records/*.tfrecord"]' \
        --gin_param='import_records.vocabulary = "vocab.txt"' \
        --gin_param='import_records.run_dir = "corpus"'

Instances keep the masks that they have.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from multiberts.bert.tokenization import Tokenizer
from multiberts.pretrain.batches.imported_batches import feature_file
from multiberts.pretrain.batches.original_format import STORED, read_records, record_widths
from multiberts.pretrain.corpus.description import DESCRIPTION, IMPORTED, VOCABULARY
from multiberts.pretrain.corpus.documents import check_sources, expand_sources
from multiberts.pretrain.corpus.token_store import ArrayWriter, check_vocabulary_size
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, remove, replaced, sha256_of_file, write_atomically


def import_records(*, run_dir: str, sources: list[str], vocabulary: str) -> None:
    """Imports instances with the masks they have; a second run touches nothing.

    Args:
      run_dir: directory of the outputs: one NumPy file per feature, `vocab.txt`, `corpus.json`.
      sources: TFRecord files (`.gz` too) and patterns, in the order of the instances.
      vocabulary: the `vocab.txt` that they were made with.

    Raises:
      UserError: a file is missing, damaged or of another layout, or does not go with the
        vocabulary; nothing is written.
    """
    check_sources(sources, "import_records.sources")
    files = expand_sources(sources)
    run = RunDirectory(
        run_dir,
        stage="import_records",
        parameters={},
        inputs={"sources": files, "vocabulary": vocabulary},
    )
    if run.done:
        return
    check_vocabulary_size(vocabulary)
    tokenizer = Tokenizer(vocabulary)
    widths = [record_widths(file) for file in files]
    for file, found in zip(files, widths, strict=True):
        if found != widths[0]:
            raise UserError(
                f"{file} has {found[0]} tokens and {found[1]} predictions, {files[0]} {widths[0][0]} "
                f"and {widths[0][1]}; import files of one kind"
            )
    with run:
        try:
            counts = _write_imported(run.path, files, *widths[0], tokenizer)
        except UserError:
            remove(run.path)  # records are looked at as they are read; nothing half imported stays
            raise
        write_atomically(run.path / VOCABULARY, Path(vocabulary).read_bytes())
        outputs = [VOCABULARY, *map(feature_file, STORED)]
        description = {
            "kind": IMPORTED,
            "sequence_length": widths[0][0],
            "max_predictions_per_sequence": widths[0][1],
            "fresh_masks": False,
            "counts": {"pieces": tokenizer.size, **counts},
            "sources": [
                {"file": Path(file).name, "sha256": sha256_of_file(file)} for file in files
            ],
            "sha256": {name: sha256_of_file(run.path / name) for name in outputs},
        }
        write_atomically(run.path / DESCRIPTION, json.dumps(description, indent=1) + "\n")
        run.finish([*outputs, DESCRIPTION])


def _write_imported(
    directory: Path,
    sources: Sequence[PathLike],
    sequence_length: int,
    predictions: int,
    tokenizer: Tokenizer,
) -> dict[str, int]:
    """Writes the instances of TFRecord files into flat NumPy files, one per feature.

    Returns:
      How many `instances` there are, and `random_next` of them.
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
                _check_values(source, features, sequence_length, tokenizer)
                for name, writer in writers.items():
                    writer.append(features[name].astype(STORED[name]).ravel())
                counts["instances"] += len(features["input_ids"])
                counts["random_next"] += int(features["next_sentence_labels"].sum())
    return counts


def _check_values(
    source: PathLike,
    features: Mapping[str, np.ndarray],
    sequence_length: int,
    tokenizer: Tokenizer,
) -> None:
    """Refuses ids outside the vocabulary or of another one, and numbers out of range."""
    cure = "give the vocabulary that the records were made with"
    for name, limit in (
        ("input_ids", tokenizer.size),
        ("masked_lm_ids", tokenizer.size),
        ("masked_lm_positions", sequence_length),
        ("segment_ids", 2),
        ("input_mask", 2),
        ("next_sentence_labels", 2),
    ):
        values = features[name]
        if values.size and (values.min() < 0 or values.max() >= limit):
            raise UserError(
                f"{source}: {name} holds {values.min()} to {values.max()}, expected 0 to "
                f"{limit - 1}; {cure if name.endswith('ids') else 'make the records again'}"
            )
    first = features["input_ids"][:, 0]
    other = first[first != tokenizer.cls_id]
    if other.size:
        raise UserError(
            f"{source}: a sequence begins with id {other[0]}, in {tokenizer.size} pieces "
            f"{tokenizer.vocabulary[other[0]]!r}, expected [CLS], {tokenizer.cls_id}; {cure}"
        )
