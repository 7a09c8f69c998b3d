"""The official TSV files, and what TensorFlow Datasets' own reader makes of them, are the same data.

The files are written here in the layouts of the release; the library's GLUE builder reads them, its
examples are stored as a prepared dataset, and both ways must give the same texts, labels and ids.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from multiberts.finetune.text.challenge_sets import evaluation_sources
from multiberts.finetune.text.glue import GLUE_TASKS
from multiberts.finetune.text.readers import DatasetReader, TableReader, read_examples
from multiberts.finetune.text.task import ENTAILMENT_LABELS, table_task
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.stored_datasets import official_examples, store

# Unbalanced quotes, other line separators, and no ASCII.
TEXTS = (
    'He said "no.', "It rained\u2028all day.", "“Yes” – naïve!", "5' tall", "a b", "\\n \\t", "“",
    '""',
)  # fmt: skip
PARSES = ("( a )", "( b )", "(ROOT a)", "(ROOT b)")
NLI = ("neutral", "entailment", "contradiction")
JUDGES = ("label1", "label2", "label3", "label4", "label5")
MNLI_COLUMNS = (
    *("index", "promptID", "pairID", "genre"),
    *("sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"),
    *("sentence1", "sentence2"),
)
STS_COLUMNS = ("index", "genre", "filename", "year", "old_index", "source1", "source2")


def table(*rows: tuple[object, ...]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def text(row: int) -> str:
    return TEXTS[row % len(TEXTS)]


def pairs(header: tuple[str, ...], labels: tuple[str, ...], count: int) -> str:
    rows = [
        (row, text(row), text(row + 3), *([labels[row % len(labels)]] if labels else []))
        for row in range(count)
    ]
    return table(header, *rows)


def in_pairs(header: tuple[str, ...], labels: tuple[str, ...]) -> dict[str, str]:
    with_label = (*header, "label")
    splits = {"train": (with_label, labels, 8), "dev": (with_label, labels[::-1], 3)}
    return {name: pairs(*given) for name, given in {**splits, "test": (header, (), 4)}.items()}


def single(count: int) -> str:
    return table(("index", "sentence"), *((row, text(row)) for row in range(count)))


def mnli(judges: tuple[str, ...], labelled: bool, count: int) -> str:
    header = (*MNLI_COLUMNS, *judges, *(["gold_label"] if labelled else []))
    rows = []
    for row in range(count):
        label = NLI[row % 3]
        values = (row, 100 + row, f"{row}n", "fiction", *PARSES, text(row), text(row + 1))
        rows.append((*values, *([label] * len(judges)), *([label] if labelled else [])))
    return table(header, *rows)


def sts(labelled: bool, count: int) -> str:
    header = (*STS_COLUMNS, "sentence1", "sentence2", *(["score"] if labelled else []))
    rows = []
    for row in range(count):
        values = (row, "main-news", "MSRvid", "2012test", f"{row:04}", "none", "none")
        score = [f"{row * 0.35:.3f}"] if labelled else []
        rows.append((*values, text(row), text(row + 1), *score))
    return table(header, *rows)


QQP_COLUMNS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
QQP_TRAIN = (
    table(QQP_COLUMNS, (900, 1, 2, "Why?", "How?", 0), (17, 3, 4, 'Is "this', "that?", 1))
    + "5\t6\t7\tA question that was cut\n"  # four columns
    + "\n"
    + "in two?\t0\n"  # two columns
    + table((33, 8, 9, "Who?", "Who is it?", 1))
)
ENTAILMENT = ("not_entailment", "entailment")
PAIR = ("index", "sentence1", "sentence2")
QNLI = ("index", "question", "sentence")

RELEASE = {
    "CoLA": {
        "train": table(*(("gj04", row % 2, "*", text(row)) for row in range(7))),
        "dev": table(*(("gj04", 1 - row % 2, "", text(row)) for row in range(4))).rstrip("\n"),
        "test": single(5),
    },
    "SST-2": {
        "train": table(("sentence", "label"), *((text(row), row % 2) for row in range(7))),
        "dev": table(("sentence", "label"), *((text(row), 1 - row % 2) for row in range(4))),
        "test": single(5),
    },
    "QQP": {
        "train": QQP_TRAIN,
        "dev": table(QQP_COLUMNS, (8, 1, 2, text(0), text(1), 1), (9, 1, 3, text(2), text(3), 0)),
        "test": table(("id", "question1", "question2"), *((r, text(r), text(5)) for r in range(3))),
    },
    "STS-B": {"train": sts(True, 9), "dev": sts(True, 5), "test": sts(False, 4)},
    "MNLI": {
        "train": mnli(("label1",), True, 9),
        "dev_matched": mnli(JUDGES, True, 5),
        "dev_mismatched": mnli(JUDGES, True, 4),
        "test_matched": mnli((), False, 3),
        "test_mismatched": mnli((), False, 2),
    },
    "QNLI": in_pairs(QNLI, ENTAILMENT),
    "RTE": in_pairs(PAIR, ENTAILMENT),
    "WNLI": in_pairs(PAIR, ("0", "1")),
}
# The library's names of the splits.
THERE = {
    "dev": "validation",
    "dev_matched": "validation_matched",
    "dev_mismatched": "validation_mismatched",
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    for task, splits in RELEASE.items():
        (folder / task).mkdir()
        for split, content in splits.items():
            (folder / task / f"{split}.tsv").write_bytes(content.encode())
    return folder


@pytest.fixture(scope="module")
def datasets_dir(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("datasets")
    for task, splits in RELEASE.items():
        name = f"glue/{GLUE_TASKS[task].dataset.name}"
        examples = {
            THERE.get(split, split): official_examples(
                name, str(release / task / f"{split}.tsv"), split.partition("_")[0]
            )
            for split in splits
        }
        store(data_dir, name, examples)
    return data_dir


def assert_same(ours, theirs) -> None:
    assert ours.example_ids == theirs.example_ids
    assert ours.first_texts == theirs.first_texts
    assert ours.second_texts == theirs.second_texts
    assert (ours.labels is None) == (theirs.labels is None)
    if ours.labels is not None:
        assert ours.labels.dtype == theirs.labels.dtype == np.float32
        np.testing.assert_array_equal(ours.labels, theirs.labels)


@pytest.mark.parametrize(
    ("task", "split"), [(task, split) for task, splits in RELEASE.items() for split in splits]
)
def test_both_ways_give_the_same_examples(
    release: Path, datasets_dir: Path, task: str, split: str
) -> None:
    description = GLUE_TASKS[task]
    file = release / task / f"{split}.tsv"
    # Our `dev` of MNLI is the matched one.
    ours = "dev" if split == description.files.dev_split else split
    reader = DatasetReader(f"glue/{description.dataset.name}", str(datasets_dir), description, ours)
    from_dataset = reader(reader.open().files, "any")
    from_file = TableReader(description, ours)((file,), "any")
    assert_same(from_file, from_dataset)
    assert (from_file.labels is None) == split.startswith("test")
    assert from_file.example_ids[0] == f"{task}/{ours}/0"
    assert all(Path(path).is_file() for path in reader.open().files)


def test_known_labels_and_quotes_are_read_as_they_stand(release: Path) -> None:
    mnli_dev = read_examples(release / "MNLI" / "dev_matched.tsv", GLUE_TASKS["MNLI"], "dev")
    # contradiction, entailment, neutral are 0, 1, 2.
    assert mnli_dev.labels is not None
    assert mnli_dev.labels.tolist() == [2, 1, 0, 2, 1]
    assert mnli_dev.first_texts[:2] == ['He said "no.', "It rained\u2028all day."]
    assert mnli_dev.second_texts is not None
    assert mnli_dev.second_texts[0] == "It rained\u2028all day."


def test_cut_rows_of_qqp_are_left_out_and_counted(release: Path) -> None:
    path = release / "QQP" / "train.tsv"
    examples = read_examples(path, GLUE_TASKS["QQP"], "train")
    assert examples.example_ids == ["QQP/train/0", "QQP/train/1", "QQP/train/4"]
    assert examples.remarks == (
        f"{path}: left out 2 rows with fewer columns than the header (line 4, 6)",
    )


def test_mrpc_from_its_original_files(tmp_path: Path) -> None:
    """GLUE cut the original train file in two; TensorFlow Datasets numbers the rows before the cut."""

    header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    rows = [(row % 2, 10 + row, 50 + row, text(row), text(row + 2)) for row in range(8)]
    dev = {2, 3, 6}
    tests = rows[:3]
    original = {
        "train": "\ufeff" + table(header, *rows),
        "test": "\ufeff" + table(header, *tests),
        "dev_ids": table(*((rows[row][1], rows[row][2]) for row in sorted(dev))),
    }
    files = {}
    for name, content in original.items():
        files[name] = tmp_path / f"original_{name}.txt"
        files[name].write_bytes(content.encode())
    official = {
        "train": "\ufeff" + table(header, *(r for n, r in enumerate(rows) if n not in dev)),
        "dev": "\ufeff" + table(header, *(r for n, r in enumerate(rows) if n in dev)),
        "test": table(("index", *header[1:]), *((n, *r[1:]) for n, r in enumerate(tests))),
    }
    examples = {
        THERE.get(split, split): [
            (example["idx"], example)
            for _, example in official_examples("glue/mrpc", None, split, files)
        ]
        for split in official
    }
    store(tmp_path, "glue/mrpc", examples)
    for split, content in official.items():
        file = tmp_path / f"{split}.tsv"
        file.write_bytes(content.encode())
        reader = DatasetReader("glue/mrpc", str(tmp_path), GLUE_TASKS["MRPC"], split)
        from_file = read_examples(file, GLUE_TASKS["MRPC"], split)
        assert_same(from_file, reader((), "any"))
        assert from_file.example_ids[-1] == f"MRPC/{split}/{len(from_file.example_ids) - 1}"


def test_the_diagnostic_set(tmp_path: Path) -> None:
    from multiberts.finetune.text.challenge_sets import AX

    file = tmp_path / "AX.tsv"
    file.write_text(pairs(PAIR, (), 6))
    store(tmp_path, "glue/ax", {"test": official_examples("glue/ax", str(file), "test")})
    reader = DatasetReader("glue/ax", str(tmp_path), AX, "test")
    from_file = read_examples(file, AX, "test")
    assert_same(from_file, reader((), "any"))
    assert from_file.labels is None
    assert from_file.example_ids[5] == "AX/test/5"
    files = {"ax": "tfds:glue/ax"}
    (source,) = evaluation_sources(GLUE_TASKS["MNLI"], files, str(tmp_path))
    assert_same(from_file, source.read())
    assert source.name == "ax"


def test_a_dataset_of_ones_own_needs_no_idx(tmp_path: Path) -> None:
    import tensorflow_datasets as tfds

    features = {name: tfds.features.Text() for name in ("sentence1", "sentence2")}
    features["label"] = tfds.features.ClassLabel(names=["wet", "dry"])
    rows = [
        {"sentence1": f"a{n}", "sentence2": f"b{n}", "label": ["wet", "dry"][n % 2]}
        for n in range(5)
    ]
    store(tmp_path, "weather", {"train": rows}, features)
    # The classes are named in another order than in the dataset.
    task = table_task("weather", ["dry", "wet"])
    examples = DatasetReader("weather", str(tmp_path), task, "train")((), "train")
    assert examples.first_texts == ["a0", "a1", "a2", "a3", "a4"]
    assert examples.labels is not None
    assert examples.labels.tolist() == [1, 0, 1, 0, 1]
    assert examples.example_ids[4] == "weather/train/4"


def test_what_does_not_fit_is_refused_in_one_line(datasets_dir: Path) -> None:
    for dataset, task, split, message in (
        ("glue/wnli", "RTE", "train", "is not the one of task RTE, expected glue/rte"),
        ("glue/rte", "pair", "train", "is not the one of task pair, expected another dataset"),
        ("glue/rte", "RTE", "dev_mismatched", "has no split validation_mismatched, only"),
        ("no_such", "RTE", "train", "cannot give no_such from"),
    ):
        description = GLUE_TASKS.get(task) or table_task(task, ENTAILMENT_LABELS)
        reader = DatasetReader(dataset, str(datasets_dir), description, split)
        with pytest.raises(UserError) as error:
            reader(reader.open().files, "train")
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("names", "label", "idx", "message"),
    [
        (["no", "yes"], [0, 1], [0, 1], "has the labels no, yes, expected entailment"),
        (["entailment", "not_entailment"], [0, -1], [0, 1], "row 1: found label -1, which means"),
        (["entailment", "not_entailment"], [-1, -1], [0, 1], "row 0: found label -1, which means"),
        (["entailment", "not_entailment"], [0, 1], [4, 4], "has idx 4 twice"),
    ],
)
def test_bad_datasets_are_refused(
    tmp_path: Path, names: list[str], label: list[int], idx: list[int], message: str
) -> None:
    import tensorflow_datasets as tfds

    features = {name: tfds.features.Text() for name in ("sentence1", "sentence2")}
    features |= {"label": tfds.features.ClassLabel(names=names), "idx": np.int32}
    rows = [
        {"sentence1": "a", "sentence2": "b", "label": label[n], "idx": idx[n]} for n in range(2)
    ]
    store(tmp_path, "bad", {"train": rows}, features)
    with pytest.raises(UserError, match=message):
        DatasetReader("bad", str(tmp_path), GLUE_TASKS["RTE"], "train")((), "train")
