"""Masked words of held-out text: loss and answer of a checkpoint on each, with fixed masks.

Nothing is trained. Checkpoints of many steps and seeds have one prediction file each, of the same examples.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.finetune.data_files import FileContent
from multiberts.finetune.features import (
    check_masked_lm_head,
    check_sequence_length,
    encoder_inputs,
)
from multiberts.finetune.task import Arrays, DataArguments, EvaluationSet, Learner, Task
from multiberts.finetune.training_options import RECIPE, TrainingOptions
from multiberts.pretrain.batches.corpus_batches import (
    EVALUATION_DATA_SEED,
    Batches,
)
from multiberts.pretrain.batches.masking import Masking
from multiberts.pretrain.corpus.description import read_description
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import NonNegativeInt, PositiveInt, Range

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import CompileChoice, ForwardPass

_NAME = "masked_words"
_MOST_SEQUENCES_PER_BATCH = 32


@dataclasses.dataclass(frozen=True)
class MaskedWordsOptions:
    """Options of the task.

    Attributes:
      num_sequences: of the held-out corpus; the first in an order of their own, the same for all runs.
      mask_seed: of the masks, in place of those of the corpus.
      masked_lm_probability: share of tokens masked.
      max_predictions_per_sequence: the largest number of masked tokens in a sequence.
    """

    num_sequences: PositiveInt = 256
    mask_seed: NonNegativeInt = 0
    masked_lm_probability: Annotated[float, Range(above=0, below=1)] = 0.15
    max_predictions_per_sequence: PositiveInt = 80


@dataclasses.dataclass(frozen=True)
class MaskedWordsFamily:
    """The masked words of a prepared corpus.

    Attributes:
      corpus: the directory that `multiberts prepare` made, of held-out text with the vocabulary of the
        corpus that was trained on.
    """

    corpus: Path
    options: MaskedWordsOptions

    def inputs(self) -> dict[str, Path | list[Path]]:
        """Returns the corpus by the argument of `finetune` that names it."""
        if not self.corpus.is_dir():
            raise UserError(
                f"{self.corpus} is not a folder; give the directory of a prepared corpus as data_dir"
            )
        return {"data_dir": self.corpus}

    def parameters(self) -> dict[str, Any]:
        """Returns the arguments that decide the numbers of this family only."""
        return dataclasses.asdict(self.options)

    def read(self, config: BertConfig, vocabulary: FileContent) -> MaskedWordsData:
        """Opens the corpus and checks it; imports no TensorFlow."""
        options = self.options
        sequence_length = read_description(self.corpus)["sequence_length"]
        check_sequence_length(sequence_length, config.max_position_embeddings)
        config.check_two_segments(f"task {_NAME}", "take a checkpoint with 2")
        batches = Batches(
            self.corpus,
            Masking(
                sequence_length=sequence_length,
                max_predictions_per_sequence=options.max_predictions_per_sequence,
                masked_lm_probability=options.masked_lm_probability,
            ),
            data_seed=EVALUATION_DATA_SEED,
            batch_size=min(_MOST_SEQUENCES_PER_BATCH, options.num_sequences),
            mask_seed=options.mask_seed,
        )
        if batches.vocabulary_path.read_bytes() != vocabulary.path.read_bytes():
            raise UserError(
                f"{batches.vocabulary_path} and {vocabulary.path} differ; prepare the held-out corpus with "
                "prepare.vocabulary set to the latter"
            )
        if options.num_sequences > batches.num_instances:
            raise UserError(
                f"option num_sequences of task {_NAME} is {options.num_sequences}, but {self.corpus} has "
                f"{batches.num_instances} instances; give {batches.num_instances} or less"
            )
        return MaskedWordsData(batches, options.num_sequences)


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedWordsData:
    """Sequences with masked words."""

    batches: Batches
    num_sequences: int

    @property
    def train_groups(self) -> np.ndarray:
        """Returns the number of the example that each training row belongs to."""
        return np.zeros(0, np.int64)

    def learner(
        self,
        checkpoint: Checkpoint,
        *,
        fingerprint: str,
        finetune_seed: int,
        compile_step: CompileChoice,
        training: TrainingOptions = RECIPE,
    ) -> Learner:
        del fingerprint, finetune_seed, training  # nothing is trained
        check_masked_lm_head(checkpoint, _NAME)
        predictor = _predictor(checkpoint.config, compile_step)

        def evaluate(parameters: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
            yield self._predicted(parameters, predictor)

        return Learner(
            trainer=None,
            initial_parameters=lambda: dict(checkpoint.parameters),
            batch=lambda _: {},
            evaluate=evaluate,
        )

    def _predicted(
        self, parameters: Mapping[str, np.ndarray], predictor: ForwardPass
    ) -> EvaluationSet:
        pieces = self.batches.tokenizer.vocabulary
        size = self.batches.batch_size
        ids: list[str] = []
        texts: list[str] = []
        columns: dict[str, list[np.ndarray]] = {"label": [], "prediction": [], "loss": []}
        for number in range(-(-self.num_sequences // size)):
            batch = self.batches.batch(number)
            found = predictor(parameters, batch)
            instances = self.batches.instance_ids(number)[: self.num_sequences - number * size]
            for row, instance in enumerate(instances.tolist()):
                asked = np.flatnonzero(batch["masked_lm_weights"][row])
                positions = batch["masked_lm_positions"][row][asked].tolist()
                shown = [
                    pieces[piece] for piece in batch["input_ids"][row][_text(batch, row)].tolist()
                ]
                for position in positions:
                    ids.append(f"{_NAME}/{instance}.{position}")
                    # As the model sees it, but for the word that is asked for, which may have been left.
                    texts.append(" ".join([*shown[:position], "[MASK]", *shown[position + 1 :]]))
                columns["label"].append(batch["masked_lm_ids"][row][asked])
                for name in ("prediction", "loss"):
                    columns[name].append(np.asarray(found[name])[row][asked])
        labels, predictions, losses = map(np.concatenate, columns.values())
        return EvaluationSet(
            name=_NAME,
            example_ids=ids,
            labels=labels,
            predictions=predictions,
            scores=None,
            metrics=("accuracy", "loss"),
            extras={"word": [pieces[piece] for piece in labels.tolist()]},
            outputs={"loss": losses},
            texts={"text": texts},
        )


def _text(batch: Arrays, row: int) -> slice:
    return slice(0, int(batch["input_mask"][row].sum()))


@functools.lru_cache(maxsize=2)
def _predictor(config: BertConfig, compile_step: CompileChoice) -> ForwardPass:
    """Returns the compiled forward pass to the loss and the answer at each masked position."""
    from multiberts.bert.model.array_ops import ops
    from multiberts.bert.model.encoder import encode
    from multiberts.bert.model.heads import cross_entropy, masked_lm_logits
    from multiberts.bert.training.engine import ForwardPass

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        sequence = encode(parameters, config, *encoder_inputs(batch))
        logits = masked_lm_logits(parameters, config, sequence, batch["masked_lm_positions"])
        return {
            "loss": cross_entropy(logits, batch["masked_lm_ids"]),
            "prediction": ops.argmax(logits, axis=-1),
        }

    return ForwardPass(predict, compile_step=compile_step)


def _family(arguments: DataArguments) -> MaskedWordsFamily:
    arguments.refuse(
        "dataset", "train_files", "dev_files", "evaluation_files", "labels", "winogender_dir"
    )
    if arguments.data_dir is None:
        raise UserError(
            f"task {_NAME} needs finetune.data_dir; give the directory of a prepared corpus"
        )
    options = MaskedWordsOptions(**arguments.options)
    return MaskedWordsFamily(Path(arguments.data_dir), options)


TASKS = (
    Task(
        name=_NAME,
        family=_family,
        settings=MaskedWordsOptions,
        trains=False,
        frozen_encoder=True,
        num_train_examples=0,
    ),
)
