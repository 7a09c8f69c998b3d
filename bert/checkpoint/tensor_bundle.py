"""TensorFlow's checkpoint files ("tensor bundle"), read and written without TensorFlow.

`<prefix>.index` is a table in LevelDB's format: each tensor's type, shape, position and checksum, by name.
`<prefix>.data-<n>-of-<m>` hold the tensors' bytes, one after the other. The written bytes equal those of
TensorFlow's writer.

Reference: tensorflow/core/util/tensor_bundle, tensorflow/core/protobuf/tensor_bundle.proto;
leveldb/doc/table_format.md; Protocol Buffers, encoding guide.
"""

from __future__ import annotations

import functools
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import google_crc32c
import numpy as np

# One shard, little-endian, written by version 1: the value of the empty key.
_HEADER = b"\x08\x01\x1a\x02\x08\x01"
_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_RESTART_INTERVAL = 16

_Kind = TypeVar("_Kind", int, bytes)


@functools.cache
def _types() -> dict[int, np.dtype]:
    """Types of weights and steps, by their number in tensorflow/core/framework/types.proto."""
    import ml_dtypes

    return {
        1: np.dtype("<f4"),
        2: np.dtype("<f8"),
        3: np.dtype("<i4"),
        9: np.dtype("<i8"),
        14: np.dtype(ml_dtypes.bfloat16),
        19: np.dtype("<f2"),
    }


@dataclass(frozen=True)
class BundleEntry:
    """The position, type and shape of a tensor; dtype None: not an array of numbers in one piece."""

    dtype: np.dtype | None
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * (self.dtype.itemsize if self.dtype else 0)


def write_bundle(prefix: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes `<prefix>.index` and `<prefix>.data-00000-of-00001`.

    Args:
      tensors: {name: array}, float32 or int64, written in this order.
    """
    numbers = {dtype: number for number, dtype in _types().items()}
    entries, offset = {b"": _HEADER}, 0
    with open(f"{prefix}.data-00000-of-00001", "wb") as data:
        for name, values in tensors.items():
            content = np.ascontiguousarray(values).tobytes()
            shape = b"".join(_message(2, _field(1, size)) for size in values.shape)
            entries[name.encode()] = (
                _field(1, numbers[values.dtype])
                + _message(2, shape)
                + _field(4, offset)
                + _field(5, len(content))
                + b"\x35"
                + struct.pack("<I", _masked_checksum(content))
            )
            offset += data.write(content)
    with open(f"{prefix}.index", "wb") as index:
        handles = []
        # A single block of data: 400 variables need a sixth of the size at which TensorFlow begins another.
        for block in (_block(sorted(entries.items())), _block([])):
            handles.append(_handle(index.tell(), len(block)))
            index.write(_with_checksum(block))
        last = _short_successor(max(entries))
        block = _block([(last, handles[0])])
        handles.append(_handle(index.tell(), len(block)))
        index.write(_with_checksum(block))
        footer = handles[1] + handles[2]
        index.write(footer.ljust(_FOOTER_BYTES - 8, b"\0") + struct.pack("<Q", _MAGIC))


def read_bundle(prefix: Path, is_wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
    """Reads tensors, verifying their checksums.

    Args:
      is_wanted: whether to read the tensor of a name.

    Returns:
      Arrays by name, sorted, of the types in which they are stored.
    """
    entries, num_shards = parse_index(Path(f"{prefix}.index").read_bytes())
    arrays = {}
    for name in sorted(filter(is_wanted, entries)):
        entry = entries[name]
        if entry.dtype is None:
            raise ValueError(f"{name} is not an array of numbers in one piece")
        with open(f"{prefix}.data-{entry.shard:05d}-of-{num_shards:05d}", "rb") as data:
            left = os.fstat(data.fileno()).st_size - entry.offset
            # Compare before allocating memory, as a damaged index may state any size.
            if not 0 <= entry.size == entry.num_bytes <= left:
                raise ValueError(
                    f"the index states {entry.size} bytes for {name} of shape {list(entry.shape)}, and "
                    f"{max(left, 0)} are there"
                )
            data.seek(entry.offset)
            content = data.read(entry.size)
        if len(content) != entry.size or _masked_checksum(content) != entry.checksum:
            raise ValueError(f"the checksum of {name} does not fit its bytes")
        arrays[name] = np.frombuffer(content, entry.dtype).reshape(entry.shape)
    return arrays


def parse_index(content: bytes) -> tuple[dict[str, BundleEntry], int]:
    """Returns the position of each tensor, and the number of shards."""
    try:
        (magic,) = struct.unpack("<Q", content[-8:])
        if magic != _MAGIC:
            raise ValueError("the index does not end as an index does")
        _, _, offset = _two_varints(content, len(content) - _FOOTER_BYTES)
        offset, size, _ = _two_varints(content, offset)
        rows: list[tuple[bytes, bytes]] = []
        for _, handle in _rows(content, offset, size):
            offset, size, _ = _two_varints(handle, 0)
            rows += _rows(content, offset, size)
        return _entries(rows)
    except (IndexError, struct.error) as error:
        raise ValueError("the index is truncated") from error


def _entries(rows: Iterable[tuple[bytes, bytes]]) -> tuple[dict[str, BundleEntry], int]:
    entries = {}
    num_shards = 1
    for key, value in rows:
        fields = dict(_fields(value))
        if not key:
            num_shards = _of(int, fields.get(1, 1))
            continue
        if key.startswith(b"\0"):  # part of a partitioned variable
            continue
        # Field 7 lists the slices of a partitioned variable.
        dtype = None if 7 in fields else _types().get(_of(int, fields.get(1, 0)))
        shape = fields.get(2, b"")
        sizes = [dict(_fields(_of(bytes, dim))).get(1, 0) for _, dim in _fields(_of(bytes, shape))]
        entries[key.decode()] = BundleEntry(
            dtype,
            tuple(_of(int, size) for size in sizes),
            *(_of(int, fields.get(number, 0)) for number in (3, 4, 5, 6)),
        )
    return entries, num_shards


def _of(kind: type[_Kind], value: int | bytes) -> _Kind:
    if not isinstance(value, kind):
        raise ValueError("the index has a number in place of a shape, or text in place of a number")
    return value


def _rows(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block."""
    block, kind = content[offset : offset + size], content[offset + size]
    (checksum,) = struct.unpack_from("<I", content, offset + size + 1)
    if checksum != _masked_checksum(content[offset : offset + size + 1]):
        raise ValueError("the checksum of the index does not fit its bytes")
    if kind != 0:
        raise ValueError("the index is compressed, as TensorFlow 1.0 wrote it; save it anew")
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end, position, key = len(block) - 4 * (num_restarts + 1), 0, b""
    while position < end:
        shared, unshared, position = _two_varints(block, position)
        length, position = _varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        yield key, block[position + unshared : position + unshared + length]
        position += unshared + length


def _block(rows: list[tuple[bytes, bytes]]) -> bytes:
    """Encodes a block of sorted keys and values, keys without the prefix shared with the last key."""
    block, restarts, last = bytearray(), [], b""
    for number, (key, value) in enumerate(rows):
        shared = 0
        if number % _RESTART_INTERVAL == 0:
            restarts.append(len(block))
        else:
            while shared < min(len(last), len(key)) and last[shared] == key[shared]:
                shared += 1
        for length in (shared, len(key) - shared, len(value)):
            block += _encoded(length)
        block += key[shared:] + value
        last = key
    restarts = restarts or [0]
    return bytes(block) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def _with_checksum(block: bytes) -> bytes:
    """Returns a block with its trailer: kind (0, not compressed) and checksum."""
    return block + b"\0" + struct.pack("<I", _masked_checksum(block + b"\0"))


def _short_successor(key: bytes) -> bytes:
    """Returns a short key that is not below a key, as the table's index names the end of a block."""
    for index, byte in enumerate(key):
        if byte != 0xFF:
            return key[:index] + bytes([byte + 1])
    return key


def _masked_checksum(content: bytes) -> int:
    checksum: int = google_crc32c.value(content)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _handle(offset: int, size: int) -> bytes:
    return _encoded(offset) + _encoded(size)


def _encoded(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _field(number: int, value: int) -> bytes:
    """Returns an encoded integer field; empty for 0, the default."""
    return _encoded(number << 3) + _encoded(value) if value else b""


def _message(number: int, content: bytes) -> bytes:
    return _encoded(number << 3 | 2) + _encoded(len(content)) + content


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[offset]
        number |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return number, offset


def _two_varints(content: bytes, offset: int) -> tuple[int, int, int]:
    first, offset = _varint(content, offset)
    second, offset = _varint(content, offset)
    return first, second, offset


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the fields of a message: numbers, and bytes for nested messages."""
    offset = 0
    while offset < len(content):
        tag, offset = _varint(content, offset)
        value: int | bytes
        if tag & 7 == 0:
            value, offset = _varint(content, offset)
        elif tag & 7 == 5:
            value, offset = struct.unpack_from("<I", content, offset)[0], offset + 4
        elif tag & 7 == 2:
            length, offset = _varint(content, offset)
            value, offset = content[offset : offset + length], offset + length
        else:
            raise ValueError("the index holds a field of another kind")
        yield tag >> 3, value
