"""Converts tf.train.Example records to columns, and back, without TensorFlow.

Records of one file have the same features in the same order, so all records are decoded at once, feature
by feature, as whole arrays. The written bytes equal the deterministic serialisation of Protocol Buffers
(features sorted by name). TensorFlow first converts records of another layout, which other programs may
write.

A feature is a column: numbers [records, K] (`float_list` or `int64_list`), or texts (`bytes_list`).
Wire format: Protocol Buffers, encoding guide; messages: tensorflow/core/example/feature.proto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.prediction_files.tfrecord import Records, framed, split
from multiberts.runs.errors import counted

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_FIRST = 0x0A  # field 1 with a length prefix, as all fields of these messages have
_SECOND = 0x12
_BYTES, _FLOATS, _INTEGERS = 0x0A, 0x12, 0x1A  # the kinds of a Feature


class ForeignRecord(Exception):
    """A record (`number`, from 1) is not a tf.train.Example, or has other features than the first."""

    def __init__(self, number: int, problem: str):
        super().__init__(f"record {number}: {problem}")
        self.number = number
        self.problem = problem


class _OtherLayoutError(Exception):
    """Records have different layouts."""


@dataclass(frozen=True)
class Texts:
    """A column of lists of undecoded texts.

    Attributes:
      content: concatenated texts, record by record, uint8.
      lengths: bytes per text, int64 [texts].
      counts: texts per record, int64 [records].
    """

    content: Bytes
    lengths: Integers
    counts: Integers

    def key(self) -> tuple[bytes, bytes, bytes]:
        return self.content.tobytes(), self.lengths.tobytes(), self.counts.tobytes()

    def decode(self) -> list[str]:
        data, ends = self.content.tobytes(), np.cumsum(self.lengths).tolist()
        return [
            data[end - size : end].decode()
            for end, size in zip(ends, self.lengths.tolist(), strict=True)
        ]


Column = Texts | NDArray


def encode(columns: Mapping[str, NDArray | Sequence[Sequence[str]]]) -> list[bytes]:
    """Serialises examples.

    Args:
      columns: by feature name, an array [records, K] of floats (written as float32) or integers, or a
        list of texts per record.
    """
    parts = [_entries(name.encode(), columns[name]) for name in sorted(columns)]
    features = [b"".join(entries) for entries in zip(*parts, strict=True)]
    return [b"\x0a" + _varint(len(content)) + content for content in features]


def _entries(name: bytes, column: NDArray | Sequence[Sequence[str]]) -> list[bytes]:
    """Encodes a column's entry in each record's map of features."""
    if not isinstance(column, np.ndarray):
        kind = b"\x0a"
        lists = [
            b"".join(
                b"\x0a" + _varint(len(text)) + text for text in (text.encode() for text in texts)
            )
            for texts in column
        ]
    elif column.dtype.kind == "f":
        kind = b"\x12"
        size = 4 * column.shape[1]
        before = b"\x0a" + _varint(size) if size else b""
        data = column.astype("<f4").tobytes()
        lists = [before + data[row * size : (row + 1) * size] for row in range(len(column))]
    else:
        kind = b"\x1a"
        rows = [b"".join(_varint(value % 2**64) for value in row) for row in column.tolist()]
        lists = [b"\x0a" + _varint(len(row)) + row if row else b"" for row in rows]
    start = b"\x0a" + _varint(len(name)) + name + b"\x12"
    entries = []
    for content in lists:
        feature = kind + _varint(len(content)) + content
        entry = start + _varint(len(feature)) + feature
        entries.append(b"\x0a" + _varint(len(entry)) + entry)
    return entries


_SHORT = [bytes([value]) for value in range(128)]


def _varint(value: int) -> bytes:
    if value < 128:
        return _SHORT[value]
    parts = bytearray()
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def decode(records: Records) -> dict[str, Column]:
    """Decodes examples.

    Returns:
      Columns by feature name: float32 or int64 [records, K], or `Texts`.
    """
    try:
        return _Cursor(records).columns()
    except _OtherLayoutError:
        normal = _normalised(records)
    try:
        return _Cursor(normal).columns()
    except _OtherLayoutError:
        raise ForeignRecord(1, "found a feature whose name is not a text") from None


def _normalised(records: Records) -> Records:
    """Returns the same examples in the deterministic serialisation of Protocol Buffers."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    written = []
    first: dict[str, str] = {}
    for number in range(1, len(records) + 1):
        try:
            example = tf.train.Example.FromString(records[number - 1])
        except DecodeError as error:
            raise ForeignRecord(number, "found something else than a tf.train.Example") from error
        example.DiscardUnknownFields()
        written.append(example.SerializeToString(deterministic=True))
        shapes = {name: _shape(feature) for name, feature in example.features.feature.items()}
        first = first if number > 1 else shapes
        for name in sorted({*shapes, *first}):
            here, there = shapes.get(name, "nothing"), first.get(name, "nothing")
            if here != there or here == _NO_KIND:
                expected = "some" if here == there else f"{there} as in record 1"
                raise ForeignRecord(number, f"feature {name!r}: found {here}, expected {expected}")
    return split(framed(written), verify=False)


_NO_KIND = "no values"


def _shape(feature: Any) -> str:
    """Returns the kind and the number of values of a feature, for messages."""
    kind = feature.WhichOneof("kind")
    if kind in (None, "bytes_list"):
        return "texts" if kind else _NO_KIND
    return f"{counted(len(getattr(feature, kind).value), 'value')} ({kind})"


class _Cursor:
    """A position in every record, advanced in all records at once."""

    def __init__(self, records: Records):
        # Padded with zeros, so that positions can be read before they are checked.
        self._content = np.frombuffer(records.data + bytes(16), dtype=np.uint8)
        self._last = len(records.data)
        self._position = records.starts.copy()
        self._ends = records.starts + records.lengths

    def columns(self) -> dict[str, Column]:
        """Reads all features."""
        columns: dict[str, Column] = {}
        self._expect(_FIRST)
        self._require(self._end_of_message() == self._ends)
        while (self._position < self._ends).all():
            self._expect(_FIRST)
            end = self._end_of_message()
            self._require(end <= self._ends)
            name = self._name()
            self._expect(_SECOND)
            self._require(self._end_of_message() == end)
            kind = self._shared_byte()
            self._require(self._end_of_message() == end)
            if name in columns:
                raise _OtherLayoutError
            columns[name] = self._values(kind, end)
        self._require(self._position == self._ends)
        return columns

    def _values(self, kind: int, end: Integers) -> Column:
        if kind == _BYTES:
            return self._texts(end)
        if kind == _FLOATS:
            return self._floats(end)
        if kind == _INTEGERS:
            return self._integers(end)
        raise _OtherLayoutError

    def _require(self, conditions: NDArray[np.bool_]) -> None:
        if not conditions.all():
            raise _OtherLayoutError

    def _bytes(self, positions: Integers) -> Bytes:
        self._require(positions <= self._last)
        return self._content[positions]

    def _expect(self, tag: int) -> None:
        self._require(self._bytes(self._position) == tag)
        self._position = self._position + 1

    def _shared_byte(self) -> int:
        tags = self._bytes(self._position)
        self._require(tags == tags[0])
        self._position = self._position + 1
        return int(tags[0])

    def _integer(self) -> Integers:
        """Reads a variable-length integer of every record."""
        values, self._position = self._varints(self._position)
        return values

    def _end_of_message(self) -> Integers:
        size = self._integer()
        self._require((size >= 0) & (size <= self._last))
        return self._position + size

    def _varints(self, position: Integers) -> tuple[Integers, Integers]:
        byte = self._bytes(position)
        position = position + 1
        if byte.size == 0 or byte.max() < 128:
            return byte.astype(np.int64), position
        values = (byte & 127).astype(np.uint64)
        more = np.flatnonzero(byte >= 128)
        for shift in range(7, 70, 7):
            byte = self._bytes(position[more])
            values[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            position[more] += 1
            more = more[byte >= 128]
            if not more.size:
                return values.view(np.int64), position
        raise _OtherLayoutError

    def _name(self) -> str:
        self._expect(_FIRST)
        end = self._end_of_message()
        length = int(end[0] - self._position[0])
        self._require((end - self._position == length) & (end <= self._ends))
        names = self._content[self._position[:, None] + np.arange(length)]
        self._require((names == names[0]).all(axis=1))
        self._position = end
        try:
            name: str = names[0].tobytes().decode()
            return name
        except UnicodeDecodeError:
            raise _OtherLayoutError from None

    def _floats(self, end: Integers) -> NDArray[np.float32]:
        width = int(end[0] - self._position[0])
        self._require(end - self._position == width)
        if not width:
            return np.zeros((len(end), 0), dtype=np.float32)
        self._expect(_FIRST)
        self._require(self._end_of_message() == end)
        width = int(end[0] - self._position[0])
        if width % 4 or not width:
            raise _OtherLayoutError
        raw = self._content[self._position[:, None] + np.arange(width)]
        self._position = end
        values: NDArray[np.float32] = raw.view("<f4")
        return values

    def _integers(self, end: Integers) -> Integers:
        if not (end - self._position).any():
            return np.zeros((len(end), 0), dtype=np.int64)
        self._expect(_FIRST)
        self._require(self._end_of_message() == end)
        columns = []
        while (self._position < end).all():
            columns.append(self._integer())
        self._require(self._position == end)
        return np.stack(columns, axis=1)

    def _texts(self, end: Integers) -> Texts:
        counts = np.zeros(len(end), dtype=np.int64)
        rows, starts, sizes = [], [], []
        active = np.arange(len(end))
        while (active := active[self._position[active] < end[active]]).size:
            position = self._position[active]
            self._require(self._bytes(position) == _FIRST)
            size, position = self._varints(position + 1)
            self._require((size >= 0) & (position + size <= end[active]))
            rows.append(active)
            starts.append(position)
            sizes.append(size)
            counts[active] += 1
            self._position[active] = position + size
        self._require(self._position == end)
        if not rows:
            return Texts(np.zeros(0, np.uint8), np.zeros(0, np.int64), counts)
        row, start, lengths = (np.concatenate(parts) for parts in (rows, starts, sizes))
        if len(rows) > 1:
            order = np.argsort(row, kind="stable")  # keeps the order of a record's texts
            start, lengths = start[order], lengths[order]
        before = np.cumsum(lengths) - lengths
        indices = np.arange(int(lengths.sum())) + np.repeat(start - before, lengths)
        return Texts(self._content[indices], lengths, counts)
