"""Settings of comparisons: the one place of their names, choices and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, cast

import numpy as np

from multiberts.stats.corrections import check_num_bootstrap, check_whole
from multiberts.stats.errors import DataError, check_choice

Design = Literal["paired", "unpaired", "fixed_baseline", "single"]
Examples = Literal["shared", "separate"]
DrawOrder = Literal["keyed", "published"]
# Resampled; the other is held fixed.
Resample = Literal["both", "seeds", "examples"]
Aggregate = Literal["mean", "median", "iqm"]
Missing = Literal["refuse", "omit", "bound"]


class ComparisonOptions(TypedDict, total=False):
    """Keyword arguments that `compare` and `compare_tasks` share: fields of their settings."""

    examples: Examples
    resample: Resample
    num_bootstrap: int
    bootstrap_seed: int
    confidence: float
    draws: DrawOrder
    studentised: bool
    aggregate: Aggregate


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings that all comparisons of a family share; see `stats.compare`.

    Raises:
      DataError: a setting is not one of its choices, or out of range.
    """

    design: Design = "paired"
    examples: Examples = "shared"
    resample: Resample = "both"
    num_bootstrap: int = 1000
    bootstrap_seed: int = 42
    confidence: float = 0.95
    draws: DrawOrder = "keyed"
    studentised: bool = True
    aggregate: Aggregate = "mean"

    def __post_init__(self) -> None:
        check_choice("design", self.design, Design)
        check_choice("resample", self.resample, Resample)
        check_choice("examples", self.examples, Examples)
        check_choice("draws", self.draws, DrawOrder)
        check_choice("aggregate", self.aggregate, Aggregate)
        number = isinstance(self.confidence, int | float | np.floating)
        if not number or not 0 < self.confidence < 1:
            raise DataError(
                f"found confidence {self.confidence!r}, expected a number between 0 and 1"
            )
        check_num_bootstrap(self.num_bootstrap, self.confidence)
        check_whole("bootstrap_seed", self.bootstrap_seed)
        if self.examples == "separate" and self.design in ("single", "fixed_baseline"):
            raise DataError(
                f"found separate examples in a {self.design} design, expected a paired or unpaired "
                "one; use examples='shared'"
            )

    def options(self) -> ComparisonOptions:
        """Returns all settings but the design, as keyword arguments."""
        names = ComparisonOptions.__annotations__
        return cast("ComparisonOptions", {name: getattr(self, name) for name in names})
