"""Checks of the checkpoint that training starts from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.bert.checkpoint.checkpoint import VOCABULARY, check_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.pretrain.training.learning_rate_schedule import CONTINUE
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint


def check_initial_checkpoint(directory: str, config: BertConfig, vocabulary_path: Path) -> None:
    """Refuses, without TensorFlow, a checkpoint of another model or with another vocabulary.

    Args:
      directory: of the checkpoint, in either layout.
      config: the model that is to be trained.
      vocabulary_path: of the corpus.

    Raises:
      UserError: naming the fields that differ, or both vocabularies.
    """
    found = check_checkpoint(directory)
    differences = [
        f"{field.name} {getattr(found, field.name)}, expected {getattr(config, field.name)}"
        for field in dataclasses.fields(config)
        if getattr(found, field.name) != getattr(config, field.name)
    ]
    if differences:
        raise UserError(
            f"{directory} is of another model than pretrain.model with the corpus's vocabulary: "
            f"{'; '.join(differences)}; give pretrain.model the checkpoint's values and prepare the "
            "corpus with its vocab.txt"
        )
    vocabulary = Path(directory) / VOCABULARY
    if vocabulary.read_bytes() != vocabulary_path.read_bytes():
        raise UserError(
            f"{vocabulary} and {vocabulary_path} differ; prepare the corpus with the checkpoint's "
            "vocabulary"
        )


def read_initial_checkpoint(directory: str) -> Checkpoint:
    """Reads a checkpoint with all that pre-training trains.

    Raises:
      UserError: it is damaged, or has no pre-training heads.
    """
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint
    from multiberts.bert.model.configuration import parameter_shapes

    checkpoint = read_checkpoint(directory)
    missing = sorted(parameter_shapes(checkpoint.config).keys() - checkpoint.parameters.keys())
    if missing:
        raise UserError(
            f"{directory} lacks {len(missing)} variables of the pre-training heads ({missing[0]} is the "
            "first), as encoders do that were saved alone; `python -m bert.checkpoint convert "
            f"{directory} TARGET --to tf1 --initialise_missing=<pretrain_seed>` draws them as at step 0"
        )
    return checkpoint


def steps_before(start: Checkpoint | None, treatment: str, directory: str | None) -> int:
    """Returns the updates of the initial checkpoint, where the learning rate depends on them.

    Raises:
      UserError: the checkpoint does not record its step.
    """
    if start is None or treatment != CONTINUE:
        return 0
    step = start.provenance["step"]
    if step is None:
        raise UserError(
            f"{directory} does not record its step, which pretrain.learning_rate_treatment 'continue' "
            "needs; choose 'restart' or 'constant'"
        )
    return int(step)
