"""Which column is the score, the label or the id is decided by the rows where names leave it open."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.reading import read_rows
from multiberts.evaluate.readers.rows import Rows
from multiberts.runs.errors import UserError

LABELS = np.random.default_rng(0).integers(0, 2, 30)


def rows(classes: Sequence = (0, 1), accuracy: float = 0.7, num_seeds: int = 3) -> pd.DataFrame:
    random = np.random.default_rng(1)
    given = [np.where(random.random(30) < accuracy, LABELS, 1 - LABELS) for _ in range(num_seeds)]
    names = np.asarray(classes)
    return pd.DataFrame(
        {
            "seed": np.repeat(np.arange(num_seeds), 30),
            "id": [f"x{number}" for number in range(30)] * num_seeds,
            "prediction": names[np.concatenate(given)],
            "label": np.tile(names[LABELS], num_seeds),
        }
    )


def read(frame: pd.DataFrame, path: Path, **names: str) -> Rows:
    frame.to_csv(path / "a.csv", index=False)
    return read_rows(str(path / "a.csv"), ColumnNames(**names))


@pytest.mark.parametrize("name", ["correct", "right", "acc"])
@pytest.mark.parametrize("classes", [(0, 1), (1, 2), ("no", "yes")])
def test_a_column_that_stays_while_predictions_differ_is_the_label(
    name: str, classes: Sequence, tmp_path: Path
) -> None:
    found = read(rows(classes).rename(columns={"label": name}), tmp_path)
    assert "score" not in found.frame() and found.read.columns["label"] == name
    assert found.frame()["label"].tolist() == rows(classes)["label"].tolist()


@pytest.mark.parametrize("classes", [(0, 1), ("no", "yes")])
@pytest.mark.parametrize("kind", [int, bool])
def test_a_column_that_differs_between_runs_is_the_score(
    classes: Sequence, kind: type, tmp_path: Path
) -> None:
    frame = rows(classes)
    frame["correct"] = (frame["prediction"] == frame.pop("label")).astype(kind)
    found = read(frame, tmp_path)
    assert "label" not in found.frame() and found.read.columns["score"] == "correct"
    assert found.read.unused == ["prediction"]


def test_where_score_and_label_cannot_be_told_apart_both_columns_are_named(tmp_path: Path) -> None:
    frame = rows(num_seeds=1).rename(columns={"label": "correct"})
    with pytest.raises(UserError, match="'correct' .*'prediction' .*--label=correct"):
        read(frame, tmp_path)
    assert "label" in read(frame, tmp_path, label="correct").frame()
    assert "prediction" not in read(frame, tmp_path, score="correct").frame()


def test_classes_alone_are_no_scores(tmp_path: Path) -> None:
    frame = rows((1, 2)).drop(columns="prediction").rename(columns={"label": "correct"})
    with pytest.raises(UserError, match="'correct' holds 2, 1, .*--score=correct"):
        read(frame, tmp_path)


def test_two_columns_for_one_role_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="seed, 'seed' and 'Seed'; .*--seed="):
        read(rows().assign(Seed=1), tmp_path)
    assert read(rows().assign(Seed=1), tmp_path, seed="seed").frame()["seed"].nunique() == 3
    (tmp_path / "b.csv").write_text("seed,id,prediction,label,prediction\n0,a,1,1,0\n1,a,1,1,1\n")
    with pytest.raises(UserError, match="'prediction' and 'prediction'; rename"):
        read_rows(str(tmp_path / "b.csv"))
    (tmp_path / "b.csv").write_text("seed,id,score,note,note\n0,a,1,x,y\n1,a,1,x,y\n")
    assert read_rows(str(tmp_path / "b.csv")).frame()["score"].tolist() == [1, 1]


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([own.sample(frac=1, random_state=seed) for seed, own in frame.groupby("seed")])


def test_ids_may_have_any_name(tmp_path: Path) -> None:
    frame = rows().rename(columns={"id": "pairID"})
    frame["length"] = [len(name) for name in frame["pairID"]]
    frame["logit"] = np.random.default_rng(0).random(len(frame))
    frame["row"] = np.tile(np.arange(30), 3)
    expected = frame.set_index(["seed", "pairID"])["prediction"]
    found = read(shuffled(frame.drop(columns="row")), tmp_path)
    assert found.read.columns["example"] == "pairID"
    pd.testing.assert_series_equal(
        found.frame().set_index(["seed", "example"])["prediction"].sort_index(), expected.sort_index(),
        check_names=False,
    )  # fmt: skip


def test_several_ids_must_pair_alike(tmp_path: Path) -> None:
    frame = rows().rename(columns={"id": "first"})
    frame["second"] = frame["first"] + "'"
    found = read(shuffled(frame), tmp_path)
    assert found.read.columns["example"] == "first" and "second" in found.read.identifying
    frame["second"] = np.concatenate([np.roll(frame["second"][:30], seed) for seed in range(3)])
    with pytest.raises(UserError, match="'first' and 'second' .*--example=second"):
        read(shuffled(frame), tmp_path)
    assert "first" in read(shuffled(frame), tmp_path, example="second").frame()


def test_row_numbers_are_no_ids_where_texts_say_otherwise(tmp_path: Path) -> None:
    frame = rows()
    frame["sentence"] = "about " + frame["id"]
    frame = shuffled(frame).assign(id=np.tile(np.arange(30), 3)).drop(columns="label")
    with pytest.raises(UserError, match="'id' and 'sentence' .*--example="):
        read(frame, tmp_path)


def test_without_ids_rows_are_numbered_and_that_is_recorded(tmp_path: Path) -> None:
    found = read(rows().drop(columns="id"), tmp_path)
    assert found.frame()["example"].tolist() == [*range(30)] * 3
    assert found.read.columns["example"] == "order of rows"


def test_spaces_around_ids_do_not_make_others(tmp_path: Path) -> None:
    frame = rows()
    frame.loc[40, "id"] += " "
    assert read(frame, tmp_path).frame()["example"].nunique() == 30


def test_a_tab_between_commas_does_not_separate(tmp_path: Path) -> None:
    text = rows().to_csv(index=False).replace("prediction", "\tprediction", 1)
    (tmp_path / "a.csv").write_text(text)
    assert len(read_rows(str(tmp_path / "a.csv"))) == 90


def test_rows_with_more_cells_than_the_header_are_refused(tmp_path: Path) -> None:
    """pandas would take the first cells of rows for an index, and shift all others."""
    (tmp_path / "a.csv").write_text("seed,id,prediction,label\n0,a,1,1,x\n1,a,1,0,y\n")
    with pytest.raises(UserError, match=r"a\.csv: .*more cells"):
        read_rows(str(tmp_path / "a.csv"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_utf_16_is_read_with_or_without_a_mark(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(rows().to_csv(index=False).encode(encoding))
    assert len(read_rows(str(tmp_path / "a.csv"))) == 90


def test_a_file_named_for_another_seed_than_its_column_says_is_refused(tmp_path: Path) -> None:
    for seed, own in rows().groupby("seed"):
        own.assign(seed=7 if seed == 2 else seed).to_csv(tmp_path / f"seed_{seed}.csv", index=False)
    line = r"seed_2\.csv: .* seed 2, .*\('seed'\) .*\b7\b"
    for path in (tmp_path, tmp_path / "seed_2.csv"):
        with pytest.raises(UserError, match=line):
            read_rows(str(path))


@pytest.mark.parametrize("name", ["step_{}00", "fold{}", "epoch_{}", "gpt{}", "layer_1{}"])
def test_numbers_that_are_rarely_seeds_are_warned_of(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = rows()
    wide = frame[:30][["id", "label"]]
    (tmp_path / "folder").mkdir()
    for seed, own in frame.groupby("seed"):
        own.drop(columns="seed").to_csv(tmp_path / f"folder/{name.format(seed)}.csv", index=False)
        wide = wide.assign(**{name.format(seed): own["prediction"].to_numpy()})
    wide.to_csv(tmp_path / "wide.csv", index=False)
    for path in ("folder", "wide.csv"):
        read_rows(str(tmp_path / path))
        assert "taken for seeds" in capsys.readouterr().err


def test_usual_names_are_not_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, own in rows().groupby("seed"):
        own.drop(columns="seed").to_csv(tmp_path / f"run_{seed}.csv", index=False)
    read_rows(str(tmp_path))
    assert capsys.readouterr().err == ""


def test_averaged_epochs_and_broken_links_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pd.concat([rows().assign(epoch=epoch) for epoch in (1, 2, 3)]).to_csv(
        tmp_path / "all.csv", index=False
    )
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere.csv")
    read_rows(str(tmp_path))
    printed = capsys.readouterr().err
    assert re.search(r"3 epochs .*\(1, 2, 3\) .*averaged", printed)
    assert re.search(r"gone\.csv .*left out: .*link", printed)


def test_a_harness_that_had_other_documents_is_refused(tmp_path: Path) -> None:
    for seed in range(2):
        lines = [
            {"doc_id": number, "doc": {"q": f"{number + seed}"}, "target": "a", "acc": 1.0,
             "metrics": ["acc"]}
            for number in range(3)
        ]  # fmt: skip
        (tmp_path / f"seed_{seed}").mkdir()
        text = "\n".join(map(json.dumps, lines))
        (tmp_path / f"seed_{seed}/samples_t_2025-01-01T00-00-00.0.jsonl").write_text(text)
    with pytest.raises(UserError, match="'doc_hash' .*--example"):
        read_rows(str(tmp_path))


def test_a_failed_run_of_inspect_says_so(tmp_path: Path) -> None:
    log = {"status": "error", "error": {"message": "key invalid"}, "eval": {}, "samples": []}
    (tmp_path / "seed_1.json").write_text(json.dumps(log))
    with pytest.raises(UserError, match="status 'error': key invalid"):
        read_rows(str(tmp_path / "seed_1.json"))


@pytest.mark.parametrize("name", ["run", "Repeat", "trial", "training_seed"])
def test_runs_are_seeds_where_nothing_else_is(name: str, tmp_path: Path) -> None:
    frame = read(rows().rename(columns={"seed": name}), tmp_path)
    assert frame.read.columns["seed"] == name and frame.frame()["seed"].nunique() == 3
    both = read(rows().assign(run=rows()["seed"] % 2), tmp_path)
    assert (both.read.columns["seed"], both.read.columns["run"]) == ("seed", "run")
