"""Results as plain data: equal by content, and as JSON can hold them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import numpy as np

from multiberts.stats.intervals import ConfidenceInterval, Interval


class EqualByContent:
    """Makes dataclasses that hold arrays comparable and hashable, and convertible for JSON.

    Two are equal where every number is.
    """

    def _content(self) -> tuple:
        return type(self), *(
            _hashable(getattr(self, f.name)) for f in dataclasses.fields(cast("Any", self))
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EqualByContent):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def to_dict(self) -> dict[str, Any]:
        """Returns every number but the bootstrap samples, as JSON can hold them.

        Intervals have the keys low, high, level and method; an infinite end, which JSON lacks, is None.
        """
        names = [field.name for field in dataclasses.fields(cast("Any", self))]
        names += [
            name
            for name in ("statistic", "p_value", "p_same", "p_not_worse", "answers")
            if hasattr(self, name)
        ]
        return {name: plain_value(getattr(self, name)) for name in names if name != "samples"}


def plain_value(value: Any) -> Any:
    """Converts a value to what JSON can hold."""
    if isinstance(value, EqualByContent):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {
            field.name: plain_value(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, ConfidenceInterval):
        value = {"low": value.low, "high": value.high, "level": value.level, "method": value.method}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain_value(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain_value(part) for name, part in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [plain_value(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flat_values(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Joins the names of nested values: `base_estimate`, `ci_low`; lists are left as they are."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flat_values(value, f"{prefix}{name}_".replace(" ", "_"))
        else:
            flat[prefix + name] = value
    return flat


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in value.items())
    if dataclasses.is_dataclass(value):
        return tuple(_hashable(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple | list) and not isinstance(value, Interval):
        return tuple(_hashable(part) for part in value)
    return value
