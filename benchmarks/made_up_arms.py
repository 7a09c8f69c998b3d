"""Made-up studies of two arms whose true difference is known, and a simulation's table."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from multiberts.evaluate.metrics.register import METRICS
from multiberts.runs import console
from multiberts.stats.compare.conclude import Names
from multiberts.stats.compare.question import ArmSummary, ComparisonSpec, PreparedArms
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.runs_table import Arm, make_arm
from multiberts.stats.settings import ComparisonSettings, Design

METRIC = METRICS["accuracy"]


@dataclass(frozen=True)
class World:
    """Studies of two arms: 0/1 answers by a probit of seed, example and noise.

    Attributes:
      name: in the table.
      accuracy: of the base.
      spread: standard deviation of seeds, on the probit's scale, where noise has 1.
      margin: in points; NaN where none is asked for.
      num_examples: in both arms.
    """

    name: str
    accuracy: float
    spread: float
    margin: float = math.nan
    num_examples: int = 500

    def arms(
        self, design: Design, num_seeds: int, difference: float, random: np.random.Generator
    ) -> list[NDArray]:
        """Returns the answers of both arms [seeds, examples]; paired seeds share half of their variance."""
        examples, noise = random.normal(size=self.num_examples), (num_seeds, self.num_examples)
        common = random.normal(size=(num_seeds, 1)) if design == "paired" else 0.0
        root = math.sqrt(0.5) if design == "paired" else 1.0
        arms = []
        for accuracy in (self.accuracy, self.accuracy + difference):
            centre = ndtri(accuracy) * math.sqrt(2 + self.spread**2)
            seeds = root * random.normal(size=(num_seeds, 1)) + root * common
            limit = centre + examples + self.spread * seeds
            arms.append((random.normal(size=noise) < limit).astype(float))
        return arms


def generators(
    simulation_seed: int, trials: int, *condition: object
) -> Iterator[np.random.Generator]:
    """Yields a generator for each trial, named by the condition."""
    key = zlib.crc32("".join(map(str, condition)).encode())
    for trial in range(trials):
        yield np.random.default_rng([simulation_seed, key, trial])


def arms_of(tables: Sequence[NDArray]) -> list[Arm]:
    """Makes an arm of each table of right answers [seeds, examples]."""
    return [
        make_arm("", table, np.ones(table.shape[1]), list(range(len(table)))) for table in tables
    ]


def compared(
    tables: Sequence[NDArray], settings: ComparisonSettings
) -> tuple[ComparisonSpec, list[ArmSummary]]:
    """Returns the comparison of two tables of right answers, and each arm's summary."""
    spec = ComparisonSpec(PreparedArms(tuple(arms_of(tables)), METRIC), settings, "")
    return spec, spec.summaries(np.zeros((1, 2)), Names(), settings)


def report_shares(records: list[dict[str, Any]], num_conditions: int, **formats: str) -> None:
    """Prints a row per condition.

    Args:
      records: cells by column.
      num_conditions: columns that say which condition it is; the others have shares.
      formats: of columns without shares.
    """
    shares = dict.fromkeys([*records[0]][num_conditions:], ".3f")
    console.report(Table.from_records(records, shares | formats).markdown())
