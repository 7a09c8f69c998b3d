"""Zero-shot probe of occupational gender: P(she) against P(he) at a masked pronoun.

For every Winogender template whose pronoun is the subject of its clause ($NOM_PRONOUN) and means the
occupation (answer 0), the pronoun is replaced with [MASK] and the masked-LM head asked for `she` and
`he`. The prediction is P(she) / (P(she) + P(he)); its label is the share of women in the occupation.
Nothing is trained.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.checkpoint_heads import Answers, MaskedLmData
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
from multiberts.finetune.task import DataArguments, EvaluationSet, Task
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from multiberts.bert.training.engine import ForwardPass

_NAME = "pronoun_probe"
_FEMININE, _MASCULINE = "she", "he"
_BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True)
class PronounProbeFamily:
    """The probe on the templates of a Winogender folder."""

    winogender_dir: Path

    def inputs(self) -> dict[str, Path | list[Path]]:
        return {"winogender_dir": winogender_files(self.winogender_dir)}

    def parameters(self) -> dict[str, Any]:
        return {}

    def read(self, config: BertConfig, vocabulary: Vocabulary) -> PronounProbeData:
        tokenizer = vocabulary
        for word in (_FEMININE, _MASCULINE):
            if word not in tokenizer.pieces:
                raise UserError(
                    f"{vocabulary.path} has no piece {word!r}, which the pronoun probe predicts; use a "
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
            before, after = tokenizer.encode_batch([text[:begin], text[end:]])
            row = [tokenizer.cls_id, *before, tokenizer.mask_id, *after, tokenizer.sep_id]
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
        return PronounProbeData(
            features=stacked_sequences(rows, [len(row) for row in rows]),
            positions=np.array(positions, np.int32),
            pronoun_ids=(tokenizer.id_of(_FEMININE), tokenizer.id_of(_MASCULINE)),
            example_ids=ids,
            occupations=occupations,
            sentences=sentences,
            percent_feminine=np.array([winogender.percent_feminine[name] for name in occupations]),
        )


@dataclasses.dataclass(frozen=True)
class PronounProbeData(MaskedLmData):
    """Masked sentences.

    Attributes:
      positions: int32 [sentences], where [MASK] stands.
      pronoun_ids: the piece ids of `she` and `he`.
      example_ids, occupations, sentences, percent_feminine: [sentences].
    """

    task = _NAME
    features: SequenceFeatures
    positions: np.ndarray
    pronoun_ids: tuple[int, int]
    example_ids: list[str]
    occupations: list[str]
    sentences: list[str]
    percent_feminine: np.ndarray

    def answers(self) -> Answers:
        return _logits_of(self.pronoun_ids)

    def predicted(
        self, predictor: ForwardPass, parameters: Mapping[str, np.ndarray]
    ) -> EvaluationSet:
        logits = np.zeros((len(self.features), 2), np.float64)
        for rows, count in evaluation_batches(self.features.lengths, _BATCH_SIZE):
            positions = self.positions[rows][:, None]
            batch = {**sequence_batch(self.features, rows), "masked_lm_positions": positions}
            logits[rows[:count]] = predictor(parameters, batch)["logits"][:count]
        return EvaluationSet(
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


@functools.cache  # the same function for the same pronouns
def _logits_of(pronoun_ids: tuple[int, int]) -> Answers:
    from multiberts.bert.model.array_ops import ops

    return lambda logits, _: {
        "logits": ops.stack([logits[:, 0, number] for number in pronoun_ids], axis=-1)
    }


def _family(arguments: DataArguments) -> PronounProbeFamily:
    arguments.refuse("dataset", "train_files", "dev_files", "evaluation_files", "labels")
    folder = winogender_folder(arguments.winogender_dir) or arguments.data_dir
    if folder is None:
        raise UserError("task pronoun_probe needs finetune.winogender_dir; give the folder")
    return PronounProbeFamily(Path(folder))


TASKS = (
    Task(
        name=_NAME,
        family=_family,
        trains=False,
        frozen_encoder=True,
        num_train_examples=0,
        num_dev_examples=120,
    ),
)
