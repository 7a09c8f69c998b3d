"""Text to everything that batches are made of: vocabulary, token store, instance table.

    python -m pretrain.prepare --gin_param='prepare.run_dir = "corpus"' \\
        --gin_param='prepare.sources = ["text.txt.gz"]' \\
        --gin_param='prepare.source_format = "wikiextractor"'

The corpus is cut into shards (`pretrain/shards.py`), which worker processes of this machine make, or an
Apache Beam pipeline, with the options of Beam's own commands:

    python -m pretrain.prepare --runner=FlinkRunner --pipeline_option=--flink_master=... \\
        --gin_file=corpus.gin

The outputs are the same bytes either way. Started again after a kill, it makes the missing shards.
"""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.tokenization import Tokenizer, read_vocabulary
from pretrain.corpus import FILE_FORMATS, Piece, PieceCounts, check_counts, expand_sources
from pretrain.counterfactual import Swapper
from pretrain.instances import INSTANCE_DTYPE, INSTANCES, NUM_SPECIAL_TOKENS
from pretrain.runners import BeamRunner, LocalRunner, Runner
from pretrain.shards import (
    DEFAULT_SHARD_BYTES,
    PairingTask,
    Shard,
    Text,
    count_words_of_shard,
    cut_into_pairing_tasks,
    cut_into_shards,
    instances_path,
    is_quickly_paired,
    look_over_shard,
    most_frequent_words,
    number_shards,
    pair_spans,
    swapped_counts,
    tokenise_shard,
    tokens_path,
    words_path,
)
from pretrain.token_store import (
    DOCUMENT_OFFSETS,
    LARGEST_VOCABULARY,
    SENTENCE_OFFSETS,
    TOKENS,
    ArrayWriter,
    TokenStore,
    join_token_stores,
    open_array,
)
from pretrain.vocabulary import learn_vocabulary
from runs.directory import RunDirectory, fingerprint
from runs.errors import UserError
from runs.files import remove, replaced, sha256_of_file, write_atomically

VOCABULARY = "vocab.txt"
DESCRIPTION = "corpus.json"

SOURCE_FORMATS = (*FILE_FORMATS, "tfds", "store")

_OUTPUTS = (VOCABULARY, TOKENS, SENTENCE_OFFSETS, DOCUMENT_OFFSETS, INSTANCES)

# Where shards lie until the outputs are whole.
_SHARDS = "shards"
_PLAN = "plan.json"

# Two tokens beside [CLS] and both [SEP]: one for A, one for B.
_SHORTEST_SEQUENCE = NUM_SPECIAL_TOKENS + 2
_LONGEST_SEQUENCE = np.iinfo(np.int16).max

# Words that a vocabulary is learned from; beyond these all are rare, and memory is bounded.
_MOST_WORDS = 4_000_000

_ROWS_AT_ONCE = 1 << 20


def prepare(
    *,
    run_dir: str,
    sources: list[str],
    source_format: str,
    text_field: str = "text",
    datasets_dir: str | None = None,
    vocabulary: str | None = None,
    vocabulary_size: int = 30522,
    sequence_length: int = 128,
    dupe_factor: int | None = 10,
    short_sequence_probability: float = 0.1,
    instance_seed: int = 0,
    counterfactual_seed: int | None = None,
    counterfactual_nouns: bool = False,
    counterfactual_names: bool = False,
    num_workers: int | None = None,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    runner: str | None = None,
    pipeline_options: Sequence[str] = (),
) -> None:
    """Tokenises text and makes its pre-training instances.

    Writes into `run_dir`: `vocab.txt`, `tokens.npy`, `sentence_offsets.npy`, `document_offsets.npy`,
    `instances.npy` and `corpus.json` (parameters, counts, checksums). Run again, it touches nothing.

    Args:
        run_dir: directory of the outputs.
        sources: text files, UTF-8, plain or `.gz`, or patterns such as `wiki/**/wiki_*`; of format
            `tfds` names of datasets (`wikipedia/20230601.en`, with `:split` if it is not `train`); of
            `store` directories that this function made, with one vocabulary.
        source_format: `sentences` (one a line, blank line between documents), `blank_lines`
            (likewise, but not cut into sentences), `raw` (one document a file), `wikiextractor`,
            `jsonl` (one JSON object a line), `tfds`, `store`.
        text_field: of `jsonl` and `tfds`, the field or feature that holds the text.
        datasets_dir: of `tfds`, where prepared datasets lie; None: where the library keeps them.
        vocabulary: a `vocab.txt` to copy; without it one is learned from the text (of `store`:
            that of the stores is kept).
        vocabulary_size: number of pieces to learn; without effect where `vocabulary` is given.
        sequence_length: longest sequence, [CLS] and both [SEP] included.
        dupe_factor: passes over the text, each with other instances and masks, as the original
            does. None: one pass, and masks that are drawn afresh each time an instance is met.
        short_sequence_probability: share of (document, pass) pairs with a short target length.
        instance_seed: seed of instances and of masks that belong to them.
        counterfactual_seed: if given, swaps gendered pronouns with probability one half; the seed
            of those draws.
        counterfactual_nouns: whether gendered nouns are swapped as well.
        counterfactual_names: whether given names are swapped as well.
        num_workers: worker processes; None: one a core. Neither this nor what follows changes what
            is written.
        shard_bytes: text in a shard, about.
        runner: None: worker processes of this machine; else Apache Beam's runner of that name.
        pipeline_options: further options of the Beam pipeline, such as `--region=...`.

    Raises:
        UserError: a source, the vocabulary or a parameter cannot be used; nothing is written.
    """
    is_store = source_format == "store"
    parameters: dict[str, Any] = {
        "source_format": source_format,
        "vocabulary_size": None if vocabulary or is_store else vocabulary_size,
        "sequence_length": sequence_length,
        "dupe_factor": dupe_factor,
        "short_sequence_probability": short_sequence_probability,
        "instance_seed": instance_seed,
        "counterfactual_seed": counterfactual_seed,
    }
    # Stated where they matter, so that directories made before they existed stay valid.
    if source_format in ("jsonl", "tfds"):
        parameters["text_field"] = text_field
    if counterfactual_nouns or counterfactual_names:
        parameters["counterfactual_nouns"] = counterfactual_nouns
        parameters["counterfactual_names"] = counterfactual_names
    _check_parameters(parameters, sources, num_workers, shard_bytes)
    inputs: dict[str, Any] = {"vocabulary": vocabulary}
    if source_format == "tfds":
        from pretrain.dataset_source import dataset_fingerprint

        parameters["sources"] = [dataset_fingerprint(name, datasets_dir) for name in sources]
        fingerprints = dict(zip(sources, parameters["sources"], strict=True))
    else:
        sources = sources if is_store else expand_sources(sources)
        inputs["sources"] = sources
    run = RunDirectory(run_dir, stage="prepare", parameters=parameters, inputs=inputs)
    shard_dir = run.path / _SHARDS
    if run.done:
        remove(shard_dir)  # what a kill between the last two lines of this function left
        return
    if is_store:
        vocabulary = _vocabulary_of_stores(sources, vocabulary)
    if vocabulary:
        _check_vocabulary(vocabulary)
    swapper = None
    if counterfactual_seed is not None:
        swapper = Swapper(
            counterfactual_seed, nouns=counterfactual_nouns, names=counterfactual_names
        )
    text = Text(source_format, text_field, datasets_dir, swapper)
    workers: Runner = LocalRunner(num_workers)
    if runner is not None:
        scratch = run.path.absolute().parent
        workers = BeamRunner([f"--runner={runner}", *pipeline_options], scratch)
    shards = _read_plan(shard_dir) or _plan(sources, text, shard_bytes, workers)
    with run:
        shard_dir.mkdir(exist_ok=True)
        _write_plan(shard_dir, shards)
        if vocabulary:
            write_atomically(run.path / VOCABULARY, Path(vocabulary).read_bytes())
        elif not (run.path / VOCABULARY).exists():
            words = _count_words(shards, text, workers, shard_dir)
            try:
                pieces = learn_vocabulary(words, vocabulary_size)
            except UserError:
                remove(run.path)  # nothing there but what this text's words were counted into
                raise
            write_atomically(run.path / VOCABULARY, "\n".join([*pieces, ""]))
        counts: dict[str, Any] = {"pieces": Tokenizer(run.path / VOCABULARY).size}
        counts |= _write_store(run.path, shards, text, workers, shard_dir)
        counts |= _write_instances(
            run.path,
            workers,
            shard_dir,
            passes=1 if dupe_factor is None else dupe_factor,
            sequence_length=sequence_length,
            short_sequence_probability=short_sequence_probability,
            instance_seed=instance_seed,
        )
        marks = fingerprints if source_format == "tfds" else {s: fingerprint(s) for s in sources}
        description = {
            **parameters,
            "fresh_masks": dupe_factor is None,
            "counts": counts,
            "sources": [{"file": Path(source).name, "sha256": marks[source]} for source in sources],
            "sha256": {name: sha256_of_file(run.path / name) for name in _OUTPUTS},
            # Both decide how rare characters are tokenised.
            "unicode": unicodedata.unidata_version,
        }
        write_atomically(run.path / DESCRIPTION, json.dumps(description, indent=1) + "\n")
        run.finish([*_OUTPUTS, DESCRIPTION])
        remove(shard_dir)


def _plan(sources: Sequence[str], text: Text, shard_bytes: int, workers: Runner) -> list[Shard]:
    """Cuts the sources, looks all shards over, and refuses what cannot make instances."""
    cut = cut_into_shards(sources, text, shard_bytes)
    found = workers.run(functools.partial(look_over_shard, text=text), cut, "check")
    pieces = [piece for shard in cut for piece in shard]
    counts = [PieceCounts(*count) for shard in found for count in shard]
    check_counts(pieces, counts, text.source_format)
    return number_shards(cut, found)


def _write_plan(shard_dir: Path, shards: Sequence[Shard]) -> None:
    if not (shard_dir / _PLAN).exists():
        write_atomically(shard_dir / _PLAN, json.dumps(shards))


def _read_plan(shard_dir: Path) -> list[Shard] | None:
    """The plan of the run that was killed; its parameters and its text were the same as now."""
    path = shard_dir / _PLAN
    if not path.exists():
        return None
    return [
        Shard(number, tuple(Piece(*piece) for piece in pieces), first_document, alone)
        for number, pieces, first_document, alone in json.loads(path.read_text())
    ]


def _count_words(
    shards: Sequence[Shard], text: Text, workers: Runner, shard_dir: Path
) -> dict[str, int]:
    """Counts the words of all shards, as many as a vocabulary is learned from."""
    count = functools.partial(count_words_of_shard, text=text, directory=shard_dir)
    workers.run(count, shards, "words")
    paths = [words_path(shard_dir, shard.number) for shard in shards]
    return most_frequent_words(paths, _MOST_WORDS)


def _write_store(
    directory: Path, shards: Sequence[Shard], text: Text, workers: Runner, shard_dir: Path
) -> dict[str, int]:
    tokenise = functools.partial(
        tokenise_shard, text=text, vocabulary=directory / VOCABULARY, directory=shard_dir
    )
    workers.run(tokenise, shards, "tokens")
    paths = [tokens_path(shard_dir, shard.number) for shard in shards]
    return join_token_stores(directory, paths) | swapped_counts(paths)


def _write_instances(
    directory: Path, workers: Runner, shard_dir: Path, passes: int, **parameters: Any
) -> dict[str, int]:
    store = TokenStore(directory)
    small = is_quickly_paired(store, passes)
    whole = [PairingTask(0, 0, passes, 0, store.num_documents)]
    tasks = whole if small else cut_into_pairing_tasks(store, passes)
    pair = functools.partial(
        pair_spans, corpus=directory, directory=shard_dir, alone=small, **parameters
    )
    workers.run(pair, tasks, "instances", small)
    counts = {"instances": 0, "random_next": 0}
    with (
        replaced(directory / INSTANCES) as path,
        ArrayWriter(path, INSTANCE_DTYPE) as writer,
    ):
        for task in tasks:
            rows = open_array(instances_path(shard_dir, task.number), INSTANCE_DTYPE)
            for first in range(0, rows.size, _ROWS_AT_ONCE):
                some = rows[first : first + _ROWS_AT_ONCE]
                writer.append(some)
                counts["instances"] += some.size
                counts["random_next"] += int(some["is_random_next"].sum())
    return counts


def _check_vocabulary(path: str) -> None:
    pieces = read_vocabulary(path)
    if len(pieces) > LARGEST_VOCABULARY:
        raise UserError(
            f"{path} has {len(pieces)} pieces, expected at most {LARGEST_VOCABULARY}, as tokens "
            "are kept in 16 bits; use a smaller vocabulary"
        )


def _vocabulary_of_stores(stores: Sequence[str], given: str | None) -> str:
    """The one vocabulary of stores, which a given one may not differ from."""
    first, *others = (Path(store) / VOCABULARY for store in stores)
    for other in [*others, *([Path(given)] if given else [])]:
        if sha256_of_file(first) != sha256_of_file(other):
            raise UserError(
                f"{other} differs from {first}; stores are ids of one vocabulary, so prepare these "
                "from their text"
            )
    return str(first)


def _check_parameters(
    parameters: dict[str, Any],
    sources: Sequence[str],
    num_workers: int | None,
    shard_bytes: int,
) -> None:
    """Refuses values that have no meaning, naming the first."""
    source_format = parameters["source_format"]
    size, length = parameters["vocabulary_size"], parameters["sequence_length"]
    passes, probability = parameters["dupe_factor"], parameters["short_sequence_probability"]
    for name, value, valid, expected in (
        ("sources", sources, len(sources) > 0, "the names of text files"),
        (
            "num_workers",
            num_workers,
            num_workers is None or num_workers >= 1,
            "at least 1, or None",
        ),
        ("shard_bytes", shard_bytes, shard_bytes >= 1, "at least 1"),
        (
            "source_format",
            source_format,
            source_format in SOURCE_FORMATS,
            f"one of {', '.join(SOURCE_FORMATS)}",
        ),
        (
            "sequence_length",
            length,
            _SHORTEST_SEQUENCE <= length <= _LONGEST_SEQUENCE,
            f"{_SHORTEST_SEQUENCE} to {_LONGEST_SEQUENCE}",
        ),
        ("dupe_factor", passes, passes is None or passes >= 1, "at least 1, or None"),
        ("short_sequence_probability", probability, 0 <= probability <= 1, "0 to 1"),
        (
            "vocabulary_size",
            size,
            size is None or size <= LARGEST_VOCABULARY,
            f"at most {LARGEST_VOCABULARY}",
        ),
    ):
        if not valid:
            raise UserError(f"prepare.{name} is {value!r}, expected {expected}; change it")


if __name__ == "__main__":
    from absl import flags

    from pretrain.describe import describe
    from runs.command import run_command

    flags.DEFINE_string(
        "runner", None, "Apache Beam runner; without it, processes of this machine."
    )
    flags.DEFINE_multi_string(
        "pipeline_option", [], "Option of the Beam pipeline; may be repeated."
    )

    @functools.wraps(prepare)
    def command(**bindings: Any) -> None:
        """Adds what the command line says of the runner, and tells what was made."""
        if flags.FLAGS.runner is not None:
            bindings["runner"] = flags.FLAGS.runner
        if flags.FLAGS.pipeline_option:
            bindings["pipeline_options"] = flags.FLAGS.pipeline_option
        prepare(**bindings)
        describe(corpus=bindings["run_dir"])

    run_command(command)
