"""TFRecord files without TensorFlow.

A record is its length (8 bytes, little endian), a checksum of the length, its bytes, and a checksum of
the bytes. The checksum is CRC-32C, rotated by 15 bits plus a constant (TFRecord format, TensorFlow guide).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_LENGTH, _CHECKSUM = 8, 4  # bytes


class DamagedRecord(Exception):
    """A record (`number`, from 1) is truncated or does not match its checksum."""

    def __init__(self, number: int):
        super().__init__(f"record {number}")
        self.number = number


@dataclass(frozen=True)
class Records:
    """The records of a file.

    Attributes:
      starts, lengths: position and length of each record's bytes, int64 [records].
    """

    data: bytes
    starts: Integers
    lengths: Integers

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> bytes:
        start = int(self.starts[index])
        return self.data[start : start + int(self.lengths[index])]


def framed(records: Sequence[bytes]) -> bytes:
    """Returns the content of a TFRecord file with these records."""
    parts: list[bytes] = []
    for record in records:
        length = len(record).to_bytes(_LENGTH, "little")
        parts += (length, checksum(length), record, checksum(record))
    return b"".join(parts)


def checksum(data: bytes) -> bytes:
    """Returns the masked CRC-32C, 4 bytes."""
    value = google_crc32c.value(data)
    masked: bytes = ((value >> 15 | value << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(
        _CHECKSUM, "little"
    )
    return masked


def split(data: bytes, *, verify: bool = True) -> Records:
    """Finds the records of a TFRecord file.

    Args:
      verify: whether to verify checksums, which is unnecessary if the file's SHA-256 is verified.
    """
    starts: list[int] = []
    lengths: list[int] = []
    position, end = 0, len(data)
    while position < end:
        length_bytes = data[position : position + _LENGTH]
        start = position + _LENGTH + _CHECKSUM
        stop = start + int.from_bytes(length_bytes, "little")
        whole = start <= end and (
            not verify or data[start - _CHECKSUM : start] == checksum(length_bytes)
        )
        whole = whole and stop + _CHECKSUM <= end
        if not whole or (verify and data[stop : stop + _CHECKSUM] != checksum(data[start:stop])):
            raise DamagedRecord(len(starts) + 1)
        starts.append(start)
        lengths.append(stop - start)
        position = stop + _CHECKSUM
    return Records(data, np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64))
