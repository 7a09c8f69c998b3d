"""Records written here are read by a plain parse, and records read here are trained on as they are."""

import gzip
import json
import re

import numpy as np
import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS, Tokenizer
from multiberts.pretrain.batches.corpus_batches import open_batches
from multiberts.pretrain.batches.masking import Masking, pretraining_batch
from multiberts.pretrain.corpus.description import check_corpus
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.preparation import prepare
from multiberts.pretrain.corpus.token_store import TokenStore
from multiberts.pretrain.inspection.corpus_summary import describe
from multiberts.pretrain.inspection.original_records import export_records, import_records
from multiberts.runs.errors import UserError

LENGTH, PREDICTIONS = 32, 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("original")
    draws = np.random.default_rng(0)
    words = ["one", "two", "three", "##s", "ing", "."]
    lines = []
    for _ in range(40):
        lines += [
            " ".join(draws.choice(["one", "twos", "threes", "ing", "."], 8)) for _ in range(12)
        ]
        lines.append("")
    (directory / "text.txt").write_text("\n".join(lines))
    (directory / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]))
    prepare(
        run_dir=str(directory / "corpus"),
        sources=[str(directory / "text.txt")],
        source_format="sentences",
        vocabulary=str(directory / "vocab.txt"),
        sequence_length=LENGTH,
        dupe_factor=2,
        instance_seed=4,
    )
    export_records(
        run_dir=str(directory / "records"),
        corpus=str(directory / "corpus"),
        num_files=3,
        max_predictions_per_sequence=PREDICTIONS,
    )
    import_records(
        run_dir=str(directory / "imported"),
        sources=[str(directory / "records" / "*.tfrecord")],
        vocabulary=str(directory / "records" / "vocab.txt"),
    )
    return directory


def rows_of(batch):
    """The sequences of a batch, each as bytes, in order of those."""
    names = sorted(batch)
    rows = range(len(batch["input_ids"]))
    return sorted(
        b"|".join(np.asarray(batch[name][row]).tobytes() for name in names) for row in rows
    )


def test_a_plain_parse_reads_what_training_sees(corpus):
    """The original's feature specification, given to tf.data; nothing of this project reads."""
    import tensorflow as tf

    features = {
        "input_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
        "input_mask": tf.io.FixedLenFeature([LENGTH], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([PREDICTIONS], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([PREDICTIONS], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([PREDICTIONS], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    files = sorted(str(path) for path in (corpus / "records").glob("*.tfrecord"))
    assert [file[-23:] for file in files] == [f"0000{n}-of-00003.tfrecord" for n in range(3)]
    dataset = tf.data.TFRecordDataset(files).map(lambda r: tf.io.parse_single_example(r, features))
    read = next(dataset.batch(100_000).as_numpy_iterator())
    table = InstanceTable(corpus / "corpus")
    trained_on = pretraining_batch(
        TokenStore(corpus / "corpus"),
        table,
        Masking(sequence_length=LENGTH, max_predictions_per_sequence=PREDICTIONS),
        tokenizer=Tokenizer(corpus / "corpus" / "vocab.txt"),
        data_seed=0,
        step=0,
        batch_size=len(table),
        fresh_masks=False,
        instance_seed=4,
    )
    read = {name: value.astype(trained_on[name].dtype) for name, value in read.items()}
    read["next_sentence_labels"] = read["next_sentence_labels"][:, 0]
    assert rows_of(read) == rows_of(trained_on)


def batches_of(corpus, batch_size=16, **changes):
    masks = {"sequence_length": LENGTH, "max_predictions_per_sequence": PREDICTIONS} | changes
    masking = Masking(**masks)
    return open_batches(corpus / "imported", masking, data_seed=1, batch_size=batch_size)


def test_imported_instances_make_addressed_batches(corpus):
    import tensorflow as tf

    batches = batches_of(corpus)
    facts = check_corpus(corpus / "imported")
    assert (
        batches.num_instances
        == facts["counts"]["instances"]
        == len(InstanceTable(corpus / "corpus"))
    )
    files = sorted(str(path) for path in (corpus / "records").glob("*.tfrecord"))
    records = list(tf.data.TFRecordDataset(files).as_numpy_iterator())
    for step in (3, 0, 900):
        batch = batches.batch(step)
        for row, number in enumerate(batches.instance_ids(step)):
            features = tf.train.Example.FromString(records[number]).features.feature
            for name, values in batch.items():
                kept = features[name].float_list.value or features[name].int64_list.value
                assert np.atleast_1d(values[row]).tolist() == list(kept)
    whole = batches_of(corpus, batch_size=batches.num_instances)
    assert sorted(whole.instance_ids(1)) == list(range(batches.num_instances))
    assert rows_of(whole.batch(0)) == rows_of(whole.batch(1))
    assert not np.array_equal(whole.instance_ids(0), whole.instance_ids(1))
    assert whole.batch(0)["input_ids"].dtype == np.int32
    assert whole.batch(0)["next_sentence_labels"].shape == (batches.num_instances,)


def test_larger_shapes_are_padded_and_smaller_refused(corpus):
    small, large = (
        batches_of(corpus),
        batches_of(corpus, sequence_length=40, max_predictions_per_sequence=7),
    )
    one, other = small.batch(0), large.batch(0)
    assert other["input_ids"].shape == (16, 40)
    assert np.array_equal(one["input_ids"], other["input_ids"][:, :LENGTH])
    assert not other["masked_lm_weights"][:, PREDICTIONS:].any()
    with pytest.raises(UserError, match="more than pretrain.sequence_length 16"):
        batches_of(corpus, sequence_length=16)


def test_masks_that_imported_instances_do_not_have_are_refused(corpus):
    with pytest.raises(UserError, match=r"masked_lm_probability 0.3 and .* mean 9\.\d; set them"):
        batches_of(corpus, masked_lm_probability=0.3, max_predictions_per_sequence=20)
    with pytest.raises(UserError, match=r"masked_lm_probability 0.05 and"):
        batches_of(corpus, masked_lm_probability=0.05)
    with pytest.raises(UserError, match=r"whole_word_masks is True, but .* with its masks"):
        batches_of(corpus, whole_word_masks=True)


def test_imported_instances_are_described_as_their_corpus_is(corpus):
    def told(directory, name):
        lines = describe(corpus=corpus / directory).splitlines()
        return next(line for line in lines if line.split()[0] == name)

    for name in ("pieces", "random", "masks"):
        assert told("imported", name) == told("corpus", name)
    assert (
        told("imported", "instances") == told("corpus", "instances") + ", imported from TFRecords"
    )


def test_whole_words_can_be_exported(corpus, tmp_path):
    export_records(
        run_dir=str(tmp_path / "records"),
        corpus=str(corpus / "corpus"),
        num_files=1,
        whole_word_masks=True,
    )
    import_records(
        run_dir=str(tmp_path / "imported"),
        sources=[str(tmp_path / "records" / "instances-00000-of-00001.tfrecord")],
        vocabulary=str(tmp_path / "records" / "vocab.txt"),
    )
    facts = check_corpus(tmp_path / "imported")
    assert (facts["sequence_length"], facts["max_predictions_per_sequence"]) == (LENGTH, 20)


def test_an_export_that_was_stopped_writes_the_missing_files(corpus, tmp_path):
    import shutil

    shutil.copytree(corpus / "records", tmp_path / "records")
    (tmp_path / "records" / "DONE").unlink()
    lost, *kept = sorted((tmp_path / "records").glob("*.tfrecord"))
    content = lost.read_bytes()
    lost.unlink()
    times = [path.stat().st_mtime_ns for path in kept]
    changes = {"num_files": 3, "max_predictions_per_sequence": PREDICTIONS}
    export_records(run_dir=str(tmp_path / "records"), corpus=str(corpus / "corpus"), **changes)
    assert lost.read_bytes() == content
    assert [path.stat().st_mtime_ns for path in kept] == times
    with pytest.raises(UserError, match=r"num_files is 100000, but .* instances; lower it"):
        export_records(
            run_dir=str(tmp_path / "many"), corpus=str(corpus / "corpus"), num_files=100_000
        )


def refused(tmp_path, sources, vocabulary):
    with pytest.raises(UserError) as error:
        import_records(
            run_dir=str(tmp_path / "imported"),
            sources=[str(source) for source in sources],
            vocabulary=str(vocabulary),
        )
    assert not (tmp_path / "imported").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_bad_records_are_refused_and_nothing_stays(corpus, tmp_path):
    import tensorflow as tf

    record = corpus / "records" / "instances-00000-of-00003.tfrecord"
    vocabulary = corpus / "vocab.txt"
    cut = tmp_path / "cut.tfrecord"
    cut.write_bytes(record.read_bytes()[:-7])
    assert "cut.tfrecord is not a whole TFRecord file" in refused(tmp_path, [cut], vocabulary)
    with tf.io.TFRecordWriter(str(tmp_path / "other.tfrecord")) as writer:
        writer.write(tf.train.Example().SerializeToString())
    assert "record 0 lacks input_ids" in refused(
        tmp_path, [tmp_path / "other.tfrecord"], vocabulary
    )
    assert "does not exist" in refused(tmp_path, [tmp_path / "absent"], vocabulary)
    short = tmp_path / "short.txt"
    short.write_text("\n".join([*SPECIAL_TOKENS, "one"]))
    assert "expected 0 to 5; give the vocabulary" in refused(tmp_path, [record], short)
    other = tmp_path / "other.txt"
    words = [line for line in vocabulary.read_text().split("\n") if line != "[CLS]"]
    other.write_text("\n".join(["[CLS]", *words]))
    assert "begins with id 2, in 11 pieces '[UNK]', expected [CLS], 0" in refused(
        tmp_path, [record], other
    )
    large = tmp_path / "large.txt"
    large.write_text("\n".join([*SPECIAL_TOKENS, *map(str, range(65_532))]))
    assert "has 65537 pieces, expected at most 65536" in refused(tmp_path, [record], large)
    packed = tmp_path / "packed.tfrecord.gz"
    packed.write_bytes(gzip.compress(record.read_bytes())[:-20])
    assert "packed.tfrecord.gz is not a whole TFRecord file" in refused(
        tmp_path, [packed], vocabulary
    )
    with pytest.raises(UserError, match=r"put it in brackets: \['one.tfrecord'\]"):
        import_records(run_dir=str(tmp_path), sources="one.tfrecord", vocabulary=str(vocabulary))


def test_a_corpus_that_changed_is_refused(corpus, tmp_path):
    import shutil

    shutil.copytree(corpus / "corpus", tmp_path / "corpus")
    tokens = tmp_path / "corpus" / "tokens.npy"
    content = bytearray(tokens.read_bytes())
    content[-1] ^= 1
    tokens.write_bytes(content)
    with pytest.raises(UserError, match=r"tokens.npy does not have the checksum"):
        export_records(run_dir=str(tmp_path / "records"), corpus=str(tmp_path / "corpus"))
    assert not (tmp_path / "records").exists()
    facts = json.loads((tmp_path / "corpus" / "corpus.json").read_text())
    assert facts["counts"]["documents"] == 40


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("masked_lm_weights", float("nan"), "masked_lm_weights holds nan to nan, expected 0 to 1"),
        ("masked_lm_weights", 2.0, "masked_lm_weights holds .* to 2.0, expected 0 to 1"),
        ("masked_lm_positions", LENGTH, "masked_lm_positions holds 0 to 32, expected 0 to 31"),
        ("segment_ids", 2, "segment_ids holds 0 to 2, expected 0 to 1"),
        ("input_ids", -1, "input_ids holds -1 to 10, expected 0 to 10"),
    ],
)
def test_numbers_out_of_range_are_refused(corpus, tmp_path, name, value, message):
    import tensorflow as tf

    record = str(corpus / "records" / "instances-00000-of-00003.tfrecord")
    examples = [
        tf.train.Example.FromString(data)
        for data in tf.data.TFRecordDataset([record]).as_numpy_iterator()
    ]
    feature = examples[5].features.feature[name]
    (feature.float_list if name == "masked_lm_weights" else feature.int64_list).value[1] = value
    with tf.io.TFRecordWriter(str(tmp_path / "damaged.tfrecord")) as writer:
        for example in examples:
            writer.write(example.SerializeToString())
    told = refused(tmp_path, [tmp_path / "damaged.tfrecord"], corpus / "vocab.txt")
    assert re.search(message, told), told
