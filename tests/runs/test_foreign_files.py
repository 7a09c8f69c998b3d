"""Files that are not what their names say: named by their first bytes, and quoted in a line that is read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import zipfile
from pathlib import Path

import pytest
from backports import zstd

from multiberts.runs.errors import UserError
from multiberts.runs.files import read_lines
from multiberts.runs.tables import read_rows
from multiberts.tests.evaluate.readers.one_task import read_arms

TEXT = b"One sentence.\nAnother one.\n"
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


def _zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("text.txt", TEXT)
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (lzma.compress(TEXT), "packed with xz, .*; unpack it"),
        (lzma.compress(TEXT, lzma.FORMAT_ALONE), "packed with lzma, .*; unpack it"),
        (bz2.compress(TEXT), "packed with bzip2, .*; unpack it"),
        (zstd.compress(TEXT), "packed with Zstandard, .*; unpack it"),
        (_zip(), "a zip archive, .*; unpack it"),
        (POINTER.encode(), "a pointer of Git LFS, .*; `git lfs pull`"),
        (b"WARC/1.0\r\nWARC-Type: warcinfo\r\n", "a web archive .WARC., .*write the text"),
        (pickle.dumps([1]), "a pickle of Python, .*give a file of text"),
        (gzip.compress(lzma.compress(TEXT)), "packed with xz"),
    ],
    # Not the bytes: archives have the time in them.
    ids=["xz", "lzma", "bzip2", "zstd", "zip", "lfs", "warc", "pickle", "xz in gzip"],
)  # fmt: skip
def test_a_file_of_another_kind_is_named(content: bytes, line: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=line):
        read_lines(path)


def test_gzip_is_known_without_its_ending(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(gzip.compress(TEXT))
    assert read_lines(tmp_path / "text.txt") == ["One sentence.", "Another one."]


def test_a_cell_may_be_a_whole_document(tmp_path: Path) -> None:
    text, path = "word " * 100_000, tmp_path / "a.csv"
    path.write_text(f"id,label,text\n1,a,{text}\n")
    assert [row["text"] for row in read_rows(path, ["text"])] == [text]


@pytest.mark.parametrize("space", ["", " "])
def test_a_message_quotes_little_of_a_file(space: str, tmp_path: Path) -> None:
    path = tmp_path / ("a" * 250) / "b" / "a.csv"
    path.parent.mkdir(parents=True)
    long = f"{space}x" * 200_000
    path.write_text(f"id,label,{long}\n1,a,b\n2,a,b\n")
    with pytest.raises(UserError, match="name them with --seed=COLUMN") as caught:
        read_arms(str(path))
    assert len(str(caught.value)) < 600 and str(path) in str(caught.value)
