"""Do simultaneous intervals and ranks of ten models hold the truth in 95 of 100 leaderboards?

    make calibrate-leaderboards

Makes up leaderboards of ten models by 3, 5 and 10 seeds on 500 examples whose true accuracies are
known, and counts how often `stats.compare_arms` is right about all differences and all ranks at once.
Alongside stand Bonferroni's intervals from each pair's own variance, and the plain max-T bootstrap.
Finished conditions are kept, so that a run that was killed resumes where it was. Written to
`results/leaderboards/`: `leaderboards.md` and `leaderboards.csv`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small

import itertools
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.register import METRICS
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically
from multiberts.stats.compare.arms import ManyDesign, compare_prepared
from multiberts.stats.intervals import t_interval
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.runs_table import make_arm
from multiberts.stats.settings import ComparisonSettings
from multiberts.stats.variance.crossing import crossing_of_tables

CONFIDENCE = 0.95
NUM_ARMS, NUM_EXAMPLES = 10, 500
NUMBERS_OF_SEEDS = (3, 5, 10)
# Standard deviations, on the probit scale, of a seed's effect and of an arm's on an example.
DOMINANT = {"seeds": (0.3, 0.1), "both": (0.08, 0.5), "examples": (0.01, 1.0)}
# Standard deviations of an example's difficulty, shared by all arms, and of a paired seed in all arms.
DIFFICULTY, COMMON_SEED = 1.0, 0.2

Models = Literal["alike", "different"]


@dataclass(frozen=True)
class LeaderboardCondition:
    """One kind of leaderboard that is made again and again.

    Attributes:
      design: whether the arms share their seeds.
      models: `alike` have one accuracy and one spread of seeds; `different` ones have accuracies from
        .65 to .85, two arms each, and spreads from a half to one and a half times the usual one.
      dominant: what the variance of a difference is mostly made of.
      num_seeds: of each arm.
    """

    design: ManyDesign
    models: Models
    dominant: str
    num_seeds: int

    @property
    def name(self) -> str:
        """The name of the condition's file."""
        return f"{self.design}-{self.models}-{self.dominant}-{self.num_seeds}"

    @property
    def truth(self) -> NDArray[np.float64]:
        """The accuracy of each arm over all seeds and examples [arms]."""
        if self.models == "alike":
            return np.full(NUM_ARMS, 0.75)
        return np.repeat(np.linspace(0.65, 0.85, NUM_ARMS // 2), 2)

    def tables(self, random: np.random.Generator) -> NDArray[np.float64]:
        """Makes right and wrong answers [arms, seeds, examples] from a probit model."""
        from scipy.special import ndtri

        of_seeds, of_examples = DOMINANT[self.dominant]
        spreads = np.full(NUM_ARMS, of_seeds)
        if self.models == "different":
            # Neighbours, whose accuracies are the same, differ much.
            spreads = of_seeds * np.tile(np.linspace(0.5, 1.5, NUM_ARMS // 2), 2)
        common = COMMON_SEED if self.design == "paired" else 0.0
        # Given the total variance, the mean of the answers is the truth.
        total = np.sqrt(1 + DIFFICULTY**2 + of_examples**2 + common**2 + spreads**2)
        skill = ndtri(self.truth) * total
        shape = (NUM_ARMS, self.num_seeds, NUM_EXAMPLES)
        seeds = spreads[:, None] * random.standard_normal(shape[:2])
        seeds = seeds + common * random.standard_normal(self.num_seeds)
        examples = of_examples * random.standard_normal((NUM_ARMS, NUM_EXAMPLES))
        examples = examples + DIFFICULTY * random.standard_normal(NUM_EXAMPLES)
        latent = skill[:, None, None] + seeds[:, :, None] + examples[:, None]
        return (latent + random.standard_normal(shape) > 0).astype(np.float64)


@dataclass
class LeaderboardOutcome:
    """Sums over the trials of a condition.

    Attributes:
      trials: how many.
      differences, ranks: trials where all simultaneous intervals, or all rank intervals, are right.
      own_variance, max_t: trials where all intervals of the other methods are right.
      width, own_width, max_t_width: sums of the mean width of the intervals.
      clear, different: pairs that were found to be clear, and that truly differ.
    """

    trials: int = 0
    differences: int = 0
    ranks: int = 0
    own_variance: int = 0
    max_t: int = 0
    width: float = 0.0
    own_width: float = 0.0
    max_t_width: float = 0.0
    clear: int = 0
    different: int = 0

    def add_trial(self, condition: LeaderboardCondition, seed: int, n_resamples: int) -> None:
        """Makes one leaderboard and judges it."""
        truth = condition.truth
        tables = condition.tables(np.random.default_rng(seed))
        settings = ComparisonSettings(
            condition.design,
            n_resamples=n_resamples,
            rng=seed,
            confidence_level=CONFIDENCE,
        )
        # The part of `stats.compare_arms` after alignment.
        labels, seeds = np.zeros(NUM_EXAMPLES), range(condition.num_seeds)
        arms = {
            str(number): make_arm(str(number), table, labels, seeds)
            for number, table in enumerate(tables)
        }
        found = compare_prepared(arms, METRICS["mean"], settings)
        pairs = [(int(item.base), int(item.experiment)) for item in found.differences]
        true = np.array([truth[second] - truth[first] for first, second in pairs])
        estimates = np.array([item.estimate for item in found.differences])
        errors, lengths = [], []
        for first, second in pairs:
            own = [tables[first], tables[second]]
            if condition.design == "paired":
                own = [tables[second] - tables[first]]
            variance = crossing_of_tables(own).unbiased_variance()
            freedom = variance.cautious_degrees_of_freedom
            errors.append(math.sqrt(variance.variance))
            level = 1 - (1 - CONFIDENCE) / len(pairs)
            lengths.append(t_interval(0.0, errors[-1], freedom, level).high)
        of_arm = {int(arm.name): found.samples[:, place] for place, arm in enumerate(found.arms)}
        drawn = np.stack([of_arm[second] - of_arm[first] for first, second in pairs], axis=1)
        largest = np.quantile((np.abs(drawn - estimates) / errors).max(axis=1), CONFIDENCE)
        self.trials += 1
        low, high = np.array([item.ci for item in found.differences]).T
        self.differences += bool(((low <= true) & (true <= high)).all())
        self.own_variance += bool((np.abs(estimates - true) <= lengths).all())
        self.max_t += bool((np.abs(estimates - true) <= largest * np.array(errors)).all())
        self.ranks += all(
            arm.rank_low <= 1 + (truth > truth[int(arm.name)]).sum()
            and arm.rank_high >= NUM_ARMS - (truth < truth[int(arm.name)]).sum()
            for arm in found.arms
        )
        self.width += float((high - low).mean())
        self.own_width += 2 * float(np.mean(lengths))
        self.max_t_width += 2 * float(largest * np.mean(errors))
        self.clear += sum(item.clear for item in found.differences)
        self.different += int((true != 0).sum())


def all_leaderboards() -> list[LeaderboardCondition]:
    """Every condition of the study, in the order of its table."""
    designs: tuple[ManyDesign, ...] = ("unpaired", "paired")
    kinds: tuple[Models, ...] = ("alike", "different")
    return [
        LeaderboardCondition(*values)
        for values in itertools.product(designs, kinds, DOMINANT, NUMBERS_OF_SEEDS)
    ]


def leaderboard_table(
    outcomes: Sequence[tuple[LeaderboardCondition, LeaderboardOutcome]],
) -> Table:
    """Makes the table of all conditions; widths are in points of accuracy."""
    records = [
        {
            "seeds are": condition.design,
            "models": condition.models,
            "dominates": condition.dominant,
            "seeds": condition.num_seeds,
            "trials": found.trials,
            "differences covered": found.differences / found.trials,
            "ranks covered": found.ranks / found.trials,
            "width": 100 * found.width / found.trials,
            "own variance covered": found.own_variance / found.trials,
            "own width": 100 * found.own_width / found.trials,
            "max-T covered": found.max_t / found.trials,
            "max-T width": 100 * found.max_t_width / found.trials,
            "found": found.clear / found.different if found.different else None,
        }
        for condition, found in outcomes
    ]
    coverages = ("differences covered", "ranks covered", "own variance covered", "max-T covered")
    widths = ("width", "own width", "max-T width")
    formats = dict.fromkeys(coverages, ".3f") | dict.fromkeys(widths, ".1f") | {"found": ".2f"}
    return Table.from_records(records, formats)


def calibrate_leaderboards(
    *,
    run_dir: str = "results/leaderboards",
    simulation_seed: int = 2024,
    num_trials: int = 120,
    n_resamples: int = 99,
) -> None:
    """Simulates every condition that is not there yet, then writes the table.

    Args:
      run_dir: where to write.
      simulation_seed: names data and draws, with the condition and the trial.
      num_trials: trials per condition.
      n_resamples: replicates per trial, for max-T.

    Raises:
      UserError: a number is too small, or the folder holds another study.
    """
    if num_trials < 2 or simulation_seed < 0:
        raise UserError(
            f"found num_trials {num_trials} and simulation_seed {simulation_seed}, expected at least 2 "
            "and at least 0; correct the parameters"
        )
    parameters = {
        "simulation_seed": simulation_seed, "num_trials": num_trials, "n_resamples": n_resamples,
    }  # fmt: skip
    run = RunDirectory(run_dir, stage="calibrate_leaderboards", parameters=parameters)
    if run.done:
        console.report(f"{run_dir} is finished")
        return
    outcomes, written = [], []
    with run:
        for condition in console.ProgressBar(all_leaderboards(), desc="conditions"):
            file = run.path / "conditions" / f"{condition.name}.json"
            if not file.exists():
                outcome = LeaderboardOutcome()
                for trial in range(num_trials):
                    words = [simulation_seed, zlib.crc32(condition.name.encode()), trial]
                    seed = int(np.random.SeedSequence(words).generate_state(1)[0])
                    outcome.add_trial(condition, seed, n_resamples)
                write_atomically(file, json.dumps(asdict(outcome)) + "\n")
            outcomes.append((condition, LeaderboardOutcome(**json.loads(file.read_text()))))
            written.append(str(file.relative_to(run.path)))
        table = leaderboard_table(outcomes)
        write_atomically(run.path / "leaderboards.md", table.markdown())
        write_atomically(run.path / "leaderboards.csv", table.csv())
        run.finish(["leaderboards.md", "leaderboards.csv", *written])
    console.report(f"See {run.path / 'leaderboards.md'}")


if __name__ == "__main__":
    run_command(calibrate_leaderboards)
