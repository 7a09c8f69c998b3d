"""Writes files completely or not at all; reads text exactly or refuses it."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.runs.errors import UserError, check_memory
from multiberts.runs.parameters import described, fits, shortened

PathLike = str | os.PathLike[str]

# A cell may be a whole document, and Python's default limit for CSV is 128 KiB.
csv.field_size_limit(2**31 - 1)

# Suffix of unfinished writes; files with it are left by killed processes and never read.
UNFINISHED_SUFFIX = ".unfinished"

# Enough for 64-bit integers; longer ones would overflow where they are used.
_MAX_DIGITS = 20
# transformers writes this for a length without limit.
_NO_LIMIT = str(int(1e30))

# Marks our pages, pictures and LaTeX in the first bytes, Parquet in its footer. CSV is known by its header.
MARK = "made by multiberts"
_HEADERS = (b"name,evaluation_set,metric,design,", b"task,evaluation_set,epochs,")
# Spreadsheets execute cells that begin like this, such as a run's name `+cmd|...`; `-0.3` is a number.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?!\.?\d[\d.e+-]*$|inf$|nan$)")
# The flag `--overwrite`: `check_output` then accepts files that are not ours.
overwrites = False

# Held while a directory is replaced, so that the moment without it is not mistaken for a loss.
_SWAPPING = threading.RLock()
_OPEN: list[OwnFiles] = []


@contextlib.contextmanager
def replaced(path: PathLike) -> Iterator[Path]:
    """Yields a temporary path next to `path` and renames it over `path` if the block succeeds.

    The block may create a file or a directory there. Its contents reach the disk before the rename,
    so after a crash or a kill `path` holds the old content or the new, never a part.
    """
    path = Path(os.path.expanduser(path))
    temporary = path.with_name(path.name + UNFINISHED_SUFFIX)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(temporary)
        yield temporary
        # File systems may write a rename before the content: after a crash the file would be empty.
        for each in (*temporary.rglob("*"), temporary):
            _flush(each)
        if path.is_dir():
            # A directory cannot be renamed over a non-empty one, so the old one is moved away first.
            old = path.with_name(path.name + ".old" + UNFINISHED_SUFFIX)
            remove(old)
            with _SWAPPING:
                _note(path, removed=True)
                os.rename(path, old)
                os.rename(temporary, path)
            remove(old)
        else:
            os.replace(temporary, path)
        if UNFINISHED_SUFFIX not in os.fspath(path):  # otherwise it is renamed below
            _note(path, removed=False)
        # A rename changes the parent directory, which must be flushed too.
        _flush(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):  # cleaning up may fail for the same reason
            remove(temporary)
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose another "
            "directory, then run the same command again"
        ) from error
    except BaseException:
        remove(temporary)
        raise


def write_atomically(path: PathLike, data: str | bytes) -> None:
    """Writes a file atomically (text as UTF-8)."""
    if Path(path).is_dir():
        raise UserError(f"cannot write {path}: it is a directory; give the name of a file")
    with replaced(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def check_output(path: PathLike, content: bytes | None = None) -> None:
    """Refuses an existing file that multiberts did not write, unless its content is `content` already."""
    with contextlib.suppress(FileNotFoundError), open_marker(path) as file:
        start = file.read(512)
        if start.startswith(b"PAR1"):
            file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
            start = file.read()
        file.seek(0)
        is_ours = not start or MARK.encode() in start or start.startswith(_HEADERS)
        if not (overwrites or is_ours or (content and file.read(len(content) + 1) == content)):
            raise UserError(
                f"{path} exists and was not written by multiberts; give another name, move it away, or add "
                "--overwrite"
            )


def write_outputs(texts: Mapping[Path, str]) -> None:
    """Writes output files that a user named: all of them, or none if `check_output` refuses one."""
    for path, text in texts.items():
        check_output(path, text.encode())
    for path, text in texts.items():
        write_atomically(path, text)


def as_cell(value: Any) -> Any:
    """Returns a value for a CSV file; a text that a spreadsheet would execute gets a leading quote."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def remove(path: PathLike) -> None:
    """Removes a file or a whole directory, if it exists."""
    path = Path(path)
    _note(path, removed=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class OwnFiles(contextlib.AbstractContextManager["OwnFiles"]):
    """Tracks the files below a folder that this process makes and removes while the block runs.

    A missing file that is not recorded as removed was removed by somebody else. A mirror pushes a removal
    to its bucket only if the run made it: job systems clean a job's HOME while its trainer still saves, and
    when absence alone counted as a removal, that emptied the bucket. `replaced` and `remove` report to it.

    Attributes:
      removed: names that this process removed and did not create again.
      removed_folder: whether this process removed the folder itself.
    """

    def __init__(self, folder: Path):
        self._folder = os.path.abspath(folder)
        self._created: set[str] = set()
        self.removed: set[str] = set()
        self.removed_folder = False

    def __enter__(self) -> OwnFiles:
        _OPEN.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _OPEN.remove(self)

    def lost(self, names: Iterable[str] = ()) -> list[str]:
        """Returns the missing files that this process did not remove, sorted.

        `names`: files that existed before the block, relative to the folder; files made in it count anyway.
        """
        with _SWAPPING:
            return sorted(
                name
                for name in self._created.union(names) - self.removed
                if not os.path.isfile(f"{self._folder}/{name}")
            )

    def _note(self, path: Path, *, removed: bool) -> None:
        changed = os.path.abspath(path)
        if os.path.commonpath([changed, self._folder]) != self._folder:
            return
        files = [changed] if os.path.lexists(changed) else []
        if os.path.isdir(changed) and not os.path.islink(changed):
            files = [
                os.path.join(at, name) for at, _, inside in os.walk(changed) for name in inside
            ]
        names = {os.path.relpath(file, self._folder) for file in files}
        with _SWAPPING:
            if removed:
                self._created -= names
                self.removed |= names
                self.removed_folder |= changed == self._folder
            else:
                self._created |= names
                self.removed -= names


def _note(path: Path, *, removed: bool) -> None:
    """Records that a file, or all files of a directory, were just created or are about to be removed."""
    for files in _OPEN:
        files._note(path, removed=removed)


def make_private(folder: Path) -> None:
    """Creates a folder and its missing parents, accessible to the owner only."""
    for missing in reversed([folder, *folder.parents]):
        with contextlib.suppress(FileExistsError):
            missing.mkdir(mode=0o700)


def is_name_inside(name: object) -> bool:
    """Returns whether a name from a list of files is relative to its folder and stays inside it."""
    parts = Path(name).parts if isinstance(name, str) else ()
    return bool(parts) and not Path(str(name)).is_absolute() and ".." not in parts


def sha256_of_file(path: PathLike) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal."""
    with open_marker(path) as handle:  # `open` would wait forever for a named pipe
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_bytes(path: PathLike, cure_if_empty: str = "give a file with text in it") -> bytes:
    """Returns the content of a file; see `open_unpacked`."""
    path = Path(path)
    try:
        check_memory(path, 2 * os.path.getsize(path))  # as bytes and as text
        with open_unpacked(path) as stream:
            data = stream.read()
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; check the path") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from error
    if not data:
        raise UserError(f"{path} is empty; {cure_if_empty}")
    return data


def open_marker(path: PathLike) -> io.BufferedReader:
    """Opens a file for reading that other users may have created; a pipe would block, a device never ends."""
    try:
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; move it away") from error
    raise UserError(f"{path} is a pipe or a device, expected a file; move it away")


def open_unpacked(path: PathLike) -> io.BufferedReader:
    """Opens a file for reading, decompressed if its name ends in `.gz` or it starts like gzip.

    Returns:
      A stream of its bytes. Reading raises `UserError` if the gzip data are damaged.
    """
    file = open(path, "rb")  # noqa: SIM115
    # Peek instead of reading: a pipe can be read only once.
    is_packed = Path(path).suffix == ".gz" or file.peek(2)[:2] == b"\x1f\x8b"
    return io.BufferedReader(_Unpacked(path, file), 1 << 16) if is_packed else file


def is_gzip(path: PathLike) -> bool:
    """Returns whether `open_unpacked` unpacks a file."""
    with open_unpacked(path) as stream:
        return isinstance(stream.raw, _Unpacked)


class _Unpacked(gzip.GzipFile):
    """Contents of a gzip file."""

    def __init__(self, path: PathLike, file: Any):
        super().__init__(fileobj=file)
        self._path, self.myfileobj = path, file  # closed together with the stream

    def readinto(self, buffer: Any) -> int:
        try:
            return super().readinto(buffer)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{self._path} is not a whole gzip file ({error}, after {self.tell()} bytes of text)"
                "; fetch it again"
            ) from error

    def readall(self) -> bytes:
        content, buffer = bytearray(), memoryview(bytearray(1 << 24))
        while count := self.readinto(buffer):
            content += buffer[:count]
            check_memory(f"{self._path}, unpacked,", 2 * len(content))  # a copy, and its text
        return bytes(content)


def read_lines(path: PathLike) -> list[str]:
    r"""Returns the lines of a text file (plain or `.gz`), without line endings and byte order mark.

    Only `\n` and `\r\n` end a line: TSV fields may hold other Unicode line separators.
    """
    text = decoded(read_bytes(path), path)
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines]


def decoded(data: bytes, path: PathLike, *, may_be_utf_16: bool = True) -> str:
    """Decodes UTF-8, or UTF-16 as spreadsheets write it, and drops the byte order mark."""
    encoding = _utf_16(data) if may_be_utf_16 else None
    if encoding is None:
        refuse_bytes(path, data[:MOST_BYTES_NEEDED])
        if data.count(0) > len(data) // 4:  # valid UTF-8 too, but no real text looks like this
            raise UserError(
                f"{path} is UTF-16, UTF-32 or no text; convert the file to UTF-8 with iconv"
            )
    try:
        return data.decode(encoding or "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path} line {line}: byte 0x{data[error.start]:02x} at offset {error.start} is not "
            f"{'UTF-16' if encoding else 'UTF-8'}; convert the file, for example with iconv"
        ) from error


def _utf_16(data: bytes) -> str | None:
    """Detects UTF-16 by its byte order mark or by zeros beside letters; None: not UTF-16."""
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and data[2:4] != b"\0\0":  # UTF-32
        return "utf-16"
    even, odd = data[:20:2], data[1:20:2]
    for encoding, zeros, letters in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if len(zeros) > 1 and not any(zeros) and all(letters):
            return encoding
    return None


def read_json_fields(
    path: PathLike, kinds: Mapping[str, Any] | None = None, cure: str = "copy it again"
) -> dict[str, Any]:
    """Returns the fields of a JSON object in a file; see `parse_json_fields`."""
    return parse_json_fields(read_bytes(path, cure), str(path), kinds, cure)


def parse_json(
    data: bytes | str, where: str, cure: str = "copy it again", *, allow_halves: bool = False
) -> Any:
    r"""Parses a JSON text, or refuses it in one line.

    Args:
      data: UTF-8.
      allow_halves: whether to accept half of a surrogate pair (`\\ud800`), which no file can hold.
    """
    if not data:
        raise UserError(f"{where} is empty; {cure}")
    try:
        values = json.loads(data, parse_int=_integer, object_pairs_hook=_fields_once)
        escape = b"\\ud" if isinstance(data, bytes) else "\\ud"
        if not allow_halves and escape in data:  # type: ignore[operator]
            # Surrogates of file names that are not UTF-8 stay, as in Python.
            json.dumps(values, ensure_ascii=False).encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        raise UserError(f"{where} holds {half!a}, half of a character; {cure}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(data, bytes):
            refuse_bytes(where, data[:MOST_BYTES_NEEDED], cure)
        reason = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise UserError(f"{where} is not whole JSON ({reason}); {cure}") from error
    return values


def _fields_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the fields of an object; refuses duplicates, because programs differ in which one they read."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is there twice")
    return fields


def parse_json_fields(
    data: bytes | str,
    where: str,
    kinds: Mapping[str, Any] | None = None,
    cure: str = "copy it again",
) -> dict[str, Any]:
    """Returns the fields of a JSON object that this program wrote, or refuses it in one line.

    Args:
      data, where, cure: see `parse_json`.
      kinds: annotations of fields, as of a command's parameters; of a dataclass these are its
        `typing.get_type_hints`. A field must be there unless its annotation takes None. Other fields are
        returned unchanged.
    """
    values = parse_json(data, where, cure)
    if not isinstance(values, dict):
        raise UserError(f"{where} holds {shortened(values)}, expected fields by name; {cure}")
    check_fields(values, kinds or {}, where, cure)
    return values


def check_fields(
    values: Mapping[str, Any], kinds: Mapping[str, Any], where: str, cure: str
) -> None:
    """Refuses fields that are missing or of another type; the arguments are those of `parse_json_fields`."""
    for name, kind in kinds.items():
        if not fits(values.get(name), kind):
            shown = shortened(values[name]) if name in values else "missing"
            raise UserError(f"{where}: {name} is {shown}, expected {described(kind)}; {cure}")


def _integer(digits: str) -> int:
    # Longer ones overflow where they are used.
    if len(digits.removeprefix("-")) > _MAX_DIGITS and digits != _NO_LIMIT:
        raise ValueError(f"an integer has {len(digits.removeprefix('-'))} digits")
    return int(digits)


def write_json_fields(path: PathLike, fields: Mapping[str, Any]) -> None:
    """Writes fields as JSON in the order of their names; the same fields give the same bytes."""
    Path(path).write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def _flush(path: Path) -> None:
    """Flushes a file or a directory, without its content, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- Files of another kind than expected: what they are, by their first bytes, and what to do ---

SPREADSHEET = "save its sheet as CSV and give that"
UNPACK = "unpack it and give what is in it"

# First bytes as a pattern, what such a file is, and what to do; None: what the reader says.
_KINDS = (
    (rb"version https://git-lfs", "a pointer of Git LFS", "`git lfs pull` in its folder fetches the file"),
    (rb"BZh[1-9]1AY&SY", "packed with bzip2", UNPACK),
    (rb"\xfd7zXZ", "packed with xz", UNPACK),
    (rb"\]\x00\x00", "packed with lzma", UNPACK),
    (rb"\x28\xb5\x2f\xfd", "packed with Zstandard", UNPACK),
    (rb"7z\xbc\xaf", "packed with 7-Zip", UNPACK),
    (rb"PK\x03\x04", "a zip archive, as are .xlsx and .npz", UNPACK),
    (rb"\xd0\xcf\x11\xe0", "a spreadsheet of Excel (.xls)", SPREADSHEET),
    (rb"\x80[\x02-\x05]", "a pickle of Python", None),
    (rb"\x89HDF", "HDF5", None),
    (rb"PAR1", "Parquet", "give it a name that ends in .parquet"),
    (rb"ARROW1\x00", "Feather", "write it as Parquet (pandas: read_feather, then to_parquet)"),
    (rb"SQLite format 3\x00", "a database of SQLite", None),
    (rb"RDX[23]\n|X\n\x00", "data of R", "write it as CSV with write.csv"),
    (rb"%PDF", "a PDF", None),
    (rb"WARC/", "a web archive (WARC)", "write the text of its records to a file"),
    (rb"<!DOCTYPE html|<html", "a web page", "fetch the file itself, for example its raw form"),
)  # fmt: skip
# Length of a file's start.
MOST_BYTES_NEEDED = 1024


def refuse_bytes(
    path: str | os.PathLike[str], start: bytes, cure: str = "give a file of text"
) -> None:
    """Refuses a file by its first `MOST_BYTES_NEEDED`, unpacked; `cure` is for kinds without their own."""
    if start[257:262] == b"ustar":
        raise UserError(f"{path} is a tar archive; {UNPACK}")
    for sign, kind, own_cure in _KINDS:
        if re.match(sign, start.lstrip(), re.IGNORECASE):
            raise UserError(f"{path} is {kind}, which is not read; {own_cure or cure}")
