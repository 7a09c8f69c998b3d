"""Files of a task's data: splits in a folder or prepared by TensorFlow Datasets, and tables of new examples.

TensorFlow is imported when a dataset is opened, and not before.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.runs.dataset_builder import open_builder
from multiberts.runs.directory import fingerprint
from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import PathLike
from multiberts.runs.tables import TABLE_SUFFIXES, has_tagged_words, is_table

# Lines of text, and not a table.
LINES_SUFFIX = ".txt"
# In place of a file: a name in TensorFlow Datasets.
DATASET_PREFIX = "tfds:"
# The names of a split in TensorFlow Datasets, by our name; several where data sets differ.
SPLITS = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev"),
    "dev_matched": ("validation_matched",),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test",),
    "test_matched": ("test_matched",),
    "test_mismatched": ("test_mismatched",),
}


@dataclasses.dataclass(frozen=True)
class FileContent:
    """A file, equal to any other of the same bytes; a key for caches.

    Attributes:
      path: where it lies; for reading and for errors.
      checksum: SHA-256 of its bytes.
    """

    path: Path = dataclasses.field(compare=False)
    checksum: str

    @classmethod
    def of(cls, path: PathLike) -> FileContent:
        return cls(Path(path), fingerprint(path))


def files_of_split(
    folder: PathLike, split: str, suffixes: Sequence[str] = TABLE_SUFFIXES
) -> list[Path]:
    """Returns the files of a split in a folder, plain or `.gz`, and folders that `datasets` saved.

    They are named as the split here, or as TensorFlow Datasets and Hugging Face name it (`validation`).
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
    """Returns the only one of `files_of_split`."""
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


def refuse_repeated_files(inputs: Mapping[str, Path | list[Path]]) -> None:
    """Refuses the same content twice among the files to train on and those of the set `dev`."""
    files: list[tuple[str, Path]] = []
    for name in ("train_files", "dev_files"):
        paths = inputs.get(name, [])
        files += [(name, path) for path in (paths if isinstance(paths, list) else [paths])]
    first: dict[str, tuple[str, Path]] = {}
    sizes = Counter(path.stat().st_size for _, path in files)
    for name, path in files:
        if sizes[path.stat().st_size] == 1:
            continue  # nothing else can hold the same, so large files are not read for this
        first_name, first_path = first.setdefault(fingerprint(path), (name, path))
        if first_name != name:
            raise UserError(
                f"{path} of the dev files holds the same as {first_path} of the train files, so that scores "
                "would be of examples seen in training; give other dev files (finetune.evaluation_files "
                "takes training examples)"
            )
        if first_path is not path:
            raise UserError(
                f"finetune.{name} has {path} and {first_path}, which hold the same; leave one of them out"
            )


@dataclasses.dataclass(frozen=True)
class DatasetSplit:
    """A prepared split.

    Attributes:
      name: the dataset with its version and split, for errors: `glue/rte/2.0.0:train`.
      files: the files that determine the examples: records, features and names of the classes.
      features: the features' descriptions by name.
    """

    name: str
    files: tuple[Path, ...]
    features: dict[str, Any]
    builder: Any
    split: str

    def label_names(self, feature: str) -> list[str] | None:
        """Returns the names of a feature's classes, also of a sequence of them; None if it has none."""
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
        """Yields the wanted features of the examples as NumPy values and bytes, in the files' order."""
        import tensorflow_datasets as tfds

        dataset = self.builder.as_dataset(
            split=self.split,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(dict.fromkeys(wanted, True)),
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
        yield from tfds.as_numpy(dataset)


def open_split(dataset: str, splits: Sequence[str], datasets_dir: str | None) -> DatasetSplit:
    """Opens a split; if it is not prepared on this machine, it is downloaded and prepared first.

    Args:
      dataset: a name as `tensorflow_datasets.builder` takes it, such as `glue/rte`.
      splits: names of the split; the first one that exists is taken.
      datasets_dir: the folder of prepared datasets; None: the default of TensorFlow Datasets.
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
    """Returns whether a file has one text per line; `of_words`: words and tags in columns are a table."""
    is_txt = Path(path).name.removesuffix(".gz").endswith(LINES_SUFFIX)
    return is_txt and not (of_words and has_tagged_words(path))


def check_form(path: PathLike) -> None:
    """Refuses a file whose name is not that of a table."""
    if not is_table(path):
        raise UserError(
            f"{path} is of no known form; give a file whose name ends in {', '.join(TABLE_SUFFIXES)}, or "
            f"{LINES_SUFFIX} with one text per line"
        )
