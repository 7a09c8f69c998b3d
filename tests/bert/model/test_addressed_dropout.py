"""Dropout: the right share, unbiased, and addressed."""

from __future__ import annotations

import numpy as np
import pytest

from multiberts.bert.model.addressed_dropout import dropout
from multiberts.runs.errors import UserError

ONES = np.ones((8, 64, 96), np.float32)


def _kept(key: tuple[int, int], site: int, rate: float = 0.1) -> np.ndarray:
    return np.asarray(dropout(ONES, rate, np.array(key, np.uint32), site))


def test_share_dropped_and_scale() -> None:
    values = _kept((1, 2), 3)
    count = values.size
    share = (values == 0).mean()
    assert abs(share - 0.1) < 4 * np.sqrt(0.1 * 0.9 / count)
    assert np.allclose(values[values != 0], 1 / 0.9)


def test_same_key_same_bits_other_key_or_site_independent_bits() -> None:
    first = _kept((1, 2), 3) == 0
    assert np.array_equal(first, _kept((1, 2), 3) == 0)
    sigma = np.sqrt(0.01 * 0.99 / first.size)
    for other in (_kept((1, 3), 3), _kept((2, 2), 3), _kept((1, 2), 4)):
        assert abs((first & (other == 0)).mean() - 0.01) < 5 * sigma


def test_rows_and_columns_are_not_correlated() -> None:
    dropped = (_kept((7, 11), 0) == 0).astype(float)
    for axis in range(3):
        moved = np.roll(dropped, 1, axis=axis)
        correlation = np.corrcoef(dropped.ravel(), moved.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(dropped.size)


@pytest.mark.parametrize("shape", [(1, 1025, 2), (1, 1, 1025, 1), (1, 1, 1, 1025)])
def test_sequences_whose_bits_would_run_into_each_other_are_refused(shape: tuple[int, ...]) -> None:
    """All longer than the addresses; as long as they are is the most."""
    key = np.array((1, 2), np.uint32)
    with pytest.raises(UserError, match="sequences of 1025 pieces are longer than the 1024"):
        dropout(np.ones(shape, np.float32), 0.1, key, 0)
    dropout(np.ones((1, 1024, 2), np.float32), 0.1, key, 0)
