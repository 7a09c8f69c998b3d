"""What each family of tasks provides to the training routine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.bert.model.configuration import BertConfig
from multiberts.finetune.content import FileContent
from multiberts.finetune.training_options import TrainingOptions

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import Trainer

Arrays = dict[str, np.ndarray]

# The evaluation set of the training examples that a run leaves out.
HELD_OUT = "held_out"


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """The predictions on one evaluation set.

    Attributes:
      name: such as `dev` or `winogender`.
      example_ids: [examples].
      labels: [examples]; None where they are not published, as in test sets.
      predictions: [examples].
      scores: [examples, classes], or None.
      metrics: names of the metrics that score it, the main one first; none without labels.
      extras: further columns that describe the examples, as in evaluate.dumps.predictions.
      outputs: further columns of this run's answers, likewise.
      texts: by name, texts [examples] by which a reader recognises an example, such as its `premise`
        and `hypothesis`; names as of columns.
      classes: the names of the classes that predictions number; None where they have none.

    Example:
      >>> dev = EvaluationSet(
      ...     name="dev",
      ...     example_ids=["reviews/dev/0", "reviews/dev/1"],
      ...     labels=np.array([0, 1]),
      ...     predictions=np.array([0, 0]),
      ...     scores=np.array([[2.0, -1.0], [0.5, 0.0]]),
      ...     metrics=("accuracy",),
      ... )
      >>> dev.labels == dev.predictions
      array([ True, False])
    """

    name: str
    example_ids: Sequence[str]
    labels: np.ndarray | None
    predictions: np.ndarray
    scores: np.ndarray | None
    metrics: tuple[str, ...]
    extras: Mapping[str, Sequence[Any] | np.ndarray] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, Sequence[Any] | np.ndarray] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    classes: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class Learner:
    """What the routine trains and asks for predictions.

    Attributes:
      trainer: the compiled trainer, shared by runs of the same shapes; None where nothing is trained.
      initial_parameters: the trained weights before the first step, by name.
      batch: training rows int64 [batch] -> the trainer's batch.
      evaluate: trained weights -> the evaluation sets one by one.
      evaluate_rows: trained weights and training rows int64 [rows] -> the predictions on them, named
        `held_out`; None where a family cannot.
      head: what the layers above the encoder are, for the record of a model that is kept.
      evaluation_metrics: names of the evaluation sets, with the metrics that score each.

    Example:
      >>> untrained = Learner(
      ...     trainer=None,
      ...     initial_parameters=dict,
      ...     batch=lambda rows: {},
      ...     evaluate=lambda weights: iter([]),
      ... )
      >>> untrained.evaluate_rows is None, list(untrained.evaluate({}))
      (True, [])
    """

    trainer: Trainer | None
    initial_parameters: Callable[[], Arrays]
    batch: Callable[[np.ndarray], Arrays]
    evaluate: Callable[[Mapping[str, np.ndarray]], Iterator[EvaluationSet]]
    evaluate_rows: Callable[[Mapping[str, np.ndarray], np.ndarray], EvaluationSet] | None = None
    head: TaskHead = dataclasses.field(default_factory=TaskHead)
    evaluation_metrics: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


class Data(Protocol):
    """Data that was read and found good, before TensorFlow is there."""

    @property
    def train_groups(self) -> np.ndarray:
        """Returns int64 [rows]: training rows of the same example share a number; none if nothing is trained.

        Such as the windows of one question: a held-out part of the examples has all of them or none.
        """
        ...

    def learner(
        self,
        checkpoint: Checkpoint,
        *,
        fingerprint: str,
        finetune_seed: int,
        compile_step: bool,
        training: TrainingOptions,
    ) -> Learner:
        """Joins the data with a checkpoint.

        Args:
          checkpoint: the encoder's weights.
          fingerprint: of the checkpoint, a key for caches.
          finetune_seed: of the head's initial weights.
          compile_step: whether XLA compiles training and prediction.
          training: the user's options; `training.trainer(loss, ...)` makes a trainer that follows them.
            The recipe's where the encoder is frozen or nothing is trained.
        """
        ...


class Family(Protocol):
    """A kind of task, with the paths of its data."""

    def inputs(self) -> dict[str, Path | list[Path]]:
        """Returns the files that decide the run's numbers, by the argument of `finetune` that names them.

        Raises:
          UserError: one is missing.
        """
        ...

    def parameters(self) -> dict[str, Any]:
        """Arguments of `finetune` that decide the numbers of this family only."""
        ...

    def read(self, config: BertConfig, vocabulary: FileContent) -> Data:
        """Reads and checks the data; imports no TensorFlow.

        Raises:
          UserError: bad data, or a model that cannot take it.
        """
        ...
