"""Names, choices and defaults of the settings of comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.significance import check_n_resamples, check_whole

Design = Literal["paired", "unpaired", "fixed_baseline", "single"]
DrawOrder = Literal["keyed", "published"]
# Resampled units; the other units are held fixed.
Resample = Literal["both", "seeds", "examples"]
Missing = Literal["refuse", "omit"]
# How it is known that runs of one seed belong together.
Pairing = Literal["parent", "seed number"]


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings shared by all comparisons of a family; see `stats.compare`."""

    # None: inferred by `checks.settings_of`
    design: Design | None = None
    resample: Resample | None = None
    n_resamples: int = 1000
    rng: int = 42
    confidence_level: float = 0.95
    # `keyed`: one stream per pool of seeds and set of examples, so draws do not depend on other
    # comparisons. `published`: the single stream of the published library, as in `multibootstrap`.
    draws: DrawOrder = "keyed"

    def __post_init__(self) -> None:
        check_choice("design", self.laid_out, Design)
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
        """Returns the resampled units, which `checks.settings_of` infers if they are not given."""
        return self.resample or "both"

    @property
    def laid_out(self) -> Design:
        """Returns the design, which `checks.settings_of` infers if it is not given."""
        return "paired" if self.design is None else self.design


def whole_number(rng: int | np.random.Generator) -> int:
    """Returns the number that identifies all draws: `rng`, or a number drawn from the generator.

    Draws depend only on this number, so that a result can record it and be repeated.
    """
    return int(rng.integers(2**32)) if isinstance(rng, np.random.Generator) else rng
