"""SNLI, MultiNLI, the stress tests, TwitterPPDB and PAWS, in the layouts they are given out in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from multiberts.finetune.text.challenge_sets import evaluation_sources
from multiberts.finetune.text.glue import GLUE_TASKS
from multiberts.finetune.text.task import TextExamples, TextTask, table_task
from multiberts.runs.errors import UserError

PAIRS = (
    ("neutral", 'A man "sings.', "He is young."),
    ("-", "A dog.", "A cat."),
    ("entailment", "Two boys run.", "They run."),
    ("contradiction", "It is day.", "It is night."),
)
TSV_COLUMNS = (
    *("gold_label", "sentence1_binary_parse", "sentence2_binary_parse"),
    *("sentence1_parse", "sentence2_parse", "sentence1", "sentence2", "captionID", "pairID"),
    *(f"label{number}" for number in range(1, 6)),
)


def as_tsv(tmp_path: Path) -> Path:
    rows = [TSV_COLUMNS]
    for label, first, second in PAIRS:
        parses = ("( a )", "( b )", "(ROOT a)", "(ROOT b)")
        rows.append((label, *parses, first, second, "1.jpg#0", "1.jpg#0r1n", label, *[""] * 4))
    path = tmp_path / "snli_1.0_test.txt"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def as_jsonl(tmp_path: Path) -> Path:
    path = tmp_path / "snli_1.0_test.jsonl"
    names = ("gold_label", "sentence1", "sentence2", "pairID", "annotator_labels")
    entries = [dict(zip(names, (*pair, "1", [pair[0]]), strict=True)) for pair in PAIRS]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def read(task: str, name: str, path: Path) -> TextExamples:
    (source,) = evaluation_sources(GLUE_TASKS[task], {name: str(path)}, None)
    return source.read()


@pytest.mark.parametrize("layout", [as_tsv, as_jsonl])
def test_both_layouts_give_the_same_pairs(tmp_path: Path, layout) -> None:
    path = layout(tmp_path)
    examples = read("MNLI", "snli_test", path)
    # The pair without a gold label is left out and keeps its number.
    assert examples.example_ids == ["snli_test/0", "snli_test/2", "snli_test/3"]
    assert examples.first_texts == ['A man "sings.', "Two boys run.", "It is day."]
    assert examples.second_texts == ["He is young.", "They run.", "It is night."]
    assert examples.labels is not None
    assert examples.labels.tolist() == [2, 1, 0]
    assert examples.remarks == (f"{path}: left out 1 of 4 pairs, which have no gold label",)


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        # 0 entailment, 1 not_entailment: the rest is one class.
        (GLUE_TASKS["RTE"], [1, 0, 1]),
        (table_task("own", ["entailment", "contradiction", "neutral"]), [2, 0, 1]),
    ],
)
def test_labels_of_inference_are_the_models_own(
    tmp_path: Path, task: TextTask, labels: list[int]
) -> None:
    (source,) = evaluation_sources(task, {"snli": str(as_jsonl(tmp_path))}, None)
    assert source.read().labels.tolist() == labels


def test_a_folder_of_stress_tests_is_one_set_a_file(tmp_path: Path) -> None:
    for name in ("Antonym/multinli_0.9_antonym_matched", "Negation/multinli_0.9_negation_matched"):
        path = tmp_path / "StressTests" / f"{name}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"gold_label": "neutral", "sentence1": name, "sentence2": "b"}))
        path.with_suffix(".txt").write_text("the same again")
    files = {"stress": str(tmp_path / "StressTests")}
    sources = evaluation_sources(GLUE_TASKS["MNLI"], files, None)
    assert [source.name for source in sources] == [
        "stress_antonym_matched",
        "stress_negation_matched",
    ]
    assert sources[1].read().example_ids == ["stress_negation_matched/0"]
    assert sources[1].read().first_texts == ["Negation/multinli_0.9_negation_matched"]


TWEETS = "".join(
    f"one {votes} \ttwo {votes}\t({votes},{space}6)\thttps://t.co/x\n"
    for votes, space in zip((6, 3, 2, 4, 0, 3, 5), ("", " ", "", " ", "", "", ""), strict=True)
)


def test_tweets_are_paraphrases_from_four_votes_on(tmp_path: Path) -> None:
    """Lan et al. 2017: four of six and more, two and fewer; three are dropped."""
    path = tmp_path / "Twitter_URL_Corpus_test.txt"
    path.write_text(TWEETS)
    examples = read("QQP", "twitter_ppdb", path)
    assert examples.labels is not None
    assert dict(zip(examples.example_ids, examples.labels.tolist(), strict=True)) == {
        "twitter_ppdb/0": 1,
        "twitter_ppdb/2": 0,
        "twitter_ppdb/3": 1,
        "twitter_ppdb/4": 0,
        "twitter_ppdb/6": 1,
    }
    assert examples.first_texts[0] == "one 6 "
    assert examples.remarks == (f"{path}: left out 2 of 7 pairs, judged 3 against 3",)


def test_paws(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("id\tsentence1\tsentence2\tlabel\n4\ta b\tb a\t0\n9\tc\tc\t1\n")
    examples = read("MRPC", "paws_wiki", path)
    assert examples.example_ids == ["paws_wiki/4", "paws_wiki/9"]
    assert examples.labels is not None
    assert examples.labels.tolist() == [0, 1]


def test_other_names_are_files_in_the_tasks_own_layout(tmp_path: Path) -> None:
    path = tmp_path / "mm.tsv"
    path.write_text("index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n")
    assert read("MNLI", "dev_mismatched", path).example_ids == ["MNLI/dev_mismatched/0"]
    path.write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    for name in ("test_matched", "ax"):
        assert read("MNLI", name, path).labels is None
    assert read("MNLI", "ax", path).example_ids == ["AX/test/0"]
    with pytest.raises(UserError, match="lacking gold_label"):
        read("MNLI", "dev_mismatched", path)
    with pytest.raises(UserError, match="ax is for models with the labels"):
        read("RTE", "ax", path)


@pytest.mark.parametrize(
    ("task", "name", "file", "content", "message"),
    [
        ("MNLI", "snli", "a.jsonl", "{\n", "line 1 is not whole JSON"),
        ("MNLI", "snli", "a.jsonl", "[1]\n", "row 1: expected an object with gold_label"),
        ("MNLI", "snli", "a.jsonl", '{"gold_label": "maybe", "sentence1": "a", "sentence2": "b"}',
         "line 1: found gold_label 'maybe', expected contradiction, entailment, neutral or -"),
        ("MNLI", "stress_x", "a.jsonl", '{"gold_label": "-", "sentence1": "a", "sentence2": "b"}',
         "left out 1 of 1 pairs, which have no gold label; give a file with others"),
        ("MNLI", "snli", "a.txt", "gold_label\tsentence1\n", "line 1: found the columns gold_label"),
        ("MNLI", "snli", "a.txt", "gold_label\tsentence1\tsentence2\n-\ta\n", "line 2: found 2 col"),
        ("QQP", "twitter_ppdb", "a.txt", "a\tb\t(1, 6)\n", "line 1: found 3 columns, expected 4"),
        ("QQP", "twitter_ppdb", "a.txt", "a\tb\t(7, 6)\tu\n", "found judgement '(7,6)', expected (0,6)"),
        ("QQP", "twitter_ppdb", "a.txt", "a\tb\t(1, 5)\tu\n", "found judgement '(1,5)'"),
        ("QQP", "twitter_ppdb", "a.txt", "a\tb\t(3, 6)\tu\n", "left out 1 of 1 pairs, judged 3"),
        ("RTE", "twitter_ppdb", "a.txt", TWEETS, "for models of paraphrases, and task RTE is"),
        ("MRPC", "paws", "a.tsv", "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t2\n", "label '2'"),
        ("MRPC", "paws", "a.tsv", "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t1\n1\ta\tb\t1\n",
         "line 3: id '1' is in line 2 already"),
    ],
)  # fmt: skip
def test_bad_sets_are_refused_in_one_line(
    tmp_path: Path, task: str, name: str, file: str, content: str, message: str
) -> None:
    path = tmp_path / file
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read(task, name, path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_datasets_for_file_readers_are_refused(tmp_path: Path) -> None:
    mnli = GLUE_TASKS["MNLI"]
    for files, message in (
        ({"hans": str(tmp_path / "none")}, "evaluation set hans, does not exist"),
        ({"snli": "tfds:snli"}, "is read from a file"),
        ({"stress": str(tmp_path)}, "has no .jsonl files"),
        ({"extra": "tfds:glue/mnli"}, "names no split; write tfds:glue/mnli:validation"),
    ):
        with pytest.raises(UserError, match=message):
            evaluation_sources(mnli, files, None)
