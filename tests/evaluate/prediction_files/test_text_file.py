"""Texts of examples: written with a run, read with its predictions."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

from multiberts.evaluate.exporting import export
from multiberts.evaluate.prediction_files.example_columns import decode
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.text_file import example_texts, read_texts, write_texts
from multiberts.evaluate.prediction_files.tfrecord import split
from multiberts.runs.errors import UserError
from multiberts.tests.worlds import write_run

IDS = ["x/0", "x/1", "x/2"]
TEXTS = {"premise": ["It rains.", "Ärger\nund\tEis", ""], "hypothesis": ["a", "b" * 50, "c"]}
FILE = "texts/dev.tfrecord.gz"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run of three examples; with texts unless they are None."""

    def made(name: str, texts: dict | None = TEXTS, order: tuple[int, ...] = (0, 1, 2)) -> Path:
        path, entry = tmp_path / "runs" / name, {}
        ids = [IDS[place] for place in order]
        if texts is not None:
            entry = {"texts": write_texts(path, "dev", IDS, texts)}
        columns = {
            "example_ids": ids,
            "labels": [[0, 1, 1][place] for place in order],
            "predictions": [1, 1, 0],
            "extras": {"answers": [[("p", "q"), (), ("r",)][place] for place in order]},
            "entry": entry,
        }
        early = {"dev@0.5": {**columns, "entry": {**entry, "set": "dev", "epochs": 0.5}}}
        return write_run(path, {"dev": columns, **early}, pretrain_seed=int(name))

    return made


def test_predictions_come_with_the_texts_of_their_examples(make, tmp_path: Path) -> None:
    old, reordered = make("0", None, order=(2, 0, 1)), make("1")
    data = read_predictions([old, reordered], "dev")
    assert data["example_id"].values.tolist() == ["x/2", "x/0", "x/1"]
    for name, column in TEXTS.items():
        assert data[name].values.tolist() == [column[place] for place in (2, 0, 1)]
    assert read_predictions([reordered], "dev@0.5")["premise"].values.tolist() == TEXTS["premise"]
    assert example_texts(data, longest=7) == {
        "x/0": "label: 0; answers: p | q; premise: It rain...; hypothesis: a",
        "x/1": "label: 1; answers: ; premise: Ärger u...; hypothesis: bbbbbbb...",
        "x/2": "label: 1; answers: r; premise: ; hypothesis: c",
    }
    assert "premise" not in read_predictions([old], "dev").coords


def test_a_table_of_all_predictions_has_the_texts(make, tmp_path: Path) -> None:
    make("0", order=(1, 2, 0))
    make("1", None)
    export(path=str(tmp_path / "all.parquet"), predictions=str(tmp_path / "runs"))
    rows = pyarrow.parquet.read_table(tmp_path / "all.parquet").to_pylist()
    assert len(rows) == 12
    for row in rows:
        place = IDS.index(row["example_id"])
        expected = TEXTS["premise"][place] if row["pretrain_seed"] == 0 else None
        assert row["premise"] == expected


def test_texts_take_one_file_of_the_same_bytes(make, tmp_path: Path) -> None:
    first, second = make("0"), make("1")
    assert (first / FILE).read_bytes() == (second / FILE).read_bytes()
    columns = decode(split(gzip.decompress((first / FILE).read_bytes())))
    assert columns["premise"].decode() == TEXTS["premise"]


def test_other_or_damaged_texts_are_refused(make, tmp_path: Path) -> None:
    good = make("0")
    other = make("1", {**TEXTS, "premise": ["It snows.", "x", "y"]})
    with pytest.raises(UserError, match=r"1/texts/dev\.tfrecord\.gz holds other texts than .*0/"):
        read_predictions([good, other], "dev")
    (good / FILE).write_bytes(gzip.compress(b"something else"))
    with pytest.raises(
        UserError, match=r"dev\.tfrecord\.gz does not have the SHA-256 in run\.json"
    ):
        read_predictions([good], "dev")
    (good / FILE).unlink()
    with pytest.raises(UserError, match=r"dev\.tfrecord\.gz does not exist"):
        read_predictions([good], "dev")
    few = write_texts(tmp_path, "few", ["x/0"], {"premise": ["It rains."]})
    with pytest.raises(UserError, match="lacks example 'x/1'"):
        read_texts(tmp_path, few, IDS)
    with pytest.raises(UserError, match=r"columns \['example_id', 'premise'\]"):
        read_texts(tmp_path, {**few, "columns": ["question"]}, ["x/0"])
    for texts in ({}, {"label": ["a", "b", "c"]}, {"premise": ["a"]}):
        with pytest.raises(ValueError, match="texts of 3"):
            write_texts(tmp_path, "bad", IDS, texts)
    assert not (tmp_path / "texts" / "bad.tfrecord.gz").exists()
