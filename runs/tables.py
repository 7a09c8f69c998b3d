"""Reads tables by the names of their columns: TSV, CSV, JSON (plain or `.gz`), Parquet, `datasets`."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.runs import console, files
from multiberts.runs.errors import UserError, check_memory, counted, listed, memory_error
from multiberts.runs.files import MOST_BYTES_NEEDED, PathLike, refuse_bytes
from multiberts.runs.parameters import shortened

if TYPE_CHECKING:
    import pyarrow

_JSON, _COLUMNAR = (".jsonl", ".json"), ".parquet"
# Endings of the names of tables; those of text may be followed by `.gz`.
TABLE_SUFFIXES = (".tsv", ".csv", *_JSON, _COLUMNAR)
_ARROW = ".arrow"
_SHARDS = f"data-*{_ARROW}"
# A tag of a word in BIO and its like, and the word before a document in CoNLL's files.
_TAG, _DOCUMENT = re.compile(r"O|[BIELSU]-\S+"), "-DOCSTART-"
# Words may be numbered, from 0 or 1; the second may begin another sentence.
_NUMBERS = (("0", "0"), ("0", "1"), ("1", "1"), ("1", "2"))


class TableRow(dict[str, str]):
    """A row of a table: its cells by column.

    Attributes:
      line: the number of its (first) line there, from 1; of a table without lines, of the row.
      lists: the cells that hold a list of texts, by column.
      unit: unit of row numbers, `line` or `row`.
    """

    __slots__ = ("line", "lists", "path", "unit")

    def __init__(
        self,
        path: PathLike,
        line: int,
        cells: dict[str, str],
        lists: dict[str, list[str]] | None = None,
        unit: str = "line",
    ):
        super().__init__(cells)
        self.path, self.line, self.unit = path, line, unit
        self.lists = lists or {}

    @property
    def where(self) -> str:
        return f"{self.path} {self.unit} {self.line}"

    def one_of(self, column: str, choices: Collection[str]) -> str:
        if self[column] not in choices:
            *others, last = choices
            raise self.refused(column, f"{', '.join(others)} or {last}" if others else last)
        return self[column]

    def number(self, column: str, low: float = -math.inf, high: float = math.inf) -> float:
        """Returns a cell that must be a finite number from `low` to `high`."""
        try:
            value = float(self[column])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high):
            bounds = [f" from {low:g}"] if low > -math.inf else []
            bounds += [f" to {high:g}"] if high < math.inf else []
            raise self.refused(column, "a number" + "".join(bounds))
        return value

    def integer(self, column: str) -> int:
        """Returns a cell that must be a whole number."""
        try:
            return int(self[column])
        except ValueError:
            raise self.refused(column, "a whole number") from None

    def refused(self, column: str, expected: str) -> UserError:
        return UserError(
            f"{self.where}: found {column} {shortened(self[column])}, expected {expected}; correct the line"
        )


def read_rows(
    path: PathLike,
    columns: Sequence[str],
    *,
    values: Sequence[str] = (),
    optional: Sequence[str] = (),
    header: Sequence[str] | None = None,
    separator: str | None = None,
    unique: Sequence[str] = (),
    short_rows: list[int] | None = None,
    cure: str = "fetch the file again",
) -> Iterator[TableRow]:
    r"""Reads a table row by row.

    A name in `.jsonl` or `.json` means JSON, one in `.csv` commas (or what the header has), one in `.parquet`
    Parquet, any other tabs (each but Parquet also before `.gz`). JSON is one object a line, a list of objects
    (also under `data`), or pandas' object of columns, whatever the name. A file with a word and its tag in
    each line (CoNLL) has the columns `tokens` and `tags`. A folder is a split that Hugging Face `datasets`
    saved; its class numbers are read as the names of the classes. Between tabs a quote is text and only a
    line feed ends a row; CSV cells may be quoted. A byte order mark may come first.

    Args:
      columns: required columns, each once, in any order; further ones are read too. Where cells have
        types (JSON, Parquet, `datasets`) required cells must be texts, and other cells are left out.
      values: further columns that must be there, whose typed cells may also be numbers, read as text, or
        lists of either, read into `TableRow.lists`.
      optional: like `values`, but they may be missing; "" where a typed cell is empty.
      header: the names of all columns, for a file whose first line is a row already.
      separator: the tab or the comma, where the file's name does not show which.
      unique: the columns that must differ, taken together, between any two rows.
      short_rows: list to which the line numbers of rows with fewer cells than the header are appended;
        these rows are skipped, as are blank lines. None: short rows are refused.
      cure: advice for a file of another layout, for messages.
    """
    if _is_typed(path):
        rows = _typed_rows(path, columns, values, optional, cure)
    else:
        if header is not None and _text_name(path).endswith(".csv"):
            separator = separator or ","  # the first row has no names to count separators between
        cells = _cells(path, cure, separator)
        rows = _rows(path, cells, [*columns, *values], header, short_rows, cure)
    line_of: dict[tuple[str, ...], int] = {}
    row = None
    for row in rows:
        if unique:
            key = tuple(row[column] for column in unique)
            first = line_of.setdefault(key, row.line)
            if first != row.line:
                raise UserError(
                    f"{row.where}: {', '.join(unique)} {listed(map(repr, key))} is in line {first} "
                    "already, expected each once; remove one of them"
                )
        yield row
    if row is None:
        has_header = header is None and not _is_typed(path)
        raise UserError(f"{path} has {'a header and ' * has_header}no rows; {cure}")


def table_entries(path: PathLike) -> Iterator[Mapping[str, Any]]:
    """Reads all columns of a table, typed cells (JSON, Parquet, `datasets`) with their types."""
    cure = "correct the file"
    if _is_typed(path):
        yield from (entry for _, _, entry in _typed_entries(path, cure))
    else:
        yield from _rows(path, _cells(path, cure), (), None, None, cure)


def is_table(path: PathLike) -> bool:
    """Returns whether a path is named as a table is, holds words with tags, or is a folder of `datasets`."""
    return _text_name(path).endswith(TABLE_SUFFIXES) or _is_typed(path)


def _text_name(path: PathLike) -> str:
    return Path(path).name.removesuffix(".gz")


def _is_typed(path: PathLike) -> bool:
    return is_columnar(path) or _text_name(path).endswith(_JSON) or has_tagged_words(path)


def has_tagged_words(path: PathLike) -> bool:
    """Returns whether a file has a word and its tags in each line, as CoNLL's: its first two words have."""
    if _text_name(path).endswith((".csv", *_JSON, _COLUMNAR)) or not Path(path).is_file():
        return False
    with contextlib.suppress(OSError), files.open_unpacked(path) as file:
        lines = file.read(1 << 16).decode("utf-8-sig", "replace").split("\n")
        return bool(_columns_of_words(lines)[2])
    return False


def _columns_of_words(lines: Iterable[str]) -> tuple[int, int, list[int]]:
    """Returns the number of columns, which of them has the words, and which a tag for each of two."""
    words = (_cells_of_word(line) for line in lines if not line.startswith(("#", _DOCUMENT)))
    first_two = [*itertools.islice(filter(None, words), 2)]
    columns = [*zip(*first_two, strict=False)] if len(first_two) == 2 else []
    tags = [n for n, cells in enumerate(columns) if n and all(map(_TAG.fullmatch, cells))]
    is_numbered = tags[-1:] > [1] and columns[0] in _NUMBERS
    return len(first_two[0]) if columns else 0, int(is_numbered), tags


def _cells_of_word(line: str) -> list[str]:
    return line.strip().split("\t") if "\t" in line.strip() else line.split()


def _tagged_sentences(path: PathLike, cure: str) -> Iterator[tuple[int, dict[str, list[str]]]]:
    """Yields the first line of each sentence in CoNLL's columns, its words and its tags."""
    lines = files.read_lines(path)
    width, word, (*others, tag) = _columns_of_words(lines)
    remark = f" (the last of {len(others) + 1} columns of tags; to read another, leave out those after it)"
    console.note_once(
        f"{path} has a word in each line, read as lists: tokens from column {word + 1}, tags from "
        f"{tag + 1}{remark * bool(others)}"
    )
    start, tokens, tags = 0, list[str](), list[str]()
    for number, line in enumerate([*lines, ""], start=1):
        cells = _cells_of_word(line)
        if cells and cells[0] != _DOCUMENT:
            if len(cells) == width and _TAG.fullmatch(cells[tag]):
                start = start if tokens else number
                tokens.append(cells[word])
                tags.append(cells[tag])
            elif tokens or line[0] != "#":  # before a sentence: a comment
                raise UserError(
                    f"{path} line {number}: found {shortened(line)}, expected {width} columns, with a "
                    f"tag such as O or B-PER in column {tag + 1}, as in the lines before; {cure}"
                )
        elif tokens:
            yield start, {"tokens": tokens, "tags": tags}
            tokens, tags = [], []


def _cells(
    path: PathLike, cure: str, separator: str | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yields the line and the cells of each row of a text table, its header included."""
    lines = files.read_lines(path)
    is_csv = _text_name(path).endswith(".csv")
    if separator is None:
        separator = separator_of(lines[0] if lines else "") if is_csv else "\t"
    if separator == "\t" and not is_csv:
        # Not `csv`: it refuses a carriage return within a line, which raw text may have.
        yield from enumerate((line.split("\t") for line in lines), start=1)
        return
    reader = csv.reader((line + "\n" for line in lines), strict=True, delimiter=separator)
    number = 1
    try:
        for cells in reader:
            yield number, cells or [""]
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path} line {number}: is not CSV ({error}); {cure}") from error


def _rows(
    path: PathLike,
    lines: Iterator[tuple[int, list[str]]],
    columns: Sequence[str],
    header: Sequence[str] | None,
    short_rows: list[int] | None,
    cure: str,
) -> Iterator[TableRow]:
    names = next(lines, (1, [""]))[1] if header is None else list(header)
    for number, kind in ((0, "lacking"), (2, "repeated:")):
        wrong = [name for name in columns if min(names.count(name), 2) == number]
        if wrong:
            shown = f"the columns {listed(names)}" if any(names) else "an empty line"
            raise UserError(
                f"{path} line 1: found {shown}, expected {', '.join(columns)} "
                f"({kind} {', '.join(wrong)}); {cure}"
            )
    for number, cells in lines:
        if short_rows is not None and len(cells) < len(names):
            if cells != [""]:
                short_rows.append(number)
            continue
        if len(cells) != len(names):
            raise UserError(
                f"{path} line {number}: found {counted(len(cells), 'column')}, expected {len(names)} "
                f"({listed(names)}); {cure}"
            )
        yield TableRow(path, number, dict(zip(names, cells, strict=True)))


def _typed_entries(path: PathLike, cure: str) -> Iterator[tuple[str, int, Any]]:
    """Yields `line` or `row`, its number, and its content: fields by column, or any JSON value."""
    if is_columnar(path):
        yield from (("row", *numbered) for numbered in enumerate(_columnar_entries(path), start=1))
    elif not _text_name(path).endswith(_JSON):
        yield from (("line", *numbered) for numbered in _tagged_sentences(path, cure))
    else:
        content, lines = parse_json_rows(path, files.decoded(files.read_bytes(path), path), cure)
        rows = content if len(lines) > 1 else _rows_of_json(path, content)
        unit = "line" if lines and not _text_name(path).endswith(".json") else "row"
        numbers = lines if len(lines) > 1 else itertools.count(lines[0] if lines else 1)
        yield from ((unit, number, row) for number, row in zip(numbers, rows, strict=False))


def parse_json_rows(path: PathLike, text: str, cure: str) -> tuple[Any, list[int]]:
    """Parses JSON, and JSON lines.

    Returns:
      What it holds, of several lines a list; and the numbers of lines that are JSON by themselves, from 1.
      Blank lines are passed over, as by pandas and `datasets`.
    """
    filled = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    is_alone = bool(filled) and all(line.lstrip()[0] == "{" for _, line in filled[:2])
    if not is_alone and len(filled) > 1:
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(filled[0][1])
            is_alone = True
    if is_alone and (len(filled) > 1 or not _text_name(path).endswith(".json")):
        rows = [files.parse_json(line, f"{path} line {n}", cure) for n, line in filled]
        return rows if len(rows) > 1 else rows[0], [number for number, _ in filled]
    return files.parse_json(text, str(path), cure), [filled[0][0]] if is_alone else []


def rows_under_data(content: Any) -> Any:
    """Returns the rows that JSON has under `data`, with names under `columns` or without; else it as it is.

    W&B writes tables so, and pandas with `orient="split"`. Beside other columns `data` is one of them.
    """
    fields = content if isinstance(content, dict) else {}
    rows, names = fields.get("data"), fields.get("columns")
    if not isinstance(rows, list) or any(
        isinstance(fields[name], list) and len(fields[name]) == len(rows)
        for name in fields.keys() - {"data", "columns", "index"}
    ):
        return content
    are_rows = [isinstance(row, list) and len(row) == len(names or ()) for row in rows]
    if isinstance(names, list) and all(are_rows) and len({*map(str, names)}) == len(names):
        return [dict(zip(names, row, strict=True)) for row in rows]
    return rows if all(isinstance(row, dict) for row in rows) else content


def separator_of(header: str) -> str:
    """Returns the separator of the names of columns, which may be quoted: comma, semicolon or tab."""
    between = re.sub('"[^"]*"', "", header)
    separator = max("\t,;", key=between.count)  # a stray tab may stand between commas
    return separator if separator in between else ","


def _rows_of_json(path: PathLike, content: Any) -> list[Any]:
    """Returns the rows of JSON that is not one object a line."""
    content = rows_under_data(content)
    if isinstance(content, list):
        return content
    fields = content if isinstance(content, dict) else {}
    columns = [*fields.values()]
    if columns and all(isinstance(cells, dict) and [*cells] == [*columns[0]] for cells in columns):
        cells_of_rows = zip(*(cells.values() for cells in columns), strict=True)
        return [dict(zip(fields, cells, strict=True)) for cells in cells_of_rows]
    are_lists = bool(columns) and all(isinstance(cells, list) for cells in columns)
    if are_lists and _text_name(path).endswith(".json"):
        raise UserError(
            f"{path} holds one object with lists under {listed(fields)}, expected an object for each row; "
            'write these, one per line or in a list, as to_json(..., orient="records") of pandas does'
        )
    return [content]


def _typed_rows(
    path: PathLike,
    columns: Sequence[str],
    values: Sequence[str],
    optional: Sequence[str],
    cure: str,
) -> Iterator[TableRow]:
    needed = (*columns, *values)
    for unit, number, entry in _typed_entries(path, cure):
        fields = entry if isinstance(entry, dict) else {}
        texts = {name: value for name, value in fields.items() if isinstance(value, str)}
        lists: dict[str, list[str]] = {}
        for name in (*values, *optional):
            value = fields.get(name)
            items = [as_text(item) for item in (value if isinstance(value, list) else [value])]
            words = [item for item in items if item is not None]
            if value is None and name in optional:
                texts[name] = ""
            elif len(words) == len(items):
                texts[name] = " ".join(words)
                if isinstance(value, list):
                    lists[name] = words
        lacking = [name for name in needed if name not in texts]
        for name in lacking:
            if name in fields:
                shown = "nothing" if fields[name] is None else shortened(fields[name])
                expected = "text" + ("" if name in columns else ", a number or a list of these")
                raise UserError(
                    f"{path} {unit} {number}: found {shown} under {name!r}, expected {expected}; {cure}"
                )
        if lacking:
            raise UserError(
                f"{path} {unit} {number}: expected an object with {', '.join(needed)}, "
                f"found {listed(fields) or 'none'}; {cure}"
            )
        yield TableRow(path, number, texts, lists, unit)


def as_text(value: Any) -> str | None:
    """Returns a text or a finite number as text; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(int(value))
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return f"{value}" if is_number else None


def is_columnar(path: PathLike) -> bool:
    """Returns whether a table is Parquet, or a folder or shard of `datasets`, which pyarrow reads."""
    return Path(path).suffix in (_COLUMNAR, _ARROW) or Path(path).is_dir()


def table_files(path: PathLike) -> tuple[Path, ...]:
    """Returns the files of a table: the table itself, or the shards of a split in a folder of `datasets`."""
    folder = Path(path)
    if not folder.is_dir():
        return (folder,)
    shards = sorted(folder.glob(_SHARDS))
    if not shards:
        raise UserError(
            f"{folder} has no {_SHARDS}; give a file, or the folder of one split that "
            "`datasets.save_to_disk` wrote"
        )
    return tuple(shards)


def table_of_files(shards: Sequence[Path]) -> Path:
    """Returns the table whose `table_files` these are; one shard of several is a table of its own."""
    folder = shards[0].parent
    is_folder = shards[0].suffix == _ARROW and sorted(folder.glob(_SHARDS)) == [*shards]
    return folder if is_folder else shards[0]


def column_names(path: PathLike) -> list[str]:
    """Returns the columns of a table; of JSON those of the first row."""
    if is_columnar(path):
        return list(read_columnar(path).column_names)
    if not _is_typed(path):
        return next(_cells(path, "give a table"), (1, [""]))[1]
    first = next(_typed_entries(path, "give a table"), ("", 0, None))[2]
    return list(first) if isinstance(first, dict) else []


def read_columnar(path: PathLike) -> pyarrow.Table:
    """Reads Parquet, an Arrow stream, or a folder of such streams as Hugging Face `datasets` saves them."""
    need_pyarrow(path)
    import pyarrow.parquet

    shards = table_files(path)
    try:
        with shards[0].open("rb") as handle:
            start = handle.peek(MOST_BYTES_NEEDED)
        if Path(path).suffix == _COLUMNAR or start.startswith(b"PAR1"):
            with pyarrow.parquet.ParquetFile(path) as file:
                # The size of the file says little: 2^31 equal rows take a few kilobytes.
                kinds = file.schema_arrow.types
                widths = (k.bit_width // 8 if pyarrow.types.is_primitive(k) else 4 for k in kinds)
                check_memory(path, file.metadata.num_rows * sum(widths))
                table = file.read()
        else:
            refuse_bytes(path, start)
            tables = []
            for file in shards:
                with file.open("rb") as handle, pyarrow.ipc.open_stream(handle) as reader:
                    tables.append(reader.schema.empty_table())
                    for batch in reader:
                        tables.append(pyarrow.Table.from_batches([batch]))
                        check_memory(path, 2 * batch.nbytes)  # room for one more, and a margin
            table = pyarrow.concat_tables(tables)
        table.validate(full=True)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; check the path") from None
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        damaged = UserError(f"{path} cannot be read ({str(error).splitlines()[0]}); write it again")
        raise memory_error(error, path) or damaged from error
    twice = [name for name in table.column_names if table.column_names.count(name) > 1]
    if twice:
        raise UserError(f"{path} has the column {twice[0]!r} twice; write it again")
    # pandas writes rows' numbers as a column; a name that it made up means nothing.
    made_up = re.compile(r"__index_level_\d+__")
    return table.select([name for name in table.column_names if not made_up.fullmatch(name)])


def need_pyarrow(path: PathLike) -> None:
    """Refuses a file that needs pyarrow where that is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"{path} needs pyarrow ({error}); pip install 'multiberts[parquet]'"
        ) from error


def _columnar_entries(path: PathLike) -> Iterator[dict[str, Any]]:
    """Yields the rows of a columnar table, with names in place of class numbers."""
    table = read_columnar(path)
    described = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    where, cure = f"the metadata of {path}", "write it again"
    kinds = {"info": Mapping[str, Any] | None}
    info = files.parse_json_fields(described, where, kinds, cure).get("info") or {}
    files.check_fields(info, {"features": Mapping[str, Any] | None}, where, cure)
    features = info.get("features") or {}
    all_names = {column: _class_names(features.get(column)) for column in table.column_names}
    names = {column: classes for column, classes in all_names.items() if classes}
    files.check_fields(names, dict.fromkeys(names, list[str]), f"the class names of {path}", cure)
    for batch in table.to_batches():
        for entry in batch.to_pylist():
            for column, classes in names.items():
                entry[column] = _named(entry[column], classes)
            yield entry


def _class_names(feature: Any) -> Any:
    """Returns the names of a feature's classes, or of the classes that it lists; None without."""
    if isinstance(feature, list):  # how older versions write a list of a feature
        return _class_names(feature[0]) if feature else None
    if not isinstance(feature, Mapping):
        return None
    return feature.get("names") or _class_names(feature.get("feature"))


def _named(value: Any, names: Sequence[str]) -> Any:
    """Returns the names of class numbers; other values, such as -1 for none, are unchanged."""
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value
