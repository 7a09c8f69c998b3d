"""Submissions to the leaderboard have the layout of the sample that it gives out."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.prediction_file import write_predictions
from multiberts.evaluate.prediction_files.run_file import evaluation_entry, write_run
from multiberts.finetune.text.glue import GLUE_TASKS
from multiberts.finetune.text.submissions import TEST_SETS, submission
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import read_bytes

FILES = {test_set.file: test_set for test_set in TEST_SETS}


def run_with(folder: Path, task: str, sets: dict[str, tuple[Sequence[str], np.ndarray]]) -> str:
    """A finished run with these ids and predictions."""
    run = RunDirectory(folder, stage="finetune", parameters={"task": task})
    with run:
        entries = {}
        for name, (example_ids, predictions) in sets.items():
            file = f"predictions/{name}.tfrecord"
            write_predictions(
                folder / file, example_ids=example_ids, labels=None, predictions=predictions
            )
            entries[name] = evaluation_entry(
                folder, file=file, examples=len(example_ids), metrics=[]
            )
        write_run(
            folder,
            {
                "task": task,
                "evaluation_sets": entries,
                "procedure": "base",
                "pretrain_seed": 0,
                "data_seed": 0,
                "step": 1,
                "learning_rate": 2e-5,
                "finetune_seed": 0,
            },
        )
        run.finish(["run.json", *(entry["file"] for entry in entries.values())])
    return str(folder)


def predicted(file: str, predictions: np.ndarray) -> dict[str, tuple[Sequence[str], np.ndarray]]:
    """Predictions on a whole test set, its examples in another order than the file's."""
    test_set = FILES[file]
    order = np.random.default_rng(0).permutation(test_set.num_rows)
    ids = [f"{test_set.ids}/{row}" for row in order]
    return {test_set.evaluation_set: (ids, predictions[order])}


@pytest.mark.parametrize("file", [name for name in FILES if name not in ("QNLI", "QQP")])
def test_the_sample_comes_out_of_its_own_predictions(
    shared_data: Path, tmp_path: Path, file: str
) -> None:
    """The sample's QNLI is of that set's first version, and QQP is not among the kept files."""
    sample = read_bytes(shared_data / "reference" / "glue_submission_sample" / f"{file}.tsv.gz")
    names = [line.split("\t")[1] for line in sample.decode().splitlines()[1:]]
    assert len(names) == FILES[file].num_rows
    labels = GLUE_TASKS[FILES[file].task].labels
    numbers = [float(name) if labels is None else labels.index(name) for name in names]
    run = run_with(tmp_path / "run", FILES[file].task, predicted(file, np.array(numbers)))
    submission(run_dir=str(tmp_path / "submission"), runs=run)
    assert (tmp_path / "submission" / f"{file}.tsv").read_bytes() == sample
    assert not (tmp_path / "submission" / "submission.zip").exists()


def test_scores_are_cut_to_the_range_and_rounded(tmp_path: Path) -> None:
    scores = np.full(FILES["STS-B"].num_rows, 2.0)
    scores[:4] = -0.3, 5.2, 3.14159, 0.0004
    run = run_with(tmp_path / "run", "STS-B", predicted("STS-B", scores))
    submission(run_dir=str(tmp_path / "out"), runs=run)
    lines = (tmp_path / "out" / "STS-B.tsv").read_text().splitlines()
    assert lines[:6] == [
        "index\tprediction",
        "0\t0.000",
        "1\t5.000",
        "2\t3.142",
        "3\t0.000",
        "4\t2.000",
    ]


def test_one_run_of_mnli_answers_three_sets(tmp_path: Path) -> None:
    sets = {}
    for number, file in enumerate(("MNLI-m", "MNLI-mm", "AX")):
        sets |= predicted(file, np.full(FILES[file].num_rows, number))
    run = run_with(tmp_path / "run", "MNLI", sets)
    submission(run_dir=str(tmp_path / "out"), runs=[run])
    for file, name in (("MNLI-m", "contradiction"), ("MNLI-mm", "entailment"), ("AX", "neutral")):
        lines = (tmp_path / "out" / f"{file}.tsv").read_text().splitlines()
        assert lines[-1] == f"{FILES[file].num_rows - 1}\t{name}"


def test_all_files_make_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    few = tuple(dataclasses.replace(test_set, num_rows=2) for test_set in TEST_SETS)
    monkeypatch.setattr("multiberts.finetune.text.submissions.TEST_SETS", few)
    runs = []
    for task in {test_set.task for test_set in few}:
        sets = {
            test_set.evaluation_set: ([f"{test_set.ids}/{row}" for row in range(2)], np.zeros(2))
            for test_set in few
            if test_set.task == task
        }
        runs.append(run_with(tmp_path / task, task, sets))
    submission(run_dir=str(tmp_path / "out"), runs=sorted(runs))
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert sorted(archive.namelist()) == sorted(f"{name}.tsv" for name in FILES)
        assert archive.read("QNLI.tsv") == b"index\tprediction\n0\tentailment\n1\tentailment\n"


def test_what_the_leaderboard_would_refuse_is_refused(tmp_path: Path) -> None:
    whole = predicted("WNLI", np.zeros(146))
    ids, predictions = whole["test"]
    short = run_with(tmp_path / "short", "WNLI", {"test": (ids[1:], predictions[1:])})
    foreign = run_with(tmp_path / "foreign", "WNLI", {"test": (["x", *ids[1:]], predictions)})
    only_dev = run_with(tmp_path / "dev", "WNLI", {"dev": (ids, predictions)})
    other = run_with(tmp_path / "other", "pair", {"test": (ids, predictions)})
    good, again = (run_with(tmp_path / name, "WNLI", whole) for name in ("good", "again"))
    for runs, message in (
        ([short], "found 145 examples, expected 146"),
        ([foreign], "found 146 examples such as x, expected 146, WNLI/test/0 to 145"),
        ([only_dev], "with the sets dev, none of them a test set"),
        ([other], "is a run of task pair"),
        ([good, again], "both have predictions for WNLI"),
    ):
        with pytest.raises(UserError) as caught:
            submission(run_dir=str(tmp_path / "out"), runs=runs)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()
