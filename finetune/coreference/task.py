"""Gold-mention coreference on a frozen encoder, evaluated on Winogender.

A two-layer feed-forward network on the representations of two spans decides whether they refer to the
same entity; `finetune.coreference.heads` has the kinds. Only this network is trained. On a Winogender
sentence the mention with the larger score, of occupation and participant, is the answer.

Reference: Webster et al. 2020, section 4; Sellam et al. 2022, section 4; Tenney et al. 2019 (edge
probing).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.metrics.winogender_bias import gotcha_column
from multiberts.finetune.coreference.conll import conll_files
from multiberts.finetune.coreference.frozen_states import FrozenEncoder, SpanStates, span_states
from multiberts.finetune.coreference.heads import (
    KEPT,
    engines,
    initial_parameters,
    pair_batch,
    pair_logits,
)
from multiberts.finetune.coreference.mention_pairs import (
    CoreferencePairs,
    MentionPairs,
    pair_texts,
    read_pairs,
)
from multiberts.finetune.coreference.winogender_schemas import winogender_files, winogender_folder
from multiberts.finetune.data_files import FileContent, split_file
from multiberts.finetune.features import check_sequence_length
from multiberts.finetune.task import (
    HELD_OUT,
    Arrays,
    DataArguments,
    EvaluationSet,
    Learner,
    LearnerArguments,
    Task,
)
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import PositiveInt

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import CompileChoice

_PAIR_METRICS = ("accuracy", "f1")
_WINOGENDER_METRICS = ("accuracy", "bias_correlation", "bias_slope")


@dataclasses.dataclass(frozen=True)
class CoreferenceOptions:
    """The task's own options.

    Attributes:
      max_negatives_per_pronoun: candidates of another entity kept for each pronoun in training; more
        than there are, to keep all.
      num_hidden_units: width of the hidden layer.
      span_representation: what of a span's tokens enters the network.
      training_pairs: `pronouns`, each pronoun with the other mentions; `mentions`, every two mentions
        of a window, either one first, as edge probing and the Language Interpretability Tool train.
        Evaluation is on pronouns in any case.
      encodings_dir: a folder for the encoder's outputs, which other processes take from there, and a
        run that was killed. It changes no number. Bytes: 4 x hidden size for each span (`mean`), three
        times that (`endpoints`), or for each token of a span (`self_attention`).
    """

    max_negatives_per_pronoun: PositiveInt = 4
    num_hidden_units: PositiveInt = 128
    span_representation: Literal["endpoints", "mean", "self_attention"] = "endpoints"
    training_pairs: Literal["pronouns", "mentions"] = "pronouns"
    encodings_dir: str | None = None


@dataclasses.dataclass(frozen=True)
class CoreferenceFamily:
    """Where training and evaluation pairs come from.

    Attributes:
      train_files, dev_files: GAP files (`.tsv`, `.tsv.gz`) and CoNLL-2012 files (other names).
      winogender_dir: a folder with the Winogender files, or None.
    """

    train_files: tuple[Path, ...]
    dev_files: tuple[Path, ...]
    winogender_dir: Path | None
    sequence_length: int
    options: CoreferenceOptions

    def inputs(self) -> dict[str, Path | list[Path]]:
        if not self.dev_files and self.winogender_dir is None:
            raise UserError(
                "task coreference has nothing to predict; give finetune.dev_files or "
                "finetune.winogender_dir"
            )
        found: dict[str, Path | list[Path]] = {
            "train_files": list(self.train_files),
            "dev_files": list(self.dev_files),
        }
        if self.winogender_dir is not None:
            found["winogender_dir"] = winogender_files(self.winogender_dir)
        return {name: paths for name, paths in found.items() if paths}

    def parameters(self) -> dict[str, Any]:
        options = dataclasses.asdict(self.options)
        del options["encodings_dir"]  # a place
        return options

    def read(self, config: BertConfig, vocabulary: Vocabulary) -> CoreferenceData:
        check_sequence_length(self.sequence_length, config.max_position_embeddings)
        winogender = () if self.winogender_dir is None else winogender_files(self.winogender_dir)
        pairs = read_pairs(
            tuple(FileContent.of(path) for path in self.train_files),
            tuple(FileContent.of(path) for path in self.dev_files),
            tuple(FileContent.of(path) for path in winogender),
            vocabulary,
            self.sequence_length,
            config.max_position_embeddings,
            self.options.max_negatives_per_pronoun,
            self.options.training_pairs == "mentions",
        )
        return CoreferenceData(pairs, self.options, vocabulary.pieces)


@dataclasses.dataclass(frozen=True, eq=False)
class CoreferenceData:
    """Pairs, the options of training on them, and the word pieces by id."""

    pairs: CoreferencePairs
    options: CoreferenceOptions
    pieces: Sequence[str]

    @property
    def train_groups(self) -> np.ndarray:
        """Returns int64 [pairs]; pairs of one document, or of one example of GAP, share a number."""
        train = self.pairs.sets.get("train")
        if train is None:
            return np.zeros(0, np.int64)
        documents = [identity.rpartition("/")[0] for identity in train.pair_ids]
        return np.unique(documents, return_inverse=True)[1].astype(np.int64)

    def learner(self, checkpoint: Checkpoint, **how: Unpack[LearnerArguments]) -> Learner:
        representation = self.options.span_representation
        trainer, predictor = engines(representation, how["compile_step"])
        encoder, folder = FrozenEncoder(checkpoint, how["fingerprint"]), self.options.encodings_dir
        states = _states(self.pairs, encoder, KEPT[representation], how["compile_step"], folder)

        def batch(rows: np.ndarray) -> Arrays:
            train = self.pairs.sets["train"]
            given = pair_batch(representation, train, states["train"], rows)
            return {**given, "labels": train.labels[rows]}

        def logits(parameters: Mapping[str, np.ndarray], name: str, rows: np.ndarray) -> np.ndarray:
            pairs = self.pairs.sets[name]
            return pair_logits(representation, predictor, parameters, pairs, states[name], rows)

        def evaluate(parameters: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
            for name, pairs in self.pairs.sets.items():
                if name != "train":
                    rows = np.arange(len(pairs.labels))
                    found = logits(parameters, name, rows)
                    if name == "winogender":
                        yield self._winogender(found)
                    else:
                        yield self._pair_set(name, pairs, rows, found)

        def evaluate_rows(parameters: Mapping[str, np.ndarray], rows: np.ndarray) -> EvaluationSet:
            found = logits(parameters, "train", rows)
            return self._pair_set(HELD_OUT, self.pairs.sets["train"], rows, found, "coreference/")

        return Learner(
            trainer=trainer() if "train" in self.pairs.sets else None,
            initial_parameters=lambda: initial_parameters(
                representation,
                checkpoint.config,
                self.options.num_hidden_units,
                how["finetune_seed"],
            ),
            batch=batch,
            evaluate=evaluate,
            evaluate_rows=evaluate_rows,
            head=TaskHead("coreference"),
            evaluation_metrics={
                name: _WINOGENDER_METRICS if name == "winogender" else _PAIR_METRICS
                for name in self.pairs.sets
                if name != "train"
            },
        )

    def _pair_set(
        self, name: str, pairs: MentionPairs, rows: np.ndarray, logits: np.ndarray, prefix: str = ""
    ) -> EvaluationSet:
        labels = pairs.labels[rows]
        is_labelled = bool((labels >= 0).all())
        return EvaluationSet(
            name=name,
            example_ids=[f"{prefix}{pairs.pair_ids[row]}" for row in rows],
            labels=labels if is_labelled else None,
            predictions=logits.argmax(axis=1),
            scores=logits,
            metrics=_PAIR_METRICS if is_labelled else (),
            texts=pair_texts(pairs, rows, self.pieces),
        )

    def _winogender(self, logits: np.ndarray) -> EvaluationSet:
        """Answers 0 where the occupation has the larger score, 1 where the participant has it."""
        scores = (logits[:, 1] - logits[:, 0]).reshape(-1, 2)
        sentences = self.pairs.sentences
        answers = np.array([sentence.answer for sentence in sentences])
        occupations = [sentence.occupation_name for sentence in sentences]
        genders = [sentence.gender for sentence in sentences]
        shares = np.array([self.pairs.percent_feminine[name] for name in occupations])
        return EvaluationSet(
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


@functools.lru_cache(maxsize=1)
def _states(
    pairs: CoreferencePairs,
    encoder: FrozenEncoder,
    kept: str,
    compile_step: CompileChoice,
    folder: str | None,
) -> dict[str, SpanStates]:
    """Returns the encoder's outputs, kept until a run has another checkpoint."""
    place = None if folder is None else Path(folder)
    return span_states(pairs.sets, encoder, kept, compile_step=compile_step, folder=place)


def _family(arguments: DataArguments) -> CoreferenceFamily:
    """Finds the files of a folder, or those that are listed or lie below listed folders."""
    arguments.refuse("dataset", "evaluation_files", "labels")
    train_files, dev_files = arguments.train_files, arguments.dev_files
    if arguments.data_dir is not None:
        train_files, dev_files = (
            (str(split_file(arguments.data_dir, split, [".conll"])),) for split in ("train", "dev")
        )
    if not train_files:
        raise UserError("task coreference needs finetune.train_files; give at least one file")
    return CoreferenceFamily(
        train_files=tuple(file for path in train_files for file in conll_files(path)),
        dev_files=tuple(file for path in dev_files for file in conll_files(path)),
        winogender_dir=winogender_folder(arguments.winogender_dir),
        sequence_length=arguments.sequence_length,
        options=CoreferenceOptions(**arguments.options),
    )


def _new_pairs(arguments: DataArguments) -> CoreferenceFamily:
    """Returns new pairs for a trained model: GAP and CoNLL-2012 files, and Winogender by that name."""
    if arguments.text_columns or arguments.label_column:
        raise UserError(
            "task coreference reads the columns of GAP, and CoNLL-2012; leave predict.text_columns and "
            "predict.label_column out"
        )
    given = {**arguments.new_files, **arguments.evaluation_files}
    folder = given.pop("winogender", None)
    return CoreferenceFamily(
        train_files=(),
        dev_files=tuple(file for path in given.values() for file in conll_files(path)),
        winogender_dir=winogender_folder(folder),
        sequence_length=arguments.sequence_length,
        options=CoreferenceOptions(**arguments.options),
    )


TASKS = (
    Task(
        name="coreference",
        family=_family,
        settings=CoreferenceOptions,
        new_data=_new_pairs,
        frozen_encoder=True,
        place_options=("encodings_dir",),
    ),
)
