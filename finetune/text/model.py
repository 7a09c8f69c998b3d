"""A model of texts: fine-tunes the whole encoder with a new output layer.

Reference: Devlin et al. 2019, section 4.1; google-research/bert, run_classifier.py.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import numpy as np

from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.features import predicted_batches, text_features
from multiberts.finetune.model import (
    HELD_OUT,
    Arrays,
    EvaluationSet,
    TrainableModel,
    Weights,
    with_output_layer,
)
from multiberts.finetune.packing import at_packed_tokens, packed_batch, packed_shapes
from multiberts.finetune.text.heads import HEADS, Classification, TextSet, WordTags
from multiberts.finetune.text.labels import NO_TAG, first_pieces, predicted_tags, tags_of_pieces
from multiberts.finetune.text.task import TextSource, TextTask
from multiberts.runs.console import progress, warn
from multiberts.runs.errors import UserError, counted
from multiberts.runs.identity import Input, check_unchanged


# At least the sets of one run, which a run uses in turn.
@functools.lru_cache(maxsize=64)
def read_texts(
    contents: tuple[Input, ...],
    source: TextSource,
    vocabulary: Vocabulary,
    sequence_length: int,
) -> TextSet:
    """Reads and tokenises a set, once per process for any number of runs.

    Args:
      contents: the source's files, opened; part of the cache key, as files may change.
      sequence_length: maximum tokens of a sequence.
    """
    examples = source.read()
    check_unchanged(*contents)
    for remark in examples.remarks:
        progress(remark)
    first = examples.first_texts
    # The file may separate words by characters that are not spaces for the tokeniser.
    if examples.words is not None:
        first = [" ".join(words) for words in examples.words]
    features = text_features(vocabulary, first, examples.second_texts, sequence_length)

    # Some texts are empty, for example in QQP; only a set of empty texts is refused.
    empty = features.first_lengths == 2  # [CLS] [SEP]
    if examples.second_texts is not None:
        empty |= features.lengths == features.first_lengths + 1
    problem = f"{source.files[0]}: {empty.sum()} of {len(empty)} examples have an empty text"
    if empty.all():
        raise UserError(f"{problem}; give the file with its texts")
    if empty.any():
        example_id = examples.example_ids[int(empty.argmax())]
        warn(f"{problem}, such as {example_id}; the model gets an empty text")
    if features.num_cut:
        progress(
            f"{source.files[0]}: {features.num_cut} of {counted(len(features), 'example')} are longer than "
            f"{sequence_length} tokens (finetune.sequence_length) and were cut"
        )
    if examples.words is None:
        return TextSet(source, examples, features)
    positions = first_pieces(vocabulary, examples.words, sequence_length)
    number = sum(map(len, examples.words))
    if lost := number - int((positions > 0).sum()):
        warn(
            f"{source.files[0]}: {lost} of {number} words have no piece within {sequence_length} tokens; "
            "they are not trained on, and the answer is O"
        )
    return TextSet(source, examples, features, positions)


@dataclasses.dataclass(eq=False, kw_only=True)
class TextModel(TrainableModel):
    """An encoder with a head for labels of texts or pairs.

    Attributes:
      train: training texts; None for a trained model.
    """

    task: TextTask
    train: TextSet | None
    evaluation: tuple[TextSet, ...]

    @functools.cached_property
    def network(self) -> Classification:
        kind = HEADS[self.task.head_kind]
        return kind(self.checkpoint.config, self.training.compute_dtype, self.task.num_outputs)

    @property
    def train_groups(self) -> np.ndarray:
        return np.arange(0 if self.train is None else len(self.train.features))

    @property
    def evaluation_metrics(self) -> Mapping[str, tuple[str, ...]]:
        return {
            texts.source.name: () if texts.examples.labels is None else texts.source.metrics
            for texts in self.evaluation
        }

    def initial_parameters(self, seed: int) -> Arrays:
        reads_pooler = not isinstance(self.network, WordTags)
        return with_output_layer(
            self.checkpoint, self.task.num_outputs, "finetune", seed, reads_pooler=reads_pooler
        )

    @functools.cached_property
    def _loss_weights(self) -> np.ndarray | None:
        assert self.train is not None and self.train.examples.labels is not None
        return self.network.loss_weights(self.task, self.train.examples.labels[self.rows])

    def batch(self, rows: np.ndarray) -> Arrays:
        assert self.train is not None and self.train.examples.labels is not None
        features, shards = self.train.features, self.training.gradient_shards
        inputs = packed_batch(features, rows, packed_shapes(features, len(rows), shards), shards)
        labels = self.train.examples.labels[rows].astype(self.network.label_type)
        if self.train.first_pieces is not None:
            positions, length = self.train.first_pieces[rows], inputs["input_ids"].shape[1]
            tags = tags_of_pieces(labels, positions, length)
            labels = at_packed_tokens(tags, inputs, NO_TAG, shards)
        batch = {**inputs, "labels": labels}
        if self._loss_weights is not None:
            batch["weights"] = self.network.weighted(self._loss_weights, labels)
        return batch

    def evaluate(self, weights: Weights) -> Iterator[EvaluationSet]:
        for texts in self.evaluation:
            yield self._predicted(weights, texts, texts.source.name)

    def evaluate_rows(self, weights: Weights, rows: np.ndarray) -> EvaluationSet:
        assert self.train is not None, "there is nothing to train on"
        return self._predicted(weights, self.train, HELD_OUT, rows)

    def _predicted(
        self, weights: Weights, texts: TextSet, name: str, rows: np.ndarray | None = None
    ) -> EvaluationSet:
        examples, task = texts.examples, self.task
        rows = np.arange(len(texts.features)) if rows is None else rows
        per_word = texts.first_pieces
        # Logits, or tag numbers.
        width = task.num_outputs if per_word is None else per_word.shape[1]
        answers = np.zeros((len(rows), width), np.float32)
        for indices, outputs in predicted_batches(self.predictor, weights, texts.features, rows):
            logits = outputs["logits"]
            answers[indices] = (
                logits
                if per_word is None
                else predicted_tags(logits, per_word[rows[indices]], task)
            )
        columns = self.network.columns(answers, texts, rows, task)
        extras = {
            column: [values[row] for row in rows] for column, values in examples.extras.items()
        }
        named = zip(task.text_names, (examples.first_texts, examples.second_texts), strict=False)
        return EvaluationSet(
            name=name,
            example_ids=[examples.example_ids[row] for row in rows],
            metrics=() if examples.labels is None else texts.source.metrics,
            texts={key: [text[row] for row in rows] for key, text in named if text is not None},
            **{**columns, "extras": {**extras, **columns.get("extras", {})}},
        )
