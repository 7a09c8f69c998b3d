"""Measures time and peak memory for one arm of 25 seeds on a million examples, 1,000 replicates.

Prints CPU seconds of `stats.compare`, those of the plain loop (scaled up from a few replicates) and
the peak memory of the process in MB, imports and data included. `benchmarks.multibootstrap_speed` runs it in
a separate process, to measure nothing else. Linux only.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import xarray

from multiberts.runs import console
from multiberts.stats import compare

NUM_EXAMPLES = 1_000_000
NUM_SEEDS = 25
NUM_BOOTSTRAP = 1000
LOOP_REPLICATES = 3


def peak_megabytes() -> float:
    """Returns this process's peak memory in MB; that of `getrusage` includes the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak) / 1024


def main() -> None:
    """Prints our seconds, the loop's seconds and the peak memory."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, NUM_EXAMPLES).astype(np.uint8)
    predictions = np.empty((NUM_SEEDS, NUM_EXAMPLES), np.uint8)
    for row in predictions:
        row[:] = labels ^ (random.random(NUM_EXAMPLES) < 0.2)
    data = xarray.Dataset(
        {"prediction": (("run", "example"), predictions), "label": ("example", labels)},
        coords={"pretrain_seed": ("run", np.arange(NUM_SEEDS))},
    )
    start = time.process_time()
    compare(data, None, "accuracy", design="single", n_resamples=NUM_BOOTSTRAP)
    ours = time.process_time() - start
    peak = peak_megabytes()
    start = time.process_time()
    for _ in range(LOOP_REPLICATES):
        examples = random.integers(0, NUM_EXAMPLES, NUM_EXAMPLES)
        for row in predictions:
            np.mean(labels[examples] == row[examples])
    loop = (time.process_time() - start) * NUM_BOOTSTRAP / LOOP_REPLICATES
    console.report(f"{ours} {loop} {peak}")


if __name__ == "__main__":
    main()
