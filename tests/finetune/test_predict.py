"""`multiberts predict`: what a kept model answers, in every form of new data."""

from __future__ import annotations

import concurrent.futures
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_checks import find_all
from multiberts.evaluate.prediction_files.run_file import find_runs, lineage_of
from multiberts.finetune.prediction import predict
from multiberts.finetune.predictor import Predictor
from multiberts.runs.errors import UserError
from multiberts.tests.checkpoint_command import checkpoint_command
from multiberts.tests.finetune.conftest import Make
from multiberts.tests.finetune.few_rows import check_few_rows
from multiberts.tests.finetune.stranger import TASK, write_stranger

SMALL = {"batch_size": 16, "num_epochs": 3, "compile_step": False, "learning_rate": 2e-3}
KEPT = {"sequence_length": 32, "keep": "last"}
SHORT = {"max_query_length": 4, "doc_stride": 6, "n_best_size": 8}


@pytest.fixture
def run(fine_tune: Make, pair_data: Path) -> Path:
    """A finished run of pairs with its model."""
    return fine_tune("pair", pair_data, "runs/run", **KEPT)


def answers(
    capsys: pytest.CaptureFixture[str], model: Path, *files: Path | str, **more: Any
) -> list[dict[str, Any]]:
    capsys.readouterr()
    predict(model=str(model), files=list(map(str, files)), compile_step=False, **more)
    captured = capsys.readouterr()
    assert "per second" in captured.err
    return [json.loads(line) for line in captured.out.splitlines()]


def test_a_set_is_added_without_training(tmp_path: Path, run: Path, pair_data: Path) -> None:
    """The file has the bytes that the run itself wrote, and joins the run's others by its coordinates."""
    added = tmp_path / "runs" / "added"
    shutil.copy(pair_data / "dev.tsv", pair_data / "more.tsv")
    call = {"model": str(run / "model"), "run_dir": str(added), "compile_step": False}
    predict(files=[str(pair_data / "more.tsv")], **call)
    before = {path: path.stat().st_mtime_ns for path in added.rglob("*")}
    predict(files=[str(pair_data / "more.tsv")], **call)
    assert {path: path.stat().st_mtime_ns for path in added.rglob("*")} == before
    with pytest.raises(UserError, match="made with other parameters"):
        predict(files=[str(pair_data / "train.tsv")], **call)
    more, dev = read_predictions([added], "more"), read_predictions([run], "dev")
    for name in ("scores", "prediction", "label"):
        np.testing.assert_array_equal(more[name], dev[name])
    again = tmp_path / "again"
    predict(files=[str(pair_data / "dev.tsv")], **{**call, "run_dir": str(again)})
    file = "predictions/dev.tfrecord"
    assert (again / file).read_bytes() == (run / file).read_bytes()
    runs = find_runs(tmp_path / "runs")
    assert lineage_of(runs[0][1]) == lineage_of(runs[1][1])
    assert find_all(runs) == []  # neither repeated nor lacking a set


def test_every_form_of_a_table_gives_the_same_answers(
    tmp_path: Path, run: Path, pair_data: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import pandas

    model = run / "model"
    frame = pandas.read_csv(pair_data / "dev.tsv", sep="\t")
    texts = frame[["sentence1", "sentence2"]]
    expected = [line["scores"] for line in answers(capsys, model, pair_data / "dev.tsv")]
    texts.to_csv(tmp_path / "a.csv", index=False)
    renamed = texts.rename(columns={"sentence1": "premise", "sentence2": "hypothesis"})
    renamed.assign(label=-1).to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    texts.rename(columns={"sentence1": "x", "sentence2": "y"}).to_parquet(tmp_path / "c.parquet")
    lines = texts.agg("\t".join, axis=1).str.cat(sep="\n") + "\n"
    (tmp_path / "d.txt").write_text(lines)
    found = answers(capsys, model, *(tmp_path / name for name in ("a.csv", "b.jsonl", "d.txt")))
    assert [line["example_id"] for line in found[::37]] == ["pair/a/0", "pair/b/0", "pair/d/0"]
    np.testing.assert_allclose([line["scores"] for line in found], expected * 3, atol=1e-5)
    assert all("label" not in line for line in found)
    found = answers(capsys, model, tmp_path / "c.parquet", text_columns=["x", "y"])
    assert [line["scores"] for line in found] == expected
    # The row's own columns stay, and probabilities are those of the scores, by class.
    assert [(line["x"], line["y"]) for line in found] == [tuple(row) for row in texts.values]
    raised = np.exp(expected)
    np.testing.assert_allclose(
        [list(line["probabilities"].values()) for line in found],
        raised / raised.sum(axis=1, keepdims=True), atol=1e-6,
    )  # fmt: skip
    assert list(found[0]["probabilities"]) == ["entailment", "not_entailment"]
    for given in (lines, (tmp_path / "b.jsonl").read_text()):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        found = answers(capsys, model, "-")
        assert [line["scores"] for line in found] == expected
        assert {line["prediction"] for line in found} <= {"entailment", "not_entailment"}
    # Labels that are there are named, too, and a published set is read as in fine-tuning.
    assert {line["label"] for line in answers(capsys, model, pair_data / "dev.tsv")} == {
        "entailment", "not_entailment",
    }  # fmt: skip
    hans = tmp_path / "heuristics.txt"
    hans.write_text(
        "gold_label\tpairID\theuristic\tsubcase\ttemplate\tsentence1\tsentence2\n"
        "non-entailment\tex0\tlexical_overlap\ta\tb\tMary asked Paul.\tPaul asked Mary.\n"
    )
    [line] = answers(capsys, model, f"hans={hans}")
    assert (line["set"], line["example_id"], line["label"]) == ("hans", "hans/ex0", 0)
    check_few_rows(model, pair_data / "dev.tsv")


def test_what_cannot_be_predicted_gets_one_line_and_leaves_nothing(
    tmp_path: Path, run: Path, pair_data: Path, make_checkpoint: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def file(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    dev, model = str(pair_data / "dev.tsv"), str(run / "model")
    bare = tmp_path / "bare"
    shutil.copytree(run, bare, ignore=shutil.ignore_patterns("model"))
    no_model = f"{bare} is a fine-tuning run that kept no model; fine-tune again with --keep=last"
    cases: list[tuple[str, dict[str, Any]]] = [
        ("is not a fine-tuned model", {"model": str(make_checkpoint(1)), "files": [dev]}),
        ("is not a checkpoint, but holds some", {"model": str(run), "files": [dev]}),
        (no_model, {"model": str(bare / "model"), "files": [dev]}),
        (no_model, {"model": str(bare), "files": [dev]}),
        ("nowhere.tsv does not exist", {"files": ["nowhere.tsv"]}),
        ("sets 1 and 2 of dev, dev have the same name", {"files": [dev, dev]}),
        ("of no known form", {"files": [file("new.doc", "text")]}),
        ("found the columns 'a', 'b', expected 'sentence1' and 'sentence2', as the model takes pairs; name "
         "it with --text_columns", {"files": [file("columns.tsv", "a\tb\nx\ty\n")]}),
        ("text_columns has 1 name, expected 2", {"files": [dev], "text_columns": ["a"]}),
        ("expected 'gold'; name it with --label_column", {"files": [dev], "label_column": "gold"}),
        ("unknown.csv line 3: found label 'perhaps', expected one of entailment, not_entailment",
         {"files": [file("unknown.csv", "sentence1,sentence2,label\na,b,entailment\na,b,perhaps\n")]}),
        ("one.txt line 1: found 1 part between tabs, expected two texts with a tab",
         {"files": [file("one.txt", "a good cake\n")]}),
        ("line 1: found the columns index, sentence1", {"files": [f"hans={dev}"]}),
        ("standard input is empty", {"files": ["-"]}),
    ]  # fmt: skip
    there = sorted(path.name for path in tmp_path.iterdir())
    for line, change in cases:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
        call = {"model": model, "run_dir": str(tmp_path / "new"), **change}
        with pytest.raises(UserError) as refused:
            predict(**call, compile_step=False)
        assert line in str(refused.value)
        assert sorted(path.name for path in tmp_path.iterdir()) == there


def test_a_model_of_another_program_takes_what_the_file_has(
    tmp_path: Path, run: Path, pair_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "hugging_face"
    convert = ["convert", str(run / "model"), str(model), "--to", "hugging_face"]
    assert checkpoint_command(*convert) == 0
    ours = answers(capsys, run / "model", pair_data / "dev.tsv")
    assert answers(capsys, model, pair_data / "dev.tsv") == ours
    expected = [line["scores"] for line in ours]
    # What is left is what transformers writes, with other names for the same outputs.
    (model / "checkpoint.json").unlink()
    config = json.loads((model / "config.json").read_text())
    config["id2label"] = {"0": "yes", "1": "no"}
    (model / "config.json").write_text(json.dumps(config))
    pairs = [line.split("\t")[1:3] for line in (pair_data / "dev.tsv").read_text().splitlines()[1:]]

    def file(name: str, *lines: str) -> Path:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / name

    tables = [
        file("a.tsv", "premise\thypothesis", *("\t".join(pair) for pair in pairs)),
        file("b.txt", *("\t".join(pair) for pair in pairs)),
    ]
    lines = answers(capsys, model, *tables)
    np.testing.assert_allclose([line["scores"] for line in lines], expected * 2, atol=1e-5)
    names = {"entailment": "yes", "not_entailment": "no"}
    named = [names[line["prediction"]] for line in ours]
    assert [line["prediction"] for line in lines] == named * 2
    odd = file("odd.tsv", "x\ty\ttext", *("\t".join([*pair, "z"]) for pair in pairs))
    found = [line["scores"] for line in answers(capsys, model, odd, text_columns=["x", "y"])]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    first = [pair[0] for pair in pairs]
    singles = [
        file("c.txt", *first),
        file("d.jsonl", *(json.dumps({"text": text, "id": 3}) for text in first)),
    ]
    lines = [line["scores"] for line in answers(capsys, model, *singles)]
    named = [line["scores"] for line in answers(capsys, model, tables[0], text_columns=["premise"])]
    np.testing.assert_allclose(lines, named * 2, atol=1e-5)
    assert not np.allclose(named, expected, atol=1e-3)
    # Lines that look like words with tags are texts to a classifier.
    tagged = answers(capsys, model, file("tagged.txt", "mary O", "paul O"))
    assert [line["example_id"][-9:] for line in tagged] == ["/tagged/0", "/tagged/1"]
    both = file("both.tsv", "text\tpremise\thypothesis", "a\tb\tc")
    for files, message in (
        ([both], "expected one with text or two of a pair, as the model does not say which it takes"),
        ([file("none.tsv", "x\ty", "a\tb")], "found the columns 'x', 'y', expected one with text or two"),
        ([tables[0], singles[0]], "c.txt has single texts and .*a.tsv pairs, expected the same of all"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            predict(model=str(model), files=[str(path) for path in files])


def test_a_model_of_single_texts_refuses_pairs_and_one_of_pairs_another_record(
    tmp_path: Path, fine_tune: Make, run: Path, pair_data: Path, make_checkpoint: Make
) -> None:
    options = {"text_columns": ["sentence2"]}
    given = {"labels": ["entailment", "not_entailment"], "options": options, "max_steps": 1}
    single = fine_tune("tone", pair_data, "single", checkpoint=make_checkpoint(1), **given, **KEPT)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("premise\thypothesis\na\tb\n")
    message = "expected 'sentence2', as the model takes single texts; name it with --text_columns"
    with pytest.raises(UserError, match=message):
        predict(model=str(single / "model"), files=[str(pairs)])
    record = run / "model" / "checkpoint.json"
    content = json.loads(record.read_text())
    assert content["finetuned"]["head"]["num_texts"] == 2
    content["finetuned"]["head"]["num_texts"] = 1
    record.write_text(json.dumps(content))
    with pytest.raises(UserError, match="takes single texts, but task pair has pairs"):
        predict(model=str(run / "model"), files=[str(pairs)], compile_step=False)


def test_a_loaded_model_answers_as_the_command(
    run: Path, pair_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pairs at hand, rows with columns, and files: one answer, and the weights are read once."""
    model = run / "model"
    expected = answers(capsys, model, pair_data / "dev.tsv")
    predictor = Predictor(str(model), compile_step=False)
    assert predictor.predict_files([str(pair_data / "dev.tsv")]) == expected
    shutil.rmtree(tmp_path / "runs")
    pairs = [(line["sentence1"], line["sentence2"]) for line in expected]
    rows = [{"sentence1": a, "sentence2": b, "id": [n]} for n, (a, b) in enumerate(pairs)]
    for examples in (pairs, rows, pairs[:3]):
        found = predictor(examples)
        np.testing.assert_allclose(
            [line["scores"] for line in found],
            [line["scores"] for line in expected[: len(found)]], atol=1e-5,
        )  # fmt: skip
    assert [line["id"] for line in predictor(rows)] == [[n] for n in range(len(rows))]
    for odd, message in (
        (["a text"], "found the columns 'text', .* as the model takes pairs"),
        ([("a", "b", "c")], "an example has 3 texts, expected 1 or 2"),
        ([], "there are no examples; give at least one"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            predictor(odd)


@pytest.mark.usefixtures("eager")
def test_questions(tmp_path: Path, fine_tune: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """With answers as in the run; without them, or in a table, the same predictions."""
    rows = [
        (f"q{n}", "she told about", f"{woman} told about the {thing}.", woman)
        for n, (woman, thing) in enumerate(
            (woman, thing) for woman in ("Mary", "Anna") for thing in ("cake", "tap", "wall", "sun")
        )
    ]

    def content(with_answers: bool) -> str:
        return json.dumps({"data": [{"title": "Town", "paragraphs": [
            {"context": context, "qas": [{"id": name, "question": question, **(
                {"answers": [{"text": answer, "answer_start": 0}]} if with_answers else {}
            )}]} for name, question, context, answer in rows
        ]}]})  # fmt: skip

    for name in ("train", "dev"):
        spaces = " " * (name == "dev")
        (tmp_path / f"{name}.json").write_text(content(True) + spaces)
    (tmp_path / "bare.json").write_text(content(False))
    table = [f"{name}\t{question}\t{context}" for name, question, context, _ in rows]
    (tmp_path / "table.tsv").write_text("\n".join(["id\tquestion\tcontext", *table]) + "\n")
    (tmp_path / "flat.json").write_text(json.dumps([
        {"id": name, "question": question, "context": context,
         "answers": {"text": [answer], "answer_start": [0]}} for name, question, context, answer in rows
    ]))  # fmt: skip
    (tmp_path / "odd.tsv").write_text("id\tquestion\n1\twho\n")
    given = {f"{split}_files": [str(tmp_path / f"{split}.json")] for split in ("train", "dev")}
    run = fine_tune(
        "questions", **given, options=SHORT, sequence_length=24, batch_size=4, keep="last"
    )
    expected = read_predictions([run], "dev")["prediction_text"].values[0].tolist()
    for name in ("dev.json", "bare.json", "table.tsv", "flat.json"):
        found = answers(capsys, run / "model", tmp_path / name)
        assert [line["prediction"] for line in found] == expected
        assert [line["example_id"] for line in found] == [row[0] for row in rows]
        assert found[0].get("label") == (["Mary"] if name in ("dev.json", "flat.json") else None)
    check_few_rows(run / "model", tmp_path / "table.tsv")
    # The model stays loaded; rows stay in their order, with their columns, whatever their ids.
    predictor = Predictor(str(run / "model"), compile_step=False)
    given = [
        {"id": 9 - n, "question": q, "context": c, "page": {"number": n}}
        for n, (_, q, c, _) in enumerate(rows)
    ]
    for examples in (given, [{**row, "id": None} for row in given]):
        found = predictor(examples)
        assert [line["prediction"] for line in found] == expected
        assert [{name: line[name] for name in given[0]} for line in found] == examples
    with pytest.raises(
        UserError, match="found nothing under 'context' beside id, question, expected"
    ):
        predict(model=str(run / "model"), files=[str(tmp_path / "odd.tsv")])


def test_modules_that_a_model_names_are_imported_only_where_the_command_names_them(
    tmp_path: Path, run: Path, pair_data: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A downloaded model is data; its `checkpoint.json` may name any module that Python finds."""
    was_imported = write_stranger(tmp_path / "of_a_stranger.py")
    monkeypatch.syspath_prepend(tmp_path)
    model, dev = run / "model", pair_data / "dev.tsv"
    record = json.loads((model / "checkpoint.json").read_text())
    record["finetuned"]["arguments"]["task_modules"] = ["of_a_stranger"]
    for name, is_known in (("pair", True), (TASK, False)):
        record["finetuned"]["task"] = name
        (model / "checkpoint.json").write_text(json.dumps(record))
        if is_known:
            expected = answers(capsys, model, dev)
        else:
            with pytest.raises(
                UserError, match=f"give --task_modules=of_a_stranger: task {TASK!r}"
            ):
                predict(model=str(model), files=[str(dev)])
    assert not was_imported.exists()
    found = answers(capsys, model, dev, task_modules=["of_a_stranger"])
    assert was_imported.exists()
    assert [line["scores"] for line in found] == [line["scores"] for line in expected]
    record["finetuned"]["arguments"]["task_modules"] = "of_a_stranger"
    (model / "checkpoint.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="task_modules 'of_a_stranger', expected list of str"):
        predict(model=str(model), files=[str(dev)])


def test_coreference(
    tmp_path: Path,
    fine_tune: Make,
    coreference_data: Path,
    winogender_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"winogender_dir": str(winogender_data), "sequence_length": 40, "keep": "last"}
    run = fine_tune("coreference", coreference_data, **given)
    found = answers(
        capsys, run / "model", coreference_data / "dev.conll", f"winogender={winogender_data}"
    )
    for name in ("dev", "winogender"):
        ours = read_predictions([run], name)
        there = {line["example_id"]: line for line in found if line["set"] == name}
        assert list(there) == ours["example_id"].values.tolist()
        scores = np.array([line["scores"] for line in there.values()])
        np.testing.assert_array_equal(scores.astype(np.float32), ours["scores"].values[0])
    header = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tB\tB-offset\n"
    gap = tmp_path / "gap.tsv"
    gap.write_text(header + "t-1\tMary told Anna that she was late.\tshe\t20\tMary\t0\tAnna\t10\n")
    found = answers(capsys, run / "model", gap)
    assert [line["example_id"] for line in found] == [
        "coreference/gap/t-1/A",
        "coreference/gap/t-1/B",
    ]
    assert all("label" not in line for line in found)
    check_few_rows(run / "model", gap, coreference_data / "dev.conll")
    record = json.loads((run / "model/checkpoint.json").read_text())
    record["finetuned"]["arguments"]["options"]["encodings_dir"] = str(tmp_path / "written")
    (run / "model/checkpoint.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="sets encodings_dir, a folder to write into"):
        predict(model=str(run / "model"), files=[str(gap)])


@pytest.mark.seconds
def test_two_models_in_two_threads_answer_for_themselves(
    fine_tune: Make, make_checkpoint: Make, pair_data: Path
) -> None:
    predictors = []
    for seed in range(2):
        given = {"checkpoint": make_checkpoint(seed), "num_epochs": 0.2}
        path = fine_tune("pair", pair_data, f"run_{seed}", **given, **KEPT)
        predictors.append(Predictor(str(path / "model"), compile_step=False))
    asked = [("Mary asked about a cake.", "A cake is good."), ("She was late.", "It is bad.")]

    def scores(predictor: Predictor) -> list[list[float]]:
        return [line["scores"] for line in predictor(asked)]

    expected = [scores(predictor) for predictor in predictors]
    assert expected[0] != expected[1]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked_for = [number for _ in range(20) for number in range(2)]
        found = list(pool.map(lambda number: scores(predictors[number]), asked_for))
    assert found == expected * 20
