r"""Exchange with the original's TFRecords: writes a prepared corpus as such, and imports them to train on.

    multiberts export-records --gin_param='export_records.corpus = "corpus"' \
        --gin_param='export_records.run_dir = "records"'

    multiberts import-records --gin_param='import_records.sources = ["records/*.tfrecord"]' \
        --gin_param='import_records.vocabulary = "vocab.txt"' \
        --gin_param='import_records.run_dir = "corpus"'

One `tf.train.Example` per instance (google-research/bert, `create_pretraining_data.py`): `input_ids`,
`input_mask`, `segment_ids` int64 [length], `masked_lm_positions`, `masked_lm_ids` int64 [predictions],
`masked_lm_weights` float [predictions], `next_sentence_labels` int64 [1]. Masks are fixed: exported ones are
those that belong to the instances, imported ones stay as they are.

TensorFlow is imported only when records are read or written.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from multiberts.bert.randomness import permuted_index
from multiberts.bert.tokenization import Tokenizer
from multiberts.pretrain.batches.corpus_batches import STORED, feature_file, feature_width
from multiberts.pretrain.batches.masking import Masking, masked_features
from multiberts.pretrain.corpus.description import DESCRIPTION, IMPORTED, VOCABULARY, check_corpus
from multiberts.pretrain.corpus.documents import check_distinct, check_sources, expand_sources
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.token_store import ArrayWriter, TokenStore, check_vocabulary_size
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, remove, replaced, sha256_of_file, write_atomically
from multiberts.runs.parameters import PositiveInt, Range

_AT_ONCE = 256


def export_records(
    *,
    run_dir: str,
    corpus: str,
    num_files: PositiveInt = 10,
    max_predictions_per_sequence: PositiveInt = 20,
    masked_lm_probability: Annotated[float, Range(above=0, below=1)] = 0.15,
    whole_word_masks: bool = False,
) -> None:
    """Writes every instance of a corpus with its masks; a second run touches nothing.

    Masks are those that belong to the instances, and with `fresh_masks` the ones that would. Stopped
    and started again, it writes the files that are missing.

    Args:
      run_dir: directory of the outputs: `instances-00000-of-00010.tfrecord` and so on, `vocab.txt`.
      corpus: directory that `prepare` made.
      num_files: files that the instances are spread over.
      max_predictions_per_sequence: most masked tokens in a sequence.
      masked_lm_probability: share of tokens to predict.
      whole_word_masks: whether the pieces of a word are masked together.

    Raises:
      UserError: the corpus is missing or damaged; nothing is written.
    """
    masks = {
        "max_predictions_per_sequence": max_predictions_per_sequence,
        "masked_lm_probability": masked_lm_probability,
        "whole_word_masks": whole_word_masks,
    }
    parameters = {"num_files": num_files, **masks}
    run = RunDirectory(
        run_dir, stage="export_records", parameters=parameters, inputs={"corpus": corpus}
    )
    if run.done:
        return
    facts = check_corpus(corpus)
    if facts.get("kind") == IMPORTED:
        raise UserError(f"{corpus} was imported from TFRecords; use those")
    total = facts["counts"]["instances"]
    if num_files > total:
        raise UserError(
            f"export_records.num_files is {num_files}, but {corpus} has {total} instances; lower it"
        )
    names = [f"instances-{file:05d}-of-{num_files:05d}.tfrecord" for file in range(num_files)]
    masking = Masking.of({"sequence_length": facts["sequence_length"], **masks})
    ends = [total * file // num_files for file in range(num_files + 1)]
    with run:
        for name, places in zip(names, itertools.pairwise(ends), strict=True):
            if not (run.path / name).exists():  # else whole, of a run that was stopped
                instances = _instances_in_turn(
                    corpus, range(*places), masking, facts["instance_seed"]
                )
                _write_records(run.path / name, instances)
        write_atomically(run.path / VOCABULARY, (Path(corpus) / VOCABULARY).read_bytes())
        run.finish([*names, VOCABULARY])


def _instances_in_turn(
    corpus: str, places: range, masking: Masking, instance_seed: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields some instances of a corpus at a time, with the masks that belong to them.

    `places` are places in a keyed permutation of `instance_seed`, as the original shuffles before it
    writes.
    """
    store, table = TokenStore(corpus), InstanceTable(corpus)
    tokenizer = Tokenizer(Path(corpus) / VOCABULARY)
    for first in range(places.start, places.stop, _AT_ONCE):
        place = np.arange(first, min(first + _AT_ONCE, places.stop))
        instance = permuted_index(place, len(table), "export", instance_seed)
        mask_key = ("masks", instance_seed, instance[:, None])
        yield masked_features(store, table.rows[instance], mask_key, masking, tokenizer)


def _write_records(path: Path, batches: Iterator[dict[str, np.ndarray]]) -> None:
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
    check_distinct(files, "import_records.sources")
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
    widths = [_record_widths(file) for file in files]
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
            for features in _read_records(source, sequence_length, predictions):
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
        ("masked_lm_weights", 2),
        ("next_sentence_labels", 2),
    ):
        values = features[name]
        # No comparison holds for NaN.
        if values.size and not (values.min() >= 0 and values.max() <= limit - 1):
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


def _record_widths(path: PathLike) -> tuple[int, int]:
    """Returns sequence length and predictions of the first record of a file."""
    import tensorflow as tf

    record = next(_records(path, tf), None)
    if record is None:
        raise UserError(f"{path} holds no records; give a file with instances in it")
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


def _read_records(
    path: PathLike, sequence_length: int, predictions: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the instances of a TFRecord file, some at a time, all of the given widths."""
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
