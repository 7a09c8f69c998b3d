"""Extractive question answering: the whole encoder is trained with scores of starts and ends.

Reference: Devlin et al., 2019, sections 4.2 and 4.3; google-research/bert, run_squad.py.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.prediction_files.prediction_file import ANSWERS
from multiberts.finetune.checkpoint_heads import with_output_layer
from multiberts.finetune.data_files import FileContent, files_of_split, split_file
from multiberts.finetune.features import check_sequence_length, encoder_inputs, predicted_batches
from multiberts.finetune.packing import PACKING, packed_batch, packed_shapes
from multiberts.finetune.squad.answers import (
    AnswerFinder,
    SquadOptions,
    UnanswerableOptions,
    answer_columns,
    n_best_columns,
)
from multiberts.finetune.squad.questions import SquadSet, SquadSource, prepared
from multiberts.finetune.squad.windows import SquadWindows
from multiberts.finetune.task import (
    HELD_OUT,
    Arrays,
    DataArguments,
    EvaluationSet,
    Learner,
    LearnerArguments,
    Task,
)
from multiberts.finetune.training_options import RECIPE, TrainingOptions
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import CompileChoice, ForwardPass, Trainer

METRICS = ("squad_f1", "squad_exact_match")


@dataclasses.dataclass(frozen=True)
class SquadFamily:
    """Questions about paragraphs.

    Attributes:
      train: to learn from; None for a trained model.
      evaluation: `dev`, and further sets.
      options: the task's own.
    """

    train: SquadSource | None
    evaluation: tuple[SquadSource, ...]
    sequence_length: int
    options: SquadOptions

    def inputs(self) -> dict[str, Path | list[Path]]:
        dev, *further = self.evaluation
        train = [] if self.train is None else [*self.train.files()]
        named = {"train_files": train, "dev_files": [*dev.files()]}
        if further:
            named["evaluation_files"] = [file for source in further for file in source.files()]
        return {name: files for name, files in named.items() if files}

    def parameters(self) -> dict[str, Any]:
        """Returns the options that decide answers, and the names of further sets."""
        decisive = dataclasses.asdict(self.options)
        if len(self.evaluation) > 1:
            decisive["evaluation_sets"] = [source.name for source in self.evaluation]
        return decisive

    def read(self, config: BertConfig, vocabulary: Vocabulary) -> SquadData:
        check_sequence_length(self.sequence_length, config.max_position_embeddings)
        config.check_two_segments("SQuAD")

        def read(source: SquadSource) -> SquadSet:
            return prepared(
                tuple(map(FileContent.of, source.files())),
                source,
                vocabulary,
                sequence_length=self.sequence_length,
                stride=self.options.doc_stride,
                max_query_length=self.options.max_query_length,
                with_unanswerable=isinstance(self.options, UnanswerableOptions),
                training=source is self.train,
            )

        train = None if self.train is None else read(self.train)
        evaluation = {source.name: read(source) for source in self.evaluation}
        return SquadData(self, train, evaluation, vocabulary)


@dataclasses.dataclass(frozen=True)
class SquadData:
    """Training windows, and the evaluation sets by name."""

    family: SquadFamily
    train: SquadSet | None
    evaluation: Mapping[str, SquadSet]
    vocabulary: Vocabulary

    @property
    def train_groups(self) -> np.ndarray:
        return np.zeros(0, np.int64) if self.train is None else self.train.windows.question

    def learner(self, checkpoint: Checkpoint, **how: Unpack[LearnerArguments]) -> Learner:
        training = how.get("training", RECIPE)
        trainer, predictor = engines(checkpoint.config, how["compile_step"], training)

        def batch(rows: np.ndarray) -> Arrays:
            windows, shards = self._trained().windows, training.gradient_shards
            shapes = packed_shapes(windows.features, len(rows), shards)
            return {
                **packed_batch(windows.features, rows, shapes, shards),
                "start_positions": windows.start_positions[rows],
                "end_positions": windows.end_positions[rows],
            }

        def evaluate(parameters: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
            for name, part in self.evaluation.items():
                yield self._evaluated(name, part, predictor, parameters)

        def evaluate_rows(parameters: Mapping[str, np.ndarray], rows: np.ndarray) -> EvaluationSet:
            windows = self._trained().windows
            questions = np.unique(windows.question[rows])
            part = dataclasses.replace(self._trained(), windows=windows.of(questions))
            return self._evaluated(HELD_OUT, part, predictor, parameters, questions)

        return Learner(
            trainer=None if self.train is None else trainer(),
            initial_parameters=lambda: with_output_layer(
                checkpoint, 2, "finetune squad", how["finetune_seed"], reads_pooler=False
            ),
            batch=batch,
            evaluate=evaluate,
            evaluate_rows=evaluate_rows,
            head=TaskHead("question_answering"),
            evaluation_metrics=dict.fromkeys(self.evaluation, METRICS),
        )

    def _trained(self) -> SquadSet:
        assert self.train is not None, "there is nothing to train on"
        return self.train

    def _evaluated(
        self,
        name: str,
        part: SquadSet,
        predictor: ForwardPass,
        parameters: Mapping[str, np.ndarray],
        questions: np.ndarray | None = None,
    ) -> EvaluationSet:
        if questions is None:
            questions = np.arange(len(part.examples))
        finder = AnswerFinder(
            self.vocabulary.pieces,
            part.contexts,
            part.examples.context_of,
            part.windows,
            *window_logits(part.windows, predictor, parameters),
            options=self.family.options,
            lower_case=self.vocabulary.lower_case,
        )
        rows = questions.tolist()
        answers = [finder.answer(question) for question in rows]
        examples = part.examples
        references = [examples.answers[question] for question in rows]
        new = {source.name for source in self.family.evaluation if source.is_new}
        is_labelled = name not in new or any(references)
        outputs = answer_columns(answers)
        if self.family.options.dump_n_best:
            outputs |= n_best_columns([finder.n_best(question) for question in rows])
        return EvaluationSet(
            name=name,
            example_ids=[examples.example_ids[question] for question in rows],
            labels=np.array([bool(texts) for texts in references], np.int64)
            if is_labelled
            else None,
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


def window_logits(
    windows: SquadWindows, predictor: ForwardPass, parameters: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns scores of every word piece as start and as end; float32 [windows, longest] each."""
    found = np.zeros((2, *windows.features.input_ids.shape), np.float32)
    batches = predicted_batches(predictor, parameters, windows.features, np.arange(len(windows)))
    for rows, outputs in batches:
        for place, name in enumerate(("start_logits", "end_logits")):
            width = min(found.shape[2], outputs[name].shape[1])
            found[place, rows, :width] = outputs[name][:, :width]
    return found[0], found[1]


@functools.lru_cache(maxsize=4)
def engines(
    config: BertConfig, compile_step: CompileChoice, training: TrainingOptions = RECIPE
) -> tuple[Callable[[], Trainer], ForwardPass]:
    """Returns what makes the trainer, and the predictor; shared by all runs of these sizes in a process."""
    from multiberts.bert.model.array_ops import ops
    from multiberts.bert.model.backend_ops import PLAIN
    from multiberts.bert.model.encoder import Packing, encode
    from multiberts.bert.model.heads import cross_entropy, is_right, span_logits
    from multiberts.bert.training.engine import ForwardPass

    def logits_of(
        parameters: Any, batch: Any, dropout_key: Any, backend: Any = PLAIN
    ) -> tuple[Any, Any]:
        is_packed = PACKING[0] in batch
        packing = Packing(*(batch[name] for name in PACKING)) if is_packed else None
        sequence = encode(
            parameters,
            config,
            *encoder_inputs(batch),
            dropout_key,
            training.compute_dtype,
            packing=packing,
            backend=backend,
        )  # [rows, length, hidden]
        return span_logits(parameters, sequence, batch["input_mask"], packing)

    def loss(
        parameters: Any, batch: Any, dropout_key: Any, backend: Any
    ) -> tuple[Any, dict[str, Any]]:
        start, end = logits_of(parameters, batch, dropout_key, backend)
        first, last = batch["start_positions"], batch["end_positions"]
        losses = cross_entropy(start, first, backend) + cross_entropy(end, last, backend)
        right = is_right(start, first, backend) * is_right(end, last, backend)
        return ops.mean(losses) / 2, {"span_accuracy": ops.mean(right)}

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        start, end = logits_of(parameters, batch, None)
        return {"start_logits": start, "end_logits": end}

    trainer = functools.cache(lambda: training.trainer(loss, config, compile_step))
    return trainer, ForwardPass(predict, compile_step=compile_step)


def _family(arguments: DataArguments, *, suffix: str, settings: type[SquadOptions]) -> SquadFamily:
    options = _options(arguments, settings)
    further = tuple(
        SquadSource(name, Path(path)) for name, path in arguments.evaluation_files.items()
    )
    train, dev = _sources(arguments, suffix)
    return SquadFamily(train, (dev, *further), arguments.sequence_length, options)


def _new_questions(arguments: DataArguments, *, settings: type[SquadOptions]) -> SquadFamily:
    if arguments.text_columns or arguments.label_column:
        raise UserError(
            f"task {arguments.task} reads the columns question and context; leave predict.text_columns "
            "and predict.label_column out"
        )
    options = _options(arguments, settings)
    given = {**arguments.new_files, **arguments.evaluation_files}
    sources = (SquadSource(name, Path(path), is_new=True) for name, path in given.items())
    return SquadFamily(None, tuple(sources), arguments.sequence_length, options)


def _options(arguments: DataArguments, settings: type[SquadOptions]) -> SquadOptions:
    arguments.refuse("winogender_dir", "labels")
    options = settings(**arguments.options)
    longest = options.max_query_length
    if arguments.sequence_length <= longest + 3:
        raise UserError(
            f"finetune.sequence_length is {arguments.sequence_length}, but questions of up to {longest} "
            "word pieces and three special tokens leave no room for a paragraph; give more than "
            f"{longest + 3}, or a smaller option max_query_length"
        )
    if isinstance(options, UnanswerableOptions):  # run.json has 0.0, also where 0 is given
        return dataclasses.replace(options, null_threshold=float(options.null_threshold))
    return options


def _sources(arguments: DataArguments, suffix: str) -> tuple[SquadSource, SquadSource]:
    files = (arguments.train_files, arguments.dev_files)
    ways = (arguments.dataset is not None, arguments.data_dir is not None, any(files))
    if ways in ((True, False, False), (True, True, False)):
        train, dev = (
            SquadSource(split, None, arguments.dataset, arguments.data_dir)
            for split in ("train", "dev")
        )
    elif ways == (False, True, False):
        folder = str(arguments.data_dir)
        names = {
            split: split
            if files_of_split(folder, split) and not files_of_split(folder, full)
            else full
            for split, full in (("train", "train" + suffix), ("dev", "dev" + suffix))
        }
        train, dev = (SquadSource(split, split_file(folder, names[split])) for split in names)
    elif ways == (False, False, True) and [len(part) for part in files] == [1, 1]:
        train, dev = (
            SquadSource(split, Path(file))
            for split, (file,) in zip(("train", "dev"), files, strict=True)
        )
    else:
        raise UserError(
            f"task {arguments.task} needs one of finetune.data_dir (a folder with train{suffix}.json "
            f"and dev{suffix}.json), finetune.dataset, and one train file with one dev file; give one"
        )
    return train, dev


def _task(
    name: str,
    suffix: str,
    num_examples: tuple[int | None, int | None],
    settings: type[SquadOptions] = SquadOptions,
    foreign_head: str | None = None,
) -> Task:
    """Returns a task whose files in a folder are `train<suffix>.json` and `dev<suffix>.json`.

    The same names without the suffix do, too: what is in a file decides whether a task can read it.
    """
    return Task(
        name,
        functools.partial(_family, suffix=suffix, settings=settings),
        new_data=functools.partial(_new_questions, settings=settings),
        settings=settings,
        num_train_examples=num_examples[0],
        num_dev_examples=num_examples[1],
        foreign_head=foreign_head,
    )


# Numbers of windows of 384 tokens with a stride of 128, rounded: a step trains on windows.
TASKS = (
    _task("squad-v1.1", "-v1.1", (88_600, 10_800)),
    _task("squad-v2.0", "-v2.0", (132_000, 12_200), UnanswerableOptions),
    # Questions of the user's own in the layout of SQuAD 1.1; also those of the synthetic world.
    _task("questions", "", (None, None), foreign_head="question_answering"),
)
