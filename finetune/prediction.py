"""`multiberts predict`: predictions of a fine-tuned model on new data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from multiberts.evaluate.prediction_files.run_file import RUN_FILE, files_of, write_run
from multiberts.finetune.finetuning import write_sets
from multiberts.finetune.outputs import facts_of_model, provenance, recorded
from multiberts.finetune.predictor import STANDARD_INPUT, Predictor, spooled, timed
from multiberts.finetune.settings import IDENTITY
from multiberts.runs import console
from multiberts.runs.directory import RunDirectory
from multiberts.runs.identity import check_unchanged
from multiberts.runs.parameters import leaves


def predict(
    *,
    model: str,
    files: Sequence[str] = (STANDARD_INPUT,),
    run_dir: str | None = None,
    text_columns: Sequence[str] = (),
    label_column: str | None = None,
    task_modules: Sequence[str] = (),
    compile_step: bool | Literal["auto"] = "auto",
) -> None:
    """Predicts with a fine-tuned model on new data, without training.

    Each file is an evaluation set with the file's name. Texts and pairs are read from columns of TSV, CSV,
    JSON and Parquet, or from `.txt` with one text per line (a tab separates the texts of a pair); questions
    from a table with `question` and `context`, or from SQuAD's JSON; coreference from GAP and CoNLL-2012.
    Labels are optional. A file given as `name=path` is read like `finetune.evaluation_files`, for example
    `hans=heuristics_evaluation_set.txt`.

    Without run_dir, it prints a JSON line per example: the columns of its row, its id, `prediction` (a class
    name, a number, a text, or a list of labels or tags), `label` if the true answer is known, the classes'
    `probabilities`, and the model's scores. With run_dir, it writes a run directory like `finetune`; scores,
    comparisons and tables treat its sets as further sets of the model's run.

    Args:
      model: a fine-tuned checkpoint: of `finetune.keep`, of transformers, or of Google's run_classifier or
        run_squad; `hub:<repository>` fetches one.
      files: data files; `-` is standard input: JSON, or lines of text.
      run_dir: directory for the predictions; None: print them.
      text_columns: one or two names of text columns, if not the usual ones.
      label_column: name of the label column, if not the task's.
      task_modules: modules with code that register further tasks, as for `finetune`. Modules that a model
        names are imported only if they are given here.
      compile_step: whether XLA compiles the model: some seconds per process, then faster batches. `auto`:
        yes, except for small printed sets (1,200 word pieces with BERT-Base, 32,000 with mini), which NumPy
        computes at once if no engine is named (`--engine`, MULTIBERTS_ENGINE) and no accelerator is found.
    """
    predictor = Predictor(
        model,
        text_columns=text_columns,
        label_column=label_column,
        task_modules=task_modules,
        # Run directories record an engine, so NumPy must not compute part of them.
        compile_step=compile_step if run_dir is None else bool(compile_step),
    )
    with spooled(files) as (new, named):
        data = predictor.data(new, named)
        if run_dir is None:
            for line in predictor.lines(data, new, is_timed=True):
                text = json.dumps(line, ensure_ascii=False, default=str)
                # Characters that the console cannot show are escaped as in JSON.
                is_shown = console.printable(text) == text
                console.report(text if is_shown else json.dumps(line, default=str))
            return
        files_of_data = IDENTITY.open(
            {**data.inputs(), "task_modules": list(task_modules)}, run_dir
        )
        run = RunDirectory(
            run_dir,
            stage="predict",
            parameters={"sets": sorted({*new, *named}), "text_columns": list(text_columns),
                        "label_column": label_column},
            inputs={"model": predictor.checkpoint, **files_of_data},
            call={"model": model, "files": list(files), "text_columns": list(text_columns),
                  "label_column": label_column, "compile_step": bool(compile_step),
                  **({"task_modules": list(task_modules)} if task_modules else {})},
        )  # fmt: skip
        if run.done:
            return
        sets = timed(predictor.sets(data))
        with run:
            entries = write_sets(run.path, sets)
            opened, record = predictor.checkpoint, predictor.record
            content = provenance(
                opened,
                facts_of_model(opened),
                {"sequence_length": record["sequence_length"], **record["arguments"]},
                model=recorded({"model": opened})["model"][0],
                files=recorded(files_of_data),
            )
            check_unchanged(*leaves(files_of_data))
            write_run(
                run.path, {**content, "task": predictor.task.name, "evaluation_sets": entries}
            )
            run.finish([RUN_FILE, *files_of(entries)])
