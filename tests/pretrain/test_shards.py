"""Shards tile the sources, and word counts add up within bounded memory."""

import itertools
from collections import Counter

import numpy as np
import pytest

from pretrain.corpus import Piece, PieceCounts
from pretrain.shards import (
    Text,
    cut_into_pairing_tasks,
    cut_into_shards,
    most_frequent_words,
    number_shards,
)
from pretrain.token_store import DOCUMENT_OFFSETS, SENTENCE_OFFSETS, TOKENS, TokenStore
from runs.errors import UserError

TEXT = Text("sentences", "text", None, None)


def test_pieces_tile_the_sources_in_order(tmp_path):
    sizes = {"large.txt": 1000, "small.txt": 30, "tiny.txt": 20, "packed.txt.gz": 500}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    sources = [str(tmp_path / name) for name in sizes]
    shards = cut_into_shards(sources, TEXT, 300)
    pieces = [piece for shard in shards for piece in shard]
    assert list(dict.fromkeys(piece.source for piece in pieces)) == sources
    for source in sources:
        found = [piece for piece in pieces if piece.source == source]
        assert found[0].begin == 0
        assert found[-1].end is None
        assert all(one.end == other.begin for one, other in itertools.pairwise(found))
    # Four parts of the large one, the two small ones together, the packed one whole.
    assert [len(shard) for shard in shards] == [1, 1, 1, 3, 1]
    assert shards[-1] == (Piece(sources[-1]),)


@pytest.mark.parametrize("name", ["absent.txt", "."])
def test_what_is_no_file_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="expected a file; check prepare.sources"):
        cut_into_shards([str(tmp_path / name)], TEXT, 100)


def test_documents_are_numbered_through():
    shards = [(Piece("a"), Piece("b")), (Piece("c"),), (Piece("d"),)]
    counts = [
        [PieceCounts(2, 2, 1), PieceCounts(3, 1, 1)],
        [PieceCounts(0, 0, 0)],
        [PieceCounts(4, 4, 4)],
    ]
    assert [shard.first_document for shard in number_shards(shards, counts)] == [0, 5, 5]


def test_the_most_frequent_words_of_all_shards_are_kept(tmp_path):
    draws = np.random.default_rng(0)
    total: Counter[str] = Counter()
    paths = []
    for number in range(4):
        counts = Counter(f"w{word}" for word in draws.zipf(1.5, 3000) if word < 5000)
        path = tmp_path / f"{number}.tsv"
        path.write_text("".join(f"{word}\t{counts[word]}\n" for word in sorted(counts)))
        paths.append(path)
        total += counts
    assert most_frequent_words(paths, 10**6) == total
    by_rank = sorted(total, key=lambda word: (-total[word], word))
    for most in (1, 7, 200):
        kept = most_frequent_words(paths, most)
        assert set(kept) == set(by_rank[:most])
        assert all(kept[word] == total[word] for word in kept)


def test_pairing_tasks_cover_every_document_in_every_pass(tmp_path, monkeypatch):
    lengths = np.random.default_rng(0).integers(1, 200, 300)
    np.save(tmp_path / TOKENS, np.zeros(lengths.sum(), np.uint16))
    np.save(tmp_path / SENTENCE_OFFSETS, np.cumsum([0, *lengths]))
    np.save(tmp_path / DOCUMENT_OFFSETS, np.arange(0, 301, 3))
    monkeypatch.setattr("pretrain.shards._TOKENS_A_TASK", 1000)
    tasks = cut_into_pairing_tasks(TokenStore(tmp_path), 3)
    assert len(tasks) > 60
    assert [task.number for task in tasks] == list(range(len(tasks)))
    covered = [
        (turn, document)
        for task in tasks
        for turn in range(task.first_pass, task.end_pass)
        for document in range(task.first, task.end)
    ]
    assert covered == [(turn, document) for turn in range(3) for document in range(100)]
