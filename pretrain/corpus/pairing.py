"""The instance table of a large corpus, made in parts by many workers.

Every document of every pass draws from a generator of its own (`pretrain/corpus/instances.py`), so parts put
together in order are the table that one process would make.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from multiberts.pretrain.corpus.instances import INSTANCE_DTYPE, make_instances
from multiberts.pretrain.corpus.shards import finished_whole, shown
from multiberts.pretrain.corpus.token_store import ArrayWriter, TokenStore

# Passes over so many tokens make one task, about ten seconds of one core.
_TOKENS_A_TASK = 16 << 20


class PairingTask(NamedTuple):
    """Some documents in some passes over the corpus.

    Attributes:
      number: its place among the tasks, from 0.
      first_pass, end_pass: the passes `range(first_pass, end_pass)`.
      first, end: the documents `range(first, end)`.
    """

    number: int
    first_pass: int
    end_pass: int
    first: int
    end: int


def cut_into_pairing_tasks(store: TokenStore, passes: int) -> list[PairingTask]:
    """Cuts all passes over a corpus into tasks of similar length, in the order of the table."""
    number = max(1, round(store.num_tokens / _TOKENS_A_TASK))
    # The document in which each share of the tokens begins.
    places = np.arange(1, number) * (store.num_tokens // number)
    inner = np.unique(store.document_of(places)) if number > 1 else np.zeros(0, np.int64)
    ends = np.unique([0, *inner.tolist(), store.num_documents]).tolist()
    ranges = [
        (turn, turn + 1, first, end)
        for turn in range(passes)
        for first, end in itertools.pairwise(ends)
    ]
    return [PairingTask(place, *row) for place, row in enumerate(ranges)]


def is_quickly_paired(store: TokenStore, passes: int) -> bool:
    """Returns whether making all instances takes no longer than starting workers would."""
    return store.num_tokens * passes < 2 * _TOKENS_A_TASK


def pair_spans(
    task: PairingTask,
    corpus: Path,
    directory: Path,
    sequence_length: int,
    short_sequence_probability: float,
    instance_seed: int,
    alone: bool,
) -> None:
    """Makes the instances of a task into a file."""
    path = instances_path(directory, task.number)
    if path.exists():
        return
    rows = make_instances(
        TokenStore(corpus),
        sequence_length=sequence_length,
        passes=range(task.first_pass, task.end_pass),
        short_sequence_probability=short_sequence_probability,
        instance_seed=instance_seed,
        among=range(task.first, task.end),
    )
    with finished_whole(path) as temporary, ArrayWriter(temporary, INSTANCE_DTYPE) as writer:
        for some in shown(rows, "instances", alone):
            writer.append(some)


def instances_path(directory: Path, number: int) -> Path:
    """Returns where the instances of a task lie."""
    return directory / f"instances-{number:05d}.npy"
