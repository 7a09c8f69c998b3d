"""`multiberts predict`: what a fine-tuned model answers on new data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from multiberts.evaluate.prediction_files.run_file import RUN_FILE, files_of, write_run
from multiberts.finetune.finetuning import write_sets
from multiberts.finetune.outputs import facts_of_model, fingerprinted, fingerprints, provenance
from multiberts.finetune.predictor import STANDARD_INPUT, Predictor, spooled, timed
from multiberts.runs import console
from multiberts.runs.directory import RunDirectory


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
    """Predicts with a fine-tuned model on new data; nothing is trained.

    Each file is an evaluation set that is named as the file. Texts and pairs are read from TSV, CSV, JSON
    and Parquet by their columns, or from `.txt` with one text per line (a tab parts the texts of a
    pair); questions from a table with `question` and `context`, or from SQuAD's JSON; coreference from GAP
    and CoNLL-2012. Labels need not be there. A file given as `name=path` is read as
    `finetune.evaluation_files` reads it, such as `hans=heuristics_evaluation_set.txt`.

    Without run_dir, JSON lines are printed, one per example: the columns of its row, its id, `prediction` (a
    class by its name, a number, a text, or a list of labels or tags), `label` where the true answer is known,
    the classes' `probabilities`, and the model's own scores. With it, a run directory is written as
    `finetune` does, which scores, comparisons and tables take for further sets of the model's run.

    Args:
      model: a fine-tuned checkpoint: of `finetune.keep`, of transformers, or of Google's run_classifier or
        run_squad; `hub:<repository>` fetches one.
      files: data files; `-` is standard input: JSON, or lines of text.
      run_dir: the directory of the predictions; None: they are printed.
      text_columns: names of the one or two columns with text, where they are not the usual ones.
      label_column: name of the column with the label, where it is not the task's own.
      task_modules: modules with code that register further tasks, as `finetune` takes them. Those that a
        model names are imported only where they are given here.
      compile_step: whether XLA compiles the model: some seconds per process, then faster batches. `auto`:
        it does, but a small set (1,200 word pieces by BERT-Base, 32,000 by mini) that is printed is computed
        in NumPy, at once, where no engine is named (`--engine`, MULTIBERTS_ENGINE) and no accelerator found.
    """
    predictor = Predictor(
        model,
        text_columns=text_columns,
        label_column=label_column,
        task_modules=task_modules,
        # Run directories record an engine, which computes all that is in them.
        compile_step=compile_step if run_dir is None else bool(compile_step),
    )
    with spooled(files) as (new, named):
        data = predictor.data(new, named)
        inputs = data.inputs()
        if run_dir is None:
            for line in predictor.lines(data, new, is_timed=True):
                text = json.dumps(line, ensure_ascii=False, default=str)
                # Characters that the console cannot show are escaped as in JSON.
                is_shown = console.printable(text) == text
                console.report(text if is_shown else json.dumps(line, default=str))
            return
        run = RunDirectory(
            run_dir,
            stage="predict",
            parameters={"sets": sorted({*new, *named}), "text_columns": list(text_columns),
                        "label_column": label_column},
            inputs={"model": predictor.checkpoint.directory, **inputs},
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
                model=fingerprinted(opened.directory),
                files=fingerprints(inputs),
            )
            write_run(
                run.path, {**content, "task": predictor.task.name, "evaluation_sets": entries}
            )
            run.finish([RUN_FILE, *files_of(entries)])
