from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.squad.questions import (
    SquadSource,
    prepared,
    read_squad,
    read_squad_dataset,
)
from multiberts.runs.errors import UserError
from multiberts.runs.identity import opened
from multiberts.tests.finetune.stored_datasets import official_examples, store


def entry(example_id: str, question: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": example_id, "question": question, "answers": listed, **more}


def squad(*paragraphs: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    listed = [{"context": context, "qas": entries} for context, entries in paragraphs]
    return {"version": "1.1", "data": [{"title": "Town", "paragraphs": listed}]}


CONTENT = squad(
    (
        "Ann met Bob in Oslo.",
        [
            entry("q3", "Who met Bob?", ("Ann", 0), ("ann", 0)),
            entry("q1", "Where?", ("Oslo", 15), is_impossible=False),
        ],
    ),
    ("It rained.", [entry("q2", "When?", is_impossible=True)]),
)


CONTENT_OF_VERSION_1 = (
    "Das Café öffnet um 9 — „täglich“.",
    [
        entry("q3", "Wann?", ("um 9", 16), ("9", 19)),
        entry("q1", "Was öffnet?", ("Café", 4)),
        entry("q2", "Wie oft?", ("täglich", 24)),
    ],
)


def written(path: Path, content: Any) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["dev.json", "dev.json.gz"])
def test_questions_are_read_in_the_order_of_their_ids(tmp_path: Path, name: str) -> None:
    examples = read_squad(written(tmp_path / name, CONTENT), with_unanswerable=True)
    assert examples.example_ids == ["q1", "q2", "q3"]
    assert examples.questions == ["Where?", "When?", "Who met Bob?"]
    assert [examples.contexts[c] for c in examples.context_of] == [
        "Ann met Bob in Oslo.",
        "It rained.",
        "Ann met Bob in Oslo.",
    ]
    assert len(examples.contexts) == 2
    assert examples.answers == [("Oslo",), (), ("Ann", "ann")]
    assert examples.answer_starts == [(15,), (), (0, 0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"holds no question"),
        ({"data": [{"paragraphs": {}}]}, r"data\[0\]: found a dict under 'paragraphs'"),
        (squad(("a", [{"id": "1", "question": "b"}])), r"qas\[0\]: found nothing under 'answers'"),
        (squad(("a", [entry("1", "b", ("a", 0), is_impossible=True)])), r"is_impossible is True but"),
        (squad(("a", [entry("1", "b", is_impossible=False)])), r"is_impossible is False but"),
        (squad(("a", [entry("1", "b", ("a", 0)), entry("1", "c", ("a", 0))])), r"'1' appears twice"),
        (squad(("a", [])), r"holds no question"),
    ],
)  # fmt: skip
def test_another_layout_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = written(tmp_path / "dev.json", content)
    with pytest.raises(UserError, match=message) as caught:
        read_squad(path, with_unanswerable=True)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


FLAT = [
    {
        "id": name, "title": "Town", "context": context, "question": question,
        "answers": {"text": [*texts], "answer_start": [*starts]},
    }
    for name, context, question, texts, starts in [
        ("q3", "Ann met Bob in Oslo.", "Who met Bob?", ("Ann", "ann"), (0, 0)),
        ("q1", "Ann met Bob in Oslo.", "Where?", ("Oslo",), (15,)),
        ("q2", "It rained.", "When?", (), ()),
    ]
]  # fmt: skip


@pytest.mark.parametrize("form", ["lines", "array", "data", "parquet", "folder", "answers"])
def test_a_row_for_each_question_as_datasets_has_them_is_the_same(
    tmp_path: Path, form: str
) -> None:
    """The rows of `rajpurkar/squad`; run_qa takes them under "data"."""
    expected = read_squad(written(tmp_path / "dev.json", CONTENT), with_unanswerable=True)
    path = tmp_path / f"flat.{'parquet' if form == 'parquet' else 'json'}"
    if form == "lines":
        rows = [{**row, "is_impossible": None} for row in FLAT]  # as where others were added
        written(path, "".join(json.dumps(row) + "\n" for row in rows))
    elif form == "parquet":
        pd.DataFrame(FLAT).to_parquet(path)
    elif form == "folder":
        datasets = pytest.importorskip("datasets")
        path = tmp_path / "saved"
        datasets.Dataset.from_list(FLAT).save_to_disk(str(path))
    elif form == "answers":
        rows = [{**row, "answers": pd.DataFrame(row["answers"]).to_dict("records")} for row in FLAT]
        written(path, rows)
    else:
        written(path, FLAT if form == "array" else {"version": "0.1.0", "data": FLAT})
    read = read_squad(path, with_unanswerable=True)
    for column in ("example_ids", "questions", "titles", "contexts", "answers", "answer_starts"):
        assert getattr(read, column) == getattr(expected, column), column
    assert read.context_of.tolist() == expected.context_of.tolist()
    assert SquadSource("dev", path).read(with_unanswerable=True).answers == expected.answers


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (None, "row 2: found nothing under 'answers'"),
        ("Ann", "row 2: found a str under 'answers', expected a list"),
        ({"text": ["Ann"]}, "row 2.answers: found nothing under 'answer_start' beside text, expected a list"),
        ({"text": ["Ann"], "answer_start": []}, r"row 2.answers\[0\]: found nothing under 'answer_start'"),
    ],
)  # fmt: skip
def test_rows_whose_answers_do_not_fit_are_refused(
    tmp_path: Path, answers: Any, message: str
) -> None:
    path = written(tmp_path / "a.json", [FLAT[0], {**FLAT[1], "answers": answers}])
    with pytest.raises(UserError, match=message):
        read_squad(path, with_unanswerable=True)


def test_why_questions_are_left_out_of_training(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the start is unknown, files have 0: the answer is in the paragraph all the same."""
    rows = [
        {**FLAT[0], "id": name, "answers": {"text": [text], "answer_start": [0]}}
        for name, text in (("q1", "Ann"), ("q2", "Bob"), ("q3", "Oslo."), ("q4", "Rome"))
    ]
    path, vocabulary = written(tmp_path / "train.json", rows), shared_data / "bert" / "vocab.txt"
    options = {
        "sequence_length": 40, "stride": 20, "max_query_length": 8, "with_unanswerable": False,
    }  # fmt: skip
    source = SquadSource("train", path)
    found = prepared((opened(path),), source, Vocabulary.open(vocabulary), training=True, **options)
    assert found.windows.question.tolist() == [0]
    said = capsys.readouterr().err
    assert (
        f"{path}: 2 of 4 questions are left out of training, as answer_start does not point at"
        in said
    )
    assert (
        f"{path}: 1 of 4 questions are left out of training, as their paragraphs do not contain"
        in said
    )


def test_a_question_without_an_answer_is_refused_in_version_1(tmp_path: Path) -> None:
    path = written(tmp_path / "dev.json", CONTENT)
    with pytest.raises(UserError, match=r"question 'q2' has no answer.*use task squad-v2.0"):
        read_squad(path, with_unanswerable=False)


@pytest.mark.parametrize(
    ("name", "unanswerable", "counts"),
    [
        # Questions, those without an answer, paragraphs: as the data's own pages count them.
        ("dev-v1.1.json.gz", False, (10570, 0, 2067)),
        ("dev-v2.0.no_plausible.json.gz", True, (11873, 5945, 1204)),
    ],
)
def test_official_counts(
    shared_data: Path, name: str, unanswerable: bool, counts: tuple[int, int, int]
) -> None:
    examples = read_squad(shared_data / "squad" / name, with_unanswerable=unanswerable)
    assert (len(examples), examples.answers.count(()), len(examples.contexts)) == counts


def test_references_stand_where_they_are_said_to(shared_data: Path) -> None:
    examples = read_squad(shared_data / "squad" / "dev-v1.1.json.gz", with_unanswerable=False)
    for row, texts in enumerate(examples.answers):
        context = examples.contexts[examples.context_of[row]]
        for text, start in zip(texts, examples.answer_starts[row], strict=True):
            assert context[start : start + len(text)] == text


@pytest.mark.parametrize("version", ["v1.1", "v2.0"])
def test_a_tensorflow_dataset_gives_the_same(tmp_path: Path, version: str) -> None:
    """The library's own reading of the file, stored in the order in which it stores examples."""
    pytest.importorskip("tensorflow_datasets")
    from multiberts.finetune.data_files import open_split

    content = copy.deepcopy(CONTENT) if version == "v2.0" else squad(CONTENT_OF_VERSION_1)
    for article in content["data"] if version == "v2.0" else []:
        for paragraph in article["paragraphs"]:
            for one in paragraph["qas"]:
                one["is_impossible"] = not one["answers"]
    file = written(tmp_path / "dev.json", content)
    expected = read_squad(file, with_unanswerable=version == "v2.0")
    name = f"squad/{version}"
    stored = official_examples(name, str(file))
    store(tmp_path / "datasets", name, {"train": stored[:1], "validation": stored})
    split = open_split(name, ("validation",), str(tmp_path / "datasets"))
    read = read_squad_dataset(split, with_unanswerable=version == "v2.0")
    for column in ("example_ids", "questions", "titles", "contexts", "answers", "answer_starts"):
        assert getattr(read, column) == getattr(expected, column), column
    np.testing.assert_array_equal(read.context_of, expected.context_of)
    assert len(read) == 3
