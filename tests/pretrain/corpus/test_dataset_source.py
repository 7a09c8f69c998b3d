"""TensorFlow Datasets, built here by the library's own builder, are read as text."""

import json

import numpy as np
import pytest

from multiberts.pretrain.corpus.dataset_source import (
    dataset_fingerprint,
    dataset_size,
    read_dataset,
)
from multiberts.pretrain.corpus.documents import Piece
from multiberts.pretrain.corpus.preparation import prepare
from multiberts.runs.errors import UserError

TEXTS = [f"Article {number}. It has é two sentences.\nAnd a line." for number in range(23)]


@pytest.fixture(scope="module")
def datasets_dir(tmp_path_factory):
    import tensorflow_datasets as tfds

    directory = tmp_path_factory.mktemp("datasets")
    text = tfds.features.Text()
    tfds.dataset_builders.store_as_tfds_dataset(
        name="little_wikipedia",
        version="1.0.0",
        data_dir=str(directory),
        features=tfds.features.FeaturesDict(
            {"title": text, "text": text, "page": {"body": text}, "views": np.int64}
        ),
        split_datasets={
            "train": [
                (n, {"title": str(n), "text": text, "page": {"body": text.upper()}, "views": n})
                for n, text in enumerate(TEXTS)
            ],
            "test": [(0, {"title": "x", "text": b"bad \xff", "page": {"body": ""}, "views": 0})],
        },
        disable_shuffling=True,
    )
    return str(directory)


def texts(source, datasets_dir, field="text", begin=0, end=None):
    documents = read_dataset(Piece(source, "tfds", begin, end), field, datasets_dir)
    return ["\n".join(lines) for lines in documents]


def test_examples_are_documents_in_the_order_of_the_files(datasets_dir):
    """First here to import TensorFlow Datasets: its seconds are those."""
    assert dataset_size("little_wikipedia", datasets_dir)[0] == 23
    assert texts("little_wikipedia", datasets_dir) == TEXTS
    assert texts("little_wikipedia:train", datasets_dir) == TEXTS
    assert texts("little_wikipedia", datasets_dir, "page/body") == [t.upper() for t in TEXTS]
    pieces = [(0, 5), (5, 6), (6, None)]
    found = [texts("little_wikipedia", datasets_dir, begin=b, end=e) for b, e in pieces]
    assert [text for piece in found for text in piece] == TEXTS


def test_what_is_not_there_is_refused_in_one_line(datasets_dir):
    for source, field, message in (
        ("little_wikipedia", "body", "has no feature 'body', only"),
        ("little_wikipedia", "views", "feature 'views' holds"),
        ("little_wikipedia:dev", "text", "has no split 'dev', only"),
        ("little_wikipedia:test", "text", "example 0: byte 0xff at offset 4 of 'text' is not UTF"),
        ("no_such_dataset", "text", "cannot give no_such_dataset"),
    ):
        with pytest.raises(UserError) as error:
            texts(source, datasets_dir, field)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_a_dataset_gives_the_same_bytes_as_its_text(datasets_dir, tmp_path, monkeypatch):
    """The only corpus from TensorFlow Datasets, which takes long to open."""
    lines = tmp_path / "text.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    common = {"vocabulary_size": 100, "sequence_length": 16, "num_workers": 1}
    prepare(run_dir=str(tmp_path / "json"), sources=[str(lines)], source_format="jsonl", **common)
    monkeypatch.setattr("multiberts.pretrain.corpus.shards.SHARD_BYTES", 900)
    named = {"sources": ["little_wikipedia"], "source_format": "tfds", "datasets_dir": datasets_dir}
    prepare(run_dir=str(tmp_path / "tfds"), **named, **common)
    for name in ("vocab.txt", "tokens.npy", "document_offsets.npy", "instances.npy"):
        one, other = (tmp_path / kind / name for kind in ("json", "tfds"))
        assert one.read_bytes() == other.read_bytes(), name
    facts = json.loads((tmp_path / "tfds" / "corpus.json").read_text())
    assert facts["sources"][0]["sha256"] == dataset_fingerprint("little_wikipedia", datasets_dir)
    assert facts["sources"][0]["sha256"].startswith("little_wikipedia/1.0.0:train@")
