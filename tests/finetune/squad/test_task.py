"""Questions from the file to the score: a model that learns them, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.evaluate.exporting import export
from multiberts.evaluate.prediction_files.prediction_file import read_file
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import read_run
from multiberts.evaluate.scoring import scores_of
from multiberts.finetune import packing
from multiberts.finetune.packing import PACKING
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.conftest import Make, Refuse, Replay, in_transformers, opened_model

OPTIONS = {"max_query_length": 4, "doc_stride": 6, "n_best_size": 8}
SMALL = {"batch_size": 16, "sequence_length": 24, "compile_step": False, "options": OPTIONS}
WOMEN, MEN = ["mary", "anna"], ["john", "paul"]
THINGS = ["cake", "tap", "wall", "sun"]


def squad_content(split: str, number: int, *, unanswerable: bool) -> dict[str, Any]:
    """Which woman is told of: one beside a man, or none."""
    random = np.random.default_rng(len(split))
    paragraphs = []
    for row in range(number):
        people, things = list(random.permutation(MEN)), random.permutation(THINGS)
        lost = unanswerable and row % 3 == 0
        about, woman = int(random.integers(2)), str(random.choice(WOMEN))
        if not lost:
            people[about] = woman
        parts = [f"{people[n].title()} told about the {things[n]}" for n in range(2)]
        context, person = " and ".join(parts) + ".", woman.title()
        answers = [] if lost else [{"text": person, "answer_start": context.index(person)}]
        entry = {"id": f"{split}{row:03d}", "question": "she told about", "answers": answers}
        paragraphs.append({"context": context, "qas": [{**entry, "is_impossible": lost}]})
    return {"version": "2.0", "data": [{"title": "Town", "paragraphs": paragraphs}]}


@pytest.fixture
def squad_data(tmp_path: Path) -> Make:
    """A folder with train and dev questions, in the names of the release and as one's own."""

    def write(*, unanswerable: bool = False) -> Path:
        folder = tmp_path / f"squad_{unanswerable}"
        folder.mkdir()
        for split, number in (("train", 96), ("dev", 30)):
            text = json.dumps(squad_content(split, number, unanswerable=unanswerable))
            for name in (split, f"{split}-v{'2.0' if unanswerable else '1.1'}"):
                (folder / f"{name}.json").write_text(text)
        return folder

    return write


def read_data(folder: Path, checkpoint: Path, task: str, length: int = 24) -> tuple[Any, Any]:
    return opened_model(checkpoint, task, OPTIONS, data_dir=str(folder), sequence_length=length)


def test_questions_are_learnt_and_written_down(
    tmp_path: Path, fine_tune: Make, squad_data: Make, same_when_replayed: Replay
) -> None:
    """Alone follows questions from files through training to the files of the official scorer."""
    folder = squad_data()
    run = fine_tune("squad-v1.1", folder, learning_rate=2e-3, num_epochs=10)
    assert scores_of(run, "dev")["squad_f1"] > 0.9
    content = read_run(run)
    assert content["evaluation_sets"]["dev"]["metrics"] == ["squad_f1", "squad_exact_match"]
    assert (
        content["parameters"]["doc_stride"] == 6 and "null_threshold" not in content["parameters"]
    )
    predictions = read_file(run / "predictions" / "dev.tfrecord")
    official = json.loads((folder / "dev-v1.1.json").read_text())["data"][0]["paragraphs"]
    assert predictions.example_ids.tolist() == [paragraph["qas"][0]["id"] for paragraph in official]
    assert "null_odds" not in predictions.outputs
    for row, paragraph in enumerate(official):
        start, end = predictions.outputs["start"][row], predictions.outputs["end"][row]
        assert paragraph["context"][start:end] == predictions.outputs["prediction_text"][row]
        assert predictions.extras["answers"][row] == (paragraph["qas"][0]["answers"][0]["text"],)
    dataset = read_predictions([run], "dev")
    assert dataset["prediction_text"].shape == (1, 30)
    questions = [paragraph["qas"][0]["question"] for paragraph in official]
    assert dataset["question"].values.tolist() == questions
    assert same_when_replayed(run)
    exported = tmp_path / "export"
    with pytest.raises(UserError, match="has no null odds, as all its questions have answers"):
        export(path=str(exported), predictions=str(run), null_threshold=0.0)
    assert not exported.exists()
    export(path=str(exported), predictions=str(run))
    assert {path.name for path in exported.iterdir()} == {"predictions.json", "scores.json"}


def test_leaving_questions_unanswered_is_learnt(
    tmp_path: Path, fine_tune: Make, squad_data: Make
) -> None:
    """SQuAD 2.0 with two further sets of predictions, and the files of the official scorer."""
    folder = squad_data(unanswerable=True)
    sets = {"evaluation_files": {"again": str(folder / "train.json")}, "held_out_fold": 2}
    given = {"learning_rate": 2e-3, "num_epochs": 10, "options": {**OPTIONS, "dump_n_best": True}}
    run = fine_tune("squad-v2.0", folder, **sets, **given)
    predictions = read_file(run / "predictions" / "dev.tfrecord")
    assert (predictions.labels == predictions.predictions).mean() > 0.8
    np.testing.assert_array_equal(
        predictions.predictions == 0, predictions.outputs["prediction_text"] == ""
    )
    np.testing.assert_array_equal(
        predictions.predictions == 0, predictions.outputs["null_odds"] > 0
    )
    # The held-out fifth is of whole questions, and answered as in a set of its own.
    held_out = read_file(run / "predictions" / "held_out.tfrecord")
    again = read_file(run / "predictions" / "again.tfrecord")
    assert len(held_out.example_ids) in (19, 20)
    rows = [again.example_ids.tolist().index(name) for name in held_out.example_ids]
    assert (
        again.outputs["prediction_text"][rows].tolist()
        == held_out.outputs["prediction_text"].tolist()
    )

    files = {}
    for name, arguments in (("as_run", {}), ("other", {"null_threshold": -1.5})):
        export(path=str(tmp_path / name), predictions=str(run), **arguments)
        files[name] = {
            path.stem: json.loads(path.read_text()) for path in (tmp_path / name).glob("*.json")
        }
    assert set(files["as_run"]) == {"predictions", "null_odds", "nbest_predictions", "scores"}
    answers = files["as_run"]["predictions"]
    assert list(answers.values()) == predictions.outputs["prediction_text"].tolist()
    scores = files["as_run"]["scores"]
    for metric, name in (("squad_f1", "f1"), ("squad_exact_match", "exact")):
        assert scores[name] / 100 == pytest.approx(scores_of(run, "dev")[metric], abs=1e-12)
    odds = files["as_run"]["null_odds"]
    for name, n_best in files["as_run"]["nbest_predictions"].items():
        assert sum(one["probability"] for one in n_best) == pytest.approx(1)
        assert sorted((one["probability"] for one in n_best[:-1]), reverse=True) == [
            one["probability"] for one in n_best[:-1]
        ]
        (null,) = [one for one in n_best if not one["text"]]
        best = next(one for one in n_best if one["text"])
        difference = (
            null["start_logit"] + null["end_logit"] - best["start_logit"] - best["end_logit"]
        )
        assert odds[name] == pytest.approx(difference, abs=1e-5)
        assert answers[name] == ("" if odds[name] > 0 else best["text"])
        assert files["other"]["predictions"][name] == ("" if odds[name] > -1.5 else best["text"])


@pytest.mark.usefixtures("eager")
def test_loss_and_logits_are_those_of_transformers(
    make_checkpoint: Make, squad_data: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights in BertForQuestionAnswering, which pads nothing."""
    torch = pytest.importorskip("torch")
    undisturbed = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    checkpoint, ours = read_data(squad_data(), make_checkpoint(**undisturbed), "questions")
    parameters = ours.initial_parameters(0)
    assert parameters["output_weights"].shape == (2, 32)
    drawn = [ours.initial_parameters(seed)["output_weights"] for seed in (0, 1)]
    np.testing.assert_array_equal(drawn[0], parameters["output_weights"])
    assert (drawn[1] != drawn[0]).all()
    model = in_transformers("BertForQuestionAnswering", "qa_outputs", checkpoint.config, parameters)
    windows = ours.train.windows
    lengths, counts = np.unique(windows.features.lengths, return_counts=True)
    length = int(lengths[counts.argmax()])
    rows = np.flatnonzero(windows.features.lengths == length)[:16]
    monkeypatch.setattr(packing, "_length_of_batch", lambda *_: 48)
    batch = ours.batch(rows)
    assert PACKING[0] not in batch and batch["input_ids"].shape[1] > length  # ours is padded
    given = {
        "token_type_ids" if name == "segment_ids" else name: torch.tensor(values).long()
        for name, values in batch.items()
        if name in ("input_ids", "segment_ids", "start_positions", "end_positions")
    }
    for name in ("input_ids", "token_type_ids"):
        given[name] = given[name][:, :length]
    with torch.no_grad():
        expected = model(**given)
    ours.trainer.start(parameters)
    step = ours.trainer.step(batch, 0.0, 0)
    assert float(step["loss"]) == pytest.approx(float(expected.loss), abs=1e-5)
    starts, ends = ours.window_logits(parameters, ours.train)
    np.testing.assert_allclose(starts[rows, :length], expected.start_logits.numpy(), atol=1e-5)
    np.testing.assert_allclose(ends[rows, :length], expected.end_logits.numpy(), atol=1e-5)


def test_windows_of_a_question_belong_together(make_checkpoint: Make, squad_data: Make) -> None:
    _, data = read_data(squad_data(), make_checkpoint(), "questions", length=12)
    questions, counts = np.unique(data.train_groups, return_counts=True)
    assert len(questions) == 96 and counts.min() > 1
    assert len(data.train_groups) == counts.sum()


def test_a_set_is_read_once_a_process(make_checkpoint: Make, squad_data: Make) -> None:
    folder, checkpoint = squad_data(), make_checkpoint()
    first, second, other = (
        read_data(folder, checkpoint, "questions", length=length)[1] for length in (24, 24, 20)
    )
    assert first.train is second.train
    assert next(iter(first.evaluation.values())) is next(iter(second.evaluation.values()))
    assert other.train is not first.train


@pytest.mark.parametrize(
    ("task", "arguments", "line"),
    [
        ("squad-v1.1", {"data_dir": None}, "needs one of finetune.data_dir"),
        ("squad-v1.1", {"dataset": "squad/v1.1", "dev_files": ["x"]}, "needs one of finetune.data_dir"),
        ("squad-v1.1", {"data_dir": None, "train_files": ["a", "b"], "dev_files": ["c"]}, "one train"),
        ("squad-v1.1", {"labels": ["yes", "no"]}, "takes no labels"),
        ("squad-v1.1", {"options": {"null_threshold": 0.0}}, "options has 'null_threshold'"),
        ("squad-v1.1", {"options": {"n_best_size": 0}}, "option n_best_size of task squad-v1.1 is 0"),
        ("squad-v1.1", {"options": {"doc_stride": 0}}, "option doc_stride of task squad-v1.1 is 0"),
        ("squad-v1.1", {"options": {"max_query_length": 0}}, "option max_query_length of task squ"),
        ("squad-v1.1", {"options": {}, "sequence_length": 60}, "leave no room for a paragraph"),
        ("squad-v1.1", {"options": {}, "sequence_length": 7}, "give more than 67, or a smaller option m"),
        ("squad-v2.0", {"data_dir": "nowhere"}, "nowhere has no table named train-v2.0"),
        ("questions", {"evaluation_files": {"x": "nowhere.json"}}, "nowhere.json"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(
    refused: Refuse, squad_data: Make, task: str,
    arguments: dict[str, Any], line: str,
) -> None:  # fmt: skip
    assert line in refused(task, **{"data_dir": str(squad_data()), **arguments})


def test_a_model_with_one_type_of_tokens_is_refused(
    refused: Refuse, make_checkpoint: Make, squad_data: Make
) -> None:
    line = refused("squad-v1.1", squad_data(), checkpoint=make_checkpoint(type_vocab_size=1))
    assert line.startswith("SQuAD has two segments")
    assert "type_vocab_size 1; take a checkpoint" in line


@pytest.mark.parametrize("task", ["squad-v1.1", "squad-v2.0", "questions"])
def test_files_have_the_official_names_or_plain_ones(
    make_checkpoint: Make, squad_data: Make, task: str
) -> None:
    folder = squad_data()
    assert (folder / "train.json").is_file()
    _, data = read_data(folder, make_checkpoint(), task)
    if task != "questions":
        for split in ("train", "dev"):
            (folder / f"{split}.json").rename(folder / f"{split}-{task[-4:]}.json")
            (folder / f"{split}.json").write_text("of another task")
    _, again = read_data(folder, make_checkpoint(), task)
    assert again.train_groups.tolist() == data.train_groups.tolist()
