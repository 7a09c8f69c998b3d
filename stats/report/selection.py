"""Which runs a report uses: finished fine-tuning runs, selected and grouped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.evaluate.dumps.run_file import final_sets
from multiberts.runs.errors import UserError

SELECTORS = ("procedure", "step", "task", "learning_rate", "pretrain_seed", "data_seed")


@dataclass(frozen=True)
class FinishedRun:
    """A finished fine-tuning run: its directory and the content of its run.json."""

    directory: Path
    facts: Mapping[str, Any]

    @property
    def step_or_less(self) -> int:
        """Returns the pre-training step; -1 where it is not known, to sort by."""
        return -1 if self.facts["step"] is None else self.facts["step"]

    @property
    def held_out_fold(self) -> int | None:
        """Returns the part of the training data that the run held out, or None."""
        fold: int | None = self.facts.get("parameters", {}).get("held_out_fold")
        return fold


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in their seeds and learning rates.

    Attributes:
      task, procedure, step: what they share; `step` is None where the checkpoint did not record it.
      runs: in the order of their directories: those trained on all training examples; where there
        are none, those that held some out.
      held_out_runs: those that held some out, to choose a learning rate by.
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
        """Returns the procedure and its step."""
        return self.procedure if self.step is None else f"{self.procedure}, step {self.step}"

    def evaluation_sets(self) -> dict[str, list[str]]:
        """Returns the metrics by evaluation set, for sets that the trained models of all runs have.

        Sets of early checkpoints of a fine-tuning, and sets without labels, are left out.
        """
        first, *others = (final_sets(run.facts) for run in self.runs)
        return {
            name: list(entry["metrics"])
            for name, entry in first.items()
            if entry["metrics"] and all(name in sets for sets in others)
        }


def finished_runs(predictions: str | Sequence[str]) -> list[FinishedRun]:
    """Finds the finished fine-tuning runs in a folder or folders, at any depth.

    Raises:
      UserError: there are none.
    """
    from multiberts.evaluate.dumps.run_file import find_runs

    folders = [predictions] if isinstance(predictions, str) else list(predictions)
    runs = [FinishedRun(*found) for folder in folders for found in find_runs(folder)]
    if not runs:
        raise UserError(f"{', '.join(folders)}: found no finished run; run the fine-tuning first")
    return runs


def make_groups(runs: Sequence[FinishedRun]) -> list[RunGroup]:
    """Groups runs by task, procedure and step, sorted.

    Raises:
      UserError: a run has no pre-training seed.
    """
    members: dict[tuple, list[FinishedRun]] = {}
    for run in runs:
        if run.facts["pretrain_seed"] is None:
            raise UserError(
                f"{run.directory / 'run.json'} has no pretrain_seed, expected one to know which runs "
                "share it; write it into the checkpoint.json that was fine-tuned"
            )
        key = (run.facts["task"], str(run.facts["procedure"]), run.step_or_less)
        members.setdefault(key, []).append(run)
    groups = []
    for key in sorted(members):
        # Runs on all training examples are not replicates of runs on a part of them.
        held_out = tuple(run for run in members[key] if run.held_out_fold is not None)
        on_all = tuple(run for run in members[key] if run.held_out_fold is None)
        step = members[key][0].facts["step"]
        groups.append(RunGroup(*key[:2], step, on_all or held_out, held_out))
    return groups


def select(runs: Sequence[FinishedRun], wanted: Mapping[str, Any], what: str) -> list[FinishedRun]:
    """Selects the runs that match, at the last step of each task unless a step is wanted.

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
    return matching if "step" in wanted else last_steps(matching)


def last_steps(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Returns the runs at the last step of their task and procedure."""
    keys = [(run.facts["task"], run.facts["procedure"]) for run in runs]
    last: dict[tuple, int] = {}
    for run, key in zip(runs, keys, strict=True):
        last[key] = max(run.step_or_less, last.get(key, -1))
    return [run for run, key in zip(runs, keys, strict=True) if run.step_or_less == last[key]]
