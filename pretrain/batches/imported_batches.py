"""Batches of instances that were imported from the original's TFRecords, with their masks.

They lie in flat NumPy files, memory-mapped, so that batches of them are addressed by (data_seed, step)
as those of a corpus are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from multiberts.bert.tokenization import Tokenizer
from multiberts.pretrain.batches.masking import Masking, instance_order, number_of_predictions
from multiberts.pretrain.batches.original_format import STORED, feature_width
from multiberts.pretrain.corpus.description import VOCABULARY, read_description
from multiberts.pretrain.corpus.token_store import open_array
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

# Of the number of masks that a probability gives, what imported ones may be off by: whole words do not
# fill it to the last piece.
_TOLERANCE = 0.1
_INSTANCES_LOOKED_AT = 1000


def feature_file(name: str) -> str:
    """Returns the name of the file that holds a feature of imported instances."""
    return f"{name}.npy"


class ImportedBatches:
    """Batches of imported instances, from the order's seed and the step alone.

    Attributes: as `pretrain.batches.corpus_batches.Batches`, and
      features: array [instances, width of the records] by name, as `STORED` has them.
    """

    def __init__(self, corpus: PathLike, masking: Masking, *, data_seed: int, batch_size: int):
        """Opens imported instances; see `pretrain.batches.corpus_batches.open_batches`."""
        self.corpus = Path(corpus)
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
        self.vocabulary_path = self.corpus / VOCABULARY
        self.tokenizer = Tokenizer(self.vocabulary_path)
        self.batch_size = batch_size
        self.num_instances: int = facts["counts"]["instances"]
        self.features = imported_features(corpus)
        self._data_seed = data_seed
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

    def instance_ids(self, step: int) -> np.ndarray:
        """Returns the instances in the batch of that step, int64 [batch]."""
        position = step * self.batch_size + np.arange(self.batch_size)
        return instance_order(position, self.num_instances, self._data_seed)

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """Returns the batch of a step, as `pretrain.batches.masking.pretraining_batch` does."""
        instance = self.instance_ids(step)
        batch = {}
        for name, array in self.features.items():
            kind = np.float32 if name == "masked_lm_weights" else np.int32
            values = np.zeros((self.batch_size, self._widths[name]), kind)
            values[:, : array.shape[1]] = array[instance]
            batch[name] = values[:, 0] if name == "next_sentence_labels" else values
        return batch


def imported_features(corpus: PathLike) -> dict[str, np.ndarray]:
    """Memory-maps imported instances.

    Args:
      corpus: the directory that `multiberts import-records` made.

    Returns:
      For each name of `STORED` an array [instances, width of the records].

    Raises:
      UserError: a file is missing, cut short, or does not belong to the others.
    """
    facts = read_description(corpus)
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
