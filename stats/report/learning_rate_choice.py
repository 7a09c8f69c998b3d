"""Chooses a learning rate per task, procedure and step, and reads the runs that have it.

Example: `multiberts learning-rates` with the parameters `learning_rates.predictions = "results/sweep"`
and `learning_rates.rule = "dev"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from multiberts.evaluate.metrics.register import METRICS
from multiberts.runs.console import report
from multiberts.runs.errors import UserError
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.report.dumps import Dump
from multiberts.stats.report.selection import FinishedRun, RunGroup, finished_runs, make_groups

if TYPE_CHECKING:
    import xarray

# By the mean over runs on the development set (Sellam et al. 2022, section 3), or on the fifth of the
# training data that further runs held out (as Zhong et al. 2021).
RULES = ("dev", "held_out")
LearningRateRule = Literal["dev", "held_out"]
RULE_TEXTS: Mapping[str, str] = {
    "dev": "the best mean over runs on the development set, slightly optimistic for scores there",
    "held_out": "the best mean over runs on the part of the training data that they held out",
}


def _read(directories: Sequence[Path], evaluation_set: str) -> xarray.Dataset:
    from multiberts.evaluate.dumps.predictions import read_predictions

    return read_predictions(directories, evaluation_set)


@dataclass
class DumpReader:
    """Reads the dumps of groups, each once.

    Attributes:
      read: as `evaluate.dumps.predictions.read_predictions`.
    """

    read: Callable[[Sequence[Path], str], xarray.Dataset] = _read
    _dumps: dict[tuple, Dump] = field(default_factory=dict)

    def __call__(self, group: RunGroup, evaluation_set: str) -> Dump:
        """Returns the dump of a group on an evaluation set that all its runs have."""
        directories = [run.directory for run in group.runs]
        key = (*directories, evaluation_set)
        if key not in self._dumps:
            self._dumps[key] = Dump(
                group.task,
                evaluation_set,
                group.procedure,
                group.step,
                tuple(group.evaluation_sets()[evaluation_set]),
                self.read(directories, evaluation_set),
            )
        return self._dumps[key]


@dataclass(frozen=True)
class LearningRateChoice:
    """How the learning rate of a group was chosen.

    Attributes:
      group: the group with all its learning rates.
      learning_rate: the one that was kept.
      evaluation_set, metric: what it was chosen by.
      means: mean score over runs by learning rate.
      rule: one of `RULES`.
    """

    group: RunGroup
    learning_rate: float
    evaluation_set: str
    metric: str
    means: dict[float, float]
    rule: LearningRateRule = "dev"


def choose_learning_rate(
    group: RunGroup, reader: DumpReader, rule: LearningRateRule = "dev"
) -> tuple[RunGroup, LearningRateChoice | None]:
    """Keeps the learning rate with the best mean over runs; ties go to the smaller.

    Args:
      group: runs of one or several learning rates.
      reader: of their predictions.
      rule: `dev`: by the runs themselves on the development set, as the papers do, which is
        slightly optimistic (without a set named dev the first one serves); `held_out`: by the
        runs that held out a fifth of the training data, on that fifth, which leaves the
        development set for the result.

    Returns:
      The group with that learning rate alone, and the choice (None where there was one rate
      only).

    Raises:
      UserError: no metric of the group has a better direction, or the group lacks a run to choose by.
    """
    if rule not in RULES:
        raise UserError(f"learning-rate rule is {rule!r}, expected one of {', '.join(RULES)}")
    rates = group.learning_rates
    if len(rates) < 2:
        return group, None
    voters = group if rule == "dev" else _held_out_voters(group)
    rate_of_run = np.array([run.facts["learning_rate"] for run in voters.runs])
    sets = voters.evaluation_sets()
    names = (
        [rule] if rule == "held_out" else sorted(sets, key=lambda name: "dev" not in name.lower())
    )
    for evaluation_set in names:
        for measure in sets.get(evaluation_set, ()):
            better = METRICS[measure].higher_is_better if measure in METRICS else None
            if better is None:
                continue
            scores = reader(voters, evaluation_set).scores_of_runs(measure)
            means = {rate: float(scores[rate_of_run == rate].mean()) for rate in rates}
            best = max(rates, key=lambda rate: (means[rate] if better else -means[rate], -rate))
            kept = tuple(run for run in group.runs if run.facts["learning_rate"] == best)
            choice = LearningRateChoice(group, best, evaluation_set, measure, means, rule)
            return replace(group, runs=kept), choice
    raise UserError(
        f"{group.task}, {group.name} has learning rates {rates} and no metric to choose by; give "
        "one learning_rate in the comparison"
    )


def _held_out_voters(group: RunGroup) -> RunGroup:
    """Returns the group of the runs that held something out.

    Raises:
      UserError: they lack a learning rate.
    """
    voters = replace(group, runs=group.held_out_runs)
    missing = [rate for rate in group.learning_rates if rate not in voters.learning_rates]
    if missing:
        raise UserError(
            f"{group.task}, {group.name}: no run with learning rate {missing[0]:g} held out "
            "training examples, to choose by; run finetune with held_out_fold = 0 for every "
            "learning rate, or choose by the rule dev"
        )
    return voters


def dumps_of_runs(runs: Sequence[FinishedRun]) -> tuple[list[Dump], list[LearningRateChoice]]:
    """Reads finished runs, with one learning rate chosen per task, procedure and step.

    Args:
      runs: see `stats.report.selection.finished_runs`.

    Returns:
      A dump for every evaluation set of every group, and how learning rates were chosen.

    Raises:
      UserError: a file is damaged, runs do not belong together, or a run has no seed.
    """
    reader = DumpReader()
    found = [choose_learning_rate(group, reader) for group in make_groups(runs)]
    dumps = [reader(group, name) for group, _ in found for name in group.evaluation_sets()]
    return dumps, [choice for _, choice in found if choice is not None]


def learning_rate_table(choices: Sequence[LearningRateChoice], title: str = "") -> Table:
    """Makes a table of the mean score of every learning rate, with the chosen ones marked."""
    rows = [
        (
            choice.group.task, choice.group.procedure, choice.group.step, choice.evaluation_set,
            choice.metric, f"{rate:g}", mean, rate == choice.learning_rate,
        )
        for choice in choices
        for rate, mean in choice.means.items()
    ]  # fmt: skip
    columns = (
        "Task", "Procedure", "Step", "Set", "Metric", "Learning rate", "Mean score", "Chosen",
    )  # fmt: skip
    return Table(columns, rows, {"Mean score": ".4f"}, title)


def learning_rates(*, predictions: str | Sequence[str], rule: LearningRateRule) -> None:
    """Prints the mean score by learning rate, the chosen one marked.

    Args:
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      rule: `dev` or `held_out`, as in `choose_learning_rate`.

    Raises:
      UserError: no finished run is there, or there is nothing to choose by.
    """
    reader = DumpReader()
    groups = make_groups(finished_runs(predictions))
    chosen = [choose_learning_rate(group, reader, rule) for group in groups]
    report(f"{rule}: {RULE_TEXTS[rule]}")
    for kept, choice in chosen:
        if choice is None:
            (rate,) = kept.learning_rates
            only = "none" if rate is None else format(rate, "g")
            report(f"{kept.task}, {kept.name}: only {only}")
            continue
        report(f"{kept.task}, {kept.name}: {choice.metric} on {choice.evaluation_set}")
        for rate, mean in choice.means.items():
            mark = "  <- best" if rate == choice.learning_rate else ""
            report(f"  {rate:<8g} {mean:.4f}{mark}")
