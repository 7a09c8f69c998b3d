from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.example_columns import encode
from multiberts.evaluate.prediction_files.prediction_file import read_file
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.evaluate.prediction_files.tfrecord import framed
from multiberts.runs.errors import UserError
from multiberts.tests.worlds import write_run

IDS = ["t/dev/0", "t/dev/1", "t/dev/2"]


COLUMNS = {"example_ids": IDS, "labels": [0, 1, 1], "predictions": [0, 1, 0]}


def run_on_dev(path: Path, task: str = "t", pretrain_seed: int = 0, **columns) -> Path:
    return write_run(path, {"dev": {**COLUMNS, **columns}}, task=task, pretrain_seed=pretrain_seed)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    scores = np.array([[0.5, -1.5], [2.0, 3.25], [0.0, 1e-8]], np.float32)
    extras = {
        "occupation": ["cook", "cook", "bäcker"],
        "gender": ["masculine", "feminine", "neutral"],
        "percent_feminine": [20.5, 20.5, 71.0],
    }
    run = run_on_dev(tmp_path / "a", scores=scores, extras=extras, pretrain_seed=3)
    dataset = read_predictions([run], "dev")
    assert dict(dataset.sizes) == {"run": 1, "example": 3, "class": 2}
    assert dataset["prediction"].values.tolist() == [[0, 1, 0]]
    assert dataset["label"].values.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(dataset["scores"].values[0], scores)
    assert dataset["example_id"].values.tolist() == IDS
    assert dataset["occupation"].values.tolist() == extras["occupation"]
    assert dataset["gender"].values.tolist() == extras["gender"]
    assert dataset["percent_feminine"].values.tolist() == extras["percent_feminine"]
    assert dataset["pretrain_seed"].values.tolist() == [3]
    assert dataset["procedure"].values.tolist() == ["base"]
    assert dataset.attrs == {"task": "t", "evaluation_set": "dev", "metrics": ["accuracy"]}


def test_same_predictions_give_the_same_bytes(tmp_path: Path) -> None:
    extras = {"gender": ["neutral"] * 3, "occupation": ["cook"] * 3, "percent_feminine": [1.0] * 3}
    first = run_on_dev(tmp_path / "a", extras=extras)
    second = run_on_dev(tmp_path / "b", extras=dict(reversed(extras.items())))
    file = "predictions/dev.tfrecord"
    assert (first / file).read_bytes() == (second / file).read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": (0, 0, 1)}, "label of example 't/dev/1' is 0.0, but 1.0 in"),
        ({"example_ids": ["t/dev/0", "t/dev/1", "x"]}, "lacks example 't/dev/2', which"),
        ({"task": "other"}, "is a run of task other, expected t"),
        ({"scores": np.zeros((3, 4))}, "has 4 scores per example, expected 0"),
        ({"extras": {"gender": ["neutral"] * 3}}, "do not both have the column gender"),
    ],
)
def test_runs_that_disagree_are_refused(tmp_path: Path, changes: dict, message: str) -> None:
    first = run_on_dev(tmp_path / "a")
    second = run_on_dev(tmp_path / "b", **changes)
    with pytest.raises(UserError) as caught:
        read_predictions([first, second], "dev")
    assert message in str(caught.value)


def test_further_examples_are_refused(tmp_path: Path) -> None:
    first = run_on_dev(tmp_path / "a", example_ids=IDS[:2], labels=(0, 1), predictions=(0, 1))
    second = run_on_dev(tmp_path / "b")
    with pytest.raises(UserError, match=r"a lacks .*'t/dev/2', .*b has"):
        read_predictions([first, second], "dev")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    run = run_on_dev(tmp_path / "a")
    file = run / "predictions/dev.tfrecord"
    whole = file.read_bytes()
    size = len(whole) // 3
    # Within records, as test_tfrecord.py does everywhere, and at their ends.
    for kept, line in (
        *((size - 1, "record 1:"), (size + 5, "record 2:"), (3 * size - 1, "record 3:")),
        *((0, "has no record"), (size, "expected 3"), (2 * size, "expected 3")),
    ):
        file.write_bytes(whole[:kept])
        with pytest.raises(UserError, match=f"{re.escape(str(file))}.*{line}"):
            read_predictions([run], "dev")


def test_records_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    number = np.ones((1, 1), np.float32)
    ours = {"example_id": [["x"]], "label": number, "prediction": number, "scores": number[:, :0]}
    file = tmp_path / "a.tfrecord"
    for second, line in (
        ({"input_ids": np.ones((1, 1), np.int64)}, "example_id"),
        (ours, r"'x' .*record 1\b"),
        ({**ours, "example_id": [["y"]], "label": number * np.nan}, "no label"),
    ):
        file.write_bytes(framed([*encode(ours), *encode(second)]))
        with pytest.raises(UserError, match=rf"a\.tfrecord record 2: .*{line}"):
            read_file(file)
    file.write_text("a text file, not a TFRecord\n")
    with pytest.raises(UserError, match=r"a\.tfrecord record 1: "):
        read_file(file)


def test_only_finished_runs_are_found(tmp_path: Path) -> None:
    run_on_dev(tmp_path / "b" / "second", pretrain_seed=2)
    run_on_dev(tmp_path / "a", pretrain_seed=1)
    run_on_dev(tmp_path / "unfinished")
    (tmp_path / "unfinished" / "DONE").unlink()
    found = find_runs(tmp_path)
    assert [path for path, _ in found] == [tmp_path / "a", tmp_path / "b" / "second"]
    assert [content["pretrain_seed"] for _, content in found] == [1, 2]
    with pytest.raises(UserError, match="is not a folder"):
        find_runs(tmp_path / "absent")


def test_unknown_evaluation_set_is_refused(tmp_path: Path) -> None:
    run = run_on_dev(tmp_path / "a")
    with pytest.raises(UserError, match=r"no evaluation set 'test', .* dev\b"):
        read_predictions([run], "test")
