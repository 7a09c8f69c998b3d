"""New texts for a trained model: tables by their columns, or lines of text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from multiberts.evaluate.readers.rows import TEXT_NAMES
from multiberts.finetune.data_files import check_form, has_text_lines
from multiberts.finetune.text.labels import is_label
from multiberts.finetune.text.readers import examples_of, with_labels
from multiberts.finetune.text.task import TOKENS, TextExamples, TextTask
from multiberts.runs.errors import UserError, counted, listed
from multiberts.runs.files import PathLike, read_lines
from multiberts.runs.tables import column_names, read_rows

_USUAL_WORDS = (("tokens",), ("words",))
_USUAL_PAIRS: tuple[tuple[str, ...], ...] = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
)


@dataclasses.dataclass(frozen=True)
class NewTextReader:
    """Reads texts or pairs by the names of their columns; ids are `<task>/<set>/<row>`, from 0.

    Attributes:
      text_columns: the user's column names; empty: the task's columns, or the usual names.
      label_column: the user's label column, which must exist; None: the task's, which is optional.
    """

    task: TextTask
    text_columns: tuple[str, ...]
    label_column: str | None

    @property
    def pairs(self) -> bool:
        return len(self.task.text_columns) == 2

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        """Reads the file of the set `name`."""
        (path,) = files
        if has_text_lines(path, of_words=self.task.kind == TOKENS):
            texts = self._lines(path)
            return TextExamples(
                example_ids=[f"{self.task.name}/{name}/{row}" for row in range(len(texts[0]))],
                first_texts=texts[0],
                second_texts=texts[1] if self.pairs else None,
                labels=None,
                words=[text.split() for text in texts[0]] if self.task.kind == TOKENS else None,
            )
        columns, label = self._columns(path), self.label_column or self.task.label_column
        task = dataclasses.replace(self.task, text_columns=columns, label_column=label)
        # Words may be lists in typed tables.
        lists = columns if self.task.kind == TOKENS else ()
        cure = "correct the file"
        rows = [
            *read_rows(path, () if lists else columns, values=lists, optional=[label], cure=cure)
        ]
        task = with_labels(task, column_names(path), rows)
        is_labelled = any(is_label(row, task) or label in row.lists for row in rows)
        cure = ", as the model has; correct it, or leave the column out"
        return examples_of(enumerate(rows), task, name, cure, is_labelled=is_labelled)

    def _lines(self, path: Path) -> list[list[str]]:
        """Returns the texts of a file with an example per line; a tab separates the texts of a pair."""
        rows = [line.split("\t") for line in read_lines(path)]
        wanted = 2 if self.pairs else 1
        for number, row in enumerate(rows, start=1):
            if len(row) != wanted:
                form = (
                    "two texts with a tab between them" if wanted == 2 else "one text without a tab"
                )
                raise UserError(
                    f"{path} line {number}: found {counted(len(row), 'part')} between tabs, expected "
                    f"{form}, as task {self.task.name} has; correct the line"
                )
        return [[row[column] for row in rows] for column in range(wanted)]

    def _columns(self, path: Path) -> tuple[str, ...]:
        usual = _USUAL_PAIRS if self.pairs else tuple((name,) for name in TEXT_NAMES)
        if self.task.kind == TOKENS:
            usual = (*_USUAL_WORDS, *usual)
        check_form(path)
        names = column_names(path)
        if self.label_column is not None and self.label_column not in names:
            raise _lacking(path, names, repr(self.label_column), "name it with --label_column")
        task_columns = [self.text_columns or self.task.text_columns]
        if not self.text_columns:
            task_columns.append(self.task.dataset_texts)
        columns = _first(task_columns, names)
        if columns is None and not self.text_columns:
            pair = None if self.pairs else _first(_USUAL_PAIRS, names)
            columns = _first(usual, names) if pair is None else None
        if columns is not None:
            return columns
        taken = "pairs" if self.pairs else "single texts"
        wanted = " and ".join(map(repr, task_columns[0]))
        raise _lacking(
            path, names, f"{wanted}, as the model takes {taken}", "name it with --text_columns"
        )


def columns_of_files(files: Sequence[PathLike]) -> tuple[str, ...]:
    r"""Returns the text columns of files, for a model that does not record whether it takes pairs.

    Args:
      files: tables with columns of usual names, or lines of text with a tab between the texts of a pair;
        no files: the columns of a pair, for published sets.

    Examples:
      >>> path = getfixture("tmp_path") / "new.jsonl"
      >>> _ = path.write_text('{"premise": "A cake.", "hypothesis": "Food.", "id": 4}\n')
      >>> columns_of_files([path])
      ('premise', 'hypothesis')
    """
    columns_by_count: dict[int, tuple[Path, tuple[str, ...]]] = {}
    for path in map(Path, files):
        if has_text_lines(path, of_words=False):
            is_pair = any("\t" in line for line in read_lines(path)[:1])
            columns = _USUAL_PAIRS[0] if is_pair else TEXT_NAMES[:1]
        else:
            check_form(path)
            names = column_names(path)
            pair = _first(_USUAL_PAIRS, names) or ()
            others = tuple(name for name in TEXT_NAMES if name in names and name not in pair)
            if bool(pair) + len(others) != 1:
                raise _lacking(
                    path, names,
                    "one with text or two of a pair, as the model does not say which it takes",
                    "name them with --text_columns",
                )  # fmt: skip
            columns = pair or others
        columns_by_count.setdefault(len(columns), (path, columns))
    if len(columns_by_count) > 1:
        raise UserError(
            f"{columns_by_count[1][0]} has single texts and {columns_by_count[2][0]} pairs, expected the "
            "same of all files; give those that the model takes"
        )
    return next((columns for _, columns in columns_by_count.values()), _USUAL_PAIRS[0])


def _first(choices: Sequence[tuple[str, ...]], names: Sequence[str]) -> tuple[str, ...] | None:
    return next((each for each in choices if all(column in names for column in each)), None)


def _lacking(path: Path, names: list[str], wanted: str, cure: str) -> UserError:
    columns = listed(map(repr, names)) or "no column"
    return UserError(f"{path}: found the columns {columns}, expected {wanted}; {cure}")
