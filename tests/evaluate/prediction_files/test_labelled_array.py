"""Runs read together: their outputs, early checkpoints, unknown labels, and disagreement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.runs.errors import UserError
from multiberts.tests.worlds import write_run

ANSWERS = [("Denver", "Denver Broncos"), (), ("1066",)]


def squad(texts, **changes):
    return {
        "labels": [1, 0, 1],
        "predictions": [bool(text) for text in texts],
        "extras": {"answers": ANSWERS},
        "outputs": {"prediction_text": texts, "null_odds": np.arange(3.0) + len(texts[0])},
        "metrics": ["squad_f1", "squad_exact_match"],
        **changes,
    }


def test_outputs_are_variables_of_runs_and_examples(tmp_path: Path):
    texts = [["Denver", "", "1067"], ["the Broncos", "no", "1066"]]
    runs = [
        write_run(tmp_path / str(seed), {"dev": squad(texts[seed])}, pretrain_seed=seed)
        for seed in range(2)
    ]
    data = read_predictions(runs, "dev")
    assert data["prediction_text"].dims == data["null_odds"].dims == ("run", "example")
    assert data["prediction_text"].values.tolist() == texts
    assert data["null_odds"].values.tolist() == [[6, 7, 8], [11, 12, 13]]
    assert data["answers"].values.tolist() == ANSWERS
    assert data["answers"].dims == ("example",)


def test_columns_are_put_in_order_with_their_examples(tmp_path: Path):
    columns = {
        "prediction": [1, 1, 0],
        "prediction_text": ["x", "y", "z"],
        "scores": [[0, 1], [2, 3], [5, 4]],
    }
    runs = []
    for seed, order in enumerate(([0, 1, 2], [2, 0, 1])):
        given, texts, scores = ([own[place] for place in order] for own in columns.values())
        changes = {"labels": [[1, 0, 1][place] for place in order], "predictions": given}
        changes |= {
            "scores": np.array(scores, float),
            "example_ids": [f"x/{place}" for place in order],
        }
        changes |= {"extras": {"answers": [ANSWERS[place] for place in order]}}
        runs.append(
            write_run(tmp_path / str(seed), {"dev": squad(texts, **changes)}, pretrain_seed=seed)
        )
    data = read_predictions(runs, "dev")
    assert data["example_id"].values.tolist() == ["x/0", "x/1", "x/2"]
    assert data["label"].values.tolist() == [1, 0, 1] and data["answers"].values.tolist() == ANSWERS
    for name, values in columns.items():
        assert data[name].values.tolist() == [values] * 2
    assert data["pretrain_seed"].values.tolist() == [0, 1]


def test_disagreement_in_lists_of_texts_and_outputs_is_named(tmp_path: Path):
    first = write_run(tmp_path / "a", {"dev": squad(["x", "y", "z"])})
    other = squad(["x", "y", "z"], extras={"answers": [ANSWERS[0], ("some",), ANSWERS[2]]})
    second = write_run(tmp_path / "b", {"dev": other})
    with pytest.raises(UserError, match=r"answers .*'x/1' .*\('some',\), .*\(\) "):
        read_predictions([first, second], "dev")
    third = write_run(tmp_path / "c", {"dev": squad(["x", "y", "z"], outputs={})})
    with pytest.raises(UserError, match="column null_odds"):
        read_predictions([first, third], "dev")


def test_early_checkpoints(tmp_path: Path):
    def at(answers, **entry):
        return {"labels": [0, 1], "predictions": answers, "entry": entry}

    sets = {"dev": at([1, 1], epochs=3), "dev@0.5": at([0, 0], set="dev", epochs=0.5)}
    sets["dev@1.667"] = at([0, 1], set="dev", epochs=5 / 3)
    run = write_run(tmp_path / "a", sets)
    final, early = read_predictions([run], "dev"), read_predictions([run], "dev", epochs=5 / 3)
    assert (final["prediction"].values.tolist(), final.attrs["epochs"]) == ([[1, 1]], 3)
    assert (early["prediction"].values.tolist(), early.attrs["epochs"]) == ([[0, 1]], 5 / 3)
    assert read_predictions([run], "dev", 3)["prediction"].equals(final["prediction"])
    assert read_predictions([run], "dev@0.5")["prediction"].values.tolist() == [[0, 0]]


def test_unknown_labels_agree_with_each_other_only(tmp_path: Path):
    unknown = {"labels": None, "predictions": [0, 1], "metrics": []}
    runs = [write_run(tmp_path / name, {"test": unknown}) for name in "ab"]
    assert np.isnan(read_predictions(runs, "test")["label"]).all()
    runs.append(write_run(tmp_path / "c", {"test": {**unknown, "labels": [0, 1]}}))
    with pytest.raises(UserError, match=r"label .*'x/0' .*0\.0.* nan "):
        read_predictions(runs, "test")


def test_a_whole_file_of_another_run_is_refused(tmp_path: Path):
    """Its records are in order, and it is not the file that run.json tells of."""
    first = write_run(tmp_path / "a", {"dev": {"labels": [0, 1], "predictions": [0, 1]}})
    other = write_run(tmp_path / "b", {"dev": {"labels": [0, 1], "predictions": [1, 1]}})
    file = "predictions/dev.tfrecord"
    (first / file).write_bytes((other / file).read_bytes())
    with pytest.raises(UserError, match=r"dev\.tfrecord: .*SHA-256"):
        read_predictions([first], "dev")
