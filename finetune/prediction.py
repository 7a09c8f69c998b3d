"""`multiberts predict`: what a fine-tuned model answers on new data."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.checkpoint import hugging_face
from multiberts.bert.checkpoint.checkpoint import (
    HUGGING_FACE,
    VOCABULARY,
    check_checkpoint,
    layout_of,
    read_checkpoint,
    read_provenance,
)
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.checkpoint.hub import checkpoint_directory
from multiberts.evaluate.prediction_files.run_file import RUN_FILE, files_of, write_run
from multiberts.finetune.data_files import LINES_SUFFIX, FileContent
from multiberts.finetune.finetuning import write_sets
from multiberts.finetune.outputs import provenance_of_prediction
from multiberts.finetune.task import (
    KIND,
    DataArguments,
    EvaluationSet,
    Task,
    registered_tasks,
    task_named,
)
from multiberts.finetune.text.task import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from multiberts.finetune.training_options import RECIPE
from multiberts.runs import console
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError, counted

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.finetune.task import Learner

STANDARD_INPUT = "-"
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)=(.+)")
# By the number of texts of an example.
_TAKEN = {1: "single texts", 2: "pairs of texts", None: "something else"}


def predict(
    *,
    model: str,
    files: Sequence[str] = (STANDARD_INPUT,),
    run_dir: str | None = None,
    text_columns: Sequence[str] = (),
    label_column: str | None = None,
    task_modules: Sequence[str] = (),
    compile_step: bool = True,
) -> None:
    """Predicts with a fine-tuned model on new data; nothing is trained.

    Each file is an evaluation set that is named as the file. Texts and pairs are read from TSV, CSV, JSON
    lines and Parquet by their columns, or from `.txt` with one text per line (a tab parts the texts of a
    pair); questions from a table with `question` and `context`, or from SQuAD's JSON; coreference from GAP
    and CoNLL-2012. Labels need not be there. A file given as `name=path` is read as
    `finetune.evaluation_files` reads it, such as `hans=heuristics_evaluation_set.txt`.

    Without run_dir, JSON lines are printed, one per example. With it, a run directory is written as
    `finetune` does, which scores, comparisons and tables take for further sets of the model's run.

    Args:
      model: a fine-tuned checkpoint: of `finetune.keep`, or of transformers; `hub:<repository>` fetches one.
      files: data files; `-` is standard input: JSON lines, or lines of text.
      run_dir: the directory of the predictions; None: they are printed.
      text_columns: names of the one or two columns with text, where they are not the usual ones.
      label_column: name of the column with the label, where it is not the task's own.
      task_modules: modules with code that register further tasks, as `finetune` takes them. Those that a
        model names are imported only where they are given here.
      compile_step: whether XLA compiles the model: some seconds per process, then faster batches.

    Raises:
      UserError: bad input, naming file and cure; nothing has been written.
    """
    directory = checkpoint_directory(model)
    config = check_checkpoint(directory)
    record = _record(directory)
    task, arguments = _task(directory, record, tuple(task_modules))
    with _spooled(files) as (new, named):
        if task.new_data is None:
            raise UserError(
                f"{model} is a model of task {task.name}, whose module reads no new data; give its Task a "
                "new_data"
            )
        family = task.new_data(
            DataArguments(
                **arguments,
                new_files=new,
                evaluation_files=named,
                text_columns=tuple(text_columns),
                label_column=label_column,
            )
        )
        inputs = family.inputs()
        run = None
        if run_dir is not None:
            run = RunDirectory(
                run_dir,
                stage="predict",
                parameters={"sets": sorted({*new, *named}), "text_columns": list(text_columns),
                            "label_column": label_column},
                inputs={"model": directory, **inputs},
                call={"model": model, "files": list(files), "text_columns": list(text_columns),
                      "label_column": label_column, "compile_step": compile_step,
                      **({"task_modules": list(task_modules)} if task_modules else {})},
            )  # fmt: skip
            if run.done:
                return
        data = family.read(config, FileContent.of(directory / VOCABULARY))
        checkpoint = read_checkpoint(directory)
        learner = data.learner(
            checkpoint,
            fingerprint=FileContent.of(directory).checksum,
            finetune_seed=0,
            compile_step=compile_step,
            training=RECIPE,
        )
        sets = _timed(learner.evaluate(_weights(directory, checkpoint, record, learner, task)))
        if run is None:
            for line in _lines(sets):
                console.report(line)
            return
        with run:
            entries = write_sets(run.path, sets)
            content = provenance_of_prediction(directory, checkpoint.provenance, inputs)
            write_run(run.path, {**content, "task": task.name, "evaluation_sets": entries})
            run.finish([RUN_FILE, *files_of(entries)])


def _record(directory: Path) -> Mapping[str, Any]:
    """Returns what a model was fine-tuned on.

    Raises:
      UserError: it was not.
    """
    record = read_provenance(directory).get(FINE_TUNED)
    if record is None and layout_of(directory) == HUGGING_FACE:
        record = hugging_face.read_fine_tuned(directory)
    if record is None:
        raise UserError(
            f"{directory} is not a fine-tuned model, as it has no head of a task; give the `model` of a run "
            "with finetune.keep = 'last' or 'best'"
        )
    found: Mapping[str, Any] = record
    return found


def _task(
    directory: Path, record: Mapping[str, Any], modules: tuple[str, ...]
) -> tuple[Task, dict[str, Any]]:
    """Returns a model's task, and the arguments that find its data.

    Args:
      directory: of the model.
      record: of what it was fine-tuned on, which a stranger may have written.
      modules: that the user named; no other one is imported.

    Raises:
      UserError: the task is not known here, or the record names a place of this machine.
    """
    given, head = record["arguments"], record["head"]
    name, labels = record["task"], given.get("labels")
    known = registered_tasks(modules)
    if not given:  # by another program, whose names of tasks and order of labels are its own
        labels = head["labels"]
        answered = [task.name for task in known.values() if task.foreign_head == head["kind"]]
        if answered:
            name = answered[0]
        elif head["kind"] in (CLASSIFICATION, REGRESSION, MULTI_LABEL, TOKENS):
            # The model does not record whether it takes texts or pairs: no columns, and the files decide.
            columns = ["text"] if head["kind"] == TOKENS else []
            name, given = "texts", {"options": {KIND: head["kind"], "text_columns": columns}}
        else:
            raise UserError(
                f"{directory} was fine-tuned by another program for {head['kind']}, which `predict` does not "
                "read; use transformers"
            )
    options = given.get("options") or {}
    is_own = name not in known
    named = [module for module in given.get("task_modules") or () if module not in modules]
    if named:
        line = (
            f"{directory} names modules with code ({', '.join(named)}), which were not imported; if you "
            f"trust them, give --task_modules={','.join((*modules, *named))}"
        )
        if is_own and labels is None and not options.get(KIND):
            raise UserError(f"{line}: task {name!r} is not known without them")
        console.progress(f"note: {line}")
    if is_own and labels is None and options.get(KIND):
        labels = head["labels"]  # those of the train file
    elif is_own and labels is None:
        raise UserError(
            f"{directory} is a model of task {name!r}, which is not known here; give the modules that "
            "register it as --task_modules=..., with their folder in PYTHONPATH"
        )
    task = task_named(name, labels, modules, options)
    if places := [option for option in task.place_options if options.get(option) is not None]:
        raise UserError(
            f"{directory} sets {places[0]}, a folder to write into, which no kept model does; remove "
            "it from its record"
        )
    return task, {
        "task": task.name,
        "labels": None if labels is None else tuple(labels),
        "sequence_length": record["sequence_length"],
        "options": task.completed(options),
    }


@contextlib.contextmanager
def _spooled(files: Sequence[str]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yields new files and evaluation files by the names of their sets; standard input is a file, too.

    Raises:
      UserError: two sets have one name, a file is missing, or standard input is empty or a terminal.
    """
    new: dict[str, str] = {}
    named: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for given in files:
            match = _NAMED.fullmatch(given)
            if match and not Path(given).exists():
                name, path, place = match[1], match[2], named
            elif given == STANDARD_INPUT:
                name, path, place = "stdin", _standard_input(Path(folder)), new
            else:
                name, path, place = Path(given).name.partition(".")[0], given, new
            if name in (*new, *named):
                raise UserError(
                    f"predict.files gives the set {name} twice; write {name}_2={path} for one of them"
                )
            if not Path(path).exists():
                raise UserError(f"{path} does not exist; check the path")
            place[name] = path
        yield new, named


def _standard_input(folder: Path) -> str:
    if sys.stdin.isatty():
        raise UserError("there are no files, and standard input is a terminal; give a file")
    content = sys.stdin.buffer.read()
    if not content.strip():
        raise UserError("standard input is empty; give lines of text or JSON, or a file")
    suffix = ".jsonl" if content.lstrip()[:1] == b"{" else LINES_SUFFIX
    path = folder / f"stdin{suffix}"
    path.write_bytes(content)
    return str(path)


def _weights(
    directory: Path,
    checkpoint: Checkpoint,
    record: Mapping[str, Any],
    learner: Learner,
    task: Task,
) -> dict[str, np.ndarray]:
    """Returns the trained weights as the task's learner takes them.

    Raises:
      UserError: the head is of another number of outputs than the task has, or of another number of texts.
    """
    number, wanted_number = record["head"]["num_texts"], learner.head.num_texts
    if number is not None and number != wanted_number:
        raise UserError(
            f"{directory} takes {_TAKEN[number]}, but task {task.name} has {_TAKEN[wanted_number]}; give the "
            "module of the task that it was trained on"
        )
    known = {**checkpoint.parameters, **checkpoint.head}
    weights = {}
    for name, wanted in learner.initial_parameters().items():
        if name not in known or known[name].shape != wanted.shape:
            found = f"has shape {known[name].shape}" if name in known else "is missing"
            raise UserError(
                f"{directory}: {name} of the head {found}, but task {task.name} has {wanted.shape}; labels "
                "and head are of two models: copy the checkpoint again"
            )
        weights[name] = known[name]
    return weights


def _timed(sets: Iterable[EvaluationSet]) -> Iterator[EvaluationSet]:
    """Yields the sets as they come, and reports how long the model took."""
    iterator = iter(sets)
    while True:
        started = time.perf_counter()
        predicted = next(iterator, None)
        if predicted is None:
            return
        seconds, count = time.perf_counter() - started, len(predicted.example_ids)
        console.progress(
            f"{predicted.name}: {counted(count, 'example', ',')} in {seconds:.1f} s, "
            f"{count / seconds:,.1f} per second"
        )
        yield predicted


def _lines(sets: Iterable[EvaluationSet]) -> Iterator[str]:
    """Yields a JSON object per example: its id, the prediction by name where it has one, scores, outputs."""
    for predicted in sets:
        for row, example_id in enumerate(predicted.example_ids):
            answer = predicted.predictions[row].item()
            line: dict[str, Any] = {"set": predicted.name, "example_id": example_id}
            classes = predicted.classes
            line["prediction"] = answer if classes is None else classes[int(answer)]
            if predicted.labels is not None:
                label = predicted.labels[row].item()
                line["label"] = label if classes is None else classes[int(label)]
            if predicted.scores is not None:
                line["scores"] = predicted.scores[row].tolist()
            line |= {name: _plain(column[row]) for name, column in predicted.outputs.items()}
            text = json.dumps(line, ensure_ascii=False)
            # Characters that the console cannot show are escaped as in JSON.
            is_shown = console.printable(text) == text
            yield text if is_shown else json.dumps(line)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
