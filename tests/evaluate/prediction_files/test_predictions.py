from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.prediction_file import read_file, write_predictions
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import find_runs
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


def test_records_are_plain_tensorflow_examples(tmp_path: Path) -> None:
    import tensorflow as tf

    run = run_on_dev(tmp_path / "a", scores=np.array([[1.0], [2.0], [3.0]]))
    (first, *_) = tf.data.TFRecordDataset(str(run / "predictions/dev.tfrecord"))
    feature = tf.train.Example.FromString(first.numpy()).features.feature
    assert sorted(feature) == ["example_id", "label", "prediction", "scores"]
    assert feature["example_id"].bytes_list.value == [b"t/dev/0"]
    assert feature["scores"].float_list.value == [1.0]


def test_same_predictions_give_the_same_bytes(tmp_path: Path) -> None:
    extras = {"gender": ["neutral"] * 3, "occupation": ["cook"] * 3, "percent_feminine": [1.0] * 3}
    first = run_on_dev(tmp_path / "a", extras=extras)
    second = run_on_dev(tmp_path / "b", extras=dict(reversed(extras.items())))
    file = "predictions/dev.tfrecord"
    assert (first / file).read_bytes() == (second / file).read_bytes()


def test_runs_are_aligned_by_example_id(tmp_path: Path) -> None:
    first = run_on_dev(tmp_path / "a", labels=(0, 1, 1), predictions=(0, 0, 1))
    second = run_on_dev(
        tmp_path / "b",
        example_ids=[IDS[2], IDS[0], IDS[1]],
        labels=(1, 0, 1),
        predictions=(5, 6, 7),
        pretrain_seed=1,
    )
    dataset = read_predictions([first, second], "dev")
    assert dataset["example_id"].values.tolist() == IDS
    assert dataset["prediction"].values.tolist() == [[0, 0, 1], [6, 7, 5]]
    assert dataset["pretrain_seed"].values.tolist() == [0, 1]


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
    # Everywhere in the second record's header, in every record, and at the records' ends.
    for kept in sorted({*range(0, len(whole), 9), *range(size - 2, size + 16), 2 * size}):
        file.write_bytes(whole[:kept])
        with pytest.raises(UserError) as caught:
            read_predictions([run], "dev")
        assert str(file) in str(caught.value)
        if kept % size:
            assert f"record {kept // size + 1}:" in str(caught.value)
        else:
            assert "has no record" in str(caught.value) or "expected 3" in str(caught.value)


def test_foreign_records_are_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    file = tmp_path / "other.tfrecord"
    ours = tmp_path / "ours.tfrecord"
    write_predictions(ours, example_ids=["x"], labels=np.ones(1), predictions=np.ones(1))
    (record,) = tf.data.TFRecordDataset(str(ours))
    feature = {"input_ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))}
    foreign = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(record.numpy())
        writer.write(foreign)
    with pytest.raises(UserError, match=r"other\.tfrecord record 2: .*example_id"):
        read_file(file)
    file.write_text("a text file, not a TFRecord\n")
    with pytest.raises(UserError, match=r"other\.tfrecord record 1: "):
        read_file(file)


def test_repeated_ids_are_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    file = tmp_path / "b.tfrecord"
    write_predictions(file, example_ids=["x"], labels=np.ones(1), predictions=np.ones(1))
    (record,) = tf.data.TFRecordDataset(str(file))
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(record.numpy())
        writer.write(record.numpy())
    with pytest.raises(UserError, match=r"b\.tfrecord record 2: .*'x' .*record 1\b"):
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
