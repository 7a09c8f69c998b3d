"""Logs of Inspect: scorers of several values, samples without a score, and folders of several tasks."""

import json
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.inspect_logs import samples_of_archive
from multiberts.evaluate.readers.reading import read_tasks
from multiberts.evaluate.readers.rows import BY_TIME
from multiberts.runs.archives import open_archive
from multiberts.runs.errors import UserError
from multiberts.tests.evaluate.readers.one_task import read_arms

# Written by Inspect itself (tests/samples/make.py): two tasks of two models, twice, and one of a third.
TASKS = Path(__file__).parents[2] / "samples/inspect/tasks"


def test_a_key_of_a_scorer_with_several_values_is_chosen() -> None:
    with pytest.raises(UserError, match=r"grader\.right, grader\.length; .*--score=grader\.right$"):
        read_arms(str(TASKS), task="graded")
    arms = read_arms(str(TASKS), ColumnNames(score="grader.length"), "graded")
    assert sorted(arms) == ["mockllm/a", "mockllm/b"]
    assert all(np.nanmax(arm.values) == 1 for arm in arms.values())  # digits of an answer
    assert {arm.read.more_is_better for arm in arms.values()} == {None}


def test_a_grade_says_which_way_is_better_whatever_the_scorer_is_called() -> None:
    arms = read_arms(str(TASKS), ColumnNames(score="includes"), "sums")
    assert {arm.read.more_is_better for arm in arms.values()} == {True}  # C, not I


@pytest.mark.parametrize("form", ["eval", "json"])
def test_samples_without_a_score_are_missing(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for log in TASKS.glob("*graded*"):
        (tmp_path / log.name).write_bytes(log.read_bytes())
        if form == "json":
            with open_archive(log) as archive:
                text = json.dumps(samples_of_archive(archive))
            (tmp_path / log.name).unlink()
            (tmp_path / log.with_suffix(".json").name).write_text(text)
    arm = read_arms(str(tmp_path), ColumnNames(score="grader.right"))["mockllm/b"]
    missing = dict(zip(arm.example_ids, np.isnan(arm.values).all(axis=0), strict=True))
    # Not scored, NaN, and ended in an error.
    assert [name for name, is_missing in missing.items() if is_missing] == ["2+1", "2+2", "2+3"]
    assert not np.isnan(arm.values[:, 3:]).any()
    assert (
        "1 of 6 samples ended in an error (\"RuntimeError('no answer')\")"
        in capsys.readouterr().err
    )


def test_a_task_is_read_without_the_scorers_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        UserError, match="found the scores .*, and this task alone with --task=graded$"
    ):
        read_arms(str(TASKS))
    capsys.readouterr()
    with pytest.raises(UserError, match="no task 'other', only graded, sums; .*--task=graded$"):
        read_arms(str(TASKS), task="other")
    assert capsys.readouterr().err == ""
    arms = read_arms(str(TASKS), ColumnNames(score="match"), "sums")
    assert sorted(arms) == ["mockllm/a", "mockllm/b", "mockllm/c"]
    assert "without a log" not in capsys.readouterr().err
    read_arms(str(TASKS), ColumnNames(score="grader.right"), "graded")
    assert "left out mockllm/c, without a log of graded" in capsys.readouterr().err


def test_epochs_of_the_only_log_of_a_model_are_repeats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = next((TASKS.parent / "eval/seed_1").glob("*.eval"))
    with open_archive(log) as archive:
        content = samples_of_archive(archive)
    for model, epochs in (("a", 2), ("b", 3)):
        content["eval"]["model"] = model
        samples = list(content["samples"])
        if epochs == 3:  # with another answer
            again = {"epoch": 3, "scores": {"match": {"value": "I"}}}
            samples += [sample | again for sample in samples if sample["epoch"] == 1]
        (tmp_path / f"{model}.json").write_text(json.dumps({**content, "samples": samples}))
    arms = read_arms(str(tmp_path), ColumnNames(score="match"))
    assert {name: arm.seeds for name, arm in arms.items()} == {"a": [1, 2], "b": [1, 2, 3]}
    assert {arm.read.columns["seed"] for arm in arms.values()} == {BY_TIME}
    assert "the 2 evaluations of a have the same score" in capsys.readouterr().err
    assert read_arms(str(log.parent.parent), ColumnNames(score="match"))[""].seeds == [1, 2]


def test_what_an_eval_set_writes_beside_its_logs_is_no_prediction(tmp_path: Path) -> None:
    for log in TASKS.glob("*sums*"):
        (tmp_path / log.name).write_bytes(log.read_bytes())
    (tmp_path / ".eval-set-id").write_text("x")
    (tmp_path / "eval-set.json").write_text('{"eval_set_id": "x", "tasks": []}')
    (tmp_path / "logs.json").write_text("{}")
    assert len(read_arms(str(tmp_path), ColumnNames(score="match"))) == 3


def test_tasks_of_one_scorer_are_read_together(tmp_path: Path) -> None:
    for log in TASKS.glob("*sums*"):
        for task in ("sums", "other"):
            with open_archive(log) as archive:
                content = samples_of_archive(archive)
            content["eval"]["task"] = task
            (tmp_path / f"{log.stem}_{task}.json").write_text(json.dumps(content))
    tasks = read_tasks(str(tmp_path), ColumnNames(score="includes"), may_name=True)
    assert {name: rows.roles["arm"].nunique() for name, rows in tasks.items()} == {
        "other": 3, "sums": 3,
    }  # fmt: skip
