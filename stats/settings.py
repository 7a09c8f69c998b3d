"""Settings of comparisons: the one place of their names, choices and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.significance import check_n_resamples, check_whole

Design = Literal["paired", "unpaired", "fixed_baseline", "single"]
DrawOrder = Literal["keyed", "published"]
# Resampled; the other is held fixed.
Resample = Literal["both", "seeds", "examples"]
Missing = Literal["refuse", "omit"]


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings that all comparisons of a family share; see `stats.compare`."""

    design: Design = "paired"
    resample: Resample | None = None  # as `checks.settings_of` infers it
    n_resamples: int = 1000
    rng: int = 42
    confidence_level: float = 0.95
    # `keyed`: streams of their own for each pool of seeds and set of examples; `published`: the single stream
    # of the published library, whose samples `multibootstrap` returns, too.
    draws: DrawOrder = "keyed"

    def __post_init__(self) -> None:
        check_choice("design", self.design, Design)
        if self.resample is not None:
            check_choice("resample", self.resample, Resample)
        number = isinstance(self.confidence_level, int | float | np.floating)
        if not number or not 0 < self.confidence_level < 1:
            raise DataError(
                f"found confidence_level {self.confidence_level!r}, expected a number between 0 and 1"
            )
        check_n_resamples(self.n_resamples, self.confidence_level)
        check_whole("rng", self.rng)

    @property
    def drawn(self) -> Resample:
        """Returns what is resampled, which `checks.settings_of` has filled in where it was not given."""
        return self.resample or "both"


def whole_number(rng: int | np.random.Generator) -> int:
    """Returns the number that names all draws: itself, or one from the generator's stream.

    Draws are addressed by a number, not taken from a stream, so that a result can record it and be
    repeated.
    """
    return int(rng.integers(2**32)) if isinstance(rng, np.random.Generator) else rng
