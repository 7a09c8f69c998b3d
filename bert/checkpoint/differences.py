"""How far two checkpoints are apart, variable by variable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class Difference:
    """One variable of two checkpoints.

    Attributes:
      name: as released.
      shapes: in the first and in the second; None where it is missing.
      bit_equal: whether every number has the same bits.
      absolute: the largest |a - b|; NaN where the shapes differ or either holds NaN.
      relative: the largest |a - b| / max(|a|, |b|), where 0 / 0 counts as 0; likewise.
    """

    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    bit_equal: bool
    absolute: float
    relative: float


def compare_parameters(
    first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]
) -> list[Difference]:
    """Compares all variables of two checkpoints, in the order of their names.

    Args:
      first: float32 arrays by name.
      second: likewise.
    """
    return [
        _difference(name, first.get(name), second.get(name))
        for name in sorted(first.keys() | second.keys())
    ]


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Returns whether two float32 arrays agree in shape and in every bit: 0 is not -0, NaN can be NaN."""
    return first.shape == second.shape and np.array_equal(
        np.ascontiguousarray(first, np.float32).view(np.uint32),
        np.ascontiguousarray(second, np.float32).view(np.uint32),
    )


def _difference(name: str, first: np.ndarray | None, second: np.ndarray | None) -> Difference:
    if first is None or second is None or first.shape != second.shape:
        shapes = (None if first is None else first.shape, None if second is None else second.shape)
        return Difference(name, shapes, False, np.nan, np.nan)
    shapes = (first.shape, second.shape)
    if same_bits(first, second):
        return Difference(name, shapes, True, 0.0, 0.0)
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    # Infinite or NaN weights give NaN, which the table shows.
    with np.errstate(invalid="ignore"):
        absolute = np.abs(one - other)
        scale = np.maximum(np.abs(one), np.abs(other))
        relative = np.where(scale == 0, 0.0, absolute / np.where(scale == 0, 1.0, scale))
    return Difference(name, shapes, False, float(absolute.max()), float(relative.max()))
