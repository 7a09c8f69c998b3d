"""Which column is the score, the label or the id is decided by the rows where names leave it open."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts.evaluate.imports.other_programs import read_other_programs
from multiberts.evaluate.readers.columns import ColumnNames, SliceNames
from multiberts.evaluate.readers.reading import tasks_in_memory
from multiberts.evaluate.readers.rows import Rows
from multiberts.runs.errors import UserError
from multiberts.tests.evaluate.readers.one_task import read_arms, read_rows

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


def test_per_cent_signs_are_read_and_a_cell_that_is_no_number_is_named(tmp_path: Path) -> None:
    cells = {"model": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1]}
    found = read(pd.DataFrame({**cells, "accuracy": ["81.2%", "80 %", None, "84%"]}), tmp_path)
    assert found.frame()["score"].tolist() == pytest.approx([81.2, 80, np.nan, 84], nan_ok=True)
    for culprit, others, expected in (("failed", "81.2", "a number"), ("0.8", "81.2%", "per cent")):
        frame = pd.DataFrame({**cells, "score": [others, culprit, others, others]})
        line = rf"found '{culprit}' in column 'score' \(arm a, seed 1\), expected {expected}"
        with pytest.raises(UserError, match=line):
            read(frame, tmp_path)


def test_two_columns_for_one_role_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="seed, 'seed' and 'Seed'; .*--seed="):
        read(rows().assign(Seed=1), tmp_path)
    assert read(rows().assign(Seed=1), tmp_path, seed="seed").frame()["seed"].nunique() == 3
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


def test_usual_names_are_not_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, own in rows().groupby("seed"):
        own.drop(columns="seed").to_csv(tmp_path / f"run_{seed}.csv", index=False)
    read_rows(str(tmp_path))
    assert capsys.readouterr().err == ""


def test_broken_links_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows().to_csv(tmp_path / "all.csv", index=False)
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere.csv")
    read_rows(str(tmp_path))
    printed = capsys.readouterr().err
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
    with pytest.raises(UserError, match="'doc_hash' for the example 0, .*--example"):
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


def wide(name: str, arms: Sequence[str] = ("old", "new")) -> pd.DataFrame:
    """Scores of two seeds of each arm on 30 examples, in columns of such names."""
    random = np.random.default_rng(2)
    columns = [name.format(arm=arm, seed=seed) for arm in arms for seed in (0, 1)]
    scores = {column: random.integers(0, 2, 30) for column in dict.fromkeys(columns)}
    return pd.DataFrame({"id": [f"x{number}" for number in range(30)], **scores})


@pytest.mark.parametrize(
    "name",
    [
        "{arm}_seed_{seed}", "{arm}_seed{seed}", "{arm} Seed {seed}", "{arm}-run-{seed}", "{arm}.Run{seed}",
        "{arm}_rng_seed_{seed}", "{arm}_random_seed_{seed}", "{arm}/trial {seed}", "{arm}_repeat{seed}",
        "{arm}_pretrain_seed={seed}", "seed_{seed}_{arm}", "run{seed}-{arm}", "{arm}_acc_seed_{seed}",
    ],
)  # fmt: skip
def test_the_word_seed_or_run_makes_columns_seeds_of_arms(name: str, tmp_path: Path) -> None:
    frame = wide(name)
    found = read(frame, tmp_path)
    assert found.roles["arm"].unique().tolist() == ["old", "new"]
    assert found.roles["seed"].unique().tolist() == [0, 1]
    assert found.roles["score"].tolist() == np.concatenate(frame.iloc[:, 1:].T.to_numpy()).tolist()
    alone = read(wide(name.replace("{arm}", "").strip("_ -./"), [""]), tmp_path)
    assert "arm" not in alone.roles and alone.roles["seed"].unique().tolist() == [0, 1]


@pytest.mark.parametrize(
    "name", ["{arm}_{seed}", "{arm}{seed}", "{arm} {seed}", "attention_region_{seed}", "{seed}",
             "{arm}_step_{seed}", "{arm}_epoch{seed}", "overrun{seed}"]
)  # fmt: skip
def test_numbers_alone_are_no_seeds_unless_that_is_said(name: str, tmp_path: Path) -> None:
    """`bleu_1` ... `rouge_2` were two arms, and nine regions nine seeds with an interval."""
    frame = wide(name)
    with pytest.raises(UserError, match="end in numbers, .* --seed=columns .*--prediction=COLUMN"):
        read(frame, tmp_path)
    found = read(frame, tmp_path, seed="columns").roles
    assert found["seed"].unique().tolist() == [0, 1]
    assert ("arm" in found) == ("{arm}" in name or name[0] in "ao")
    named = frame.rename(columns={frame.columns[1]: "columns"}).assign(pred_of_1=1)
    assert (
        read(named, tmp_path, seed="columns", prediction="pred_of_1").read.columns["seed"]
        == "columns"
    )
    with pytest.raises(UserError, match="no column with a number .*--seed=columns"):
        read(frame[["id"]].assign(score=1), tmp_path, seed="columns")


def test_columns_that_sum_to_one_are_classes(tmp_path: Path) -> None:
    """AUC of them was given as that of two seeds."""
    shares = np.random.default_rng(0).dirichlet([1, 1, 1], 30).round(2)
    frame = wide("", []).assign(label=1, prob_0=shares[:, 0], prob_1=1 - shares[:, 0])
    with pytest.raises(UserError, match=r"prob_0 to prob_1 sum to 1 .*--prediction=prob_1"):
        read(frame, tmp_path)
    with pytest.raises(UserError, match=r"prob_0 to prob_1 sum to 1 .*--prediction=prob_1"):
        read(frame.assign(seed=3), tmp_path)
    assert (
        read(frame.assign(seed=3), tmp_path, prediction="prob_1").roles["prediction"].dtype == float
    )
    assert read(frame, tmp_path, seed="columns").roles["seed"].nunique() == 2
    three = wide("", []).assign(**{f"p{place}": shares[:, place] for place in range(3)})
    with pytest.raises(UserError, match=r"p0 to p2 sum to 1 .*--prediction=COLUMN"):
        read(three, tmp_path)


@pytest.mark.parametrize("label", ["label_seed{}", "run {} gold", "label {} {}", "correct_seed_{}"])
def test_words_before_the_seed_say_what_the_columns_hold(label: str, tmp_path: Path) -> None:
    """`label_seed0` was an arm, which `pred_seed0` was compared with."""
    arm = "base" if "label {} {}" in label else ""
    name = "pred_{0}_seed_{1}" if arm else "pred_seed{1}"
    label = label.replace("{} {}", "{0} seed {1}").replace("{}", "{1}")
    frame = wide("", [])
    for seed, own in rows().groupby("seed"):
        columns = {
            name.format(arm, seed): own["prediction"].tolist(),
            label.format(arm, seed): LABELS,
        }
        frame = frame.assign(**columns)
    found = read(frame, tmp_path)
    assert found.roles["prediction"].tolist() == rows()["prediction"].tolist()
    assert found.roles["label"].tolist() == rows()["label"].tolist()
    assert ("arm" in found.roles) == bool(arm) and not found.read.unused
    if "correct" not in label:
        last = label.format(arm, 2)
        with pytest.raises(UserError, match=f"different labels .*'{last}'"):
            read(frame.assign(**{last: 1 - LABELS}), tmp_path)
        given = read(frame.assign(target=1 - LABELS), tmp_path, label="target")
        assert given.roles["label"].tolist() == [*1 - LABELS] * 3 and len(given.read.unused) == 3


def test_columns_of_runs_are_read_as_rows_are(tmp_path: Path) -> None:
    """Ids kept their spaces, and 1.0 stood beside True where a seed lacked one value."""
    frame = wide("seed_{seed}", [""]).assign(seed_0=True, seed_1=[None, *[False] * 29])
    frame.loc[3, "id"] += " "
    [rows] = tasks_in_memory(frame.astype({"seed_1": object}), "table").values()
    found = rows.roles
    assert found["example"].tolist() == [f"x{number}" for number in range(30)] * 2
    assert found["score"].dtype == float and found["score"].sum() == 30
    with pytest.raises(UserError, match=r"\[1, 2\] in column 'seed_0 \.\.\. seed_1', row 4, "):
        frame["seed_1"] = [0, 1, 1, [1, 2], *[0] * 26]
        tasks_in_memory(frame, "table")


def test_an_arm_may_begin_with_such_a_word(tmp_path: Path) -> None:
    found = read(wide("{arm}_seed_{seed}", ["label_smoothing", "none"]), tmp_path)
    assert found.roles["arm"].unique().tolist() == ["label_smoothing", "none"]


def test_of_two_scores_of_each_seed_the_first_usual_one_is_taken_and_the_other_named(
    tmp_path: Path,
) -> None:
    found = read(wide("{arm}_seed_{seed}", ["f1", "em"]), tmp_path)
    assert found.read.columns["score"] == "em_seed_0 ... em_seed_1" and "arm" not in found.roles
    assert found.read.unused == ["f1_seed_0", "f1_seed_1"]


def test_wide_columns_that_contradict_one_another_are_refused(tmp_path: Path) -> None:
    frame = wide("seed_{seed}", [""])
    with pytest.raises(UserError, match="'seed_1' and 'run_1' are both of seed 1"):
        read(frame.assign(run_1=1), tmp_path)
    with pytest.raises(UserError, match="with and without the name of an arm"):
        read(frame.assign(new_seed_0=1), tmp_path)


def test_columns_of_arms_in_folders_of_arms_are_arms_of_both(tmp_path: Path) -> None:
    """A KeyError was all there was."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        wide("{arm}_seed_{seed}").to_csv(tmp_path / folder / "w.csv", index=False)
    assert [*read_arms(str(tmp_path))] == ["a, old", "a, new", "b, old", "b, new"]


def test_a_column_of_arms_beside_columns_of_seeds_is_read_where_it_is_named(tmp_path: Path) -> None:
    frame = pd.concat([wide("seed_{seed}", [""]).assign(model=model) for model in "ab"])
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert [*read_arms(str(tmp_path / "a.csv"), ColumnNames(arm="model"))] == ["a", "b"]


def test_usual_names_of_public_scripts(tmp_path: Path) -> None:
    for example, prediction, label in (
        ("row_id", "predicted_label", "true_label"), ("item", "pred_label", "gold_label"),
        ("id", "predicted_class", "actual"), ("id", "hyp", "ref"), ("id", "Model_Output", "ground_truth"),
        ("id", "y_hat", "answers"), ("id", "prediction_text", "gold"),
    ):  # fmt: skip
        names = {"id": example, "prediction": prediction, "label": label}
        found = read(rows().rename(columns=names), tmp_path)
        assert found.read.columns == {"seed": "seed", "example": example} | {
            "prediction": prediction, "label": label
        }  # fmt: skip


def test_a_second_column_of_a_role_is_said_to_be_left_out(tmp_path: Path) -> None:
    frame = rows().assign(predicted_label=1, gold=0, f1=0.5, trial=1)
    found = read(frame, tmp_path)
    assert found.read.columns["prediction"] == "prediction"
    assert found.read.unused == ["predicted_label", "gold", "trial", "f1"]
    runs = rows().rename(columns={"seed": "run"}).assign(epoch=3)
    assert read(runs, tmp_path).read.unused == ["epoch"]
    named = read(
        frame, tmp_path, prediction="predicted_label", label="gold", seed="seed", score=None
    )
    assert named.read.unused == ["prediction", "label", "trial", "f1"]


def test_all_roles_are_asked_for_at_once_and_guessed_by_values(tmp_path: Path) -> None:
    odd = rows().set_axis(["w", "x", "y", "z"], axis=1)
    for frame, flags in (
        (odd, "--seed=w --example=x --prediction=y --label=z, a guess"),
        (odd.iloc[:, ::-1], "--seed=w --example=x --prediction=y --label=z, a guess"),
        (odd.rename(columns={"x": "id", "z": "label"}), "--seed=w --prediction=y, a guess"),
        (odd.assign(x=1), "--seed=COLUMN --prediction=COLUMN or --score=COLUMN"),
        (odd.assign(y=[[1, 2]] * 90, z=[{}] * 90), "--seed=w --example=x --prediction=COLUMN or"),
    ):
        with pytest.raises(UserError, match=f"seeds or of predictions or scores among .* {flags}"):
            tasks_in_memory(frame, "data")


def test_rows_without_seeds_are_one_run_where_every_one_is_of_another_example(
    tmp_path: Path,
) -> None:
    one = rows(num_seeds=1).drop(columns="seed")
    assert read(one, tmp_path).frame()["seed"].nunique() == 1
    assert "no column names seeds" in read(one, tmp_path).read.columns["seed"]
    whole = pd.DataFrame({"model": ["a", "b"] * 5, "accuracy": np.linspace(0.8, 0.9, 10)})
    for frame in (rows().drop(columns="seed"), whole):
        for name in ("a.csv", "results_2026.csv"):  # a year is not a seed
            frame.to_csv(tmp_path / name, index=False)
            with pytest.raises(UserError, match="no column of seeds"):
                read_rows(str(tmp_path / name))


@pytest.mark.parametrize("name", ["mean", "Average", " std", "total (n=3)"])
@pytest.mark.parametrize("role", ["seed", "id"])
def test_a_row_that_sums_up_others_is_named(name: str, role: str, tmp_path: Path) -> None:
    frame = rows().assign(id=np.tile(np.arange(30), 3)).astype({role: str})
    frame.loc[90] = frame.loc[89]
    frame.loc[90, role] = name
    with pytest.raises(
        UserError, match=f"{re.escape(repr(name))} in column '{role}', row 91, .*remove"
    ):
        read(frame, tmp_path)
    words = rows().assign(id=[*"abcdefghijklmnopqrstuvwxyzäöü", "total"] * 3)
    assert len(read(words, tmp_path)) == 90


# --- Columns that part the rows of a run ---------------------------------------------------------


def copies(name: str, values: Sequence) -> pd.DataFrame:
    """The rows once for each value of a column; those of the last alone have the predictions."""
    others = [rows(accuracy=0).assign(**{name: value}) for value in values[:-1]]
    return pd.concat([*others, rows().assign(**{name: values[-1]})], ignore_index=True)


def of_halves(name: str, values: Sequence) -> pd.DataFrame:
    return rows().assign(**{name: np.tile(np.repeat(values, 15), 3)})


@pytest.mark.parametrize(
    ("name", "values", "where"),
    [
        ("split", ["train", "test"], "split=test"), ("Dataset", ["validation", "test"], "Dataset=test"),
        ("dataset_name", ["dev", "test"], "dataset_name=test"), ("phase", ["train", "eval"], "phase=eval"),
        ("epoch", [1, 2, 3], "epoch=last"), ("Step", [100, 20, 1000], "Step=1000"),
        ("checkpoint", ["checkpoint-900", "checkpoint-1000"], "checkpoint=last"),
        ("State", ["crashed", "finished"], "State=finished"), ("domain", ["web", "news"], "domain=news"),
        ("fold", [0, 1], "fold=1"),
    ],
)  # fmt: skip
def test_rows_of_several_values_are_asked_about_and_chosen(
    name: str, values: list, where: str, tmp_path: Path
) -> None:
    """They were averaged, pooled, or two tasks."""
    frame = copies(name, values).assign(of=name)
    for asked in (lambda: read(frame, tmp_path), lambda: tasks_in_memory(frame, "data")):
        with pytest.raises(UserError, match=rf"'{name}' \(.*: 30 examples\), .*--where={where}\b"):
            asked()
    found = read(frame, tmp_path, where=f"{where},of={name}")
    assert found.roles["prediction"].tolist() == rows()["prediction"].tolist()
    assert found.read.chosen == f"rows with {where},of={name}" and found.read.unused == []
    for wrong, line in (
        (f"{name}=x", rf"no 'x' in column '{name}', only {values[0]}, .*--where="),
        ("x=1", "'x' in --where=x=1, expected COLUMN=VALUE .*'prediction'"),
    ):
        with pytest.raises(UserError, match=line):
            read(frame, tmp_path, where=wrong)


def test_the_last_epoch_is_that_of_each_run(tmp_path: Path) -> None:
    frame = pd.concat([rows().assign(epoch=epoch, score=epoch) for epoch in range(1, 5)])
    frame = frame[frame["epoch"] <= frame["seed"] + 2]
    found = read(frame, tmp_path, where="epoch=last", score="score").roles
    assert found.groupby("seed")["score"].unique().map(list).tolist() == [[2], [3], [4]]
    best = read(frame[frame["epoch"] == frame["seed"] + 1], tmp_path)  # found by early stopping
    assert len(best) == 90 and best.read.pooled == ""
    assert "run" in read(frame, tmp_path, run="epoch").roles
    with pytest.raises(UserError, match="found 2 values of 'epoch'"):  # of one run among others
        read(frame[(frame["epoch"] == 1) | (frame["seed"] == 0)], tmp_path)


@pytest.mark.parametrize(
    ("frame", "values"),
    [
        (of_halves("domain", ["web", "news"]), "'domain' (web, news)"),
        (of_halves("domain", ["web", "web"]), ""),
        (of_halves("FOLD", [0, 1]).drop(columns="id"), "'FOLD' (0, 1)"),
        (rows().assign(fold=np.random.default_rng(0).integers(2, size=90)), "'fold' (1, 0)"),
    ],
)
def test_values_of_an_example_are_pooled_and_named(
    frame: pd.DataFrame, values: str, tmp_path: Path
) -> None:
    found = read(frame, tmp_path)
    assert found.read.pooled == f"The rows of 2 values of {values} are pooled." * bool(values)
    assert len(found) == 90
    tasks = of_halves("dataset", ["rte", "mrpc"])
    split = of_halves("task", ["rte", "mrpc"]).assign(split=of_halves("", ["dev", "test"])[""])
    for own in (tasks, split):
        assert [*tasks_in_memory(own, "data")] == ["rte", "mrpc"]


PATTERNS = ["seed_{}/{}_predictions.csv", "{1}/seed_{0}.csv", "rte_{1}_seed{0}.csv", "{1}.csv"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_splits_in_names_of_files_are_no_tasks_and_no_arms(pattern: str, tmp_path: Path) -> None:
    for split, frame in (("train", rows(accuracy=1)), ("test", rows())):
        for seed, own in frame.groupby("seed"):
            path = tmp_path / pattern.format(seed, split)
            path.parent.mkdir(exist_ok=True)
            (own.drop(columns="seed") if "seed" in pattern else frame).to_csv(path, index=False)
    with pytest.raises(UserError, match=r"names of files \(.*: 30 examples\).*--where=split=test"):
        read_rows(str(tmp_path))
    found = read_rows(str(tmp_path), ColumnNames(where="split=test")).roles
    assert found["prediction"].tolist() == rows()["prediction"].tolist()
    assert "arm" not in found or found["arm"].nunique() == 1
    with pytest.raises(UserError, match="no split 'dev' .* only t.*--where=split="):
        read_rows(str(tmp_path), ColumnNames(where="split=dev"))


# --- Arms and seeds without a common example -----------------------------------------------------


def test_groups_of_people_are_no_models(tmp_path: Path) -> None:
    frame = of_halves("group", ["women", "men"])
    for names in ({"arm": "none"}, {"by": "group"}):
        [found] = tasks_in_memory(frame, "data", SliceNames(**names)).values()
        assert "arm" not in found.roles and len(found) == 90
    named = frame.rename(columns={"group": "none"})
    assert read(named, tmp_path, arm="none").roles["arm"].nunique() == 2
    frame.to_csv(tmp_path / "a.csv")  # two models of five runs
    line = r"'group' \('women', 'men'\) share no .*--arm=none .*--by=group"
    with pytest.raises(UserError, match=line):
        imported(str(tmp_path / "a.csv"))


def imported(path: str) -> list:
    return [*read_other_programs(path, ColumnNames(), None, None, None)]


@pytest.mark.parametrize(
    ("examples", "line"),
    [
        (lambda seed: np.arange(30) + 30 * seed, "share no example"),
        (lambda seed: np.random.default_rng(seed).permutation(150)[:30], r"share only \d\d? % of"),
        (lambda seed: np.arange(30) + 10 * seed, ""),
    ],
)
def test_seeds_with_other_examples_are_no_seeds(examples, line: str, tmp_path: Path) -> None:
    path = str(tmp_path / "a.csv")
    ids = np.concatenate([examples(seed) for seed in range(3)])
    rows().assign(id=ids, label=1).to_csv(path, index=False)
    if not line:
        assert read_arms(path)[""].values.shape == (3, 50)
        return
    for reader in (read_arms, imported):
        with pytest.raises(UserError, match=rf"{line}.*number the examples .*Scores of folds"):
            reader(path)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["fold"], {}), (["fold"], {"seed": "fold"}), (["Split"], {"seed": "Split"}),
        (["repeat", "fold"], {}), (["cv_fold"], {"example": "cv_fold"}), (["seed", "fold"], {"run": "fold"}),
    ],
)  # fmt: skip
def test_scores_of_folds_are_refused(keys: list[str], names: dict, tmp_path: Path) -> None:
    """p < .0001 for .076: the models of folds share training data."""
    of_each = [["a", "b"], *[range(5)] * len(keys)]
    index = pd.MultiIndex.from_product(of_each, names=["model", *keys])
    frame = index.to_frame(index=False).assign(accuracy=np.linspace(0.7, 0.9, len(index)))
    with pytest.raises(UserError, match="scores by '.*', .*share training data.*Scores of folds"):
        read(frame, tmp_path, **names)


@pytest.mark.parametrize("name", ["passage", "Document", "story", "context"])
def test_texts_that_several_examples_share_may_be_clusters(name: str, tmp_path: Path) -> None:
    frame = rows().assign(**{name: "text " + rows()["id"].str[-1]})
    assert read(frame, tmp_path).read.possible_cluster == name
    named = read(frame, tmp_path, cluster=name)
    assert named.read.possible_cluster == "" and named.roles["cluster"].nunique() == 10
    for other in ("text " + rows()["id"], "one text"):
        assert read(frame.assign(**{name: other}), tmp_path).read.possible_cluster == ""
