"""TFRecord files against TensorFlow's own, published checksums, and damage of every kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.tfrecord import DamagedRecord, checksum, framed, split

RECORDS = [b"", b"a", b"\x00" * 32, bytes(range(256)) * 3, "größer".encode()]


def test_published_checksums():
    """RFC 3720, appendix B.4, and the check value of CRC-32C catalogues."""
    pieces = [bytes(32), b"\xff" * 32, bytes(range(32)), bytes(range(31, -1, -1)), b"123456789"]
    masked = np.frombuffer(b"".join(map(checksum, pieces)), "<u4")
    turned = (masked.astype(np.uint64) - 0xA282EAD8) % 2**32
    checksums = (turned >> np.uint64(17) | turned << np.uint64(15)) % 2**32
    assert [hex(value) for value in checksums.tolist()] == [
        "0x8a9136aa", "0x62a8ab43", "0x46dd794e", "0x113fdb5c", "0xe3069283",
    ]  # fmt: skip


def test_same_bytes_as_tensorflow(tmp_path: Path):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for record in RECORDS:
            writer.write(record)
    assert framed(RECORDS) == (tmp_path / "theirs").read_bytes()
    assert framed([]) == b""


@pytest.mark.parametrize("verify", [True, False])
def test_records_are_found_again(verify: bool):
    records = split(framed(RECORDS), verify=verify)
    assert [records[index] for index in range(len(records))] == RECORDS
    assert len(split(b"", verify=verify)) == 0


def test_every_changed_byte_is_found_and_its_record_named():
    records = [b"one", b"", b"three"]
    whole = framed(records)
    ends = np.cumsum([len(record) + 16 for record in records])
    for place in range(len(whole)):
        for flipped in (1, 128):
            damaged = bytearray(whole)
            damaged[place] ^= flipped
            with pytest.raises(DamagedRecord) as caught:
                split(bytes(damaged))
            assert caught.value.number == np.searchsorted(ends, place, side="right") + 1, place


def test_every_cut_inside_a_record_is_found():
    whole = framed([b"one", b"two"])
    for kept in range(len(whole)):
        if kept in (0, len(whole) // 2):
            assert len(split(whole[:kept])) == kept // (len(whole) // 2)
            continue
        for verify in (True, False):
            with pytest.raises(DamagedRecord) as caught:
                split(whole[:kept], verify=verify)
            assert caught.value.number == (1 if kept < len(whole) // 2 else 2)
