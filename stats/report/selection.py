"""Which runs a report uses: finished fine-tuning runs, grouped, one learning rate chosen a
group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from multiberts.evaluate.dumps.run_file import final_sets
from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import METRICS, metric_input, metric_variables
from multiberts.evaluate.metrics.winogender_bias import (
    OCCUPATION_MEASURES,
    occupation_metric,
    occupation_scores,
)
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    import xarray

# How the learning rate is chosen: by the mean over runs on the development set (Sellam et al. 2022,
# section 3), or on the fifth of the training data that further runs held out (as Zhong et al. 2021).
RULES = ("dev", "held_out")
LearningRateRule = Literal["dev", "held_out"]
RULE_TEXTS: Mapping[str, str] = {
    "dev": "the best mean over runs on the development set, slightly optimistic for scores there",
    "held_out": "the best mean over runs on the part of the training data that they held out",
}

SELECTORS = ("procedure", "step", "task", "learning_rate", "pretrain_seed", "data_seed")


@dataclass(frozen=True)
class Run:
    """A finished fine-tuning run: its directory and the content of its run.json."""

    directory: Path
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds alone.

    Attributes:
      task, procedure, step: what they share; `step` is None where the checkpoint did not say.
      runs: in the order of their directories: those trained on all training examples; where there
        are none, those that held some out.
      held_out_runs: those that held some out, to choose a learning rate by.
    """

    task: str
    procedure: str
    step: int | None
    runs: tuple[Run, ...]
    held_out_runs: tuple[Run, ...] = ()

    @property
    def seeds(self) -> list:
        return sorted({run.facts["pretrain_seed"] for run in self.runs})

    @property
    def learning_rates(self) -> list:
        return sorted({run.facts["learning_rate"] for run in self.runs}, key=lambda rate: rate or 0)

    @property
    def name(self) -> str:
        return self.procedure if self.step is None else f"{self.procedure}, step {self.step}"

    def evaluation_sets(self) -> dict[str, list[str]]:
        """Metrics by evaluation set, for the sets of the trained models that every run has.

        Left out are early checkpoints of a fine-tuning, and sets without labels.
        """
        first, *others = (final_sets(run.facts) for run in self.runs)
        return {
            name: list(entry["metrics"])
            for name, entry in first.items()
            if entry["metrics"] and all(name in sets for sets in others)
        }


@dataclass(frozen=True)
class Choice:
    """How the learning rate of a group was chosen.

    Attributes:
      group: the group with all its learning rates.
      learning_rate: the one that was kept.
      evaluation_set, metric: what it was chosen by.
      means: mean score over runs by learning rate.
      rule: one of `RULES`.
    """

    group: Group
    learning_rate: float
    evaluation_set: str
    metric: str
    means: dict[float, float]
    rule: LearningRateRule = "dev"


@dataclass
class PredictionReader:
    """Reads predictions of groups, each once.

    Attributes:
      read: `evaluate.dumps.predictions.read_predictions`.
    """

    read: Callable[[Sequence[Path], str], xarray.Dataset]
    _cache: dict[tuple, xarray.Dataset] = field(default_factory=dict)

    def __call__(self, group: Group, evaluation_set: str) -> xarray.Dataset:
        key = (tuple(run.directory for run in group.runs), evaluation_set)
        if key not in self._cache:
            self._cache[key] = self.read(list(key[0]), evaluation_set)
        return self._cache[key]

    def measured(
        self, group: Group, evaluation_set: str, measure: str
    ) -> tuple[xarray.Dataset, Metric | RankMetric]:
        """Predictions as the measure needs them, and its metric.

        Raises:
          UserError: there is no such measure.
        """
        dataset = self(group, evaluation_set)
        if measure in OCCUPATION_MEASURES:
            return occupation_scores(dataset, measure), occupation_metric(measure)
        if measure not in METRICS:
            known = ", ".join(sorted([*METRICS, *OCCUPATION_MEASURES]))
            raise UserError(
                f"{group.runs[0].directory / 'run.json'}: evaluation set {evaluation_set!r} names "
                f"metric {measure!r}, expected one of {known}; correct the run that wrote it"
            )
        return dataset, METRICS[measure]

    def run_scores(self, group: Group, evaluation_set: str, measure: str) -> np.ndarray:
        """The plain score of every run [runs]."""
        dataset, metric = self.measured(group, evaluation_set, measure)
        label, prediction = metric_variables(metric, dataset)
        given = metric_input(metric, dataset[prediction], dataset.get("scores"))
        return metric.score(dataset[label].to_numpy(), given)


def make_groups(runs: Sequence[Run]) -> list[Group]:
    """Groups by task, procedure and step, sorted.

    Raises:
      UserError: a run does not say its pre-training seed.
    """
    members: dict[tuple, list[Run]] = {}
    for run in runs:
        if run.facts["pretrain_seed"] is None:
            raise UserError(
                f"{run.directory / 'run.json'} has no pretrain_seed, and statistics need to know "
                "which "
                "runs share one; say it in the checkpoint.json that was fine-tuned"
            )
        key = (run.facts["task"], str(run.facts["procedure"]), run.facts["step"])
        members.setdefault(key, []).append(run)
    order = sorted(members, key=lambda key: (key[0], key[1], -1 if key[2] is None else key[2]))
    return [
        _group(task, procedure, step, members[task, procedure, step])
        for task, procedure, step in order
    ]


def _group(task: str, procedure: str, step: int | None, runs: Sequence[Run]) -> Group:
    """Runs on all training examples are no replicates of those on four fifths: kept apart."""
    held_out = tuple(run for run in runs if _held_out_fold(run) is not None)
    on_all = tuple(run for run in runs if _held_out_fold(run) is None)
    return Group(task, procedure, step, on_all or held_out, held_out)


def _held_out_fold(run: Run) -> int | None:
    return run.facts.get("parameters", {}).get("held_out_fold")


def choose_learning_rate(
    group: Group, reader: PredictionReader, rule: LearningRateRule = "dev"
) -> tuple[Group, Choice | None]:
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
      UserError: no metric of the group says which way is better, or there is no run to choose by.
    """
    if rule not in RULES:
        raise UserError(f"learning-rate rule is {rule!r}, expected one of {', '.join(RULES)}")
    rates = group.learning_rates
    if len(rates) < 2:
        return group, None
    voters = group if rule == "dev" else _held_out_voters(group)
    sets = voters.evaluation_sets()
    names = (
        [rule] if rule == "held_out" else sorted(sets, key=lambda name: "dev" not in name.lower())
    )
    for evaluation_set in names:
        for measure in sets.get(evaluation_set, ()):
            better = METRICS[measure].higher_is_better if measure in METRICS else None
            if better is None:
                continue
            means = _means(voters, reader.run_scores(voters, evaluation_set, measure))
            best = max(rates, key=lambda rate: (means[rate] if better else -means[rate], -rate))
            kept = tuple(run for run in group.runs if run.facts["learning_rate"] == best)
            chosen = replace(group, runs=kept)
            return chosen, Choice(group, best, evaluation_set, measure, means, rule)
    raise UserError(
        f"{group.task}, {group.name} has learning rates {rates} and no metric to choose by; give "
        "one learning_rate in the comparison"
    )


def _held_out_voters(group: Group) -> Group:
    """The group of the runs that held something out; they must have every learning rate.

    Raises:
      UserError: for a learning rate there is none.
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


def _means(group: Group, scores: np.ndarray) -> dict[float, float]:
    """Mean score over runs [runs] by learning rate."""
    rate_of_run = [run.facts["learning_rate"] for run in group.runs]
    return {
        rate: float(np.mean([s for s, r in zip(scores, rate_of_run, strict=True) if r == rate]))
        for rate in group.learning_rates
    }


def select(runs: Sequence[Run], wanted: Mapping[str, Any], what: str) -> list[Run]:
    """Runs that match, at the last step of each task where no step is wanted.

    Args:
      runs: all runs.
      wanted: values by field of run.json, `procedure` among them.
      what: how messages call the selection.

    Raises:
      UserError: a field is unknown, or no run matches.
    """
    unknown = sorted(set(wanted) - set(SELECTORS))
    if unknown or "procedure" not in wanted:
        raise UserError(
            f"{what}: found the fields {sorted(wanted)}, expected procedure and any of "
            f"{', '.join(SELECTORS[1:])}; correct the comparison"
        )
    matching = [run for run in runs if all(run.facts.get(k) == v for k, v in wanted.items())]
    if not matching:
        found = sorted({f"{run.facts['procedure']} step {run.facts['step']}" for run in runs})
        raise UserError(
            f"{what}: no finished run has {dict(wanted)}, only {', '.join(found)}; correct the "
            "comparison or run what is missing"
        )
    if "step" in wanted:
        return matching
    return last_steps(matching)


def last_steps(runs: Sequence[Run]) -> list[Run]:
    """The runs at the last step of their task and procedure."""
    last: dict[tuple, int] = {}
    for run in runs:
        key = (run.facts["task"], run.facts["procedure"])
        step = -1 if run.facts["step"] is None else run.facts["step"]
        last[key] = max(step, last.get(key, -1))
    return [
        run
        for run in runs
        if (-1 if run.facts["step"] is None else run.facts["step"])
        == last[run.facts["task"], run.facts["procedure"]]
    ]
