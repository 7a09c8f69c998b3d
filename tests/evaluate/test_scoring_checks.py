"""`multiberts evaluate` on sets of prediction files that are odd: what is refused, what is warned of."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas
import pytest

from multiberts.evaluate.metrics.probability import softmax
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.scoring import score
from multiberts.runs.errors import UserError
from multiberts.tests.tools import as_module
from multiberts.tests.worlds import write_run

PLAIN = {"labels": [0, 1, 1, 0], "predictions": [0, 1, 0, 0]}


def tables(path: Path) -> dict[str, pandas.DataFrame]:
    return {file.stem: pandas.read_csv(file) for file in sorted(path.glob("*.csv"))}


def scored(tmp_path: Path, **arguments) -> dict[str, pandas.DataFrame]:
    score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs"), **arguments)
    return tables(tmp_path / "scores")


def test_damaged_and_disagreeing_prediction_files_are_each_named_and_nothing_is_written(
    tmp_path: Path, capsys
):
    for seed in range(5):
        write_run(tmp_path / "runs" / str(seed), {"dev": PLAIN}, pretrain_seed=seed)
    file = "predictions/dev.tfrecord"
    damaged = tmp_path / "runs" / "1" / file
    damaged.write_bytes(damaged.read_bytes()[:-3])
    (tmp_path / "runs" / "2" / file).unlink()
    other = {**PLAIN, "labels": [0, 1, 1, 1]}
    write_run(tmp_path / "runs" / "3", {"dev": other}, pretrain_seed=3)
    (tmp_path / "runs" / "4" / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"4/run\.json .*JSON"):
        score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs" / "4"))
    (tmp_path / "runs" / "4" / "DONE").unlink()
    with pytest.raises(UserError, match="^3 prediction files"):
        score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("found: ") for line in lines] == [True] * 3
    assert "1/predictions/dev.tfrecord record 4" in lines[0]
    assert "2/predictions/dev.tfrecord does not exist" in lines[1]
    assert re.search(r"runs/3: .*'x/3' .*1\.0.* 0\.0", lines[2])
    assert not (tmp_path / "scores").exists()


def test_a_missing_run_is_a_warning_next_to_the_scores(tmp_path: Path, capsys):
    for seed in range(3):
        for rate in (2e-5, 3e-5):
            if (seed, rate) != (1, 3e-5):
                facts = {"pretrain_seed": seed, "learning_rate": rate}
                write_run(tmp_path / "runs" / f"{seed}-{rate}", {"dev": PLAIN}, **facts)
    (tmp_path / "runs" / "begun").mkdir()
    (tmp_path / "runs" / "begun" / "config.gin").write_text("# Frozen by the stage `finetune`.\n")
    found = scored(tmp_path)
    incomplete = found["scores"].set_index(["learning_rate", "pretrain_seed"])["missing_runs"]
    assert incomplete.to_dict() == {
        (2e-5, 0): 0, (2e-5, 1): 0, (2e-5, 2): 0, (3e-5, 0): 1, (3e-5, 2): 1,
    }  # fmt: skip
    checks = found["checks"].set_index("check")
    assert set(checks.index) == {"missing run", "unfinished run"}
    assert checks.loc["missing run", ["pretrain_seed", "learning_rate"]].tolist() == [1, 3e-5]
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and all(line.startswith("warning: ") for line in warnings)


def test_sets_without_labels_are_said_and_not_scored(tmp_path: Path, capsys):
    unknown = {"labels": None, "predictions": [0, 1], "metrics": []}
    for seed in range(2):
        write_run(tmp_path / "runs" / str(seed), {"dev": PLAIN, "ax": unknown}, pretrain_seed=seed)
    found = scored(tmp_path)
    assert set(found["scores"]["evaluation_set"]) == {"dev"}
    assert re.search(r"t, ax: labels .*\b2 runs", capsys.readouterr().err)
    assert found["checks"]["check"].tolist() == ["no labels"]


def test_early_checkpoints_are_rows_of_their_own(tmp_path: Path):
    early = {**PLAIN, "predictions": [1, 0, 1, 1], "entry": {"set": "dev", "epochs": 0.5}}
    write_run(tmp_path / "runs" / "a", {"dev": PLAIN, "dev@0.5": early})
    found = scored(tmp_path)["scores"].set_index("evaluation_set")["score"]
    assert found.to_dict() == {"dev": 0.75, "dev@0.5": 0.25}


def test_early_labels_must_be_the_late_ones(tmp_path: Path):
    early = {**PLAIN, "labels": [1, 1, 1, 0], "entry": {"set": "dev", "epochs": 0.5}}
    write_run(tmp_path / "runs" / "a", {"dev": PLAIN, "dev@0.5": early})
    with pytest.raises(UserError, match=r"'x/0' .*1\.0.* 0\.0"):
        scored(tmp_path)


def test_parts_of_answers_in_words(tmp_path: Path):
    dev = {
        "labels": [1, 1, 0, 0],
        "predictions": [1, 1, 0, 1],
        "extras": {"answers": [("one two",), ("three",), (), ()], "title": ["a", "a", "b", "b"]},
        "outputs": {"prediction_text": ["one", "three", "", "x"]},
        "metrics": ["squad_f1", "squad_exact_match"],
    }
    write_run(tmp_path / "runs" / "a", {"dev": dev}, task="squad-v2.0")
    found = scored(tmp_path)
    scores = found["scores"].set_index("metric")["score"]
    assert scores["squad_f1"] == pytest.approx((2 / 3 + 1 + 1 + 0) / 4)
    assert scores["squad_exact_match"] == 0.5
    parts = found["parts"].query("label != label").set_index("part")["score"]
    assert parts.to_dict() == pytest.approx({"a": 5 / 6, "b": 0.5})
    has_answer = found["parts"].query("by == 'label'").set_index("label")["score"]
    assert has_answer.to_dict() == pytest.approx({0: 0.5, 1: 5 / 6})


def test_calibration_and_extra_metrics(tmp_path: Path):
    random = np.random.default_rng(0)
    logits = random.normal(size=(60, 3)).astype(np.float32)
    dev = {
        "labels": random.integers(0, 3, 60),
        "predictions": logits.argmax(axis=1),
        "scores": logits,
    }
    plain = {"labels": [0.5, 1], "predictions": [0.25, 1], "metrics": ["pearson"]}
    run = write_run(tmp_path / "runs" / "a", {"dev": dev, "other": plain})
    found = scored(tmp_path, extra_metrics=["ece", "accuracy"])
    data = read_predictions([run], "dev")
    expected = METRICS["ece"].score(data["label"], softmax(data["scores"]))[0]
    rows = found["scores"].set_index(["evaluation_set", "metric"])["score"]
    assert rows["dev", "ece"] == pytest.approx(expected)
    assert sorted(rows.index) == [
        ("dev", "accuracy"), ("dev", "ece"), ("other", "accuracy"), ("other", "pearson"),
    ]  # fmt: skip
    assert found["checks"]["check"].tolist() == ["metric does not apply"]
    table = found["calibration"].query("examples > 0")
    gap = (table["examples"] * (table["accuracy"] - table["confidence"]).abs()).sum() / 60
    assert gap == pytest.approx(expected)
    with pytest.raises(UserError, match=r"score\.extra_metrics .*'zzz'"):
        score(run_dir=str(tmp_path / "x"), predictions="nowhere", extra_metrics=["zzz"])


def test_exit_status_and_lines(tmp_path: Path):
    write_run(tmp_path / "runs" / "a", {"dev": PLAIN})
    flags = [
        f"--gin_param=score.run_dir = '{tmp_path / 'scores'}'",
        f"--gin_param=score.predictions = '{tmp_path / 'runs'}'",
    ]
    file = tmp_path / "runs" / "a" / "predictions" / "dev.tfrecord"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    done = as_module.run("evaluate", flags)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"error: {file} record 4: ")
    file.write_bytes(whole)
    done = as_module.run("evaluate", flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(pandas.read_csv(tmp_path / "scores" / "scores.csv")) == 1


def test_answers_that_no_label_has_and_exchanged_classes_are_warned_of(tmp_path: Path, capsys):
    labels = [0, 1, 1, 0] * 50
    stray = {"labels": labels, "predictions": [*labels[:-2], 2, 2]}
    exchanged = {"labels": labels, "predictions": [1 - label for label in labels]}
    for seed, answers in enumerate((stray, exchanged)):
        write_run(tmp_path / "runs" / str(seed), {"dev": answers}, pretrain_seed=seed)
    checks = scored(tmp_path)["checks"]
    notes = checks[checks["check"] == "answers"].set_index("pretrain_seed")["message"]
    assert re.match(r"2 of 200 .*\(1 %\) .*: 2 \(2\)\.$", notes[0])
    assert " 0.0 % " in notes[1] and "exchanged" in notes[1]
    assert f"warning: {notes[0]}" in capsys.readouterr().err


def test_labels_that_are_all_a_placeholder_are_no_labels(tmp_path: Path, capsys):
    hidden = {"labels": [-1, -1, -1, -1], "predictions": [0, 1, 0, 0]}
    write_run(tmp_path / "runs" / "0", {"dev": PLAIN, "test": hidden})
    found = scored(tmp_path)
    assert found["scores"]["evaluation_set"].tolist() == ["dev"]
    assert re.search(r"test: labels .*\b1 run\b", capsys.readouterr().err)


def test_a_score_that_is_zero_over_zero_is_named(tmp_path: Path):
    entry = {"labels": [1] * 4, "predictions": [1, 0, 1, 1], "metrics": ["accuracy", "matthews"]}
    write_run(tmp_path / "runs" / "0", {"dev": entry})
    checks = scored(tmp_path)["checks"]
    (note,) = checks[checks["check"] == "answers"]["message"]
    assert re.match(r"matthews .* 0/0 .*4 labels .*1\b", note)
