from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.finetune.squad.questions import read_squad, read_squad_dataset
from multiberts.runs.errors import UserError


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
        ("{", r"is not whole JSON"),
        ([], r"holds \[\], expected fields by name"),
        ({"data": [{"paragraphs": {}}]}, r"data\[0\]: found a dict under 'paragraphs'"),
        (squad(("a", [{"id": "1", "question": "b"}])), r"qas\[0\]: found nothing under 'answers'"),
        (
            squad(("a", [entry("1", "b", ("a", 0), is_impossible=True)])),
            r"is_impossible is True but",
        ),
        (squad(("a", [entry("1", "b", is_impossible=False)])), r"is_impossible is False but"),
        (
            squad(("a", [entry("1", "b", ("a", 0)), entry("1", "c", ("a", 0))])),
            r"'1' appears twice",
        ),
        (squad(("a", [])), r"holds no question"),
    ],
)
def test_another_layout_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = written(tmp_path / "dev.json", content)
    with pytest.raises(UserError, match=message) as caught:
        read_squad(path, with_unanswerable=True)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


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
    tfds = pytest.importorskip("tensorflow_datasets")
    from multiberts.finetune.data_files import open_split

    content = copy.deepcopy(CONTENT) if version == "v2.0" else squad(CONTENT_OF_VERSION_1)
    for article in content["data"] if version == "v2.0" else []:
        for paragraph in article["paragraphs"]:
            for one in paragraph["qas"]:
                one["is_impossible"] = not one["answers"]
    file = written(tmp_path / "dev.json", content)
    expected = read_squad(file, with_unanswerable=version == "v2.0")
    name = f"squad/{version}"
    builder = tfds.builder(name, data_dir=str(tmp_path / "none"), try_gcs=False)
    stored = list(builder._generate_examples(str(file)))
    tfds.dataset_builders.store_as_tfds_dataset(
        name="squad",
        config=version,
        version=str(builder.version),
        data_dir=str(tmp_path / "datasets"),
        features=builder.info.features,
        split_datasets={"train": stored[:1], "validation": stored},
    )
    split = open_split(name, ("validation",), str(tmp_path / "datasets"))
    read = read_squad_dataset(split, with_unanswerable=version == "v2.0")
    for column in ("example_ids", "questions", "titles", "contexts", "answers", "answer_starts"):
        assert getattr(read, column) == getattr(expected, column), column
    np.testing.assert_array_equal(read.context_of, expected.context_of)
    assert len(read) == 3
