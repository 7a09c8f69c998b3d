"""Files of predictions of every kind are read as the same rows; wrong ones get one line."""

import copy
import gzip
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts.evaluate.readers.columns import ColumnNames, SliceNames
from multiberts.evaluate.readers.rows import BY_TIME, POSITION
from multiberts.runs.errors import UserError
from multiberts.tests.evaluate.readers.one_task import read_arms, read_rows

SEEDS, EXAMPLES = (0, 3), ("a", "b", "c")
PREDICTIONS = np.array([[1, 0, 1], [0, 0, 1]])
LABELS = np.array([1, 0, 0])


FRAME = pd.DataFrame(
    {
        "seed": np.repeat(SEEDS, 3), "example": EXAMPLES * 2, "prediction": PREDICTIONS.ravel(),
        "label": np.tile(LABELS, 2),
    }
)  # fmt: skip
USUAL = {"seed": "Pretrain_Seed", "example": "guid", "prediction": "y_pred", "label": "gold"}
WIDE = pd.DataFrame(
    {"id": EXAMPLES, "label": LABELS, "seed_0": PREDICTIONS[0], "seed_3": PREDICTIONS[1]}
)
OF_A_SPREADSHEET = FRAME.to_csv(sep="\t", index=False).replace("\n", "\r\n")


def _csv(path: Path) -> None:
    FRAME.to_csv(path, index=False)


def _npz(path: Path) -> None:
    ids = np.array(EXAMPLES)
    np.savez(path, predictions=PREDICTIONS, labels=LABELS, seeds=SEEDS, example_ids=ids)


def _parquet(path: Path) -> None:
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(path)


def _folder(path: Path) -> None:
    path.mkdir()
    for seed, rows in FRAME.groupby("seed"):
        rows.drop(columns="seed").to_csv(path / f"run-{seed}.csv", index=False)


def _arrow_folders(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for seed, rows in FRAME.groupby("seed"):
        folder = path / f"seed={seed}"
        folder.mkdir(parents=True)
        table = pyarrow.Table.from_pandas(rows.drop(columns="seed"), preserve_index=False)
        with pyarrow.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.csv", _csv), ("without an ending", _csv), ("a.npz", _npz), ("a.parquet", _parquet),
        ("folder", _folder), ("datasets", _arrow_folders),
        ("a.tsv", lambda path: FRAME.rename(columns=USUAL).to_csv(path, sep="\t", index=False)),
        ("spaces.csv", lambda path: FRAME.rename(columns=" {}".format).to_csv(path, index=False)),
        ("semicolons.csv", lambda path: FRAME.to_csv(path, sep=";", index=False)),
        ("unicode.txt", lambda path: path.write_bytes(OF_A_SPREADSHEET.encode("utf-16"))),  # with its mark
        ("a.jsonl", lambda path: FRAME.to_json(path, orient="records", lines=True)),
        ("a.json", lambda path: path.write_text(json.dumps(FRAME.to_dict("list")))),
        ("a.csv.gz", lambda path: path.write_bytes(gzip.compress(FRAME.to_csv(index=False).encode()))),
        ("wide.csv", lambda path: WIDE.to_csv(path, index=False)),
    ],
)  # fmt: skip
def test_every_form_gives_the_same_rows(
    name: str, write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path / name)
    found = read_rows(str(tmp_path / name))
    order = ["seed", "example", "prediction", "label"]
    pd.testing.assert_frame_equal(
        found.frame()[order].sort_values(["seed", "example"], ignore_index=True),
        FRAME[order],
        check_dtype=False,
    )


@pytest.mark.parametrize("decimal", [",", "."])
def test_semicolons_separate_numbers_with_either_decimal_sign(decimal: str, tmp_path: Path) -> None:
    rows = f"seed;id;score;text\n0;a;0{decimal}5;1,5\n0;b;1;2.5\n1;a;;x\n1;b;0;y\n"
    (tmp_path / "a.csv").write_text(rows)
    found = read_rows(str(tmp_path / "a.csv"))
    np.testing.assert_array_equal(found.frame()["score"], [0.5, 1.0, np.nan, 0.0])
    assert found.frame()["text"].tolist() == ["1,5", "2.5", "x", "y"]


def test_labels_but_for_spaces_or_capitals_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("seed,id,prediction,label\n0,a, yes,yes\n0,b,No,no\n1,a,yes,yes\n1,b,no,no\n")
    assert read_rows(str(path)).frame()["prediction"].tolist() == [" yes", "No", "yes", "no"]
    assert re.search("' yes' .*'yes' .*spaces", capsys.readouterr().err)
    path.write_text("seed,id,prediction,label\n0,a,maybe,yes\n1,a,yes,yes\n")
    read_rows(str(path))
    assert capsys.readouterr().err == ""


def test_statistics_of_helm(tmp_path: Path) -> None:
    for seed in (0, 1):
        entries = [
            {
                "instance_id": f"id{number}", "train_trial_index": 0, "perturbation": perturbation,
                "stats": [{"name": {"name": "exact_match", "split": "test"}, "mean": number % 2}],
            }
            for number in range(3) for perturbation in (None, {"name": "typos"})
        ]  # fmt: skip
        for entry in entries:
            if entry["perturbation"] is None:
                del entry["perturbation"]
        folder = tmp_path / f"mmlu:model=me_seed{seed}"
        folder.mkdir()
        (folder / "per_instance_stats.json").write_text(json.dumps(entries))
    found = read_rows(str(tmp_path))
    assert found.frame().groupby("seed")["score"].agg(list).to_dict() == {
        0: [0, 1, 0],
        1: [0, 1, 0],
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\n1,2\n", "seeds or of predictions or scores among 'a', 'b'; .*--seed=COLUMN --prediction"),
        ("seed,b\n1,2\n", "scores among 'seed', 'b'; .*--prediction=COLUMN"),
        ("", "is empty; "),
        (" []\n", "is empty; "),
        ("0,ex0,1,1\n0,ex1,1,0\n", "'0', 'ex0', '1'; the first line "),
        ('seed\tid\tscore\ttext\n0\ta\t1\t"x\n0\tb\t1\n0\tc\t1\t"z\n', "'text' .*quotation mark"),
        ('{"seed": 1, "score": 1}\n{"seed": 2, "sc', "line 2 is not .*JSON"),
        ('{"seed": [1, 2], "score": [1]}', r"found {'seed': \[1, 2\], "),
        ("[" * 100_000, "nested too deep"),
        ("\x00\x01", "is UTF-16, UTF-32 or no text"),
        ("task,seed,score\nx,1,1\ny,1,1\n", "2 tasks .x, y.; .*--task=x$"),
        ("seed,id,prediction,label\n", "has no rows"),
        ('{"columns": ["seed", "id", "prediction"], "data": []}', "has no rows"),
        ('{"exact_match": 0.5, "_timestamp": "now"}', "one value .*exact_match, _timestamp"),
        # pandas would take the first cells of rows for an index, and shift all others.
        ("seed,id,prediction,label\n0,a,1,1,x\n1,a,1,0,y\n", "more cells"),
        ("seed,id,score,score\n0,a,1,1\n1,a,1,0\n", "'score' and 'score'; rename"),
        ("id,seed_0,seed_0\na,1,0\nb,1,1\n", "'seed_0' and 'seed_0' are both of seed 0"),
    ],
)  # fmt: skip
def test_a_wrong_file_gets_one_line(text: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=line) as caught:
        read_rows(str(path))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_marks_of_glue_that_are_not_doubled_are_letters(tmp_path: Path) -> None:
    """Its TSV has neither cells of several lines nor marks around cells, so that two marks hid rows."""
    path = tmp_path / "dev.tsv"
    path.write_text('seed\tid\tscore\ttext\n0\ta\t1\t"x\n0\tb\t0\ty\n0\tc\t1\t"z\n')
    found = read_rows(str(path)).frame()
    assert found[["example", "score", "text"]].to_numpy().tolist() == [
        ["a", 1, '"x'], ["b", 0, "y"], ["c", 1, '"z']]  # fmt: skip


def test_words_for_missing_numbers_are_words_among_words(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("seed,id,prediction,label,score\n0,a,None,NA,1\n0,b,,other,NA\n")
    found = read_rows(str(path))
    assert found.frame()["prediction"][0] == "None" and found.frame()[
        "prediction"
    ].isna().tolist() == [False, True]
    assert found.frame()["label"].tolist() == ["NA", "other"]
    scores = read_rows(str(path), ColumnNames(score="score")).frame()["score"]
    assert scores[0] == 1 and np.isnan(scores[1])


def test_without_labels_scores_count(tmp_path: Path) -> None:
    path = tmp_path / "both.csv"
    path.write_text("seed,id,prediction,score\n0,a,x,1\n0,b,y,0\n")
    assert "prediction" not in read_rows(str(path)).frame()
    path.write_text("seed,id,prediction,score,label\n0,a,x,1,x\n0,b,y,0,x\n")
    assert "score" not in read_rows(str(path)).frame()


def test_files_whose_seeds_cannot_be_told_are_refused(tmp_path: Path) -> None:
    for name in ("first", "second"):
        FRAME[:3].drop(columns="seed").to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(UserError, match="no column of seeds"):
        read_rows(str(tmp_path))
    (tmp_path / "second.csv").rename(tmp_path / "2.csv")
    with pytest.raises(UserError, match=r"2 files.* seed .*2\.csv, first\.csv"):
        read_rows(str(tmp_path))


def test_arrays_stay_arrays(tmp_path: Path) -> None:
    ids, groups = np.array([" a", "b", "c"]), np.array([1, 1, 2])
    np.savez(
        tmp_path / "a.npz", predictions=PREDICTIONS, gold=LABELS, example_ids=ids, group=groups
    )
    names = SliceNames(label="gold", by="group")
    table = read_arms(str(tmp_path / "a.npz"), names)[""]
    assert table.values.tolist() == PREDICTIONS.tolist() and table.seeds == [0, 1]
    assert table.labels.tolist() == LABELS.tolist() and table.example_ids.tolist() == [
        "a",
        "b",
        "c",
    ]
    assert table.of_examples["group"].tolist() == [1, 1, 2]
    assert table.read.columns["seed"] == POSITION and table.read.columns["label"] == "gold"
    with pytest.raises(UserError, match="no array 'x' for --label, only predictions, gold"):
        read_arms(str(tmp_path / "a.npz"), ColumnNames(label="x"))
    np.savez(tmp_path / "b.npz", scores=PREDICTIONS, seeds=[4, 4])
    with pytest.raises(UserError, match="two rows of seed 4 in seeds"):
        read_arms(str(tmp_path / "b.npz"))


SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.mark.parametrize(
    ("folder", "names", "task", "runs", "examples", "mean"),
    [
        ("lm_eval/step1000", {}, None, 10, 20, 0.395),
        ("lm_eval/step143000", {}, None, 10, 20, 0.595),
        ("lm_eval/filters", {}, "sums_choice", 2, 6, 7 / 12),
        ("lm_eval/filters", {"score": "exact_match,flexible-extract"}, "sums_written", 2, 6, 7 / 12),
        ("lm_eval/again", {}, None, 3, 6, 23 / 36),
        ("inspect/logs", {"score": "match"}, None, 3, 6, 26 / 36),
        ("inspect/eval", {"score": "match"}, None, 4, 6, 0.75),
        ("inspect/json", {"score": "includes"}, None, 2, 3, 5 / 6),
        ("hugging_face/datasets", {}, None, 2, 20, 0.525),
        ("hugging_face/splits", {"where": "split=test"}, None, 2, 14, 0.4286),
        ("hugging_face/evaluate", {}, None, 2, 20, 0.525),
        ("helm", {}, None, 2, 4, 0.0),
        ("helm", {"score": "num_references"}, None, 2, 4, 2.0),
    ],
)  # fmt: skip
def test_what_other_programs_wrote(
    folder: str, names: dict[str, str], task: str | None, runs: int, examples: int, mean: float
) -> None:
    if folder.startswith(("hugging_face/datasets", "hugging_face/splits")):
        pytest.importorskip("pyarrow")
    found = read_rows(str(SAMPLES / folder), ColumnNames(**names), task).frame()
    keys = [name for name in ("seed", "run") if name in found]
    if "arm" in found:  # several models
        assert sorted(name[-1] for name in found["arm"].unique()) == ["a", "b"]
    assert found.groupby(keys).ngroups == runs and found["example"].nunique() == examples
    right = found["score"] if "score" in found else found["prediction"] == found["label"]
    assert right.mean() == pytest.approx(mean, abs=1e-4)
    if "evaluate" not in folder:  # the only one that keeps no texts
        texts = found["question" if "lm_eval" in folder else "text"]
        assert texts.str.match(r"\d \+ \d( =)?$|Is \d\d even or odd\?$").all()


def test_a_filter_and_a_task_of_the_harness_are_chosen(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "lm_eval/filters", tmp_path / "logs")
    for folder in (tmp_path / "logs").iterdir():
        (folder / "results_2026-11-22T08-45-07.000001.json").write_text("{}")
    with pytest.raises(UserError, match="--score=exact_match,strict-match"):
        read_rows(str(tmp_path / "logs"), task="sums_written")
    names = ColumnNames(score="exact_match,flexible-extract")
    assert len(read_rows(str(tmp_path / "logs"), names, "sums_written")) == 12
    with pytest.raises(UserError, match="task 'arc', .*sums_choice"):
        read_rows(str(tmp_path / "logs"), names, task="arc")


def test_samples_are_small() -> None:
    sizes = {path: path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()}
    assert max(sizes.values()) < 50_000, max(sizes, key=lambda path: sizes[path])


def test_times_in_names_are_not_seeds(tmp_path: Path) -> None:
    for run, time in ((1, "58"), (2, "59")):
        (tmp_path / f"run{run}").mkdir()
        text = json.dumps({"exact_match": [0.0, 1.0]})
        (tmp_path / f"run{run}/result-2026_11_22-08_50_{time}.json").write_text(text)
    assert read_rows(str(tmp_path)).frame()["seed"].tolist() == [1, 1, 2, 2]
    for run, time in ((1, "58"), (2, "59")):
        (tmp_path / f"run{run}/result-2026_11_22-08_50_{time}.json").rename(
            tmp_path / f"result-2026_11_22-08_50_{time}.json"
        )
        (tmp_path / f"run{run}").rmdir()
    with pytest.raises(UserError, match="no column of seeds"):
        read_rows(str(tmp_path))


def samples_of_seed(folder: Path, seed: int, time: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    [path] = SAMPLES.glob(f"lm_eval/filters/*seed{seed}/samples_sums_choice_*")
    changed = path.read_text().replace('"acc": 0.0', text)
    (folder / f"samples_sums_choice_{time}T10-00-00.0.jsonl").write_text(changed)


def test_evaluations_again_of_one_seed_are_its_runs(tmp_path: Path) -> None:
    for seed in (1, 2):
        for time, text in (("2026-01-02", '"acc": 0.0'), ("2026-01-01", '"acc": 1.0')):
            samples_of_seed(tmp_path / f"seed{seed}", seed, time, text)
    found = read_rows(str(tmp_path))
    assert found.read.columns["run"] == BY_TIME
    means = found.frame().groupby("run")["score"].mean()
    assert means.tolist() == [1.0, pytest.approx(7 / 12)]  # in order of time, not of names


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_logs_of_one_seed_may_have_unlike_numbers_of_epochs(ending: str, tmp_path: Path) -> None:
    """Two epochs, then one: three runs. The settings of another task make no arms."""
    for seed in (1, 2):
        [path] = SAMPLES.glob(f"inspect/json/seed_{seed}/*.json")
        first, folder = json.loads(path.read_text()), tmp_path / f"seed_{seed}"
        folder.mkdir()
        second, other = (copy.deepcopy(first) for _ in range(2))
        again = copy.deepcopy(first["samples"])
        first["samples"] += [sample | {"epoch": 2} for sample in again]
        other["eval"] |= {"task": "other", "task_args": {"shots": 3}}
        for day, log in enumerate((first, second, other), 1):
            log["eval"]["created"] = f"2026-01-0{day}T10:00:00+00:00"
            content = json.dumps(log).encode()
            (folder / f"2026-01-0{day}T10-00-00_sums_{day}.{ending}").write_bytes(
                gzip.compress(content) if ending.endswith("gz") else content
            )
    found = read_rows(str(tmp_path), ColumnNames(score="includes"), first["eval"]["task"])
    assert found.frame().groupby("seed")["run"].unique().map(list).to_dict() == {
        1: [1, 2, 3],
        2: [1, 2, 3],
    }
    assert "arm" not in found.frame()


def test_models_are_folders_and_their_logs_runs_in_order_of_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in (1, 2):
        for model in ("a", "b"):
            folder = tmp_path / f"run{run}" / f"org__model_{model}"
            folder.parent.mkdir(exist_ok=True)
            samples_of_seed(folder, 1, f"2026-01-0{run}", '"acc": 0.0')
    found = read_rows(str(tmp_path))
    assert found.frame().groupby("arm")["seed"].unique().map(list).to_dict() == {
        "org__model_a": [1, 2], "org__model_b": [1, 2],
    }  # fmt: skip
    assert "2 evaluations of org__model_a have" in capsys.readouterr().err
    alone = read_rows(str(tmp_path / "run1/org__model_a"))
    assert alone.roles["seed"].unique().tolist() == [1] and "arm" not in alone.roles


@pytest.mark.parametrize("kind", ["eval", "json"])
def test_the_reader_of_inspect_itself_gives_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Where Inspect is installed its own reader is used, as the form of its logs may change."""
    pytest.importorskip("inspect_ai")
    names = ColumnNames(score="match")
    theirs = read_rows(str(SAMPLES / "inspect" / kind), names)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)  # as if it were not installed
    ours = read_rows(str(SAMPLES / "inspect" / kind), names)
    pd.testing.assert_frame_equal(theirs.frame(), ours.frame())
    monkeypatch.undo()
    shutil.copytree(SAMPLES / "inspect" / kind, tmp_path / "logs")
    log = next((tmp_path / "logs").rglob(f"*.{kind}"))
    if kind == "eval":
        log.write_bytes(log.read_bytes()[:200])
    else:
        log.write_text(json.dumps({**json.loads(log.read_text()), "version": 99}))
    with pytest.raises(UserError, match="not a whole|inspect_ai .*version 99"):
        read_rows(str(tmp_path / "logs"), names)


def test_an_export_without_columns_that_are_all_alike_is_read(tmp_path: Path) -> None:
    """Users drop step, learning rate and seed of the data; the last epoch of each run is still known."""
    rows = [
        {
            "task": "rte", "evaluation_set": "dev", "epochs": epochs, "procedure": "base",
            "pretrain_seed": seed, "finetune_seed": 0, "example_id": example,
            "prediction": int(epochs == 3), "label": 1,
        }
        for seed in (0, 1)
        for epochs in (1, 3)
        for example in ("a", "b")
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "export.csv", index=False)
    frame = read_rows(tmp_path / "export.csv")
    assert len(frame) == 4 and frame.frame()["prediction"].tolist() == [1] * 4
    by_label = read_rows(tmp_path / "export.csv", SliceNames(by="label")).roles
    assert by_label["by"].tolist() == by_label["label"].tolist() == [1] * 4


def test_a_column_named_data_beside_others_is_a_column(tmp_path: Path) -> None:
    columns = {"seed": [1, 1], "id": ["a", "b"], "prediction": [0, 1], "label": [1, 1]}
    rows = [{"seed": 1, "id": "a", "prediction": 1, "label": 1}] * 2
    (tmp_path / "a.json").write_text(json.dumps({**columns, "data": rows}))
    assert read_rows(tmp_path / "a.json").frame()["prediction"].tolist() == [0, 1]
