"""Prepared datasets, as TensorFlow Datasets stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def official_examples(name: str, *arguments: Any) -> list[tuple[Any, Any]]:
    """Returns what the library makes of files of the release, for its dataset `name/config`."""
    import tensorflow_datasets as tfds

    return [*tfds.builder(name, data_dir="none", try_gcs=False)._generate_examples(*arguments)]


def store(
    folder: Path,
    name: str,
    splits: Mapping[str, Sequence[Any]],
    features: Mapping[str, Any] | None = None,
) -> None:
    """Stores a dataset: rows with these features, or examples of the library's own `name/config`."""
    import tensorflow_datasets as tfds

    if features is None:
        builder = tfds.builder(name, data_dir="none", try_gcs=False)
        given = {"version": str(builder.version), "features": builder.info.features}
    else:
        given = {"version": "1.0.0", "features": tfds.features.FeaturesDict(features)}
        given["disable_shuffling"] = True
        splits = {split: [*enumerate(rows)] for split, rows in splits.items()}
    name, _, config = name.partition("/")
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name, config=config or None, data_dir=str(folder), split_datasets=splits, **given
    )
