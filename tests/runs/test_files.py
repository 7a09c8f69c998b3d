"""Files: whole or absent, read exactly or refused."""

from __future__ import annotations

import gzip
import os
import re
import resource
from pathlib import Path

import pytest

from multiberts.runs import files
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    MARK,
    as_cell,
    read_bytes,
    read_json_fields,
    read_lines,
    replaced,
    write_atomically,
    write_outputs,
)
from multiberts.runs.tables import read_columnar
from multiberts.tests.tools import own_process


def test_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(RuntimeError), replaced(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_a_file_never_replaces_a_directory(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("content")
    with pytest.raises(UserError, match="it is a directory"):
        write_atomically(tmp_path, "new")
    assert (tmp_path / "kept").read_text() == "content"


@pytest.mark.parametrize(
    ("there", "is_ours"),
    [
        (None, True),
        (b"", True),
        (f"<!doctype html><!-- {MARK} -->\n<html>".encode(), True),
        (f"% {MARK}\n\\begin{{tabular}}".encode(), True),
        (b"name,evaluation_set,metric,design,resample\n", True),
        (b"PAR1" + bytes(1 << 17) + MARK.encode() + b"PAR1", True),
        (b"new", True),  # the same content
        (b"newer", False),
        (b"alias ls=...\n", False),
        (b"import multiberts\n", False),
        (b"<!doctype html>\n" + b" " * 600 + f"<!-- {MARK} -->".encode(), False),
        (b"PAR1" + bytes(1 << 17) + b"PAR1", False),
    ],
)
def test_a_file_of_others_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bytes | None, is_ours: bool
) -> None:
    path, other = tmp_path / "named", tmp_path / "other"
    if there is not None:
        path.write_bytes(there)
    outputs = {other: "new", path: "new"}
    if not is_ours:
        with pytest.raises(
            UserError, match="named exists and was not written by multiberts.*--overwrite"
        ):
            write_outputs(outputs)
        assert path.read_bytes() == there and not other.exists()
        monkeypatch.setattr(files, "overwrites", True)
    write_outputs(outputs)
    assert path.read_text() == other.read_text() == "new"


def test_a_device_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "overwrites", True)
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(UserError, match="is a pipe or a device"):
            write_outputs({path: "new"})
        assert not path.is_file() and path.exists()


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"]
)
def test_a_name_is_no_formula_and_other_cells_are_as_they_are(text: str) -> None:
    assert as_cell(text) == f"'{text}"
    for value in ("base", "-0.5", "-1e-05", "+3", "-inf", "", "a=b", -0.5, None):
        assert as_cell(value) == value


def test_directories_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("first", "second"):
        with replaced(path) as temporary:
            temporary.mkdir()
            (temporary / "file").write_text(content)
    assert (path / "file").read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_lines_keep_unicode_separators_and_lose_bom_and_cr(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffone\u2028still one\r\ntwo\n".encode())
    assert read_lines(path) == ["one\u2028still one", "two"]
    packed = tmp_path / "lines.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_lines(packed) == read_lines(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b"good\nb\xffd\n", "line 2: byte 0xff at offset 6"),
        ("a.txt", None, "does not exist"),
        ("a.txt.gz", gzip.compress(b"text " * 1000, mtime=0)[:-20], "not a whole gzip"),
    ],
)
def test_bad_text_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_lines(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "{path} is empty;"),
        (b'{"pid": 3', "{path} is not whole JSON (Expecting ','"),
        (b"\x93NUMPY\x01\x00", "{path} is not whole JSON ('utf-8'"),
        (b"\x00" * 64, "{path} is not whole JSON ("),
        (b"null", "{path} holds None,"),
        (b"[]", "{path} holds [],"),
        (b'"pid"', "{path} holds 'pid',"),
        (b"{}", "{path}: pid is missing, expected int;"),
        (b'{"pid": null}', "{path}: pid is None, expected int;"),
        (b'{"pid": "3"}', "{path}: pid is '3', expected int;"),
        (b'{"pid": true}', "{path}: pid is True, expected int;"),
        (b'{"pid": 3.5}', "{path}: pid is 3.5, expected int;"),
        (b'{"pid": NaN}', "{path}: pid is nan, expected int;"),
        (b"[" * 100_000, "{path} is not whole JSON (it is nested too deep"),
        (b'{"pid":' * 100_000, "{path} is not whole JSON (it is nested too deep"),
        (b'{"pid": ' + b"1" * 10_000 + b"}", "{path} is not whole JSON (an integer has 10000"),
        (b'{"pid": ' + b"1" * 25 + b"}", "{path} is not whole JSON (an integer has 25 digits)"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_json_that_is_not_ours_is_refused_in_one_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "marker.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as refused:
        read_json_fields(path, {"pid": int}, "make it again")
    line = str(refused.value)
    assert line.startswith(message.format(path=path))
    assert line.endswith("; make it again")
    assert "\n" not in line


def test_json_fields_may_hold_more_than_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "marker.json"
    path.write_text('{"pid": 3, "later": -18446744073709551615, "names": ["a"]}')
    assert read_json_fields(path, {"pid": int, "names": list[str]})["later"] == -(2**64) + 1


def refused_with_little_memory(path: str) -> str:
    """Reads a file with 400 MiB more than this process has, and returns what is said of it."""
    import pyarrow.parquet  # noqa: F401  # which maps a gigabyte

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (400 << 20), resource.RLIM_INFINITY))
    try:
        read_columnar(path) if path.endswith(".arrow") else read_bytes(path)
    except UserError as error:
        return str(error)
    return "read"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("name", ["zeros.csv.gz", "zeros.csv", "zeros.arrow"])
def test_a_file_that_needs_more_memory_than_there_is_gets_one_line_with_its_bytes(
    tmp_path: Path, name: str
) -> None:
    path, block = tmp_path / name, bytes(1 << 25)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(block) * 32)  # a megabyte, unpacked a gigabyte
    elif name.endswith(".csv"):
        with path.open("wb") as file:
            file.truncate(1 << 30)  # without blocks on the disk
    else:
        import pyarrow

        batch = pyarrow.record_batch({"text": pyarrow.array([block])})
        options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        with path.open("wb") as file:
            with pyarrow.ipc.new_stream(file, batch.schema, options=options) as writer:
                for _ in range(32):
                    writer.write_batch(batch)
    line = own_process.call("runs.test_files:refused_with_little_memory", str(path))
    found = re.fullmatch(
        rf"{path}(?:, unpacked,)? needs over ([\d,]+) bytes of memory, found ([\d,]+); .*more memory.*",
        line,
    )
    assert found, line
    needed, left = (int(number.replace(",", "")) for number in found.groups())
    assert left < needed <= 2 << 30 and left <= 400 << 20
