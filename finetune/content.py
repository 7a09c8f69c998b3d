"""Files known by what they hold, so that one process reads and tokenises each content once."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

from multiberts.bert.tokenization import Tokenizer
from multiberts.runs.directory import fingerprint
from multiberts.runs.files import PathLike


@dataclasses.dataclass(frozen=True)
class FileContent:
    """A file, equal to any other of the same bytes; a key for caches.

    Attributes:
      path: where it lies; for reading and for errors.
      checksum: SHA-256 of its bytes.
    """

    path: Path = dataclasses.field(compare=False)
    checksum: str

    @classmethod
    def of(cls, path: PathLike) -> FileContent:
        """Reads the file's checksum.

        Raises:
          UserError: there is no such file.
        """
        return cls(Path(path), fingerprint(path))


@functools.lru_cache(maxsize=2)
def tokenizer_of(vocabulary: FileContent) -> Tokenizer:
    """Returns the tokeniser of a vocabulary, shared by all checkpoints that have it."""
    return Tokenizer(vocabulary.path)
