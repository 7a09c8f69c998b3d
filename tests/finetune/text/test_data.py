"""GLUE tasks from the user's arguments to prediction files: which sets are found, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.finetune.settings import data_of
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.conftest import Make, Replay, data_of_task
from multiberts.tests.finetune.stored_datasets import official_examples, store

SMALL = {"batch_size": 8, "num_epochs": 1, "sequence_length": 32, "learning_rate": 1e-3}
LABELS = ("neutral", "entailment", "contradiction")
WORDS = ("the guest was late .", "she told him .", 'a "cake is red .', "the sun is not bad .")
HANS_COLUMNS = (
    *("gold_label", "Sentence1_binary_parse", "Sentence2_binary_parse"),
    *("Sentence1_parse", "Sentence2_parse", "sentence1", "sentence2"),
    *("pairID", "heuristic", "subcase", "template"),
)


def table(*rows: tuple[object, ...]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def pairs(count: int, label_column: str | None, labels: tuple[str, ...] = LABELS) -> str:
    header = ("index", "sentence1", "sentence2", *([label_column] if label_column else []))
    rows = []
    for row in range(count):
        label = [labels[row % len(labels)]] if label_column else []
        rows.append((row, WORDS[row % 4], WORDS[(row + 1) % 4], *label))
    return table(header, *rows)


@pytest.fixture
def mnli(tmp_path: Path) -> Path:
    folder = tmp_path / "MNLI"
    folder.mkdir()
    for split, count in (("train", 24), ("dev_matched", 6), ("dev_mismatched", 5)):
        (folder / f"{split}.tsv").write_text(pairs(count, "gold_label"))
    for split in ("test_matched", "test_mismatched", "AX"):
        (folder / f"{split}.tsv").write_text(pairs(4, None))
    rows = [
        (label, *["( a )"] * 4, WORDS[n], WORDS[n + 1], f"ex{n}", "lexical_overlap", "ln_passive", "t1")
        for n, label in enumerate(("entailment", "non-entailment"))
    ]  # fmt: skip
    (folder / "hans.txt").write_text(table(HANS_COLUMNS, *rows))
    snli = [
        {"gold_label": label, "sentence1": WORDS[0], "sentence2": WORDS[1]}
        for label in ("-", "neutral", "entailment")
    ]
    (folder / "snli.jsonl").write_text("".join(json.dumps(row) + "\n" for row in snli))
    return folder


def sets(found: Any) -> dict[str, str]:
    return {source.name: source.files[0].name for source in found.evaluation}


def test_test_sets_are_predicted_only_when_asked_for(mnli: Path) -> None:
    dev = {"dev": "dev_matched.tsv", "dev_mismatched": "dev_mismatched.tsv"}
    assert sets(data_of_task("MNLI", data_dir=str(mnli))) == dev
    asked = data_of_task("MNLI", data_dir=str(mnli), options={"predict_test": True})
    assert sets(asked) == dev | {
        "test_matched": "test_matched.tsv",
        "test_mismatched": "test_mismatched.tsv",
    }
    assert asked.parameters() == {"evaluation_sets": list(sets(asked))}
    (mnli / "dev_mismatched.tsv").unlink()
    alone = data_of_task("MNLI", data_dir=str(mnli))
    assert sets(alone) == {"dev": "dev_matched.tsv"}
    # As before there were other sets: run directories of then are still the same run's.
    assert alone.parameters() == {}
    assert alone.inputs() == {
        "train_files": [mnli / "train.tsv"],
        "dev_files": [mnli / "dev_matched.tsv"],
    }


@pytest.mark.usefixtures("eager")
def test_a_run_predicts_every_set_with_its_own_classes(fine_tune: Make, mnli: Path) -> None:
    files = {"hans": "hans.txt", "snli": "snli.jsonl", "ax": "AX.tsv"}
    paths = {name: str(mnli / file) for name, file in files.items()}
    run = fine_tune("MNLI", mnli, options={"predict_test": True}, evaluation_files=paths)
    found = {
        name: read_predictions([run], name)
        for name in ("dev", "dev_mismatched", "test_matched", "test_mismatched", *files)
    }
    assert {name: dataset.sizes["example"] for name, dataset in found.items()} == {
        **{"dev": 6, "dev_mismatched": 5, "test_matched": 4, "test_mismatched": 4},
        **{"hans": 2, "snli": 2, "ax": 4},
    }
    hans = found["hans"]
    assert hans["label"].values.tolist() == [1, 0]
    assert set(hans["prediction"].values.ravel().tolist()) <= {0, 1}
    assert hans.sizes["class"] == 2
    assert hans["heuristic"].values.tolist() == ["lexical_overlap"] * 2
    # HANS pair 0 has the words of dev pair 0: the same logits, once merged and once not.
    logits = found["dev"]["scores"].values[0, 0]
    np.testing.assert_allclose(
        [hans[f"logit_{number}"].values[0, 0] for number in range(3)], logits, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        hans["scores"].values[0, 0], [np.logaddexp(logits[0], logits[2]), logits[1]], rtol=1e-5
    )
    assert found["snli"]["example_id"].values.tolist() == ["snli/1", "snli/2"]
    for name in ("test_matched", "test_mismatched", "ax"):
        assert np.isnan(found[name]["label"]).all()
        assert found[name].attrs["metrics"] in ((), [])
    assert found["ax"]["example_id"].values[0] == "AX/test/0"


def test_a_dataset_gives_the_bytes_of_its_files(
    tmp_path: Path, fine_tune: Make, same_when_replayed: Replay
) -> None:
    (tmp_path / "RTE").mkdir()
    for split, count in (("train", 16), ("dev", 6)):
        labels = ("entailment", "not_entailment")
        (tmp_path / "RTE" / f"{split}.tsv").write_text(pairs(count, "label", labels))
    examples = {
        there: official_examples("glue/rte", str(tmp_path / "RTE" / f"{split}.tsv"), split)
        for split, there in (("train", "train"), ("dev", "validation"))
    }
    store(tmp_path / "datasets", "glue/rte", examples)
    fine_tune("RTE", tmp_path / "RTE", "tsv")
    fine_tune("RTE", tmp_path / "datasets", "tfds", dataset="glue/rte")
    one, other = (tmp_path / kind / "predictions" / "dev.tfrecord" for kind in ("tsv", "tfds"))
    assert one.read_bytes() == other.read_bytes()
    inputs = json.loads((tmp_path / "tfds" / "run.json").read_text())["inputs"]
    assert "features.json" in [file["name"] for file in inputs["train_files"]]
    assert same_when_replayed(tmp_path / "tfds")


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("MNLI", {"data_dir": ".", "train_files": ("a",)}, "both data_dir and train_files"),
        ("MNLI", {"dataset": "glue/mnli", "dev_files": ("a",)}, "both dataset and train_files"),
        ("MNLI", {}, "needs finetune.data_dir, finetune.dataset, or one train file"),
        ("MNLI", {"train_files": ("a",)}, "needs finetune.data_dir, finetune.dataset, or one"),
        ("MNLI", {"train_files": ("a",), "dev_files": ("b",), "options": {"predict_test": True}},
         "name the file in finetune.evaluation_files instead"),
        ("MNLI", {"data_dir": "none"}, "none has no table named train (.tsv, .csv"),
        ("RTE", {"data_dir": ".", "winogender_dir": "w"}, "takes no winogender_dir"),
        ("AX", {"data_dir": "."}, "is answered by a model of MNLI"),
        ("QQP", {"data_dir": ".", "options": {"predict_tests": True}}, "has 'predict_tests', but"),
        ("tone", {"data_dir": ".", "labels": ("a", "b"), "options": {"text_columns": ["label"]}},
         "give one or two columns with text and another one with the label"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(
    task: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        data_of_task(task, **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_set_has_one_source(mnli: Path) -> None:
    files = {"dev_mismatched": str(mnli / "dev_mismatched.tsv")}
    call = {"task": "MNLI", "labels": None, "data_dir": str(mnli), "evaluation_files": files}
    with pytest.raises(UserError, match="sets 2 and 3 of dev, dev_mismatched, dev_mismatched have"):
        data_of(call)
