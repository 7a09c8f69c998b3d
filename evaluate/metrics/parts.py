"""Scores of parts of an evaluation set: the heuristics of HANS, the genders of Winogender, a label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A column with more values names examples rather than parts.
MOST_PARTS = 128
MOST_LABELS = 10


@dataclass(frozen=True)
class Part:
    """Some examples.

    Attributes:
      by: the column that was split by, or `label`.
      part: its value.
      label: the label that the examples have as well, or None for all.
      rows: int64, which examples.
    """

    by: str
    part: str
    label: float | None
    rows: NDArray[np.int64]


def parts_of(labels: NDArray, columns: Mapping[str, NDArray]) -> Iterator[Part]:
    """Cuts examples by label, and by every column of texts that has few values.

    The parts of a column are given whole and for each label by itself: of HANS, the entailed and the
    non-entailed half of a heuristic (McCoy et al., 2019, table 2).

    Args:
      labels: [examples].
      columns: by name, texts [examples]; others are left out.
    """
    values = np.unique(labels)
    if not 1 < len(values) <= MOST_LABELS or (values != np.round(values)).any():
        values = np.zeros(0)
    for value in values.tolist():
        yield Part("label", f"{value:g}", value, np.flatnonzero(labels == value))
    for name, column in sorted(columns.items()):
        if column.dtype.kind != "U":
            continue
        names = np.unique(column)
        if not 1 < len(names) <= min(MOST_PARTS, len(column) // 2):
            continue
        for part in names.tolist():
            inside = column == part
            yield Part(name, part, None, np.flatnonzero(inside))
            for value in values.tolist():
                rows = np.flatnonzero(inside & (labels == value))
                if rows.size:
                    yield Part(name, part, value, rows)
