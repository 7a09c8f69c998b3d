"""Extractive question answering: fine-tunes the whole encoder with an output layer for starts and ends.

Reference: Devlin et al., 2019, sections 4.2 and 4.3; google-research/bert, run_squad.py.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.backend_ops import PLAIN
from multiberts.bert.model.heads import cross_entropy, is_right, span_logits
from multiberts.evaluate.prediction_files.prediction_file import ANSWERS
from multiberts.finetune.data_files import files_of_split, split_file
from multiberts.finetune.features import check_sequence_length, predicted_batches
from multiberts.finetune.model import (
    HELD_OUT,
    Arrays,
    EvaluationSet,
    TrainableModel,
    TrainableNetwork,
    Weights,
    with_output_layer,
)
from multiberts.finetune.packing import packed_batch, packed_shapes
from multiberts.finetune.squad.answers import (
    AnswerFinder,
    SquadOptions,
    UnanswerableOptions,
    answer_columns,
    n_best_columns,
)
from multiberts.finetune.squad.questions import SquadSet, SquadSource, prepared
from multiberts.finetune.task import DataArguments, Files, FinetuningData, NewDataArguments, Task
from multiberts.runs.errors import UserError
from multiberts.runs.identity import opened

METRICS = ("squad_f1", "squad_exact_match")


@dataclasses.dataclass(frozen=True)
class SquadData(FinetuningData):
    """Questions about paragraphs.

    Attributes:
      train: questions to train on; None for a trained model.
      evaluation: `dev`, and further sets.
    """

    train: SquadSource | None
    evaluation: tuple[SquadSource, ...]
    sequence_length: int
    options: SquadOptions

    def inputs(self) -> Files:
        dev, *further = self.evaluation
        train = [] if self.train is None else [*self.train.files()]
        named = {"train_files": train, "dev_files": [*dev.files()]}
        if further:
            named["evaluation_files"] = [file for source in further for file in source.files()]
        return {name: files for name, files in named.items() if files}

    def parameters(self) -> dict[str, Any]:
        """Returns the options that determine answers, and the names of further sets."""
        decisive = dataclasses.asdict(self.options)
        if len(self.evaluation) > 1:
            decisive["evaluation_sets"] = self.set_names()
        return decisive

    def set_names(self) -> list[str]:
        return [source.name for source in self.evaluation]

    def read(self, checkpoint: Checkpoint) -> SquadModel:
        check_sequence_length(self.sequence_length, checkpoint.config.max_position_embeddings)
        checkpoint.config.check_two_segments("SQuAD")

        def read(source: SquadSource) -> SquadSet:
            return prepared(
                tuple(map(opened, source.files())),
                source,
                checkpoint.vocabulary,
                sequence_length=self.sequence_length,
                stride=self.options.doc_stride,
                max_query_length=self.options.max_query_length,
                with_unanswerable=isinstance(self.options, UnanswerableOptions),
                training=source is self.train,
            )

        return SquadModel(
            checkpoint=checkpoint,
            head=TaskHead("question_answering"),
            options=self.options,
            train=None if self.train is None else read(self.train),
            evaluation={source: read(source) for source in self.evaluation},
        )


class SquadNetwork(TrainableNetwork):
    """An encoder that scores every word piece as start and as end."""

    def span_logits(
        self, parameters: Any, batch: Any, dropout_key: Any = None, backend: Any = PLAIN
    ) -> tuple[Any, Any]:
        states, packing = self.encoded(parameters, batch, dropout_key, backend)
        return span_logits(parameters, states, batch["input_mask"], packing)

    def loss(
        self, parameters: Any, batch: Any, dropout_key: Any, backend: Any
    ) -> tuple[Any, dict[str, Any]]:
        start, end = self.span_logits(parameters, batch, dropout_key, backend)
        first, last = batch["start_positions"], batch["end_positions"]
        losses = cross_entropy(start, first, backend) + cross_entropy(end, last, backend)
        right = is_right(start, first, backend) * is_right(end, last, backend)
        return ops.mean(losses) / 2, {"span_accuracy": ops.mean(right)}

    def predict(self, parameters: Any, batch: Any) -> dict[str, Any]:
        start, end = self.span_logits(parameters, batch)
        return {"start_logits": start, "end_logits": end}


@dataclasses.dataclass(eq=False, kw_only=True)
class SquadModel(TrainableModel):
    """A question-answering model with its training windows and evaluation sets."""

    options: SquadOptions
    train: SquadSet | None
    evaluation: Mapping[SquadSource, SquadSet]

    @functools.cached_property
    def network(self) -> SquadNetwork:
        return SquadNetwork(self.checkpoint.config, self.training.compute_dtype)

    @property
    def train_groups(self) -> np.ndarray:
        return np.zeros(0, np.int64) if self.train is None else self.train.windows.question

    @property
    def evaluation_metrics(self) -> dict[str, tuple[str, ...]]:
        return {source.name: METRICS for source in self.evaluation}

    def initial_parameters(self, seed: int) -> Arrays:
        return with_output_layer(self.checkpoint, 2, "finetune squad", seed, reads_pooler=False)

    def batch(self, rows: np.ndarray) -> Arrays:
        assert self.train is not None, "there is nothing to train on"
        windows, shards = self.train.windows, self.training.gradient_shards
        shapes = packed_shapes(windows.features, len(rows), shards)
        return {
            **packed_batch(windows.features, rows, shapes, shards),
            "start_positions": windows.start_positions[rows],
            "end_positions": windows.end_positions[rows],
        }

    def evaluate(self, weights: Weights) -> Iterator[EvaluationSet]:
        for source, part in self.evaluation.items():
            questions = np.arange(len(part.examples))
            is_labelled = not source.is_new or any(part.examples.answers)
            yield self._answered(weights, source.name, part, questions, is_labelled)

    def evaluate_rows(self, weights: Weights, rows: np.ndarray) -> EvaluationSet:
        assert self.train is not None, "there is nothing to train on"
        questions = np.unique(self.train.windows.question[rows])
        part = dataclasses.replace(self.train, windows=self.train.windows.of(questions))
        return self._answered(weights, HELD_OUT, part, questions)

    def window_logits(self, weights: Weights, part: SquadSet) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores of all word pieces as start and as end; float32 [windows, longest] each."""
        features, names = part.windows.features, ("start_logits", "end_logits")
        logits = np.zeros((2, *features.input_ids.shape), np.float32)
        every = np.arange(len(features))
        for rows, outputs in predicted_batches(self.predictor, weights, features, every):
            for number, name in enumerate(names):
                width = min(logits.shape[2], outputs[name].shape[1])
                logits[number, rows, :width] = outputs[name][:, :width]
        return logits[0], logits[1]

    def _answered(
        self,
        weights: Weights,
        name: str,
        part: SquadSet,
        questions: np.ndarray,
        is_labelled: bool = True,
    ) -> EvaluationSet:
        vocabulary, examples, rows = self.checkpoint.vocabulary, part.examples, questions.tolist()
        finder = AnswerFinder(
            vocabulary.pieces,
            part.contexts,
            examples.context_of,
            part.windows,
            *self.window_logits(weights, part),
            options=self.options,
            lower_case=vocabulary.lower_case,
        )
        answers = [finder.answer(question) for question in rows]
        references = [examples.answers[question] for question in rows]
        outputs = answer_columns(answers)
        if self.options.dump_n_best:
            outputs |= n_best_columns([finder.n_best(question) for question in rows])
        has_answer = np.array([bool(texts) for texts in references], np.int64)
        return EvaluationSet(
            name=name,
            example_ids=[examples.example_ids[question] for question in rows],
            labels=has_answer if is_labelled else None,
            predictions=np.array([bool(answer.chosen.text) for answer in answers], np.int64),
            scores=None,
            metrics=METRICS if is_labelled else (),
            extras={
                **({ANSWERS: references} if is_labelled else {}),
                "title": [examples.titles[question] for question in rows],
            },
            outputs=outputs,
            texts={"question": [examples.questions[question] for question in rows]},
        )


def _data(arguments: DataArguments, *, suffix: str, settings: type[SquadOptions]) -> SquadData:
    """Finds the sets `train` and `dev`, and further sets."""
    options = _options(arguments, settings)
    dataset, folder = arguments.dataset, arguments.data_dir
    files = (arguments.train_files or (), arguments.dev_files or ())
    ways = (dataset is not None, folder is not None, any(files))
    if ways in ((True, False, False), (True, True, False)):
        sources = [SquadSource(split, None, dataset, folder) for split in ("train", "dev")]
    elif folder is not None and ways == (False, True, False):
        sources = []
        for split in ("train", "dev"):
            full = split + suffix
            is_short = files_of_split(folder, split) and not files_of_split(folder, full)
            sources.append(SquadSource(split, split_file(folder, split if is_short else full)))
    elif ways == (False, False, True) and [len(part) for part in files] == [1, 1]:
        sources = [
            SquadSource(split, Path(file))
            for split, (file,) in zip(("train", "dev"), files, strict=True)
        ]
    else:
        raise UserError(
            f"task {arguments.task} needs one of finetune.data_dir (a folder with train{suffix}.json "
            f"and dev{suffix}.json), finetune.dataset, and one train file with one dev file; give one"
        )
    further = (arguments.evaluation_files or {}).items()
    sources += [SquadSource(name, Path(path)) for name, path in further]
    return SquadData(sources[0], tuple(sources[1:]), arguments.sequence_length, options)


def _new_data(arguments: NewDataArguments, *, settings: type[SquadOptions]) -> SquadData:
    arguments.refuse("text_columns", "label_column")  # a table has the columns question and context
    options = _options(arguments, settings)
    named = arguments.named_files.items()
    sources = (SquadSource(name, Path(path), is_new=True) for name, path in named)
    return SquadData(None, tuple(sources), arguments.sequence_length, options)


def _options(arguments: DataArguments, settings: type[SquadOptions]) -> SquadOptions:
    arguments.refuse("winogender_dir", "labels")
    options = settings(**arguments.complete_options)
    longest = options.max_query_length
    if arguments.sequence_length <= longest + 3:
        raise UserError(
            f"finetune.sequence_length is {arguments.sequence_length}, but questions of up to {longest} "
            "word pieces and three special tokens leave no room for a paragraph; give more than "
            f"{longest + 3}, or a smaller option max_query_length"
        )
    return options


def _task(
    name: str,
    suffix: str,
    num_examples: tuple[int | None, int | None],
    settings: type[SquadOptions] = SquadOptions,
    foreign_head: str | None = None,
) -> Task:
    """Returns a task whose files in a folder are `train<suffix>.json` and `dev<suffix>.json`.

    The names without the suffix work, too.
    """
    return Task(
        name,
        functools.partial(_data, suffix=suffix, settings=settings),
        new_data=functools.partial(_new_data, settings=settings),
        settings=settings,
        num_train_examples=num_examples[0],
        num_dev_examples=num_examples[1],
        foreign_head=foreign_head,
    )


# Numbers of windows, not questions, as steps count windows; with 384 tokens and a stride of 128, rounded.
TASKS = (
    _task("squad-v1.1", "-v1.1", (88_600, 10_800)),
    _task("squad-v2.0", "-v2.0", (132_000, 12_200), UnanswerableOptions),
    # The user's questions in the layout of SQuAD 1.1, and those of the synthetic world.
    _task("questions", "", (None, None), foreign_head="question_answering"),
)
