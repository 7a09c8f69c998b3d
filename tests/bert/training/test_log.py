"""The tail of a training log, which may be cut, damaged or another's."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from multiberts.bert.training.log import tail_of_metrics


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 2, "lo', b"", b"null", b"[]", b'{"step": "2"}', b'{"step": 1.5}', b"\xff\x00\x80",
        b'{"step": 2, "time": "now"}', b'{"step": 2, "steps_per_second": null}',
        b'{"step": 2, "loss": "1.5"}',
        b'{"step": 2, "loss": [1.5]}',
        b'{"step": ' + b"9" * 10_000 + b"}", b"[" * 30_000, b'{"a":' * 10_000,
    ],
)  # fmt: skip
def test_lines_that_are_not_whole_are_left_out(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line + b'\n{"step": 3, "loss": 1.5, "time": 12.5}\n')
    assert tail_of_metrics(path) == [{"step": 3, "loss": 1.5, "time": 12.5}]


def test_a_loss_that_is_not_finite_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 3, "loss": NaN, "time": 12.5}\n')
    (line,) = tail_of_metrics(path)
    assert line["step"] == 3 and math.isnan(line["loss"])
