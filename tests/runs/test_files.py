"""Files: whole or absent, read exactly or refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from multiberts.runs.errors import UserError
from multiberts.runs.files import read_lines, replaced, write_atomically


def test_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(RuntimeError), replaced(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_directories_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("first", "second"):
        with replaced(path) as temporary:
            temporary.mkdir()
            (temporary / "file").write_text(content)
    assert (path / "file").read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    """/dev/full answers every write with 'no space left'."""
    with (
        pytest.raises(UserError, match=r"cannot write .*No space left.*run the same command"),
        replaced(tmp_path / "file"),
    ):
        with open("/dev/full", "wb") as handle:
            handle.write(b"x" * 100_000)


def test_lines_keep_unicode_separators_and_lose_bom_and_cr(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffone\u2028still one\r\ntwo\n".encode())
    assert read_lines(path) == ["one\u2028still one", "two"]
    packed = tmp_path / "lines.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_lines(packed) == read_lines(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"good\nb\xffd\n", r"line 2: byte 0xff at offset 6 is not UTF-8"),
    ],
)
def test_bad_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_lines(path)


def test_missing_and_truncated_gzip(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_lines(tmp_path / "absent.txt")
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(gzip.compress(b"text " * 1000)[:-20])
    with pytest.raises(UserError, match="not a whole gzip"):
        read_lines(path)
