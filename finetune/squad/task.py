"""Extractive question answering: the whole encoder is trained with scores of starts and ends.

Reference: Devlin et al., 2019, sections 4.2 and 4.3; google-research/bert, run_squad.py.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.evaluate.dumps.prediction_file import ANSWERS
from multiberts.finetune.content import FileContent, tokenizer_of
from multiberts.finetune.data_files import split_file
from multiberts.finetune.family import HELD_OUT, Arrays, EvaluationSet, Learner
from multiberts.finetune.features import check_sequence_length, sequence_batch
from multiberts.finetune.output_layer import with_output_layer
from multiberts.finetune.squad.answers import AnswerFinder, AnswerSettings
from multiberts.finetune.squad.columns import answer_columns, n_best_columns
from multiberts.finetune.squad.question_sets import (
    SPLITS,
    SquadSet,
    SquadSource,
    WindowSettings,
    prepared,
)
from multiberts.finetune.squad.span_model import engines, window_logits
from multiberts.finetune.squad.windows import check_lengths
from multiberts.finetune.tasks import DataArguments, Task
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import Predictor

METRICS = ("squad_f1", "squad_exact_match")


@dataclasses.dataclass(frozen=True)
class SquadFamily:
    """Questions about paragraphs.

    Attributes:
      train: to learn from.
      evaluation: `dev`, and further sets.
      windows: how questions become sequences.
      answers: how answers are found.
      dump_n_best: whether the predictions hold the n-best lists.
    """

    train: SquadSource
    evaluation: tuple[SquadSource, ...]
    windows: WindowSettings
    answers: AnswerSettings
    dump_n_best: bool

    def inputs(self) -> dict[str, Path | list[Path]]:
        dev, *further = self.evaluation
        named = {"train_files": [*self.train.files()], "dev_files": [*dev.files()]}
        if further:
            named["evaluation_files"] = [file for source in further for file in source.files()]
        return dict(named)

    def parameters(self) -> dict[str, Any]:
        decisive: dict[str, Any] = {
            "doc_stride": self.windows.doc_stride,
            "max_query_length": self.windows.max_query_length,
            "n_best_size": self.answers.n_best_size,
            "max_answer_length": self.answers.max_answer_length,
            "dump_n_best": self.dump_n_best,
        }
        if self.answers.null_threshold is not None:
            decisive["null_threshold"] = self.answers.null_threshold
        if len(self.evaluation) > 1:
            decisive["evaluation_sets"] = [source.name for source in self.evaluation]
        return decisive

    def read(self, config: BertConfig, vocabulary: FileContent) -> SquadData:
        check_sequence_length(self.windows.sequence_length, config.max_position_embeddings)
        train, *evaluation = (
            prepared(
                tuple(FileContent.of(path) for path in source.files()),
                source,
                vocabulary,
                self.windows,
                training=source is self.train,
            )
            for source in (self.train, *self.evaluation)
        )
        names = tuple(source.name for source in self.evaluation)
        return SquadData(self, train, dict(zip(names, evaluation, strict=True)), vocabulary)


@dataclasses.dataclass(frozen=True)
class SquadData:
    """Training windows, and the evaluation sets by name."""

    family: SquadFamily
    train: SquadSet
    evaluation: Mapping[str, SquadSet]
    vocabulary: FileContent

    @property
    def num_train_examples(self) -> int:
        return len(self.train.windows)

    @property
    def train_groups(self) -> np.ndarray:
        return self.train.windows.question

    def learner(
        self, checkpoint: Checkpoint, *, fingerprint: str, finetune_seed: int, compile_step: bool
    ) -> Learner:
        del fingerprint  # the encoder is trained: nothing of it can be kept between runs
        trainer, predictor = engines(checkpoint.config, compile_step)
        windows = self.train.windows

        def batch(rows: np.ndarray) -> Arrays:
            return {
                **sequence_batch(windows.features, rows),
                "start_positions": windows.start_positions[rows],
                "end_positions": windows.end_positions[rows],
            }

        def evaluate(parameters: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
            for name, part in self.evaluation.items():
                yield self._evaluated(name, part, predictor, parameters)

        def evaluate_rows(parameters: Mapping[str, np.ndarray], rows: np.ndarray) -> EvaluationSet:
            questions = np.unique(windows.question[rows])
            part = dataclasses.replace(self.train, windows=windows.of(questions))
            return self._evaluated(HELD_OUT, part, predictor, parameters, questions)

        return Learner(
            trainer=trainer,
            initial_parameters=lambda: with_output_layer(
                checkpoint, 2, "finetune squad", finetune_seed
            ),
            batch=batch,
            evaluate=evaluate,
            evaluate_rows=evaluate_rows,
        )

    def _evaluated(
        self,
        name: str,
        part: SquadSet,
        predictor: Predictor,
        parameters: Mapping[str, np.ndarray],
        questions: np.ndarray | None = None,
    ) -> EvaluationSet:
        """The answers to some questions of a set, or to all."""
        if questions is None:
            questions = np.arange(len(part.examples))
        finder = AnswerFinder(
            tokenizer_of(self.vocabulary).vocabulary,
            part.contexts,
            part.examples.context_of,
            part.windows,
            *window_logits(part.windows, predictor, parameters),
            settings=self.family.answers,
        )
        rows = questions.tolist()
        answers = [finder.answer(question) for question in rows]
        examples = part.examples
        references = [examples.answers[question] for question in rows]
        outputs = answer_columns(answers)
        if self.family.dump_n_best:
            outputs |= n_best_columns([finder.n_best(question) for question in rows])
        return EvaluationSet(
            name=name,
            example_ids=[examples.example_ids[question] for question in rows],
            labels=np.array([bool(texts) for texts in references], np.int64),
            predictions=np.array([bool(answer.chosen.text) for answer in answers], np.int64),
            scores=None,
            metrics=METRICS,
            extras={
                ANSWERS: references,
                "title": [examples.titles[question] for question in rows],
            },
            outputs=outputs,
        )


def _family(arguments: DataArguments, *, suffix: str, with_unanswerable: bool) -> SquadFamily:
    """A task's family; its files in a folder are `train<suffix>.json` and `dev<suffix>.json`."""
    arguments.refuse("winogender_dir", "labels")
    options = arguments.options
    windows = WindowSettings(
        arguments.sequence_length,
        options["doc_stride"],
        options["max_query_length"],
        with_unanswerable,
    )
    check_lengths(windows.sequence_length, windows.doc_stride, windows.max_query_length)
    for name in ("n_best_size", "max_answer_length"):
        if options[name] < 1:
            raise UserError(f"{name} is {options[name]}, expected 1 or more")
    if math.isnan(options.get("null_threshold", 0.0)):
        raise UserError("null_threshold is not a number; give one")
    answers = AnswerSettings(
        options["n_best_size"],
        options["max_answer_length"],
        float(options["null_threshold"]) if with_unanswerable else None,
    )
    further = tuple(
        SquadSource(name, Path(path)) for name, path in arguments.evaluation_files.items()
    )
    train, dev = _sources(arguments, suffix)
    return SquadFamily(train, (dev, *further), windows, answers, options["dump_n_best"])


def _sources(arguments: DataArguments, suffix: str) -> tuple[SquadSource, SquadSource]:
    """The training and the development questions.

    Raises:
      UserError: not exactly one of folder, files and dataset.
    """
    files = (arguments.train_files, arguments.dev_files)
    if arguments.dataset is not None and not any(files):
        train, dev = (
            SquadSource(split, None, arguments.dataset, arguments.data_dir) for split in SPLITS
        )
    elif arguments.dataset is None and arguments.data_dir is not None and not any(files):
        train, dev = (
            SquadSource(split, split_file(arguments.data_dir, split + suffix, ".json"))
            for split in SPLITS
        )
    elif arguments.dataset is None and arguments.data_dir is None and all(map(len, files)):
        if [len(part) for part in files] != [1, 1]:
            raise UserError(f"task {arguments.task} takes one train file and one dev file")
        train, dev = (
            SquadSource(split, Path(part[0])) for split, part in zip(SPLITS, files, strict=True)
        )
    else:
        raise UserError(
            f"task {arguments.task} needs one of finetune.data_dir (a folder with train{suffix}.json "
            f"and dev{suffix}.json), finetune.dataset, and train_files with dev_files; give one"
        )
    return train, dev


_OPTIONS: dict[str, Any] = {
    "doc_stride": 128,
    "max_query_length": 64,
    "n_best_size": 20,
    "max_answer_length": 30,
    "dump_n_best": False,
}


def _task(
    name: str, suffix: str, num_examples: tuple[int | None, int | None], **more_options: float
) -> Task:
    """Returns a task whose files in a folder are `train<suffix>.json` and `dev<suffix>.json`."""
    return Task(
        name,
        functools.partial(
            _family, suffix=suffix, with_unanswerable="null_threshold" in more_options
        ),
        options={**_OPTIONS, **more_options},
        num_train_examples=num_examples[0],
        num_dev_examples=num_examples[1],
        data_files=tuple(f"{split}{suffix}.json" for split in SPLITS),
    )


# Numbers of windows of 384 pieces with a stride of 128, rounded: these are what a step trains on.
TASKS = (
    _task("squad-v1.1", "-v1.1", (88_600, 10_800)),
    _task("squad-v2.0", "-v2.0", (132_000, 12_200), null_threshold=0.0),
    # Questions of the user's own in the layout of SQuAD 1.1; also those of the synthetic world.
    _task("questions", "", (None, None)),
)
