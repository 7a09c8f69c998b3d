"""Zero-shot probe of occupational gender: P(she) against P(he) at a masked pronoun.

For every Winogender template whose pronoun is the subject of its clause ($NOM_PRONOUN) and means the
occupation (answer 0), the pronoun is replaced with [MASK], and the masked-LM head scores `she` and
`he`. The prediction is P(she) / (P(she) + P(he)); its label is the share of women in the occupation.
Nothing is trained.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.model.array_ops import ops
from multiberts.finetune.coreference.winogender_schemas import (
    instantiate,
    read_winogender,
    winogender_files,
    winogender_folder,
)
from multiberts.finetune.features import (
    SequenceFeatures,
    bucket_length,
    evaluation_batches,
    sequence_batch,
    stacked_sequences,
)
from multiberts.finetune.model import EvaluationSet, MaskedLmModel, MaskedLmNetwork, Weights
from multiberts.finetune.task import DataArguments, Files, FinetuningData, Task
from multiberts.runs.errors import UserError

_NAME = "pronoun_probe"
_FEMININE, _MASCULINE = "she", "he"
_BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True)
class PronounProbeData(FinetuningData):
    """The probe on the templates of a Winogender folder."""

    winogender_dir: Path

    def inputs(self) -> Files:
        return {"winogender_dir": winogender_files(self.winogender_dir)}

    def read(self, checkpoint: Checkpoint) -> PronounProbe:
        config, vocabulary = checkpoint.config, checkpoint.vocabulary
        for word in (_FEMININE, _MASCULINE):
            if word not in vocabulary.pieces:
                raise UserError(
                    f"{vocabulary.where} has no piece {word!r}, which the pronoun probe predicts; use a "
                    "checkpoint whose vocabulary has it"
                )
        templates_file = winogender_files(self.winogender_dir)[0]
        winogender = read_winogender(self.winogender_dir)
        rows, positions, ids, occupations, sentences = [], [], [], [], []
        for line, template in enumerate(winogender.templates, start=2):
            if template.pronoun_slot != "$NOM_PRONOUN" or template.answer != 0:
                continue
            text, spans = instantiate(template, "male", template.participant)
            begin, end = spans["$NOM_PRONOUN"]
            before, after = vocabulary.encode_batch([text[:begin], text[end:]])
            row = [vocabulary.cls_id, *before, vocabulary.mask_id, *after, vocabulary.sep_id]
            padded = bucket_length(len(row))
            if padded > config.max_position_embeddings:
                raise UserError(
                    f"{templates_file} line {line}: the sentence has {len(row)} tokens, padded to {padded}, "
                    f"but the checkpoint has {config.max_position_embeddings} positions; shorten it"
                )
            rows.append(row)
            positions.append(len(before) + 1)
            ids.append(f"{_NAME}/{template.occupation}.{template.participant}.0")
            occupations.append(template.occupation)
            sentences.append(f"{text[:begin]}[MASK]{text[end:]}")
        if not rows:
            raise UserError(
                f"{templates_file} has no template with $NOM_PRONOUN and answer 0; add such templates"
            )
        return PronounProbe(
            checkpoint=checkpoint,
            features=stacked_sequences(rows, [len(row) for row in rows]),
            positions=np.array(positions, np.int32),
            example_ids=ids,
            occupations=occupations,
            sentences=sentences,
            percent_feminine=np.array([winogender.percent_feminine[name] for name in occupations]),
        )


@dataclasses.dataclass(frozen=True)
class PronounNetwork(MaskedLmNetwork):
    """The masked-LM head's scores of two pieces at [MASK]."""

    pronoun_ids: tuple[int, int] = (0, 0)

    def predict(self, parameters: Any, batch: Any) -> dict[str, Any]:
        logits = self.masked_lm_logits(parameters, batch)
        pieces = [logits[:, 0, number] for number in self.pronoun_ids]
        return {"logits": ops.stack(pieces, axis=-1)}


@dataclasses.dataclass(eq=False, kw_only=True)
class PronounProbe(MaskedLmModel):
    """A model that predicts pronouns in masked sentences.

    Attributes:
      positions: positions of [MASK], int32 [sentences].
      example_ids, occupations, sentences, percent_feminine: [sentences].
    """

    task = _NAME
    features: SequenceFeatures
    positions: np.ndarray
    example_ids: list[str]
    occupations: list[str]
    sentences: list[str]
    percent_feminine: np.ndarray

    @functools.cached_property
    def network(self) -> PronounNetwork:
        pieces = self.checkpoint.vocabulary
        pronoun_ids = pieces.id_of(_FEMININE), pieces.id_of(_MASCULINE)
        return PronounNetwork(self.checkpoint.config, pronoun_ids=pronoun_ids)

    def evaluate(self, weights: Weights) -> Iterator[EvaluationSet]:
        logits = np.zeros((len(self.features), 2), np.float64)
        for rows, count in evaluation_batches(self.features.lengths, _BATCH_SIZE):
            positions = self.positions[rows][:, None]
            batch = {**sequence_batch(self.features, rows), "masked_lm_positions": positions}
            logits[rows[:count]] = self.predictor(weights, batch)["logits"][:count]
        yield EvaluationSet(
            name=_NAME,
            example_ids=self.example_ids,
            labels=self.percent_feminine / 100.0,
            # The other word pieces' probabilities cancel: a logistic of the difference of logits.
            predictions=1.0 / (1.0 + np.exp(logits[:, 1] - logits[:, 0])),
            scores=logits,
            metrics=("probe_slope", "probe_correlation"),
            extras={"occupation": self.occupations, "percent_feminine": self.percent_feminine},
            texts={"sentence": self.sentences},
        )


def _data(arguments: DataArguments) -> PronounProbeData:
    arguments.refuse("dataset", "train_files", "dev_files", "evaluation_files", "labels")
    folder = winogender_folder(arguments.winogender_dir) or arguments.data_dir
    if folder is None:
        raise UserError("task pronoun_probe needs finetune.winogender_dir; give the folder")
    return PronounProbeData(Path(folder))


TASKS = (
    Task(
        name=_NAME,
        data=_data,
        trains=False,
        frozen_encoder=True,
        num_train_examples=0,
        num_dev_examples=120,
    ),
)
