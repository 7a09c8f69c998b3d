"""TFRecord files without TensorFlow: whole files of short records, read and checked in one pass.

A record is its length (8 bytes, little endian), a checksum of these, its bytes, and a checksum of
them. The checksum is CRC-32C (RFC 3720, appendix B.4), turned by 15 bits and shifted by a constant
(TFRecord format, TensorFlow guide). Checksums of all records are computed side by side, byte by
byte, so that thousands of short records take milliseconds; a single record of megabytes is slow.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_LENGTH = struct.Struct("<Q")
_HEADER = 12  # length and its checksum
_FOOTER = 4
_MASK_DELTA = np.uint32(0xA282EAD8)


def _table() -> NDArray[np.uint32]:
    """What a byte does to the checksum: division by the reflected polynomial 0x82F63B78."""
    entries = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        entries = np.where(entries & 1, entries >> 1 ^ np.uint32(0x82F63B78), entries >> 1)
    return entries


_TABLE = _table()


class DamagedRecord(Exception):
    """A record is cut short or does not fit its checksum.

    Attributes:
      number: of the record, counted from 1.
    """

    def __init__(self, number: int):
        super().__init__(f"record {number}")
        self.number = number


@dataclass(frozen=True)
class Records:
    """The records of a file.

    Attributes:
      data: the bytes of the file.
      starts, lengths: int64 [records], where each record's bytes lie.
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
    """The content of a TFRecord file that holds these records."""
    lengths = np.array([len(record) for record in records], dtype="<u8")
    headers = lengths.tobytes()
    of_lengths = masked_checksums(headers, np.arange(len(records)) * 8, np.full(len(records), 8))
    body = b"".join(records)
    ends = np.cumsum(lengths.astype(np.int64))
    of_records = masked_checksums(body, ends - lengths.astype(np.int64), lengths.astype(np.int64))
    before = np.zeros(len(records), dtype=[("length", "<u8"), ("checksum", "<u4")])
    before["length"], before["checksum"] = lengths, of_lengths
    first, last = before.tobytes(), of_records.astype("<u4").tobytes()
    parts: list[bytes] = []
    for index, record in enumerate(records):
        parts += (
            first[index * _HEADER : (index + 1) * _HEADER],
            record,
            last[index * _FOOTER : (index + 1) * _FOOTER],
        )
    return b"".join(parts)


def split(data: bytes, *, verify: bool = True) -> Records:
    """Finds the records of a TFRecord file.

    Args:
      data: the bytes of the file.
      verify: whether to compare checksums; needless where the whole file's SHA-256 is known to be
        right.

    Raises:
      DamagedRecord: a record is cut short, or differs from its checksum; the first one is named.
    """
    starts: list[int] = []
    lengths: list[int] = []
    position, end = 0, len(data)
    unpack, whole = _LENGTH.unpack_from, True
    while position < end:
        if position + _HEADER > end:
            whole = False
            break
        (length,) = unpack(data, position)
        following = position + _HEADER + length + _FOOTER
        if following > end:
            whole = False
            break
        starts.append(position + _HEADER)
        lengths.append(length)
        position = following
    records = Records(data, np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64))
    if verify:
        _refuse_wrong_checksums(records)
    if not whole:
        raise DamagedRecord(len(records) + 1)
    return records


def _refuse_wrong_checksums(records: Records) -> None:
    if not len(records):
        return
    content = np.frombuffer(records.data, dtype=np.uint8)
    starts, lengths = records.starts, records.lengths
    right = np.ones(len(records), dtype=bool)
    for first, size in ((starts - _HEADER, np.full(len(records), 8)), (starts, lengths)):
        found = content[(first + size)[:, None] + np.arange(4)].view("<u4")[:, 0]
        right &= masked_checksums(records.data, first, size) == found
    if not right.all():
        raise DamagedRecord(int(right.argmin()) + 1)


def masked_checksums(data: bytes, starts: Integers, lengths: Integers) -> NDArray[np.uint32]:
    """The masked CRC-32C of each piece of `data`, uint32 [pieces]."""
    content = np.frombuffer(data, dtype=np.uint8)
    order = np.argsort(-lengths, kind="stable")  # longest first: those still running come first
    ascending, position = np.sort(lengths), starts[order]
    running = len(order) - np.searchsorted(
        ascending, np.arange(ascending[-1] if len(order) else 0), side="right"
    )
    state = np.full(len(order), 0xFFFFFFFF, dtype=np.uint32)
    for offset, number in enumerate(running.tolist()):
        some = state[:number]
        byte = content[position[:number] + offset]
        state[:number] = _TABLE[(some & 0xFF).astype(np.uint8) ^ byte] ^ (some >> np.uint32(8))
    checksums = np.empty_like(state)
    checksums[order] = ~state
    turned = (checksums >> np.uint32(15)) | (checksums << np.uint32(17))
    return turned + _MASK_DELTA
