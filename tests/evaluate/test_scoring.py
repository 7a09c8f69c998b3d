from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
from scipy import stats
from sklearn import metrics

from multiberts.evaluate.scoring import COLUMNS, describe_run, describe_scores, parts_of, score
from multiberts.runs.directory import RunDirectory, read_done
from multiberts.runs.errors import UserError
from multiberts.runs.files import sha256_of_file
from multiberts.tests.worlds import write_run


def test_table_agrees_with_scikit_learn_and_scipy(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    labels = draws.integers(0, 2, 60)
    choices = np.where(draws.random(60) < 0.7, labels, 1 - labels)
    values = draws.normal(size=60).astype(np.float32)
    targets = (values + draws.normal(size=60)).astype(np.float32)
    for task, right, given, names in (
        ("CoLA", labels, choices, ["matthews", "accuracy", "f1"]),
        ("STS-B", targets, values, ["pearson", "mse"]),
    ):
        dev = {"labels": right, "predictions": given, "metrics": names}
        write_run(tmp_path / "runs" / task, {"dev": dev}, task=task, pretrain_seed=4)
    score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs"))
    table = pandas.read_csv(tmp_path / "scores" / "scores.csv")
    assert tuple(table.columns) == COLUMNS
    found = table.set_index(["task", "metric"])["score"]
    assert found["CoLA", "accuracy"] == pytest.approx(metrics.accuracy_score(labels, choices))
    assert found["CoLA", "matthews"] == pytest.approx(metrics.matthews_corrcoef(labels, choices))
    assert found["CoLA", "f1"] == pytest.approx(metrics.f1_score(labels, choices))
    assert found["STS-B", "pearson"] == pytest.approx(
        stats.pearsonr(targets, values).statistic, 1e-6
    )
    assert found["STS-B", "mse"] == pytest.approx(metrics.mean_squared_error(targets, values), 1e-6)
    assert len(found) == 5
    assert set(table["pretrain_seed"]) == {4}
    assert set(table["learning_rate"]) == {2e-5}
    lines = describe_scores(str(tmp_path / "scores")).splitlines()
    accuracy = metrics.accuracy_score(labels, choices)
    assert f"  CoLA/dev  accuracy of base at step 100: {accuracy:.4f} (1 run)" in lines
    assert len(lines) == 6
    own = describe_run(str(tmp_path / "runs" / "CoLA")).splitlines()
    assert own[2].split() == ["dev", "accuracy", f"{accuracy:.4f}"]


def test_bad_input_leaves_no_directory(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no"):
        score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "empty"))
    columns = {"labels": np.ones(2), "predictions": np.ones(2), "metrics": ["charm"]}
    write_run(tmp_path / "a", {"dev": columns})
    with pytest.raises(UserError, match="metric 'charm'"):
        score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "a"))
    assert not (tmp_path / "scores").exists()


def test_scores_are_replaced_after_new_runs_and_only_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {"labels": np.ones(2), "predictions": np.ones(2)}
    scores = tmp_path / "scores"

    def scored(**changes) -> tuple[list[int], bytes]:
        score(run_dir=str(scores), predictions=str(tmp_path / "runs"), **changes)
        table = pandas.read_csv(scores / "scores.csv")
        return table["finetune_seed"].tolist(), (scores / "DONE").read_bytes()

    for seed in range(2):
        write_run(tmp_path / f"runs/{seed}", {"dev": columns}, finetune_seed=seed)
        seeds, marker = scored()
        assert seeds == list(range(seed + 1))
        run = RunDirectory(
            scores,
            stage="score",
            parameters={"extra_metrics": []},
            inputs={"predictions": sorted((tmp_path / "runs").iterdir())},
        )
        assert run.done
        for name, entry in read_done(scores).items():
            assert sha256_of_file(scores / name) == entry["sha256"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{scores} has") and "replaced" in line
    before = (scores / "DONE").stat().st_mtime_ns
    assert scored() == ([0, 1], marker)
    assert (scores / "DONE").stat().st_mtime_ns == before
    # Other metrics are other parameters, which belong in another directory.
    with pytest.raises(UserError, match=r"score\.extra_metrics .*'f1'"):
        scored(extra_metrics=["f1"])
    assert scored() == ([0, 1], marker)
    # As a process leaves it that was killed between the two writes.
    (scores / "DONE").unlink()
    assert scored() == ([0, 1], marker)


def test_a_metric_that_was_removed_is_warned_of_and_the_others_are_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {"labels": np.ones(2), "predictions": np.ones(2), "metrics": ["charm", "accuracy"]}
    write_run(tmp_path / "a", {"dev": columns}, task="no task of ours")
    score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "a"))
    table = pandas.read_csv(tmp_path / "scores" / "scores.csv")
    assert table[["task", "metric", "score"]].values.tolist() == [
        ["no task of ours", "accuracy", 1.0]
    ]
    checks = pandas.read_csv(tmp_path / "scores" / "checks.csv")
    assert checks[["check", "task", "evaluation_set"]].values.tolist() == [
        ["unknown metric", "no task of ours", "dev"]
    ]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {tmp_path}/a/run.json ") and "metric 'charm'" in line


def test_parts_of_made_up_examples():
    labels = np.array([0.0, 1, 0, 1, 1, 0])
    columns = {
        "heuristic": np.array(["a", "a", "b", "b", "b", "b"]),
        "constant": np.array(["x"] * 6),
        "each_its_own": np.array(list("uvwxyz")),
        "share": np.arange(6.0),
    }
    found = {
        (part.by, part.part, part.label): part.rows.tolist() for part in parts_of(labels, columns)
    }
    assert found == {
        ("label", "0", 0.0): [0, 2, 5],
        ("label", "1", 1.0): [1, 3, 4],
        ("heuristic", "a", None): [0, 1],
        ("heuristic", "a", 0.0): [0],
        ("heuristic", "a", 1.0): [1],
        ("heuristic", "b", None): [2, 3, 4, 5],
        ("heuristic", "b", 0.0): [2, 5],
        ("heuristic", "b", 1.0): [3, 4],
    }


def test_labels_on_a_scale_are_not_parts():
    columns = {"genre": np.array(["a", "b"] * 10)}
    found = [(part.by, part.label) for part in parts_of(np.linspace(0, 5, 20), columns)]
    assert found == [("genre", None), ("genre", None)]


def test_the_summary_has_a_line_for_each_learning_rate(tmp_path: Path) -> None:
    """Their mean over rates would be the score of no model."""
    for rate, right in ((2e-5, 3), (3e-5, 8)):
        for seed in range(2):
            dev = {"labels": np.zeros(10, int), "predictions": np.arange(10) >= right}
            run = tmp_path / f"runs/{rate}-{seed}"
            write_run(run, {"dev": dev}, learning_rate=rate, pretrain_seed=seed)
    score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs"))
    assert describe_scores(str(tmp_path / "scores")).splitlines()[1:] == [
        "  t/dev  accuracy of base at step 100, learning rate 2e-05: 0.3000 (2 runs)",
        "  t/dev  accuracy of base at step 100, learning rate 3e-05: 0.8000 (2 runs)",
    ]
