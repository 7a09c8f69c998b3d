"""Masked words of held-out text: a checkpoint's loss and prediction on each, with fixed masks.

The task does not train. All checkpoints, of many steps and seeds, predict the same examples.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.heads import cross_entropy
from multiberts.finetune.features import check_sequence_length
from multiberts.finetune.model import EvaluationSet, MaskedLmModel, MaskedLmNetwork, Weights
from multiberts.finetune.task import DataArguments, Files, FinetuningData, Task
from multiberts.pretrain.batches.corpus_batches import EVALUATION_DATA_SEED, Batches
from multiberts.pretrain.batches.masking import Masking
from multiberts.pretrain.corpus.description import read_description
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import PositiveInt, Range, Seed

_NAME = "masked_words"
_MOST_SEQUENCES_PER_BATCH = 32


@dataclasses.dataclass(frozen=True)
class MaskedWordsOptions:
    """Options of the task.

    Attributes:
      num_sequences: number of sequences of the held-out corpus, the same random ones for all runs.
      mask_seed: seed of the masks, which replace those of the corpus.
      masked_lm_probability: share of tokens masked.
      max_predictions_per_sequence: maximum number of masked tokens per sequence.
    """

    num_sequences: PositiveInt = 256
    mask_seed: Seed = 0
    masked_lm_probability: Annotated[float, Range(above=0, below=1)] = 0.15
    max_predictions_per_sequence: PositiveInt = 80


@dataclasses.dataclass(frozen=True)
class MaskedWordsData(FinetuningData):
    """The masked words of a prepared corpus.

    Attributes:
      corpus: directory made by `multiberts prepare` from held-out text, with the vocabulary of the
        training corpus.
    """

    corpus: Path
    options: MaskedWordsOptions

    def inputs(self) -> Files:
        if not self.corpus.is_dir():
            raise UserError(
                f"{self.corpus} is not a folder; give the directory of a prepared corpus as data_dir"
            )
        return {"data_dir": self.corpus}

    def parameters(self) -> dict[str, Any]:
        return dataclasses.asdict(self.options)

    def read(self, checkpoint: Checkpoint) -> MaskedWords:
        """Opens the corpus and checks it; imports no TensorFlow."""
        options, config = self.options, checkpoint.config
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
        if differ := batches.vocabulary.difference(checkpoint.vocabulary):
            raise UserError(
                f"{differ}; prepare the held-out corpus with prepare.vocabulary set to the latter"
            )
        if options.num_sequences > batches.num_instances:
            raise UserError(
                f"option num_sequences of task {_NAME} is {options.num_sequences}, but {self.corpus} has "
                f"{batches.num_instances} instances; give {batches.num_instances} or less"
            )
        return MaskedWords(
            checkpoint=checkpoint,
            batches=batches,
            num_sequences=options.num_sequences,
        )


class MaskedWordsNetwork(MaskedLmNetwork):
    """The masked-LM head's losses and predictions of masked words."""

    def predict(self, parameters: Any, batch: Any) -> dict[str, Any]:
        logits = self.masked_lm_logits(parameters, batch)
        return {
            "loss": cross_entropy(logits, batch["masked_lm_ids"]),
            "prediction": ops.argmax(logits, axis=-1),
        }


@dataclasses.dataclass(eq=False, kw_only=True)
class MaskedWords(MaskedLmModel):
    """A model that predicts the masked words of sequences."""

    task = _NAME
    batches: Batches
    num_sequences: int

    @functools.cached_property
    def network(self) -> MaskedWordsNetwork:
        return MaskedWordsNetwork(self.checkpoint.config)

    def evaluate(self, weights: Weights) -> Iterator[EvaluationSet]:
        pieces = self.batches.vocabulary.pieces
        size = self.batches.batch_size
        ids: list[str] = []
        texts: list[str] = []
        columns: dict[str, list[np.ndarray]] = {"label": [], "prediction": [], "loss": []}
        for number in range(-(-self.num_sequences // size)):
            batch = self.batches.batch(number)
            outputs = self.predictor(weights, batch)
            instances = self.batches.instance_ids(number)[: self.num_sequences - number * size]
            for row, instance in enumerate(instances.tolist()):
                asked = np.flatnonzero(batch["masked_lm_weights"][row])
                positions = batch["masked_lm_positions"][row][asked].tolist()
                length = int(batch["input_mask"][row].sum())
                shown = [pieces[piece] for piece in batch["input_ids"][row][:length].tolist()]
                for position in positions:
                    ids.append(f"{_NAME}/{instance}.{position}")
                    # The model's input, with the target masked even where the model saw it.
                    texts.append(" ".join([*shown[:position], "[MASK]", *shown[position + 1 :]]))
                columns["label"].append(batch["masked_lm_ids"][row][asked])
                for name in ("prediction", "loss"):
                    columns[name].append(np.asarray(outputs[name])[row][asked])
        labels, predictions, losses = map(np.concatenate, columns.values())
        yield EvaluationSet(
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


def _data(arguments: DataArguments) -> MaskedWordsData:
    arguments.refuse(
        "dataset", "train_files", "dev_files", "evaluation_files", "labels", "winogender_dir"
    )
    if arguments.data_dir is None:
        raise UserError(
            f"task {_NAME} needs finetune.data_dir; give the directory of a prepared corpus"
        )
    return MaskedWordsData(
        Path(arguments.data_dir), MaskedWordsOptions(**arguments.complete_options)
    )


TASKS = (
    Task(
        name=_NAME,
        data=_data,
        settings=MaskedWordsOptions,
        trains=False,
        frozen_encoder=True,
        num_train_examples=0,
    ),
)
