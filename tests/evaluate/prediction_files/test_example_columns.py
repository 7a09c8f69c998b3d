"""tf.train.Example as columns, against TensorFlow's Protocol Buffers."""

from __future__ import annotations

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.example_columns import (
    ForeignRecord,
    Texts,
    decode,
    encode,
)
from multiberts.evaluate.prediction_files.tfrecord import framed, split

WORDS = ["", "x", "größer", "a" * 127, "b" * 128, "c" * 20000]


def columns_of(random: np.random.Generator, number: int) -> dict:
    return {
        "text": [[WORDS[place]] for place in random.integers(0, len(WORDS), number)],
        "list[]": [
            [WORDS[place] for place in random.integers(0, 4, random.integers(0, 4))]
            for _ in range(number)
        ],
        "float": random.normal(size=(number, 1)).astype(np.float32),
        "many": random.normal(size=(number, 40)).astype(np.float32),
        "none": np.zeros((number, 0), np.float32),
        "integer": random.integers(-(2**62), 2**62, (number, 1)),
        "small": random.integers(-2, 200, (number, 3)),
    }


def theirs(columns: dict, row: int, order: list[str] | None = None) -> bytes:
    import tensorflow as tf

    features = {}
    for name in order or columns:
        column = columns[name]
        if not isinstance(column, np.ndarray):
            texts = [text.encode() for text in column[row]]
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
        elif column.dtype.kind == "f":
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=column[row]))
        else:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=column[row]))
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=order is None)


def same(found: dict, columns: dict) -> None:
    assert set(found) == set(columns)
    for name, column in columns.items():
        if isinstance(column, np.ndarray):
            np.testing.assert_array_equal(found[name], column)
            assert found[name].dtype == (np.float32 if column.dtype.kind == "f" else np.int64)
        else:
            assert isinstance(found[name], Texts)
            texts = iter(found[name].decode())
            read = [[next(texts) for _ in range(count)] for count in found[name].counts]
            assert read == [list(own) for own in column]


def test_bytes_are_those_of_protocol_buffers():
    """Alone it holds the encoding against another program's; TensorFlow's import is what takes long."""
    columns = columns_of(np.random.default_rng(0), 30)
    assert encode(columns) == [theirs(columns, row) for row in range(30)]


@pytest.mark.parametrize("number", [1, 2, 30])
def test_columns_are_read_back(number: int):
    columns = columns_of(np.random.default_rng(number), number)
    same(decode(split(framed(encode(columns)))), columns)


def test_features_in_another_order_are_read_as_well():
    columns = columns_of(np.random.default_rng(3), 8)
    names = list(columns)
    records = [theirs(columns, row, names[row % 7 :] + names[: row % 7]) for row in range(8)]
    same(decode(split(framed(records))), columns)


def test_floats_written_one_by_one_are_read_as_well():
    """Protocol Buffers let a writer leave a list of numbers unpacked."""
    packed = encode({"x": np.array([[1.5, -2.0]], np.float32)})[0]
    values = np.array([1.5, -2.0], "<f4").tobytes()
    unpacked = packed.replace(b"\x0a\x08" + values, b"\x0d" + values[:4] + b"\x0d" + values[4:])
    assert unpacked != packed
    np.testing.assert_array_equal(decode(split(framed([unpacked])))["x"], [[1.5, -2.0]])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b"no example at all", r"tf\.train\.Example"),
        (
            {"x": np.ones((1, 2), np.float32)},
            r"feature 'x': found 2 values \(float_list\), expected 1 value \(float_list\) as in record 1$",
        ),
        ({"x": np.ones((1, 1), np.int64)}, "int64_list"),
        ({"x": [["text"]]}, "'x': found texts, expected 1 value "),
        ({"y": np.ones((1, 1), np.float32)}, "'x': found nothing, expected 1 value "),
        (b"", "'x': found nothing, expected 1 value "),
    ],
)
def test_the_first_record_unlike_the_others_is_named(second, message):
    first = encode({"x": np.ones((1, 1), np.float32)})[0]
    other = second if isinstance(second, bytes) else encode(second)[0]
    with pytest.raises(ForeignRecord, match=message) as caught:
        decode(split(framed([first, first, other, other])))
    assert caught.value.number == 3


def test_random_bytes_never_pass_for_examples():
    random = np.random.default_rng(5)
    whole = encode({"label": np.ones((1, 1), np.float32), "id": [["abc"]]})[0]
    for _ in range(300):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(256)
        if bytes(damaged) == whole:
            continue
        try:
            found = decode(split(framed([bytes(damaged)])))
        except ForeignRecord:
            continue
        # What can be read at all is read as Protocol Buffers read it.
        import tensorflow as tf

        features = tf.train.Example.FromString(bytes(damaged)).features.feature
        assert set(found) == set(features)
