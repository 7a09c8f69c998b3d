"""Predictions on GLUE's test sets as the leaderboard takes them: `multiberts submission`.

One file a test set with a fixed name, the header `index` and `prediction`, and a line for each row of
the test file: the label's name, or a score with three decimals. `submission.zip` is the file to upload;
it is written when all eleven are there.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from multiberts.evaluate.prediction_files.predictions import read_run_predictions
from multiberts.evaluate.prediction_files.run_file import read_run
from multiberts.finetune.text.glue import GLUE_TASKS, TEST_SETS, LeaderboardFile
from multiberts.finetune.text.task import TextTask
from multiberts.runs.console import report
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically

ARCHIVE = "submission.zip"
# STS-B asks for similarities between these.
_LOWEST_SCORE, _HIGHEST_SCORE = 0.0, 5.0
# The earliest date a zip file can hold: the archive is the same whenever it is written.
_NO_DATE = (1980, 1, 1, 0, 0, 0)


def submission(*, run_dir: str, runs: str | Sequence[str]) -> None:
    """Writes the leaderboard's files for the test sets that some runs have predicted.

    Outputs in run_dir: `<test set>.tsv`; `submission.zip` when all are there.

    Args:
      run_dir: the directory of this run.
      runs: finished fine-tuning runs with predictions on test sets (finetune.options =
        {"predict_test": True}; for AX finetune.evaluation_files = {"ax": ...} of an MNLI run). No two
        of them may have the same set.

    Raises:
      UserError: a run that has not finished, does not belong to a GLUE task or has no test set; a set of two
        runs; or one with other rows than the leaderboard's. Nothing has been written then.
    """
    paths = [Path(path) for path in ([runs] if isinstance(runs, str) else runs)]
    answers = _answers(paths)
    run = RunDirectory(run_dir, stage="submission", parameters={}, inputs={"runs": paths})
    if run.done:
        return
    texts = {
        f"{test_set.file}.tsv": submission_text(path, test_set)
        for test_set, path in answers.items()
    }
    missing = [test_set.file for test_set in TEST_SETS if test_set not in answers]
    with run:
        for file, text in texts.items():
            write_atomically(run.path / file, text)
        if missing:
            report(f"no {ARCHIVE}: the leaderboard also expects {', '.join(missing)}")
        else:
            write_atomically(run.path / ARCHIVE, _archive(texts))
        run.finish([*texts, *([] if missing else [ARCHIVE])])


def _answers(paths: Sequence[Path]) -> dict[LeaderboardFile, Path]:
    """Returns the run that answers each test set.

    Raises:
      UserError: a run answers none, or two answer the same.
    """
    found: dict[LeaderboardFile, Path] = {}
    for path in paths:
        content = read_run(path)
        there = [
            test_set
            for test_set in TEST_SETS
            if test_set.task == content["task"]
            and test_set.evaluation_set in content["evaluation_sets"]
        ]
        if not there:
            raise UserError(
                f"{path} is a run of task {content['task']} with the sets "
                f"{', '.join(content['evaluation_sets'])}, none of them a test set of GLUE; fine-tune "
                'with finetune.options = {"predict_test": True}'
            )
        for test_set in there:
            if test_set in found:
                raise UserError(
                    f"{found[test_set]} and {path} both have predictions for {test_set.file}; give one "
                    "run for each test set"
                )
            found[test_set] = path
    return {test_set: found[test_set] for test_set in TEST_SETS if test_set in found}


def submission_text(run_dir: Path, test_set: LeaderboardFile) -> str:
    """Returns the file of one test set.

    Raises:
      UserError: the prediction file is damaged, or its rows are not those of the test set.
    """
    read = read_run_predictions(run_dir, test_set.evaluation_set)
    row_of_id = {f"{test_set.ids}/{row}": row for row in range(test_set.num_rows)}
    foreign = next((name for name in read.example_ids if name not in row_of_id), None)
    if foreign is not None or len(read.example_ids) != test_set.num_rows:
        found = f"{len(read.example_ids)} examples" + (f" such as {foreign}" if foreign else "")
        raise UserError(
            f"{run_dir}, set {test_set.evaluation_set}: found {found}, expected {test_set.num_rows}, "
            f"{test_set.ids}/0 to {test_set.num_rows - 1}; predict the whole official test file"
        )
    predictions = np.empty(test_set.num_rows)
    predictions[[row_of_id[name] for name in read.example_ids]] = read.predictions
    names = _names(GLUE_TASKS[test_set.task], predictions)
    lines = ["index\tprediction", *(f"{row}\t{name}" for row, name in enumerate(names))]
    return "\n".join(lines) + "\n"


def _names(task: TextTask, predictions: np.ndarray) -> list[str]:
    """Returns labels' names, or scores within their range."""
    if task.labels is None:
        return [f"{score:.3f}" for score in predictions.clip(_LOWEST_SCORE, _HIGHEST_SCORE)]
    return [task.labels[int(number)] for number in predictions]


def _archive(texts: dict[str, str]) -> bytes:
    """Returns a zip file with the files side by side."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in texts.items():
            archive.writestr(
                zipfile.ZipInfo(file, _NO_DATE), text, compress_type=zipfile.ZIP_DEFLATED
            )
    return buffer.getvalue()
