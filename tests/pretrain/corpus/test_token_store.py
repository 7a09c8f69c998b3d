"""The token store holds what the tokeniser gives, and a damaged one is refused."""

import itertools

import numpy as np
import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS, Tokenizer
from multiberts.pretrain.corpus import token_store
from multiberts.pretrain.corpus.token_store import ArrayWriter, TokenStore, write_token_store
from multiberts.runs.errors import UserError

LETTERS = "abcdefghij"


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *LETTERS]) + "\n")
    return Tokenizer(path)


DOCUMENTS = [["a b c", "\u200b", "d"], ["\u200b"], ["e f"], ["g", "h", "i j a"]]


def test_store_gives_the_text_back(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(token_store, "_SENTENCES_AT_ONCE", 2)
    counts = write_token_store(tmp_path, DOCUMENTS, tokenizer)
    assert counts == {"documents": 3, "sentences": 6, "tokens": 11}
    store = TokenStore(tmp_path)
    assert (store.num_documents, store.num_sentences, store.num_tokens) == (3, 6, 11)
    assert store.tokens.dtype == np.uint16
    found = []
    for document in range(store.num_documents):
        bounds = store.sentence_bounds(document)
        found.append([store.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)])
    assert found == [
        [ids for ids in tokenizer.encode_batch(document) if ids]
        for document in DOCUMENTS
        if any(tokenizer.encode_batch(document))
    ]
    assert store.document_of(np.arange(11)).tolist() == [0] * 4 + [1] * 2 + [2] * 5


def test_array_writer_writes_what_numpy_reads(tmp_path):
    path = tmp_path / "array.npy"
    with ArrayWriter(path, np.dtype(np.int64)) as writer:
        for start in range(0, 100_000, 1000):
            writer.append(np.arange(start, start + 1000))
    assert np.array_equal(np.load(path), np.arange(100_000))
    with ArrayWriter(path, np.dtype(np.int64)):
        pass
    assert np.load(path).shape == (0,)


@pytest.mark.parametrize("name", ["tokens.npy", "sentence_offsets.npy", "document_offsets.npy"])
def test_damaged_files_are_refused(tmp_path, tokenizer, name):
    write_token_store(tmp_path, DOCUMENTS, tokenizer)
    path = tmp_path / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    with pytest.raises(UserError, match=rf"{name} is not a whole NumPy file"):
        TokenStore(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match=rf"{name} is not a whole NumPy file"):
        TokenStore(tmp_path)
    np.save(path, np.zeros(3))
    with pytest.raises(UserError, match=rf"{name} holds float64"):
        TokenStore(tmp_path)
    np.save(path, np.arange(3).astype(np.uint16 if name == "tokens.npy" else np.int64))
    with pytest.raises(UserError, match="of different runs"):
        TokenStore(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=rf"{name} does not exist"):
        TokenStore(tmp_path)


def test_a_failed_write_leaves_no_file(tmp_path, tokenizer):
    def documents():
        yield ["a b"]
        raise RuntimeError("stop")

    directory = tmp_path / "store"
    directory.mkdir()
    with pytest.raises(RuntimeError):
        write_token_store(directory, documents(), tokenizer)
    assert list(directory.iterdir()) == []
