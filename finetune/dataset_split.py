"""One split of a TensorFlow dataset: its files, what it calls its labels, and its examples.

TensorFlow is imported when a dataset is opened, and not before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from multiberts.runs.dataset_builder import open_builder
from multiberts.runs.errors import UserError


@dataclasses.dataclass(frozen=True)
class DatasetSplit:
    """A prepared split.

    Attributes:
      name: the dataset with its version and split, for errors: `glue/rte/2.0.0:train`.
      files: what decides the examples: the record files, the features and the names of the classes.
      features: the features' descriptions by name.
      builder: gives the examples.
      split: the split's name.
    """

    name: str
    files: tuple[Path, ...]
    features: dict[str, Any]
    builder: Any
    split: str

    def label_names(self, feature: str) -> list[str] | None:
        """The names of a feature's classes; None where it has no classes."""
        return getattr(self.features[feature], "names", None)

    def examples(self, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The examples as NumPy values and bytes, in the order of the files.

        Args:
          wanted: names of features; the others are not decoded.
        """
        import tensorflow_datasets as tfds

        dataset = self.builder.as_dataset(
            split=self.split,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(dict.fromkeys(wanted, True)),
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
        yield from tfds.as_numpy(dataset)


def open_split(dataset: str, splits: Sequence[str], datasets_dir: str | None) -> DatasetSplit:
    """Opens a split; what has not been prepared on this machine is downloaded and prepared first.

    Args:
      dataset: a name as `tensorflow_datasets.builder` takes it, such as `glue/rte`.
      splits: names of the split; the first one that is there is taken.
      datasets_dir: where prepared datasets lie; None: where TensorFlow Datasets keeps them.

    Raises:
      UserError: there is no such dataset or split, or it cannot be prepared here.
    """
    builder = open_builder(dataset, datasets_dir, parameter="finetune.data_dir")
    there = builder.info.splits
    split = next((name for name in splits if name in there), None)
    if split is None:
        raise UserError(
            f"dataset {dataset} has no split {' or '.join(splits)}, only {', '.join(there)}; choose "
            "another dataset"
        )
    folder = Path(builder.data_path)
    described = sorted([folder / "features.json", *folder.glob("*.labels.txt")])
    return DatasetSplit(
        name=f"{builder.info.full_name}:{split}",
        files=(*(Path(path) for path in there[split].filepaths), *described),
        features=dict(builder.info.features),
        builder=builder,
        split=split,
    )
