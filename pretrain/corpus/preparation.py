r"""Prepares text for pre-training: vocabulary, token store, instance table.

    multiberts prepare --gin_param='prepare.run_dir = "corpus"' \
        --gin_param='prepare.sources = ["text.txt.gz"]' \
        --gin_param='prepare.source_format = "wikiextractor"'

The corpus is cut into shards (`pretrain/corpus/shards.py`), which worker processes of this machine make, or
the workers of a cluster of Dask (`pretrain/corpus/runners.py`):

    multiberts prepare --gin_file=corpus.gin --scheduler=tls://10.0.0.7:8786

The outputs are the same bytes either way. Started again after a kill, it makes the missing shards.
"""

from __future__ import annotations

import dataclasses
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
    INSTANCES,
    TOKENS_PER_TASK,
    cut_into_pairing_tasks,
    join_instances,
    pair_spans,
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
    read_plan,
    swapped_counts,
    tokenise_shard,
    tokens_path,
    unpack_shard,
    words_path,
    write_plan,
)
from multiberts.pretrain.corpus.token_store import (
    DOCUMENT_OFFSETS,
    SENTENCE_OFFSETS,
    TOKENS,
    TokenStore,
    check_vocabulary_size,
    join_token_stores,
    unknown_share,
)
from multiberts.pretrain.corpus.vocabulary import learn_vocabulary
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove, sha256_of_file, write_atomically, write_json_fields
from multiberts.runs.parameters import takes_fields_of

_OUTPUTS = (VOCABULARY, TOKENS, SENTENCE_OFFSETS, DOCUMENT_OFFSETS, INSTANCES)

# Folder of the shards until the outputs are complete.
_SHARDS = "shards"

# Number of words for learning a vocabulary: further words are rare, and this limits memory.
_MOST_WORDS = 4_000_000


@takes_fields_of(PreparationSettings)
def prepare(settings: PreparationSettings) -> None:
    """Tokenises text and makes its pre-training instances.

    Writes into `run_dir`: `vocab.txt`, `tokens.npy`, `sentence_offsets.npy`, `document_offsets.npy`,
    `instances.npy` and `corpus.json` (parameters, counts, checksums). Run again, it touches nothing.

    Args:
      settings: the fields of `PreparationSettings`.
    """
    # Identify the sources by their content.
    sources = name_sources(settings.sources, settings.source_format, "prepare")
    check_settings(settings)
    parameters, inputs = IDENTITY.on_disk(vars(settings))
    parameters["source_format"] = one_or_all([source.source_format for source in sources])
    if parameters["source_format"] == "tfds":
        from multiberts.pretrain.corpus.dataset_source import dataset_fingerprint

        # Datasets are identified by fingerprints, not names.
        marks = [dataset_fingerprint(piece.source, settings.datasets_dir) for piece in sources]
        parameters["sources"] = marks
    else:
        marks = [source.identity for source in inputs["sources"]]
    run = RunDirectory(settings.run_dir, stage="prepare", parameters=parameters, inputs=inputs)
    text = dataclasses.replace(settings.text, files=tuple(inputs.get("sources", ())))
    shard_dir = run.path / _SHARDS
    if run.done:
        remove(shard_dir)  # left by a kill between the last two lines of this function
        return
    _refuse_copies(sources, marks)
    shared_vocabulary = _fixed_vocabulary(inputs.get("vocabulary"), sources, settings.cased)

    # Cut the text into shards and check them; shards of a killed run are reused.
    workers: Runner = LocalRunner(settings.num_workers)
    if settings.scheduler is not None:
        workers = DaskRunner(settings.scheduler)
    shards = read_plan(shard_dir, sources)
    if not shards:
        cut = cut_into_shards(sources, text)
        look_over = functools.partial(look_over_shard, text=text)
        counts_of_shards = workers.run(look_over, cut, "check")
        check_counts(list(chain(*cut)), list(chain(*counts_of_shards)))
    with run:
        if not shards:
            _unpack(cut, counts_of_shards, text, shard_dir, workers)
            shards = number_shards(cut, counts_of_shards)
            write_plan(shard_dir, shards, sources)

        # The vocabulary, written or learned from the words of all shards.
        outputs = list(_OUTPUTS)
        if shared_vocabulary:
            outputs += shared_vocabulary.write(run.path)[1:]
        elif settings.cased:
            write_json_fields(run.path / TOKENIZER_CONFIG, {"do_lower_case": False})
            outputs.append(TOKENIZER_CONFIG)
        if not (run.path / VOCABULARY).exists():
            _learn_vocabulary(run.path, shard_dir, shards, settings, text, workers)
        vocabulary = Vocabulary.open(run.path / VOCABULARY)

        # The token store: all shards, tokenised and joined.
        tokenise = functools.partial(
            tokenise_shard, text=text, vocabulary_path=run.path / VOCABULARY, directory=shard_dir
        )
        workers.run(tokenise, shards, "tokens")
        stores = [tokens_path(shard_dir, shard.number) for shard in shards]
        counts: dict[str, Any] = {
            "pieces": vocabulary.size,
            **join_token_stores(run.path, stores, vocabulary.size),
            **swapped_counts(stores),
        }
        store = TokenStore(run.path)
        share = unknown_share(store, vocabulary.unk_id)
        if share > settings.max_unknown_share:
            remove(run.path)
            raise UserError(
                f"{share:.1%} of the tokens are [UNK], expected at most {settings.max_unknown_share:.1%}: "
                "the vocabulary does not fit the text; give one of its language, or none to learn it from "
                "the text, or raise prepare.max_unknown_share"
            )

        # The instances: pairs of spans of the whole store, in one table.
        tasks = cut_into_pairing_tasks(store, settings.passes)
        if store.num_tokens * settings.passes < 2 * TOKENS_PER_TASK:
            workers = LocalRunner(1)  # starting workers takes longer
        pair = functools.partial(
            pair_spans,
            corpus=run.path,
            directory=shard_dir,
            sequence_length=settings.sequence_length,
            short_sequence_probability=settings.short_sequence_probability,
            instance_seed=settings.instance_seed,
        )
        workers.run(pair, tasks, "instances")
        counts |= join_instances(run.path, shard_dir, tasks)

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
            # Both affect how rare characters are tokenised.
            "unicode": unicodedata.unidata_version,
        }
        write_atomically(run.path / DESCRIPTION, json.dumps(description, indent=1) + "\n")
        run.finish([*outputs, DESCRIPTION])
        remove(shard_dir)


def _refuse_copies(sources: Sequence[Piece], marks: Sequence[str]) -> None:
    names: dict[str, str] = {}
    for piece, mark in zip(sources, marks, strict=True):
        if (other := names.setdefault(mark, piece.source)) != piece.source:
            raise UserError(
                f"prepare.sources has {other} and {piece.source}, which hold the same, so that its text "
                "would count double; leave one of them out"
            )


def _fixed_vocabulary(
    vocabulary: Vocabulary | None, sources: Sequence[Piece], cased: bool
) -> Vocabulary | None:
    """Returns the user's vocabulary or that of the stores; None: learn one."""
    if sources[0].source_format == "store":
        first, *others = (Vocabulary.open(Path(piece.source) / VOCABULARY) for piece in sources)
        for each in [*others, *([vocabulary] if vocabulary else [])]:
            if differ := first.difference(each):
                raise UserError(
                    f"{differ}; stores are ids of one vocabulary, so prepare these from their text"
                )
        vocabulary = first
    if vocabulary:
        check_vocabulary_size(vocabulary)
        if cased and vocabulary.lower_case:
            raise UserError(
                f"prepare.cased is true, but {vocabulary.where} is of an uncased model; leave it out, or "
                f'write {{"do_lower_case": false}} into a {TOKENIZER_CONFIG} beside the vocabulary'
            )
    return vocabulary


def _unpack(
    cut: list[tuple[Piece, ...]],
    counts: list[list[PieceCounts]],
    text: Text,
    shard_dir: Path,
    workers: Runner,
) -> None:
    """Unpacks each `.gz` with several shards, and replaces it by these."""
    packed = [index for index, pieces in enumerate(cut) if is_packed(pieces)]
    look_over = functools.partial(look_over_shard, text=text)
    unpack = functools.partial(unpack_shard, text=text, directory=shard_dir)
    plain = workers.run(unpack, [(index, cut[index]) for index in packed], "unpacked")
    # From the last to the first, so that the places before stay.
    for index, pieces in reversed(list(zip(packed, plain, strict=True))):
        parts = cut_into_shards(pieces, text)
        cut[index : index + 1] = parts
        counts[index : index + 1] = workers.run(look_over, parts, "check")


def _learn_vocabulary(
    directory: Path,
    shard_dir: Path,
    shards: Sequence[Shard],
    settings: PreparationSettings,
    text: Text,
    workers: Runner,
) -> None:
    """Learns `vocab.txt` from the words of all shards."""
    count = functools.partial(
        count_words_of_shard, text=text, directory=shard_dir, lower_case=not settings.cased
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
