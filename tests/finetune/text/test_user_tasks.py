"""Tasks of the user's own by configuration: every form of table, labels, weights and metrics."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.finetune.prediction import predict
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.conftest import Make, Replay, data_of_task
from multiberts.tests.finetune.stored_datasets import store

SMALL = {"batch_size": 8, "num_epochs": 1, "sequence_length": 32, "learning_rate": 1e-3}
TEXTS = ("the guest was late .", 'she "told" him .', "a cake is red .", "the sun is not bad .")
TONES = ("calm", "loud", "calm", "so, so")
COLUMNS = {"text_columns": ["review"], "label_column": "tone"}


def rows(number: int = 16, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"review": f"{TEXTS[n % 4]} {n}", "stars": n % 5, "tone": TONES[n % 4]}
        for n in range(first, first + number)
    ]


def write_tsv(path: Path, given: list[dict[str, Any]]) -> None:
    lines = [list(given[0]), *([str(value) for value in row.values()] for row in given)]
    path.with_suffix(".tsv").write_text("".join("\t".join(line) + "\n" for line in lines))


def write_csv(path: Path, given: list[dict[str, Any]]) -> None:
    pd.DataFrame(given).to_csv(path.with_suffix(".csv"), index=False)


def write_jsonl(path: Path, given: list[dict[str, Any]]) -> None:
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))


def write_parquet(path: Path, given: list[dict[str, Any]]) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame(given).to_parquet(path.with_suffix(".parquet"))


def write_datasets(path: Path, given: list[dict[str, Any]]) -> None:
    """Writes what `datasets.Dataset.save_to_disk` does: shards of an Arrow stream, and class numbers."""
    pyarrow = pytest.importorskip("pyarrow")
    names = sorted(set(TONES))
    path = path.with_name(path.name.replace("dev", "validation"))
    path.mkdir()
    features = {"tone": {"names": names, "_type": "ClassLabel"}, "review": {"dtype": "string"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    numbered = [{**row, "tone": names.index(row["tone"])} for row in given]
    table = pyarrow.Table.from_pylist(numbered).replace_schema_metadata(metadata)
    half = len(given) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        name = f"data-{number:05d}-of-00002.arrow"
        with pyarrow.ipc.new_stream(path / name, table.schema) as writer:
            writer.write_table(part)


FORMS = {
    "tsv": write_tsv, "csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet,
    "datasets": write_datasets,
}  # fmt: skip


found_data = functools.partial(data_of_task, "tone")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_examples(tmp_path: Path, form: str) -> None:
    for split, first in (("train", 0), ("dev", 16)):
        FORMS[form](tmp_path / split, rows(first=first))
    found = found_data(data_dir=str(tmp_path), options={**COLUMNS, "kind": "classification"})
    assert found.task.labels == tuple(sorted(set(TONES)))
    assert found.parameters()["labels"] == sorted(set(TONES))
    train, dev = found.train.read(), found.evaluation[0].read()
    assert train.first_texts == [row["review"] for row in rows()]
    assert train.second_texts is None
    assert train.labels is not None
    assert [found.task.labels[int(label)] for label in train.labels] == [
        row["tone"] for row in rows()
    ]
    assert dev.example_ids[2] == "tone/dev/2"
    assert dev.first_texts[0] == f"{TEXTS[0]} 16"
    stars = found_data(
        data_dir=str(tmp_path),
        options={"text_columns": ["review"], "label_column": "stars", "kind": "regression"},
    )
    values = stars.train.read().labels
    assert values is not None
    assert values.tolist() == [float(row["stars"]) for row in rows()]
    assert stars.task.metrics == ("pearson", "spearman", "mse")


def test_a_folder_of_datasets_is_also_a_file_and_a_further_set(tmp_path: Path) -> None:
    write_datasets(tmp_path / "train", rows())
    write_datasets(tmp_path / "dev", rows(first=16))
    found = found_data(
        train_files=(str(tmp_path / "train"),),
        dev_files=(str(tmp_path / "validation"),),
        evaluation_files={"again": str(tmp_path / "validation")},
        options={**COLUMNS, "kind": "classification"},
    )
    assert [source.read().first_texts for source in found.evaluation] == [
        [row["review"] for row in rows(first=16)]
    ] * 2
    assert len(found.inputs()["train_files"]) == 2


@pytest.mark.parametrize("kind", ["text", "integer"])
def test_labels_of_tensorflow_datasets_that_have_no_names(tmp_path: Path, kind: str) -> None:
    import tensorflow_datasets as tfds

    is_text = kind == "text"
    text = tfds.features.Text()
    # Its `label` is not the one that is asked for.
    features = {"review": text, "label": text, "tone": text if is_text else np.int64}
    given = [
        {"review": f"r{n}", "label": "x", "tone": f"t{n % 2}" if is_text else 9 + n % 2}
        for n in range(5)
    ]
    store(tmp_path, "tone", dict.fromkeys(("train", "validation"), given), features)
    found = found_data(
        dataset="tone", data_dir=str(tmp_path), options={**COLUMNS, "kind": "classification"}
    )
    assert found.task.labels == (("t0", "t1") if is_text else ("9", "10"))
    labels = found.evaluation[0].read().labels
    assert labels is not None
    assert labels.tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(UserError, match="row 0: found tone .*, expected one of a, b; correct"):
        found_data(
            dataset="tone", data_dir=str(tmp_path), labels=("a", "b"), options=COLUMNS
        ).train.read()


@pytest.mark.parametrize(
    ("kind", "column", "metrics"),
    [("classification", "tone", ["f1_macro", "accuracy"]), ("regression", "stars", ["mae", "pearson"])],
)  # fmt: skip
@pytest.mark.usefixtures("eager")
def test_a_task_by_configuration_is_replayed_and_its_model_knows_its_classes(
    tmp_path: Path, fine_tune: Make, capsys: pytest.CaptureFixture[str],
    same_when_replayed: Replay, kind: str, column: str, metrics: list[str],
) -> None:  # fmt: skip
    for split, first in (("train", 0), ("dev", 16)):
        write_csv(tmp_path / split, rows(first=first))
    options = {"text_columns": ["review"], "label_column": column, "kind": kind, "metrics": metrics}
    run = fine_tune("mine", tmp_path, options=options, keep="last")
    record = json.loads((run / "run.json").read_text())
    assert record["evaluation_sets"]["dev"]["metrics"] == metrics
    assert record["parameters"]["kind"] == kind
    given, dev = [row[column] for row in rows(first=16)], read_predictions([run], "dev")
    classes = sorted(set(TONES)) if kind == "classification" else range(5)
    assert [classes[int(label)] for label in dev["label"].values] == given
    assert same_when_replayed(run)
    capsys.readouterr()
    predict(model=str(run / "model"), files=[str(tmp_path / "dev.csv")], compile_step=False)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    scores = [line["scores"] for line in lines]
    np.testing.assert_allclose(scores, dev["scores"].values[0], rtol=1e-5)
    assert [line["label"] for line in lines] == given
    if kind == "classification":
        named = [classes[int(number)] for number in dev["prediction"].values[0]]
        assert [line["prediction"] for line in lines] == named


def test_weights_are_those_of_scikit_learn_and_move_the_answers(
    tmp_path: Path, fine_tune: Make
) -> None:
    from sklearn.utils.class_weight import compute_class_weight

    for split in ("train", "dev"):
        write_tsv(tmp_path / split, rows(first=16 * (split == "dev")))
    tones = [row["tone"] for row in rows()]
    theirs = compute_class_weight("balanced", classes=np.unique(tones), y=tones).tolist()
    answers = {}
    ways = {"none": None, "ones": [1, 1, 1], "last": [1e-3, 1e-3, 1]}
    for name, weights in {**ways, "balanced": "balanced", "theirs": theirs}.items():
        given = {"labels": sorted(set(TONES)), "options": {**COLUMNS, "class_weights": weights}}
        run = fine_tune("tone", tmp_path, name, num_epochs=4, **given)
        answers[name] = read_predictions([run], "dev")
    np.testing.assert_array_equal(answers["none"]["scores"], answers["ones"]["scores"])
    ours = answers["balanced"]["scores"]
    np.testing.assert_allclose(ours, answers["theirs"]["scores"], rtol=1e-5, atol=1e-6)
    assert np.abs(ours - answers["none"]["scores"]).max() > 1e-3
    assert (answers["last"]["prediction"] == 2).all()
    assert (answers["none"]["prediction"] != 2).any()


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"kind": "regression"}, ("a", "b"), "task tone is a regression, whose labels are numbers"),
        ({"metrics": ["acuracy"]}, ("a", "b"), "has 'acuracy', which is not a metric; did you mean"),
        ({"metrics": ["auc"]}, ("a", "b", "c"), "has auc, which does not suit it"),
        ({"metrics": ["squad_f1"]}, ("a", "b"), "has squad_f1, which does not suit it"),
        ({"metrics": []}, ("a", "b"), "is [], expected different names"),
        ({"class_weights": [1.0]}, ("a", "b"), "expected one weight for each of its 2 classes"),
        ({"kind": "regression", "class_weights": "balanced"}, None, "of its 0 classes"),
        ({"kind": "classification", "label_column": "mood"}, None, "lacking mood"),
        ({"kind": "classification", "label_column": "id"}, None, "found 1001 different labels"),
        ({"kind": "regression", "label_column": "tone"}, None, "line 2: found tone 'calm', expected a"),
        ({"text_columns": ["revue"]}, ("calm", "loud"), "expected revue, tone (lacking revue)"),
        ({}, ("calm", "loud"), "line 5: found tone 'so, so', expected one of calm, loud"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, options: dict[str, Any], labels: tuple[str, ...] | None, message: str
) -> None:
    for split in ("train", "dev"):
        write_tsv(tmp_path / split, [{**row, "id": n} for n, row in enumerate(rows(1001))])
    with pytest.raises(UserError) as refused:
        given = {**COLUMNS, **options}
        found_data(data_dir=str(tmp_path), labels=labels, options=given).train.read()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((),
         "has no table named train (.tsv, .csv, .jsonl, .json, .parquet or a folder of `datasets`); give"),
        (("train.csv", "train.jsonl"), "has train.csv and train.jsonl for the split train"),
        (("train.tsv", "train.csv"), "has train.tsv and train.csv for the split train"),
        (("train.tsv", "train.tsv.gz"), "has train.tsv and train.tsv.gz for the split train"),
    ],
)  # fmt: skip
def test_a_folder_has_one_table_of_a_split(
    tmp_path: Path, files: tuple[str, ...], message: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("x")
    with pytest.raises(UserError) as refused:
        found_data(data_dir=str(tmp_path), labels=("a", "b"), options=COLUMNS)
    assert message in str(refused.value)


MISSING = ("", "nan", "NaN", "None", "null", "NA", "N/A", "<NA>")


@pytest.mark.parametrize("label", MISSING)
def test_a_missing_label_is_no_class(tmp_path: Path, label: str) -> None:
    for split in ("train", "dev"):
        given = rows()
        given[9]["tone"] = label
        write_csv(tmp_path / split, given)
    options = {**COLUMNS, "kind": "classification"}
    with pytest.raises(UserError) as refused:
        found_data(data_dir=str(tmp_path), options=options)
    found = f"line 11: found tone {label!r}, which stands for a missing label; write the label or remove"
    assert found in str(refused.value)
    if label:  # the cure, where it is a class
        assert f"give finetune.labels if {label!r} is one of them" in str(refused.value)
        labels = (*sorted(set(TONES)), label)
        read = found_data(data_dir=str(tmp_path), options=options, labels=labels).train.read()
        assert read.labels is not None and read.labels[9] == 3


@pytest.mark.parametrize(
    ("kind", "cells", "message"),
    [
        ("regression", ["1", "", "2"], "line 3: found tone '', expected a number"),
        ("regression", ["1", "nan", "2"], "line 3: found tone 'nan', expected a number"),
        ("token_classification", ["O O", "nan", "B-X O"], "line 3: found tone 'nan', which stands for"),
        ("token_classification", ["O O", "", "B-X O"], "line 3: found nothing in tone"),
        ("multi_label_classification", ["a|b", "nan", ""], "line 3: found tone 'nan', which stands for a "
         "missing label; write the label (an empty cell has none) or remove the row"),
    ],
)  # fmt: skip
def test_a_missing_label_of_another_kind_is_refused(
    tmp_path: Path, kind: str, cells: list[str], message: str
) -> None:
    for split in ("train", "dev"):
        write_csv(tmp_path / split, [{"review": "a b", "tone": cell} for cell in cells])
    with pytest.raises(UserError) as refused:
        found_data(data_dir=str(tmp_path), options={**COLUMNS, "kind": kind}).train.read()
    assert message in str(refused.value)


@pytest.mark.parametrize("cell", ["", "-1", "nan", None])
def test_a_test_file_may_have_a_column_without_labels_or_none(
    tmp_path: Path, cell: str | None
) -> None:
    for split in ("train", "dev"):
        write_jsonl(tmp_path / split, rows())
    options = {**COLUMNS, "kind": "classification", "predict_test": True}
    texts = [row["review"] for row in rows(3)]
    for given in ([{"review": text} for text in texts], [{**row, "tone": cell} for row in rows(3)]):
        write_jsonl(tmp_path / "test", given)
        test = found_data(data_dir=str(tmp_path), options=options).evaluation[1].read()
        assert (test.labels, test.first_texts) == (None, texts)
    write_jsonl(
        tmp_path / "test", [{**row, "tone": cell if n else "calm"} for n, row in enumerate(rows(3))]
    )
    with pytest.raises(
        UserError, match="test.jsonl line 2: found tone .*, expected one of calm, loud, so"
    ):
        found_data(data_dir=str(tmp_path), options=options).evaluation[1].read()


def test_a_list_is_no_class(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        write_jsonl(tmp_path / split, [{**row, "tone": [row["tone"], "long"]} for row in rows()])
    for labels in (None, ("calm", "loud")):
        with pytest.raises(
            UserError, match="line 1: found a list under 'tone', expected one label; give the"
        ):
            options = {**COLUMNS, "kind": "classification"}
            found_data(data_dir=str(tmp_path), options=options, labels=labels).train.read()


@pytest.mark.parametrize(
    ("kind", "cells", "line"),
    [
        ("classification", ["10", "9", "9"], "0 9 (2), 1 10 (1)"),
        ("multi_label_classification", ["a|b", "b", ""], "0 a (1), 1 b (2), none (1)"),
        ("token_classification", ["O O", "B-X O", "O"], "0 B-X (1), 1 O (4)"),
        ("regression", ["2", "-0.5", "3"], "numbers from -0.5 to 3"),
        ("classification", [f"x{n:03}" for n in range(30)],
         ", ".join(f"{n} x{n:03} (1)" for n in range(20)) + ", and 10 more"),
    ],
)  # fmt: skip
def test_training_says_which_labels_it_has(
    tmp_path: Path, make_checkpoint: Make, capsys: pytest.CaptureFixture[str],
    kind: str, cells: list[str], line: str,
) -> None:  # fmt: skip
    for split in ("train", "dev"):
        texts = ["a" if cell == "O" else "a b" for cell in cells]
        given = [{"review": text, "tone": cell} for text, cell in zip(texts, cells, strict=True)]
        write_csv(tmp_path / split, given[: None if split == "train" else -1])
    found = found_data(
        data_dir=str(tmp_path), options={**COLUMNS, "kind": kind}, sequence_length=32
    )
    read = read_checkpoint(make_checkpoint())
    for _ in range(2):  # runs of one process say it once
        found.read(read)
    printed = [text for text in capsys.readouterr().err.splitlines() if "labels of tone" in text]
    assert printed == [f"note: labels of tone: {line}"]


@pytest.mark.parametrize("pair", [("1", "1.0"), ("good", "good "), ("01", "1")])
def test_labels_that_are_written_in_two_ways_are_refused(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    label = COLUMNS["label_column"]
    for split in ("train", "dev"):
        given = [{**row, label: (*pair, "other")[n % 3]} for n, row in enumerate(rows())]
        write_tsv(tmp_path / split, given)
    with pytest.raises(UserError, match="which would be two classes; write them alike"):
        found_data(data_dir=str(tmp_path), options={**COLUMNS, "kind": "classification"})
