r"""Text to everything that batches are made of: vocabulary, token store, instance table.

    multiberts prepare --gin_param='prepare.run_dir = "corpus"' \
        --gin_param='prepare.sources = ["text.txt.gz"]' \
        --gin_param='prepare.source_format = "wikiextractor"'

The corpus is cut into shards (`pretrain/corpus/shards.py`), which worker processes of this machine make, or
the workers of a cluster of Dask (`pretrain/corpus/runners.py`):

    multiberts prepare --gin_file=corpus.gin --scheduler=tls://10.0.0.7:8786

The outputs are the same bytes either way. Started again after a kill, it makes the missing shards.
"""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from multiberts.bert.vocabulary import TOKENIZER_CONFIG, VOCABULARY, Vocabulary
from multiberts.pretrain.corpus.description import DESCRIPTION
from multiberts.pretrain.corpus.documents import (
    Piece,
    PieceCounts,
    check_counts,
    name_sources,
    one_or_all,
)
from multiberts.pretrain.corpus.instances import (
    INSTANCE_DTYPE,
    INSTANCES,
    TOKENS_PER_TASK,
    cut_into_pairing_tasks,
    instances_path,
    pair_spans,
    short_targets_path,
)
from multiberts.pretrain.corpus.preparation_settings import (
    IDENTITY,
    PreparationSettings,
    check_settings,
)
from multiberts.pretrain.corpus.runners import DaskRunner, LocalRunner, Runner
from multiberts.pretrain.corpus.shards import (
    Shard,
    Text,
    count_words_of_shard,
    cut_into_shards,
    is_packed,
    look_over_shard,
    most_frequent_words,
    number_shards,
    swapped_counts,
    tokenise_shard,
    tokens_path,
    unpack_shard,
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
    unknown_share,
)
from multiberts.pretrain.corpus.vocabulary import learn_vocabulary
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    read_json_fields,
    remove,
    replaced,
    sha256_of_file,
    write_atomically,
    write_json_fields,
)
from multiberts.runs.parameters import takes_fields_of

_OUTPUTS = (VOCABULARY, TOKENS, SENTENCE_OFFSETS, DOCUMENT_OFFSETS, INSTANCES)

# Where shards lie until the outputs are whole.
_SHARDS = "shards"
_PLAN = "plan.json"

# Words that a vocabulary is learned from; beyond these all are rare, and memory is bounded.
_MOST_WORDS = 4_000_000

_ROWS_AT_ONCE = 1 << 20


@takes_fields_of(PreparationSettings)
def prepare(settings: PreparationSettings) -> None:
    """Tokenises text and makes its pre-training instances.

    Writes into `run_dir`: `vocab.txt`, `tokens.npy`, `sentence_offsets.npy`, `document_offsets.npy`,
    `instances.npy` and `corpus.json` (parameters, counts, checksums). Run again, it touches nothing.

    Args:
      settings: the fields of `PreparationSettings`.
    """
    sources = name_sources(settings.sources, settings.source_format, "prepare")
    check_settings(settings)
    parameters, inputs = IDENTITY.on_disk(vars(settings))
    parameters["source_format"] = one_or_all([source.source_format for source in sources])
    if parameters["source_format"] == "tfds":
        from multiberts.pretrain.corpus.dataset_source import dataset_fingerprint

        # Fingerprints of the datasets, in place of their names.
        marks = [dataset_fingerprint(piece.source, settings.datasets_dir) for piece in sources]
        parameters["sources"] = marks
    else:
        inputs["sources"] = [piece.source for piece in sources]
    run = RunDirectory(settings.run_dir, stage="prepare", parameters=parameters, inputs=inputs)
    if "sources" in inputs:
        marks = run.fingerprints["sources"].split("+")
    shard_dir = run.path / _SHARDS
    if run.done:
        remove(shard_dir)  # what a kill between the last two lines of this function left
        return
    _refuse_copies(sources, marks)
    vocabulary = _given_vocabulary(settings, sources)
    workers: Runner = LocalRunner(settings.num_workers)
    if settings.scheduler is not None:
        workers = DaskRunner(settings.scheduler)
    shards = _read_plan(shard_dir)
    if not shards:
        cut = cut_into_shards(sources, settings.text)
        counts_of_shards = _look_over(cut, settings, workers)
        check_counts(list(chain(*cut)), list(chain(*counts_of_shards)))
    with run:
        shard_dir.mkdir(exist_ok=True)
        if not shards:
            shards = _plan_shards(shard_dir, cut, counts_of_shards, settings, workers)
        outputs = list(_OUTPUTS)
        if vocabulary:
            outputs += vocabulary.write(run.path)[1:]
        else:
            if settings.cased:
                write_json_fields(run.path / TOKENIZER_CONFIG, {"do_lower_case": False})
                outputs.append(TOKENIZER_CONFIG)
            _learn_vocabulary(run.path, settings, shards, workers)
        vocabulary = Vocabulary.open(run.path / VOCABULARY)
        counts: dict[str, Any] = {"pieces": vocabulary.size}
        counts |= _write_store(run.path, shards, settings.text, workers)
        share = unknown_share(TokenStore(run.path), vocabulary.unk_id)
        if share > settings.max_unknown_share:
            remove(run.path)
            raise UserError(
                f"{share:.1%} of the tokens are [UNK], expected at most {settings.max_unknown_share:.1%}: "
                "the vocabulary does not fit the text; give one of its language, or none to learn it from "
                "the text, or raise prepare.max_unknown_share"
            )
        counts |= _write_instances(run.path, settings, workers)
        description = {
            **parameters,
            "fresh_masks": settings.dupe_factor is None,
            "counts": counts,
            **({} if vocabulary.lower_case else {"do_lower_case": False}),
            "sources": [
                {"file": Path(piece.source).name, "sha256": mark}
                for piece, mark in zip(sources, marks, strict=True)
            ],
            "sha256": {name: sha256_of_file(run.path / name) for name in outputs},
            # Both decide how rare characters are tokenised.
            "unicode": unicodedata.unidata_version,
        }
        write_atomically(run.path / DESCRIPTION, json.dumps(description, indent=1) + "\n")
        run.finish([*outputs, DESCRIPTION])
        remove(shard_dir)


def _refuse_copies(sources: Sequence[Piece], marks: Sequence[str]) -> None:
    names: dict[str, str] = {}
    for piece, mark in zip(sources, marks, strict=True):
        other = names.setdefault(mark, piece.source)
        if other != piece.source:
            raise UserError(
                f"prepare.sources has {other} and {piece.source}, which hold the same, so that its text "
                "would count double; leave one of them out"
            )


def _given_vocabulary(settings: PreparationSettings, sources: Sequence[Piece]) -> Vocabulary | None:
    """Returns the vocabulary that is given, or that of stores; None: it is to be learned."""
    vocabulary = settings.vocabulary and Vocabulary.open(settings.vocabulary)
    if sources[0].source_format == "store":
        first, *others = (Vocabulary.open(Path(piece.source) / VOCABULARY) for piece in sources)
        for other in [*others, *([vocabulary] if vocabulary else [])]:
            if differ := first.difference(other):
                raise UserError(
                    f"{differ}; stores are ids of one vocabulary, so prepare these from their text"
                )
        vocabulary = first
    if vocabulary:
        check_vocabulary_size(vocabulary)
        if settings.cased and vocabulary.lower_case:
            raise UserError(
                f"prepare.cased is true, but {vocabulary.path} is of an uncased model; leave it out, or "
                f'write {{"do_lower_case": false}} into a {TOKENIZER_CONFIG} beside the vocabulary'
            )
    return vocabulary or None


def _look_over(
    cut: list[tuple[Piece, ...]], settings: PreparationSettings, workers: Runner
) -> list[list[PieceCounts]]:
    return workers.run(functools.partial(look_over_shard, text=settings.text), cut, "check")


def _plan_shards(
    shard_dir: Path,
    cut: list[tuple[Piece, ...]],
    counts: list[list[PieceCounts]],
    settings: PreparationSettings,
    workers: Runner,
) -> list[Shard]:
    """Unpacks each `.gz` that holds several shards, puts these in its place, and writes the plan."""
    packed = [place for place, shard in enumerate(cut) if is_packed(shard)]
    unpack = functools.partial(unpack_shard, directory=shard_dir)
    plain = workers.run(unpack, [(place, cut[place]) for place in packed], "unpacked")
    # From the last to the first, so that the places before stay.
    for place, pieces in reversed(list(zip(packed, plain, strict=True))):
        parts = cut_into_shards(pieces, settings.text)
        cut[place : place + 1] = parts
        counts[place : place + 1] = _look_over(parts, settings, workers)
    shards = number_shards(cut, counts)
    write_atomically(shard_dir / _PLAN, json.dumps({"shards": shards}))
    return shards


def _read_plan(shard_dir: Path) -> list[Shard] | None:
    """Reads the plan of the run that was killed; its parameters and its text were the same as now."""
    path = shard_dir / _PLAN
    if not path.exists():
        return None
    cure = f"remove {shard_dir} and run the same command again"
    shards = read_json_fields(path, {"shards": list[list]}, cure)["shards"]
    return [
        Shard(number, tuple(Piece(*piece) for piece in pieces), first_document, alone)
        for number, pieces, first_document, alone in shards
    ]


def _learn_vocabulary(
    directory: Path, settings: PreparationSettings, shards: Sequence[Shard], workers: Runner
) -> None:
    """Learns `vocab.txt` from the words of all shards, unless a run before has."""
    if (directory / VOCABULARY).exists():
        return
    shard_dir = directory / _SHARDS
    count = functools.partial(
        count_words_of_shard, text=settings.text, directory=shard_dir, lower_case=not settings.cased
    )
    workers.run(count, shards, "words")
    paths = [words_path(shard_dir, shard.number) for shard in shards]
    frequent = most_frequent_words(paths, _MOST_WORDS)
    try:
        pieces = learn_vocabulary(frequent, settings.vocabulary_size)
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
        tokenise_shard, text=text, vocabulary_path=directory / VOCABULARY, directory=shard_dir
    )
    workers.run(tokenise, shards, "tokens")
    paths = [tokens_path(shard_dir, shard.number) for shard in shards]
    size = Vocabulary.open(directory / VOCABULARY).size
    return join_token_stores(directory, paths, size) | swapped_counts(paths)


def _write_instances(
    directory: Path, settings: PreparationSettings, workers: Runner
) -> dict[str, int]:
    """Pairs spans of the whole store and joins the tables; returns how many instances there are."""
    shard_dir = directory / _SHARDS
    store = TokenStore(directory)
    tasks = cut_into_pairing_tasks(store, settings.passes)
    if store.num_tokens * settings.passes < 2 * TOKENS_PER_TASK:
        workers = LocalRunner(1)  # starting workers would take longer
    pair = functools.partial(
        pair_spans,
        corpus=directory,
        directory=shard_dir,
        sequence_length=settings.sequence_length,
        short_sequence_probability=settings.short_sequence_probability,
        instance_seed=settings.instance_seed,
    )
    workers.run(pair, tasks, "instances")
    counts = {"instances": 0, "random_next": 0, "short_targets": 0}
    with replaced(directory / INSTANCES) as path, ArrayWriter(path, INSTANCE_DTYPE) as writer:
        for task in tasks:
            rows = open_array(instances_path(shard_dir, task.number), INSTANCE_DTYPE)
            counts["short_targets"] += int(short_targets_path(shard_dir, task.number).read_text())
            for first in range(0, rows.size, _ROWS_AT_ONCE):
                some = rows[first : first + _ROWS_AT_ONCE]
                writer.append(some)
                counts["instances"] += some.size
                counts["random_next"] += int(some["is_random_next"].sum())
    return counts
