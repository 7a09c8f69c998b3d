"""Gold-mention coreference on a frozen encoder, evaluated on Winogender.

A two-layer feed-forward network on the representations of two spans decides whether they refer to the
same entity (`finetune.coreference.heads`). Only this network is trained. On a Winogender sentence the
answer is occupation or participant, whichever scores higher.

Reference: Webster et al. 2020, section 4; Sellam et al. 2022, section 4; Tenney et al. 2019 (edge
probing).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.evaluate.metrics.winogender_bias import gotcha_column
from multiberts.finetune.coreference.conll import conll_files
from multiberts.finetune.coreference.frozen_states import SpanStates, span_states
from multiberts.finetune.coreference.heads import (
    POOLING,
    PairNetwork,
    initial_parameters,
    pair_batch,
    pair_logits,
)
from multiberts.finetune.coreference.mention_pairs import CoreferencePairs, pair_texts, read_pairs
from multiberts.finetune.coreference.winogender_schemas import winogender_files, winogender_folder
from multiberts.finetune.data_files import split_file
from multiberts.finetune.features import check_sequence_length
from multiberts.finetune.model import (
    HELD_OUT,
    Arrays,
    EvaluationSet,
    TrainableModel,
    Weights,
)
from multiberts.finetune.task import DataArguments, Files, FinetuningData, NewDataArguments, Task
from multiberts.runs.errors import UserError
from multiberts.runs.identity import opened
from multiberts.runs.parameters import PositiveInt

if TYPE_CHECKING:
    from multiberts.bert.training.engine import CompileChoice, Trainer

_PAIR_METRICS = ("accuracy", "f1")
_WINOGENDER_METRICS = ("accuracy", "bias_correlation", "bias_slope")


@dataclasses.dataclass(frozen=True)
class CoreferenceOptions:
    """The options of coreference.

    Attributes:
      max_negatives_per_pronoun: candidates of another entity per pronoun in training; a very large
        number uses all.
      num_hidden_units: width of the hidden layer.
      span_representation: the network's input from a span's tokens.
      training_pairs: `pronouns`, each pronoun with the other mentions; `mentions`, every two mentions
        of a window in both orders, as in edge probing and the Language Interpretability Tool.
        Evaluation is always on pronouns.
      encodings_dir: a folder for the encoder's outputs, which other processes and a resumed run reuse.
        It does not change results. Bytes per span: 4 x hidden size (`mean`), 12 x hidden size
        (`endpoints`), or 4 x hidden size per token (`self_attention`).
    """

    max_negatives_per_pronoun: PositiveInt = 4
    num_hidden_units: PositiveInt = 128
    span_representation: Literal["endpoints", "mean", "self_attention"] = "endpoints"
    training_pairs: Literal["pronouns", "mentions"] = "pronouns"
    encodings_dir: str | None = None


@dataclasses.dataclass(frozen=True)
class CoreferenceData(FinetuningData):
    """The sources of training and evaluation pairs.

    Attributes:
      train_files, dev_files: GAP files (`.tsv`, `.tsv.gz`) and CoNLL-2012 files (other names).
      winogender_dir: a folder with the Winogender files, or None.
    """

    train_files: tuple[Path, ...]
    dev_files: tuple[Path, ...]
    winogender_dir: Path | None
    sequence_length: int
    options: CoreferenceOptions

    def inputs(self) -> Files:
        if not self.dev_files and self.winogender_dir is None:
            raise UserError(
                "task coreference has nothing to predict; give finetune.dev_files or "
                "finetune.winogender_dir"
            )
        inputs: Files = {
            "train_files": list(self.train_files),
            "dev_files": list(self.dev_files),
        }
        if self.winogender_dir is not None:
            inputs["winogender_dir"] = winogender_files(self.winogender_dir)
        return {name: paths for name, paths in inputs.items() if paths}

    def parameters(self) -> dict[str, Any]:
        options = dataclasses.asdict(self.options)
        del options["encodings_dir"]  # a path, which changes no result
        return options

    def read(self, checkpoint: Checkpoint) -> CoreferenceModel:
        positions, folder = checkpoint.config.max_position_embeddings, self.winogender_dir
        check_sequence_length(self.sequence_length, positions)
        pairs = read_pairs(
            tuple(map(opened, self.train_files)),
            tuple(map(opened, self.dev_files)),
            tuple(map(opened, () if folder is None else winogender_files(folder))),
            checkpoint.vocabulary,
            self.sequence_length,
            positions,
            self.options.max_negatives_per_pronoun,
            self.options.training_pairs == "mentions",
        )
        return CoreferenceModel(
            checkpoint=checkpoint, head=TaskHead("coreference"), pairs=pairs, options=self.options
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class CoreferenceModel(TrainableModel):
    """A network on a frozen encoder's states at pairs of mentions."""

    pairs: CoreferencePairs
    options: CoreferenceOptions

    @functools.cached_property
    def network(self) -> PairNetwork:
        return PairNetwork(self.checkpoint.config, representation=self.options.span_representation)

    @functools.cached_property
    def states(self) -> dict[str, SpanStates]:
        """Returns the encoder's outputs at the spans of each set."""
        folder, pooling = self.options.encodings_dir, POOLING[self.options.span_representation]
        return _states(self.pairs, self.checkpoint, pooling, self.compile_step, folder)

    @property
    def trainer(self) -> Trainer:
        _ = self.states  # first: if the cache cannot be written, training must not begin
        return super().trainer

    @property
    def train_groups(self) -> np.ndarray:
        """Returns int64 [pairs]; pairs of one document or one GAP example share a number."""
        train = self.pairs.sets.get("train")
        if train is None:
            return np.zeros(0, np.int64)
        documents = [identity.rpartition("/")[0] for identity in train.pair_ids]
        return np.unique(documents, return_inverse=True)[1].astype(np.int64)

    @property
    def evaluation_metrics(self) -> dict[str, tuple[str, ...]]:
        return {
            name: _WINOGENDER_METRICS if name == "winogender" else _PAIR_METRICS
            for name in self.pairs.sets
            if name != "train"
        }

    def initial_parameters(self, seed: int) -> Arrays:
        representation = self.options.span_representation
        units = self.options.num_hidden_units
        return initial_parameters(representation, self.checkpoint.config, units, seed)

    def batch(self, rows: np.ndarray) -> Arrays:
        train, representation = self.pairs.sets["train"], self.options.span_representation
        inputs = pair_batch(representation, train, self.states["train"], rows)
        return {**inputs, "labels": train.labels[rows]}

    def evaluate(self, weights: Weights) -> Iterator[EvaluationSet]:
        for name in self.evaluation_metrics:
            rows = np.arange(len(self.pairs.sets[name].labels))
            if name != "winogender":
                yield self._pair_set(weights, name, rows)
                continue
            # 0: the occupation scores higher, 1: the participant.
            logits = self._logits(weights, name, rows)
            scores = (logits[:, 1] - logits[:, 0]).reshape(-1, 2)
            sentences = self.pairs.sentences
            answers = np.array([sentence.answer for sentence in sentences])
            occupations = [sentence.occupation_name for sentence in sentences]
            genders = [sentence.gender for sentence in sentences]
            shares = np.array([self.pairs.percent_feminine[name] for name in occupations])
            yield EvaluationSet(
                name="winogender",
                example_ids=[f"winogender/{sentence.identity}" for sentence in sentences],
                labels=answers,
                predictions=scores.argmax(axis=1),
                scores=scores,
                metrics=_WINOGENDER_METRICS,
                extras={
                    "occupation": occupations,
                    "gender": genders,
                    "percent_feminine": shares,
                    "gotcha": gotcha_column(genders, shares, answers),
                },
                texts={"sentence": [sentence.text for sentence in sentences]},
            )

    def evaluate_rows(self, weights: Weights, rows: np.ndarray) -> EvaluationSet:
        held_out = self._pair_set(weights, "train", rows)
        ids = [f"coreference/{name}" for name in held_out.example_ids]
        return dataclasses.replace(held_out, name=HELD_OUT, example_ids=ids)

    def _logits(self, weights: Weights, name: str, rows: np.ndarray) -> np.ndarray:
        representation, pairs = self.options.span_representation, self.pairs.sets[name]
        states = self.states[name]
        return pair_logits(representation, self.predictor, weights, pairs, states, rows)

    def _pair_set(self, weights: Weights, name: str, rows: np.ndarray) -> EvaluationSet:
        pairs, logits = self.pairs.sets[name], self._logits(weights, name, rows)
        labels = pairs.labels[rows]
        is_labelled = bool((labels >= 0).all())
        return EvaluationSet(
            name=name,
            example_ids=[pairs.pair_ids[row] for row in rows],
            labels=labels if is_labelled else None,
            predictions=logits.argmax(axis=1),
            scores=logits,
            metrics=_PAIR_METRICS if is_labelled else (),
            texts=pair_texts(pairs, rows, self.checkpoint.vocabulary.pieces),
        )


# One entry, as states of a checkpoint are large: replaced when a run has another checkpoint.
@functools.lru_cache(maxsize=1)
def _states(
    pairs: CoreferencePairs,
    checkpoint: Checkpoint,
    pooling: str,
    compile_step: CompileChoice,
    folder: str | None,
) -> dict[str, SpanStates]:
    path = None if folder is None else Path(folder)
    return span_states(pairs.sets, checkpoint, pooling, compile_step=compile_step, folder=path)


def _data(arguments: DataArguments) -> CoreferenceData:
    """Finds the files of `data_dir`, or the listed files and those below listed folders."""
    arguments.refuse("dataset", "evaluation_files", "labels")
    train_files, dev_files = arguments.train_files or (), arguments.dev_files or ()
    if arguments.data_dir is not None:
        train_files, dev_files = (
            (str(split_file(arguments.data_dir, split, [".conll"])),) for split in ("train", "dev")
        )
    if not train_files:
        raise UserError("task coreference needs finetune.train_files; give at least one file")
    return CoreferenceData(
        train_files=tuple(file for path in train_files for file in conll_files(path)),
        dev_files=tuple(file for path in dev_files for file in conll_files(path)),
        winogender_dir=winogender_folder(arguments.winogender_dir),
        sequence_length=arguments.sequence_length,
        options=CoreferenceOptions(**arguments.complete_options),
    )


def _new_data(arguments: NewDataArguments) -> CoreferenceData:
    """Returns new pairs for a trained model: GAP and CoNLL-2012 files; `winogender=` names its folder."""
    arguments.refuse("text_columns", "label_column")  # files are as GAP and CoNLL-2012 have them
    named = arguments.named_files
    folder = named.pop("winogender", None)
    return CoreferenceData(
        train_files=(),
        dev_files=tuple(file for path in named.values() for file in conll_files(path)),
        winogender_dir=winogender_folder(folder),
        sequence_length=arguments.sequence_length,
        options=CoreferenceOptions(**arguments.complete_options),
    )


TASKS = (
    Task(
        name="coreference",
        data=_data,
        settings=CoreferenceOptions,
        new_data=_new_data,
        frozen_encoder=True,
        place_options=("encodings_dir",),
    ),
)
