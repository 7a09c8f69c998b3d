"""Do the intervals of slices cover, and are slices without a difference of their own left alone?

    python -m multiberts.benchmarks.slice_calibration

Makes up studies of two arms, equal on every example or with one true difference on all, whose examples are
in five slices of 30 to 200. Prints how often a slice's interval holds the truth, how often any slice of
equal arms is found (Holm), and how often any is found to differ from the rest where none does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small

import numpy as np

from multiberts.benchmarks.made_up_arms import METRIC, World, arms_of, generators, report_shares
from multiberts.runs.command_line.command import run_command
from multiberts.stats.compare.question import ComparisonSpec, PreparedArms, kind_of
from multiberts.stats.compare.slices import SpecOf, sliced
from multiberts.stats.settings import ComparisonSettings, Design

SIZES = (30, 40, 60, 100, 200)
NAMES = np.repeat([f"{size}" for size in SIZES], SIZES)
WORLD = World("", 0.8, 0.1, num_examples=len(NAMES))


def study(
    design: Design, num_seeds: int, difference: float, random: np.random.Generator
) -> list[tuple[bool, bool, bool, bool]]:
    """Returns of each slice whether its interval covers, it is found, and it differs from the rest."""
    settings = ComparisonSettings(design=design)
    arms = arms_of(WORLD.arms(design, num_seeds, difference, random))
    spec_of = SpecOf(
        lambda chosen, name: ComparisonSpec(PreparedArms(tuple(chosen), METRIC), settings, name),
        METRIC,
        kind_of(METRIC),
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
                randoms = generators(simulation_seed, trials, design, num_seeds, difference)
                table = np.array(
                    [study(design, num_seeds, difference, random) for random in randoms]
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
    report_shares(records, 3)


if __name__ == "__main__":
    run_command(slice_calibration)
