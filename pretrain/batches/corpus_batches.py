"""Batches of a training run: a corpus's instances in an order given by a seed, masked per batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from multiberts.bert.vocabulary import VOCABULARY, Vocabulary
from multiberts.pretrain.batches.masking import Masking, instance_order, pretraining_batch
from multiberts.pretrain.corpus.description import read_description
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.token_store import TokenStore
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

# Order of held-out instances, the same for all runs, so that seeds are comparable.
EVALUATION_DATA_SEED = 0

# Tokens per job: large enough that NumPy releases the GIL most of the time.
_TOKENS_PER_JOB = 2**19


class Batches:
    """Batches of any step, a function of the corpus, the seeds and the step alone.

    Attributes:
      num_instances: number of instances; an epoch is one pass over them.
    """

    def __init__(
        self,
        corpus: PathLike,
        masking: Masking,
        *,
        data_seed: int,
        batch_size: int,
        mask_seed: int | None = None,
    ):
        """Opens a corpus by memory-mapping its files, without comparing their checksums.

        Args:
          corpus: the directory that `multiberts prepare` made.
          masking: settings that make sequences, at least as long as the instances.
          mask_seed: seed of the masks; None: the corpus's seed, or data_seed with fresh masks.
        """
        facts = read_description(corpus)
        if masking.sequence_length < facts["sequence_length"]:
            raise UserError(
                f"pretrain.sequence_length {masking.sequence_length} is shorter than the instances of "
                f"{corpus} ({facts['sequence_length']}); raise it or prepare the corpus at that length"
            )
        self.corpus = Path(corpus)
        self.vocabulary = Vocabulary.open(self.corpus / VOCABULARY)
        self.table = InstanceTable(corpus)
        self.num_instances, self.batch_size = len(self.table), batch_size
        self._store = TokenStore(corpus)
        # Counts reveal files of another corpus in the directory without reading them for checksums.
        for name, count in {
            "instances": self.num_instances,
            "tokens": self._store.num_tokens,
            "pieces": self.vocabulary.size,
        }.items():
            if count != facts["counts"][name]:
                raise UserError(
                    f"{self.corpus} holds {count} {name}, but its description says {facts['counts'][name]}: "
                    "its files are of several corpora; prepare it again into an empty run_dir"
                )
        self._masking = masking
        self._fresh_masks: bool = facts["fresh_masks"]
        self._instance_seed: int = facts["instance_seed"]
        self._data_seed, self._mask_seed = data_seed, mask_seed

    def batch(self, step: int, num_steps: int = 1) -> dict[str, np.ndarray]:
        """Returns the batch of the update that follows `step` finished ones; see `pretraining_batch`."""
        return pretraining_batch(
            self._store,
            self.table,
            self._masking,
            vocabulary=self.vocabulary,
            data_seed=self._data_seed,
            step=step,
            batch_size=self.batch_size,
            fresh_masks=self._fresh_masks,
            instance_seed=self._instance_seed,
            num_steps=num_steps,
            mask_seed=self._mask_seed,
        )

    def batches(self, steps: range) -> list[dict[str, np.ndarray]]:
        """Returns the batches of consecutive steps, with the Python overhead of one batch."""
        whole = self.batch(steps.start, len(steps))
        shape = (len(steps), self.batch_size)
        parts = {n: values.reshape(*shape, *values.shape[1:]) for n, values in whole.items()}
        return [{name: parts[name][n] for name in parts} for n in range(len(steps))]

    def instance_ids(self, step: int) -> np.ndarray:
        """Returns the indices of the instances in a step's batch, int64 [batch]."""
        position = step * self.batch_size + np.arange(self.batch_size)
        return instance_order(position, self.num_instances, self._data_seed)


def steps_per_job(threads: int, batch_size: int, sequence_length: int) -> int:
    """Returns the minimum number of steps per job when several threads make batches.

    Examples:
      >>> steps_per_job(1, 32, 512), steps_per_job(2, 32, 512)
      (1, 32)
    """
    return 1 if threads == 1 else -(-_TOKENS_PER_JOB // (batch_size * sequence_length))
