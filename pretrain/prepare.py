"""Text to everything that batches are made of: vocabulary, token store, instance table.

    python -m pretrain.prepare --gin_param='prepare.run_dir = "corpus"' \\
        --gin_param='prepare.sources = ["text.txt.gz"]' \\
        --gin_param='prepare.source_format = "wikiextractor"'
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bert.tokenization import Tokenizer, read_vocabulary
from pretrain.corpus import SOURCE_FORMATS, check_sources, read_documents
from pretrain.counterfactual import swap_pronouns
from pretrain.instances import INSTANCE_DTYPE, INSTANCES, NUM_SPECIAL_TOKENS, make_instances
from pretrain.token_store import (
    DOCUMENT_OFFSETS,
    LARGEST_VOCABULARY,
    SENTENCE_OFFSETS,
    TOKENS,
    ArrayWriter,
    TokenStore,
    write_token_store,
)
from pretrain.vocabulary import count_words, learn_vocabulary
from runs.directory import RunDirectory
from runs.errors import UserError
from runs.files import replaced, sha256_of_file, write_atomically

VOCABULARY = "vocab.txt"
DESCRIPTION = "corpus.json"

_OUTPUTS = (VOCABULARY, TOKENS, SENTENCE_OFFSETS, DOCUMENT_OFFSETS, INSTANCES)

# Two tokens beside [CLS] and both [SEP]: one for A, one for B.
_SHORTEST_SEQUENCE = NUM_SPECIAL_TOKENS + 2
_LONGEST_SEQUENCE = np.iinfo(np.int16).max


def prepare(
    *,
    run_dir: str,
    sources: list[str],
    source_format: str,
    vocabulary: str | None = None,
    vocabulary_size: int = 30522,
    sequence_length: int = 128,
    dupe_factor: int | None = 10,
    short_sequence_probability: float = 0.1,
    instance_seed: int = 0,
    counterfactual_seed: int | None = None,
) -> None:
    """Tokenises text and makes its pre-training instances.

    Writes into `run_dir`: `vocab.txt`, `tokens.npy`, `sentence_offsets.npy`, `document_offsets.npy`,
    `instances.npy` and `corpus.json` (parameters, counts, checksums). Run again, it touches nothing.

    Args:
        run_dir: directory of the outputs.
        sources: text files, UTF-8, plain or `.gz`.
        source_format: `sentences` (one a line, blank line between documents), `raw` (one document
            a file) or `wikiextractor`.
        vocabulary: a `vocab.txt` to copy; without it one is learned from the text.
        vocabulary_size: number of pieces to learn; without effect where `vocabulary` is given.
        sequence_length: longest sequence, [CLS] and both [SEP] included.
        dupe_factor: passes over the text, each with other instances and masks, as the original
            does. None: one pass, and masks that are drawn afresh each time an instance is met.
        short_sequence_probability: share of (document, pass) pairs with a short target length.
        instance_seed: seed of instances and of masks that belong to them.
        counterfactual_seed: if given, swaps gendered pronouns with probability one half; the seed
            of those draws.

    Raises:
        UserError: a source, the vocabulary or a parameter cannot be used; nothing is written.
    """
    parameters = {
        "source_format": source_format,
        "vocabulary_size": None if vocabulary else vocabulary_size,
        "sequence_length": sequence_length,
        "dupe_factor": dupe_factor,
        "short_sequence_probability": short_sequence_probability,
        "instance_seed": instance_seed,
        "counterfactual_seed": counterfactual_seed,
    }
    _check_parameters(parameters, sources)
    run = RunDirectory(
        run_dir,
        stage="prepare",
        parameters=parameters,
        inputs={"vocabulary": vocabulary, "sources": sources},
    )
    if run.done:
        return
    check_sources(sources, source_format)
    text = _Text(sources, source_format, counterfactual_seed)
    pieces = read_vocabulary(vocabulary) if vocabulary else None
    if pieces is None:
        pieces = learn_vocabulary(count_words(text.sentences("words")), vocabulary_size)
    if len(pieces) > LARGEST_VOCABULARY:
        raise UserError(
            f"{vocabulary} has {len(pieces)} pieces, expected at most {LARGEST_VOCABULARY}, as tokens "
            "are kept in 16 bits; use a smaller vocabulary"
        )
    with run:
        content = Path(vocabulary).read_bytes() if vocabulary else "\n".join([*pieces, ""])
        write_atomically(run.path / VOCABULARY, content)
        tokenizer = Tokenizer(run.path / VOCABULARY)
        counts: dict[str, Any] = {"pieces": tokenizer.size}
        counts |= write_token_store(run.path, text.documents("tokens"), tokenizer)
        if counterfactual_seed is not None:
            counts |= {"pronouns": text.pronouns, "swapped_pronouns": text.swapped_pronouns}
        counts |= _write_instances(
            run.path, sequence_length, dupe_factor, short_sequence_probability, instance_seed
        )
        description = {
            **parameters,
            "fresh_masks": dupe_factor is None,
            "counts": counts,
            "sources": [
                {"file": Path(source).name, "sha256": sha256_of_file(source)} for source in sources
            ],
            "sha256": {name: sha256_of_file(run.path / name) for name in _OUTPUTS},
            # Both decide how rare characters are tokenised.
            "unicode": unicodedata.unidata_version,
        }
        write_atomically(run.path / DESCRIPTION, json.dumps(description, indent=1) + "\n")
        run.finish([*_OUTPUTS, DESCRIPTION])


class _Text:
    """The documents of the sources, counterfactual if asked for, read again each time."""

    def __init__(self, sources: list[str], source_format: str, counterfactual_seed: int | None):
        self._sources = sources
        self._source_format = source_format
        self._counterfactual_seed = counterfactual_seed
        self.pronouns = 0
        self.swapped_pronouns = 0

    def documents(self, purpose: str) -> Iterator[list[str]]:
        """The sentences of each document; counts pronouns from nothing."""
        self.pronouns = self.swapped_pronouns = 0
        documents = read_documents(self._sources, self._source_format)
        for number, sentences in enumerate(
            tqdm(documents, purpose, unit=" documents", disable=None)
        ):
            yield self._swapped(sentences, number)

    def sentences(self, purpose: str) -> Iterator[str]:
        for document in self.documents(purpose):
            yield from document

    def _swapped(self, sentences: list[str], document: int) -> list[str]:
        if self._counterfactual_seed is None:
            return sentences
        # Sentences hold no line feed, so it can stand between them while the document is one text.
        text, swapped, total = swap_pronouns(
            "\n".join(sentences), counterfactual_seed=self._counterfactual_seed, document=document
        )
        self.swapped_pronouns += swapped
        self.pronouns += total
        return text.split("\n")


def _write_instances(
    directory: Path,
    sequence_length: int,
    dupe_factor: int | None,
    short_sequence_probability: float,
    instance_seed: int,
) -> dict[str, int]:
    store = TokenStore(directory)
    passes = 1 if dupe_factor is None else dupe_factor
    instances = make_instances(
        store,
        sequence_length=sequence_length,
        dupe_factor=passes,
        short_sequence_probability=short_sequence_probability,
        instance_seed=instance_seed,
    )
    counts = {"instances": 0, "random_next": 0}
    total = passes * store.num_documents
    with (
        replaced(directory / INSTANCES) as path,
        ArrayWriter(path, INSTANCE_DTYPE) as writer,
    ):
        for rows in tqdm(instances, "instances", total, unit=" documents", disable=None):
            writer.append(rows)
            counts["instances"] += rows.size
            counts["random_next"] += int(rows["is_random_next"].sum())
    return counts


def _check_parameters(parameters: dict[str, Any], sources: list[str]) -> None:
    """Refuses values that have no meaning, naming the first."""
    source_format = parameters["source_format"]
    size, length = parameters["vocabulary_size"], parameters["sequence_length"]
    passes, probability = parameters["dupe_factor"], parameters["short_sequence_probability"]
    for name, value, valid, expected in (
        ("sources", sources, len(sources) > 0, "the names of text files"),
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
    from runs.command import run_command

    run_command(prepare)
