"""Files of a task's data: splits in a folder or prepared by TensorFlow Datasets, and tables of new examples.

TensorFlow is imported when a dataset is opened, and not before.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.bert.tokenization import Tokenizer, lower_cases, vocabulary_bytes
from multiberts.runs.dataset_builder import open_builder
from multiberts.runs.directory import fingerprint
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.tables import TABLE_SUFFIXES, TableRow, is_table, read_rows

# Lines of text, and not a table.
LINES_SUFFIX = ".txt"
# In place of a file: a name in TensorFlow Datasets.
DATASET_PREFIX = "tfds:"
# The names of a split in TensorFlow Datasets, by our name; several where data sets differ.
SPLITS = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev"),
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


@dataclasses.dataclass(frozen=True)
class Vocabulary(FileContent):
    """A checkpoint's vocabulary, the checksum of its `vocab.txt`, and whether text is lower-cased for it."""

    lower_case: bool

    @classmethod
    def of(cls, path: PathLike) -> Vocabulary:
        checksum = hashlib.sha256(vocabulary_bytes(path)).hexdigest()
        return cls(Path(path), checksum, lower_cases(path))


@functools.lru_cache(maxsize=2)
def tokenizer_of(vocabulary: FileContent) -> Tokenizer:
    return Tokenizer(vocabulary.path)


def split_file(data_dir: PathLike, split: str, suffix: str = ".tsv") -> Path:
    """Returns the file of a split in a folder: `<split><suffix>`, or the same with `.gz` appended."""
    found = existing_split_file(data_dir, split, suffix)
    if found is None:
        plain = Path(data_dir) / (split + suffix)
        raise UserError(
            f"{plain} does not exist, nor {plain.name}.gz; give the folder with the task's {suffix} "
            "files as data_dir"
        )
    return found


def existing_split_file(data_dir: PathLike, split: str, suffix: str = ".tsv") -> Path | None:
    """Returns the same as `split_file`, or None if there is no such file."""
    plain = Path(data_dir) / (split + suffix)
    candidates = (plain, plain.with_name(plain.name + ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def table_of_split(folder: PathLike, split: str) -> Path:
    """Returns the table of a split in a folder, in any form that `runs.tables` reads.

    It is named as the split here, or as TensorFlow Datasets and Hugging Face name it (`validation`): a
    file, or a folder that `datasets` saved.
    """
    names = dict.fromkeys((split, *SPLITS.get(split, ())))
    endings = [f"{suffix}{packed}" for suffix in TABLE_SUFFIXES for packed in ("", ".gz")]
    files = [Path(folder) / f"{name}{ending}" for name in names for ending in endings]
    folders = [Path(folder) / name for name in names if (Path(folder) / name).is_dir()]
    found = [*filter(Path.is_file, files), *folders]
    if len(found) == 1:
        return found[0]
    if found:
        problem = f"has {' and '.join(path.name for path in found)} for the split {split}; keep one"
    else:
        problem = (
            f"has no table named {' or '.join(names)} ({', '.join(TABLE_SUFFIXES)} or a folder of "
            "`datasets`); give the task's folder as data_dir"
        )
    raise UserError(f"{folder} {problem}, or name the file in finetune.train_files and dev_files")


def refuse_repeated_files(inputs: Mapping[str, Path | list[Path]]) -> None:
    """Refuses the same content twice among the files to train on and those of the set `dev`."""
    first: dict[str, tuple[str, Path]] = {}
    sizes = Counter(path.stat().st_size for _, path in _trained_and_predicted(inputs))
    for name, path in _trained_and_predicted(inputs):
        if sizes[path.stat().st_size] == 1:
            continue  # nothing else can hold the same, so large files are not read for this
        other_name, other = first.setdefault(fingerprint(path), (name, path))
        if other_name != name:
            raise UserError(
                f"{path} of the dev files holds the same as {other} of the train files, so that scores "
                "would be of examples seen in training; give other dev files (finetune.evaluation_files "
                "takes training examples)"
            )
        if other is not path:
            raise UserError(
                f"finetune.{name} has {path} and {other}, which hold the same; leave one of them out"
            )


def _trained_and_predicted(inputs: Mapping[str, Path | list[Path]]) -> Iterator[tuple[str, Path]]:
    for name in ("train_files", "dev_files"):
        paths = inputs.get(name, [])
        yield from ((name, path) for path in (paths if isinstance(paths, list) else [paths]))


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
        given = self.features[feature]
        return getattr(getattr(given, "feature", given), "names", None)

    def require(self, needed: Sequence[str], cure: str) -> None:
        """Refuses a dataset without the needed features."""
        missing = [name for name in needed if name not in self.features]
        if missing:
            raise UserError(
                f"dataset {self.name} has the features {', '.join(self.features)}, expected "
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


def read_new_rows(
    path: PathLike,
    columns: Sequence[str],
    *,
    values: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> list[TableRow]:
    r"""Reads a table with named columns in any form of `runs.tables`.

    Args:
      columns: those with text that must be there.
      values: further ones that must be there, which may hold numbers or lists.
      optional: further ones, which need not be there.

    Example:
      >>> path = getfixture("tmp_path") / "new.jsonl"
      >>> _ = path.write_text('{"text": "A cake.", "stars": 4}\n')
      >>> [(row["text"], row["stars"]) for row in read_new_rows(path, ["text"], optional=["stars"])]
      [('A cake.', '4')]
    """
    check_form(path)
    cure = "correct the file"
    return list(read_rows(path, columns, values=values, optional=optional, cure=cure))


def check_form(path: PathLike) -> None:
    """Refuses a file whose name is not that of a table."""
    if not is_table(path):
        raise UserError(
            f"{path} is of no known form; give a file whose name ends in .tsv, .csv, .jsonl or .parquet, "
            f"or {LINES_SUFFIX} with one text per line"
        )
