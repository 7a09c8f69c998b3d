"""Sets of labels and tags of words: trained, kept, predicted, converted, refused."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.scoring import score, scores_of
from multiberts.finetune.prediction import predict
from multiberts.finetune.rows import TrainingRows
from multiberts.finetune.settings import FinetuningSettings
from multiberts.finetune.text.heads import HEADS
from multiberts.finetune.text.labels import first_pieces, tags_of_pieces
from multiberts.runs.errors import UserError
from multiberts.tests.checkpoint_command import checkpoint_command
from multiberts.tests.finetune.conftest import Make, Refuse, Replay, data_of_task, opened_model
from multiberts.tests.finetune.stored_datasets import store

SMALL: dict[str, Any] = {
    "batch_size": 16,
    "num_epochs": 40,
    "sequence_length": 32,
    "learning_rate": 2e-3,
}
SETS = {"kind": "multi_label_classification", "text_columns": ["text"], "label_column": "marks"}
TAGS = {"kind": "token_classification", "text_columns": ["words"], "label_column": "tags"}
TAG_OF = {"mary": "B-PER", "john": "B-PER", "baker": "I-PER", "cake": "B-FOOD"}


def set_rows(number: int, seed: int) -> list[dict[str, Any]]:
    """Texts whose marks are the colours among their words; every fourth or so has none."""
    random = np.random.default_rng(seed)
    words = np.array(["red", "blue", "cake", "sun", "wall"])
    chosen = [words[random.permutation(5)[: random.integers(1, 4)]].tolist() for _ in range(number)]
    return [
        {"text": " ".join(row), "marks": [word for word in row if word in ("red", "blue")]}
        for row in chosen
    ]


def tag_rows(number: int, seed: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    words = np.array(["mary", "john", "baker", "cake", "the", "sunwall", "late"])
    rows = [random.choice(words, random.integers(1, 7)).tolist() for _ in range(number)]
    return [{"words": row, "tags": [TAG_OF.get(word, "O") for word in row]} for row in rows]


KINDS = {"sets": (set_rows, SETS), "tags": (tag_rows, TAGS)}


def write(folder: Path, rows: Callable[[int, int], list[dict[str, Any]]]) -> None:
    for seed, (split, number) in enumerate((("train", 96), ("dev", 24))):
        text = "".join(json.dumps(row) + "\n" for row in rows(number, seed))
        (folder / f"{split}.jsonl").write_text(text)


def written(folder: Path, kind: str) -> tuple[Any, dict[str, Any]]:
    """Writes the rows of a kind; returns what draws them, and the options that read them."""
    write(folder, KINDS[kind][0])
    return KINDS[kind]


def printed(capsys: pytest.CaptureFixture[str], **call: Any) -> list[dict[str, Any]]:
    capsys.readouterr()
    predict(compile_step=False, **call)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_learned_kept_and_predicted(
    tmp_path: Path,
    fine_tune: Make,
    capsys: pytest.CaptureFixture[str],
    same_when_replayed: Replay,
    kind: str,
) -> None:
    """Alone follows sets and tags from files through training and scores to predictions."""
    rows, options = written(tmp_path, kind)
    run = fine_tune("mine", tmp_path, keep="last", options=options)
    scores = scores_of(run, "dev")
    sets_have = ["multilabel_f1_micro", "multilabel_f1_macro"]
    assert list(scores) == (sets_have if kind == "sets" else ["span_f1"])
    assert next(iter(scores.values())) > 0.9
    dev = read_predictions([run], "dev")
    separator, column = ("|", "marks") if kind == "sets" else (" ", "tags")
    given = rows(24, 1)
    expected = [set(row[column]) if kind == "sets" else row[column] for row in given]
    found = [
        set(filter(None, text.split("|"))) if kind == "sets" else text.split()
        for text in dev["answers"].values.tolist()
    ]
    assert found == expected
    # The same model answers tables with texts in place of lists, and lines of text, alike.
    tsv = "".join(
        f"{row['text'] if kind == 'sets' else ' '.join(row['words'])}\t{separator.join(row[column])}\n"
        for row in given
    )
    (tmp_path / "new.tsv").write_text(f"{options['text_columns'][0]}\t{column}\n{tsv}")
    (tmp_path / "lines.txt").write_text(
        "".join(line.partition("\t")[0] + "\n" for line in tsv.splitlines())
    )
    for name in ("dev.jsonl", "new.tsv", "lines.txt"):
        lines = printed(capsys, model=str(run / "model"), files=[str(tmp_path / name)])
        answers = [separator.join(line["prediction"]) for line in lines]
        for line, row in zip(lines, given, strict=True):
            if name == "lines.txt":
                assert "label" not in line
            else:  # labels of a set stand in the order of the classes
                inner = sorted if kind == "sets" else list
                assert inner(line["label"]) == inner(row[column])
        assert answers == dev["prediction_text"].values[0].tolist()
    score(run_dir=str(tmp_path / "scores"), predictions=str(run))
    parts = (tmp_path / "scores" / "parts.csv").read_text()
    assert ("mine,dev,multilabel_f1_macro,class,blue," in parts) == (kind == "sets")
    assert kind == "tags" or same_when_replayed(run)


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_to_transformers_and_back(
    tmp_path: Path, fine_tune: Make, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    rows, options = written(tmp_path, kind)
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    fine_tune("mine", tmp_path, keep="last", options=options, num_epochs=1)
    model = run / "model"
    convert = ["convert", str(model), str(theirs), "--to", "hugging_face"]
    checkpoint_command(*convert)
    loaded = transformers.AutoConfig.from_pretrained(theirs)
    name = {"sets": "BertForSequenceClassification", "tags": "BertForTokenClassification"}[kind]
    assert loaded.architectures == [name]
    network = getattr(transformers, name).from_pretrained(theirs).eval()
    files = [str(tmp_path / "dev.jsonl")]
    ours = printed(capsys, model=str(model), files=files)
    tokenizer = Vocabulary.open(model / "vocab.txt")
    for row, line in zip(rows(24, 1), ours, strict=True):
        words = row["words"] if kind == "tags" else row["text"].split()
        pieces = tokenizer.encode_batch(words)
        ids = [tokenizer.cls_id, *(piece for word in pieces for piece in word), tokenizer.sep_id]
        with torch.no_grad():
            logits = network(torch.tensor([ids])).logits[0].numpy()
        labels = loaded.id2label
        if kind == "sets":
            np.testing.assert_allclose(line["scores"], logits, atol=2e-5)
        else:
            places = np.cumsum([1, *map(len, pieces)])[:-1]
            found = [labels[int(number)] for number in logits.argmax(-1)[places]]
            assert line["prediction"] == found
    # As a model of another program: without the record of ours.
    (theirs / "checkpoint.json").unlink(missing_ok=True)
    (tmp_path / "new.jsonl").write_text(
        "".join(json.dumps({"text": " ".join(next(iter(row.values())))
                if kind == "tags" else row["text"]}) + "\n" for row in rows(24, 1))
    )  # fmt: skip
    foreign = printed(capsys, model=str(theirs), files=[str(tmp_path / "new.jsonl")])
    assert [line["prediction"] for line in foreign] == [line["prediction"] for line in ours]


found_data = functools.partial(data_of_task, "mine")


@pytest.mark.parametrize("form", ["classes", "texts", "joined"])
@pytest.mark.parametrize("kind", KINDS)
def test_tensorflow_datasets_give_what_a_table_gives(tmp_path: Path, kind: str, form: str) -> None:
    from tensorflow_datasets import features

    rows, options = written(tmp_path, kind)
    column, given = options["label_column"], rows(96, 0)
    names = sorted({name for row in given for name in row[column]})
    sequence = {"classes": features.ClassLabel(names=names), "texts": features.Text()}
    texts: dict[str, Any] = {"text": features.Text()}
    if kind == "tags":
        texts = {"words": features.Sequence(features.Text())}
    if form == "joined":
        separator = "|" if kind == "sets" else " "
        given = [{**row, column: separator.join(row[column])} for row in given]
        labels = features.Text()
    else:
        labels = features.Sequence(sequence[form])
    splits = dict.fromkeys(("train", "validation"), given)
    store(tmp_path / "datasets", "mine", splits, {**texts, column: labels})
    there = found_data(options, dataset="mine", data_dir=str(tmp_path / "datasets"))
    here = found_data(options, data_dir=str(tmp_path))
    assert there.task.labels == here.task.labels == tuple(names)
    found, expected = there.train.read(), here.train.read()
    assert (found.first_texts, found.words) == (expected.first_texts, expected.words)
    assert found.example_ids == expected.example_ids
    np.testing.assert_array_equal(found.labels, expected.labels)


def test_a_dataset_with_another_number_of_tags_is_refused(tmp_path: Path) -> None:
    from tensorflow_datasets import features

    words = features.Sequence(features.Text())
    tags = features.Sequence(features.ClassLabel(names=["O", "B-PER"]))
    rows = [{"words": ["a", "b"], "tags": ["O", "B-PER"]}, {"words": ["a", "b"], "tags": ["O"]}]
    splits = dict.fromkeys(("train", "validation"), rows)
    store(tmp_path, "mine", splits, {"words": words, "tags": tags})
    found = found_data(TAGS, dataset="mine", data_dir=str(tmp_path))
    message = "dataset mine/1.0.0:train row 1: found 1 tag in tags for the 2 words of words"
    with pytest.raises(UserError, match=message):
        found.train.read()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("eager")
def test_the_loss_is_linear_in_the_weights_of_classes(
    tmp_path: Path, fine_tune: Make, kind: str
) -> None:
    """Alone shows that weights of classes enter the loss, each kind's in its own way."""
    _, options = written(tmp_path, kind)
    balanced = found_data({**options, "class_weights": "balanced"}, data_dir=str(tmp_path))
    task, labels = balanced.task, balanced.train.read().labels
    found = HEADS[task.head_kind](BertConfig(vocab_size=8)).loss_weights(task, labels)
    found = found[0] if kind == "sets" else found
    given = labels[labels >= 0].astype(int) if kind == "tags" else np.nonzero(labels)[1]
    counts = np.bincount(given)
    # Each class has the same share; examples, or labels of one example, have 1 on average.
    np.testing.assert_allclose(found * counts, found[0] * counts[0], rtol=1e-6)
    share = counts / counts.sum() if kind == "tags" else 1 / len(counts)
    np.testing.assert_allclose((found * share).sum(), 1, rtol=1e-6)
    weights = np.linspace(0.7, 1.3, len(counts))
    weights /= (weights * share).sum()  # so that their reflections at 1 have 1 on average, too
    losses = []
    for name, chosen in (("none", None), ("one", weights), ("other", 2 - weights)):
        weighted = {**options, "class_weights": None if chosen is None else chosen.tolist()}
        fine_tune("mine", tmp_path, name, max_steps=1, log_every_steps=1, options=weighted)
        [line, *_] = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses.append(json.loads(line)["loss"])
    none, one, other = losses
    assert abs(one - none) > 1e-4
    np.testing.assert_allclose(one + other, 2 * none, rtol=1e-5)


@pytest.mark.parametrize("used", [{"held_out_fold": 1}, {"max_train_examples": 20}])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("eager")
def test_balanced_weights_count_the_examples_that_are_trained_on(
    tmp_path: Path, fine_tune: Make, kind: str, used: dict[str, int]
) -> None:
    """As scikit-learn counts them, and as PyTorch's documentation of `pos_weight` has it."""
    class_weight = pytest.importorskip("sklearn.utils.class_weight")
    _, options = written(tmp_path, kind)
    call = {"checkpoint": "c", "task": "mine", "data_dir": str(tmp_path)}
    settings = FinetuningSettings(run_dir="", **call, **SMALL, **used)
    split = TrainingRows.of(np.arange(96), settings)
    trained = np.unique([split.batch(step) for step in range(split.num_steps(1) + 1)])
    labels = found_data(options, data_dir=str(tmp_path)).train.read().labels[trained]
    assert len(labels) == split.used < 96
    if kind == "sets":
        name, present = "pos_weight", labels.sum(axis=0)
        expected = (len(labels) - present) / present
    else:
        name, given = "class_weights", labels[labels >= 0].astype(int)
        expected = class_weight.compute_class_weight("balanced", classes=np.unique(given), y=given)
    losses = []
    for number, weights in enumerate(("balanced", expected.tolist())):
        given = {"options": {**options, name: weights}, "max_steps": 1, "log_every_steps": 1}
        run = fine_tune("mine", tmp_path, f"run_{number}", **given, **used)
        losses.append(json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["loss"])
    balanced, as_expected = losses
    np.testing.assert_allclose(balanced, as_expected, rtol=1e-6)


@pytest.mark.usefixtures("eager")
def test_weights_of_present_labels_are_those_of_pytorch(
    tmp_path: Path, make_checkpoint: Make
) -> None:
    """BCEWithLogitsLoss with `pos_weight`, of the logits that the untrained model predicts."""
    torch = pytest.importorskip("torch")
    write(tmp_path, set_rows)
    undisturbed = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    weights, rows = [0.25, 3.0], np.arange(16)
    given = {"data_dir": str(tmp_path), "sequence_length": 32}
    options = {**SETS, "pos_weight": weights}
    _, weighted = opened_model(make_checkpoint(**undisturbed), "mine", options, **given)
    parameters = weighted.initial_parameters(0)
    parameters["output_weights"] *= 20  # logits that are not all near 0
    logits = torch.tensor(weighted.evaluate_rows(parameters, rows).scores)
    labels = torch.tensor(weighted.train.examples.labels[rows])
    assert logits.abs().max() > 0.1
    expected = float(torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weights))(logits, labels))
    weighted.trainer.start(parameters)
    found = float(weighted.trainer.step(weighted.batch(rows), 0.0, 0)["loss"])
    assert found == pytest.approx(expected, rel=1e-5)
    # Such a loss is not that without weights.
    assert abs(expected - float(torch.nn.BCEWithLogitsLoss()(logits, labels))) > 0.05


NAMES = ("blue", "long", "red")
GIVEN = [["blue", "red"], ["long"], [], ["red"], ["blue", "long", "red"], ["long"]]
VECTORS = [[float(name in row) for name in NAMES] for row in GIVEN]


def write_cells(folder: Path, cells: list[Any], *, column: str = "marks", is_csv: bool) -> None:
    """Writes texts and their labels; dev has the same cells as train."""
    for split in ("train", "dev"):
        rows = [(f"{split} {number}", cell) for number, cell in enumerate(cells)]
        with (folder / f"{split}.{'csv' if is_csv else 'jsonl'}").open("w", newline="") as file:
            if is_csv:
                csv.writer(file).writerows([("text", column), *rows])
            else:
                file.writelines(
                    json.dumps({"text": text, column: cell}) + "\n" for text, cell in rows
                )


@pytest.mark.parametrize(
    ("form", "cells", "names"),
    [
        ("csv", ["|".join(row) for row in GIVEN], NAMES),
        ("csv", [" | ".join(row) for row in GIVEN], NAMES),
        ("csv", [repr(row) for row in GIVEN], NAMES),
        ("csv", [json.dumps(row) for row in GIVEN], NAMES),
        ("csv", [str(np.array(row)) for row in GIVEN], NAMES),
        ("csv", [str([int(bit) for bit in row]) for row in VECTORS], None),
        ("csv", [str(np.array(row)) for row in VECTORS], None),
        ("csv", [str(tuple(map(int, row))) for row in VECTORS], None),
        ("csv", [str([bit == 1 for bit in row]) for row in VECTORS], None),
        ("csv", [",".join(f"{bit:g}" for bit in row) for row in VECTORS], None),
        ("jsonl", GIVEN, NAMES),
        ("jsonl", VECTORS, None),
        ("jsonl", [[int(bit) for bit in row] for row in VECTORS], None),
        ("jsonl", [[bit == 1 for bit in row] for row in VECTORS], None),
    ],
)  # fmt: skip
def test_every_way_to_write_a_set_gives_the_same_labels(
    tmp_path: Path, form: str, cells: list[Any], names: tuple[str, ...] | None
) -> None:
    write_cells(tmp_path, cells, is_csv=form == "csv")
    found = found_data(SETS, data_dir=str(tmp_path))
    # Without names they are called as transformers calls them, in the order of the vector.
    assert found.task.labels == (names or ("LABEL_0", "LABEL_1", "LABEL_2"))
    named = found_data(SETS, data_dir=str(tmp_path), labels=NAMES)
    for task in (found, named):
        for source in (task.train, *task.evaluation):
            np.testing.assert_array_equal(source.read().labels, VECTORS)


def test_texts_of_names_keep_their_characters(tmp_path: Path) -> None:
    names = ["it's", 'the "end"', "\u00e9t\u00e9", "\U0001f600", "a, b"]
    for written in (repr, json.dumps):
        write_cells(tmp_path, [written(names[:3]), written(names[2:])], is_csv=True)
        assert found_data(SETS, data_dir=str(tmp_path)).task.labels == tuple(sorted(names))


@pytest.mark.usefixtures("eager")
def test_vectors_have_the_loss_of_transformers(
    tmp_path: Path, fine_tune: Make, make_checkpoint: Make
) -> None:
    """Alone checks the order of labels that are given as vectors."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    rows = [
        {"text": row["text"], "marks": [float(name in row["marks"]) for name in ("red", "cake", "blue")]}
        for row in set_rows(16, 0)
    ]  # fmt: skip
    for split in ("train", "dev"):
        lines = [json.dumps({**row, "text": f"{row['text']} {split[0]}"}) + "\n" for row in rows]
        (tmp_path / f"{split}.jsonl").write_text("".join(lines))
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    # A batch of all rows, and a rate that leaves the weights as they were.
    given = {"checkpoint": make_checkpoint(**no_dropout), "num_epochs": 1, "learning_rate": 1e-12}
    fine_tune("mine", tmp_path, keep="last", options=SETS, log_every_steps=1, **given)
    checkpoint_command("convert", str(run / "model"), str(theirs), "--to", "hugging_face")
    network = transformers.BertForSequenceClassification.from_pretrained(theirs).eval()
    assert network.config.problem_type == "multi_label_classification"
    assert network.config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    losses, tokenizer = [], Vocabulary.open(run / "model" / "vocab.txt")
    for row in rows:
        ids = [tokenizer.cls_id, *tokenizer.encode(f"{row['text']} t"), tokenizer.sep_id]
        with torch.no_grad():
            losses.append(
                float(network(torch.tensor([ids]), labels=torch.tensor([row["marks"]])).loss)
            )
    [line, *_] = (run / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("sign", [",", ", ", ";", "/", " ", "\uff0c"])
def test_another_sign_between_names_is_asked_about_and_read_with_the_names(
    tmp_path: Path, sign: str
) -> None:
    write_cells(tmp_path, [sign.join(row) for row in GIVEN], is_csv=True)
    with pytest.raises(UserError) as refused:
        found_data(SETS, data_dir=str(tmp_path))
    asked = (
        f"train.csv line 2: found marks {sign.join(GIVEN[0])!r}, which may be one label or 2; give "
    )
    assert asked in str(refused.value)
    assert "finetune.labels, all the names (blue, long, red, if" in str(refused.value)
    assert "or write blue|red" in str(refused.value)
    found = found_data(SETS, data_dir=str(tmp_path), labels=NAMES)
    for source in (found.train, *found.evaluation):
        np.testing.assert_array_equal(source.read().labels, VECTORS)


def test_names_with_a_comma_stay_whole_and_numbers_may_be_names(tmp_path: Path) -> None:
    names = ("Lyon, France", "Nice, France", "Rome")
    write_cells(tmp_path, [[names[0], names[2]], [names[1]], []], is_csv=False)
    # Lists part names themselves.
    assert found_data(SETS, data_dir=str(tmp_path)).task.labels == names
    # Zero and one are names where they are given.
    write_cells(tmp_path, [[0], [1], [0, 1], []], is_csv=False)
    found = found_data(SETS, data_dir=str(tmp_path), labels=("0", "1")).train.read()
    np.testing.assert_array_equal(found.labels, [[1, 0], [0, 1], [1, 1], [0, 0]])
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").unlink()
    write_cells(tmp_path, [*names, ""], is_csv=True)
    with pytest.raises(UserError, match="found marks 'Lyon, France', which may be one label or 2"):
        found_data(SETS, data_dir=str(tmp_path))
    found = found_data(SETS, data_dir=str(tmp_path), labels=names).train.read()
    np.testing.assert_array_equal(found.labels, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize(
    ("cells", "labels", "message"),
    [
        # A column for each label, a vector that is cut, shares of raters.
        (["0", "1", "1"], None, "line 1: found marks '0', and no labels but numbers from 0 to 1"),
        ([[0, 1, 1], [1, 0]], None, "line 2: found marks ['1', '0'], and no labels but numbers"),
        ([[0, 1, 1], [0.3, 0, 1]], None, "line 2: found marks ['0.3', '0', '1'], and no labels"),
        ([[0, 1, 1], [1, 0]], NAMES, "line 2: found marks '1', expected one of blue, long, red, or a 0 or 1"),
        (["[blue red]", "red"], None, "found marks '[blue red]', expected a list such as"),
        ([["red", "nan"], ["blue"]], None, "line 1: found marks 'nan', which stands for a missing label"),
        ([["blue", "red"], ["blue, red"]], None, "found marks 'blue, red', which may be one label or 2"),
    ],
)  # fmt: skip
def test_what_is_no_set_is_refused(
    tmp_path: Path, cells: list[Any], labels: tuple[str, ...] | None, message: str
) -> None:
    write_cells(tmp_path, cells, is_csv=False)
    with pytest.raises(UserError, match="^[^\n]*$") as refused:
        found_data(SETS, data_dir=str(tmp_path), labels=labels).train.read()
    assert message in str(refused.value)


def test_tags_may_be_texts_of_lists(tmp_path: Path) -> None:
    rows = tag_rows(8, 0)
    for split in ("train", "dev"):
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("words", "tags"), *([*row.values()] for row in rows)])
    found = found_data(TAGS, data_dir=str(tmp_path))
    read = found.train.read()
    assert read.words == [row["words"] for row in rows]
    assert read.labels is not None
    tags = [[found.task.labels[int(tag)] for tag in row if tag >= 0] for row in read.labels]
    assert tags == [row["tags"] for row in rows]


def test_tags_stand_at_the_first_piece_of_each_word(vocabulary: Path) -> None:
    tokenizer = Vocabulary.open(vocabulary)
    words = [["mary", "xyz", "cake"], ["\u200b", "sun"]]  # x ##y ##z; no piece at all
    places = first_pieces(tokenizer, words, 32)
    assert places.tolist() == [[1, 2, 5], [-1, 1, -1]]
    assert first_pieces(tokenizer, words, 6).tolist() == [[1, 2, -1], [-1, 1, -1]]
    labels = np.array([[2, 1, 0], [1, 2, -1]])
    assert tags_of_pieces(labels, places, 7).tolist() == [
        [-1, 2, 1, -1, -1, 0, -1],
        [-1, 2, -1, -1, -1, -1, -1],
    ]


@pytest.mark.parametrize(
    ("options", "row", "message"),
    [
        (TAGS, {"words": ["a", "b"], "tags": ["O"]}, "line 97: found 1 tag in tags for the 2 words"),
        (TAGS, {"words": ["a"], "tags": ["PER"]}, "found 'PER', expected O, B-<type> or I-<type>"),
        (TAGS, {"words": [], "tags": []}, "line 97: found nothing in tags"),
        ({**TAGS, "text_columns": ["words", "more"]}, None, "expected one column with words"),
        ({**TAGS, "metrics": ["accuracy"]}, None, "has accuracy, which does not suit it; choose span_f1"),
        ({**TAGS, "class_weights": [1.0]}, None, "one weight for each of its 4 classes"),
        ({**TAGS, "pos_weight": [1.0]}, None, "which counts with the kind 'multi_label_classification' only"),
        ({**SETS, "pos_weight": [1.0]}, None, "option pos_weight of task mine is [1.0], expected one weight"),
        (SETS, {"text": "a", "marks": ["x|y"]}, "has the label 'x|y', expected names without '|'"),
        (SETS, {"text": "a", "marks": {"red": 1}}, "line 97: found {'red': 1} under 'marks'"),
    ],
)  # fmt: skip
def test_what_is_not_fit_is_refused_in_one_line(
    tmp_path: Path, refused: Refuse, options: dict[str, Any],
    row: dict[str, Any] | None, message: str,
) -> None:  # fmt: skip
    write(tmp_path, tag_rows if options["kind"] == TAGS["kind"] else set_rows)
    if row is not None:
        with (tmp_path / "train.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
    assert message in refused("mine", tmp_path, options=options)


def test_new_data_with_an_unknown_label_or_of_another_task(tmp_path: Path, fine_tune: Make) -> None:
    write(tmp_path, tag_rows)
    run = fine_tune("mine", tmp_path, keep="last", options=TAGS, num_epochs=1)
    new = tmp_path / "new.jsonl"
    for row, message in (
        ({"words": ["a"], "tags": ["B-CITY"]}, "line 1: found tags 'B-CITY', expected one of"),
        ({"a": "x", "b": "y"}, "found the columns 'a', 'b', expected 'words'"),
        ({"words": ["a", 3.5, None]}, "line 1: found ['a', 3.5, None] under 'words'"),
    ):
        new.write_text(json.dumps(row) + "\n")
        with pytest.raises(UserError, match="^[^\n]*$") as refused:
            predict(model=str(run / "model"), files=[str(new)], compile_step=False)
        assert message in str(refused.value)
