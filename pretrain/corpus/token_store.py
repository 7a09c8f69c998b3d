"""Text as flat token files: tokenised once, then memory-mapped.

Three NumPy files in one directory:

* `tokens.npy`: uint16 [tokens], all token ids in the order of the text.
* `sentence_offsets.npy`: int64 [sentences + 1]; sentence s is `tokens[offsets[s]:offsets[s + 1]]`.
* `document_offsets.npy`: int64 [documents + 1]; document d holds the sentences
  `range(offsets[d], offsets[d + 1])`.

Neither sentences nor documents are empty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, replaced

TOKENS = "tokens.npy"
SENTENCE_OFFSETS = "sentence_offsets.npy"
DOCUMENT_OFFSETS = "document_offsets.npy"

LARGEST_VOCABULARY = 2**16

# Tokens looked at together where a whole store is.
_TOKENS_AT_ONCE = 1 << 24

# Sentences handed to the tokeniser together; large enough to keep it busy, small to hold.
_SENTENCES_AT_ONCE = 8192


def check_vocabulary_size(vocabulary: Vocabulary) -> None:
    """Refuses a vocabulary whose ids do not fit into a token file."""
    if vocabulary.size > LARGEST_VOCABULARY:
        raise UserError(
            f"{vocabulary.where} has {vocabulary.size} pieces, expected at most {LARGEST_VOCABULARY}, as "
            "tokens are kept in 16 bits; use a smaller vocabulary"
        )


class TokenStore:
    """A token store, memory-mapped for reading.

    Attributes:
      tokens: uint16 [tokens].
      sentence_offsets: int64 [sentences + 1].
      document_offsets: int64 [documents + 1].
    """

    def __init__(self, directory: PathLike, *, may_be_empty: bool = False):
        """Opens a store.

        Args:
          directory: output folder of `prepare`.
          may_be_empty: whether to accept a store without documents (part of a corpus).
        """
        directory = Path(directory)
        self.tokens = open_array(directory / TOKENS, np.dtype(np.uint16))
        self.sentence_offsets = open_array(directory / SENTENCE_OFFSETS, np.dtype(np.int64))
        self.document_offsets = open_array(directory / DOCUMENT_OFFSETS, np.dtype(np.int64))
        shortest = 1 if may_be_empty else 2
        for name, offsets, expected, counted in (
            (SENTENCE_OFFSETS, self.sentence_offsets, self.num_tokens, TOKENS),
            (DOCUMENT_OFFSETS, self.document_offsets, self.num_sentences, SENTENCE_OFFSETS),
        ):
            if offsets.size < shortest or offsets[0] != 0 or offsets[-1] != expected:
                end = int(offsets[-1]) if offsets.size else "nothing"
                raise UserError(
                    f"{directory / name} ends at {end}, expected {expected}, the length of {counted}; "
                    "the files are of different runs: run `multiberts prepare` again into an empty run_dir"
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
        """Returns the starts of a document's sentences in the token file, and the end of the last one.

        Returns:
          int64 [sentences of the document + 1].
        """
        first, end = self.document_offsets[document : document + 2]
        return np.asarray(self.sentence_offsets[first : end + 1])

    def document_of(self, token: np.ndarray) -> np.ndarray:
        """Returns the document of each position in the token file.

        Args:
          token: places in the token file, any shape.
        """
        sentence = np.searchsorted(self.sentence_offsets, token, side="right") - 1
        return np.searchsorted(self.document_offsets, sentence, side="right") - 1


def write_token_store(
    directory: PathLike, documents: Iterable[list[str]], vocabulary: Vocabulary
) -> dict[str, int]:
    """Tokenises documents into a store; holds no more than a few thousand sentences in memory.

    Sentences without tokens and documents without sentences are dropped, as in the original.

    Args:
      directory: folder for the three files.
      vocabulary: vocabulary of at most 65,536 pieces.

    Returns:
      The numbers of written `documents`, `sentences` and `tokens`.
    """
    with _store_writer(directory) as writer:
        for group in _grouped(documents):
            tokens, lengths = vocabulary.encode_flat([text for texts in group for text in texts])
            document = np.repeat(np.arange(len(group)), [len(texts) for texts in group])
            used = lengths > 0
            sentences = np.bincount(document[used], minlength=len(group))  # [documents]
            writer.append(tokens, np.cumsum(lengths[used]), np.cumsum(sentences[sentences > 0]))
    return writer.counts


def write_encoded_documents(
    directory: PathLike, documents: Iterable[list[list[int]]]
) -> dict[str, int]:
    """Writes documents whose sentences are token ids already.

    Args:
      directory: folder for the three files.
      documents: the ids of each sentence of each document; neither is empty.

    Returns:
      As `write_token_store`.
    """
    with _store_writer(directory) as writer:
        for sentences in documents:
            lengths = np.array([len(ids) for ids in sentences], np.int64)
            tokens = np.array([number for ids in sentences for number in ids], np.uint16)
            writer.append(tokens, np.cumsum(lengths), np.array([len(sentences)], np.int64))
    return writer.counts


def join_token_stores(
    directory: PathLike, parts: Iterable[PathLike], vocabulary_size: int
) -> dict[str, int]:
    """Concatenates the stores of the parts of a corpus into one store.

    Args:
      directory: folder for the three files.
      parts: directories of stores, in the order of the text; a store may have no documents.

    Returns:
      As `write_token_store`.
    """
    with _store_writer(directory) as writer:
        for part in parts:
            store = TokenStore(part, may_be_empty=True)
            offsets = (store.sentence_offsets, store.document_offsets)
            is_whole = all((np.diff(ends) > 0).all() for ends in offsets)
            for tokens in _blocks(store.tokens):
                is_whole = is_whole and int(tokens.max()) < vocabulary_size
                writer.append_tokens(tokens)
            if not is_whole:
                raise UserError(
                    f"{part} holds an empty sentence or an id outside the vocabulary, so it changed "
                    "after it was made; remove it and run the same command again"
                )
            writer.append_ends(store.sentence_offsets[1:], store.document_offsets[1:])
    return writer.counts


def unknown_share(store: TokenStore, unk_id: int) -> float:
    """Returns the share of a store's tokens that are [UNK], whose id is given."""
    unknown = sum(int((tokens == unk_id).sum()) for tokens in _blocks(store.tokens))
    return unknown / store.num_tokens


def _blocks(tokens: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, tokens.size, _TOKENS_AT_ONCE):
        yield tokens[first : first + _TOKENS_AT_ONCE]


class _StoreWriter:
    """Writes the three files of a store document by document, or part by part."""

    def __init__(self, writers: Sequence[ArrayWriter]):
        self.counts = {"documents": 0, "sentences": 0, "tokens": 0}
        self._tokens, self._sentence_offsets, self._document_offsets = writers
        self._sentence_offsets.append(np.zeros(1, np.int64))
        self._document_offsets.append(np.zeros(1, np.int64))

    def append(
        self, tokens: np.ndarray, sentence_ends: np.ndarray, document_ends: np.ndarray
    ) -> None:
        """Writes tokens [t], and where sentences and documents end, counted from these tokens on."""
        self.append_tokens(tokens)
        self.append_ends(sentence_ends, document_ends)

    def append_tokens(self, tokens: np.ndarray) -> None:
        self._tokens.append(tokens)

    def append_ends(self, sentence_ends: np.ndarray, document_ends: np.ndarray) -> None:
        self._sentence_offsets.append(self.counts["tokens"] + sentence_ends)
        self._document_offsets.append(self.counts["sentences"] + document_ends)
        self.counts["tokens"] += int(sentence_ends[-1]) if sentence_ends.size else 0
        self.counts["sentences"] += sentence_ends.size
        self.counts["documents"] += document_ends.size


@contextlib.contextmanager
def _store_writer(directory: PathLike) -> Iterator[_StoreWriter]:
    kinds = {TOKENS: np.uint16, SENTENCE_OFFSETS: np.int64, DOCUMENT_OFFSETS: np.int64}
    with contextlib.ExitStack() as stack:
        paths = {name: stack.enter_context(replaced(Path(directory) / name)) for name in kinds}
        yield _StoreWriter(
            [
                stack.enter_context(ArrayWriter(path, np.dtype(kinds[name])))
                for name, path in paths.items()
            ]
        )


def _grouped(documents: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    group: list[list[str]] = []
    num_sentences = 0
    for document in documents:
        group.append(document)
        num_sentences += len(document)
        if num_sentences >= _SENTENCES_AT_ONCE:
            yield group
            group, num_sentences = [], 0
    if group:
        yield group


class ArrayWriter:
    """Writes a one-dimensional `.npy` file part by part, its length known only at the end."""

    def __init__(self, path: PathLike, dtype: np.dtype):
        """Opens the file.

        Args:
          path: file to write; replaced if it is there.
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
    """Memory-maps a one-dimensional `.npy` file."""
    cure = "make the corpus again into an empty run_dir, or copy it again"
    try:
        array = np.lib.format.open_memmap(path, mode="r")
        excess = path.stat().st_size - array.offset - array.nbytes
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; {cure}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; {cure}") from error
    except Exception as error:  # many kinds: NumPy takes the header for Python
        raise UserError(f"{path} is not a whole NumPy file ({error}); {cure}") from error
    if excess:
        raise UserError(f"{path} is not a whole NumPy file ({excess} bytes too long); {cure}")
    if array.dtype != dtype or array.ndim != 1:
        raise UserError(
            f"{path} holds {array.dtype} {list(array.shape)}, expected a "
            f"one-dimensional array of {dtype}; {cure}"
        )
    return np.asanyarray(array)
