"""The batches of a training run: a prepared corpus, read in one order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert.tokenization import Tokenizer
from pretrain.batches import instance_order, pretraining_batch
from pretrain.instances import InstanceTable
from pretrain.token_store import TokenStore
from runs.errors import UserError
from runs.files import PathLike, read_bytes

VOCABULARY = "vocab.txt"
DESCRIPTION = "corpus.json"

# The parameters of a run that say how its corpus becomes batches, beside the seed of the order.
OF_BATCHES = (
    "batch_size",
    "sequence_length",
    "max_predictions_per_sequence",
    "masked_lm_probability",
    "whole_word_masks",
)

# The order in which held-out instances are taken: the same for all runs, so that seeds compare.
EVALUATION_DATA_SEED = 0


class CorpusBatches:
    """What any step sees, from the corpus, the order's seed and the step alone.

    Attributes:
      corpus: its directory.
      vocabulary_path: its `vocab.txt`.
      tokenizer: of that vocabulary.
      table: the corpus's instances.
      batch_size: sequences a step.
    """

    def __init__(
        self,
        corpus: PathLike,
        *,
        data_seed: int,
        batch_size: int,
        sequence_length: int,
        max_predictions_per_sequence: int,
        masked_lm_probability: float,
        whole_word_masks: bool = False,
    ):
        """Opens a corpus; nothing but its description is read.

        Args:
          corpus: the directory that `python -m pretrain.prepare` made.
          data_seed: of the order of the instances.
          batch_size: sequences a step.
          sequence_length: pieces a sequence; at least that of the corpus's instances.
          max_predictions_per_sequence: masked pieces at the most.
          masked_lm_probability: share of pieces masked.
          whole_word_masks: whether the pieces of a word are masked together.

        Raises:
          UserError: a file of the corpus is missing, or its instances are longer.
        """
        self.corpus = Path(corpus)
        facts = json.loads(read_bytes(self.corpus / DESCRIPTION))
        if sequence_length < facts["sequence_length"]:
            raise UserError(
                f"pretrain.sequence_length {sequence_length} is shorter than the instances of "
                f"{corpus} ({facts['sequence_length']}); raise it or prepare the corpus at that length"
            )
        self.vocabulary_path = self.corpus / VOCABULARY
        self.tokenizer = Tokenizer(self.vocabulary_path)
        self.table = InstanceTable(corpus)
        self.batch_size = batch_size
        self._store = TokenStore(corpus)
        self._data_seed = data_seed
        self._arguments: Mapping[str, Any] = {
            "sequence_length": sequence_length,
            "max_predictions_per_sequence": max_predictions_per_sequence,
            "masked_lm_probability": masked_lm_probability,
            "whole_word_masks": whole_word_masks,
            "fresh_masks": facts["fresh_masks"],
            "instance_seed": facts["instance_seed"],
        }

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of the update that follows `step` finished ones; see `pretraining_batch`."""
        return pretraining_batch(
            self._store,
            self.table,
            tokenizer=self.tokenizer,
            data_seed=self._data_seed,
            step=step,
            batch_size=self.batch_size,
            **self._arguments,
        )

    def instance_ids(self, step: int) -> np.ndarray:
        """The rows of the instance table in the batch of that step, int64 [batch]."""
        position = step * self.batch_size + np.arange(self.batch_size)
        return instance_order(position, len(self.table), self._data_seed)
