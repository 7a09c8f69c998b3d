"""Files of another kind than expected: what they are, by their first bytes, and what to do."""

from __future__ import annotations

import os
import re

from multiberts.runs.errors import UserError

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
