"""Layouts that others publish: made up in small by their description, and the real files at hand."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas
import pytest
import xarray

from multiberts.evaluate.exporting import export
from multiberts.evaluate.imports.coreference_groups import read_coreference_groups
from multiberts.evaluate.imports.imported_runs import ImportedRun, as_logits, write_imported
from multiberts.evaluate.imports.importing import describe_imports, import_predictions
from multiberts.evaluate.imports.multiberts_release import read_release, read_squad_file
from multiberts.evaluate.imports.sizes_release import read_sizes
from multiberts.evaluate.metrics.probability import softmax
from multiberts.evaluate.metrics.register import METRICS, metric_input
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.evaluate.scoring import score
from multiberts.runs.errors import UserError


def imported(tmp_path: Path, layout: str, source: Path, **arguments) -> list[Path]:
    import_predictions(
        run_dir=str(tmp_path / "runs"), layout=layout, source=str(source), **arguments
    )
    return [path for path, _ in find_runs(tmp_path / "runs")]


def imported_array(runs: Iterable[ImportedRun], evaluation_set: str) -> xarray.Dataset:
    """Writes runs as a reader yields them, and reads their predictions back."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for run in runs:
            write_imported(folder, "a layout", run)
            names.append(run.name)
        return read_predictions([Path(folder) / name for name in names], evaluation_set)


# The MultiBERTs release.


def release_file(task, release, seed, steps, rate, run, ending="tsv"):
    return f"{task}/release={release},pretrain_id={seed},n_steps={steps},lr={rate},ft_seed={run}.{ending}"


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    """Two tasks; of RTE one listed file is not there."""
    folder = tmp_path / "GLUE"
    lines = ["file\ttask\tpretrain_id\tn_steps\tlr\tft_seed\trelease"]
    random = np.random.default_rng(0)
    for task, columns in (("RTE", 2), ("STS-B", 1)):
        (folder / task).mkdir(parents=True)
        for release, seed, steps in (
            ("multiberts", 0, "1M"),
            ("multiberts", 3, "2M"),
            ("public", 0, "0"),
        ):
            file = release_file(task, release, seed, steps, "2e-05", 4)
            lines.append(f"{file}\t{task}\t{seed}\t{steps}\t2e-05\t4\t{release}")
            values = (
                random.dirichlet(np.ones(columns), 5) if columns > 1 else np.arange(5.0)[:, None]
            )
            np.savetxt(folder / file, values, delimiter="\t")
        (folder / f"{task}_dev_labels").write_text(
            "0\n1\n1\n0\n1\n" if columns > 1 else "1\n2\n3\n4\n5\n"
        )
    (folder / release_file("RTE", "multiberts", 3, "2M", "2e-05", 4)).unlink()
    (folder / "index.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_release_of_glue(tmp_path: Path, glue: Path):
    runs = imported(tmp_path, "multiberts", glue)
    facts = [json.loads((path / "run.json").read_text()) for path in runs]
    assert [
        (item["task"], item["procedure"], item["pretrain_seed"], item["step"]) for item in facts
    ] == [
        ("RTE", "base", 0, 1_000_000), ("RTE", "original", 0, None),
        ("STS-B", "base", 0, 1_000_000), ("STS-B", "base", 3, 2_000_000),
        ("STS-B", "original", 0, None),
    ]  # fmt: skip
    assert {(item["learning_rate"], item["finetune_seed"]) for item in facts} == {(2e-5, 4)}
    data = read_predictions(runs[:2], "dev")
    given = np.loadtxt(glue / release_file("RTE", "multiberts", 0, "1M", "2e-05", 4))
    np.testing.assert_allclose(softmax(data["scores"][0]), given, atol=1e-6)
    np.testing.assert_array_equal(data["prediction"][0], given.argmax(axis=1))
    assert data["label"].values.tolist() == [0, 1, 1, 0, 1]
    assert data["example_id"].values[2] == "RTE/dev/2"
    stsb = read_predictions(runs[2:], "dev")
    assert stsb["prediction"].values[0].tolist() == [0, 1, 2, 3, 4]
    assert stsb.attrs["metrics"][0] == "pearson"


@pytest.mark.parametrize(
    ("written", "steps"), [("1M", 10**6), ("20k", 20_000), ("1.9M", 1_900_000), ("0", None)]
)
def test_steps_of_the_release(tmp_path: Path, glue: Path, written: str, steps: int | None):
    index = glue / "index.tsv"
    index.write_text(index.read_text().replace("\t1M\t", f"\t{written}\t"))
    facts = next(iter(read_release(glue))).facts
    assert facts["step"] == steps


def test_imported_runs_stay_as_they_are(tmp_path: Path, glue: Path):
    runs = imported(tmp_path, "multiberts", glue)
    before = [(path / "run.json").stat().st_mtime_ns for path in runs]
    assert imported(tmp_path, "multiberts", glue) == runs
    assert [(path / "run.json").stat().st_mtime_ns for path in runs] == before


def test_release_of_squad(tmp_path: Path):
    folder = tmp_path / "SQuAD"
    (folder / "v2.0").mkdir(parents=True)
    qas = [
        {"id": "b", "answers": [{"text": "Rome"}, {"text": "in Rome"}], "question": "Where?"},
        {"id": "a", "answers": [], "question": "?", "is_impossible": True},
    ]
    content = {"data": [{"paragraphs": [{"context": "c", "qas": qas}]}]}
    (folder / "dev-v2.0.json").write_text(json.dumps(content))
    file = release_file("v2.0", "multiberts", 1, "2M", "5e-05", 0, "json")
    (folder / file).write_text('{"a": "", "b": "in Rome"}')
    (folder / "index.tsv").write_text(
        "file\ttask\tpretrain_id\tn_steps\tlr\tft_seed\trelease\n"
        f"{file}\tv2.0\t1\t2M\t5e-05\t0\tmultiberts\n"
    )
    runs = imported(tmp_path, "multiberts", folder)
    data = read_predictions(runs, "dev")
    assert data["answers"].values.tolist() == [(), ("Rome", "in Rome")]
    assert data["question"].values.tolist() == ["?", "Where?"]
    assert data["prediction_text"].values.tolist() == [["", "in Rome"]]
    assert data["label"].values.tolist() == data["prediction"].values[0].tolist() == [0, 1]
    assert data.attrs["task"] == "squad-v2.0"
    (folder / file).write_text('{"b": "in Rome"}')
    with pytest.raises(UserError, match="lacks 'a' of"):
        imported_array(read_release(folder), "dev")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("index.tsv", r"\tpretrain_id.*", "\n", r"index\.tsv line 1: .*lacking pretrain_id"),
        ("index.tsv", "\t1M\t", "\tmany\t", "line 2: .*n_steps 'many'"),
        ("index.tsv", "\tmultiberts\n", "\tother\n", "line 2: .*release 'other'"),
        ("index.tsv", "\t4\tmultiberts", "\tx\tmultiberts", "line 2: .*ft_seed 'x'"),
        ("index.tsv", "(RTE|STS-B)/", "x/", "none of the 6"),
        ("RTE_dev_labels", "1\n0\n1\n$", "", "5 rows of 2, .* 2 as .*RTE_dev_labels"),
        ("RTE_dev_labels", "^0", "entailment", "RTE_dev_labels: .*'entailment'"),
    ],
)
def test_a_release_that_is_not_as_described_is_refused(tmp_path, glue, name, old, new, message):
    (glue / name).write_text(re.sub(old, new, (glue / name).read_text()))
    with pytest.raises(UserError, match=message):
        imported(tmp_path, "multiberts", glue)
    assert not (tmp_path / "runs").exists()


def test_probabilities_and_logits_are_distinguished():
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(3), 50)
    np.testing.assert_allclose(softmax(as_logits(probabilities)), probabilities, atol=1e-12)
    logits = 3 * random.normal(size=(50, 3))
    np.testing.assert_array_equal(as_logits(logits), logits)
    certain = np.array([[1.0, 0.0]])
    np.testing.assert_allclose(softmax(as_logits(certain)), certain, atol=1e-30)


# Coreference groups.


@pytest.fixture
def coreference(tmp_path: Path) -> Path:
    folder = tmp_path / "coref"
    labels = [
        "\tgender\tpronoun_type\tanswer\toccupation\tother_participant\tsomeone\ttemplate_idx"
    ]
    genders = ("UNKNOWN", "MASCULINE", "FEMININE")
    for occupation, answer, someone, gender in itertools.product(
        ("nurse", "plumber", "cook"), (0, 1), (False, True), genders
    ):
        who = f"{occupation}\tguest\t{someone}\t0"
        labels.append(f"{len(labels) - 1}\t{gender}\tNOM\t{answer}\t{who}")
    for group, seeds in (("base", 2), ("cda_intervention-50k", 1)):
        (folder / group).mkdir(parents=True)
        runs = "".join(
            f"{2 * seed + run}\t{seed}\t{run}\n" for seed in range(seeds) for run in range(2)
        )
        (folder / group / "run_info.tsv").write_text("\tpretrain_seed\tfinetune_seed\n" + runs)
        (folder / group / "label_info.tsv").write_text("\n".join(labels) + "\n")
        choices = np.random.default_rng(seeds).integers(0, 2, (2 * seeds, len(labels) - 1))
        np.savetxt(folder / group / "preds.tsv", choices, delimiter="\t")
    (folder / "occupations-stats.tsv").write_text(
        "occupation\tbergsma_pct_female\tbls_pct_female\tbls_year\n"
        "nurse\t1\t89.58\t2015\nplumber\t1\t0.7\t2015\ncook\t1\t40\t2015\n"
    )
    return folder


def test_coreference_groups(tmp_path: Path, coreference: Path):
    runs = imported(tmp_path, "multiberts_coreference", coreference)
    assert len(runs) == 6
    data = read_predictions(runs, "winogender")
    assert sorted(set(zip(data["procedure"].values, data["step"].values, strict=True))) == [
        ("base", 2_000_000), ("cda_incr", 2_050_000),
    ]  # fmt: skip
    choices = np.loadtxt(coreference / "base" / "preds.tsv")
    base = data.isel(run=data["procedure"].values == "base")
    np.testing.assert_array_equal(base["prediction"], choices)
    assert base["pretrain_seed"].values.tolist() == [0, 0, 1, 1]
    assert base["example_id"].values[[0, 4]].tolist() == [
        "winogender/nurse.guest.0.neutral", "winogender/nurse.someone.0.male",
    ]  # fmt: skip
    assert set(base["gender"].values) == {"neutral", "masculine", "feminine"}
    score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs"))
    table = pandas.read_csv(tmp_path / "scores" / "scores.csv")
    assert set(table["metric"]) == {"accuracy", "bias_correlation", "bias_slope"}


def test_coreference_groups_that_do_not_fit_are_refused(tmp_path: Path, coreference: Path):
    table = np.loadtxt(coreference / "base" / "preds.tsv")
    np.savetxt(coreference / "base" / "preds.tsv", table[:, 1:])
    with pytest.raises(UserError, match="4 rows of 35, .* 36"):
        list(imported_array(read_coreference_groups(coreference), "winogender"))
    np.savetxt(coreference / "base" / "preds.tsv", table + 0.5)
    with pytest.raises(UserError, match=r"preds\.tsv: .*0 and 1"):
        imported(tmp_path, "multiberts_coreference", coreference)
    with pytest.raises(UserError, match="none .*base, base_extra_seeds"):
        imported(tmp_path, "multiberts_coreference", coreference / "base")
    (coreference / "occupations-stats.tsv").unlink()
    with pytest.raises(UserError, match=r"occupations-stats\.tsv does not"):
        imported(tmp_path, "multiberts_coreference", coreference)


def test_sentences_have_their_winogender_ids(tmp_path: Path, shared_data: Path):
    """Every id of the 720 sentences comes out of what label_info.tsv says of it."""
    lines = (shared_data / "winogender" / "all_sentences.tsv").read_text().splitlines()[1:]
    genders = {"male": "MASCULINE", "female": "FEMININE", "neutral": "UNKNOWN"}
    folder = tmp_path / "base"
    folder.mkdir()
    rows, names = [], []
    for row, line in enumerate(lines):
        name = line.split("\t")[0].removesuffix(".txt")
        occupation, other, answer, gender = name.split(".")
        someone = other == "someone"
        who = f"{occupation}\t{'x' if someone else other}\t{someone}"
        rows.append(f"{row}\t{genders[gender]}\tNOM\t{answer}\t{who}\t0")
        names.append(f"winogender/{name}")
    header = "\tgender\tpronoun_type\tanswer\toccupation\tother_participant\tsomeone\ttemplate_idx"
    (folder / "label_info.tsv").write_text("\n".join([header, *rows]) + "\n")
    (folder / "run_info.tsv").write_text("\tpretrain_seed\tfinetune_seed\n0\t0\t0\n")
    (folder / "preds.tsv").write_text("\t".join(["0"] * 720) + "\n")
    shutil.copy(shared_data / "winogender" / "occupations-stats.tsv", tmp_path)
    data = imported_array(read_coreference_groups(tmp_path), "winogender")
    assert data["example_id"].values.tolist() == names
    assert len(set(data["occupation"].values)) == 60


# Models of five sizes.


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    folder = tmp_path / "mnli"
    (folder / "results").mkdir(parents=True)
    predict = [
        {"guid": "dev_matched-7", "label": "neutral", "text_a": "seven", "text_b": "y"},
        {"guid": "hans-ex1", "label": "non-entailment", "text_a": "x", "text_b": "y"},
        {"guid": "hans-ex2", "label": "entailment", "text_a": "x", "text_b": "y"},
        {"guid": "dev_matched-2", "label": "contradiction", "text_a": "x", "text_b": "y"},
    ]
    labels = ["contradiction", "entailment", "neutral"]
    (folder / "data.json").write_text(json.dumps({"label_list": labels, "predict": predict}))
    tables = {
        9: [[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.1, 0.4, 0.5], [0.2, 0.3, 0.5]],
        12: [[0.1, 0.2, 0.7], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]],
    }
    for seed in (1, 10):
        for thirds, table in tables.items():
            file = folder / "results" / f"sminip{seed}f5epoch{thirds}over3.tsv"
            np.savetxt(file, table, delimiter="\t")
    return folder


def test_models_of_five_sizes(tmp_path: Path, sizes: Path):
    runs = imported(tmp_path, "model_sizes", sizes)
    final, early = read_predictions(runs, "dev_matched"), read_predictions(runs, "dev_matched", 3)
    assert final["pretrain_seed"].values.tolist() == [1, 10]
    assert set(final["procedure"].values) == {"mini"} and final.attrs["task"] == "MNLI"
    assert final["example_id"].values.tolist() == ["dev_matched-7", "dev_matched-2"]
    assert final["label"].values.tolist() == [2, 0]
    assert final["prediction"].values[0].tolist() == [2, 0]
    assert early["prediction"].values[0].tolist() == [2, 2]
    assert (early.attrs["epochs"], final.attrs["epochs"]) == (3, 4)
    np.testing.assert_allclose(softmax(early["scores"][1, 1]), [0.2, 0.3, 0.5], atol=1e-6)
    hans, early_hans = read_predictions(runs, "hans"), read_predictions(runs, "hans", 3)
    assert hans["label"].values.tolist() == [0, 1]
    assert hans["prediction"].values[0].tolist() == [1, 1]
    assert early_hans["prediction"].values[0].tolist() == [0, 0]
    for dev in (final, early):
        assert dev["text_a"].values.tolist() == ["seven", "x"]


def test_folds_are_put_together(tmp_path: Path, sizes: Path):
    folder = tmp_path / "sst-2"
    for fold in range(2):
        (folder / f"fold{fold}" / "results").mkdir(parents=True)
        predict = [{"guid": f"train-{2 * fold + row}", "label": str(row)} for row in range(2)]
        content = {"label_list": ["0", "1"], "predict": predict}
        (folder / f"fold{fold}" / "data.json").write_text(json.dumps(content))
        file = folder / f"fold{fold}" / "results" / "slargep1f1epoch12over3.tsv"
        np.savetxt(file, [[0.9, 0.1], [0.2 + 0.7 * fold, 0.8 - 0.7 * fold]])
    data = imported_array(read_sizes(folder), "train")
    assert data["example_id"].values.tolist() == [f"train-{row}" for row in range(4)]
    assert data["label"].values.tolist() == [0, 1, 0, 1]
    assert data["prediction"].values.tolist() == [[0, 1, 0, 0]]
    assert data.attrs["task"] == "SST-2"
    file.unlink()
    with pytest.raises(UserError, match=r"slargep1f1epoch12over3\.tsv .*1 of 2 folds"):
        list(read_sizes(folder))


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path, sizes: Path):
    file = sizes / "results" / "sminip1f5epoch9over3.tsv"
    file.write_text("0.5\t0.5\n")
    with pytest.raises(UserError, match="1 row of 2, .*4 of"):
        imported(tmp_path, "model_sizes", sizes)
    assert not (tmp_path / "runs" / "MNLI" / "mini-pretrain_seed_1-finetune_seed_5").exists()
    (sizes / "data.json").write_text('{"predict": []}')
    with pytest.raises(UserError, match=r"data\.json: label_list"):
        imported(tmp_path, "model_sizes", sizes)
    with pytest.raises(UserError, match="no results/s<size>"):
        imported(tmp_path, "model_sizes", tmp_path)


# Single files.


def test_layouts_and_needs_are_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"import_predictions\.layout is 'x'"):
        imported(tmp_path, "x", tmp_path)
    with pytest.raises(UserError, match=r"squad .*import_predictions\.questions"):
        imported(tmp_path, "squad", tmp_path)


def test_metric_input_of_an_imported_run_is_its_text(tmp_path: Path):
    questions = tmp_path / "dev-v1.1.json"
    qas = [{"id": "a", "answers": [{"text": "x y"}]}]
    questions.write_text(json.dumps({"data": [{"paragraphs": [{"qas": qas}]}]}))
    (tmp_path / "p.json").write_text('{"a": "x"}')
    run = read_squad_file(tmp_path / "p.json", questions, "mine", finetune_seed=4)
    data = imported_array([run], "dev")
    given = metric_input(METRICS["squad_f1"], data["prediction_text"])
    assert METRICS["squad_f1"].score(data["answers"].to_numpy(), given) == pytest.approx(2 / 3)
    assert data["finetune_seed"].values.tolist() == [4]


@pytest.mark.parametrize(
    ("version", "texts", "task"),
    [
        ("v2.0", ["x"], "squad-v2.0"),
        ("2.0", ["x"], "squad-v2.0"),
        ("1.1", ["x"], "squad-v1.1"),
        (None, ["x"], "squad-v1.1"),
        (None, [], "squad-v2.0"),
    ],
)
def test_questions_are_of_the_version_that_their_file_states(
    tmp_path: Path, version: str | None, texts: list[str], task: str
):
    content: dict = {"data": [{"paragraphs": [{"qas": [{"id": "a", "answers": [
        {"text": text} for text in texts
    ]}]}]}]}  # fmt: skip
    questions = tmp_path / "dev.json"
    questions.write_text(json.dumps(content | ({"version": version} if version else {})))
    (tmp_path / "p.json").write_text('{"a": ""}')
    run = read_squad_file(tmp_path / "p.json", questions, "mine")
    assert run.facts["task"] == task and run.name.startswith(task)


# Files of other programs, as `multiberts compare` reads them.

SAMPLES = Path(__file__).parents[2] / "samples"


def test_repeats_that_become_runs_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(imported(tmp_path / "again", "files", SAMPLES / "lm_eval/again")) == 6
    assert "repeats of an evaluation are written as pre-training seeds" in capsys.readouterr().err
    imported(tmp_path / "seeds", "files", SAMPLES / "lm_eval/step1000")
    assert "repeats" not in capsys.readouterr().err


def test_samples_of_the_harness_become_runs(tmp_path: Path) -> None:
    runs = imported(tmp_path, "files", SAMPLES / "lm_eval/filters", task="sums_choice")
    data = read_predictions(runs, "sums_choice")
    assert data["pretrain_seed"].values.tolist() == [1, 2]
    assert data["prediction"].mean() == pytest.approx(7 / 12)
    assert data.attrs["metrics"] == ["mean"] and np.isnan(data["label"]).all()
    assert data["question"].values[0] == "2 + 1 ="
    assert len(imported(tmp_path, "files", SAMPLES / "lm_eval/filters", task="sums_choice")) == 2
    score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs"))
    scores = pandas.read_csv(tmp_path / "scores/scores.csv")
    assert scores["score"].mean() == pytest.approx(7 / 12)


def test_classes_and_texts_of_a_table_become_runs(tmp_path: Path) -> None:
    rows = ["model,seed,id,premise,hypothesis,pred,gold"]
    for model, answers in (("old", "yes no no"), ("new", "yes yes no")):
        rows += [
            f"{model},{seed},{place},p{place},h{place},{answer},{('yes', 'yes', 'no')[place]}"
            for seed in (3, 4)
            for place, answer in enumerate(answers.split())
        ]
    (tmp_path / "nli.csv").write_text("\n".join(rows))
    runs = imported(tmp_path, "files", tmp_path / "nli.csv", task="pairs")
    data = read_predictions(runs, "pairs")
    assert set(data["procedure"].values) == {"old", "new"}
    assert data["hypothesis"].values.tolist() == ["h0", "h1", "h2"]
    right = (data["prediction"] == data["label"]).groupby(data["procedure"]).mean(...)
    assert right.sel(procedure="old").item() == pytest.approx(2 / 3)
    assert json.loads((runs[0] / "run.json").read_text())["classes"] == ["no", "yes"]


def test_empty_cells_lists_and_spelt_seeds_become_runs_as_compare_reads_them(
    tmp_path: Path,
) -> None:
    texts, path = ["", "the cat", ""], tmp_path / "qa.jsonl"
    frame = pandas.DataFrame({"seed": "seed_4", "id": ["a", "b", "c"], "prediction": texts})
    frame["label"] = [[], ["cat", "dog"], ["today"]]
    frame.to_json(path, orient="records", lines=True)
    [run] = imported(tmp_path, "files", path, metric="squad_exact_match")
    assert json.loads((run / "run.json").read_text())["pretrain_seed"] == 4
    data = read_predictions([run], "qa")
    assert data["answers"].values.tolist() == [(), ("cat", "dog"), ("today",)]
    assert data["label"].values.tolist() == [0, 1, 1] and data["prediction"].values.tolist() == [
        [0, 1, 0]
    ]
    scores = METRICS["squad_exact_match"].score(data["answers"], data["prediction_text"])
    assert scores.tolist() == [pytest.approx(2 / 3)]
    frame.assign(prediction=frame["label"]).to_json(path, orient="records", lines=True)
    with pytest.raises(UserError, match="found lists as predictions, expected one text"):
        imported(tmp_path / "lists", "files", path, metric="squad_exact_match")
    frame.assign(label=None, seed=1).to_json(path, orient="records", lines=True)
    with pytest.raises(UserError, match="all labels are empty, .*--label=COLUMN"):
        imported(tmp_path / "hidden", "files", path, metric="squad_exact_match")


def test_an_export_becomes_the_runs_it_was_made_of(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = ["seed,run,id,text,prediction,label"]
    rows += [f"{seed},{run},{i},t{i},{(seed + i) % 2},1" for seed in (0, 1) for run in (0, 1)
             for i in range(3)]  # fmt: skip
    (tmp_path / "a.csv").write_text("\n".join(rows))
    first = imported(tmp_path, "files", tmp_path / "a.csv", procedure="base")
    export(path=str(tmp_path / "a.parquet"), predictions=str(tmp_path / "runs"))
    again = imported(tmp_path / "again", "files", tmp_path / "a.parquet")
    before, after = (read_predictions(runs, "a") for runs in (first, again))
    xarray.testing.assert_identical(before, after)


def test_runs_have_every_evaluation_set_of_a_table(tmp_path: Path) -> None:
    rows = ["task,evaluation_set,seed,id,prediction,label"]
    rows += [
        f"nli,{name},{seed},{name}{number},{answer},{label}"
        for name, labels in (("dev", ("no", "yes")), ("hard", ("no", "maybe")))
        for seed, answers in enumerate((labels, (labels[1], labels[1])))
        for number, (answer, label) in enumerate(zip(answers, labels, strict=True))
    ]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    runs = imported(tmp_path, "files", tmp_path / "a.csv", procedure="base")
    assert len(runs) == 2
    content = json.loads((runs[0] / "run.json").read_text())
    assert content["classes"] == ["maybe", "no", "yes"]
    assert read_predictions(runs, "hard")["label"].values.tolist() == [1, 0]
    score(run_dir=str(tmp_path / "scores"), predictions=[str(run) for run in runs])
    table = pandas.read_csv(tmp_path / "scores" / "scores.csv")
    found = table.groupby("evaluation_set")["score"].agg(list).to_dict()
    assert found == {"dev": [1, 0.5], "hard": [1, 0.5]}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed,id,score\na,1,1\n", "seed 'a', .*--seed"),
        ("seed,id,score\n1,1,\n", "1 score missing"),
        ("seed,id,score\n1,1,1\n1,1,1\n", "two rows .*seed 1, example 1"),
        ("seed,id,prediction,label\n1,1,0.5,1\n", "fractions.*--metric"),
    ],
)
def test_files_that_make_no_runs_are_refused(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=line):
        imported(tmp_path, "files", tmp_path / "a.csv")
    assert not (tmp_path / "runs").exists()


def test_what_was_read_is_recorded_and_classes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    rows = [(seed, f"x{n}", n % 2, n % 2) for seed in range(2) for n in range(10)]
    frame = pandas.DataFrame(rows, columns=["seed", "uid", "y_pred", "gold"])
    frame.to_csv(tmp_path / "a.csv", index=False)
    imported(tmp_path, "files", tmp_path / "a.csv")
    described = describe_imports(tmp_path / "runs").splitlines()[-1]
    assert "2 runs of a; " in described and described.endswith(
        "a.csv, a: prediction = 'y_pred', label = 'gold', example = 'uid', seed = 'seed'"
    )
    frame.assign(y_pred=frame["y_pred"] + 1).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(UserError, match=r"b\.csv, b: .*label 0\b.*prediction 2\b"):
        imported(tmp_path, "files", tmp_path / "b.csv")


def test_answers_are_looked_at_before_they_are_imported(tmp_path: Path, capsys) -> None:
    rows = [
        (seed, n, ("no", "yes")[n % 2], ("no", "yes")[n % 2]) for seed in (0, 1) for n in range(30)
    ]
    frame = pandas.DataFrame(rows, columns=["seed", "id", "prediction", "label"])
    frame.loc[3, "prediction"] = "n/a"
    frame.to_csv(tmp_path / "a.csv", index=False)
    imported(tmp_path, "files", tmp_path / "a.csv", metric="f1_macro")
    error = capsys.readouterr().err
    assert re.search(r"1 of 60 .* a \(1\.7 %\) .*'n/a' \(1\)", error)
    assert re.search(r"2 classes .*macro F1 .*99\.2 % .*a\.", error)
    score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs"))
    assert "'n/a' (1)" in capsys.readouterr().err
    hidden = frame.assign(label=-1, prediction=1)
    hidden.to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(UserError, match=r"test\.csv, test: .*60 labels .*-1"):
        imported(tmp_path, "files", tmp_path / "test.csv")
