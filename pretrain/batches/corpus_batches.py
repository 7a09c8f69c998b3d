"""Batches of a training run: prepared or imported instances, read in one order.

Masks of prepared text are made with the batch. Instances that were imported from the original's TFRecords
keep theirs; they lie in flat NumPy files, one per feature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.tokenization import Tokenizer
from multiberts.pretrain.batches.masking import (
    Masking,
    instance_order,
    number_of_predictions,
    pretraining_batch,
)
from multiberts.pretrain.corpus.description import IMPORTED, VOCABULARY, read_description
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.token_store import TokenStore, open_array
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

# The order in which held-out instances are taken: the same for all runs, so that seeds compare.
EVALUATION_DATA_SEED = 0

# Type of each feature once it is imported, by its width: the sequence, the predictions, or one.
_SEQUENCE = {"input_ids": np.uint16, "input_mask": np.uint8, "segment_ids": np.uint8}
_PREDICTIONS = {
    "masked_lm_positions": np.uint16,
    "masked_lm_ids": np.uint16,
    "masked_lm_weights": np.float32,
}
STORED = _SEQUENCE | _PREDICTIONS | {"next_sentence_labels": np.uint8}

# Tolerance of imported masks around the number that a probability gives: whole words do not
# fill it to the last piece.
_TOLERANCE = 0.1
_INSTANCES_LOOKED_AT = 1000

# Tokens per job; large enough that NumPy releases the GIL most of the time.
_TOKENS_PER_JOB = 2**19


class Batches(ABC):
    """Batches of any step, from the corpus, the order's seed and the step alone.

    Attributes:
      corpus: its directory.
      vocabulary_path: its `vocab.txt`.
      tokenizer: of that vocabulary.
      num_instances: how many instances it has; an epoch is one walk over them.
      batch_size: sequences per step.
    """

    def __init__(self, corpus: PathLike, *, num_instances: int, data_seed: int, batch_size: int):
        self.corpus = Path(corpus)
        self.vocabulary_path = self.corpus / VOCABULARY
        self.tokenizer = Tokenizer(self.vocabulary_path)
        self.num_instances, self.batch_size = num_instances, batch_size
        self._data_seed = data_seed

    @abstractmethod
    def batch(self, step: int, num_steps: int = 1) -> dict[str, np.ndarray]:
        """Returns the batch of the update that follows `step` finished ones; see `pretraining_batch`."""

    def batches(self, steps: range) -> list[dict[str, np.ndarray]]:
        """Returns the batch of each of some consecutive steps; Python costs no more than for one."""
        whole = self.batch(steps.start, len(steps))
        shape = (len(steps), self.batch_size)
        parts = {n: values.reshape(*shape, *values.shape[1:]) for n, values in whole.items()}
        return [{name: parts[name][n] for name in parts} for n in range(len(steps))]

    def instance_ids(self, step: int, num_steps: int = 1) -> np.ndarray:
        """Returns the numbers of the instances in the batch of that step, int64 [batch]."""
        position = step * self.batch_size + np.arange(num_steps * self.batch_size)
        return instance_order(position, self.num_instances, self._data_seed)


def open_batches(
    corpus: PathLike,
    masking: Masking,
    *,
    data_seed: int,
    batch_size: int,
    mask_seed: int | None = None,
) -> Batches:
    """Opens a corpus of either kind; files are mapped, and their checksums are not compared.

    Args:
      corpus: the directory that `multiberts prepare` or `multiberts import-records`
        made. Of imported instances the masks stay as they are.
      masking: how instances become sequences; the sequences are at least as long as the instances,
        with at least as many predictions as imported ones have.
      data_seed: of the order of the instances.
      batch_size: sequences per step.
      mask_seed: of the masks; None: that of the corpus, or data_seed where it has fresh masks.

    Raises:
      UserError: a file of the corpus is missing or cut short, its instances are longer, or the
        masks it was imported with are not those asked for.
    """
    if read_description(corpus).get("kind") != IMPORTED:
        return CorpusBatches(
            corpus, masking, data_seed=data_seed, batch_size=batch_size, mask_seed=mask_seed
        )
    if mask_seed is not None:
        raise UserError(
            f"pretrain.mask_seed is {mask_seed}, but {corpus} was imported with its masks, which stay as "
            "they are; leave it out"
        )
    return ImportedBatches(corpus, masking, data_seed=data_seed, batch_size=batch_size)


def steps_per_job(threads: int, batch_size: int, sequence_length: int) -> int:
    """Returns of how many steps a thread makes the batches at a time, at least, where several do.

    Args:
      threads: that make batches.
      batch_size: sequences per step.
      sequence_length: tokens in a sequence.

    Example:
      >>> steps_per_job(1, 32, 512), steps_per_job(2, 32, 512)
      (1, 32)
    """
    return 1 if threads == 1 else -(-_TOKENS_PER_JOB // (batch_size * sequence_length))


class CorpusBatches(Batches):
    """Batches of prepared text; masks are made with the batch.

    Attributes: as `Batches`, and
      table: the corpus's instances.
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
        """Opens a prepared corpus; see `open_batches`."""
        facts = read_description(corpus)
        if masking.sequence_length < facts["sequence_length"]:
            raise UserError(
                f"pretrain.sequence_length {masking.sequence_length} is shorter than the instances of "
                f"{corpus} ({facts['sequence_length']}); raise it or prepare the corpus at that length"
            )
        self.table = InstanceTable(corpus)
        super().__init__(
            corpus, num_instances=len(self.table), data_seed=data_seed, batch_size=batch_size
        )
        self._store = TokenStore(corpus)
        self._check_counts(facts["counts"])
        self._masking = masking
        self._fresh_masks: bool = facts["fresh_masks"]
        self._instance_seed: int = facts["instance_seed"]
        self._mask_seed = mask_seed

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

    def batch(self, step: int, num_steps: int = 1) -> dict[str, np.ndarray]:
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
            num_steps=num_steps,
            mask_seed=self._mask_seed,
        )


class ImportedBatches(Batches):
    """Batches of imported instances.

    Attributes: as `Batches`, and
      features: array [instances, width of the records] by name, as `STORED` has them.
    """

    def __init__(self, corpus: PathLike, masking: Masking, *, data_seed: int, batch_size: int):
        """Opens imported instances; see `open_batches`."""
        facts = read_description(corpus)
        length, predictions = facts["sequence_length"], facts["max_predictions_per_sequence"]
        most = masking.max_predictions_per_sequence
        if masking.sequence_length < length or most < predictions:
            raise UserError(
                f"{corpus} holds sequences of {length} tokens with up to {predictions} predictions, "
                f"more than pretrain.sequence_length {masking.sequence_length} and "
                f"pretrain.max_predictions_per_sequence {most}; raise them"
            )
        if masking.whole_word_masks:
            raise UserError(
                f"pretrain.whole_word_masks is True, but {corpus} was imported with its masks, which "
                "stay as they are; set it to False"
            )
        super().__init__(
            corpus,
            num_instances=facts["counts"]["instances"],
            data_seed=data_seed,
            batch_size=batch_size,
        )
        self.features = imported_features(corpus, facts)
        self._widths = {name: feature_width(name, masking.sequence_length, most) for name in STORED}
        self._check_masks(masking.masked_lm_probability, most)

    def _check_masks(self, masked_lm_probability: float, most: int) -> None:
        """Refuses numbers of masks other than these instances have."""
        length, found = (
            self.features[name][:_INSTANCES_LOOKED_AT].sum(axis=1, dtype=np.int64)
            for name in ("input_mask", "masked_lm_weights")
        )
        expected = np.minimum(number_of_predictions(length, masked_lm_probability), most)
        if abs(found.sum() - expected.sum()) > _TOLERANCE * expected.sum():
            raise UserError(
                f"{self.corpus} was imported with its masks, {found.mean():.1f} per sequence in its "
                f"first {len(found)}, but pretrain.masked_lm_probability {masked_lm_probability} and "
                f"pretrain.max_predictions_per_sequence {most} mean {expected.mean():.1f}; set them "
                "to what the records were made with"
            )

    def batch(self, step: int, num_steps: int = 1) -> dict[str, np.ndarray]:
        """As `Batches.batch`."""
        instance = self.instance_ids(step, num_steps)
        batch = {}
        for name, array in self.features.items():
            kind = np.float32 if name == "masked_lm_weights" else np.int32
            values = np.zeros((len(instance), self._widths[name]), kind)
            values[:, : array.shape[1]] = array[instance]
            batch[name] = values[:, 0] if name == "next_sentence_labels" else values
        return batch


def feature_file(name: str) -> str:
    """Returns the name of the file that holds a feature of imported instances."""
    return f"{name}.npy"


def feature_width(name: str, sequence_length: int, predictions: int) -> int:
    """Returns how many numbers a feature of `STORED` has in records of those widths."""
    return sequence_length if name in _SEQUENCE else predictions if name in _PREDICTIONS else 1


def imported_features(corpus: PathLike, facts: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Memory-maps imported instances.

    Args:
      corpus: the directory that `multiberts import-records` made.
      facts: its `corpus.json`.

    Returns:
      For each name of `STORED` an array [instances, width of the records].

    Raises:
      UserError: a file is missing, cut short, or does not belong to the others.
    """
    features = {}
    for name, kind in STORED.items():
        path = Path(corpus) / feature_file(name)
        array = open_array(path, np.dtype(kind))
        width = feature_width(name, facts["sequence_length"], facts["max_predictions_per_sequence"])
        if array.size != facts["counts"]["instances"] * width:
            raise UserError(
                f"{path} has {array.size} numbers, expected {width} for each of "
                f"{facts['counts']['instances']} instances; import the records again into an empty "
                "run_dir"
            )
        features[name] = array.reshape(-1, width)
    return features
