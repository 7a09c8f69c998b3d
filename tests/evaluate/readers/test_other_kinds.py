"""Files of other kinds are named, with what to give instead."""

import gzip
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts.runs.errors import UserError
from multiberts.tests.evaluate.readers.one_task import read_arms

FRAME = pd.DataFrame({"seed": [0, 1], "id": ["a", "a"], "score": [1, 0]})


def _zip_of(*names: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "x")

    return write


def _json_of(content: object) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps(content)) and None


def _pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(FRAME))


def _feather(path: Path) -> None:
    pytest.importorskip("pyarrow")
    FRAME.to_feather(path)


def _hdf5(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)


def _tar(path: Path) -> None:
    FRAME.to_csv(path.with_suffix(".in"))
    with tarfile.open(path, "w:gz") as archive:
        archive.add(path.with_suffix(".in"), "scores.csv")


def _details(path: Path) -> None:
    pytest.importorskip("pyarrow")
    row = {"doc": [{"query": "q"}], "metric": [{"em": 1.0}], "model_response": [{"text": "a"}]}
    pd.DataFrame(row).to_parquet(path)


def _roc(path: Path) -> None:
    pd.DataFrame({"class": ["a"], "fpr": [0.0], "tpr": [1.0]}).to_csv(path)


EUROEVAL = {
    "dataset": "d", "task": "t", "languages": ["da"], "model": "m",
    "results": {"raw": [{"test_mcc": 1.0}], "total": {"test_mcc": 1.0}}, "num_model_parameters": 3,
}  # fmt: skip
OPENCOMPASS = {str(n): {"origin_prompt": "q", "prediction": "A.", "gold": "A"} for n in range(2)}
NBEST = {"q1": [{"text": "a", "probability": 0.5, "start_logit": 1.0, "end_logit": 2.0}]}


@pytest.mark.parametrize(
    ("write", "line"),
    [
        (_pickle, "is a pickle of Python, .*table .CSV."),
        (_zip_of("archive/data.pkl"), "is a pickle of PyTorch"),
        (_zip_of("[Content_Types].xml", "xl/workbook.xml"), "Excel .*save its sheet as CSV"),
        (_zip_of("mimetype", "META-INF/manifest.xml"), "OpenDocument .*save its sheet as CSV"),
        (_zip_of("base.csv"), "is a zip of tables, .*unpack it"),
        (_feather, "is Feather, .*to_parquet"), (_hdf5, "is HDF5"), (_tar, "is a tar archive; unpack"),
        (lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(99)), r"Excel \(.xls\)"),
        (lambda path: path.write_text("\n<!doctype html>\n<html>"), "is a web page"),
        (_json_of(OPENCOMPASS), "OpenCompass's raw answers"),
        (_json_of(EUROEVAL), "EuroEval's scores of whole data sets; .*id and score"),
        (_details, "lighteval's details"), (_roc, "a ROC curve"),
        (_json_of(NBEST), "nbest.; give .*predictions.json"),
        (_json_of({"log_history": [{"loss": 1}], "global_step": 3}), "the Trainer's state"),
        (_json_of({"results": {}, "configs": {}, "versions": {}}), "--log_samples"),
        (_json_of({f"q{n}": n / 9 for n in range(99)}), "one value per name .'q0, q1, q2"),
    ],
)  # fmt: skip
def test_other_kinds(write: Callable[[Path], None], line: str, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"  # whatever its name says
    write(path)
    with pytest.raises(UserError, match=line) as caught:
        read_arms(str(path))
    assert str(path) in str(caught.value) and len(str(caught.value)) < 300 + len(str(path))


def test_the_content_says_what_a_file_is(tmp_path: Path) -> None:
    text = FRAME.to_csv(index=False)
    for name, content in (
        ("a.json", text.encode()), ("b.csv", gzip.compress(text.encode())),
        ("c.csv", ("sep=;\r\n" + FRAME.to_csv(index=False, sep=";")).encode()),
        ("d.csv", FRAME.to_csv(index=False, sep="\t").encode()),
        ("e.csv", FRAME.to_json(orient="records").encode()),
        ("f.txt", json.dumps(FRAME.to_dict("split")).encode()),  # as W&B saves tables, too
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        assert read_arms(str(tmp_path / name))[""].values.tolist() == [[1], [0]]


def test_best_answers_beside_predictions_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        folder = tmp_path / f"seed_{seed}"
        folder.mkdir()
        FRAME[FRAME["seed"] == seed].to_csv(folder / "predictions.csv", index=False)
        (folder / "nbest_predictions.json").write_text(json.dumps(NBEST))
    assert read_arms(str(tmp_path))[""].seeds == [0, 1]
    assert "left out: nbest_predictions.json (2)" in capsys.readouterr().err
