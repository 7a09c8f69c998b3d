"""Bad files at the door: each is refused by one line that says what is wrong, and leaves nothing.

`bad_files.csv` has a row for each: the command, the format, the damage, and the sentence that a person would
want to read, written by hand: `...` stands for any words, FILE for the file's name. The files are made by
`good_files.py` and damaged here. Where a command warns and goes on, the sentence is the warning's.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from multiberts.bert.checkpoint import tensor_bundle
from multiberts.runs.errors import UserError, in_flags
from multiberts.tests.good_files import DOORS, GOOD, state_more_rows
from multiberts.tests.obeying import faults_of

TABLE = Path(__file__).with_name("bad_files.csv")


def _edited(change: Callable[[Any], object]) -> Callable[[Path], None]:
    """Returns a damage of a JSON file, or of the first of its lines."""

    def damage(path: Path) -> None:
        text = (
            gzip.decompress(path.read_bytes()).decode()
            if path.suffix == ".gz"
            else path.read_text()
        )
        first, line_end, rest = text.partition("\n") if ".jsonl" in path.name else (text, "", "")
        values = json.loads(first)
        changed = change(values)
        new = (json.dumps(values if changed is None else changed) + line_end + rest).encode()
        path.write_bytes(gzip.compress(new) if path.suffix == ".gz" else new)

    return damage


def _set(place: str, value: Any) -> Callable[[Path], None]:
    """Returns a damage that puts a value at a place such as `samples/0/id`."""

    def change(values: Any) -> None:
        *names, last = place.split("/")
        for name in names:
            values = values[int(name) if isinstance(values, list) else name]
        values[int(last) if isinstance(values, list) else last] = value

    return _edited(change)


def _repeated(path: Path) -> None:
    """Writes the first field of the first object twice."""
    text = path.read_text()
    field = re.search(r'\{\s*("[^"]*"\s*:\s*(?:"[^"]*"|[\w.-]+)?)', text)
    assert field is not None
    again = f"{field[1]} 1" if field[1].rstrip().endswith(":") else field[1]
    path.write_text(text.replace("{", "{" + again + ", ", 1))


def _zip_with(**changes: Any) -> Callable[[Path], None]:
    """Returns a damage of what a zip file states of its members, in both of its lists."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        # Signature, then the places of flags, method and size: APPNOTE.TXT, sections 4.3.7 and 4.3.12.
        for sign, places in ((b"PK\x03\x04", (6, 8, 22)), (b"PK\x01\x02", (8, 10, 24))):
            start = data.find(sign)
            while start >= 0:
                for name, place, form in zip(
                    ("flags", "method", "size"), places, ("<H", "<H", "<I"), strict=True
                ):
                    if name in changes:
                        struct.pack_into(form, data, start + place, changes[name])
                start = data.find(sign, start + 4)
        path.write_bytes(bytes(data))

    return damage


def _huge_shape(path: Path) -> None:
    arrays = dict(np.load(path))
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            stream = io.BytesIO()
            np.lib.format.write_array(stream, array)
            content = stream.getvalue()
            if name == "predictions":
                header = {"descr": "<i8", "fortran_order": False, "shape": (3 * 10**12, 8)}
                stream = io.BytesIO()
                np.lib.format.write_array_header_1_0(stream, header)
                content = stream.getvalue() + array.tobytes()
            file.writestr(f"{name}.npy", content)


def _other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("letter.txt", "no array")


def _objects(path: Path) -> None:
    np.savez(path, predictions=np.array([[{}]], dtype=object))


def _transposed(path: Path) -> None:
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "labels": arrays["labels"][:3]})


def _parquet(**columns: Any) -> Callable[[Path], None]:
    """Returns a damage that gives a Parquet file other columns."""

    def damage(path: Path) -> None:
        frame = pd.read_parquet(path)
        for name, value in columns.items():
            frame[name] = [value] * len(frame)
        frame.to_parquet(path)

    return damage


def _metadata(name: bytes, value: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        from pyarrow import parquet

        table = parquet.read_table(path)
        parquet.write_table(table.replace_schema_metadata({name: value}), path)

    return damage


def _column_twice(path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(path)
    names = [*table.column_names, table.column_names[0]]
    parquet.write_table(pyarrow.Table.from_arrays([*table.columns, table.column(0)], names), path)


def _index_states(**stated: Any) -> Callable[[Path], None]:
    """Returns a damage of an index of TensorFlow whose checksums fit."""

    def damage(path: Path) -> None:
        prefix = path.with_suffix("")
        tensors = tensor_bundle.read_bundle(prefix, lambda _: True)
        original = tensor_bundle._field

        def field(number: int, value: int) -> bytes:
            return original(number, stated.get(f"field_{number}", value))

        try:
            tensor_bundle._field = field  # the only way to an index that is whole and lies
            tensor_bundle.write_bundle(prefix, tensors)
        finally:
            tensor_bundle._field = original

    return damage


def _header_states(path: Path) -> None:
    """Lets a safetensors file state a header of an exabyte."""
    path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:])


def _of_many_parts(path: Path) -> None:
    path.rename(path.with_name("bert.ckpt.data-00000-of-9999999999"))


def _zeros(path: Path) -> None:
    """Writes a gzip file of 512 MiB of zeros in half a megabyte."""
    block = gzip.compress(bytes(1 << 24), mtime=0)
    path.write_bytes(block * 32)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _other_encoding(path: Path) -> None:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    new = text.decode().encode("utf-32-le")
    path.write_bytes(gzip.compress(new) if path.suffix == ".gz" else new)


def _latin1(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + "é".encode("latin-1") + data[len(data) // 2 :])


def _flipped(path: Path, place: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 0x80
    path.write_bytes(bytes(data))


def _written(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 7]) and None,
    "flipped byte": _flipped,
    "flipped byte of the footer": lambda path: _flipped(path, -8),
    "flipped byte of an array": lambda path: _flipped(path, path.read_bytes().index(b"NUMPY") + 140),
    "empty": lambda path: path.write_bytes(b"") and None,
    "other encoding": _other_encoding,
    "a letter of Latin-1": _latin1,
    "duplicate keys": _repeated,
    "a folder": _folder,
    "zeros": _zeros,
    "deep": _written(b"[" * 100_000),
    "a long number": _written(b'{"seed": ' + b"9" * 5_000 + b"}"),
    "a list": _written(b"[1, 2]"),
    "a text": _written(b'"seed"'),
    "encrypted": _zip_with(flags=1),
    "unknown packing": _zip_with(method=97),
    "lying size": _zip_with(size=(1 << 32) - 1),
    "huge shape": _huge_shape,
    "other zip": _other_zip,
    "objects": _objects,
    "other lengths": _transposed,
    "list for text": _set("seed", [1]),
    "object for a number": _set("prediction", {"a": 1}),
    "list in a column": _set("example_id/0", ["a"]),
    "columns of other lengths": _set("label", [1]),
    "lists in Parquet": _parquet(example_id=["a"]),
    "lists of words": _parquet(sentence1=["a", "b"]),
    "a column twice": _column_twice,
    "more rows than memory": state_more_rows,
    "odd metadata of datasets": _metadata(b"huggingface", b'{"info": {"features": 3}}'),
    "broken metadata of datasets": _metadata(b"huggingface", b"{"),
    "index states a size": _index_states(field_5=1 << 62),
    "index states a place": _index_states(field_4=1 << 62),
    "header states a size": _header_states,
    "of 9999999999 parts": _of_many_parts,
    "doc_id is a list": _set("doc_id", [1]),
    "metrics is a number": _set("metrics", 3),
    "score is a text": _set("acc", "good"),
    "samples is a number": _set("samples", 3),
    "a sample is a number": _set("samples/0", 3),
    "scores is a list": _set("samples/0/scores", [1]),
    "score is a list": _set("samples/0/scores/match/value", [1]),
    "id is missing": _edited(lambda values: values["samples"][0].pop("id") and None),
    "stats is a text": _set("0/stats", "x"),
    "name is a list": _set("0/stats/0/name", [1]),
    "instance_id is a number": _set("0/instance_id", 3),
    "request_states is a number": _set("request_states", 3),
    "other instances": _set("request_states", []),
    "a word for the text": _set("text", 3),
    "text is a list": _set("sentence1", ["a"]),
    "data is a text": _set("data", "x"),
    "an answer is a list": _set("q0", ["house"]),
    "label_list is a number": _set("label_list", 3),
    "a label of no class": _set("predict/1/label", "c"),
    "a guid twice": _set("predict/1/guid", "dev-0"),
    "a word for a number": lambda path: path.write_text("0.9\tmuch\n" * 3) and None,
    "nan": lambda path: path.write_text("0.9\tnan\n" * 3) and None,
    "context is a list": _set("data/0/paragraphs/0/context", ["a"]),
    "start is a text": _set("data/0/paragraphs/0/qas/0/answers/0/answer_start", "9"),
    "vocab_size is a text": _set("vocab_size", "5"),
    "hidden_size is huge": _set("hidden_size", 10**15),
    "architectures is a number": _set("architectures", 3),
    "id2label is a list": _set("id2label", ["a"]),
    "id2label has a number": _set("id2label/0", 1),
    "an id is a text": _set("model/vocab/[CLS]", "x"),
    "model is a list": _set("model", [1]),
    "do_lower_case is a text": _set("do_lower_case", "yes"),
    "files is a list": _set("files", [1]),
    "a file elsewhere": _set("files", {"../../secret": {"bytes": 1, "sha256": "0"}}),
    "finetuned is a number": _set("finetuned", 3),
    "head is a text": _set("finetuned/head", "x"),
    "arguments is a list": _set("finetuned/arguments", [1]),
    "task_modules is a text": _set("finetuned/arguments/task_modules", "os"),
    "half a letter": _set("runs/0/name", "\ud800"),
    "version is a text": _set("version", "2"),
    "a time of 1e300": _set("started", 1e300),
    "pid is a text": _set("pid", "x"),
}  # fmt: skip


@functools.cache
def rows() -> list[dict[str, str]]:
    with TABLE.open(newline="") as stream:
        return list(csv.DictReader(stream))


def name_of(row: dict[str, str]) -> str:
    return " ".join((row["door"], row["format"], row["damage"]))


def line_of(row: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns what a command says of the row's file, whose good form it takes."""
    path = GOOD[row["format"]](folder)
    DAMAGES[row["damage"]](path)
    capsys.readouterr()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            DOORS[row["door"]](folder, row["format"])
    except UserError as error:
        return str(error)
    return capsys.readouterr().err


def parameters() -> list[Any]:
    # Half a gigabyte of zeros takes seconds, and so does the import of PyTorch.
    slow = [row["damage"] == "zeros" or row["format"] == "pytorch" for row in rows()]
    return [
        pytest.param(row, id=name_of(row), marks=[pytest.mark.slow] * is_slow)
        for row, is_slow in zip(rows(), slow, strict=True)
    ]


@pytest.mark.parametrize("row", parameters())
def test_a_bad_file_gets_the_sentence_that_a_person_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, str]
) -> None:
    if row["format"] == "pytorch":
        pytest.importorskip("torch")
    folder = tmp_path / "folder"
    folder.mkdir()
    line = line_of(row, folder, capsys)
    words = [re.escape(part.strip()) for part in row["sentence"].split("...")]
    assert re.search(".*".join(words), line), line
    assert not re.search(r"\w+Error|\bnp\.|object at 0x", line)  # no words of Python's
    assert row["door"] != "compare" or not faults_of(in_flags(line))
    assert not [path for path in (folder / "_out").rglob("*") if path.is_file()]


def test_the_table_has_every_door_and_kind_of_damage() -> None:
    table = rows()
    assert {row["door"] for row in table} == set(DOORS)
    assert {row["damage"] for row in table} == set(DAMAGES)
    assert len({name_of(row) for row in table}) == len(table)
