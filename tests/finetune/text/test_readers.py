from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts.finetune.data_files import split_file
from multiberts.finetune.text.glue import GLUE_TASKS
from multiberts.finetune.text.new_texts import NewTextReader
from multiberts.finetune.text.readers import read_examples
from multiberts.finetune.text.task import table_task
from multiberts.runs.errors import UserError

STS_B_COLUMNS = (
    *("index", "genre", "filename", "year", "old_index", "source1", "source2"),
    *("sentence1", "sentence2", "score"),
)
QQP_COLUMNS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
PAIR_HEADER = "index\tsentence1\tsentence2\tlabel\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "train.tsv"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("RTE", PAIR_HEADER + "0\ta\tentailment\n", "line 2: found 3 columns, expected 4"),
        # Cut rows are left out of QQP; longer ones are not.
        ("QQP", "\t".join(QQP_COLUMNS) + "\n" + "\t".join("012ab0x") + "\n",
         "line 2: found 7 columns, expected 6"),
        ("RTE", PAIR_HEADER + "0\ta\tb\tyes\n", "line 2: found label 'yes', expected one of entail"),
        ("RTE", PAIR_HEADER + "0\ta\tb\tentailment\n0\tc\td\tentailment\n",
         "line 3: index '0' is in line 2 already"),
        ("RTE", "a\tb\tc\n0\ta\tb\n", "line 1: found the columns a, b, c, expected sentence1"),
        ("RTE", PAIR_HEADER, "has a header and no rows"),
        ("SST-2", "sentence\tlabel\n\nfine\t1\n", "line 2: found 1 column, expected 2"),
        ("CoLA", "sentence\tlabel\n", "has a header and no rows"),
        ("CoLA", "They left.\t1\n", "line 1: found 2 columns, expected 4"),
        ("MNLI", "premise,hypothesis,label\n".replace(",", "\t") + "a\tb\t2\n",
         "line 2: found the class number 2 under"),
        ("STS-B", "\t".join(STS_B_COLUMNS) + "\n" + "\t".join("0gfyoabst") + "\tnan\n",
         "line 2: found score 'nan', expected a number"),
        # Files of test splits number their rows.
        ("CoLA/test", "gj04\t1\t\tThey left.\n", "expected sentence (lacking sentence)"),
        ("SST-2/test", "index\tsentence\n1\tfine\n", "line 2: found index '1', expected 0"),
        ("QQP/test", "id\tquestion1\tquestion2\n0\ta\tb\n5\ta\tb\n", "line 3: found id '5', expected 1"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_with_their_line(
    tmp_path: Path, task: str, text: str, message: str
) -> None:
    path, (name, _, split) = written(tmp_path, text), task.partition("/")
    with pytest.raises(UserError) as caught:
        read_examples(path, GLUE_TASKS[name], split or "train")
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_own_labels_make_a_pair_task() -> None:
    task = table_task("weather", ["wet", "dry", "mixed"])
    assert task.labels == ("wet", "dry", "mixed")
    assert task.num_outputs == 3
    assert task.text_columns == GLUE_TASKS["RTE"].text_columns
    assert task.files == GLUE_TASKS["RTE"].files
    with pytest.raises(UserError, match="two or more"):
        table_task("weather", ["wet", "wet"])


# Classes and their numbers as the card of `nyu-mll/glue` has them; columns as there and in run_glue.
HUB = {
    "CoLA": (["sentence"], ["unacceptable", "acceptable"]),
    "SST-2": (["sentence"], ["negative", "positive"]),
    "MRPC": (["sentence1", "sentence2"], ["not_equivalent", "equivalent"]),
    "QQP": (["question1", "question2"], ["not_duplicate", "duplicate"]),
    "WNLI": (["sentence1", "sentence2"], ["not_entailment", "entailment"]),
    "RTE": (["sentence1", "sentence2"], ["entailment", "not_entailment"]),
    "QNLI": (["question", "sentence"], ["entailment", "not_entailment"]),
    "MNLI": (["premise", "hypothesis"], ["entailment", "neutral", "contradiction"]),
}


@pytest.mark.parametrize("name", HUB)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
def test_files_of_the_hub_are_the_task_whether_classes_are_numbers_or_names(
    tmp_path: Path, name: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = GLUE_TASKS[name]
    columns, classes = HUB[name]
    # The classes of the original code, in its order; 0 and 1 are names in the releases of the others.
    expected = [
        task.labels.index(each) if each in task.labels else number
        for number, each in enumerate(classes)
    ]
    frame = pd.DataFrame(
        {column: [f"{column} {row}" for row in range(len(classes))] for column in columns}
    )
    for labels in (range(len(classes)), classes):
        path = tmp_path / f"train{suffix}"
        frame["label"], frame["idx"] = labels, range(7, 7 + len(frame))
        if suffix == ".parquet":
            frame.to_parquet(path)
        elif suffix.startswith(".json"):
            frame.to_json(path, orient="records", lines=suffix == ".jsonl")
        else:
            frame.to_csv(path, index=False, sep="," if suffix == ".csv" else "\t")
        examples = read_examples(path, task, "train")
        assert examples.labels.tolist() == expected
        assert examples.first_texts == frame[columns[0]].tolist()
        numbers = range(len(frame)) if name == "MRPC" else frame["idx"]
        assert examples.example_ids == [f"{name}/train/{number}" for number in numbers]
    if not task.labels[0].isdigit():
        assert f"read as there: 0 {classes[0]}, 1 {classes[1]}" in capsys.readouterr().err


def test_new_pairs_for_a_model_of_rte_may_be_the_hubs(tmp_path: Path) -> None:
    path = tmp_path / "validation.jsonl"
    path.write_text('{"sentence1": "a", "sentence2": "b", "label": 1, "idx": 7}\n')
    read = NewTextReader(GLUE_TASKS["RTE"], (), None)((path,), "new")
    assert (read.second_texts, read.labels.tolist()) == (["b"], [1.0])


def test_run_glues_pairs_need_no_number_and_other_names_of_the_texts(tmp_path: Path) -> None:
    path = written(tmp_path, "sentence1\tsentence2\tlabel\na\tb\tneutral\nc\td\tcontradiction\n")
    examples = read_examples(path, GLUE_TASKS["MNLI"], "train")
    assert (examples.first_texts, examples.labels.tolist()) == (["a", "c"], [2.0, 0.0])
    path = written(tmp_path, "sentence1\tsentence2\tlabel\na\tb\t3.8\n")
    assert read_examples(path, GLUE_TASKS["STS-B"], "train").labels.tolist() == [np.float32(3.8)]
    frame = pd.DataFrame(
        {"index": [4, 5], "sentence1": "a", "sentence2": "b", "label": "entailment"}
    )
    frame.to_parquet(tmp_path / "train.parquet", index=False)
    assert read_examples(tmp_path / "train.parquet", GLUE_TASKS["RTE"], "train").labels.sum() == 0
    path = written(tmp_path, "sentence1\tsentence2\tlabel\tidx\na\tb\t-1\t0\n")
    assert read_examples(path, GLUE_TASKS["MRPC"], "test").labels is None


def test_gzip_stands_in_for_the_plain_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no table named dev or validation"):
        split_file(tmp_path, "dev")
    with gzip.open(tmp_path / "dev.tsv.gz", "wt") as handle:
        handle.write("sentence\tlabel\nfine\t1\n")
    path = split_file(tmp_path, "dev")
    assert read_examples(path, GLUE_TASKS["SST-2"], "dev").first_texts == ["fine"]


@pytest.mark.parametrize(
    ("task", "counts"),
    [
        ("SST-2", {"train": 67349, "dev": 872}),
        ("CoLA", {"train": 8551, "dev": 1043}),
        ("RTE", {"train": 2490, "dev": 277}),
        ("MRPC", {"train": 3668, "dev": 408}),
        ("STS-B", {"train": 5749, "dev": 1500}),
        ("WNLI", {"train": 635, "dev": 71}),
        ("MNLI", {"dev_matched": 9815}),
        ("QNLI", {"dev": 5463}),
        ("QQP", {"train_subset": 23497}),
    ],
)
def test_official_files_have_the_published_sizes(
    shared_data: Path, task: str, counts: dict[str, int]
) -> None:
    """Of QQP, a part is kept."""
    for split, count in counts.items():
        path = split_file(shared_data / "glue" / task, split)
        examples = read_examples(path, GLUE_TASKS[task], split.partition("_")[0])
        assert len(examples.labels) == len(set(examples.example_ids)) == count
        assert examples.remarks == ()


def test_a_test_file_may_have_labels_after_all(tmp_path: Path) -> None:
    path = written(tmp_path, PAIR_HEADER + "7\ta\tb\tnot_entailment\n")
    labels = read_examples(path, GLUE_TASKS["RTE"], "test").labels
    assert labels is not None
    assert labels.tolist() == [1]
    # What is not a test split must have them.
    path = written(tmp_path, "index\tsentence1\tsentence2\n0\ta\tb\n")
    assert read_examples(path, GLUE_TASKS["RTE"], "test").labels is None
    with pytest.raises(UserError, match="lacking label"):
        read_examples(path, GLUE_TASKS["RTE"], "dev")


def test_a_part_or_another_order_of_the_hubs_rows_keeps_their_numbers(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {"sentence1": ["c", "a", "b"], "sentence2": "x", "label": [1, 0, 1], "idx": [7, 0, 4]}
    )
    rows.to_csv(tmp_path / "dev.csv", index=False)
    examples = read_examples(tmp_path / "dev.csv", GLUE_TASKS["RTE"], "dev")
    assert examples.example_ids == ["RTE/dev/7", "RTE/dev/0", "RTE/dev/4"]
    rows.drop(columns="label").to_csv(tmp_path / "test.csv", index=False)
    unlabelled = read_examples(tmp_path / "test.csv", GLUE_TASKS["RTE"], "test")
    assert unlabelled.example_ids == ["RTE/test/7", "RTE/test/0", "RTE/test/4"]
    # MRPC's idx counts train and dev together, so the rank numbers a row.
    with pytest.raises(UserError, match="line 3: found idx 0 after 7, .* sort them by it"):
        read_examples(tmp_path / "dev.csv", GLUE_TASKS["MRPC"], "dev")
    rows.sort_values("idx").to_csv(tmp_path / "dev.csv", index=False)
    ranked = read_examples(tmp_path / "dev.csv", GLUE_TASKS["MRPC"], "dev")
    assert (ranked.example_ids, ranked.first_texts) == (
        ["MRPC/dev/0", "MRPC/dev/1", "MRPC/dev/2"],
        ["a", "b", "c"],
    )
