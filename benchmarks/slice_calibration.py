"""Do the intervals of slices cover, and are slices without a difference of their own left alone?

    python -m multiberts.benchmarks.slice_calibration

Makes up studies of two arms, equal on every example or with one true difference on all, whose examples are
in five slices of 30 to 200. Prints how often a slice's interval holds the truth, how often any slice of
equal arms is found (Holm), and how often any is found to differ from the rest where none does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small

import math
import zlib

import numpy as np
from scipy.special import ndtri

from multiberts.evaluate.metrics.register import METRICS
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command
from multiberts.stats.compare.question import ComparisonSpec, PreparedArms, kind_of
from multiberts.stats.compare.slices import SpecOf, sliced
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.runs_table import make_arm
from multiberts.stats.settings import ComparisonSettings, Design

SIZES = (30, 40, 60, 100, 200)
NAMES = np.repeat([f"{size}" for size in SIZES], SIZES)
ACCURACY = 0.8
SPREAD = 0.1  # standard deviation of seeds on the probit's scale, where noise has 1


def study(
    design: Design, num_seeds: int, difference: float, random: np.random.Generator
) -> list[tuple[bool, bool, bool, bool]]:
    """Returns of each slice whether its interval covers, it is found, and it differs from the rest."""
    settings = ComparisonSettings(design=design)
    metric, labels = METRICS["accuracy"], np.ones(len(NAMES))
    examples = random.normal(size=len(NAMES))
    common = random.normal(size=(num_seeds, 1)) if design == "paired" else 0.0
    root = math.sqrt(0.5) if design == "paired" else 1.0
    arms = []
    for accuracy in (ACCURACY, ACCURACY + difference):
        seeds = root * random.normal(size=(num_seeds, 1)) + root * common
        limit = ndtri(accuracy) * math.sqrt(2 + SPREAD**2) + examples + SPREAD * seeds
        table = (random.normal(size=(num_seeds, len(NAMES))) < limit).astype(float)
        arms.append(make_arm("", table, labels, list(range(num_seeds))))
    spec_of = SpecOf(
        lambda chosen, name: ComparisonSpec(PreparedArms(tuple(chosen), metric), settings, name),
        metric,
        kind_of(metric),
    )
    found = []
    for item in sliced(arms, spec_of, settings, "size", NAMES).slices:
        assert item.ci is not None and item.p_holm is not None
        covers = item.ci.low <= difference <= item.ci.high
        apart = item.against_rest_p_holm is not None and item.against_rest_p_holm < 0.05
        ends = item.against_rest_ci
        holds = ends is None or ends.low <= 0 <= ends.high
        found.append((covers, item.p_holm < 0.05, apart, holds))
    return found


def slice_calibration(*, trials: int = 1000, simulation_seed: int = 0) -> None:
    """Prints the table.

    Args:
      trials: studies per condition.
      simulation_seed: names the data, with the condition and the trial.
    """
    records = []
    for difference in (0.0, 0.05):
        for design in ("paired", "unpaired"):
            for num_seeds in (3, 5, 10):
                key = zlib.crc32(f"{design}{num_seeds}{difference}".encode())
                table = np.array(
                    [
                        study(
                            design,
                            num_seeds,
                            difference,
                            np.random.default_rng([simulation_seed, key, trial]),
                        )
                        for trial in range(trials)
                    ]
                )  # [trials, slices, 4]
                cover = dict(zip(SIZES, table[:, :, 0].mean(axis=0), strict=True))
                records.append(
                    {"difference": f"{100 * difference:g}", "design": design, "seeds": num_seeds}
                    | {f"covers, {size}": share for size, share in cover.items()}
                    | {
                        "any found": table[:, :, 1].any(axis=1).mean(),
                        "any apart": table[:, :, 2].any(axis=1).mean(),
                        "against the rest covers": table[:, :, 3].mean(),
                    }
                )
    formats = dict.fromkeys([*records[0]][3:], ".3f")
    console.report(Table.from_records(records, formats).markdown())


if __name__ == "__main__":
    run_command(slice_calibration)
