"""Columns of every kind through a prediction file, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.prediction_file import read_file, write_predictions

BASE = {"example_ids": ["a", "b"], "labels": [1, 0], "predictions": [1, 1]}


def test_columns_of_every_kind_are_read_back(tmp_path: Path):
    answers = [("Denver", "Denver Broncos", ""), ()]
    write_predictions(
        tmp_path / "x",
        **BASE,
        extras={"answers": answers, "heuristic": ["", "größer"], "share": [0.1, 2], "rank": [2**40, -3]},
        outputs={
            "prediction_text": ["Denver", ""],
            "null_odds": np.array([-0.5, 3], np.float64),
            "start": np.array([3, -1], np.int16),
            "no_answer": [False, True],
            "best_texts": [["x"], ["y"]],
        },
    )  # fmt: skip
    found = read_file(tmp_path / "x")
    assert found.extras["answers"].tolist() == answers
    assert found.extras["heuristic"].tolist() == ["", "größer"]
    assert found.extras["heuristic"].dtype.kind == "U"
    np.testing.assert_array_equal(found.extras["share"], np.array([0.1, 2], np.float32))
    assert (found.extras["rank"].dtype, found.extras["rank"].tolist()) == (np.int64, [2**40, -3])
    assert found.outputs["prediction_text"].tolist() == ["Denver", ""]
    assert found.outputs["null_odds"].tolist() == [-0.5, 3]
    assert found.outputs["start"].tolist() == [3, -1]
    assert found.outputs["no_answer"].tolist() == [0, 1]
    # A list stays a list where each has one text.
    assert found.outputs["best_texts"].tolist() == [("x",), ("y",)]
    assert sorted(found.extras) == ["answers", "heuristic", "rank", "share"]


def test_unknown_labels(tmp_path: Path):
    write_predictions(tmp_path / "x", **{**BASE, "labels": None})
    assert np.isnan(read_file(tmp_path / "x").labels).all()
    with pytest.raises(ValueError, match="1 of 2 labels"):
        write_predictions(tmp_path / "y", **{**BASE, "labels": [1, np.nan]})


@pytest.mark.parametrize(
    "name",
    ["label", "run", "epochs", "pretrain_seed", "Answers", "a b", "", "x" * 41, "outputs/x", "a[]"],
)
def test_names_that_are_taken_or_odd_are_refused(tmp_path: Path, name: str):
    for kind in ("extras", "outputs"):
        with pytest.raises(ValueError, match=re.escape(f"column '{name}': ")):
            write_predictions(tmp_path / "x", **BASE, **{kind: {name: [1, 2]}})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extras": {"x": [1]}}, "columns of lengths"),
        ({"extras": {"x": [1, "a"]}}, "expected texts, lists of texts, or numbers"),
        ({"extras": {"x": [[1], [2]]}}, "expected lists of texts"),
        ({"extras": {"x": [1, 2]}, "outputs": {"x": [1, 2]}}, "both extras and outputs"),
        ({"example_ids": ["a", "a"]}, "twice"),
        ({"scores": np.zeros(2)}, "scores [examples, classes]"),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, changes: dict, message: str):
    with pytest.raises(ValueError) as caught:
        write_predictions(tmp_path / "x", **{**BASE, **changes})
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_column_that_was_read_before_is_the_same_array(tmp_path: Path):
    for name in ("x", "y"):
        write_predictions(tmp_path / name, **BASE, extras={"heuristic": ["p", "q"]})
    write_predictions(
        tmp_path / "z", **BASE, extras={"heuristic": ["p", "r"], "subcase": ["p", "q"]}
    )
    known: dict = {}
    x, y, z = (read_file(tmp_path / name, cache=known) for name in ("x", "y", "z"))
    assert x.example_ids is y.example_ids is z.example_ids
    assert x.extras["heuristic"] is y.extras["heuristic"]
    assert z.extras["heuristic"].tolist() == ["p", "r"]


def test_reading_and_writing_import_no_tensorflow(tmp_path: Path, run_python):
    code = (
        "import sys\n"
        "from multiberts.evaluate.prediction_files.prediction_file import write_predictions, read_file\n"
        f"path = {str(tmp_path / 'x')!r}; "
        "write_predictions(path, example_ids=['a'], labels=[1], predictions=[1]); read_file(path); "
        "assert 'tensorflow' not in sys.modules"
    )
    assert run_python("-c", code).returncode == 0
