"""Text as flat token files: tokenised once, memory-mapped ever after.

Three NumPy files in one directory:

* `tokens.npy`: uint16 [tokens], all token ids in the order of the text.
* `sentence_offsets.npy`: int64 [sentences + 1]; sentence s is `tokens[offsets[s]:offsets[s + 1]]`.
* `document_offsets.npy`: int64 [documents + 1]; document d holds the sentences
  `range(offsets[d], offsets[d + 1])`.

Neither sentences nor documents are empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from bert.tokenization import Tokenizer
from runs.errors import UserError
from runs.files import replaced

TOKENS = "tokens.npy"
SENTENCE_OFFSETS = "sentence_offsets.npy"
DOCUMENT_OFFSETS = "document_offsets.npy"

LARGEST_VOCABULARY = 2**16

# Sentences handed to the tokeniser together; large enough to keep it busy, small to hold.
_SENTENCES_AT_ONCE = 8192


class TokenStore:
    """A token store, memory-mapped for reading.

    Attributes:
        tokens: uint16 [tokens].
        sentence_offsets: int64 [sentences + 1].
        document_offsets: int64 [documents + 1].
    """

    def __init__(self, directory: str | os.PathLike[str]):
        """Opens a store.

        Args:
            directory: where `prepare` wrote it.

        Raises:
            UserError: a file is missing, cut short, or does not belong to the others.
        """
        directory = Path(directory)
        self.tokens = open_array(directory / TOKENS, np.dtype(np.uint16))
        self.sentence_offsets = open_array(directory / SENTENCE_OFFSETS, np.dtype(np.int64))
        self.document_offsets = open_array(directory / DOCUMENT_OFFSETS, np.dtype(np.int64))
        _check_end(directory / SENTENCE_OFFSETS, self.sentence_offsets, self.tokens.size, TOKENS)
        _check_end(
            directory / DOCUMENT_OFFSETS,
            self.document_offsets,
            self.num_sentences,
            SENTENCE_OFFSETS,
        )

    @property
    def num_documents(self) -> int:
        return self.document_offsets.size - 1

    @property
    def num_sentences(self) -> int:
        return self.sentence_offsets.size - 1

    @property
    def num_tokens(self) -> int:
        return self.tokens.size

    def sentence_bounds(self, document: int) -> np.ndarray:
        """Returns where a document's sentences begin in the token file, and where the last ends.

        Args:
            document: in `range(num_documents)`.

        Returns:
            int64 [sentences of the document + 1].
        """
        first, end = self.document_offsets[document : document + 2]
        return np.asarray(self.sentence_offsets[first : end + 1])

    def document_of(self, token: np.ndarray) -> np.ndarray:
        """Returns the document that each place of the token file belongs to.

        Args:
            token: places in the token file, any shape.
        """
        sentence = np.searchsorted(self.sentence_offsets, token, side="right") - 1
        return np.searchsorted(self.document_offsets, sentence, side="right") - 1


def write_token_store(
    directory: str | os.PathLike[str], documents: Iterable[list[str]], tokenizer: Tokenizer
) -> dict[str, int]:
    """Tokenises documents into a store; holds no more than a few thousand sentences in memory.

    Sentences without tokens and documents without sentences are dropped, as in the original.

    Args:
        directory: where the three files shall be.
        documents: the sentences of each document.
        tokenizer: at most 65,536 pieces.

    Returns:
        How many `documents`, `sentences` and `tokens` were written.
    """
    directory = Path(directory)
    counts = {"documents": 0, "sentences": 0, "tokens": 0}
    with (
        replaced(directory / TOKENS) as tokens_path,
        replaced(directory / SENTENCE_OFFSETS) as sentences_path,
        replaced(directory / DOCUMENT_OFFSETS) as documents_path,
        ArrayWriter(tokens_path, np.dtype(np.uint16)) as tokens,
        ArrayWriter(sentences_path, np.dtype(np.int64)) as sentence_offsets,
        ArrayWriter(documents_path, np.dtype(np.int64)) as document_offsets,
    ):
        sentence_offsets.append(np.zeros(1, np.int64))
        document_offsets.append(np.zeros(1, np.int64))
        for sentences in _encode_documents(documents, tokenizer):
            lengths = np.array([len(ids) for ids in sentences], np.int64)
            tokens.append(np.array([number for ids in sentences for number in ids], np.uint16))
            sentence_offsets.append(counts["tokens"] + np.cumsum(lengths))
            counts["tokens"] += int(lengths.sum())
            counts["sentences"] += len(sentences)
            counts["documents"] += 1
            document_offsets.append(np.array([counts["sentences"]], np.int64))
    return counts


def _encode_documents(
    documents: Iterable[list[str]], tokenizer: Tokenizer
) -> Iterator[list[list[int]]]:
    """Yields the ids of each document's sentences, tokenising many documents together."""
    for group in _grouped(documents):
        ids = iter(tokenizer.encode_batch([text for document in group for text in document]))
        for document in group:
            sentences = [sentence for sentence in (next(ids) for _ in document) if sentence]
            if sentences:
                yield sentences


def _grouped(documents: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    group: list[list[str]] = []
    held = 0
    for document in documents:
        group.append(document)
        held += len(document)
        if held >= _SENTENCES_AT_ONCE:
            yield group
            group, held = [], 0
    yield group


class ArrayWriter:
    """Writes a one-dimensional `.npy` file part by part, its length known only at the end."""

    def __init__(self, path: str | os.PathLike[str], dtype: np.dtype):
        """Opens the file.

        Args:
            path: file to write; replaced if it is there.
            dtype: of the elements.
        """
        self._dtype = dtype
        self._size = 0
        self._handle = open(path, "wb")  # noqa: SIM115 -- closed in __exit__
        self._write_header()
        self._header_bytes = self._handle.tell()

    def _write_header(self) -> None:
        # NumPy leaves room in the header for the length to grow, so it can be written again.
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._size,),
        }
        np.lib.format.write_array_header_1_0(self._handle, header)

    def append(self, values: np.ndarray) -> None:
        """Writes further elements, [n] of the file's dtype."""
        self._handle.write(np.ascontiguousarray(values, self._dtype).tobytes())
        self._size += values.size

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._handle:
            if error is None:
                self._handle.seek(0)
                self._write_header()
                assert self._handle.tell() == self._header_bytes


def open_array(path: Path, dtype: np.dtype) -> np.ndarray:
    """Memory-maps a one-dimensional `.npy` file.

    Args:
        path: the file.
        dtype: what its elements must be.

    Raises:
        UserError: the file is missing, cut short, or holds something else.
    """
    cure = "run `python -m pretrain.prepare` again into an empty run_dir"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; {cure}") from error
    except (ValueError, EOFError, OSError) as error:
        raise UserError(f"{path} is not a whole NumPy file ({error}); {cure}") from error
    if array.dtype != dtype or array.ndim != 1:
        raise UserError(
            f"{path} holds {array.dtype} {list(array.shape)}, expected a line of {dtype}; {cure}"
        )
    return array


def _check_end(path: Path, offsets: np.ndarray, expected: int, counted: str) -> None:
    if offsets.size < 2 or offsets[0] != 0 or offsets[-1] != expected:
        found = int(offsets[-1]) if offsets.size else "nothing"
        raise UserError(
            f"{path} ends at {found}, expected {expected}, the length of {counted}; the files are "
            "of different runs: run `python -m pretrain.prepare` again into an empty run_dir"
        )
