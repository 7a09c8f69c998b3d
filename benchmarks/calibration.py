"""Measures coverage of 95 % intervals and rates of false claims; run it after each change of an interval.

    make calibrate

Simulates studies with a known truth in all `CONDITIONS`, and analyses them with the public functions of
`multiberts.stats`; the results are in `docs/calibration.md`. An interrupted run resumes with the missing
cells (a cell is a condition with a number of seeds); counts do not depend on the number of processes. To
measure another version, run this file with the folder of that `multiberts` on PYTHONPATH.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: many processes with small tables

import hashlib
import json
import math
import multiprocessing
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from multiberts import stats
from multiberts.report.presentation.table_writer import Table
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command
from multiberts.runs.console import ProgressBar
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically

WANTED, LEVEL = 0.93, 0.05
DRAWS = 39  # the minimum, as recommended intervals use no bootstrap samples
Random = np.random.Generator


# --- Worlds: each makes a study from a generator and a number of seeds -------------------------------------


class Study(NamedTuple):
    """Arms [seeds, examples] (a pair per task), the truth for new data, and options of `stats.compare`."""

    arms: list[NDArray]
    truth: float
    options: dict[str, Any]


World = Callable[[Random, int], Study]


def seed_effects(tail: str, u: NDArray) -> NDArray:
    """Returns the quantiles at `u` of a distribution with mean 0 and variance 1."""
    if tail == "skewed":  # exponential, with a tail of bad seeds
        return 1 + np.log(u)
    return np.where(u < 0.5, -1.0, 1.0) if tail == "two kinds" else ndtri(u)


@cache
def centre_of(accuracy: float, seeds: float, examples: float, tail: str, paired: bool) -> float:
    """Returns the centre of logits for which answers with these effects have the given accuracy."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    of_seeds, shares = {
        "skewed": np.polynomial.laguerre.laggauss(60),
        "two kinds": (np.array([-1.0, 1.0]), np.ones(2)),
    }.get(tail, (nodes, weights))
    of_seeds = 1 - of_seeds if tail == "skewed" else of_seeds
    if paired and tail != "normal":
        of_seeds = np.add.outer(of_seeds, of_seeds).ravel() / math.sqrt(2)
        shares = np.outer(shares, shares).ravel()

    def excess(centre: float) -> float:
        right = expit(centre + seeds * of_seeds[:, None] + examples * nodes) @ weights
        return float(shares @ right / shares.sum() / weights.sum()) - accuracy

    return float(brentq(excess, -20, 30))


def answers(
    random: Random, num_seeds: int, *, design: str = "paired", metric: str = "accuracy",
    accuracy: float = 0.8, size: int = 100, seeds: float = 0.3, examples: float = 1.0, tail: str = "normal",
    failing: tuple[float, float] = (0.0, 0.0), lead: float = 0.0, positives: int = 0,
    cluster_sd: float | None = None, num_clusters: int = 0,
) -> Study:  # fmt: skip
    """Simulates right and wrong answers with the logit centre + seed + example.

    Paired arms share half of the seeds' variance, and all arms share four fifths of the examples' variance.
    `seeds` and `examples` are standard deviations; `tail` is the distribution of the seeds. `accuracy` is
    that of seeds that do not fail, on the positives if `positives` is given (accuracy on negatives is then
    .99; otherwise labels alternate 0 and 1); the experiment's accuracy is higher by `lead`. `failing` is the
    probability by arm that a seed always answers 1. `cluster_sd` is the standard deviation of the logarithm
    of clusters' sizes; clusters then have seven tenths of the examples' variance.
    """
    options: dict[str, Any] = {"design": design, "metric": metric}
    clusters = np.arange(size)
    if cluster_sd is not None:
        logs = cluster_sd * random.standard_normal(num_clusters)
        sizes = np.maximum(1, np.rint(size / num_clusters * np.exp(logs))).astype(int)
        options["clusters"] = clusters = np.repeat(np.arange(num_clusters), sizes)
    indices = np.arange(len(clusters))
    labels = (indices < positives if positives else indices % 2).astype(int)

    def of_examples() -> NDArray:
        effects = random.standard_normal(len(indices))
        if cluster_sd is None:
            return effects
        return (
            math.sqrt(0.3) * effects
            + math.sqrt(0.7) * random.standard_normal(len(indices))[clusters]
        )

    common, u, arms = of_examples(), random.random((3, num_seeds, 1)), []
    for arm in range(1 if design == "single" else 2):
        effects = seed_effects(tail, u[arm])
        if design == "paired":
            effects = (effects + seed_effects(tail, u[2])) / math.sqrt(2)
        hard = math.sqrt(0.8) * common + math.sqrt(0.2) * of_examples()
        law = seeds, examples, tail, design == "paired"
        centre: Any = centre_of(accuracy + arm * lead, *law)
        if positives:
            centre = np.where(labels == 1, centre, centre_of(0.99, *law))
        chance = expit(centre + seeds * effects + examples * hard)
        predictions = np.where(random.random(chance.shape) < chance, labels, 1 - labels)
        predictions[random.random(num_seeds) < failing[arm]] = 1
        arms.append(predictions)
    base, experiment = (
        score - failing[arm] * (score - 0.5)
        for arm, score in enumerate((accuracy, accuracy + lead))
    )
    return Study(
        arms, base if design == "single" else experiment - base, options | {"labels": labels}
    )


def scores(
    random: Random, num_seeds: int, *, design: str = "paired", tail: str = "normal", spread: float = 1.0,
    shares: tuple[float, float, float] = (0.99, 0.005, 0.005), lead: float = 0.0, size: int = 100,
) -> Study:  # fmt: skip
    """Simulates real scores, with given shares of seeds, examples and residual in a mean's variance.

    Paired arms differ by one such table; `spread` multiplies the effects of the experiment's seeds.
    """

    def table(spread: float) -> NDArray:
        scales = np.sqrt(np.multiply(shares, (num_seeds, size, num_seeds * size)))
        effects = spread * scales[0] * seed_effects(tail, random.random((num_seeds, 1)))
        effects = effects + scales[1] * random.standard_normal(size)
        return effects + scales[2] * random.standard_normal((num_seeds, size))

    experiment, arms = table(spread), []
    if design == "unpaired":
        arms = [table(1.0)]
    elif design == "paired":
        arms = [random.standard_normal((num_seeds, size))]
        experiment = experiment + arms[0]
    return Study([*arms, experiment + lead], lead, {"design": design})


def correlated(random: Random, num_seeds: int, *, metric: str) -> Study:
    """Simulates two paired arms; the correlation with labels (classes for the AUC) varies by seed."""
    labels: NDArray = random.standard_normal(100)
    if metric == "auc":
        labels = np.arange(100) % 2
    z, hard, arms = random.standard_normal((3, num_seeds, 1)), random.standard_normal(100), []
    for arm in range(2):
        r = np.tanh(0.8 + 0.2 * (z[arm] + z[2]) / math.sqrt(2))
        noise = random.standard_normal((num_seeds, 100)) + hard
        arms.append(r * labels + np.sqrt((1 - r**2) / 2) * noise)
    return Study(arms, 0.0, {"metric": metric, "labels": labels})


def differing(random: Random, num_seeds: int, *, missing: bool = False, **options: Any) -> Study:
    """Simulates arms that differ on a few of 100 examples, in four of five seeds of the experiment.

    With `missing` the experiment lacks one prediction; a fixed baseline has one run.
    """
    gained, lost = 0.005, 0.02
    options |= {"metric": "accuracy", "labels": np.arange(100) % 2}
    fixed = options.get("design") == "fixed_baseline"
    base = random.random((1 if fixed else num_seeds, 100)) < 0.7
    u, differs = random.random(100), random.random((num_seeds, 100)) < 0.8
    gains, loses = u < gained, u > 1 - lost
    base = (base | loses) & ~gains
    right = np.where(differs & (gains | loses), ~base, base)
    arms = [np.where(side, options["labels"], 1 - options["labels"]) for side in (base, right)]
    if missing:
        arms[1] = arms[1].astype(float)
        arms[1][random.integers(num_seeds), random.integers(100)] = np.nan
        options["missing"] = "omit"
    return Study(arms, 0.8 * (gained - lost), options)


def at_the_edge(random: Random, num_seeds: int, *, world: World, unit: float = 100.0) -> Study:
    """Sets the margin to the true difference of an experiment that is worse."""
    study = world(random, num_seeds)
    return study._replace(options=study.options | {"margin": -unit * study.truth})


def borrowing(random: Random, num_seeds: int, *, factor: float) -> Study:
    """Simulates a base with one seed, and a multiple of the spread of 25 seeds on other examples."""
    study = answers(random, num_seeds, design="unpaired", size=500)
    (others,), _, options = answers(random, 25, design="single", size=500)
    sd = 100 * factor * (others == options["labels"]).mean(axis=1).std(ddof=1)
    spread = stats.SeedSpread(sd, 24, "other seeds")
    return Study([study.arms[0][:1], study.arms[1]], 0.0, study.options | {"seed_sd": spread})


def in_slices(random: Random, num_seeds: int) -> Study:
    """Cuts 430 examples into slices of five sizes."""
    study = answers(random, num_seeds, size=430)
    return study._replace(
        options=study.options | {"by": np.repeat([*"abcde"], (30, 40, 60, 100, 200))}
    )


def published(random: Random, num_seeds: int, *, world: World) -> Study:
    """Uses the mean of five more runs on the same examples as the published number."""
    (table,), _, options = world(random, num_seeds + 5)
    runs, number = table[:num_seeds], (table[num_seeds:] == options["labels"]).mean()
    if np.ptp((runs == options["labels"]).mean(axis=1)) == 0:
        runs[0, 0] = 1 - runs[0, 0]  # `stats.reproduce` refuses seeds that do not vary
    return Study([runs], number, options)


def tasks(random: Random, num_seeds: int) -> Study:
    """Simulates five tasks with half of the seeds' variance in common."""
    common = math.sqrt(0.3 * num_seeds) * random.standard_normal((num_seeds, 1))
    world = partial(scores, design="single", shares=(0.3, 0.3, 0.1))
    tables = [common + world(random, num_seeds).arms[0] for _ in range(5)]
    return Study([side for table in tables for side in (0.1 * table, 1.1 * table)], 0.0, {})


def benchmark(random: Random, num_seeds: int, *, seeds: float = 0.3) -> Study:
    """Simulates four tasks of different sizes and metrics, one with the mean of two metrics, as in GLUE."""
    metrics = (("accuracy", "f1"), "accuracy", "matthews", "accuracy")
    studies = [answers(random, num_seeds, size=size, seeds=seeds) for size in (60, 120, 200, 300)]
    options = {"labels": [study.options["labels"] for study in studies], "metrics": metrics}
    return Study([arm for study in studies for arm in study.arms], 0.0, options)


def models(random: Random, num_seeds: int) -> Study:
    """Simulates six equal arms with different seeds."""
    studies = [answers(random, num_seeds, design="unpaired") for _ in range(3)]
    return Study([arm for study in studies for arm in study.arms], 0.0, studies[0].options)


# --- Questions about a study -----------------------------------------------------------------


class Verdict(NamedTuple):
    """Intervals for the truth, whether each false claim was made, and whether a seed was flagged."""

    intervals: list[Any]
    claims: dict[str, bool]
    flagged: bool = False


def comparison(arms: Sequence[NDArray], seed_sd: Any = None, **options: Any) -> Any:
    """Calls `stats.compare` with one arm or two, and `stats.one_seed` if a spread is borrowed."""
    base, experiment = (*arms, None)[:2]
    if seed_sd is None:
        return stats.compare(base, experiment, n_resamples=DRAWS, **options)
    result = stats.compare(base, experiment, n_resamples=DRAWS, resample="examples", **options)
    return stats.one_seed(result, seed_sd).comparison


def compared(study: Study) -> Verdict:
    """Computes one interval and, with a margin, tests of equality and non-inferiority."""
    options = dict(study.options)
    margin = options.pop("margin", None)
    result = comparison(study.arms, **options)
    claims = {}
    if study.truth == 0 and result.p_value is not None:
        claims["p < .05"] = result.p_value < LEVEL
    if margin is not None:
        answer = stats.same(result, margin)
        claims = {"not worse": answer.not_worse, "same": answer.same}
    sides = [side for side in (result.base, result.experiment) if side is not None]
    return Verdict([result.ci], claims, any(side.failed_seeds for side in sides))


def compared_by_slice(study: Study) -> Verdict:
    """Computes slices and tests whether any differs, or differs from the other examples (Holm)."""
    options = dict(study.options)
    kinds = options.pop("by")
    by = stats.slices(comparison(study.arms, **options), kinds)
    p_values = zip(*((item.p_holm, item.against_rest_p_holm) for item in by.slices), strict=True)
    alone, apart = (any(p is not None and p < LEVEL for p in each) for each in p_values)
    return Verdict(
        [item.ci for item in by.slices], {"a slice": alone, "apart from the rest": apart}
    )


def compared_tasks(study: Study) -> Verdict:
    """Calls `stats.compare_tasks` for the macro-average and tests whether any task differs (Holm)."""
    pairs = [*zip(study.arms[::2], study.arms[1::2], strict=True)]
    unknown = [None] * len(pairs)
    labels, metrics = (study.options.get(name, unknown) for name in ("labels", "metrics"))
    family = {
        str(number): stats.TaskData(*pair, metrics[number], labels[number])
        for number, pair in enumerate(pairs)
    }
    tasks = stats.compare_tasks(family, n_resamples=DRAWS)
    mean, p_values = tasks.macro_average, tasks.adjusted["holm"]
    claims = {
        "a task": min(p_values) < LEVEL,
        "their mean": mean.p_value is not None and mean.p_value < LEVEL,
    }
    return Verdict([mean.ci], claims)


def compared_arms(study: Study) -> Verdict:
    """Calls `stats.compare_arms`, whose intervals are simultaneous."""
    arms = {str(number): arm for number, arm in enumerate(study.arms)}
    differences = stats.compare_arms(arms, **study.options, n_resamples=DRAWS).differences
    is_any_clear = any(item.clear for item in differences)
    return Verdict([item.ci for item in differences], {"any clear": is_any_clear})


def reproduced(study: Study) -> Verdict:
    """Calls `stats.reproduce` with the mean of five runs."""
    metric, labels = study.options["metric"], study.options["labels"]
    runs = stats.compare(
        study.arms[0], None, metric, design="single", resample="seeds", labels=labels,
        n_resamples=DRAWS,
    )  # fmt: skip
    answer = stats.reproduce(runs, study.truth, "mean:5")
    claims = {"p < .05": answer.p_value < LEVEL}
    return Verdict([answer.ci], claims, bool(runs.base.failed_seeds))


# --- Conditions ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """Simulated data with numbers of seeds, a question, and the reason for low coverage given in docs."""

    kind: str
    name: str
    world: World
    seeds: tuple[int, ...] = (2, 3, 5, 10)
    reason: str = ""
    ask: Callable[[Study], Verdict] = compared

    @property
    def title(self) -> str:
        """Returns the name in counts and page, which also seeds the data."""
        return f"{self.kind}: {self.name}"


FEW, BOTH, DESIGNS = (3, 5, 10), ("single", "paired"), ("single", "paired", "unpaired")
UNSEEN, TAIL = "failures that these seeds do not show", "seeds whose scores have a tail"
single = partial(answers, design="single")
fails = partial(single, accuracy=0.85, size=200, failing=(0.1, 0.0))
one_side_fails = partial(answers, accuracy=0.85, size=200, failing=(0.0, 0.1))
C = Condition
# fmt: off
CONDITIONS = [
    *(C("ordinary", f"accuracy .8, {design}", partial(answers, design=design), seeds)
      for design, seeds in zip(DESIGNS, ((2, 3, 5, 10), (2, 3, 5, 10), (2, 3, 5)), strict=True)),
    *(C("ordinary", f"accuracy .8, {design}, 500 examples", partial(answers, design=design, size=500), (3, 5))
      for design in DESIGNS),
    C("ordinary", "mean of scores, paired, seeds dominate", scores),
    C("ordinary", "mean of scores, paired, shares equal", partial(scores, shares=(1 / 3, 1 / 3, 1 / 3)), FEW),
    *(C("ordinary", f"{metric}, paired", partial(correlated, metric=metric), seeds)
      for metric, seeds in (("pearson", (3, 10)), ("spearman", (3,)), ("auc", (3,)))),
    C("ordinary", "matthews, paired", partial(answers, metric="matthews"), (3, 10)),
    C("near the ends", "accuracy .993, 50 examples, single", partial(single, accuracy=0.993, size=50)),
    *(C("near the ends", f"accuracy .97, logits of seeds vary by 1.2, 1,000 examples, {design}",
        partial(answers, design=design, accuracy=0.97, seeds=1.2, size=1000), FEW, TAIL) for design in BOTH),
    C("near the ends", "arms differ on 2 of 100 examples, paired", differing, FEW),
    C("one missing cell", "arms differ on 2 of 100 examples, paired", partial(differing, missing=True), FEW),
    *(C("unlike seeds", f"unpaired, ratio of standard deviations {ratio}",
        partial(scores, design="unpaired", spread=ratio), (2, 3, 5),
        "two seeds of either side that look alike by chance") for ratio in (3, 10, 20)),
    *(C("clusters", f"{name}, {design}",
        partial(answers, design=design, size=10 * number, cluster_sd=sd, num_clusters=number), (10,))
      for name, number, sd in (("24 of like sizes", 24, 0.0), ("48, sd of log size 0.7", 48, 0.7),
                               ("30, sd of log size 1.2", 30, 1.2), ("10, sd of log size 1.0", 10, 1.0))
      for design in BOTH),
    *(C("few positives", f"{name}, {number} of 200, {design}",
        partial(answers, design=design, metric=name.lower(), size=200, positives=number), (3, 10))
      for name, design in (("recall", "single"), ("F1", "paired")) for number in (6, 20)),
    *(C("seeds vary much", f"accuracy .78, logits of seeds by 1, 400 examples, {design}",
        partial(answers, design=design, accuracy=0.78, seeds=1.0, size=400), FEW, TAIL) for design in BOTH),
    *(C("skewed seeds", f"tail to bad ones, {design}", partial(scores, design=design, tail="skewed"),
        reason=TAIL) for design in BOTH),
    C("seeds of two kinds", "half of each, single", partial(scores, design="single", tail="two kinds"),
      (2, 3, 5), "seeds that happen to be of one kind"),
    C("failing", "one seed in ten, single", fails, FEW, UNSEEN),
    C("failing", "one seed in ten of the experiment, paired", one_side_fails, FEW, UNSEEN),
    C("one against one", "arms differ on 2 of 100 examples", partial(differing, resample="examples"), (1,)),
    C("fixed baseline", "arms differ on 2 of 100 examples", partial(differing, design="fixed_baseline"), FEW),
    *(C("margin's edge", name, partial(at_the_edge, world=world, unit=unit), FEW, reason)
      for name, world, unit, reason in (
          ("seeds vary, paired", partial(answers, size=500, lead=-0.05), 100, ""),
          ("skewed seeds, paired", partial(scores, tail="skewed", lead=-1.0), 1, TAIL),
          ("one seed in ten of the experiment fails, paired", one_side_fails, 100, UNSEEN))),
    C("slices", "five of 30 to 200 examples, paired", in_slices, (5,), ask=compared_by_slice),
    C("borrowed spread", "true, against 1 or 5 seeds", partial(borrowing, factor=1.0), (1, 5)),
    C("borrowed spread", "half the true one, against 1 or 5 seeds", partial(borrowing, factor=0.5), (1, 5),
      "spread of runs unlike yours"),
    *(C("reproduction", f"mean of five runs, {name}", partial(published, world=world), FEW, reason,
        reproduced)
      for name, world, reason in (
          ("ordinary", partial(single, size=500), ""),
          ("skewed seeds", partial(single, size=500, seeds=1.0, tail="skewed"), TAIL),
          ("one run in ten fails", fails, UNSEEN))),
    C("tasks", "five true hypotheses, paired", tasks, (5,), ask=compared_tasks),
    C("tasks", "four of 60 to 300 examples, one by two metrics, paired", benchmark, FEW, ask=compared_tasks),
    C("tasks", "the same, one run of each, models alike", partial(benchmark, seeds=0.0), (1,),
      ask=compared_tasks),
    C("arms", "six equal ones, unpaired", models, (3,), ask=compared_arms),
]
# fmt: on


# --- Counts ----------------------------------------------------------------------------------------------


@dataclass
class Counts:
    """Counts over the trials of a cell: intervals, false claims, flagged seeds; `width` is a median."""

    condition: str
    seeds: int
    trials: int
    intervals: int = 0
    covered: int = 0
    below: int = 0
    above: int = 0
    width: float = 0.0
    methods: dict[str, int] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)
    flagged: int = 0
    flagged_misses: int = 0

    @property
    def coverage(self) -> float:
        """Returns the share of intervals that contain the truth."""
        return self.covered / self.intervals

    @property
    def is_low(self) -> bool:
        """Returns whether coverage is below the target by more than its Monte Carlo error."""
        return self.coverage < WANTED - monte_carlo_error(WANTED, self.trials)


def monte_carlo_error(share: float, trials: int) -> float:
    """Returns the standard error of a share of trials."""
    return math.sqrt(share * (1 - share) / trials)


def simulate(condition: Condition, num_seeds: int, num_trials: int, simulation_seed: int) -> Counts:
    """Simulates trials, each with a separate generator, and counts their results."""
    counts = Counts(condition.title, num_seeds, num_trials)
    methods, claims, widths = Counter[str](), Counter[str](), []
    for trial in range(num_trials):
        key = [simulation_seed, zlib.crc32(condition.title.encode()), num_seeds, trial]
        study = condition.world(np.random.default_rng(key), num_seeds)
        verdict = condition.ask(study)
        ends = np.array([(low, high) for low, high in verdict.intervals])
        below, above = (ends[:, 1] < study.truth).sum(), (ends[:, 0] > study.truth).sum()
        counts.intervals += len(ends)
        counts.covered += len(ends) - int(below + above)
        counts.below += int(below)
        counts.above += int(above)
        widths.extend(ends[:, 1] - ends[:, 0])
        methods.update(interval.method for interval in verdict.intervals)
        claims.update({claim: int(is_made) for claim, is_made in verdict.claims.items()})
        counts.flagged += verdict.flagged
        counts.flagged_misses += int(verdict.flagged and below + above > 0)
    counts.width = float(f"{np.median(widths):.4g}")
    counts.methods, counts.claims = dict(methods), dict(claims)
    return counts


def simulate_and_keep(
    directory: Path, num_trials: int, simulation_seed: int, cell: tuple[int, int]
) -> None:
    """Simulates a cell (index of the condition, number of seeds), unless its counts exist."""
    number, num_seeds = cell
    file = directory / "cells" / f"{number}-{num_seeds}.json"
    if not file.exists():
        counts = simulate(CONDITIONS[number], num_seeds, num_trials, simulation_seed)
        write_atomically(file, json.dumps(asdict(counts)) + "\n")


def calibrate(
    *,
    run_dir: str = "results/calibration",
    simulation_seed: int = 2026,
    num_trials: int = 2000,
    num_processes: int = 1,
) -> None:
    """Simulates all missing cells, then writes counts, page and table.

    Args:
      run_dir: output folder.
      simulation_seed: seed of the data, combined with the condition, the number of seeds and the trial.
      num_trials: number of trials per cell.
      num_processes: number of cells simulated in parallel; does not change results.
    """
    if num_trials < 2 or num_processes < 1 or simulation_seed < 0:
        raise UserError(
            f"found num_trials {num_trials}, num_processes {num_processes} and simulation_seed "
            f"{simulation_seed}, expected at least 2, 1 and 0; correct the parameters"
        )
    root = Path(stats.__file__).parents[1]
    code = sorted(
        [
            *root.glob("stats/**/*.py"),
            *root.glob("report/answers/*.py"),
            *root.glob("evaluate/metrics/*.py"),
            Path(__file__),
        ]
    )
    parameters = {
        "simulation_seed": simulation_seed,
        "num_trials": num_trials,
        "code": hashlib.sha256(b"".join(file.read_bytes() for file in code)).hexdigest()[:12],
    }
    run = RunDirectory(run_dir, stage="calibrate", parameters=parameters)
    if run.done:
        console.report(f"{run_dir} is finished")
        return
    cells = [(number, seeds) for number, c in enumerate(CONDITIONS) for seeds in c.seeds]
    job = partial(simulate_and_keep, run.path, num_trials, simulation_seed)
    with run:
        with ProgressBar(total=len(cells), unit="cell") as bar:
            for _ in _in_processes(job, cells, num_processes):
                bar.update()
        files = [f"cells/{number}-{seeds}.json" for number, seeds in cells]
        counts = run.path / "calibration.jsonl"
        write_atomically(counts, "".join((run.path / file).read_text() for file in files))
        write_atomically(run.path / PAGE, page(read_counts(counts)))
        write_atomically(run.path / TABLE, table(read_counts(counts)))
        run.finish([counts.name, PAGE, TABLE, *files])
    console.report(f"See {run.path / PAGE}")


def _in_processes(job: partial[None], cells: list[tuple[int, int]], number: int) -> Iterable[None]:
    if number == 1:
        yield from map(job, cells)
        return
    with multiprocessing.get_context("spawn").Pool(number) as pool:
        yield from pool.imap_unordered(job, cells)


def read_counts(file: Path) -> list[Counts]:
    """Reads the counts written by `calibrate`."""
    return [Counts(**json.loads(line)) for line in file.read_text().splitlines()]


# --- The page and the table ------------------------------------------------------------------------------

DOCS = Path(__file__).parents[1] / "docs"
PAGE, TABLE = "calibration.md", "calibration_table.csv"
STUDY = "calibration"  # Other rows of the table are from finished studies, whose programs are gone.


def page(counts: list[Counts]) -> str:
    """Replaces the first table of the page by one made from counts; the text is written by hand."""
    cells = {(cell.condition, cell.seeds): cell for cell in counts}
    records = [_row(c, [cells[c.title, seeds] for seeds in c.seeds]) for c in CONDITIONS]
    before, _, rest = (DOCS / PAGE).read_text().partition("| data ")
    return before + Table.from_records(records, {}).markdown() + rest[rest.index("\n\n") + 1 :]


def _row(condition: Condition, cells: Sequence[Counts]) -> dict[str, str]:
    """Writes a row: coverage by number of seeds, false claims, and the reason for low coverage."""
    columns = {1: "1 seed"} | {seeds: f"{seeds} seeds" for seeds in (2, 3, 5, 10)}
    row = {"data": condition.title} | dict.fromkeys(columns.values(), "")
    for cell in cells:
        text = f"{cell.coverage:.3f}"
        row[columns[cell.seeds]] = f"**{text}**" if cell.is_low else text
    claims = [
        f"{name} " + "/".join(f"{cell.claims[name] / cell.trials:.3f}" for cell in cells)
        for name in cells[0].claims
    ]
    is_low = any(cell.is_low for cell in cells)
    return row | {
        "false claims": "; ".join(claims).removeprefix("p < .05 "),
        "reason": (condition.reason or "unexplained") if is_low else "",
    }


def table(counts: list[Counts]) -> str:
    """Replaces the rows of this study in the table of all studies."""
    lines = (DOCS / TABLE).read_text().splitlines(keepends=True)
    records: list[dict[str, Any]] = [
        {
            "study": STUDY, "data": cell.condition, "seeds": cell.seeds, "method": "recommended",
            "trials": cell.trials, "coverage": round(cell.coverage, 4), "width": cell.width,
            "width_over_recommended": 1.0, "below": cell.below / cell.intervals,
            "above": cell.above / cell.intervals, "flagged": cell.flagged / cell.trials,
            "intervals": _shares(cell.methods, cell.intervals), "errors": _shares(cell.claims, cell.trials),
        }
        for cell in counts
    ]  # fmt: skip
    finished = [line for line in lines[1:] if not line.startswith(f"{STUDY},")]
    return Table.from_records(records, {}).csv() + "".join(finished)


def _shares(counts: Mapping[str, int], total: int) -> str:
    return "; ".join(f"{name} {number / total:.3f}" for name, number in counts.items())


if __name__ == "__main__":
    run_command(calibrate)
