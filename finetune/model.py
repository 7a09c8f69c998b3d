"""A model for training and prediction: a checkpoint, a network on it, and its data.

A `Network` is the computation. Runs of the same network in a process share its compiled trainer and forward
pass. A `Model` adds the data: the batches, and the meaning of outputs.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.bert.model.backend_ops import PLAIN
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.encoder import Packing, encode
from multiberts.bert.model.heads import masked_lm_logits
from multiberts.bert.training.trainer import Trainer, Trainers
from multiberts.finetune.features import encoder_inputs
from multiberts.finetune.packing import PACKING
from multiberts.finetune.training_options import RECIPE, TrainingOptions
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from multiberts.bert.training.engine import CompileChoice, ForwardPass

Arrays = dict[str, np.ndarray]
Weights = Mapping[str, np.ndarray]

POOLER = "bert/pooler/dense/kernel", "bert/pooler/dense/bias"
# The evaluation set of training examples that a run holds out (Zhong et al. 2021, appendix A).
HELD_OUT = "held_out"


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """The predictions on one evaluation set.

    Attributes:
      name: the set's name, such as `dev` or `winogender`.
      example_ids: ids [examples].
      labels: labels [examples]; None where they are not published, as in test sets.
      predictions: predictions [examples].
      scores: scores [examples, classes], or None.
      metrics: names of its metrics, the main one first; none without labels.
      extras: further columns that describe the examples, as in evaluate.prediction_files.predictions.
      outputs: further columns of this run's answers.
      texts: texts [examples] by column name, for readers to recognise examples, such as `premise` and
        `hypothesis`.
      classes: names of the classes by number; None if the predictions are not classes.

    Examples:
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
class Network(abc.ABC):
    """An encoder with a head, as functions of weights; equal networks are compiled once per process.

    Attributes:
      compute_dtype: dtype of matrix products; weights are float32.
    """

    config: BertConfig
    compute_dtype: Literal["float32", "bfloat16"] = "float32"

    @abc.abstractmethod
    def predict(self, parameters: Any, batch: Any) -> dict[str, Any]:
        """Returns outputs by name, such as `logits` [batch, classes]."""

    def encoded(
        self,
        parameters: Any,
        batch: Any,
        dropout_key: Any = None,
        backend: Any = PLAIN,
        *,
        first_token_only: bool = False,
    ) -> tuple[Any, Packing | None]:
        """Returns the last layer's states [rows, length, hidden], and the packing if sequences share rows."""
        is_packed = PACKING[0] in batch
        packing = Packing(*(batch[name] for name in PACKING)) if is_packed else None
        states = encode(
            parameters,
            self.config,
            *encoder_inputs(batch),
            dropout_key,
            self.compute_dtype,
            first_token_only=first_token_only,
            packing=packing,
            backend=backend,
        )
        return states, packing


class TrainableNetwork(Network):
    """A network with a loss."""

    @abc.abstractmethod
    def loss(
        self, parameters: Any, batch: Any, dropout_key: Any, backend: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Returns a batch's loss, and scalars for the log; see `bert.training.engine.new_trainer`."""


# Enough for the tasks of a sweep: a network that is dropped from the cache is compiled again.
@functools.lru_cache(maxsize=8)
def trainers(network: TrainableNetwork, training: TrainingOptions, compile_step: bool) -> Trainers:
    return Trainers(lambda: training.trainer(network.loss, network.config, compile_step))


@functools.lru_cache(maxsize=8)
def forward_pass(network: Network, compile_step: CompileChoice) -> ForwardPass:
    from multiberts.bert.training.engine import ForwardPass

    return ForwardPass(network.predict, compile_step=compile_step)


@dataclasses.dataclass(eq=False, kw_only=True)
class Model(abc.ABC):
    """Data of a task joined with a checkpoint, for prediction.

    Attributes:
      head: description of the layers above the encoder, for the record of a saved model.
      training, compile_step: the user's options, set before anything is computed; `auto` as in
        `ForwardPass`.
    """

    checkpoint: Checkpoint
    head: TaskHead = dataclasses.field(default_factory=TaskHead)
    training: TrainingOptions = RECIPE
    compile_step: CompileChoice = True

    @property
    @abc.abstractmethod
    def network(self) -> Network:
        """Returns the network: outputs as functions of weights and batches."""

    @property
    def predictor(self) -> ForwardPass:
        return forward_pass(self.network, self.compile_step)

    @property
    def evaluation_metrics(self) -> Mapping[str, Sequence[str]]:
        """Returns the metrics of each evaluation set by its name."""
        return {}

    @abc.abstractmethod
    def initial_parameters(self, seed: int) -> Arrays:
        """Returns the weights before the first step by name; `seed` initialises the head."""

    @abc.abstractmethod
    def evaluate(self, weights: Weights) -> Iterator[EvaluationSet]:
        """Yields the predictions on each evaluation set."""


class TrainableModel(Model):
    """A model with training rows.

    Attributes:
      rows: those that the run trains on, int64 [rows], set before the first batch; by default all.
    """

    rows: np.ndarray | slice = slice(None)

    @property
    @abc.abstractmethod
    def network(self) -> TrainableNetwork:
        """Returns the network: loss and outputs as functions of weights and batches."""

    @functools.cached_property
    def trainer(self) -> Trainer:
        """Returns the trainer of this model's run, which ends with `with trainer:`."""
        return trainers(self.network, self.training, bool(self.compile_step)).take()

    @property
    @abc.abstractmethod
    def train_groups(self) -> np.ndarray:
        """Returns int64 [rows]: training rows of one example share a number; empty without rows.

        For instance the windows of a question: they are held out together or not at all.
        """

    @abc.abstractmethod
    def batch(self, rows: np.ndarray) -> Arrays:
        """Returns the trainer's batch of training rows, int64 [batch]."""

    @abc.abstractmethod
    def evaluate_rows(self, weights: Weights, rows: np.ndarray) -> EvaluationSet:
        """Returns the predictions on training rows, int64 [rows], as the set `HELD_OUT`."""

    def predicted(self, weights: Weights, held_out: np.ndarray) -> Iterator[EvaluationSet]:
        """Yields the evaluation sets, and the set of held-out training rows if there are any."""
        yield from self.evaluate(weights)
        if len(held_out):
            yield self.evaluate_rows(weights, held_out)


def with_output_layer(
    checkpoint: Checkpoint, num_outputs: int, *address: str | int, reads_pooler: bool = True
) -> Arrays:
    """Returns the encoder's weights with a new output layer and without the pre-training heads.

    Args:
      address: random key of the new weights, including the fine-tuning seed.
      reads_pooler: whether the network uses the pooler; a missing one is then initialised, too.

    Returns:
      Weights by name, with `output_weights` float32 [num_outputs, hidden] (truncated normal) and
      `output_bias` float32 [num_outputs] (zeros).
    """
    from multiberts.bert.model.initialization import truncated_normal

    encoder = {
        name: values for name, values in checkpoint.parameters.items() if name.startswith("bert/")
    }
    config = checkpoint.config
    hidden, deviation = config.hidden_size, config.initializer_range
    weights = truncated_normal((num_outputs, hidden), deviation, *address, "output_weights")
    if reads_pooler and POOLER[0] not in encoder:
        kernel = truncated_normal((hidden, hidden), deviation, *address, POOLER[0])
        encoder |= zip(POOLER, (kernel, np.zeros(hidden, np.float32)), strict=True)
    return {**encoder, "output_weights": weights, "output_bias": np.zeros(num_outputs, np.float32)}


class MaskedLmNetwork(Network):
    """The pre-trained encoder with its masked-LM head."""

    def masked_lm_logits(self, parameters: Any, batch: Any) -> Any:
        """Returns the scores of all pieces at `masked_lm_positions`, [batch, positions, pieces]."""
        states, _ = self.encoded(parameters, batch)
        return masked_lm_logits(parameters, self.config, states, batch["masked_lm_positions"])


@dataclasses.dataclass(eq=False, kw_only=True)
class MaskedLmModel(Model):
    """A pre-trained model that predicts words, without training."""

    task: ClassVar[str]

    def initial_parameters(self, seed: int) -> Arrays:
        del seed
        if "cls/predictions/output_bias" not in self.checkpoint.parameters:
            raise UserError(
                f"{self.checkpoint.directory} has no masked-LM head (cls/predictions/...), which "
                f"task {self.task} needs; give a pre-training checkpoint"
            )
        return dict(self.checkpoint.parameters)
