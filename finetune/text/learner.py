"""Classification and regression of texts: the whole encoder is trained with a new output layer.

Reference: Devlin et al. 2019, section 4.1; google-research/bert, run_classifier.py.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.prediction_files.prediction_file import ANSWERS, PREDICTION_TEXT
from multiberts.finetune.checkpoint_heads import with_output_layer
from multiberts.finetune.data_files import FileContent
from multiberts.finetune.features import (
    SequenceFeatures,
    encoder_inputs,
    predicted_batches,
    text_features,
)
from multiberts.finetune.packing import PACKING, at_packed_tokens, packed_batch, packed_shapes
from multiberts.finetune.task import HELD_OUT, Arrays, EvaluationSet, Learner, LearnerArguments
from multiberts.finetune.text.labels import (
    NO_TAG,
    described_labels,
    first_pieces,
    predicted_tags,
    tags_of_pieces,
    texts_of_labels,
)
from multiberts.finetune.text.task import (
    MULTI_LABEL,
    TOKENS,
    TextExamples,
    TextSource,
    TextTask,
    outcome,
)
from multiberts.finetune.training_options import RECIPE, TrainingOptions
from multiberts.runs.console import note_once, progress, warn
from multiberts.runs.errors import UserError, counted

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import CompileChoice, ForwardPass, Trainer


def _refuse_one_label(source: TextSource, labels: np.ndarray | None, task: TextTask) -> None:
    """Refuses training examples from which nothing but one answer can be learned."""
    if labels is not None and task.kind == TOKENS:
        labels = labels[labels != NO_TAG]
    if labels is None or not len(labels) or (labels != labels[0]).any():
        return
    if task.labels is None:
        label = f"{labels[0]:g}"
    else:
        label = "of the first" if task.has_texts else repr(task.labels[int(labels[0])])
    raise UserError(
        f"{source.files[0]}: all {len(labels)} examples to train on have the label {label}, expected "
        "different ones; give another train file"
    )


@dataclasses.dataclass(frozen=True)
class _Texts:
    """A set of texts with its token ids."""

    source: TextSource
    examples: TextExamples
    features: SequenceFeatures
    # int32 [examples, most words], where words are tagged
    first_pieces: np.ndarray | None = None


# At least as many as the sets of one run: a run that uses them in turn must find all of them.
@functools.lru_cache(maxsize=64)
def _read(
    contents: tuple[FileContent, ...],
    source: TextSource,
    vocabulary: Vocabulary,
    sequence_length: int,
) -> _Texts:
    """Reads and tokenises a set, once per process for any number of runs."""
    del contents  # a key: the same paths may hold something else later
    examples = source.read()
    for remark in examples.remarks:
        progress(remark)
    first = examples.first_texts
    # Words may be separated by characters that the tokeniser does not count as spaces.
    if examples.words is not None:
        first = [" ".join(words) for words in examples.words]
    features = text_features(vocabulary, first, examples.second_texts, sequence_length)
    _check_empty(source, examples, features)
    if features.num_cut:
        progress(
            f"{source.files[0]}: {features.num_cut} of {counted(len(features), 'example')} are longer than "
            f"{sequence_length} tokens (finetune.sequence_length) and were cut"
        )
    if examples.words is None:
        return _Texts(source, examples, features)
    places = first_pieces(vocabulary, examples.words, sequence_length)
    number = sum(map(len, examples.words))
    if lost := number - int((places > 0).sum()):
        warn(
            f"{source.files[0]}: {lost} of {number} words have no piece within {sequence_length} tokens; "
            "they are not trained on, and the answer is O"
        )
    return _Texts(source, examples, features, places)


def _check_empty(source: TextSource, examples: TextExamples, features: SequenceFeatures) -> None:
    """Warns of texts without a word, as some of QQP's are; refuses a set that has no others."""
    empty = features.first_lengths == 2  # [CLS] [SEP]
    if examples.second_texts is not None:
        empty |= features.lengths == features.first_lengths + 1
    if not empty.any():
        return
    found = f"{source.files[0]}: {empty.sum()} of {len(empty)} examples have an empty text"
    if empty.all():
        raise UserError(f"{found}; give the file with its texts")
    warn(
        f"{found}, such as {examples.example_ids[int(empty.argmax())]}; the model is given none there"
    )


@dataclasses.dataclass(frozen=True)
class TextData:
    """Training and evaluation examples with their token ids."""

    task: TextTask
    train: _Texts | None
    evaluation: tuple[_Texts, ...]

    @classmethod
    def read(
        cls,
        task: TextTask,
        train: TextSource | None,
        evaluation: Sequence[TextSource],
        vocabulary: Vocabulary,
        sequence_length: int,
    ) -> TextData:
        """Reads, checks and tokenises the sets of a task; imports no TensorFlow."""

        def read(source: TextSource) -> _Texts:
            contents = tuple(map(FileContent.of, source.files))
            return _read(contents, source, vocabulary, sequence_length)

        texts = None if train is None else read(train)
        predicted = tuple(map(read, evaluation))
        if texts is not None:
            _refuse_one_label(texts.source, texts.examples.labels, task)
            if texts.examples.labels is not None:
                note_once(f"labels of {task.name}: {described_labels(texts.examples.labels, task)}")
        return cls(task, texts, predicted)

    @property
    def train_groups(self) -> np.ndarray:
        return np.arange(0 if self.train is None else len(self.train.features))

    def learner(self, checkpoint: Checkpoint, **how: Unpack[LearnerArguments]) -> Learner:
        training, num_outputs = how.get("training", RECIPE), self.task.num_outputs
        trainer, predictor = text_engines(
            checkpoint.config, num_outputs, self.task.kind, how["compile_step"], training
        )

        @functools.cache
        def weights() -> tuple[np.ndarray | None, np.ndarray | None]:
            labels = self._trained().examples.labels
            return _class_weights(self.task, labels), _positive_weights(self.task, labels)

        def batch(rows: np.ndarray) -> Arrays:
            train = self._trained()
            assert train.examples.labels is not None, "there are no labels to train on"
            shards = training.gradient_shards
            shapes = packed_shapes(train.features, len(rows), shards)
            inputs = packed_batch(train.features, rows, shapes, shards)
            is_class = self.task.head_kind == "classification"
            is_set = self.task.kind == MULTI_LABEL
            labels = train.examples.labels[rows].astype(np.int32 if is_class else np.float32)
            if train.first_pieces is not None:
                places = train.first_pieces[rows]
                tags = tags_of_pieces(labels, places, inputs["input_ids"].shape[1])
                labels = at_packed_tokens(tags, inputs, NO_TAG, shards)
            found = {**inputs, "labels": labels}
            of_classes, of_present = weights()
            if of_classes is not None:
                found["weights"] = (
                    np.broadcast_to(of_classes, labels.shape) if is_set else of_classes[labels]
                )
            if of_present is not None:
                present = np.where(labels == 1, of_present, np.float32(1))
                found["weights"] = found.get("weights", np.float32(1)) * present
            return found

        def evaluate(parameters: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
            for texts in self.evaluation:
                yield self._predictions(predictor, parameters, texts, texts.source.name)

        def evaluate_rows(parameters: Mapping[str, np.ndarray], rows: np.ndarray) -> EvaluationSet:
            return self._predictions(predictor, parameters, self._trained(), HELD_OUT, rows)

        return Learner(
            trainer=None if self.train is None else trainer(),
            initial_parameters=lambda: with_output_layer(
                checkpoint,
                num_outputs,
                "finetune",
                how["finetune_seed"],
                reads_pooler=self.task.kind != TOKENS,
            ),
            batch=batch,
            evaluate=evaluate,
            evaluate_rows=evaluate_rows,
            head=TaskHead(
                self.task.head_kind, self.task.labels, 2 if len(self.task.text_columns) == 2 else 1
            ),
            evaluation_metrics={
                texts.source.name: () if texts.examples.labels is None else texts.source.metrics
                for texts in self.evaluation
            },
        )

    def _trained(self) -> _Texts:
        assert self.train is not None, "there is nothing to train on"
        return self.train

    def _predictions(
        self,
        predictor: ForwardPass,
        parameters: Mapping[str, np.ndarray],
        texts: _Texts,
        name: str,
        rows: np.ndarray | None = None,
    ) -> EvaluationSet:
        examples, features = texts.examples, texts.features
        rows = np.arange(len(features)) if rows is None else rows
        per_word = texts.first_pieces
        # Logits, or the numbers of the words' tags.
        shape = self.task.num_outputs if per_word is None else per_word.shape[1]
        answers = np.zeros((len(rows), shape), np.float32)
        for places, found in predicted_batches(predictor, parameters, features, rows):
            logits = found["logits"]
            answers[places] = (
                logits
                if per_word is None
                else predicted_tags(logits, per_word[rows[places]], self.task)
            )
        labels = None if examples.labels is None else examples.labels[rows]
        extras = {
            column: [values[row] for row in rows] for column, values in examples.extras.items()
        }
        scores: np.ndarray | None
        outputs: Mapping[str, Any]
        if not self.task.has_texts:
            predictions, scores, outputs = outcome(
                answers, regression=self.task.labels is None, merge=texts.source.merge
            )
        else:
            scores = answers if per_word is None else None
            chosen: np.ndarray = answers if per_word is not None else answers > 0
            if per_word is not None:
                number = np.array([len(words) for words in examples.words or ()])[rows]
                answers[np.arange(shape) >= number[:, None]] = NO_TAG
            predictions, answer_texts = texts_of_labels(chosen, self.task)
            outputs = {PREDICTION_TEXT: answer_texts}
            if labels is not None:
                labels, extras[ANSWERS] = texts_of_labels(labels, self.task)
        columns = (examples.first_texts, examples.second_texts)
        named = zip(self.task.text_names, columns, strict=False)
        shown = {name: [text[row] for row in rows] for name, text in named if text is not None}
        return EvaluationSet(
            name=name,
            example_ids=[examples.example_ids[row] for row in rows],
            labels=labels,
            predictions=predictions,
            scores=scores,
            metrics=() if examples.labels is None else texts.source.metrics,
            extras=extras,
            outputs=outputs,
            texts=shown,
            classes=None if texts.source.merge or self.task.has_texts else self.task.labels,
        )


def _class_weights(task: TextTask, labels: np.ndarray | None) -> np.ndarray | None:
    """Returns the weights of the classes' losses, float32 [classes], 1 on average over the labels."""
    if task.class_weights is None or task.labels is None or labels is None:
        return None
    if task.kind == MULTI_LABEL:  # every example has a loss for each label
        counts = labels.sum(axis=0, dtype=np.int64)
        losses = np.ones_like(counts)
    else:
        classes = labels[labels != NO_TAG].astype(np.int64)
        losses = counts = np.bincount(classes, minlength=len(task.labels))
    total = losses.sum()
    if task.class_weights == "balanced":
        weights = total / np.maximum(counts, 1)
    else:
        weights = np.array(task.class_weights)
    scaled: np.ndarray = (weights * total / (weights @ losses)).astype(np.float32)
    return scaled


def _positive_weights(task: TextTask, labels: np.ndarray | None) -> np.ndarray | None:
    """Returns the weight of each label's loss on examples that have it, float32 [classes]."""
    if task.pos_weight is None or labels is None:
        return None
    if task.pos_weight != "balanced":
        return np.array(task.pos_weight, np.float32)
    present = labels.sum(axis=0, dtype=np.int64)
    balanced: np.ndarray = ((len(labels) - present) / np.maximum(present, 1)).astype(np.float32)
    return balanced


@functools.lru_cache(maxsize=4)
def text_engines(
    config: BertConfig,
    num_outputs: int,
    kind: str,
    compile_step: CompileChoice,
    training: TrainingOptions = RECIPE,
) -> tuple[Callable[[], Trainer], ForwardPass]:
    """Returns what makes the trainer, and the predictor; shared by all runs of these sizes in a process."""
    from multiberts.bert.model.array_ops import ops
    from multiberts.bert.model.backend_ops import PLAIN
    from multiberts.bert.model.encoder import Packing, encode, pool
    from multiberts.bert.model.heads import (
        classification_logits,
        cross_entropy,
        sigmoid_cross_entropy,
    )
    from multiberts.bert.training.engine import ForwardPass

    def logits_of(
        parameters: Any, batch: Any, rate: float, dropout_key: Any, backend: Any = PLAIN
    ) -> Any:
        is_packed = PACKING[0] in batch
        packing = Packing(*(batch[name] for name in PACKING)) if is_packed else None
        per_token = kind == TOKENS
        sequence = encode(
            parameters,
            config,
            *encoder_inputs(batch),
            dropout_key,
            training.compute_dtype,
            first_token_only=not per_token,
            packing=packing,
            backend=backend,
        )
        states = ops.cast(sequence, "float32") if per_token else pool(parameters, sequence, backend)
        positions = packing.tokens if per_token and packing else None
        return classification_logits(parameters, states, rate, dropout_key, positions)

    def loss(
        parameters: Any, batch: Any, dropout_key: Any, backend: Any
    ) -> tuple[Any, dict[str, Any]]:
        # [batch, (length,) outputs]
        rate = config.hidden_dropout_prob
        logits = logits_of(parameters, batch, rate, dropout_key, backend)
        weights = batch.get("weights", 1.0)
        if kind == MULTI_LABEL:
            return ops.mean(sigmoid_cross_entropy(logits, batch["labels"]) * weights), {}
        if kind == TOKENS:
            tagged = ops.cast(ops.greater_equal(batch["labels"], 0), "float32")
            labels = ops.maximum(batch["labels"], 0)
            losses = cross_entropy(logits, labels, backend) * tagged * weights
            return ops.sum(losses) / ops.maximum(ops.sum(tagged), 1.0), {}
        if num_outputs == 1:
            return ops.mean(ops.square(logits[:, 0] - batch["labels"])), {}
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), batch["labels"])
        accuracy = ops.mean(ops.cast(right, "float32"))
        losses = cross_entropy(logits, batch["labels"], backend) * weights
        return ops.mean(losses), {"accuracy": accuracy}

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        return {"logits": logits_of(parameters, batch, 0.0, None)}

    trainer = functools.cache(lambda: training.trainer(loss, config, compile_step))
    return trainer, ForwardPass(predict, compile_step=compile_step)
