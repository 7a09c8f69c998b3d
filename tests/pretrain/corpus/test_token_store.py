"""The token store holds what the tokeniser gives, and a damaged one is refused."""

import itertools

import numpy as np
import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.corpus import token_store
from multiberts.pretrain.corpus.token_store import (
    ArrayWriter,
    TokenStore,
    join_token_stores,
    open_array,
    unknown_share,
    write_token_store,
)
from multiberts.runs.errors import UserError

LETTERS = "abcdefghij"


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *LETTERS]) + "\n")
    return Vocabulary.open(path)


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
    kind = np.uint16 if name == "tokens.npy" else np.int64
    for damage, message in (
        (lambda: path.write_bytes(whole[:-2]), f"{name} is not a whole NumPy file"),
        (lambda: path.write_bytes(whole + b"12345678"), r"NumPy file \(8 bytes too long\)"),
        (lambda: path.write_bytes(b""), f"{name} is not a whole NumPy file"),
        (lambda: np.save(path, np.zeros(3)), f"{name} holds float64"),
        (lambda: np.save(path, np.arange(3).astype(kind)), "of different runs"),
        (path.unlink, f"{name} does not exist"),
    ):
        damage()
        with pytest.raises(UserError, match=message):
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


def test_any_byte_of_a_header_may_be_damaged(tmp_path):
    """Either the same numbers come back, or one line says which file is damaged."""
    path = tmp_path / "array.npy"
    with ArrayWriter(path, np.dtype(np.int64)) as writer:
        writer.append(np.arange(1000))
    whole = path.read_bytes()
    messages = []
    for place in range(len(whole) - 8000):
        for value in (0, 10, 32, 34, 40, 48, 57, 66, 95, 255, whole[place] ^ 1, whole[place] ^ 128):
            damaged = bytearray(whole)
            damaged[place] = value
            path.write_bytes(damaged)
            try:
                assert open_array(path, np.dtype(np.int64)).tolist() == list(range(1000))
            except UserError as error:
                messages.append(str(error))
    assert len(messages) > 1000
    assert all(text.startswith(f"{path} ") and "\n" not in text for text in messages)


def test_parts_of_a_store_that_changed_are_not_joined(tmp_path, tokenizer):
    part = tmp_path / "part"
    part.mkdir()
    write_token_store(part, DOCUMENTS, tokenizer)
    out = tmp_path / "out"
    assert join_token_stores(out, [part], tokenizer.size)["tokens"] == 11
    for name, place, value in (
        ("tokens.npy", 3, tokenizer.size),
        ("sentence_offsets.npy", 1, 0),
        ("document_offsets.npy", 1, 3),
    ):
        whole = np.load(part / name)
        damaged = whole.copy()
        damaged[place] = value
        np.save(part / name, damaged)
        with pytest.raises(UserError, match=r"part holds an empty sentence or an id outside"):
            join_token_stores(tmp_path / "bad", [part], tokenizer.size)
        assert not list((tmp_path / "bad").iterdir())
        np.save(part / name, whole)


def test_share_of_unknown_tokens(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(token_store, "_TOKENS_AT_ONCE", 3)
    write_token_store(tmp_path, [["a x c", "y"], ["e f a b"]], tokenizer)
    assert unknown_share(TokenStore(tmp_path), tokenizer.unk_id) == 2 / 8
