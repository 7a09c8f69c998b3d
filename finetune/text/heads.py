"""Heads of text tasks, a class per kind of label: the loss, and the meaning of labels and outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.backend_ops import PLAIN
from multiberts.bert.model.encoder import pool
from multiberts.bert.model.heads import (
    classification_logits,
    cross_entropy,
    sigmoid_cross_entropy,
)
from multiberts.evaluate.prediction_files.prediction_file import ANSWERS, PREDICTION_TEXT
from multiberts.finetune.features import SequenceFeatures
from multiberts.finetune.model import TrainableNetwork
from multiberts.finetune.text.labels import NO_TAG, texts_of_labels
from multiberts.finetune.text.task import (
    CLASSIFICATION,
    MULTI_LABEL,
    REGRESSION,
    TOKENS,
    TextExamples,
    TextSource,
    TextTask,
    outcome,
)

_Loss = tuple[Any, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class TextSet:
    """A set of texts with its token ids."""

    source: TextSource
    examples: TextExamples
    features: SequenceFeatures
    # int32 [examples, most words] for word tags
    first_pieces: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Classification(TrainableNetwork):
    """A class per text or pair, from the pooled state of [CLS]."""

    num_outputs: int = 2
    label_type: ClassVar[type] = np.int32

    def logits(
        self,
        parameters: Any,
        batch: Any,
        rate: float = 0.0,
        dropout_key: Any = None,
        backend: Any = PLAIN,
    ) -> Any:
        """Returns [batch, outputs], or for tags [rows, length, outputs]; `rate`: dropout of the states."""
        states, positions = self.states(parameters, batch, dropout_key, backend)
        return classification_logits(parameters, states, rate, dropout_key, positions)

    def states(self, parameters: Any, batch: Any, key: Any, backend: Any) -> tuple[Any, Any]:
        """Returns what the output layer reads, and its positions if sequences share rows."""
        states, _ = self.encoded(parameters, batch, key, backend, first_token_only=True)
        return pool(parameters, states, backend), None

    def loss(self, parameters: Any, batch: Any, dropout_key: Any, backend: Any) -> _Loss:
        rate = self.config.hidden_dropout_prob
        logits = self.logits(parameters, batch, rate, dropout_key, backend)
        return self.loss_of(logits, batch, backend)

    def loss_of(self, logits: Any, batch: Any, backend: Any) -> _Loss:
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), batch["labels"])
        accuracy = ops.mean(ops.cast(right, "float32"))
        losses = cross_entropy(logits, batch["labels"], backend) * batch.get("weights", 1.0)
        return ops.mean(losses), {"accuracy": accuracy}

    def predict(self, parameters: Any, batch: Any) -> dict[str, Any]:
        return {"logits": self.logits(parameters, batch)}

    def loss_weights(self, task: TextTask, labels: np.ndarray) -> np.ndarray | None:
        """Returns the classes' loss weights, float32 [classes], 1 on average; None: unweighted."""
        if task.class_weights is None:
            return None
        classes = labels[labels != NO_TAG].astype(np.int64)
        counts = np.bincount(classes, minlength=len(task.labels or ()))
        return _scaled(task, counts, counts)

    def weighted(self, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Returns the loss weights of a batch from those of the classes."""
        return np.asarray(weights[labels])

    def columns(
        self, answers: np.ndarray, texts: TextSet, rows: np.ndarray, task: TextTask
    ) -> dict[str, Any]:
        """Returns labels, predictions, scores and further columns for `EvaluationSet`.

        Args:
          answers: logits, float32 [rows, outputs]; for tags their numbers [rows, most words].
          rows: rows of the set, int64 [rows].
        """
        merge, labels = texts.source.merge, texts.examples.labels
        predictions, scores, outputs = outcome(answers, regression=task.labels is None, merge=merge)
        return {
            "labels": None if labels is None else labels[rows],
            "predictions": predictions,
            "scores": scores,
            "outputs": outputs,
            "classes": None if merge else task.labels,
        }


class Regression(Classification):
    """A number per text or pair, trained with squared error."""

    label_type = np.float32

    def loss_of(self, logits: Any, batch: Any, backend: Any) -> _Loss:
        del backend
        return ops.mean(ops.square(logits[:, 0] - batch["labels"])), {}


class LabelSets(Regression):
    """Any number of labels per text: a binary decision for each label."""

    def loss_of(self, logits: Any, batch: Any, backend: Any) -> _Loss:
        del backend
        losses = sigmoid_cross_entropy(logits, batch["labels"]) * batch.get("weights", 1.0)
        return ops.mean(losses), {}

    def loss_weights(self, task: TextTask, labels: np.ndarray) -> np.ndarray | None:
        """Returns the labels' loss weights, float32 [2, labels]: if absent, and if present."""
        if task.class_weights is None and task.pos_weight is None:
            return None
        present = labels.sum(axis=0, dtype=np.int64)
        weights = positive = np.ones(len(present), np.float32)
        if task.class_weights is not None:  # an example has a loss per label
            weights = _scaled(task, present, np.ones_like(present))
        if task.pos_weight == "balanced":
            positive = ((len(labels) - present) / np.maximum(present, 1)).astype(np.float32)
        elif task.pos_weight is not None:
            positive = np.array(task.pos_weight, np.float32)
        return np.stack([weights, weights * positive])

    def weighted(self, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(labels == 1, weights[1], weights[0]))

    def columns(
        self, answers: np.ndarray, texts: TextSet, rows: np.ndarray, task: TextTask
    ) -> dict[str, Any]:
        return {**_columns_of_texts(answers > 0, texts, rows, task), "scores": answers}


class WordTags(Classification):
    """A tag per word, at its first piece (Devlin et al. 2019, section 5.3)."""

    def states(self, parameters: Any, batch: Any, key: Any, backend: Any) -> tuple[Any, Any]:
        sequence, packing = self.encoded(parameters, batch, key, backend)
        return ops.cast(sequence, "float32"), packing.tokens if packing else None

    def loss_of(self, logits: Any, batch: Any, backend: Any) -> _Loss:
        tagged = ops.cast(ops.greater_equal(batch["labels"], 0), "float32")
        labels = ops.maximum(batch["labels"], 0)
        losses = cross_entropy(logits, labels, backend) * tagged * batch.get("weights", 1.0)
        return ops.sum(losses) / ops.maximum(ops.sum(tagged), 1.0), {}

    def columns(
        self, answers: np.ndarray, texts: TextSet, rows: np.ndarray, task: TextTask
    ) -> dict[str, Any]:
        counts = np.array([len(words) for words in texts.examples.words or ()])[rows]
        is_word = np.arange(answers.shape[1]) < counts[:, None]
        tags = np.where(is_word, answers, NO_TAG)
        return {**_columns_of_texts(tags, texts, rows, task), "scores": None}


# Heads by the kind in the head's record.
HEADS: Mapping[str, type[Classification]] = {
    CLASSIFICATION: Classification,
    REGRESSION: Regression,
    MULTI_LABEL: LabelSets,
    TOKENS: WordTags,
}


def _columns_of_texts(
    chosen: np.ndarray, texts: TextSet, rows: np.ndarray, task: TextTask
) -> dict[str, Any]:
    """Returns the columns of label sets or tags, which are written as texts."""
    predictions, answers = texts_of_labels(chosen, task)
    columns = {"labels": None, "predictions": predictions, "outputs": {PREDICTION_TEXT: answers}}
    if texts.examples.labels is not None:
        columns["labels"], references = texts_of_labels(texts.examples.labels[rows], task)
        columns["extras"] = {ANSWERS: references}
    return columns


def _scaled(task: TextTask, counts: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Returns a task's class weights, float32 [classes], 1 on average over the losses.

    Args:
      counts: training examples per class, int64 [classes].
      losses: losses per class that its weight multiplies, int64 [classes].
    """
    total = losses.sum()
    if task.class_weights == "balanced":
        weights = total / np.maximum(counts, 1)
    else:
        weights = np.array(task.class_weights)
    return np.asarray(weights * total / (weights @ losses), np.float32)
