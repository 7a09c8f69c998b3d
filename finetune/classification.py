"""Classification and regression of texts: the whole encoder is trained with a new output layer.

Reference: Devlin et al. 2019, section 4.1; google-research/bert, run_classifier.py.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.configuration import BertConfig
from finetune.content import FileContent, tokenizer_of
from finetune.family import Arrays, EvaluationSet, Learner
from finetune.features import (
    SequenceFeatures,
    check_sequence_length,
    evaluation_batches,
    sequence_batch,
    text_features,
)
from finetune.glue import GlueExamples, GlueTask, read_examples

if TYPE_CHECKING:
    from bert.checkpoint import Checkpoint
    from bert.training import Predictor, Trainer

EVALUATION_BATCH_SIZE = 64


@dataclasses.dataclass(frozen=True)
class ClassificationFamily:
    """A GLUE task, or one in its layout.

    Attributes:
      task: what its files hold.
      train_file, dev_file: TSV files.
      sequence_length: the most tokens of an example.
      labels: as given by the user; None where the task's are known.
    """

    task: GlueTask
    train_file: Path
    dev_file: Path
    sequence_length: int
    labels: list[str] | None = None

    def inputs(self) -> dict[str, Path | list[Path]]:
        return {"train_files": [self.train_file], "dev_files": [self.dev_file]}

    def parameters(self) -> dict[str, Any]:
        return {} if self.labels is None else {"labels": self.labels}

    def read(self, config: BertConfig, vocabulary: FileContent) -> ClassificationData:
        check_sequence_length(self.sequence_length, config.max_position_embeddings)
        train, dev = (
            _read(FileContent.of(path), self.task, split, vocabulary, self.sequence_length)
            for path, split in ((self.train_file, "train"), (self.dev_file, "dev"))
        )
        return ClassificationData(self.task, *train, *dev)


@functools.lru_cache(maxsize=8)
def _read(
    file: FileContent,
    task: GlueTask,
    split: str,
    vocabulary: FileContent,
    sequence_length: int,
) -> tuple[GlueExamples, SequenceFeatures]:
    examples = read_examples(file.path, task, split)
    features = text_features(
        tokenizer_of(vocabulary), examples.first_texts, examples.second_texts, sequence_length
    )
    return examples, features


@dataclasses.dataclass(frozen=True)
class ClassificationData:
    """Training and development examples with their token ids."""

    task: GlueTask
    train_examples: GlueExamples
    train_features: SequenceFeatures
    dev_examples: GlueExamples
    dev_features: SequenceFeatures

    @property
    def num_train_examples(self) -> int:
        return len(self.train_features)

    def learner(
        self, checkpoint: Checkpoint, *, fingerprint: str, finetune_seed: int, compile_step: bool
    ) -> Learner:
        del fingerprint  # the encoder is trained: nothing of it can be kept between runs
        trainer, predictor = _engines(checkpoint.config, self.task.num_outputs, compile_step)

        def batch(rows: np.ndarray) -> Arrays:
            labels = self.train_examples.labels[rows]
            dtype = np.float32 if self.task.labels is None else np.int32
            return {**sequence_batch(self.train_features, rows), "labels": labels.astype(dtype)}

        return Learner(
            trainer=trainer,
            initial_parameters=lambda: _initial(checkpoint, self.task.num_outputs, finetune_seed),
            batch=batch,
            evaluate=lambda parameters: self._evaluate(predictor, parameters),
        )

    def _evaluate(
        self, predictor: Predictor, parameters: Mapping[str, np.ndarray]
    ) -> Iterator[EvaluationSet]:
        logits = np.zeros((len(self.dev_features), self.task.num_outputs), np.float32)
        for rows, count in evaluation_batches(self.dev_features.lengths, EVALUATION_BATCH_SIZE):
            outputs = predictor(parameters, sequence_batch(self.dev_features, rows))
            logits[rows[:count]] = outputs["logits"][:count]
        regression = self.task.labels is None
        yield EvaluationSet(
            name="dev",
            example_ids=self.dev_examples.example_ids,
            labels=self.dev_examples.labels,
            predictions=logits[:, 0] if regression else logits.argmax(axis=1),
            scores=logits,
            metrics=self.task.metrics,
        )


def _initial(checkpoint: Checkpoint, num_outputs: int, finetune_seed: int) -> Arrays:
    """The encoder as it is, with a new output layer; pre-training heads are left behind."""
    from bert.initialization import truncated_normal

    encoder = {
        name: values for name, values in checkpoint.parameters.items() if name.startswith("bert/")
    }
    config = checkpoint.config
    weights = truncated_normal(
        (num_outputs, config.hidden_size),
        config.initializer_range,
        "finetune",
        finetune_seed,
        "output_weights",
    )
    return {**encoder, "output_weights": weights, "output_bias": np.zeros(num_outputs, np.float32)}


@functools.lru_cache(maxsize=4)
def _engines(config: BertConfig, num_outputs: int, compile_step: bool) -> tuple[Trainer, Predictor]:
    """The compiled trainer and predictor, shared by all runs of the same sizes in this process."""
    from keras import ops

    from bert.encoder import encode, pool
    from bert.heads import classification_logits, cross_entropy
    from bert.training import Predictor, Trainer

    def logits_of(parameters: Any, batch: Any, rate: float, dropout_key: Any) -> Any:
        inputs = (batch["input_ids"], batch["input_mask"], batch["segment_ids"])
        sequence = encode(parameters, config, *inputs, dropout_key)
        return classification_logits(parameters, pool(parameters, sequence), rate, dropout_key)

    def loss(parameters: Any, batch: Any, dropout_key: Any) -> tuple[Any, dict[str, Any]]:
        logits = logits_of(parameters, batch, config.hidden_dropout_prob, dropout_key)
        if num_outputs == 1:
            return ops.mean(ops.square(logits[:, 0] - batch["labels"])), {}
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), batch["labels"])
        accuracy = ops.mean(ops.cast(right, "float32"))
        return ops.mean(cross_entropy(logits, batch["labels"])), {"accuracy": accuracy}

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        return {"logits": logits_of(parameters, batch, 0.0, None)}

    return Trainer(loss, compile_step=compile_step), Predictor(predict, compile_step=compile_step)
