"""The instance table: which two spans of the token file make each pre-training example.

An instance is a pair of contiguous spans A and B and the answer to "is B random?". The original
(google-research/bert, `create_pretraining_data.py`) writes every instance out with its masks;
here it is 21 bytes, and masks are drawn when a batch is made.

Its distribution is the original's: gathering to a target length that is short with probability 0.1,
a uniform cut between A and B, B random with probability one half (always, if one sentence was
gathered), unused sentences gathered again, and truncation of the longer span at a random end. Every
document of every pass has a generator of its own, addressed by (instance_seed, pass, document), so parts
of the table that many workers make, put together in order, are the table that one process would make.

Reference: Devlin et al., NAACL 2019, appendix A.2.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from multiberts.bert.randomness import generator
from multiberts.pretrain.corpus.shards import finished_whole
from multiberts.pretrain.corpus.token_store import ArrayWriter, TokenStore, open_array
from multiberts.runs.files import PathLike, replaced

INSTANCES = "instances.npy"

INSTANCE_DTYPE = np.dtype(
    [
        ("a_start", np.int64),
        ("a_length", np.int16),
        ("b_start", np.int64),
        ("b_length", np.int16),
        ("is_random_next", np.bool_),
    ]
)

NUM_SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]

# The original stops looking for another document after this number of draws.
_TRIES_FOR_ANOTHER_DOCUMENT = 10

# Tokens per task: about ten seconds of one core.
TOKENS_PER_TASK = 16 << 20

_ROWS_AT_ONCE = 1 << 20


class InstanceTable:
    """An instance table, memory-mapped for reading.

    Attributes:
      rows: structured array [instances] of `INSTANCE_DTYPE`; starts are offsets in the token file.
    """

    def __init__(self, directory: PathLike):
        """Opens a table."""
        self.rows = open_array(Path(directory) / INSTANCES, INSTANCE_DTYPE)

    def __len__(self) -> int:
        return self.rows.size


class PairingTask(NamedTuple):
    """Some documents in one pass over the corpus.

    Attributes:
      number: index of the task, from 0.
      first, end: the documents `range(first, end)`.
    """

    number: int
    turn: int
    first: int
    end: int


def cut_into_pairing_tasks(store: TokenStore, passes: int) -> list[PairingTask]:
    """Cuts all passes over a corpus into tasks of similar length, in the order of the table."""
    # Each document has its own address for draws, so the table does not depend on the cuts.
    number = max(1, round(store.num_tokens / TOKENS_PER_TASK))
    # First document of each task, for equal shares of the tokens.
    boundaries = np.arange(1, number) * (store.num_tokens // number)
    inner = np.unique(store.document_of(boundaries)).tolist() if number > 1 else []
    ranges = itertools.pairwise(np.unique([0, *inner, store.num_documents]).tolist())
    tasks = itertools.product(range(passes), ranges)
    return [PairingTask(index, turn, *part) for index, (turn, part) in enumerate(tasks)]


def pair_spans(
    task: PairingTask,
    corpus: Path,
    directory: Path,
    sequence_length: int,
    short_sequence_probability: float,
    instance_seed: int,
) -> None:
    """Writes the instances of a task into a file, unless it exists."""
    path = _instances_path(directory, task.number)
    if path.exists():
        return
    rows = make_instances(
        TokenStore(corpus),
        sequence_length=sequence_length,
        passes=range(task.turn, task.turn + 1),
        short_sequence_probability=short_sequence_probability,
        instance_seed=instance_seed,
        among=range(task.first, task.end),
    )
    # The first draw of a document decides whether its target is short.
    num_short = sum(
        next(_uniforms(generator("instances", instance_seed, task.turn, document)))
        < short_sequence_probability
        for document in range(task.first, task.end)
    )
    with finished_whole(_short_targets_path(directory, task.number)) as temporary:
        temporary.write_text(str(num_short))
    with finished_whole(path) as temporary, ArrayWriter(temporary, INSTANCE_DTYPE) as writer:
        for some in rows:
            writer.append(some)


def join_instances(corpus: Path, directory: Path, tasks: Sequence[PairingTask]) -> dict[str, int]:
    """Joins what `pair_spans` made in a directory to the table of a corpus; returns counts."""
    counts = {"instances": 0, "random_next": 0, "short_targets": 0}
    with replaced(corpus / INSTANCES) as path, ArrayWriter(path, INSTANCE_DTYPE) as writer:
        for task in tasks:
            rows = open_array(_instances_path(directory, task.number), INSTANCE_DTYPE)
            counts["short_targets"] += int(_short_targets_path(directory, task.number).read_text())
            for first in range(0, rows.size, _ROWS_AT_ONCE):
                some = rows[first : first + _ROWS_AT_ONCE]
                writer.append(some)
                counts["instances"] += some.size
                counts["random_next"] += int(some["is_random_next"].sum())
    return counts


def _instances_path(directory: Path, number: int) -> Path:
    return directory / f"instances-{number:05d}.npy"


def _short_targets_path(directory: Path, number: int) -> Path:
    return directory / f"short-targets-{number:05d}.txt"


def make_instances(
    store: TokenStore,
    *,
    sequence_length: int,
    passes: range,
    short_sequence_probability: float,
    instance_seed: int,
    among: range | None = None,
) -> Iterator[np.ndarray]:
    """Makes the instances of a corpus, pass by pass and document by document.

    Args:
      store: the corpus, of at least two documents.
      sequence_length: longest sequence, [CLS] and both [SEP] included; at least 5.
      passes: numbers of the passes over the corpus to make; `dupe_factor` of them make a table.
      short_sequence_probability: share of (document, pass) pairs with a short target length.
      among: documents to make instances of, by default all; random segments come from all documents.

    Yields:
      The instances of one document in one pass: structured array [instances].
    """
    # Plain views of the mapped files: indexing them is faster than indexing a memmap.
    bounds = np.asarray(store.sentence_offsets)
    documents = np.asarray(store.document_offsets)
    for number in passes:
        for document in range(store.num_documents) if among is None else among:
            rows = _instances_of_document(
                bounds,
                documents,
                document,
                sequence_length - NUM_SPECIAL_TOKENS,
                short_sequence_probability,
                generator("instances", instance_seed, number, document),
            )
            yield np.array(rows, INSTANCE_DTYPE)


def _instances_of_document(
    bounds: np.ndarray,
    documents: np.ndarray,
    document: int,
    max_tokens: int,
    short_sequence_probability: float,
    draws: np.random.Generator,
) -> list[tuple[int, int, int, int, bool]]:
    """Makes the instances of one pass over one document.

    Args:
      bounds: int64 [sentences + 1], where each sentence of the corpus begins in the token file.
      documents: int64 [documents + 1], the first sentence of each document.
      max_tokens: longest A and B together.
      short_sequence_probability: see `make_instances`.
      draws: the generator of this document in this pass.
    """
    uniform = _uniforms(draws)

    target = max_tokens
    if next(uniform) < short_sequence_probability:
        target = _integer(uniform, 2, max_tokens)

    rows = []
    sentence, document_end = int(documents[document]), int(documents[document + 1])
    while sentence < document_end:
        a_start = int(bounds[sentence])
        # Sentences are gathered until the target is reached or the document ends.
        end = bisect_left(bounds, a_start + target, sentence + 1, document_end)
        # google-research/bert, `create_instances_from_document`: A ends at random, and at least one sentence
        # is left for B where there is one.
        a_end = sentence + _integer(uniform, 1, max(1, end - sentence - 1))
        a_length = int(bounds[a_end]) - a_start
        # Without a second sentence B can only be random; the draw is then not made, as in the original.
        is_random_next = end - sentence == 1 or next(uniform) < 0.5
        if is_random_next:
            first, last = _random_span(bounds, documents, document, target - a_length, uniform)
            sentence = a_end  # the sentences gathered for B are used again
        else:
            first, last = a_end, end
            sentence = end
        b_start = int(bounds[first])
        b_length = int(bounds[last]) - b_start
        a_span, b_span = _truncate((a_start, a_length), (b_start, b_length), max_tokens, draws)
        rows.append((*a_span, *b_span, is_random_next))
    return rows


def _random_span(
    bounds: np.ndarray, documents: np.ndarray, document: int, target: int, uniform: Iterator[float]
) -> tuple[int, int]:
    """Sentences [first, last) from a uniform start in another document, filled to the target."""
    for _ in range(_TRIES_FOR_ANOTHER_DOCUMENT):
        random_document = _integer(uniform, 0, documents.size - 2)
        if random_document != document:
            break
    begin, end = int(documents[random_document]), int(documents[random_document + 1])
    first = _integer(uniform, begin, end - 1)
    # Take at least one sentence, even if A is long.
    return first, bisect_left(bounds, bounds[first] + target, first + 1, end)


def _truncate(
    a_span: tuple[int, int], b_span: tuple[int, int], max_tokens: int, draws: np.random.Generator
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Drops tokens, one at a time from the longer span, at its front or back with even odds.

    Spans are (start, length). The second of two equal spans loses first, as in the original. How
    many go is certain; how many of them at the front is binomial.
    """
    (a_start, a_length), (b_start, b_length) = a_span, b_span
    excess = a_length + b_length - max_tokens
    if excess <= 0:
        return a_span, b_span
    to_level = min(excess, abs(a_length - b_length))
    in_turn = excess - to_level
    from_a = in_turn // 2 + (to_level if a_length > b_length else 0)
    from_b = excess - from_a
    # One binomial draw replaces the original's coin for each token.
    a_front = int(draws.binomial(from_a, 0.5))
    b_front = int(draws.binomial(from_b, 0.5))
    return (a_start + a_front, a_length - from_a), (b_start + b_front, b_length - from_b)


def _integer(uniform: Iterator[float], low: int, high: int) -> int:
    return low + int(next(uniform) * (high - low + 1))


def _uniforms(draws: np.random.Generator) -> Iterator[float]:
    """Yields uniform numbers on [0, 1), drawn in blocks: one call to NumPy costs more than the number."""
    while True:
        yield from draws.random(256).tolist()
