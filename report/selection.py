"""Selects and groups the finished fine-tuning runs of a report, and chooses their learning rates.

Example: `multiberts stats rates` with the parameters `learning_rates.predictions = "results/sweep"`
and `learning_rates.rule = "dev"`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import (
    RUN_COORDINATES,
    final_sets,
    find_runs,
    run_directories,
)
from multiberts.report.prediction_sets import PredictionSet
from multiberts.report.presentation.table_writer import Table
from multiberts.runs import console
from multiberts.runs.errors import UserError, counted
from multiberts.runs.plan_marker import FILE as PLAN
from multiberts.runs.plan_marker import read_plan
from multiberts.stats.score import Score

if TYPE_CHECKING:
    import xarray

SELECTORS = ("procedure", "step", "task", "learning_rate", "pretrain_seed", "data_seed")
LearningRateRule = Literal["dev", "held_out"]
SeedKind = Literal["pretrain", "finetune"]
SEEDS: Mapping[SeedKind, str] = {"pretrain": "pre-training seeds", "finetune": "fine-tuning seeds"}
# As Sellam et al. (2022, table 5), and as Zhong et al. (2021, appendix A), who held out a fifth.
RULE_TEXTS: Mapping[str, str] = {
    "dev": "the best mean over runs on the development set, slightly optimistic for scores there",
    "held_out": "the best mean over runs on the part of the training data that they held out",
}


# Parameters of fine-tuning that distinguish runs of one finetune_seed.
_SEEDS_OF_SOURCES = ("head_seed", "order_seed", "dropout_seed")


@dataclass(frozen=True)
class FinishedRun:
    """A finished fine-tuning run: its directory and the content of its run.json.

    Attributes:
      seed_is: training stage that `pretrain_seed` belongs to; see `by_checkpoint`.
      steps: text on its step and the other steps of its procedure; see `at_steps`.
    """

    directory: Path
    facts: Mapping[str, Any]
    seed_is: SeedKind = "pretrain"
    steps: str = ""

    @property
    def name(self) -> str:
        """Returns a name that identifies the run: task, seeds and other coordinates."""
        parts = [self.facts["task"], *(f"{name} {self.facts[name]}" for name in RUN_COORDINATES)]
        if self.held_out_fold is not None:
            parts.append(f"held_out_fold {self.held_out_fold}")
        if self.facts["pretrain_seed"] is None and any(self.checkpoint):
            parts.append(f"checkpoint {' '.join(self.checkpoint)}")
        return ", ".join(map(str, parts))

    @property
    def checkpoint(self) -> tuple[str, str]:
        """Returns the name and SHA-256 of the fine-tuned checkpoint; empty if not recorded."""
        known = self.facts.get("checkpoint", {})
        return known.get("name", ""), known.get("sha256", "")

    @property
    def step_or_less(self) -> int:
        """Returns the pre-training step as a sort key; -1 if unknown."""
        return -1 if self.facts["step"] is None else self.facts["step"]

    @property
    def held_out_fold(self) -> int | None:
        """Returns the fold of the training data that the run held out, or None."""
        return cast("int | None", self.facts.get("parameters", {}).get("held_out_fold"))


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in their seeds and learning rates.

    Attributes:
      task, procedure, step: values shared by all runs; `step` is None if the checkpoint records none.
      runs: runs trained on all training examples, or else the runs that held some out; in the order of their
        directories.
      held_out_runs: runs that held out a part of the training data, to choose a learning rate.
    """

    task: str
    procedure: str
    step: int | None
    runs: tuple[FinishedRun, ...]
    held_out_runs: tuple[FinishedRun, ...] = ()

    @property
    def seeds(self) -> list:
        """Returns the distinct pre-training seeds, sorted."""
        return sorted({run.facts["pretrain_seed"] for run in self.runs})

    @property
    def learning_rates(self) -> list:
        """Returns the distinct learning rates, sorted."""
        return sorted({run.facts["learning_rate"] for run in self.runs}, key=lambda rate: rate or 0)

    @property
    def name(self) -> str:
        return self.procedure if self.step is None else f"{self.procedure}, step {self.step}"

    def by_learning_rate(self) -> list[RunGroup]:
        """Returns one group per learning rate, named after it; a group with one rate is unchanged."""
        rates = self.learning_rates
        if len(rates) < 2:
            return [self]
        return [
            replace(
                self,
                procedure=f"learning rate {rate:g}" if rate else "no learning rate",
                runs=tuple(run for run in self.runs if run.facts["learning_rate"] == rate),
            )
            for rate in rates
        ]

    def evaluation_sets(self) -> dict[str, list[str]]:
        """Returns the metrics of each evaluation set that all trained models were scored on.

        Leaves out sets without labels and sets of early fine-tuning checkpoints.
        """
        first, *others = (final_sets(run.facts) for run in self.runs)
        return {
            name: list(entry["metrics"])
            for name, entry in first.items()
            if entry["metrics"] and all(name in sets for sets in others)
        }


def finished_runs(predictions: str | Sequence[str]) -> list[FinishedRun]:
    """Finds the finished fine-tuning runs in a folder or folders, at any depth."""
    folders = [predictions] if isinstance(predictions, str) else list(predictions)
    runs = [FinishedRun(*found) for folder in folders for found in find_runs(folder)]
    unfinished = [path for folder in folders for path in run_directories(folder, finished=False)]
    lines = f"{', '.join(map(str, unfinished[:3]))}{', ...' if len(unfinished) > 3 else ''}"
    if not runs:
        without = f", and {len(unfinished)} without DONE ({lines})" if unfinished else ""
        raise UserError(
            f"{', '.join(folders)}: found no finished run{without}; run the fine-tuning first"
        )
    if unfinished:
        console.warn(
            f"{counted(len(unfinished), 'run')} without DONE left out, as not finished: {lines}"
        )
    return runs


def _advice_on_repeated(repeated: FinishedRun, runs: Sequence[FinishedRun]) -> str:
    """Names the runs that the plan of their root no longer has, or asks to move one away."""
    for root in repeated.directory.parents:
        if (root / PLAN).is_file():
            planned = {root / run.path for run in read_plan(root)}
            old = [
                str(run.directory)
                for run in runs
                if not planned & {run.directory, *run.directory.parents}
            ]
            if old:
                more = f" and {len(old) - 3} more" if len(old) > 3 else ""
                return (
                    f"the plan of {root} no longer has {', '.join(old[:3])}{more}: move these away"
                )
    return "move one of them away, or give the folder of one"


def make_groups(runs: Sequence[FinishedRun]) -> list[RunGroup]:
    """Groups runs by task, procedure and step, sorted."""
    members: dict[tuple, list[FinishedRun]] = {}
    seen: dict[tuple, FinishedRun] = {}
    for run in runs:
        parameters = run.facts.get("parameters", {})
        facts = [run.facts.get(name) for name in ("task", *RUN_COORDINATES)]
        seeds = [parameters.get(name) for name in _SEEDS_OF_SOURCES]
        coordinates = (*facts, run.held_out_fold, run.checkpoint, *seeds)
        if (first := seen.setdefault(coordinates, run)) is not run:
            raise UserError(
                f"{first.directory} and {run.directory} are both {run.name}, with other parameters or data, "
                f"and would be averaged; {_advice_on_repeated(run, runs)}"
            )
        if run.facts["pretrain_seed"] is None:
            raise UserError(
                f"{run.directory / 'run.json'} has no pretrain_seed, expected one to know which runs "
                "share it; take checkpoints over their fine-tuning seeds (--seeds=finetune of compare and "
                "stats rates), or write it into the checkpoint.json that was fine-tuned"
            )
        key = (run.facts["task"], str(run.facts["procedure"]), run.step_or_less)
        members.setdefault(key, []).append(run)
    groups = []
    for key in sorted(members):
        # Runs on all training examples are not replicates of runs on a part of them.
        held_out = tuple(run for run in members[key] if run.held_out_fold is not None)
        on_all = tuple(run for run in members[key] if run.held_out_fold is None)
        step = members[key][0].facts["step"]
        _warn_of_unlike_checkpoints(members[key])
        groups.append(RunGroup(*key[:2], step, on_all or held_out, held_out))
    return groups


def _warn_of_unlike_checkpoints(runs: Sequence[FinishedRun]) -> None:
    """Warns if runs with one pre-training seed start from checkpoints with different weights."""
    by_seed: dict[int, dict[str, str]] = {}
    for run in runs:
        name, sha256 = run.checkpoint
        if sha256:
            by_seed.setdefault(run.facts["pretrain_seed"], {})[sha256] = name
    for seed, names in by_seed.items():
        if len(names) > 1:
            console.warn(
                f"{runs[0].facts['task']}: runs of {runs[0].facts['procedure']}, pre-training seed {seed}, "
                f"are of {counted(len(names), 'checkpoint')} ({', '.join(sorted({*names.values()}))}) with "
                "unlike weights, and are averaged as runs of one"
            )


def select(runs: Sequence[FinishedRun], wanted: Mapping[str, Any], what: str) -> list[FinishedRun]:
    """Selects the matching runs, by default at the last step of each task.

    Args:
      wanted: required value of each field of run.json; must contain `procedure`.
      what: name of the selection in messages.
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
    return matching if "step" in wanted else last_steps(matching)


def last_steps(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Returns the runs at the last step of their task and procedure."""
    keys = [(run.facts["task"], run.facts["procedure"]) for run in runs]
    last: dict[tuple, int] = {}
    for run, key in zip(runs, keys, strict=True):
        last[key] = max(run.step_or_less, last.get(key, -1))
    return [run for run, key in zip(runs, keys, strict=True) if run.step_or_less == last[key]]


def at_steps(runs: Sequence[FinishedRun], steps: Sequence[int], what: str) -> list[FinishedRun]:
    """Returns the runs at these pre-training steps, by default at the last step of each procedure.

    Args:
      what: name of the runs in messages.
    """
    known: dict[tuple, set[int]] = {}
    for run in runs:
        known.setdefault((run.facts["task"], run.facts["procedure"]), set()).add(run.step_or_less)
    if unknown := sorted({*steps} - set().union(*known.values())):
        there = ", ".join(map(str, sorted(set().union(*known.values()) - {-1}))) or "none"
        raise UserError(
            f"{what}: found no run at step {unknown[0]}, and the known steps are {there}; leave --step "
            "out, or give one of these"
        )
    found = [run for run in runs if run.step_or_less in steps] if steps else last_steps(runs)
    kept = {(run.facts["task"], run.facts["procedure"]) for run in found}
    tasks = {task for task, _ in kept}
    for task, procedure in [key for key in known.keys() - kept if key[0] in tasks]:
        there = ", ".join(map(str, sorted(known[task, procedure])))
        console.warn(f"{task}: {procedure} is left out, with steps {there} only")
    named = []
    for run in found:
        of_procedure = sorted(known[run.facts["task"], run.facts["procedure"]])
        step = "" if run.facts["step"] is None else f"step {run.facts['step']}"
        if step and len(of_procedure) > 1:
            step += f"{' of' if steps else ', the last of'} {', '.join(map(str, of_procedure))}"
        named.append(replace(run, steps=step))
    return named


def by_checkpoint(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Returns the runs with the checkpoint as their procedure and the fine-tuning seed as their seed.

    A checkpoint's name is built from the fields that differ: procedure and step, pre-training seed, folder.
    """
    folders = {sha256: name for name, sha256 in (run.checkpoint for run in runs)}
    alike = [name for name, number in Counter(folders.values()).items() if number > 1]
    parts = []
    for run in runs:
        folder, sha256 = run.checkpoint
        seed, step = run.facts["pretrain_seed"], run.facts["step"]
        parts.append(
            (
                f"{run.facts['procedure']}" + f", step {step}" * (step is not None),
                f"pre-training seed {'not known' if seed is None else seed}",
                f"{folder} {sha256[:8]}" if folder in alike else folder,
            )
        )
    differing = [len({names[place] for names in parts}) > 1 for place in range(3)]
    # Known seeds are enough to name the checkpoints.
    differing[2] &= len({names[:2] for names in parts}) < len({*parts})
    found = []
    for run, names in zip(runs, parts, strict=True):
        told = [name for name, differs in zip(names, differing, strict=True) if differs]
        name = ", ".join(told) or names[2] or names[0]
        seed = {"procedure": name, "step": None, "pretrain_seed": run.facts["finetune_seed"]}
        found.append(replace(run, facts={**run.facts, **seed}, seed_is="finetune"))
    return found


@dataclass
class PredictionSetReader:
    """Reads the prediction sets of groups and caches them.

    Attributes:
      read: function that reads predictions, such as `evaluate.prediction_files.predictions.read_predictions`.
    """

    read: Callable[[Sequence[Path], str], xarray.Dataset] = read_predictions
    _prediction_sets: dict[tuple, PredictionSet] = field(default_factory=dict)

    def __call__(self, group: RunGroup, evaluation_set: str) -> PredictionSet:
        directories = [run.directory for run in group.runs]
        key = (*directories, evaluation_set)
        if key not in self._prediction_sets:
            data = self.read(directories, evaluation_set)
            if group.runs[0].seed_is == "finetune":
                seeds = ("run", data["finetune_seed"].to_numpy())
                others = {"finetune_seed", "lineage", "procedure"} & {*data.coords}
                data = data.drop_vars(others).assign_coords(pretrain_seed=seeds)
                data = data.assign_attrs(one_checkpoint=True)
            self._prediction_sets[key] = PredictionSet(
                group.task,
                evaluation_set,
                group.procedure,
                group.step,
                tuple(group.evaluation_sets()[evaluation_set]),
                data,
            )
        return self._prediction_sets[key]


@dataclass(frozen=True)
class LearningRateChoice:
    """Choice of a group's learning rate.

    Attributes:
      evaluation_set, metric: evaluation set and metric that the choice is based on.
      means: mean score over runs by learning rate.
      rule: a key of `RULE_TEXTS`.
    """

    group: RunGroup
    learning_rate: float
    evaluation_set: str
    metric: str
    means: dict[float, float]
    rule: LearningRateRule = "dev"

    def in_words(self) -> str:
        """Describes the chosen rate, its alternatives and the rule."""
        rates = ", ".join(f"{rate:g}" for rate in self.means)
        return f"learning rate {self.learning_rate:g} of {rates} ({RULE_TEXTS[self.rule]})"


def choose_learning_rate(
    group: RunGroup, reader: PredictionSetReader, rule: LearningRateRule = "dev"
) -> tuple[RunGroup, LearningRateChoice | None]:
    """Keeps the learning rate with the best mean over runs; ties go to the smaller.

    Args:
      group: runs with one or more learning rates.
      rule: `dev`: use the score on the development set (or the first set, if none is named dev), as the
        papers do; slightly optimistic. `held_out`: use the runs that held out a fifth of the training data,
        and their score on that fifth; the development set then serves for the result only.

    Returns:
      The group with the chosen learning rate only, and the choice (None if there was one rate).
    """
    if rule not in RULE_TEXTS:
        raise UserError(f"learning-rate rule is {rule!r}, expected one of {', '.join(RULE_TEXTS)}")
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
            score = Score.of(measure)
            if score.more_is_better is None:
                continue
            scores = reader(voters, evaluation_set).scores_of_runs(measure)
            means = {rate: float(scores[rate_of_run == rate].mean()) for rate in rates}
            best = max(rates, key=lambda rate: (score.sign * means[rate], -rate))
            kept = tuple(run for run in group.runs if run.facts["learning_rate"] == best)
            choice = LearningRateChoice(group, best, evaluation_set, measure, means, rule)
            return replace(group, runs=kept), choice
    raise UserError(
        f"{group.task}, {group.name} has learning rates {rates} and no metric to choose by; give "
        "one learning_rate in the comparison"
    )


def _held_out_voters(group: RunGroup) -> RunGroup:
    voters = replace(group, runs=group.held_out_runs)
    missing = [rate for rate in group.learning_rates if rate not in voters.learning_rates]
    if missing:
        raise UserError(
            f"{group.task}, {group.name}: no run with learning rate {missing[0]:g} held out "
            "training examples, to choose by; run finetune with held_out_fold = 0 for every "
            "learning rate, or choose by the rule dev"
        )
    return voters


def prediction_sets_of_runs(
    runs: Sequence[FinishedRun],
) -> tuple[list[PredictionSet], list[LearningRateChoice]]:
    """Reads finished runs, and chooses one learning rate per task, procedure and step.

    Args:
      runs: see `report.selection.finished_runs`.

    Returns:
      One prediction set per group and evaluation set, and the choices of learning rates.
    """
    reader = PredictionSetReader()
    found = [choose_learning_rate(group, reader) for group in make_groups(runs)]
    prediction_sets = [
        reader(group, name) for group, _ in found for name in group.evaluation_sets()
    ]
    return prediction_sets, [choice for _, choice in found if choice is not None]


def learning_rate_table(choices: Sequence[LearningRateChoice]) -> Table:
    """Makes a table of the mean score of each learning rate, with the chosen ones marked."""
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
    return Table(columns, rows, {"Mean score": ".4f"})


def learning_rates(
    *,
    predictions: str | Sequence[str],
    rule: LearningRateRule = "dev",
    seeds: SeedKind = "pretrain",
) -> None:
    """Prints the mean score of each learning rate, with the chosen one marked.

    Args:
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      rule: `dev` or `held_out`, as in `choose_learning_rate`.
      seeds: training stage that the seeds belong to: `pretrain` (one choice per procedure and step) or
        `finetune` (one choice per checkpoint).
    """
    reader = PredictionSetReader()
    runs = finished_runs(predictions)
    groups = make_groups(by_checkpoint(runs) if seeds == "finetune" else runs)
    chosen = [choose_learning_rate(group, reader, rule) for group in groups]
    console.report(f"{rule}: {RULE_TEXTS[rule]}")
    for kept, choice in chosen:
        if choice is None:
            (rate,) = kept.learning_rates
            only = "none" if rate is None else format(rate, "g")
            console.report(f"{kept.task}, {kept.name}: only {only}")
            continue
        console.report(f"{kept.task}, {kept.name}: {choice.metric} on {choice.evaluation_set}")
        for rate, mean in choice.means.items():
            mark = "  <- best" if rate == choice.learning_rate else ""
            console.report(f"  {rate:<8g} {mean:.4f}{mark}")
