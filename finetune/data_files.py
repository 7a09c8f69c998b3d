"""Files of a task's data: splits in a folder or prepared by TensorFlow Datasets, and tables of new examples.

TensorFlow is imported only when a dataset is opened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.runs.dataset_builder import open_builder
from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import PathLike
from multiberts.runs.identity import Input
from multiberts.runs.parameters import leaves
from multiberts.runs.tables import TABLE_SUFFIXES, has_tagged_words, is_table

# Suffix of files with one text per line, which are not tables.
LINES_SUFFIX = ".txt"
# Marks a name in TensorFlow Datasets given instead of a file.
DATASET_PREFIX = "tfds:"
# Names of a split in TensorFlow Datasets by our name; several, as data sets differ.
SPLITS = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev"),
    "dev_matched": ("validation_matched",),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test",),
    "test_matched": ("test_matched",),
    "test_mismatched": ("test_mismatched",),
}


def files_of_split(
    folder: PathLike, split: str, suffixes: Sequence[str] = TABLE_SUFFIXES
) -> list[Path]:
    """Returns the files of a split in a folder, plain or `.gz`, and folders saved by `datasets`.

    They have our name of the split, or that of TensorFlow Datasets and Hugging Face (`validation`).
    """
    names = _names_of_split(split)
    endings = [f"{suffix}{packed}" for suffix in suffixes for packed in ("", ".gz")]
    files = [Path(folder) / f"{name}{ending}" for name in names for ending in endings]
    folders = [Path(folder) / name for name in names if suffixes == TABLE_SUFFIXES]
    paths = [*filter(Path.is_file, files), *filter(Path.is_dir, folders)]
    plain = split.removesuffix("_matched")
    return paths if paths or plain == split else files_of_split(folder, plain, suffixes)


def _names_of_split(split: str) -> list[str]:
    return [*dict.fromkeys((split, *SPLITS.get(split, ())))]


def split_file(folder: PathLike, split: str, suffixes: Sequence[str] = TABLE_SUFFIXES) -> Path:
    """Returns the single file of `files_of_split`; refuses none or several."""
    paths = files_of_split(folder, split, suffixes)
    if len(paths) == 1:
        return paths[0]
    if paths:
        problem = f"has {' and '.join(path.name for path in paths)} for the split {split}; keep one"
    else:
        is_table = suffixes == TABLE_SUFFIXES
        forms = f"{', '.join(suffixes)}{' or a folder of `datasets`' * is_table}"
        names = " or ".join(_names_of_split(split))
        problem = f"has no {'table' if is_table else 'file'} named {names} ({forms}); give the task's folder "
        problem += "as data_dir"
    raise UserError(f"{folder} {problem}, or name the file in finetune.train_files and dev_files")


def refuse_repeated_files(inputs: Mapping[str, Any]) -> None:
    """Refuses files, opened, with the same content among train files and dev files."""
    first: dict[str, tuple[str, Input]] = {}
    for name in ("train_files", "dev_files"):
        for each in leaves(inputs.get(name, [])):
            first_name, other = first.setdefault(each.identity, (name, each))
            if first_name != name:
                raise UserError(
                    f"{each.where} of the dev files holds the same as {other.where} of the train files, so "
                    "scores would be on training examples; give other dev files (finetune.evaluation_files "
                    "takes training examples)"
                )
            if other is not each:
                raise UserError(
                    f"finetune.{name} has {each.where} and {other.where}, which hold the same; leave one of "
                    "them out"
                )


@dataclasses.dataclass(frozen=True)
class DatasetSplit:
    """A prepared split.

    Attributes:
      name: dataset, version and split for errors: `glue/rte/2.0.0:train`.
      files: records, features and class names, which determine the examples.
      features: descriptions of the features by name.
    """

    name: str
    files: tuple[Path, ...]
    features: dict[str, Any]
    builder: Any
    split: str

    def label_names(self, feature: str) -> list[str] | None:
        """Returns the class names of a feature or a sequence feature; None if it has none."""
        description = self.features[feature]
        return getattr(getattr(description, "feature", description), "names", None)

    def require(self, needed: Sequence[str], cure: str) -> None:
        """Refuses a dataset without the needed features."""
        missing = [name for name in needed if name not in self.features]
        if missing:
            raise UserError(
                f"dataset {self.name} has the features {listed(self.features)}, expected "
                f"{', '.join(needed)} (lacking {', '.join(missing)}); {cure}"
            )

    def examples(self, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yields the wanted features of the examples as NumPy values and bytes, in file order."""
        import tensorflow_datasets as tfds

        dataset = self.builder.as_dataset(
            split=self.split,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(dict.fromkeys(wanted, True)),
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
        yield from tfds.as_numpy(dataset)


def open_split(dataset: str, splits: Sequence[str], datasets_dir: str | None) -> DatasetSplit:
    """Opens a split; downloads and prepares it first if necessary.

    Args:
      dataset: a name for `tensorflow_datasets.builder`, such as `glue/rte`.
      splits: names of the split; the first that exists is used.
      datasets_dir: folder of prepared datasets; None: the default of TensorFlow Datasets.
    """
    builder = open_builder(dataset, datasets_dir, parameter="finetune.data_dir")
    there = builder.info.splits
    split = next((name for name in splits if name in there), None)
    if split is None:
        raise UserError(
            f"dataset {dataset} has no split {' or '.join(splits)}, only {listed(there)}; choose "
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


def has_text_lines(path: PathLike, *, of_words: bool) -> bool:
    """Returns whether a file has one text per line; with `of_words`, words and tags are a table."""
    is_txt = Path(path).name.removesuffix(".gz").endswith(LINES_SUFFIX)
    return is_txt and not (of_words and has_tagged_words(path))


def check_form(path: PathLike) -> None:
    """Refuses a file whose name is not that of a table."""
    if not is_table(path):
        raise UserError(
            f"{path} is of no known form; give a file whose name ends in {', '.join(TABLE_SUFFIXES)}, or "
            f"{LINES_SUFFIX} with one text per line"
        )
