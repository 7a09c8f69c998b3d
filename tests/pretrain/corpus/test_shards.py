"""Shards tile the sources, and word counts add up within bounded memory."""

import itertools
from collections import Counter

import numpy as np
import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.pretrain.corpus.documents import Piece
from multiberts.pretrain.corpus.shards import (
    Shard,
    Text,
    count_words_of_shard,
    cut_into_shards,
    most_frequent_words,
    tokenise_shard,
    tokens_path,
    words_path,
)
from multiberts.runs.errors import UserError

TEXT = Text("text", None, None)


def test_pieces_tile_the_sources_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("multiberts.pretrain.corpus.shards.SHARD_BYTES", 300)
    sizes = {"large.txt": 1000, "small.txt": 30, "tiny.txt": 20, "packed.txt.gz": 500}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    sources = [str(tmp_path / name) for name in sizes]
    shards = cut_into_shards([Piece(source, "sentences") for source in sources], TEXT)
    pieces = [piece for shard in shards for piece in shard]
    assert list(dict.fromkeys(piece.source for piece in pieces)) == sources
    for source in sources:
        found = [piece for piece in pieces if piece.source == source]
        assert found[0].begin == 0
        assert found[-1].end is None
        assert all(one.end == other.begin for one, other in itertools.pairwise(found))
    # Four parts of the large one, the two small ones together, the packed one whole.
    assert [len(shard) for shard in shards] == [1, 1, 1, 3, 1]
    assert shards[-1] == (Piece(sources[-1], "sentences"),)


@pytest.mark.parametrize("name", ["absent.txt", "."])
def test_what_is_no_file_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="expected a file; check prepare.sources"):
        cut_into_shards([Piece(str(tmp_path / name), "raw")], TEXT)


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


def test_what_is_there_is_not_made_again(tmp_path):
    """A shard of a file that is not there can only be kept."""
    shard = Shard(2, (Piece(str(tmp_path / "absent.txt"), "raw"),), 0, True)
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL_TOKENS))
    given = {"text": TEXT, "directory": tmp_path}
    for path, make, more in (
        (words_path(tmp_path, 2), count_words_of_shard, {"lower_case": True}),
        (tokens_path(tmp_path, 2), tokenise_shard, {"vocabulary_path": tmp_path / "vocab.txt"}),
    ):
        with pytest.raises(UserError, match="absent.txt does not exist"):
            make(shard, **given, **more)
        assert not list(tmp_path.glob(f"{path.name}*"))
        path.write_text("kept")
        make(shard, **given, **more)
        assert path.read_text() == "kept"
