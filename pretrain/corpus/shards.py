"""A corpus cut into shards, and what is done to each: looked over, words counted, tokenised.

A shard is a few pieces of sources, in order. What is made of it depends on the shard alone (on the number
of its first document too, which addresses counterfactual draws) and lies in files of its own, so any
process of any machine can make it, twice if it must, and a killed run makes only what is missing. Put
together in order, the shards give the same bytes however the corpus was cut.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.corpus.counterfactual import Swapper, swap_ids
from multiberts.pretrain.corpus.documents import (
    DIVISIBLE_FORMATS,
    Piece,
    PieceCounts,
    count_documents,
    cut_into_sentences,
    read_lines_of_documents,
)
from multiberts.pretrain.corpus.token_store import (
    TokenStore,
    write_encoded_documents,
    write_token_store,
)
from multiberts.pretrain.corpus.vocabulary import count_words
from multiberts.runs.console import ProgressBar
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    UNFINISHED_SUFFIX,
    is_gzip,
    open_unpacked,
    read_json_fields,
    remove,
    replaced,
    write_atomically,
)
from multiberts.runs.identity import Input, check_unchanged

# A shard takes about ten seconds of one core, and a worker's death costs that much.
SHARD_BYTES = 32 << 20

# Roughly how much text a byte of a packed file holds.
_UNPACKED = 3

_COUNTS = "counts.json"
_PLAN = "plan.json"


@dataclass(frozen=True)
class Text:
    """Settings for reading the documents of sources; the same for all shards of a corpus.

    Attributes:
      text_field: field of JSON lines, feature of a dataset.
      swapper: swaps for counterfactual data; None: no swaps.
      files: the sources, opened; those who read one see that it is still what it was.
    """

    text_field: str
    datasets_dir: str | None
    swapper: Swapper | None
    files: tuple[Input, ...] = ()

    def check(self, pieces: Iterable[Piece]) -> None:
        """Refuses sources that were written since they were opened."""
        sources = {Path(piece.source) for piece in pieces}
        check_unchanged(*(file for file in self.files if file.where in sources))

    def lines_of_documents(self, piece: Piece) -> Iterator[list[str]]:
        """Yields the documents of a piece as lines, uncut, blank documents included."""
        if piece.source_format == "tfds":
            from multiberts.pretrain.corpus.dataset_source import read_dataset

            return read_dataset(piece, self.text_field, self.datasets_dir)
        return read_lines_of_documents(piece, self.text_field)

    def documents(self, shard: Shard, counts: Counter[str]) -> Iterator[list[str]]:
        """Yields the sentences of each document that is not blank, counterfactual if asked for.

        Args:
          counts: numbers of exchanged words, to which this call adds.
        """
        number = shard.first_document
        for piece in shard.pieces:
            for lines in self.lines_of_documents(piece):
                sentences = list(cut_into_sentences(lines, piece.source_format))
                if not sentences:
                    continue
                if self.swapper is None:
                    yield sentences
                else:
                    # Sentences hold no line feed, so it can stand between them meanwhile.
                    swapped = self.swapper.swap("\n".join(sentences), document=number)
                    counts.update(swapped.counts)
                    yield from self.swapper.variants(sentences, swapped.text.split("\n"), counts)
                number += 1


class Shard(NamedTuple):
    """A shard of a corpus.

    Attributes:
      number: index of the shard in the corpus, from 0.
      first_document: number in the corpus of its first document that is not blank.
      alone: whether it is the only shard and shows its own progress.
    """

    number: int
    pieces: tuple[Piece, ...]
    first_document: int
    alone: bool


def cut_into_shards(sources: Sequence[Piece], text: Text) -> list[tuple[Piece, ...]]:
    """Cuts sources into shards: large plain files into pieces, small files put together.

    Args:
      sources: whole files, datasets or stores.

    Returns:
      The pieces of each shard; in order they tile the sources.
    """
    shards: list[list[Piece]] = [[]]
    shard_bytes = 0
    for source in sources:
        for piece, size in _pieces(source, text):
            if shards[-1] and shard_bytes + size > SHARD_BYTES:
                shards.append([])
                shard_bytes = 0
            shards[-1].append(piece)
            shard_bytes += size
    return [tuple(shard) for shard in shards]


def _pieces(whole: Piece, text: Text) -> list[tuple[Piece, int]]:
    """Cuts a source into pieces, with the approximate number of bytes of text in each."""
    source, kind = whole.source, whole.source_format
    if kind == "tfds":
        from multiberts.pretrain.corpus.dataset_source import dataset_size

        units, size = dataset_size(source, text.datasets_dir)
    elif kind == "store":
        store = TokenStore(source)
        # About four characters to a token.
        units, size = store.num_documents, 4 * store.num_tokens
    else:
        path = Path(source)
        if not path.is_file():
            fault = "is a directory" if path.is_dir() else "does not exist"
            raise UserError(f"{path} {fault}, expected a file; check prepare.sources")
        units = size = path.stat().st_size
        if is_gzip(path):
            return [(whole, _UNPACKED * size)]
        if kind not in DIVISIBLE_FORMATS:
            return [(whole, size)]
    number = max(1, min(units, -(-size // SHARD_BYTES)))
    ends = [units * index // number for index in range(number + 1)]
    ranges = list(itertools.pairwise(ends))
    last = len(ranges) - 1
    return [
        (Piece(source, kind, begin, None if index == last else end), size // number)
        for index, (begin, end) in enumerate(ranges)
    ]


def is_packed(pieces: tuple[Piece, ...]) -> bool:
    """Returns whether a shard is a gzip file of several shards, which can be cut once it is unpacked."""
    (piece, *others) = pieces
    return (
        not others
        and piece.source_format in DIVISIBLE_FORMATS
        and is_gzip(piece.source)
        and _UNPACKED * Path(piece.source).stat().st_size > SHARD_BYTES
    )


def unpack_shard(
    numbered: tuple[int, tuple[Piece, ...]], text: Text, directory: Path
) -> tuple[Piece, ...]:
    """Unpacks the gzip file that a shard is, and returns the plain file."""
    number, (piece,) = numbered
    path = directory / f"text-{number:05d}.txt"
    if not path.exists():
        with finished_whole(path) as temporary, open(temporary, "wb") as plain:
            with open_unpacked(piece.source) as packed:
                shutil.copyfileobj(packed, plain, 1 << 20)
            text.check([piece])
    return (Piece(str(path), piece.source_format),)


def look_over_shard(pieces: tuple[Piece, ...], text: Text) -> list[PieceCounts]:
    counts = []
    for piece in pieces:
        if piece.source_format == "store":
            store = TokenStore(piece.source)
            end = store.num_documents if piece.end is None else piece.end
            sizes = np.diff(store.document_offsets[piece.begin : end + 1])
            counts.append(PieceCounts(sizes.size, sizes.size, int((sizes > 1).sum())))
        else:
            lines = text.lines_of_documents(piece)
            counts.append(count_documents(lines, piece.source_format))
    text.check(pieces)
    return counts


def number_shards(
    shards: Sequence[tuple[Piece, ...]], counts: Sequence[Sequence[PieceCounts]]
) -> list[Shard]:
    """Gives each shard the number of its first document, from what was counted in all."""
    documents = [sum(count.documents for count in piece_counts) for piece_counts in counts]
    first = np.cumsum([0, *documents])
    alone = len(shards) == 1
    return [
        Shard(number, pieces, int(first[number]), alone) for number, pieces in enumerate(shards)
    ]


def write_plan(directory: Path, shards: Sequence[Shard], sources: Sequence[Piece]) -> None:
    """Writes the shards, so that a run that was killed goes on with the same ones.

    A piece has its source's number, or the name of an unpacked file: sources and the run may be moved.
    """
    numbers = {piece.source: number for number, piece in enumerate(sources)}
    planned = [
        (number, [[numbers.get(each[0], Path(each[0]).name), *each[1:]] for each in pieces], *rest)
        for number, pieces, *rest in shards
    ]
    write_atomically(directory / _PLAN, json.dumps({"shards": planned}))


def read_plan(directory: Path, sources: Sequence[Piece]) -> list[Shard] | None:
    """Reads the plan of the run that was killed; its parameters and its text were the same as now."""
    path = directory / _PLAN
    if not path.exists():
        return None
    cure = f"remove {directory} and run the same command again"
    shards = read_json_fields(path, {"shards": list[list]}, cure)["shards"]

    known: dict[Any, str] = {k: s.source for n, s in enumerate(sources) for k in (n, s.source)}

    def found(source: Any, *rest: Any) -> Piece:  # earlier versions wrote paths of sources
        return Piece(known.get(source, str(directory / Path(str(source)).name)), *rest)

    return [
        Shard(number, tuple(found(*piece) for piece in pieces), first_document, alone)
        for number, pieces, first_document, alone in shards
    ]


def count_words_of_shard(shard: Shard, text: Text, directory: Path, *, lower_case: bool) -> None:
    """Counts the words of a shard into a file, sorted by word."""
    path = words_path(directory, shard.number)
    if path.exists():
        return
    documents = shown(text.documents(shard, Counter()), "words", shard.alone)
    words = count_words(itertools.chain.from_iterable(documents), lower_case=lower_case)
    with finished_whole(path) as temporary:
        with open(temporary, "w", encoding="utf-8", newline="\n") as handle:
            handle.writelines(f"{word}\t{words[word]}\n" for word in sorted(words))
        text.check(shard.pieces)


def words_path(directory: Path, number: int) -> Path:
    return directory / f"words-{number:05d}.tsv"


def most_frequent_words(paths: Sequence[Path], most: int) -> dict[str, int]:
    """Adds up word counts of shards, holding the `most` frequent words in memory and no others.

    Args:
      paths: files of `count_words_of_shard`.
      most: number of words; ties are broken alphabetically.
    """
    rows = heapq.merge(*map(_counted_words, paths))
    totals = (
        (word, sum(count for _, count in group))
        for word, group in itertools.groupby(rows, key=lambda row: row[0])
    )
    return dict(sorted(heapq.nlargest(most, totals, key=lambda total: total[1])))


def _counted_words(path: Path) -> Iterator[tuple[str, int]]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            word, count = line.rstrip("\n").split("\t")
            yield word, int(count)


def tokenise_shard(shard: Shard, text: Text, vocabulary_path: Path, directory: Path) -> None:
    """Writes the token store of a shard, which may be empty, and its counts."""
    path = tokens_path(directory, shard.number)
    if path.exists():
        return
    vocabulary = Vocabulary.open(vocabulary_path)
    swapped: Counter[str] = Counter()
    with finished_whole(path) as temporary:
        temporary.mkdir()
        if shard.pieces[0].source_format == "store":  # then all of them are
            stored = _stored_documents(shard, text, vocabulary, swapped)
            write_encoded_documents(temporary, shown(stored, "tokens", shard.alone))
        else:
            documents = text.documents(shard, swapped)
            write_token_store(temporary, shown(documents, "tokens", shard.alone), vocabulary)
        (temporary / _COUNTS).write_text(json.dumps(swapped))
        text.check(shard.pieces)


def _stored_documents(
    shard: Shard, text: Text, vocabulary: Vocabulary, counts: Counter[str]
) -> Iterator[list[list[int]]]:
    """Yields the documents of a shard of stores, as ids, counterfactual if asked for."""
    number = shard.first_document
    for piece in shard.pieces:
        store = TokenStore(piece.source)
        end = store.num_documents if piece.end is None else piece.end
        for document in range(piece.begin, end):
            bounds = store.sentence_bounds(document)
            sentences: list[list[int]] = [
                store.tokens[first:last].tolist() for first, last in itertools.pairwise(bounds)
            ]
            if text.swapper is None:
                yield sentences
            else:
                swapped, swap_counts = swap_ids(
                    sentences, vocabulary=vocabulary, swapper=text.swapper, document=number
                )
                counts.update(swap_counts)
                yield from text.swapper.variants(sentences, swapped, counts)
            number += 1


def tokens_path(directory: Path, number: int) -> Path:
    return directory / f"tokens-{number:05d}"


def swapped_counts(paths: Iterable[Path]) -> Counter[str]:
    """Adds the numbers of exchanged words over shards.

    Args:
      paths: directories of `tokenise_shard`.
    """
    total: Counter[str] = Counter()
    for path in paths:
        total.update(read_json_fields(path / _COUNTS, cure=f"remove {path} and run it again"))
    return total


def shown(documents: Iterable[Any], purpose: str, alone: bool) -> Iterator[Any]:
    return iter(ProgressBar(documents, purpose, unit=" documents", disable=not alone))


@contextlib.contextmanager
def finished_whole(path: Path) -> Iterator[Path]:
    """Gives a path that no other process has, and renames it to `path` if the block succeeds.

    Unlike `runs.files.replaced` it lets two workers make the same thing at once, as Dask may: what
    they make is the same, and the first stays.
    """
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}{UNFINISHED_SUFFIX}")
    with replaced(unfinished) as temporary:
        yield temporary
    try:
        os.rename(unfinished, path)
    except OSError:
        remove(unfinished)
        if not path.exists():
            raise
