"""Measures the speed of the Multi-Bootstrap, compared with the usual methods.

    make bench-stats

Each row has the times of 1,000 replicates (seeds and examples), measured in one run, for

- ours: `stats.compare`, with its exact errors, intervals and tests;
- loop: a triple Python loop in the structure of the published library, with a NumPy score;
- library: the same loop calling scikit-learn's or SciPy's function;
- scipy: `scipy.stats.bootstrap` over indices of seeds and examples.

The slow ones are run for a few replicates and scaled up, which their cost allows (every replicate
is the same work). What counts are the ratios: the machine's speed cancels. Seconds are those of the
processor, of all threads, so that other work on the machine does not count; `make bench-stats` allows
linear algebra one thread, as several would be counted while they wait for each other.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas
import scipy.stats
import sklearn.metrics
import xarray
from numpy.typing import NDArray

from multiberts.runs import console
from multiberts.stats import TaskData, compare, compare_tasks, multibootstrap
from multiberts.stats.reading import arm_of

NUM_BOOTSTRAP = 1000
NUM_EXAMPLES = 10_000
NUM_SEEDS = 25
REPEATS = 3


class Row(NamedTuple):
    """CPU seconds for 1,000 replicates; None if a method was not timed."""

    case: str
    ours: float
    loop: float | None
    library: float | None
    scipy: float | None
    target: str
    met: bool


def runs(runs_a_seed: int, data_key: int, continuous: bool = False) -> xarray.Dataset:
    """Simulates predictions of 25 seeds on 10,000 examples."""
    random = np.random.default_rng([data_key, 1])
    labels = np.random.default_rng(0).integers(0, 2, NUM_EXAMPLES)
    shape = (NUM_SEEDS * runs_a_seed, NUM_EXAMPLES)
    predictions = np.where(random.random(shape) < 0.8, labels, 1 - labels)
    if continuous:
        predictions = predictions + random.normal(size=shape)
    return xarray.Dataset(
        {"prediction": (("run", "example"), predictions), "label": ("example", labels)},
        coords={
            "pretrain_seed": ("run", np.repeat(np.arange(NUM_SEEDS), runs_a_seed)),
            "finetune_seed": ("run", np.tile(np.arange(runs_a_seed), NUM_SEEDS)),
        },
    )


def seconds(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """Returns the smallest of several timings, after a warm-up run."""
    function()
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return float(best)


def looped(sides: list[xarray.Dataset], score: Callable, replicates: int) -> float:
    """Returns the seconds for 1,000 replicates of the plain loop, extrapolated from a few."""
    arrays = [(side["label"].to_numpy(), side["prediction"].to_numpy()) for side in sides]
    rows = [
        [np.flatnonzero(side["pretrain_seed"].to_numpy() == seed) for seed in range(NUM_SEEDS)]
        for side in sides
    ]
    random = np.random.RandomState(0)
    start = time.process_time()
    for _ in range(replicates):
        drawn = random.choice(NUM_SEEDS, NUM_SEEDS)
        examples = random.choice(NUM_EXAMPLES, NUM_EXAMPLES)
        for (labels, predictions), members in zip(arrays, rows, strict=True):
            np.mean(
                [
                    np.mean(
                        [score(labels[examples], predictions[run, examples]) for run in runs_of]
                    )
                    for runs_of in (members[seed] for seed in drawn)
                ]
            )
    return (time.process_time() - start) * NUM_BOOTSTRAP / replicates


def by_scipy(sides: list[xarray.Dataset], score: Callable, replicates: int) -> float:
    """Returns the seconds for 1,000 replicates of `scipy.stats.bootstrap`, extrapolated from a few."""
    arrays = [
        (
            side["label"].to_numpy(),
            side["prediction"].to_numpy().reshape(NUM_SEEDS, -1, NUM_EXAMPLES),
        )
        for side in sides
    ]

    def statistic(drawn: NDArray, examples: NDArray) -> float:
        means = [
            np.mean(
                [
                    score(labels[examples], row[examples])
                    for seed in drawn
                    for row in predictions[seed]
                ]
            )
            for labels, predictions in arrays
        ]
        return float(means[-1] - means[0]) if len(means) > 1 else float(means[0])

    start = time.process_time()
    scipy.stats.bootstrap(
        (np.arange(NUM_SEEDS), np.arange(NUM_EXAMPLES)),
        statistic,
        n_resamples=replicates,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return (time.process_time() - start) * NUM_BOOTSTRAP / replicates


def accuracy(labels: NDArray, predictions: NDArray) -> float:
    """Returns accuracy by NumPy."""
    return float(np.mean(labels == predictions))


def f1(labels: NDArray, predictions: NDArray) -> float:
    """Returns F1 by NumPy."""
    return float(2 * np.sum(labels * predictions) / (np.sum(labels) + np.sum(predictions)))


def matthews(labels: NDArray, predictions: NDArray) -> float:
    """Returns Matthews' correlation by NumPy."""
    return float(np.corrcoef(labels, predictions)[0, 1])


def both(labels: NDArray, predictions: NDArray) -> float:
    """Returns the sum of F1 and Matthews' correlation."""
    return f1(labels, predictions) + matthews(labels, predictions)


def both_by_library(labels: NDArray, predictions: NDArray) -> float:
    """Returns the same sum by scikit-learn."""
    return sklearn.metrics.f1_score(labels, predictions) + sklearn.metrics.matthews_corrcoef(
        labels, predictions
    )


def pearson_by_library(labels: NDArray, predictions: NDArray) -> float:
    """Returns Pearson's correlation by SciPy."""
    return float(scipy.stats.pearsonr(labels, predictions)[0])


def times_faster(ours: float, other: float | None) -> float:
    """Returns the factor by which ours is faster; 0 if the other time is missing."""
    return 0.0 if other is None else other / ours


def bench() -> list[Row]:
    """Returns all rows of the table except that for a million examples."""
    rows = []
    arm_runs = runs(1, 0)
    ours = seconds(lambda: compare(arm_runs, None, "accuracy", design="single"))
    loop = looped([arm_runs], accuracy, 40)
    library = looped([arm_runs], sklearn.metrics.accuracy_score, 6)
    by_index = by_scipy([arm_runs], accuracy, 40)
    met = times_faster(ours, loop) >= 15 and times_faster(ours, library) >= 150
    rows.append(
        Row("25 seeds, accuracy", ours, loop, library, by_index, "15x loop, 150x library", met)
    )

    pair = [runs(5, 0), runs(5, 1)]
    ours = seconds(lambda: compare(pair[0], pair[1], "accuracy"))
    loop, library = looped(pair, accuracy, 8), looped(pair, sklearn.metrics.accuracy_score, 2)
    by_index = by_scipy(pair, accuracy, 8)
    met = times_faster(ours, loop) >= 40 and times_faster(ours, library) >= 600
    rows.append(Row("2 x 25 x 5 runs, accuracy", ours, loop, library, by_index, "40x, 600x", met))

    tasks = {
        name: TaskData(pair[0], pair[1], name, examples_of="dev") for name in ("f1", "matthews")
    }
    ours = seconds(lambda: compare_tasks(tasks), 2)
    loop, library = looped(pair, both, 4), looped(pair, both_by_library, 1)
    by_index = by_scipy(pair, both, 4)
    met = times_faster(ours, library) >= 1000
    rows.append(
        Row("2 x 25 x 5 runs, F1 + MCC", ours, loop, library, by_index, "1000x library", met)
    )

    scores = [runs(5, 0, continuous=True), runs(5, 1, continuous=True)]
    ours = seconds(lambda: compare(scores[0], scores[1], "pearson"), 2)
    loop, library = looped(scores, matthews, 4), looped(scores, pearson_by_library, 2)
    by_index = by_scipy(scores, matthews, 4)
    met = times_faster(ours, library) >= 200
    rows.append(Row("2 x 25 x 5 runs, Pearson", ours, loop, library, by_index, "200x library", met))

    arm = arm_of("base", arm_runs)
    right = (arm.predictions == arm.labels).astype(float)
    ours = seconds(lambda: exact_error(right), 10)
    rows.append(Row("exact standard error, 25 x 10k", ours, None, None, None, "5 ms", ours < 5e-3))
    rows.append(published_stream())
    return rows


def exact_error(table: NDArray[np.float64]) -> float:
    """Returns the exact standard error of the bootstrap."""
    from multiberts.stats.variance.crossing import Crossing
    from multiberts.stats.variance.score_tables import TablePart, score_table

    crossing = Crossing([TablePart(score_table(table), 1.0, "seeds", "examples")])
    return float(np.sqrt(crossing.bootstrap_variance()))


def published_stream() -> Row:
    """Times the drop-in function with the published draws, after a check against the plain loop."""
    sides = [runs(1, 0), runs(1, 1)]
    run_info = pandas.DataFrame(
        {"seed": [*range(NUM_SEEDS)] * 2, "intervention": np.repeat([False, True], NUM_SEEDS)}
    )
    predictions = np.concatenate([side["prediction"] for side in sides])
    labels = sides[0]["label"].to_numpy()

    def ours(replicates: int = NUM_BOOTSTRAP) -> NDArray:
        return np.array(
            multibootstrap(
                run_info, predictions, labels, "accuracy", True, nboot=replicates, rng=42,
                verbose=False,
            )
        )  # fmt: skip

    random = np.random.RandomState(42)
    start, expected, replicates = time.process_time(), [], 20
    for _ in range(replicates):
        drawn = random.choice(NUM_SEEDS, size=NUM_SEEDS, replace=True)
        examples = random.choice(NUM_EXAMPLES, size=NUM_EXAMPLES, replace=True)
        expected.append(
            [
                np.mean([accuracy(labels[examples], predictions[arm + s, examples]) for s in drawn])
                for arm in (0, NUM_SEEDS)
            ]
        )
    loop = (time.process_time() - start) * NUM_BOOTSTRAP / replicates
    apart = float(np.abs(ours(replicates) - expected).max())
    elapsed = seconds(ours)
    case = f"published stream, 2 x 25 (|ours - loop| {apart:.0e})"
    return Row(case, elapsed, loop, None, None, "0.5 s, 1e-12", elapsed < 0.5 and apart < 1e-12)


def main() -> None:
    """Prints the table of times."""
    console.report(
        f"{NUM_BOOTSTRAP} replicates; CPU seconds, and how many times slower than ours\n"
    )
    console.report(f"{'case':<58}{'ours':>9}{'loop':>9}{'library':>9}{'scipy':>9}   target")
    for row in bench():
        others = "".join(
            f"{'-' if other is None else f'{other / row.ours:.0f}x':>9}"
            for other in (row.loop, row.library, row.scipy)
        )
        verdict = "met" if row.met else "MISSED"
        console.report(f"{row.case:<58}{row.ours:>8.4f}s{others}   {row.target}: {verdict}")
    command = [sys.executable, "-m", "benchmarks.multibootstrap_memory"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ours, loop, peak = (float(value) for value in out.split())
    case = f"25 seeds, 1M examples, accuracy: peak memory {peak:.0f} MB"
    verdict = "met" if peak < 300 else "MISSED"
    console.report(
        f"{case:<58}{ours:>8.1f}s{loop / ours:>8.0f}x{'-':>9}{'-':>9}   300 MB in all: {verdict}"
    )


if __name__ == "__main__":
    main()
