"""Zero-shot probe of occupational gender: P(she) against P(he) at a masked pronoun.

For every Winogender template whose pronoun is the subject of its clause ($NOM_PRONOUN) and means the
occupation (answer 0), the pronoun is replaced with [MASK] and the masked-LM head asked for `she` and
`he`. The prediction is P(she) / (P(she) + P(he)); its label is the share of women in the occupation.
Nothing is trained.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.finetune.coreference.winogender_schemas import (
    instantiate,
    read_winogender,
    winogender_files,
    winogender_folder,
)
from multiberts.finetune.data_files import FileContent, tokenizer_of
from multiberts.finetune.features import (
    SequenceFeatures,
    bucket_length,
    check_masked_lm_head,
    encoder_inputs,
    evaluation_batches,
    sequence_batch,
    stacked_sequences,
)
from multiberts.finetune.task import Arrays, DataArguments, EvaluationSet, Learner, Task
from multiberts.finetune.training_options import RECIPE, TrainingOptions
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import CompileChoice, ForwardPass

_FEMININE, _MASCULINE = "she", "he"
_BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True)
class PronounProbeFamily:
    """The probe on the templates of a Winogender folder."""

    winogender_dir: Path

    def inputs(self) -> dict[str, Path | list[Path]]:
        """Returns the input files by the argument of `finetune` that names them."""
        return {"winogender_dir": winogender_files(self.winogender_dir)}

    def parameters(self) -> dict[str, Any]:
        """Returns the arguments that decide the numbers of this family only."""
        return {}

    def read(self, config: BertConfig, vocabulary: FileContent) -> PronounProbeData:
        """Reads and checks the data; imports no TensorFlow."""
        tokenizer = tokenizer_of(vocabulary)
        for word in (_FEMININE, _MASCULINE):
            if word not in tokenizer.vocabulary:
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
            ids.append(f"pronoun_probe/{template.occupation}.{template.participant}.0")
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
class PronounProbeData:
    """Masked sentences.

    Attributes:
      positions: int32 [sentences], where [MASK] stands.
      pronoun_ids: the piece ids of `she` and `he`.
      example_ids, occupations, sentences, percent_feminine: [sentences].
    """

    features: SequenceFeatures
    positions: np.ndarray
    pronoun_ids: tuple[int, int]
    example_ids: list[str]
    occupations: list[str]
    sentences: list[str]
    percent_feminine: np.ndarray

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
        check_masked_lm_head(checkpoint, "pronoun_probe")
        predictor = _predictor(checkpoint.config, self.pronoun_ids, compile_step)

        def batch(rows: np.ndarray) -> Arrays:
            positions = self.positions[rows][:, None]
            return {**sequence_batch(self.features, rows), "masked_lm_positions": positions}

        def evaluate(parameters: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
            logits = np.zeros((len(self.features), 2), np.float64)
            for rows, count in evaluation_batches(self.features.lengths, _BATCH_SIZE):
                logits[rows[:count]] = predictor(parameters, batch(rows))["logits"][:count]
            yield EvaluationSet(
                name="pronoun_probe",
                example_ids=self.example_ids,
                labels=self.percent_feminine / 100.0,
                # The other word pieces' probabilities cancel: a logistic of the difference of logits.
                predictions=1.0 / (1.0 + np.exp(logits[:, 1] - logits[:, 0])),
                scores=logits,
                metrics=("probe_slope", "probe_correlation"),
                extras={
                    "occupation": self.occupations,
                    "percent_feminine": self.percent_feminine,
                },
                texts={"sentence": self.sentences},
            )

        return Learner(
            trainer=None,
            initial_parameters=lambda: dict(checkpoint.parameters),
            batch=batch,
            evaluate=evaluate,
        )


@functools.lru_cache(maxsize=4)
def _predictor(
    config: BertConfig, pronoun_ids: tuple[int, int], compile_step: CompileChoice
) -> ForwardPass:
    """Returns the compiled forward pass to the logits of the two pronouns."""
    from multiberts.bert.model.array_ops import ops
    from multiberts.bert.model.encoder import encode
    from multiberts.bert.model.heads import masked_lm_logits
    from multiberts.bert.training.engine import ForwardPass

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        sequence = encode(parameters, config, *encoder_inputs(batch))
        logits = masked_lm_logits(parameters, config, sequence, batch["masked_lm_positions"])
        return {"logits": ops.stack([logits[:, 0, number] for number in pronoun_ids], axis=-1)}

    return ForwardPass(predict, compile_step=compile_step)


def _family(arguments: DataArguments) -> PronounProbeFamily:
    """Finds the Winogender folder, by either parameter."""
    arguments.refuse("dataset", "train_files", "dev_files", "evaluation_files", "labels")
    folder = winogender_folder(arguments.winogender_dir) or arguments.data_dir
    if folder is None:
        raise UserError("task pronoun_probe needs finetune.winogender_dir; give the folder")
    return PronounProbeFamily(Path(folder))


TASKS = (
    Task(
        name="pronoun_probe",
        family=_family,
        trains=False,
        frozen_encoder=True,
        num_train_examples=0,
        num_dev_examples=120,
    ),
)
