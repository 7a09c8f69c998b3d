"""The fine-tuned model that a run saves: the last one, or the best one that it evaluated.

A checkpoint in the released layout (`bert/checkpoint/checkpoint.py`): the encoder, the head's variables,
and a record of their training (`bert/checkpoint/fine_tuned.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.checkpoint.checkpoint import (
    INITIALISED,
    PROVENANCE,
    read_checkpoint,
    read_provenance,
    write_checkpoint,
)
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.checkpoint.tensorflow_format import FILES
from multiberts.bert.training.state import DeviceWeights
from multiberts.bert.vocabulary import TOKENIZER_CONFIG
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.prediction_files.run_file import set_at
from multiberts.evaluate.scoring import scores_of
from multiberts.finetune.model import HELD_OUT, Model
from multiberts.finetune.outputs import Entries, written_early
from multiberts.finetune.settings import FinetuningSettings
from multiberts.finetune.task import Task
from multiberts.runs.errors import UserError, nearest

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint

MODEL = "model"
MODEL_FILES = tuple(f"{MODEL}/{name}" for name in (*FILES, PROVENANCE))


def model_files(run_dir: Path) -> list[str]:
    """Returns the files of a run's model; a cased model has one more."""
    cased = f"{MODEL}/{TOKENIZER_CONFIG}"
    return [*MODEL_FILES, *([cased] if (run_dir / cased).is_file() else [])]


@dataclasses.dataclass(frozen=True)
class _Selection:
    """The score that models are compared by, and when training ends.

    Attributes:
      patience: number of scores without improvement after which training ends; None: unlimited.
    """

    evaluation_set: str
    metric: str
    higher_is_better: bool
    patience: int | None

    @classmethod
    def of(cls, settings: FinetuningSettings, model: Model) -> _Selection:
        """Finds the set and the metric."""
        sets = dict(model.evaluation_metrics)
        if settings.held_out_fold is not None:
            sets[HELD_OUT] = next(iter(sets.values()), ("accuracy",))
        name = settings.keep_set or next(iter(sets), None)
        if name is None or not sets.get(name):
            scored_sets = ", ".join(name for name, metrics in sets.items() if metrics) or "none"
            raise UserError(
                f"finetune.keep_set is {settings.keep_set!r}, but the sets of task {settings.task} with "
                f"labels are: {scored_sets}; choose one of them"
            )
        metric = settings.keep_metric or sets[name][0]
        direction = METRICS[metric].higher_is_better if metric in METRICS else None
        if metric not in sets[name] or direction is None:
            usable = [known for known in sets[name] if known in METRICS]
            raise UserError(
                f"finetune.keep_metric is {metric!r}, expected a metric of evaluation set {name} that has "
                f"a better direction ({', '.join(usable) or 'none'}); {nearest(metric, usable)}"
            )
        return cls(name, metric, direction, settings.patience)

    def best(self, scores: Sequence[float]) -> int:
        return int(np.argmax(scores) if self.higher_is_better else np.argmin(scores))


@dataclasses.dataclass
class FineTunedModel:
    """The model in a run's directory, written atomically.

    Attributes:
      provenance: the model's provenance, with `epochs` unset.
      selection: how the best model is chosen; None: the last one is saved.
      early: epochs of the models that are evaluated before the last one.
    """

    run_dir: Path
    start: Checkpoint
    provenance: Mapping[str, Any]
    selection: _Selection | None
    early: Sequence[float]
    _score_of: dict[float, float] = dataclasses.field(default_factory=dict)  # scores by epochs

    @classmethod
    def of(
        cls,
        settings: FinetuningSettings,
        task: Task,
        model: Model,
        start: Checkpoint,
        early: Sequence[float],
    ) -> FineTunedModel | None:
        """Returns the model that a run saves; None if it saves none.

        Args:
          start: the checkpoint that training starts from.
          early: epochs of the models that are evaluated before the last one.
        """
        if settings.keep == "none":
            return None
        selection = None
        if settings.keep == "best":
            selection = _Selection.of(settings, model)
        origin = start.provenance
        procedure = origin["procedure"]
        provenance = {
            **{name: origin[name] for name in ("pretrain_seed", "data_seed", "step")},
            # As in `base+MNLI`: runs that start from this model must not mix with runs of the encoder.
            "procedure": procedure and f"{procedure}+{settings.task}",
            "parent": start.as_parent(),
            **{
                name: origin[name] for name in ("corpus", "training", INITIALISED) if name in origin
            },
            FINE_TUNED: {
                "task": settings.task,
                "head": model.head.record(),
                "sequence_length": settings.sequence_length,
                "do_lower_case": start.vocabulary.lower_case,
                "arguments": {
                    "labels": settings.labels and list(settings.labels),
                    "options": task.decisive(settings.options or {}),
                    "task_modules": list(settings.task_modules),
                },
                "learning_rate": settings.learning_rate,
                "finetune_seed": settings.finetune_seed,
                "epochs": None,
            },
        }
        return cls(Path(settings.run_dir), start, provenance, selection, early)

    @property
    def path(self) -> Path:
        return self.run_dir / MODEL

    def epochs(self) -> float:
        """Returns the epochs after which the model was written."""
        epochs: float = read_provenance(self.path)[FINE_TUNED]["epochs"]
        return epochs

    def offer(
        self,
        weights: Mapping[str, np.ndarray],
        entries: Entries,
        epochs: float,
        *,
        is_last: bool = False,
    ) -> bool:
        """Saves a model if it is better than all before it, or, without a selection, the last one.

        Args:
          weights: trained weights by name, float32.
          entries: entries of its predictions in run.json.
          is_last: whether training has ended.

        Returns:
          Whether it was saved, replacing an earlier one.
        """
        if self.selection is None:
            is_better = is_last
        else:
            before = self._scores()
            score = self._score(entries, None if is_last else epochs)
            is_better = self.selection.best([*before, score]) == len(before)
        if is_better:
            parameters = self.start.parameters
            encoder = {name: parameters[name] for name in parameters if name.startswith("bert/")}
            trained = sorted(name for name in weights if not name.startswith("bert/"))
            shapes = {name: list(weights[name].shape) for name in trained}
            record = self.provenance[FINE_TUNED]
            head = {**record["head"], "variables": shapes}
            write_checkpoint(
                self.path,
                {**encoder, **weights},
                self.start.config,
                self.start.vocabulary,
                {**self.provenance, FINE_TUNED: {**record, "head": head, "epochs": epochs}},
            )
        return is_better

    def read(self, names: Iterable[str]) -> DeviceWeights:
        """Returns the named weights of the saved model."""
        variables = read_checkpoint(self.path).variables
        return DeviceWeights({name: variables[name] for name in names})

    def has_lost_patience(self) -> bool:
        """Returns whether training ends here, after too many models without improvement."""
        if self.selection is None or self.selection.patience is None:
            return False
        scores = self._scores()
        if not scores:
            return False
        return len(scores) - 1 - self.selection.best(scores) >= self.selection.patience

    def _scores(self) -> list[float]:
        for epochs in self.early:
            if epochs not in self._score_of and (entries := written_early(self.run_dir, epochs)):
                self._score_of[epochs] = self._score(entries, epochs)
        return [self._score_of[epochs] for epochs in self.early if epochs in self._score_of]

    def _score(self, entries: Entries, epochs: float | None) -> float:
        """Returns the score that models are compared by; `epochs` None: of the last model."""
        assert self.selection is not None
        name = self.selection.evaluation_set
        name = name if epochs is None else set_at(name, epochs)
        parent = self.provenance["parent"]
        content = {
            "task": self.provenance[FINE_TUNED]["task"],
            "evaluation_sets": entries,
            **{name: parent.get(name) for name in ("procedure", "pretrain_seed", "step")},
            **dict.fromkeys(("data_seed", "learning_rate", "finetune_seed")),
        }
        return scores_of(self.run_dir, name, content)[self.selection.metric]
