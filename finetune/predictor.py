"""A fine-tuned model that stays loaded, for new examples in files or in memory."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.training.state import DeviceWeights
from multiberts.evaluate.metrics.label_sets import SEPARATOR
from multiberts.evaluate.metrics.probability import softmax
from multiberts.evaluate.prediction_files.prediction_file import ANSWERS, PREDICTION_TEXT
from multiberts.evaluate.prediction_files.run_file import RUN_FILE, check_set_names
from multiberts.finetune.data_files import LINES_SUFFIX, has_text_lines
from multiberts.finetune.fine_tuned_model import MODEL
from multiberts.finetune.model import EvaluationSet
from multiberts.finetune.squad.questions import ids_of_rows, is_official
from multiberts.finetune.task import (
    KIND,
    FinetuningData,
    NewDataArguments,
    Task,
    registered_tasks,
    task_named,
)
from multiberts.finetune.text.task import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from multiberts.runs import console
from multiberts.runs.errors import UserError, counted
from multiberts.runs.tables import table_entries

# The public name; `predict` takes the rest.
__all__ = ["Predictor"]

STANDARD_INPUT = "-"
_NAMED = re.compile(r"([^/=]*)=(.+)")
# By the number of texts of an example.
_COLUMNS_OF_TEXTS = {1: ("text",), 2: ("text1", "text2")}
_TAKEN = {1: "single texts", 2: "pairs of texts", None: "something else"}
QUESTIONS, _COREFERENCE = "question_answering", "coreference"
# Kinds of heads whose new examples are rows of a table.
_KINDS_OF_TABLES = (CLASSIFICATION, REGRESSION, MULTI_LABEL, TOKENS, QUESTIONS)
_OURS = ("set", "example_id", "prediction", "label", "probabilities", "scores")


class Predictor:
    """A fine-tuned model that stays loaded for repeated predictions.

    The first call reads the weights and compiles; later calls only compute. Answers are the objects that
    `multiberts predict` prints: `Predictor("results/SST-2-0/model")(["A good cake."])` returns a list with
    one object, whose `prediction` is a class.

    Attributes:
      checkpoint: the model; `directory` is its folder.
      record: record of its fine-tuning, see `bert.checkpoint.fine_tuned`.
      task: the task that it was fine-tuned on.

    Examples:
      >>> from multiberts.runs.errors import UserError
      >>> try:
      ...     Predictor("nowhere")
      ... except UserError as error:
      ...     print(error)
      nowhere does not exist; give the directory of a checkpoint
    """

    def __init__(
        self,
        model: str,
        *,
        text_columns: Sequence[str] = (),
        label_column: str | None = None,
        task_modules: Sequence[str] = (),
        compile_step: bool | Literal["auto"] = "auto",
    ):
        """Opens a model and finds its task; see `predict` for the arguments.

        Raises:
          UserError: it is not a fine-tuned model, its task is unknown, or its module reads no new data.
        """
        for run in (Path(model), Path(model).parent):
            if (run / RUN_FILE).is_file() and not (run / MODEL).exists():
                raise UserError(
                    f"{run} is a fine-tuning run that kept no model; fine-tune again with --keep=last and "
                    f"another --run_dir, and give its folder {MODEL!r}"
                )
        self.checkpoint = Checkpoint.open(model)
        self.directory = self.checkpoint.directory
        record: Mapping[str, Any] | None = self.checkpoint.provenance.get(FINE_TUNED)
        if record is None:
            raise UserError(
                f"{self.directory} is not a fine-tuned model, as it has no head of a task known here; "
                "give the `model` of a run with finetune.keep = 'last' or 'best'"
            )
        self.record = record
        self.task: Task
        self.task, self._arguments = _task(self.checkpoint, tuple(task_modules))
        if self.task.new_data is None:
            raise UserError(
                f"{model} is a model of task {self.task.name}, whose module reads no new data; give its "
                "Task a new_data"
            )
        self._text_columns, self._label_column = tuple(text_columns), label_column
        self._compile_step = compile_step
        self._weights: DeviceWeights | None = None

    def __call__(
        self, examples: Sequence[str | Sequence[str] | Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Predicts examples in memory, in their order.

        Args:
          examples: texts, pairs of texts, or mappings with the columns of a file, such as `question` and
            `context`; all of one form.

        Returns:
          An object per example: its columns, and those that `multiberts predict` adds.

        Raises:
          UserError: no examples, or a form that the model does not take.
        """
        if not examples:
            raise UserError("there are no examples; give at least one")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "examples.jsonl"
            rows = (json.dumps(self._columns_of(example)) for example in examples)
            path.write_text("".join(f"{row}\n" for row in rows))
            return self.predict_files([str(path)])

    def predict_files(self, files: Sequence[str]) -> list[dict[str, Any]]:
        """Predicts the examples of files, given as for `multiberts predict`."""
        with spooled(files) as (new, named):
            return list(self.lines(self.data(new, named), new))

    def _columns_of(self, example: str | Sequence[str] | Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(example, Mapping):
            return example
        texts = [example] if isinstance(example, str) else list(example)
        names = self._text_columns or _COLUMNS_OF_TEXTS.get(len(texts), ())
        if len(names) != len(texts):
            raise UserError(
                f"an example has {counted(len(texts), 'text')}, expected {len(names) or '1 or 2'}; give a "
                "text, two texts, or a mapping with the columns"
            )
        return dict(zip(names, texts, strict=True))

    def data(self, new: Mapping[str, str], named: Mapping[str, str]) -> FinetuningData:
        """Returns the task's reader of these files.

        Args:
          new: files of new examples by set name.
          named: files of published sets by set name.
        """
        assert self.task.new_data is not None
        return self.task.new_data(
            NewDataArguments(
                **self._arguments,
                new_files=new,
                evaluation_files=named,
                text_columns=self._text_columns,
                label_column=self._label_column,
            )
        )

    def sets(self, data: FinetuningData) -> Iterator[EvaluationSet]:
        """Yields the predictions on each set."""
        checkpoint, head = self.checkpoint, self.record["head"]
        model = data.read(checkpoint)
        model.compile_step = self._compile_step
        if self._weights is None:  # the same ones at every call, so that they stay on the device
            number, wanted_number = head["num_texts"], model.head.num_texts
            if number is not None and number != wanted_number:
                raise UserError(
                    f"{self.directory} takes {_TAKEN[number]}, but task {self.task.name} has "
                    f"{_TAKEN[wanted_number]}; give the module of the task that it was trained on"
                )
            weights, variables = model.initial_parameters(0), checkpoint.variables
            for name, wanted in weights.items():
                if name not in variables or variables[name].shape != wanted.shape:
                    problem = (
                        f"has shape {variables[name].shape}" if name in variables else "is missing"
                    )
                    raise UserError(
                        f"{self.directory}: {name} of the head {problem}, but task {self.task.name} has "
                        f"{wanted.shape}; labels and head are of two models: copy the checkpoint again"
                    )
            self._weights = DeviceWeights({name: variables[name] for name in weights})
        return model.evaluate(self._weights)

    def lines(
        self, data: FinetuningData, new: Mapping[str, str], *, is_timed: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yields an object per example, in file order.

        Args:
          new: files of new examples by set name; objects include the columns of tables.
          is_timed: whether to report the time for each set.
        """
        sets = self.sets(data)
        for predicted in timed(sets) if is_timed else sets:
            yield from answer_lines(predicted, self.record["head"], new.get(predicted.name))


def answer_lines(
    predicted: EvaluationSet, head: Mapping[str, Any], path: str | None
) -> Iterator[dict[str, Any]]:
    """Yields an object per example: the columns of its row, its id, prediction, label and outputs.

    Args:
      head: record of the head, see `bert.checkpoint.fine_tuned`.
      path: path of the file of new examples; None for a published set, which has no further columns.
    """
    kind, ids = head["kind"], list(predicted.example_ids)
    rows: list[Mapping[str, Any]] = []
    order: Sequence[int] = range(len(ids))
    is_table = path is not None and not has_text_lines(path, of_words=kind == TOKENS)
    if path is not None and is_table and kind in _KINDS_OF_TABLES:
        rows = list(table_entries(path))
        if kind == QUESTIONS and is_official(rows):
            rows = []
        elif kind == QUESTIONS:  # the examples are sorted by id, the rows are not
            row_of_id = {name: number for number, name in enumerate(ids)}
            order = [row_of_id[name] for name in ids_of_rows(rows)]
    probabilities: np.ndarray | None = None  # of the classes, or of each label of a set
    if predicted.scores is not None and kind in (CLASSIFICATION, _COREFERENCE):
        probabilities = softmax(predicted.scores)
    elif predicted.scores is not None and kind == MULTI_LABEL:
        # Imported here: it takes 0.2 s, for which `--help` would wait.
        from scipy.special import expit

        probabilities = expit(predicted.scores.astype(np.float64))
    names = head["labels"] if kind == MULTI_LABEL else predicted.classes
    for number, row in enumerate(order):
        line: dict[str, Any] = {"set": predicted.name, "example_id": ids[row]}
        if PREDICTION_TEXT in predicted.outputs:
            line["prediction"] = _names(predicted.outputs[PREDICTION_TEXT][row], kind)
        else:
            line["prediction"] = _named(predicted.predictions[row].item(), predicted.classes)
        if predicted.labels is not None and ANSWERS in predicted.extras:
            truth = predicted.extras[ANSWERS][row]
            line["label"] = _names(truth, kind) if isinstance(truth, str) else list(truth)
        elif predicted.labels is not None:
            line["label"] = _named(predicted.labels[row].item(), predicted.classes)
        if probabilities is not None:
            values = [round(float(value), 6) for value in probabilities[row]]
            line["probabilities"] = dict(zip(names, values, strict=True)) if names else values
        if predicted.scores is not None:
            line["scores"] = predicted.scores[row].tolist()
        for name, column in predicted.outputs.items():
            if name != PREDICTION_TEXT:
                value = column[row]
                line[name] = value.item() if isinstance(value, np.generic) else value
        if not rows:
            yield line
            continue
        # Input columns that clash with ours become `input_<name>`.
        input_columns = {
            name
            if name not in {*_OURS, *line} or value == line.get(name, ...)
            else f"input_{name}": value
            for name, value in rows[number].items()
        }
        yield {**input_columns, **line}


def _names(text: str, kind: str) -> str | list[str]:
    if kind == TOKENS:
        return text.split()
    if kind == MULTI_LABEL:
        return text.split(SEPARATOR) if text else []
    return text


def _named(number: float, classes: Sequence[str] | None) -> Any:
    return number if classes is None else classes[int(number)]


def timed(sets: Iterable[EvaluationSet]) -> Iterator[EvaluationSet]:
    """Yields the sets, and reports the model's time for each."""
    started = time.perf_counter()
    for predicted in sets:
        seconds, count = time.perf_counter() - started, len(predicted.example_ids)
        console.progress(
            f"{predicted.name}: {counted(count, 'example', ',')} in {seconds:.1f} s, "
            f"{count / seconds:,.1f} per second"
        )
        yield predicted
        started = time.perf_counter()


@contextlib.contextmanager
def spooled(files: Sequence[str]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yields new files and evaluation files by set name; standard input is copied to a file."""
    new: dict[str, str] = {}
    named: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            match = _NAMED.fullmatch(file)
            if match and not Path(file).exists():
                name, path, paths = match[1], match[2], named
            elif file == STANDARD_INPUT:
                name, path, paths = "stdin", _standard_input(Path(folder)), new
            else:
                name, path, paths = Path(file).name.partition(".")[0], file, new
            check_set_names([*new, *named, name])
            if not Path(path).exists():
                raise UserError(f"{path} does not exist; check the path")
            paths[name] = path
        yield new, named


def _task(checkpoint: Checkpoint, modules: tuple[str, ...]) -> tuple[Task, dict[str, Any]]:
    """Returns a model's task, and the arguments that find its data.

    Args:
      checkpoint: the model; its record of fine-tuning may come from strangers, so it is not trusted.
      modules: modules that the user named; no others are imported.
    """
    directory, record = checkpoint.directory, checkpoint.provenance[FINE_TUNED]
    arguments, head = record["arguments"], record["head"]
    name, labels = record["task"], arguments.get("labels")
    tasks = registered_tasks(modules)
    if not arguments:  # of another program, with other task names and its own order of labels
        labels = head["labels"]
        answered = [task.name for task in tasks.values() if task.foreign_head == head["kind"]]
        if answered:
            name = answered[0]
        elif head["kind"] in (CLASSIFICATION, REGRESSION, MULTI_LABEL, TOKENS):
            # The model does not record whether it takes texts or pairs: without columns, the files decide.
            columns = ["text"] if head["kind"] == TOKENS else []
            name, arguments = "texts", {"options": {KIND: head["kind"], "text_columns": columns}}
        else:
            raise UserError(
                f"{directory} was fine-tuned by another program for {head['kind']}, which `predict` does not "
                "read; use transformers"
            )
    options = arguments.get("options") or {}
    is_unregistered = name not in tasks
    named = [module for module in arguments.get("task_modules") or () if module not in modules]
    if named:
        line = (
            f"{directory} names modules with code ({', '.join(named)}), which were not imported; if you "
            f"trust them, give --task_modules={','.join((*modules, *named))}"
        )
        if is_unregistered and labels is None and not options.get(KIND):
            raise UserError(f"{line}: task {name!r} is not known without them")
        console.progress(f"note: {line}")
    if is_unregistered and labels is None and options.get(KIND):
        labels = head["labels"]  # the labels of the train file
    elif is_unregistered and labels is None:
        raise UserError(
            f"{directory} is a model of task {name!r}, which is not known here; give the modules that "
            "register it as --task_modules=..., with their folder in PYTHONPATH"
        )
    task = task_named(name, labels, modules, options)
    if folders := [option for option in task.place_options if options.get(option) is not None]:
        raise UserError(
            f"{directory} sets {folders[0]}, a folder to write into, which no saved model sets; remove "
            "it from its record"
        )
    return task, {
        "task": task.name,
        "labels": None if labels is None else tuple(labels),
        "sequence_length": record["sequence_length"],
        "options": task.completed(options),
    }


def _standard_input(folder: Path) -> str:
    if sys.stdin.isatty():
        raise UserError("there are no files, and standard input is a terminal; give a file")
    content = sys.stdin.buffer.read()
    if not content.strip():
        raise UserError("standard input is empty; give lines of text or JSON, or a file")
    suffix = ".jsonl" if content.lstrip(b" \t\r\n[")[:1] == b"{" else LINES_SUFFIX
    path = folder / f"stdin{suffix}"
    path.write_bytes(content)
    return str(path)
