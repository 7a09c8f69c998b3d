"""Files of another kind than expected: what they are, by their first bytes, and what to do."""

from __future__ import annotations

import os

from multiberts.runs.errors import UserError

SPREADSHEET = "save its sheet as CSV and give that"
UNPACK = "unpack it and give what is in it"
_PAGE = "a web page", "fetch the file itself, for example its raw form"
_OF_R = "data of R", "write it as CSV with write.csv"

# First bytes, what such a file is, and what to do; None: what the reader says.
_BYTES = (
    (b"version https://git-lfs", "a pointer of Git LFS", "`git lfs pull` in its folder fetches the file"),
    *((b"BZh%d1AY&SY" % level, "packed with bzip2", UNPACK) for level in range(1, 10)),
    (b"\xfd7zXZ", "packed with xz", UNPACK),
    (b"]\x00\x00", "packed with lzma", UNPACK),
    (b"\x28\xb5\x2f\xfd", "packed with Zstandard", UNPACK),
    (b"7z\xbc\xaf", "packed with 7-Zip", UNPACK),
    (b"PK\x03\x04", "a zip archive, as are .xlsx and .npz", UNPACK),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet of Excel (.xls)", SPREADSHEET),
    *((b"\x80" + bytes([protocol]), "a pickle of Python", None) for protocol in range(2, 6)),
    (b"\x89HDF", "HDF5", None),
    (b"PAR1", "Parquet", "give it a name that ends in .parquet"),
    (b"ARROW1\x00", "Feather", "write it as Parquet (pandas: read_feather, then to_parquet)"),
    (b"SQLite format 3\x00", "a database of SQLite", None),
    (b"RDX2\n", *_OF_R),
    (b"RDX3\n", *_OF_R),
    (b"X\n\x00", *_OF_R),
    (b"%PDF", "a PDF", None),
    (b"WARC/", "a web archive (WARC)", "write the text of its records to a file"),
    (b"<!DOCTYPE html", *_PAGE),
    (b"<html", *_PAGE),
)  # fmt: skip
_TAR = 257, b"ustar"
# Length of a file's start.
MOST_BYTES_NEEDED = 1024


def refuse_bytes(
    path: str | os.PathLike[str], start: bytes, cure: str = "give a file of text"
) -> None:
    r"""Refuses a file by its first bytes, unpacked.

    Args:
      path: for the message.
      start: `MOST_BYTES_NEEDED` are enough.
      cure: for a kind of file that has none of its own.

    Example:
      >>> try:
      ...     refuse_bytes("wiki.txt.xz", b"\xfd7zXZ\x00")
      ... except UserError as error:
      ...     print(error)
      wiki.txt.xz is packed with xz, which is not read; unpack it and give what is in it
    """
    at, mark = _TAR
    if start[at : at + len(mark)] == mark:
        raise UserError(f"{path} is a tar archive; {UNPACK}")
    for sign, kind, own_cure in _BYTES:
        if start.lstrip()[: len(sign)].lower() == sign.lower():
            raise UserError(f"{path} is {kind}, which is not read; {own_cure or cure}")
