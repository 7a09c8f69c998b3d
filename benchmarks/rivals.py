"""Are there narrower 95 % intervals for a few seeds that hold the truth as often?

    make rivals

Puts the recommended interval beside those of `benchmarks.rival_intervals` on the data of
`benchmarks.crossed_model` with 2 to 10 seeds, and asks how narrow any interval could be. Blocks of trials
that are finished are kept, so that a run that was killed resumes where it was. Written to
`results/rivals/`: `counts.json` and `rivals.md`. `--check_dir=folder` writes ten tables, what is computed
from them here, and `check.R`, which prints how far lmerTest and pbkrtest agree.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small

import itertools
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import chdtr, expit, ndtr, stdtrit

from multiberts.benchmarks.calibration import comparison, monte_carlo_error
from multiberts.benchmarks.crossed_model import Condition, MetricName, TrialDesign
from multiberts.benchmarks.rival_intervals import (
    PRIORS,
    Array,
    Ends,
    evalstats_interval,
    kenward_roger_interval,
    logistic_intervals,
    mean_squares,
    pooled_variance,
)
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.variance.crossing import VarianceParts

BLOCK = 50
NUMBERS_OF_SEEDS = (2, 3, 5, 10)
MISSING = 0.1  # the share of missing cells
CONFIDENCE = 0.95


class Trials(NamedTuple):
    """A kind of data, its heading, and the share of its cells that is missing at random."""

    group: str
    condition: Condition
    missing: float = 0.0

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.condition.name}{'-missing' * bool(self.missing)}"


def all_trials() -> list[Trials]:
    """Lists what is simulated, in the order of the tables."""
    every: tuple[TrialDesign, ...] = ("single", "paired", "unpaired")
    normal = ("none", "seeds", "residual")
    kinds: list[tuple[str, MetricName, tuple[TrialDesign, ...], tuple[str, ...], float]] = [
        ("answers", "accuracy", every, ("binary",), 0.0),
        ("answers, wide seeds", "accuracy", every, ("wide_seeds",), 0.0),
        ("normal scores", "mean", every[1:], normal, 0.0),
        ("cells missing", "accuracy", every[:2], ("binary",), MISSING),
        ("cells missing", "mean", ("paired",), normal, MISSING),
    ]
    return [
        Trials(group, Condition(metric, design, data, number), missing)
        for group, metric, designs, of_kind, missing in kinds
        for data, design, number in itertools.product(of_kind, designs, NUMBERS_OF_SEEDS)
    ]


def one_trial(trials: Trials, simulation_seed: int, trial: int) -> dict[str, Ends]:
    """Makes the data of one trial and returns everyone's interval."""
    condition, missing = trials.condition, trials.missing
    arms = condition.arms(simulation_seed, trial)
    random = np.random.default_rng([simulation_seed, trial, zlib.crc32(trials.name.encode())])
    binary = condition.metric == "accuracy"
    gone = random.random(arms[0].predictions.shape) < missing
    tables = [arm.predictions for arm in arms]
    if missing:  # in both arms alike
        tables = [np.where(gone, np.nan, table) for table in tables]
    low, high = comparison(
        tables, metric=condition.metric, design=condition.design,
        labels=arms[0].labels if binary else None, missing="omit" if missing else "refuse",
    ).ci  # fmt: skip
    sides = [
        (arm.predictions == arm.labels if binary else arm.predictions).astype(float) for arm in arms
    ]
    paired = condition.design == "paired"
    if missing:
        table = np.where(gone, np.nan, sides[1] - sides[0] if paired else sides[0])
        return {"ours": (low, high), "kenward_roger": kenward_roger_interval(table)}
    logistic = logistic_intervals(sides, paired, random) if binary else {}
    return {"ours": (low, high)} | logistic | {"evalstats": evalstats_interval(sides, binary)}


def simulate_block(trials: Trials, simulation_seed: int, numbers: range) -> dict[str, Any]:
    """Counts by interval how many hold the truth, and the median width of a block of trials."""
    truth = trials.condition.truth()
    return _counted([one_trial(trials, simulation_seed, number) for number in numbers], truth)


def _counted(found: Sequence[dict[str, Ends]], truth: float) -> dict[str, Any]:
    counts: dict[str, Any] = {"covered": {}, "width": {}}
    for name in found[0]:
        low, high = np.array([trial[name] for trial in found]).T
        counts["covered"][name] = int(((low <= truth) & (truth <= high)).sum())
        counts["width"][name] = float(np.median(high - low))
    return counts


def beyond_the_prior(num_trials: int) -> list[dict[str, Any]]:
    """Makes a row per spread of the seeds, in logits, of two arms with two seeds each.

    Arms are alike; examples have effects in common (1.5 logits) and of their own (.75).
    """
    random, rows = np.random.default_rng(0), []
    for spread in (0.2, 0.5, 1.0, 2.0):
        found = []
        for _ in range(num_trials):
            latent = (
                1.5 + spread * random.standard_normal((2, 2, 1)) + 1.5 * random.standard_normal(100)
            )
            latent = latent + 0.75 * random.standard_normal((2, 1, 100))
            sides = list((random.random(latent.shape) < expit(latent)).astype(np.float64))
            low, high = comparison(sides, design="unpaired").ci
            found.append({"ours": (low, high)} | logistic_intervals(sides, False, random))
        counts = _counted(found, 0.0)
        row: dict[str, Any] = {
            "spread of seeds": spread,
            WORDS["ours"]: f"{counts['covered']['ours'] / num_trials:.3f}",
        }
        for name in PRIORS:
            ratio = counts["width"][name] / counts["width"]["ours"]
            row[WORDS[name]] = f"{counts['covered'][name] / num_trials:.3f} ({ratio:.2f})"
        rows.append(row)
    return rows


# --- How narrow could an interval be? ---------------------------------------------------------------


def _parts(squares: Array | Sequence[Any], freedoms: Sequence[float]) -> VarianceParts:
    terms = [((square, freedom),) for square, freedom in zip(squares, freedoms, strict=True)]
    return VarianceParts(terms[0], terms[1], terms[2])


def minimax(num_seeds: int, num_points: int = 160, num_widths: int = 60) -> dict[str, float]:
    """Compares intervals of one table of many examples with the best possible one.

    The mean squares of examples and residual are known, so that the data are the estimate and the seeds'
    mean square A over the residual's. An interval that does not depend on sign and unit is a half-width
    h(A), and may be drawn by lot. Its coverage for each true ratio, and its expected width, are linear in
    the probabilities of (A, h) on a grid: the narrowest one without a variance of seeds, whose coverage
    is at least .95 for all ratios, solves a linear programme. Examples have no effect of their own here.
    """
    freedom = num_seeds - 1
    edges = np.geomspace(1e-3, 1e5, num_points)
    points = np.concatenate([edges[:1], np.sqrt(edges[1:] * edges[:-1]), edges[-1:]])
    ratios = np.concatenate([[1.0], np.geomspace(1.02, 2e3, 59)])
    below = chdtr(freedom, freedom * edges / ratios[:, None])
    mass = np.diff(below, axis=1, prepend=0.0, append=1.0)  # [ratios, points]

    def covers(half: Array, variance: Array) -> Array:  # of each ratio
        return np.asarray((mass * (2 * ndtr(half / np.sqrt(variance)[:, None]) - 1)).sum(axis=1))

    limit = float(stdtrit(freedom, 0.975))
    half = np.sqrt(np.maximum(points, 1))[:, None] * np.geomspace(1.5, 1.6 * limit, num_widths)
    chances = mass[:, :, None] * (2 * ndtr(half / np.sqrt(ratios)[:, None, None]) - 1)
    chances[chances < 1e-9] = 0.0  # below what the solver resolves
    widths = mass[0][:, None] * half
    widths[widths < 1e-12] = 0.0
    best = linprog(
        widths.ravel(),
        A_ub=-sparse.csr_array(chances.reshape(len(ratios), -1)),
        b_ub=np.full(len(ratios), -CONFIDENCE),
        A_eq=sparse.kron(sparse.eye_array(len(points)), np.ones((1, num_widths))).tocsr(),
        b_eq=np.ones(len(points)),
        bounds=(0, 1),
        method="highs",
    )
    assert best.success, best.message
    found: dict[str, float] = {"best": best.fun}
    for name in ("ours", "satterthwaite"):
        lowest = []
        for examples in (1, 1.5, 2, 3, 5, 8, 12, 20, 50, 200, 1000):  # their mean square
            estimate = _parts((points, examples, 1.0), (freedom, 1e9, 1e9)).estimate()
            rule = (
                estimate.cautious_degrees_of_freedom
                if name == "ours"
                else estimate.degrees_of_freedom
            )
            reach = np.asarray(stdtrit(rule, 0.975) * np.sqrt(estimate.variance))
            lowest.append(covers(reach, ratios + examples - 1).min())
            if examples == 1:
                found[name] = float(mass[0] @ reach)
        found[f"{name} covers"] = float(min(lowest))
    return found


# --- Degrees of freedom that were not taken ---------------------------------------------------------


def excess_errors(
    num_seeds: int, levels: Sequence[float] = (0.05, 0.01, 0.001), num_draws: int = 20_000,
    num_examples: int = 100,
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Computes how many times its level a t test errs at worst, over shares of the variance.

    Given the mean squares, the estimate misses with a probability that is known exactly.

    Returns:
      By rule (`ours`, and `quantile .40, pooled`): the worst errors over the level, by level; and the mean
      width of 95 % intervals over ours, where the `residual` is all and as the `mean` over all shares.
    """
    random = np.random.default_rng(num_seeds)
    freedoms = (num_seeds - 1, num_examples - 1, (num_seeds - 1) * (num_examples - 1))
    draws = np.stack([random.chisquare(freedom, num_draws) / freedom for freedom in freedoms])
    names = ("ours", "quantile .40, pooled")
    found = {name: dict.fromkeys(map(str, levels), 0.0) for name in names}
    widths: dict[str, list[float]] = {name: [] for name in names}
    parts = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
    for seeds, examples in itertools.product(parts, parts):
        residual = 1 - seeds - examples
        if residual < -1e-9:
            continue
        residual = max(residual, 0.0)
        expected = np.array([seeds + residual, examples + residual, residual])
        squares = draws * np.maximum(expected, 1e-12)[:, None]
        estimate = _parts(squares, freedoms).estimate()
        rules = [
            (np.asarray(estimate.variance), estimate.cautious_degrees_of_freedom),
            pooled_variance(squares, freedoms, 0.4),
        ]
        for name, (variance, freedom) in zip(names, rules, strict=True):
            for level in levels:
                reach = stdtrit(freedom, 1 - level / 2) * np.sqrt(variance)
                misses = 2 * float(ndtr(-reach).mean())
                found[name][str(level)] = max(found[name][str(level)], misses / level)
            # The first shares are those where the residual is all.
            widths[name].append(float((stdtrit(freedom, 0.975) * np.sqrt(variance)).mean()))
    for name in names:
        ratios = np.array(widths[name]) / widths["ours"]
        found[name] |= {"residual": float(ratios[0]), "mean": float(ratios.mean())}
    return found


# --- lmerTest and pbkrtest --------------------------------------------------------------------------

CHECK = """suppressMessages(library(lmerTest)) # Kenward-Roger is pbkrtest's
here <- read.csv("here.csv")
tight <- lmerControl(optCtrl = list(xtol_abs = 1e-12, ftol_abs = 1e-14))
for (k in seq_len(nrow(here))) for (what in c("whole", "missing")) {
  cells <- read.csv(sprintf("%s-%d.csv", what, k - 1))
  cells <- transform(cells, seed = factor(seed), example = factor(example))
  model <- suppressMessages(lmer(score ~ 1 + (1 | seed) + (1 | example), cells, control = tight))
  method <- if (what == "whole") "Satterthwaite" else "Kenward-Roger"
  found <- coef(summary(model, ddf = method))
  reach <- qt(.975, found[3]) * found[2]
  cat(k - 1, method, "half-width", reach, "here over it - 1:", here[k, what] / reach - 1, "\\n")
}
"""


def write_check(folder: Path) -> None:
    """Writes ten tables, whole and with missing cells, what is computed from them here, and `check.R`."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    lines = ["whole,missing"]
    for number in range(10):
        seeds, size = (2, 3, 5, 10)[number % 4], 40
        table = random.standard_normal((seeds, size)) + random.choice(
            [0.0, 1.0]
        ) * random.standard_normal(size)
        table += random.choice([0.0, 0.3, 1.0]) * random.standard_normal((seeds, 1))
        holes = np.where(random.random(table.shape) < MISSING, np.nan, table)
        low, high = kenward_roger_interval(holes)
        variance, freedom = pooled_variance(*mean_squares(table))
        reach = float(stdtrit(freedom[0], (1 + CONFIDENCE) / 2) * np.sqrt(variance[0]))
        lines.append(f"{reach!r},{(high - low) / 2!r}")
        for name, cells in (("whole", table), ("missing", holes)):
            rows = [
                f"{i},{j},{float(value)!r}"
                for (i, j), value in np.ndenumerate(cells)
                if not np.isnan(value)
            ]
            (folder / f"{name}-{number}.csv").write_text(
                "\n".join(["seed,example,score", *rows, ""])
            )
    (folder / "here.csv").write_text("\n".join([*lines, ""]))
    (folder / "check.R").write_text(CHECK)


# --- The page ---------------------------------------------------------------------------------------

Counts = dict[str, dict[str, tuple[int, float]]]
WORDS = {
    "ours": "recommended",
    "logistic": "crossed logistic, prior .5",
    "logistic_wide": "crossed logistic, prior 2",
    "evalstats": "evalstats 0.3",
    "kenward_roger": "Kenward-Roger",
}


def summary_table(counts: Counts, num_trials: int) -> Table:
    """Makes a row per kind of data and interval."""
    records = []
    for group, members in itertools.groupby(all_trials(), lambda trials: trials.group):
        names = [trials.name for trials in members]
        for interval in counts[names[0]]:
            shares = [counts[name][interval][0] / num_trials for name in names]
            widths = [counts[name][interval][1] / counts[name]["ours"][1] for name in names]
            records.append(
                {
                    "data": group,
                    "interval": WORDS[interval],
                    "conditions": len(names),
                    "mean coverage": float(np.mean(shares)),
                    "lowest": min(shares),
                    "share at 0.93 or more": float(np.mean(np.array(shares) >= 0.93)),
                    "median width / ours": float(np.median(widths)),
                }
            )
    formats = {"mean coverage": ".3f", "lowest": ".3f", "share at 0.93 or more": ".2f"}
    return Table.from_records(records, formats | {"median width / ours": ".2f"})


def condition_tables(counts: Counts, num_trials: int) -> list[Table]:
    """Makes a table per set of rivals: coverage, and width over that of the recommended interval."""
    tables = []
    for rivals, members in itertools.groupby(
        all_trials(), lambda trials: list(counts[trials.name])
    ):
        records = []
        for trials in members:
            found = counts[trials.name]
            condition, (own, width) = trials.condition, found["ours"]
            record: dict[str, Any] = {
                "data": condition.words, "design": condition.design, "seeds": condition.num_seeds,
                "recommended": f"{own / num_trials:.3f}",
            }  # fmt: skip
            for name in rivals[1:]:
                share, ratio = found[name][0] / num_trials, found[name][1] / width
                record[WORDS[name]] = f"{share:.3f} ({ratio:.2f})"
            records.append(record)
        tables.append(Table.from_records(records, {}))
    return tables


PAGE = """# Rivals of the recommended interval

<!-- Made by `make rivals`; do not edit. -->

Is there a narrower 95 % interval for 2 to 10 seeds that holds the truth as often? Here the recommended
one (`result.ci`) stands next to others on the [data of the calibration](calibration_appendix.md#the-data),
{trials} trials per condition, so that a share near .95 has a standard error of {error:.3f}, and the lowest of
a dozen lies below .92 by chance ([calibration.md](calibration.md) has more trials of ours). A rival would
be taken if it were narrower and covered .93 in every ordinary condition (all here but *wide seeds*).

## Decisions

- **No interval can be much narrower.** The best possible one is {least:.2f} to {most:.2f} times as wide
  as ours with 2 to 10 seeds where noise is all: the price of not knowing whether seeds vary.
{decisions}

{summary}

## The rivals

- *Crossed logistic*: right and wrong answers with effects of seeds and of examples on the logit. Examples
  are integrated over by quadrature; the seeds' standard deviation has a half-normal prior with scale .5
  logits, which expects seeds like BERT's, or 2, which hardly expects anything; the interval is that of
  posterior draws of the accuracy of new seeds on new examples.
- *evalstats 0.3*: Bonett and Price's interval of two models with shrunk pseudo-items, Wilson's of one,
  and Student's t of other scores, all over the examples' means: what `compare(simultaneous_ci=False)` and
  `entity_stats` hold with three runs or more. The formulas equal the package's to 1e-15 on 40 random
  tables. None has an effect of a seed on all examples. (By default, with `simultaneous_ci=True`, two
  models with right and wrong answers get Student's t over the answers of the first run alone.)
- *Kenward-Roger*: a linear mixed model with crossed effects by REML (Kenward & Roger 1997), where one
  cell in ten is missing at random; ours with `missing="omit"`. `--check_dir` compares it with R: on ten
  random tables half-widths equal those of pbkrtest 0.5.2 to 1e-5, and those of REML with Satterthwaite's
  degrees of freedom in closed form (without missing cells; mean squares below the residual's pooled with
  it) equal those of lmerTest 3.1.3 to 1e-5, which is how far lme4 iterates.

## Effect of a prior

Two models that are alike, two independent seeds each, 100 examples. Coverage by the standard deviation of
the seeds in logits, and in brackets the median width over that of the recommended interval:

{prior}

## How narrow any interval can be

One table of many examples without effects of their own: the data are the estimate and the ratio of the
mean squares of seeds and residual. An interval that does not depend on sign and unit is a half-width for
each ratio, which may be drawn by lot. Coverage and expected width are linear in the chances of each
half-width, so that linear programming (HiGHS) finds the interval that is narrowest where seeds do not
vary, of all that cover .95 whatever their variance. The coverage of the other two is the lowest over
variances of seeds and of examples.

{bounds}

A narrower interval than the best errs more than 5 times in 100 for some variance of the seeds, because a
few seeds cannot show that there is none: where seeds do not vary, at most a tenth to a fifth of our width
is to be gained. Where they dominate, ours is Student's t, which covers .95 exactly; Satterthwaite's
degrees of freedom are narrower than the best with 2 and 3 seeds, and miss more.

## Degrees of freedom that were not taken

Ours take each mean square as if it lay at the lower quartile of its law. At the quantile .40, and with a
mean square below the residual's pooled with it as REML does, intervals are narrower. How many times its
level a test then errs, at worst over a grid of shares of seeds, examples and residual (100 examples,
20,000 draws of the mean squares for each; width where the residual is all, and mean over the grid):

{errors}

At .05 all is well, but Holm's correction of five tests works at .01, and of fifty at .001. So it was not
taken.

## Each condition

Coverage, and in brackets the median width over that of the recommended interval.

{tables}
"""


def _decisions(counts: Counts, num_trials: int) -> str:
    def names(interval: str, seeds: Sequence[int] = NUMBERS_OF_SEEDS) -> list[str]:
        return [
            trials.name
            for trials in all_trials()
            if interval in counts[trials.name]
            and trials.condition.data != "wide_seeds"
            and trials.condition.num_seeds in seeds
        ]

    def lowest(interval: str) -> str:
        least = min(counts[name][interval][0] for name in names(interval))
        return f"{least / num_trials:.3f}"

    def span(interval: str, *seeds: int) -> str:
        widths = [
            counts[name][interval][1] / counts[name]["ours"][1]
            for name in names(interval, seeds or NUMBERS_OF_SEEDS)
        ]
        return f"{min(widths):.2f} to {max(widths):.2f} times as wide"

    return f"""- **The crossed logistic model was not taken.** With 2 and 3 seeds the prior decides, not the
  data: with the narrower prior it is {span("logistic", 2, 3)}, with the wider
  one {span("logistic_wide", 2, 3)}; with 5 and 10 seeds there is nothing to gain
  ({span("logistic", 5, 10)}). Where seeds vary more than its prior expects, it misses (below),
  and nobody knows beforehand how seeds vary. It is for right and wrong answers alone.
- **evalstats was not taken.** It covers {lowest("evalstats")} in the worst ordinary condition: an interval
  over examples knows nothing of new seeds.
- **Kenward-Roger was not taken.** With cells missing it is {span("kenward_roger")}: narrower
  with 2 and 3 seeds, where it has Satterthwaite's degrees of freedom, which miss too often for some variances
  (below); about as wide with 5 and 10."""


def page(
    counts: Counts,
    num_trials: int,
    prior: Sequence[dict[str, Any]],
    bounds: dict[int, dict[str, float]],
    errors: dict[int, dict[str, dict[str, float]]],
) -> str:
    """Writes the page from all counts."""
    of_bounds = [
        {
            "seeds": number,
            "best width / ours": found["best"] / found["ours"],
            "ours / best": found["ours"] / found["best"],
            "ours covers at least": found["ours covers"],
            "Satterthwaite / ours": found["satterthwaite"] / found["ours"],
            "Satterthwaite covers at least": found["satterthwaite covers"],
        }
        for number, found in bounds.items()
    ]
    of_errors: list[dict[str, Any]] = [
        {"seeds": number, "degrees of freedom": rule}
        | {
            f"at {key}" if key[0] == "0" else f"width / ours, {key}": value
            for key, value in found.items()
        }
        for number, rules in errors.items()
        for rule, found in rules.items()
    ]
    three = (
        "best width / ours", "ours / best", "Satterthwaite / ours", "at 0.05", "at 0.01", "at 0.001",
        "width / ours, residual", "width / ours, mean",
    )  # fmt: skip
    formats = dict.fromkeys(three, ".2f")
    formats |= {"ours covers at least": ".3f", "Satterthwaite covers at least": ".3f"}
    ratios = [row["best width / ours"] for row in of_bounds]
    return PAGE.format(
        trials=num_trials,
        error=monte_carlo_error(0.95, num_trials),
        least=min(ratios),
        most=max(ratios),
        decisions=_decisions(counts, num_trials),
        summary=summary_table(counts, num_trials).markdown().strip(),
        prior=Table.from_records(prior, {}).markdown().strip(),
        bounds=Table.from_records(of_bounds, formats).markdown().strip(),
        errors=Table.from_records(of_errors, formats).markdown().strip(),
        tables="\n\n".join(
            table.markdown().strip() for table in condition_tables(counts, num_trials)
        ),
    )


# --- The command ------------------------------------------------------------------------------------


def rivals(
    *,
    run_dir: str = "results/rivals",
    simulation_seed: int = 2026,
    num_trials: int = 100,
    check_dir: str = "",
) -> None:
    """Simulates every block of trials that is not there yet, then writes counts and page.

    Args:
      run_dir: where to write.
      simulation_seed: names data and draws, with the condition and the trial.
      num_trials: trials per condition.
      check_dir: where to write ten tables and `check.R` instead; "" for nowhere.

    Raises:
      UserError: a number is wrong, or the folder holds another study.
    """
    if check_dir:
        write_check(Path(check_dir))
        return
    if num_trials < BLOCK or num_trials % BLOCK or simulation_seed < 0:
        raise UserError(
            f"found num_trials {num_trials} and simulation_seed {simulation_seed}, expected a multiple of "
            f"{BLOCK} and at least 0; correct the parameters"
        )
    parameters = {"simulation_seed": simulation_seed, "num_trials": num_trials}
    run = RunDirectory(run_dir, stage="rivals", parameters=parameters)
    if run.done:
        console.report(f"{run_dir} is finished")
        return
    with run:
        counts, written = {}, []
        for trials in console.ProgressBar(all_trials(), desc="conditions"):
            blocks = []
            for first in range(0, num_trials, BLOCK):
                file = run.path / "blocks" / f"{trials.name}-{first}.json"
                if not file.exists():
                    block = simulate_block(trials, simulation_seed, range(first, first + BLOCK))
                    write_atomically(file, json.dumps(block) + "\n")
                blocks.append(json.loads(file.read_text()))
                written.append(str(file.relative_to(run.path)))
            counts[trials.name] = {
                name: (
                    sum(block["covered"][name] for block in blocks),
                    float(np.mean([block["width"][name] for block in blocks])),
                )
                for name in blocks[0]["covered"]
            }
        prior = beyond_the_prior(num_trials)
        bounds = {number: minimax(number) for number in NUMBERS_OF_SEEDS}
        errors = {number: excess_errors(number) for number in (5, 10)}
        write_atomically(run.path / "counts.json", json.dumps(counts, indent=1) + "\n")
        write_atomically(run.path / "rivals.md", page(counts, num_trials, prior, bounds, errors))
        run.finish(["counts.json", "rivals.md", *written])
    console.report(f"See {run.path / 'rivals.md'}")


if __name__ == "__main__":
    run_command(rivals)
