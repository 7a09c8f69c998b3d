"""Batches of a training run: prepared or imported instances, read in one order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from multiberts.bert.tokenization import Tokenizer
from multiberts.pretrain.batches.imported_batches import ImportedBatches
from multiberts.pretrain.batches.masking import Masking, instance_order, pretraining_batch
from multiberts.pretrain.corpus.description import IMPORTED, VOCABULARY, read_description
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.token_store import TokenStore
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

# The order in which held-out instances are taken: the same for all runs, so that seeds compare.
EVALUATION_DATA_SEED = 0


class Batches(Protocol):
    """What any step sees, from the corpus, the order's seed and the step alone.

    Attributes:
      corpus: its directory.
      vocabulary_path: its `vocab.txt`.
      tokenizer: of that vocabulary.
      num_instances: how many instances it has; an epoch is one walk over them.
      batch_size: sequences per step.
    """

    corpus: Path
    vocabulary_path: Path
    tokenizer: Tokenizer
    num_instances: int
    batch_size: int

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """Returns the batch of the update that follows `step` finished ones; see `pretraining_batch`."""
        ...

    def instance_ids(self, step: int) -> np.ndarray:
        """Returns the numbers of the instances in the batch of that step, int64 [batch]."""
        ...


def open_batches(
    corpus: PathLike,
    masking: Masking,
    *,
    data_seed: int,
    batch_size: int,
) -> Batches:
    """Opens a corpus of either kind; files are mapped, and their checksums are not compared.

    Args:
      corpus: the directory that `multiberts prepare` or `multiberts import-records`
        made. Of imported instances the masks stay as they are.
      masking: how instances become sequences; the sequences are at least as long as the instances,
        with at least as many predictions as imported ones have.
      data_seed: of the order of the instances.
      batch_size: sequences per step.

    Raises:
      UserError: a file of the corpus is missing or cut short, its instances are longer, or the
        masks it was imported with are not those asked for.
    """
    imported = read_description(corpus).get("kind") == IMPORTED
    kind = ImportedBatches if imported else CorpusBatches
    return kind(corpus, masking, data_seed=data_seed, batch_size=batch_size)


class CorpusBatches:
    """Batches of prepared text; masks are made with the batch.

    Attributes: as `Batches`, and
      table: the corpus's instances.
    """

    def __init__(self, corpus: PathLike, masking: Masking, *, data_seed: int, batch_size: int):
        """Opens a prepared corpus; see `open_batches`."""
        self.corpus = Path(corpus)
        facts = read_description(corpus)
        if masking.sequence_length < facts["sequence_length"]:
            raise UserError(
                f"pretrain.sequence_length {masking.sequence_length} is shorter than the instances of "
                f"{corpus} ({facts['sequence_length']}); raise it or prepare the corpus at that length"
            )
        self.vocabulary_path = self.corpus / VOCABULARY
        self.tokenizer = Tokenizer(self.vocabulary_path)
        self.table = InstanceTable(corpus)
        self.num_instances = len(self.table)
        self.batch_size = batch_size
        self._store = TokenStore(corpus)
        self._check_counts(facts["counts"])
        self._data_seed, self._masking = data_seed, masking
        self._fresh_masks: bool = facts["fresh_masks"]
        self._instance_seed: int = facts["instance_seed"]

    def _check_counts(self, counts: Mapping[str, int]) -> None:
        """Refuses files of several corpora in one directory, which are found without checksums."""
        for name, found in {
            "instances": self.num_instances,
            "tokens": self._store.num_tokens,
            "pieces": self.tokenizer.size,
        }.items():
            if found != counts[name]:
                raise UserError(
                    f"{self.corpus} holds {found} {name}, but its description says {counts[name]}: "
                    "its files are of several corpora; prepare it again into an empty run_dir"
                )

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """As `Batches.batch`."""
        return pretraining_batch(
            self._store,
            self.table,
            self._masking,
            tokenizer=self.tokenizer,
            data_seed=self._data_seed,
            step=step,
            batch_size=self.batch_size,
            fresh_masks=self._fresh_masks,
            instance_seed=self._instance_seed,
        )

    def instance_ids(self, step: int) -> np.ndarray:
        """Returns the rows of the instance table in the batch of that step, int64 [batch]."""
        position = step * self.batch_size + np.arange(self.batch_size)
        return instance_order(position, self.num_instances, self._data_seed)
