"""Text tables: TSV, CSV and JSON lines by the names of their columns."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from multiberts.runs.errors import UserError
from multiberts.runs.tables import (
    TableRow,
    column_names,
    is_table,
    read_rows,
    table_entries,
    table_files,
    table_of_files,
)

COLUMNS = ["id", "text"]
ROWS = [{"id": "1", "text": 'a "quote'}, {"id": "2", "text": "two, or more"}]


def written(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text", "first_line"),
    [
        ("a.tsv", 'id\ttext\n1\ta "quote\n2\ttwo, or more\n', 2),
        ("a.txt", '\ufefftext\tid\r\na "quote\t1\r\ntwo, or more\t2', 2),
        ("a.csv", 'id,text\n1,"a ""quote"\n2,"two, or more"\n', 2),
        # Of spreadsheets with decimal commas.
        ("a.csv", 'id;text\n1;"a ""quote"\n2;two, or more\n', 2),
        pytest.param(
            "a.tsv", 'id\ttext\n1\ta "quote\n2\ttwo, or more\n'.encode("utf-16"), 2, id="utf-16"
        ),
        ("a.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS), 1),
    ],
)
def test_each_form_gives_the_same_rows(tmp_path: Path, name, text, first_line, ending) -> None:
    path = written(tmp_path / (name + ending), text)
    rows = list(read_rows(path, COLUMNS))
    assert rows == ROWS
    assert [row.line for row in rows] == [first_line, first_line + 1]
    assert rows[0].where == f"{path} line {first_line}"


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_json_is_read_by_its_content_as_pandas_and_others_write_it(
    tmp_path: Path, name: str
) -> None:
    frame = pd.DataFrame(ROWS)
    texts = [
        frame.to_json(orient="records", lines=True),
        frame.to_json(orient="records", indent=2),
        frame.to_json(orient="table", index=False),
        frame.to_json(orient="split", index=False),
        frame.to_json(indent=1),
        json.dumps({"version": "v2.0", "data": ROWS}, indent=2),
        "\n\n".join(json.dumps(row) for row in ROWS) + "\n\n",
        "\n" + json.dumps({"data": ROWS}) + "\n\n",
    ]
    for text in texts:
        path = written(tmp_path / name, text)
        assert list(read_rows(path, COLUMNS)) == ROWS, text
        assert list(table_entries(path)) == ROWS and column_names(path) == COLUMNS
    path = written(tmp_path / name, '{"id": "1", "text": "x"}')
    assert list(table_entries(path)) == [{"id": "1", "text": "x"}]


def test_a_file_without_header_and_one_whose_name_does_not_show_the_comma(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "1,x\n")
    (row,) = read_rows(path, ["text"], header=COLUMNS, separator=",")
    assert row == {"id": "1", "text": "x"} and row.line == 1


def test_raw_text_keeps_other_line_separators_and_csv_cells_keep_line_breaks(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "a.tsv", "id\ttext\n1\ta\rb\u2028c\n")
    assert [row["text"] for row in read_rows(path, COLUMNS)] == ["a\rb\u2028c"]
    for separator in ",;\t":
        text = 'id,text\n1,"a\nb"\n2,c\n'.replace(",", separator)
        rows = read_rows(written(tmp_path / "a.csv", text), COLUMNS)
        assert [(row.line, row["text"]) for row in rows] == [(2, "a\nb"), (4, "c")]


def test_what_a_quoted_name_of_a_column_holds_separates_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", 'id,text,"note; more; and more"\n1,"x, y",z\n')
    assert [row["text"] for row in read_rows(path, COLUMNS)] == ["x, y"]


def test_short_rows_are_passed_over_where_asked(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", "id\ttext\n\n1\n2\tx\n")
    short: list[int] = []
    assert [row["id"] for row in read_rows(path, COLUMNS, short_rows=short)] == ["2"]
    assert short == [3]
    written(path, "id\ttext\n2\tx\ty\n")
    with pytest.raises(UserError, match="line 2: found 3 columns"):
        list(read_rows(path, COLUMNS, short_rows=short))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "", "is empty"),
        ("a.tsv", b"\xef\xbb\xbf", "line 1: found an empty line, expected id, text"),
        ("a.tsv", "id\ttext\n", "has a header and no rows; mend it"),
        ("a.tsv", "id\tlabel\n1\tx\n", r"line 1: .* id, label, .*\(lacking text\)"),
        ("a.tsv", "id\ttext\ttext\n1\tx\ty\n", r"\(repeated: text\)"),
        ("a.tsv", "id\ttext\n1\tx\n2\n", r"a\.tsv line 3: found 1 column"),
        ("a.csv", "id,text\n1,x\n\n", "line 3: found 1 column"),
        ("a.csv", 'id,text\n1,x\n2,"open\n\n', "line 3: is not CSV"),
        ("a.tsv", "id\ttext\n1\tx\n1\tx\n", "line 3: id, text '1', 'x' .*line 2"),
        ("a.tsv", b"id\ttext\n1\t\xff\n", "line 2: byte 0xff at offset 10"),
        ("a.jsonl", '{"id": "1", "text": "x"}\n{', "line 2 is not whole JSON"),
        (
            "a.jsonl",
            '{"id": 1, "text": "x"}\n{"id": "2"}\n',
            "line 1: found 1 under 'id', .*; mend it",
        ),
        ("a.json", '[\n{"id": 1, "text": "x"}]', "row 1: found 1 under 'id', .*; mend it"),
        (
            "a.json",
            '{"columns": ["id", "id"], "data": [["1", "x"]]}',
            "lists under columns, data, exp",
        ),
        ("a.csv", "\nx,y\n", "line 1: found an empty line, expected id, text"),
        ("a.json", "[1, 2]", "row 1: expected an object with id, text, found none"),
        (
            "a.json",
            '{"id": ["1"], "text": ["x"]}',
            "one object with lists under id, text, expected an",
        ),
        ("a.json", '{"id": "1",\n "text": }', r"a\.json is not whole JSON .*line 2"),
        ("a.jsonl", "[" * 100_000, "is not whole JSON"),
        ("a.jsonl", '{"id": ' + "9" * 10_000 + "}", "is not whole JSON"),
        ("a.jsonl", "[]\n", r"a\.jsonl has no rows; mend it"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path, name, text, message) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(UserError, match=message) as refused:
        list(read_rows(path, COLUMNS, unique=COLUMNS, cure="mend it"))
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("method", "arguments", "cell", "expected"),
    [
        ("one_of", (["0", "1"],), "1", "1"),
        ("one_of", (["0", "1", "2"],), "x", "expected 0, 1 or 2"),
        ("one_of", (["0"],), "x", "expected 0"),
        ("number", (0, 5), "2.5", 2.5),
        ("number", (0, 5), "0", 0.0),
        ("number", (0, 5), "5", 5.0),
        ("number", (0, 5), "5.01", "expected a number from 0 to 5"),
        ("number", (0,), "-1", "expected a number from 0"),
        ("number", (), "nan", "expected a number"),
        ("number", (), "x", "expected a number"),
        ("integer", (), "-3", -3),
        ("integer", (), "2.5", "expected a whole number"),
    ],
)
def test_cells_are_taken_as_what_they_must_be(method, arguments, cell, expected: Any) -> None:
    row = TableRow("a.tsv", 7, {"id": cell})
    if not str(expected).startswith("expected"):
        assert getattr(row, method)("id", *arguments) == expected
        return
    with pytest.raises(UserError) as refused:
        getattr(row, method)("id", *arguments)
    assert str(refused.value).startswith(f"a.tsv line 7: found id {cell!r}, {expected};")


def test_typed_cells_are_read_as_text_or_lists(tmp_path: Path) -> None:
    entries = [
        {"text": "x", "value": 4, "more": None},
        {"text": "y", "value": 2.5},
        {"text": "z", "value": ["a", 1, True]},
    ]
    path = written(tmp_path / "a.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries))
    rows = list(read_rows(path, ["text"], values=["value"]))
    assert [row["value"] for row in rows] == ["4", "2.5", "a 1 1"]
    assert [row.lists for row in rows] == [{}, {}, {"value": ["a", "1", "1"]}]
    assert column_names(path) == ["text", "value", "more"]
    for wrong in ("null", "NaN", "{}", "[[]]"):
        written(path, f'{{"text": "x", "value": {wrong}}}\n')
        with pytest.raises(UserError, match="under 'value'"):
            list(read_rows(path, ["text"], values=["value"]))


def test_one_shard_of_a_saved_folder_is_read_alone(tmp_path: Path) -> None:
    """Not the rows of the whole folder, of which the run would record one file only."""
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(UserError, match=r"data-\*\.arrow"):
        list(read_rows(tmp_path, ["text"]))
    for number, text in enumerate(("first", "second")):
        table = pyarrow.table({"text": [text]})
        path = tmp_path / f"data-0000{number}-of-00002.arrow"
        with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    for given, texts in ((path, ["second"]), (tmp_path, ["first", "second"])):
        table_path = table_of_files(table_files(given))
        assert [row["text"] for row in read_rows(table_path, ["text"])] == texts


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.tsv", b"\xef\xbb\xbf", [""]),  # a byte order mark alone
        ("a.csv", b"\xef\xbb\xbf", [""]),
        ("a.tsv", b"E-mail\tO-level\nO\tB-2\n", ["E-mail", "O-level"]),  # no words and tags
    ],
)
def test_a_header_makes_a_table(
    tmp_path: Path, name: str, content: bytes, columns: list[str]
) -> None:
    assert column_names(written(tmp_path / name, content)) == columns


# Two sentences of CoNLL-2003's form, a file of words and tags, Universal NER's and MultiCoNER's, each with
# the columns of words and tags.
TAGGED = {
    "2003.txt": (
        "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n# NN B-NP O\n"
        "Peter NNP I-NP B-PER\n",
        (1, 4),
    ),
    "words.tsv": ("EU\tB-ORG\nrejects\tO\n\n#\tO\nPeter\tB-PER\n\n", (1, 2)),
    "words.bio": ("EU B-ORG\r\nrejects O\r\n\r\n# O\r\nPeter B-PER", (1, 2)),
    "en.iob2": (
        "# sent_id = 1\n# text = EU rejects\n1\tEU\tB-ORG\t-\t-\n2\trejects\tO\t-\t-\n\n"
        "# text = # Peter\n1\t#\tO\t-\t-\n2\tPeter\tB-PER\t-\t-\n",
        (2, 3),
    ),
    "wikineural.conllu": ("0\tEU\tB-ORG\n1\trejects\tO\n\n0\t#\tO\n1\tPeter\tB-PER\n", (2, 3)),
    "germeval.tsv": (
        "#\tn-tv.de [2009]\n1\tEU\tO\tB-ORG\n2\trejects\tO\tO\n\n1\t#\tO\tO\n2\tPeter\tO\tB-PER\n",
        (2, 4),
    ),
    "multi.conll": (
        "# id a1 domain=en\nEU _ _ B-ORG\nrejects _ _ O\n\n# id a2 domain=en\n# _ _ O\nPeter _ _ B-PER\n",
        (1, 4),
    ),
}


@pytest.mark.parametrize("name", TAGGED)
def test_words_with_tags_are_lists(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, (word, tag) = TAGGED[name]
    path = written(tmp_path / name, text)
    rows = list(read_rows(path, (), values=["tokens", "tags"]))
    assert [row.lists for row in rows] == [
        {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"tokens": ["#", "Peter"], "tags": ["O", "B-PER"]},
    ]
    assert column_names(path) == ["tokens", "tags"] and is_table(path)
    assert [text.splitlines()[row.line - 1][:1] == "#" for row in rows] == [False, word == 1]
    others = " (the last of 2 columns of tags; to read another, leave out those after it)"
    line = f"tokens from column {word}, tags from {tag}{others if tag == 4 and '_' not in text else ''}\n"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("line", ["Peter NNP I-NP", "Peter NNP I-NP person", "# 3 of them"])
def test_a_word_without_its_tag_is_refused(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "train.txt", TAGGED["2003.txt"][0] + line)
    with pytest.raises(
        UserError, match=rf"line 9: found '{line}', expected 4 columns, .* in column 4, .*mend it"
    ):
        list(read_rows(path, (), values=["tokens"], cure="mend it"))
