"""Parquet: what other programs read of the prediction files."""

from __future__ import annotations

from pathlib import Path

import pandas
import pyarrow.parquet
import pytest

from multiberts import stats
from multiberts.evaluate.exporting import export
from multiberts.runs.errors import UserError
from multiberts.tests.worlds import write_run


def test_tables_of_unlike_runs_become_one(tmp_path: Path):
    known = {"labels": [1, 0], "extras": {"heuristic": ["x", "y"]}}
    late = {**known, "predictions": [1, 1], "scores": [[0.5, 1.5], [0.25, 2]]}
    early = {**known, "predictions": [0, 0], "scores": [[1, 0], [1, 0]]}
    early["entry"] = {"set": "dev", "epochs": 0.5}
    test = {"labels": None, "predictions": [2, 0, 1], "metrics": []}
    sets = {"dev": late, "ax": test, "dev@0.5": early}
    write_run(tmp_path / "runs" / "a", sets, pretrain_seed=None)
    squad = {"labels": [1], "predictions": [1], "extras": {"answers": [("p", "q")]}}
    squad["outputs"] = {"prediction_text": ["p"], "start": [4]}
    write_run(tmp_path / "runs" / "b", {"dev": squad}, task="squad-v1.1", pretrain_seed=7)
    path = tmp_path / "all.parquet"
    export(path=str(path), predictions=str(tmp_path / "runs"))
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert len(rows) == 2 + 3 + 2 + 1
    dev = [row for row in rows if (row["task"], row["evaluation_set"]) == ("t", "dev")]
    assert [(row["epochs"], row["example_id"], row["prediction"]) for row in dev] == [
        (None, "x/0", 1), (None, "x/1", 1), (0.5, "x/0", 0), (0.5, "x/1", 0),
    ]  # fmt: skip
    assert dev[1]["scores"] == [0.25, 2] and dev[1]["heuristic"] == "y"
    assert dev[1]["answers"] is None and dev[0]["pretrain_seed"] is None
    assert [row["label"] for row in rows if row["evaluation_set"] == "ax"] == [None] * 3
    (question,) = [row for row in rows if row["task"] == "squad-v1.1"]
    assert question["answers"] == ["p", "q"] and question["scores"] == []
    assert (question["prediction_text"], question["start"]) == ("p", 4)
    assert (question["pretrain_seed"], question["learning_rate"]) == (7, 2e-5)
    frame = pandas.read_parquet(path)
    assert frame.groupby(["task", "evaluation_set"])["prediction"].mean()["t", "dev"] == 0.5
    csv = tmp_path / "all.csv"
    export(path=str(csv), predictions=str(tmp_path / "runs"))
    table = pandas.read_csv(csv)
    assert [*table] == [*frame] and table["example_id"].tolist() == frame["example_id"].tolist()
    lists = table.loc[table["task"] == "squad-v1.1", ["answers", "scores"]]
    assert lists.to_numpy().tolist() == [['["p", "q"]', "[]"]]
    assert table["answers"].isna().sum() == 7


def test_a_comparison_reads_the_same_of_either_file(tmp_path: Path):
    for name, answers in (("base", [0, 1]), ("new", [1, 1])):
        for seed in range(3):
            own = {"labels": [1, 1], "predictions": answers if seed else [1, 1]}
            run = tmp_path / "runs" / f"{name}{seed}"
            write_run(run, {"dev": own}, procedure=name, pretrain_seed=seed)
    tables = []
    for ending in ("parquet", "csv"):
        path = tmp_path / f"all.{ending}"
        export(path=str(path), predictions=str(tmp_path / "runs"))
        tables.append(stats.read(path))
    assert [*tables[0]] == [*tables[1]] == ["base", "new"]
    for name, data in tables[0].items():
        assert (data["prediction"].to_numpy() == tables[1][name]["prediction"].to_numpy()).all()


def test_another_ending_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"all\.json, expected a name that ends in \.parquet or"):
        export(path=str(tmp_path / "all.json"), predictions=str(tmp_path))


def test_bad_input_leaves_no_file(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no"):
        export(path=str(tmp_path / "x.parquet"), predictions=str(tmp_path / "empty"))
    run = write_run(tmp_path / "runs", {"dev": {"labels": [1], "predictions": [1]}})
    (run / "predictions" / "dev.tfrecord").write_bytes(b"")
    with pytest.raises(UserError, match=r"dev\.tfrecord has no record"):
        export(path=str(tmp_path / "x.parquet"), predictions=str(tmp_path / "runs"))
    assert not (tmp_path / "x.parquet").exists()
