"""Reads untrusted zip and `.npz` files: checks the compression and the stated size of members."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from multiberts.runs.errors import UserError, check_memory
from multiberts.runs.files import PathLike

if sys.version_info >= (3, 14):
    import zipfile

    from compression.zstd import ZstdError
else:  # the same for older Pythons
    from backports.zstd import ZstdError, zipfile

# By its number in PKWARE's APPNOTE.TXT, section 4.4.5.
_STORED, _DEFLATED, _ZSTANDARD = 0, 8, 93
_IS_ENCRYPTED = 1
# Text is packed to a fifth, tables of few values to a fiftieth; zeros to a thousandth. What unpacks to more
# bytes than the first and to more times its size than the second would fill the memory.
_MOST_UNPACKED, _MOST_RATIO = 1 << 28, 200
# Exceptions of zipfile, its decompressors and NumPy for damaged files, and for compressions that are unknown.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, KeyError, IndexError),
    *(RuntimeError, OverflowError, SyntaxError, TypeError, ZstdError),
)


class Archive:
    """A zip file that is open for reading."""

    def __init__(self, path: Path, file: zipfile.ZipFile):
        self.path = path
        self.names = file.namelist()
        self._file = file

    def read(self, name: str) -> bytes:
        with _refused(self.path):
            check_memory(f"{self.path}, {name},", self._file.getinfo(name).file_size)
            return self._file.read(name)


@contextlib.contextmanager
def open_archive(path: PathLike) -> Iterator[Archive]:
    path = Path(path)
    with contextlib.ExitStack() as stack:
        with _refused(path):
            file = stack.enter_context(zipfile.ZipFile(path))
        members = file.infolist()
        names = [member.filename for member in members]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(f"{path} holds {twice} twice; write it again")
        for member in members:
            where = f"{path}: {member.filename} is"
            if member.flag_bits & _IS_ENCRYPTED:
                raise UserError(f"{where} encrypted; unpack the file and give what is in it")
            if member.compress_type not in (_STORED, _DEFLATED, _ZSTANDARD):
                raise UserError(
                    f"{where} packed by method {member.compress_type} of zip, expected 0, 8 or 93; unpack "
                    "the file and pack it with zip"
                )
        most = max(_MOST_UNPACKED, _MOST_RATIO * os.path.getsize(path))
        if sum(member.file_size for member in members) > most:
            raise UserError(
                f"{path} unpacks to more than {_MOST_RATIO} times its size, as a file that shall fill the "
                "memory does; give another file"
            )
        yield Archive(path, file)


def read_arrays(path: PathLike) -> dict[str, np.ndarray]:
    """Reads the arrays of a `.npz` file, or the array of a `.npy` file under the empty name."""
    path = Path(path)
    with _refused(path), path.open("rb") as file:
        is_array = file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
    if is_array:
        return {"": _array(path, path.name, path.read_bytes())}
    with open_archive(path) as archive:
        return {
            name.removesuffix(".npy"): _array(archive.path, name, archive.read(name))
            for name in archive.names
        }


def _array(path: Path, name: str, content: bytes) -> np.ndarray:
    with _refused(path):
        stream = io.BytesIO(content)
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        # Check before NumPy allocates memory.
        stated = int(dtype.itemsize) * int(np.prod(shape, dtype=object))
        left = len(content) - stream.tell()
        if not dtype.hasobject and stated != left:
            raise ValueError(f"{name} states {stated} bytes of numbers and has {left}")
        return npy.read_array(io.BytesIO(content), allow_pickle=False)


@contextlib.contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Converts the libraries' errors for damaged files into one line."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except _DAMAGED as error:
        raise UserError(
            f"{path} is not a whole {path.suffix or 'zip'} file ({error}); fetch it again"
        ) from error
