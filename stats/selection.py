"""Which runs a report uses: finished fine-tuning runs, grouped, one learning rate chosen a
group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluate.metrics import METRICS, Metric, RankMetric, metric_input
from evaluate.winogender import OCCUPATION_MEASURES, occupation_metric, occupation_scores
from runs.errors import UserError

if TYPE_CHECKING:
    import xarray

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
        runs: in the order of their directories.
    """

    task: str
    procedure: str
    step: int | None
    runs: tuple[Run, ...]

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
        """Metrics by evaluation set, for the sets that every run has."""
        first, *others = (run.facts["evaluation_sets"] for run in self.runs)
        return {
            name: list(entry["metrics"])
            for name, entry in first.items()
            if all(name in sets for sets in others)
        }


@dataclass(frozen=True)
class Choice:
    """How the learning rate of a group was chosen.

    Attributes:
        group: the group with all its learning rates.
        learning_rate: the one that was kept.
        evaluation_set, metric: what it was chosen by.
        means: mean score over runs by learning rate.
    """

    group: Group
    learning_rate: float
    evaluation_set: str
    metric: str
    means: dict[float, float]


@dataclass
class PredictionReader:
    """Reads predictions of groups, each once.

    Attributes:
        read: `evaluate.predictions.read_predictions`.
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
        given = metric_input(metric, dataset["prediction"], dataset.get("scores"))
        return metric.score(dataset["label"].to_numpy(), given)


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
        Group(task, procedure, step, tuple(members[task, procedure, step]))
        for task, procedure, step in order
    ]


def choose_learning_rate(group: Group, reader: PredictionReader) -> tuple[Group, Choice | None]:
    """Keeps the learning rate with the best mean over runs; ties go to the smaller.

    As the papers do, on the development set, which is slightly optimistic. Without an evaluation
    set named dev the first one serves.

    Returns:
        The group with that learning rate alone, and the choice (None where there was one rate
        only).

    Raises:
        UserError: no metric of the group says which way is better.
    """
    rates = group.learning_rates
    if len(rates) < 2:
        return group, None
    sets = group.evaluation_sets()
    for evaluation_set in sorted(sets, key=lambda name: "dev" not in name.lower()):
        for measure in sets[evaluation_set]:
            better = METRICS[measure].higher_is_better if measure in METRICS else None
            if better is None:
                continue
            scores = reader.run_scores(group, evaluation_set, measure)
            rate_of_run = [run.facts["learning_rate"] for run in group.runs]
            means = {
                rate: float(
                    np.mean([s for s, r in zip(scores, rate_of_run, strict=True) if r == rate])
                )
                for rate in rates
            }
            best = max(rates, key=lambda rate: (means[rate] if better else -means[rate], -rate))
            kept = tuple(run for run in group.runs if run.facts["learning_rate"] == best)
            chosen = Group(group.task, group.procedure, group.step, kept)
            return chosen, Choice(group, best, evaluation_set, measure, means)
    raise UserError(
        f"{group.task}, {group.name} has learning rates {rates} and no metric to choose by; give "
        "one "
        "learning_rate in the comparison"
    )


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
