"""Facts about the heads that the golden tests do not show."""

from __future__ import annotations

import numpy as np

from multiberts.bert.model.heads import is_right
from multiberts.bert.randomness import generator


def test_right_is_where_the_label_is_the_argmax() -> None:
    draw = generator("heads test", 0)
    logits = draw.normal(size=(50, 6, 7)).astype(np.float32)
    labels = draw.integers(0, 7, (50, 6)).astype(np.int32)
    found = np.asarray(is_right(logits, labels))
    assert 0 < found.sum() < found.size
    np.testing.assert_array_equal(found, logits.argmax(-1) == labels)
    # A tie for the best counts as right, whichever comes first.
    np.testing.assert_array_equal(np.asarray(is_right(np.zeros((1, 3)), np.array([2]))), [1.0])
