"""A run as the plan has it: which stage is called with what, and where it lies."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiberts.runs.identity import Identity

# Where each stage's function lives. The modules import nothing heavy until the function is called.
STAGES = {
    "make_world": "multiberts.pretrain.world.synthetic_world",
    "import_checkpoint": "multiberts.launch.imports.checkpoint_run",
    "prepare": "multiberts.pretrain.corpus.preparation",
    "pretrain": "multiberts.pretrain.training.pretraining",
    "finetune": "multiberts.finetune.finetuning",
    "import_predictions": "multiberts.evaluate.imports.importing",
    "score": "multiberts.evaluate.scoring",
    "report": "multiberts.stats.report.reporting",
    "paper": "multiberts.stats.paper.reproduction",
}

# Stages of what was imported: a run that made one checkpoint, or one that made predictions.
CHECKPOINT_STAGE = "import_checkpoint"
PREDICTIONS_STAGE = "import_predictions"


@dataclass(frozen=True)
class Output:
    """Something inside the directory of another run."""

    run: PlannedRun
    inside: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """One call of one stage.

    Attributes:
      stage: key of `STAGES`.
      name: for people, e.g. `pretrain base seed 0`.
      parameters: the stage's keyword arguments but `run_dir`; an `Output` stands for the path of
        what another run makes.
      parents: the runs that must be done before.
      identity: SHA-256 over all that changes the numbers, in hexadecimal.
      path: the directory, relative to the experiment's root.
    """

    stage: str
    name: str
    parameters: Mapping[str, Any] = field(repr=False, compare=False)
    parents: tuple[PlannedRun, ...] = field(repr=False, compare=False)
    identity: str
    path: str

    def arguments(self, root: str | Path) -> dict[str, Any]:
        """The stage's keyword arguments, `run_dir` and parents' paths included."""
        located = {name: _located(value, Path(root)) for name, value in self.parameters.items()}
        return {"run_dir": str(Path(root) / self.path), **located}

    def done(self, root: str | Path) -> bool:
        """Whether the run's DONE marker is there."""
        return (Path(root) / self.path / "DONE").is_file()


def apart(imported: Sequence[PlannedRun]) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """Imported runs that made checkpoints, and those that made predictions."""
    return (
        [run for run in imported if run.stage == CHECKPOINT_STAGE],
        [run for run in imported if run.stage == PREDICTIONS_STAGE],
    )


def last_of_seeds(checkpoints: Sequence[PlannedRun]) -> dict[tuple[str, int], PlannedRun]:
    """By procedure and seed, the checkpoint of the last step."""
    in_order = sorted(checkpoints, key=lambda run: run.parameters["num_steps"])
    return {(run.parameters["procedure"], run.parameters["pretrain_seed"]): run for run in in_order}


def stage_function(stage: str) -> Callable[..., None]:
    """The function of a stage: a key of `STAGES`, or `module:function` for one that is not ours."""
    module, _, function = stage.rpartition(":")
    return getattr(importlib.import_module(module or STAGES[stage]), function)


def stage_identity(stage: str) -> Identity:
    """Returns what the stage's module declares as `IDENTITY`; without it every parameter counts."""
    module = stage.rpartition(":")[0] or STAGES[stage]
    return getattr(importlib.import_module(module), "IDENTITY", Identity())


def _located(value: Any, root: Path) -> Any:
    """The value with outputs replaced by their paths."""
    if isinstance(value, Output):
        return str(root / value.run.path / value.inside)
    if isinstance(value, Mapping):
        return {key: _located(item, root) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_located(item, root) for item in value]
    return value
