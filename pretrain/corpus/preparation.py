"""Text to everything that batches are made of: vocabulary, token store, instance table.

    python -m pretrain.prepare --gin_param='prepare.run_dir = "corpus"' \\
        --gin_param='prepare.sources = ["text.txt.gz"]' \\
        --gin_param='prepare.source_format = "wikiextractor"'

The corpus is cut into shards (`pretrain/corpus/shards.py`), which worker processes of this machine make, or
Apache Beam (`pretrain/corpus/runners.py`) under one of its runners, with the options that it takes:

    python -m pretrain.prepare --gin_file=corpus.gin --runner=DirectRunner \\
        --pipeline_option=--direct_num_workers=8 \\
        --pipeline_option=--direct_running_mode=multi_processing

The outputs are the same bytes either way. Started again after a kill, it makes the missing shards.
"""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiberts.bert.tokenization import Tokenizer
from multiberts.pretrain.corpus.counterfactual import Swapper
from multiberts.pretrain.corpus.description import DESCRIPTION, VOCABULARY
from multiberts.pretrain.corpus.documents import (
    Piece,
    PieceCounts,
    check_counts,
    check_sources,
    expand_sources,
)
from multiberts.pretrain.corpus.instances import INSTANCE_DTYPE, INSTANCES
from multiberts.pretrain.corpus.pairing import (
    PairingTask,
    cut_into_pairing_tasks,
    instances_path,
    is_quickly_paired,
    pair_spans,
)
from multiberts.pretrain.corpus.preparation_checks import check_machinery, check_parameters
from multiberts.pretrain.corpus.runners import BeamRunner, LocalRunner, Runner
from multiberts.pretrain.corpus.shards import (
    DEFAULT_SHARD_BYTES,
    Shard,
    Text,
    count_words_of_shard,
    cut_into_shards,
    look_over_shard,
    most_frequent_words,
    number_shards,
    swapped_counts,
    tokenise_shard,
    tokens_path,
    words_path,
)
from multiberts.pretrain.corpus.token_store import (
    DOCUMENT_OFFSETS,
    SENTENCE_OFFSETS,
    TOKENS,
    ArrayWriter,
    TokenStore,
    check_vocabulary_size,
    join_token_stores,
    open_array,
)
from multiberts.pretrain.corpus.vocabulary import learn_vocabulary
from multiberts.runs.directory import RunDirectory, fingerprint
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    UNFINISHED_SUFFIX,
    remove,
    replaced,
    sha256_of_file,
    write_atomically,
)

_OUTPUTS = (VOCABULARY, TOKENS, SENTENCE_OFFSETS, DOCUMENT_OFFSETS, INSTANCES)

# Where shards lie until the outputs are whole.
_SHARDS = "shards"
_PLAN = "plan.json"

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
      runner: None: worker processes of this machine; else Apache Beam's runner of that name
        (`DirectRunner`, `FlinkRunner`, `SparkRunner`, `DataflowRunner`), as --runner.
      pipeline_options: further options of the Beam pipeline, such as `--region=...`, as
        --pipeline_option.

    Raises:
      UserError: a source, the vocabulary or a parameter cannot be used; nothing is written.
    """
    parameters: dict[str, Any] = {
        "source_format": source_format,
        "vocabulary_size": None if vocabulary or source_format == "store" else vocabulary_size,
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
    check_sources(sources, "prepare.sources")
    check_parameters(parameters)
    check_machinery(num_workers, shard_bytes, runner, pipeline_options)
    sources, marks = _named_sources(sources, source_format, datasets_dir)
    inputs: dict[str, Any] = {"vocabulary": vocabulary}
    if source_format == "tfds":
        parameters["sources"] = marks
    else:
        inputs["sources"] = sources
    run = RunDirectory(run_dir, stage="prepare", parameters=parameters, inputs=inputs)
    shard_dir = run.path / _SHARDS
    if run.done:
        remove(shard_dir)  # what a kill between the last two lines of this function left
        return
    if source_format == "store":
        vocabulary = _vocabulary_of_stores(sources, vocabulary)
    if vocabulary:
        check_vocabulary_size(vocabulary)
    swapper = None
    if counterfactual_seed is not None:
        swapper = Swapper(
            counterfactual_seed, nouns=counterfactual_nouns, names=counterfactual_names
        )
    text = Text(source_format, text_field, datasets_dir, swapper)
    workers = _workers(run.path, num_workers, runner, pipeline_options)
    shards = _read_plan(shard_dir) or _plan(sources, text, shard_bytes, workers)
    with run:
        shard_dir.mkdir(exist_ok=True)
        _write_plan(shard_dir, shards)
        if vocabulary:
            write_atomically(run.path / VOCABULARY, Path(vocabulary).read_bytes())
        else:
            _learn_vocabulary(run.path, vocabulary_size, shards, text, workers)
        counts: dict[str, Any] = {"pieces": Tokenizer(run.path / VOCABULARY).size}
        counts |= _write_store(run.path, shards, text, workers)
        counts |= _write_instances(
            run.path,
            workers,
            passes=1 if dupe_factor is None else dupe_factor,
            sequence_length=sequence_length,
            short_sequence_probability=short_sequence_probability,
            instance_seed=instance_seed,
        )
        description = {
            **parameters,
            "fresh_masks": dupe_factor is None,
            "counts": counts,
            "sources": [
                {"file": Path(source).name, "sha256": mark or fingerprint(source)}
                for source, mark in zip(sources, marks, strict=True)
            ],
            "sha256": {name: sha256_of_file(run.path / name) for name in _OUTPUTS},
            # Both decide how rare characters are tokenised.
            "unicode": unicodedata.unidata_version,
        }
        write_atomically(run.path / DESCRIPTION, json.dumps(description, indent=1) + "\n")
        run.finish([*_OUTPUTS, DESCRIPTION])
        remove(shard_dir)


def _named_sources(
    sources: Sequence[str], source_format: str, datasets_dir: str | None
) -> tuple[list[str], list[str | None]]:
    """The sources one by one, and of each dataset what it holds; of others that is read off files."""
    if source_format == "tfds":
        from multiberts.pretrain.corpus.dataset_source import dataset_fingerprint

        return list(sources), [dataset_fingerprint(name, datasets_dir) for name in sources]
    files = list(sources) if source_format == "store" else expand_sources(sources)
    return files, [None] * len(files)


def _workers(
    run_dir: Path, num_workers: int | None, runner: str | None, pipeline_options: Sequence[str]
) -> Runner:
    """Who makes the shards."""
    if runner is None:
        return LocalRunner(num_workers)
    # Beside the directory, which does not exist while its sources are looked over.
    scratch = run_dir.absolute().with_name(run_dir.name + ".beam" + UNFINISHED_SUFFIX)
    return BeamRunner([f"--runner={runner}", *pipeline_options], scratch)


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


def _learn_vocabulary(
    directory: Path, vocabulary_size: int, shards: Sequence[Shard], text: Text, workers: Runner
) -> None:
    """Learns `vocab.txt` from the words of all shards, unless a run before has."""
    if (directory / VOCABULARY).exists():
        return
    shard_dir = directory / _SHARDS
    count = functools.partial(count_words_of_shard, text=text, directory=shard_dir)
    workers.run(count, shards, "words")
    paths = [words_path(shard_dir, shard.number) for shard in shards]
    try:
        pieces = learn_vocabulary(most_frequent_words(paths, _MOST_WORDS), vocabulary_size)
    except UserError:
        remove(directory)  # nothing there but what this text's words were counted into
        raise
    write_atomically(directory / VOCABULARY, "\n".join([*pieces, ""]))


def _write_store(
    directory: Path, shards: Sequence[Shard], text: Text, workers: Runner
) -> dict[str, int]:
    """Tokenises all shards and joins them; how much of everything there is."""
    shard_dir = directory / _SHARDS
    tokenise = functools.partial(
        tokenise_shard, text=text, vocabulary=directory / VOCABULARY, directory=shard_dir
    )
    workers.run(tokenise, shards, "tokens")
    paths = [tokens_path(shard_dir, shard.number) for shard in shards]
    return join_token_stores(directory, paths) | swapped_counts(paths)


def _write_instances(
    directory: Path, workers: Runner, passes: int, **parameters: Any
) -> dict[str, int]:
    """Pairs spans of the whole store and joins the tables; how many instances there are."""
    shard_dir = directory / _SHARDS
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
