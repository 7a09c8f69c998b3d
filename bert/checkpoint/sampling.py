"""Reads a few byte ranges of local checkpoints or those on the Hub: headers, and parts of the same tensors.

Reference: safetensors, README, section "Format"; RFC 9110, section 14 (range requests).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from multiberts.bert.checkpoint.tensor_bundle import parse_index
from multiberts.runs.errors import UserError

# Moments have the shapes of weights, and must not be read as weights.
_MOMENTS = re.compile(r"adam_[mv]$|adam_optimizer|optimizer|momentum|exp_avg", re.IGNORECASE)
# Matrices spread over the depth. Two independent models agree by chance to about 1/sqrt(numbers read).
_NUM_TENSORS = 12
_NUMBERS_PER_TENSOR = 4096
# Limit for headers, enough for millions of tensors; a damaged file may state any length.
_LONGEST_HEADER = 100 << 20


@dataclass
class Source:
    """Files of one checkpoint.

    Attributes:
      label: its path, or `hub:<repository>@<revision>`.
      sizes: bytes by file name.
      hashes: {file name: hash} if the server states them; files with equal hashes are read once.
      read_range: returns `size` bytes of a file, starting at `offset`.
      num_read: bytes read so far.
    """

    label: str
    sizes: Mapping[str, int]
    hashes: Mapping[str, str]
    read_range: Callable[[str, int, int], bytes]
    num_read: int = 0

    def read(self, name: str, offset: int, size: int) -> bytes:
        content = self.read_range(name, offset, size) if size else b""  # no empty requests
        self.num_read += len(content)
        if len(content) != size:
            raise ValueError(
                f"{name} ends at byte {self.sizes[name]:,}, expected {offset + size:,}"
            )
        return content


@dataclass(frozen=True)
class StoredTensor:
    """The position of a tensor's bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    file: str
    offset: int


def folder_source(directory: Path) -> Source:
    def read(name: str, offset: int, size: int) -> bytes:
        with (directory / name).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    sizes = {
        path.name: path.stat().st_size for path in sorted(directory.iterdir()) if path.is_file()
    }
    return Source(str(directory), sizes, {}, read)


def weight_files(names: Sequence[str]) -> list[str]:
    """Returns the files of weights that can be read in ranges, which excludes pickled files."""
    return [
        name
        for name in names
        if name.endswith((".safetensors", ".index")) and not _MOMENTS.search(name)
    ]


def stored_tensors(source: Source) -> dict[str, StoredTensor]:
    """Returns a checkpoint's tensors of numbers by name, from the headers of its files."""
    tensors: dict[str, StoredTensor] = {}
    for file in weight_files([*source.sizes]):
        read = _in_bundle if file.endswith(".index") else _in_safetensors
        tensors |= read(source, file)
    for name, tensor in tensors.items():
        end = tensor.offset + math.prod(tensor.shape) * tensor.dtype.itemsize
        size = source.sizes.get(tensor.file)
        if size is None or not 0 <= tensor.offset <= end <= size:
            there = "is missing" if size is None else f"has {size:,}"
            raise ValueError(f"{name} ends at byte {end:,} of {tensor.file}, which {there}")
    return tensors


def _in_safetensors(source: Source, file: str) -> dict[str, StoredTensor]:
    import ml_dtypes

    length = int.from_bytes(source.read(file, 0, 8), "little")
    if not 2 <= length <= min(source.sizes[file] - 8, _LONGEST_HEADER):
        raise ValueError(f"{file} states a header of {length:,} bytes, which it does not have")
    content = source.read(file, 8, length)
    types = {
        "F64": np.dtype("<f8"),
        "F32": np.dtype("<f4"),
        "F16": np.dtype("<f2"),
        "BF16": np.dtype(ml_dtypes.bfloat16),
    }
    try:
        header = json.loads(content)
        return {
            name: StoredTensor(
                types[entry["dtype"]],
                tuple(int(size) for size in entry["shape"]),
                file,
                8 + length + int(entry["data_offsets"][0]),
            )
            for name, entry in header.items()
            if name != "__metadata__" and entry["dtype"] in types
        }
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the header of {file} is not that of safetensors") from error


def _in_bundle(source: Source, file: str) -> dict[str, StoredTensor]:
    entries, num_shards = parse_index(source.read(file, 0, source.sizes[file]))
    prefix = file.removesuffix(".index")
    return {
        name: StoredTensor(
            entry.dtype,
            entry.shape,
            f"{prefix}.data-{entry.shard:05d}-of-{num_shards:05d}",
            entry.offset,
        )
        for name, entry in entries.items()
        if entry.dtype is not None and entry.dtype.kind not in "iu"
    }


def has_optimizer_state(source: Source, tensors: Mapping[str, StoredTensor]) -> bool:
    """Returns whether the files include an optimiser's moments, next to the weights or among them."""
    return any(_MOMENTS.search(name) for name in (*source.sizes, *tensors))


def shared_matrices(checkpoints: Mapping[str, Mapping[str, StoredTensor]]) -> list[str]:
    """Returns names of matrices to read, which have the same shape in all checkpoints.

    Vectors are left out: layer normalisation starts at the same values in every model.

    Args:
      checkpoints: tensors by name, by label.
    """
    first_label, first = next(iter(checkpoints.items()))
    common = {name: tensor.shape for name, tensor in first.items() if len(tensor.shape) > 1}
    common = {name: shape for name, shape in common.items() if not _MOMENTS.search(name)}
    for label, tensors in checkpoints.items():
        common = {
            name: shape
            for name, shape in common.items()
            if name in tensors and tensors[name].shape == shape
        }
        if not common:
            raise UserError(
                f"{first_label} and {label} have no matrix of the same name and shape; audit models of "
                "different sizes or layouts apart"
            )
    names = sorted(common)
    chosen = np.linspace(0, len(names) - 1, min(_NUM_TENSORS, len(names))).round().astype(int)
    return [names[index] for index in chosen]


def sample(
    source: Source, tensors: Mapping[str, StoredTensor], names: Sequence[str]
) -> list[np.ndarray]:
    """Reads the middle of each tensor: an array of at most 4,096 numbers per name.

    The first rows of word embeddings are unsuitable, as they belong to unused words.
    """
    arrays = []
    for name in names:
        tensor = tensors[name]
        size = math.prod(tensor.shape)
        count = min(size, _NUMBERS_PER_TENSOR)
        width = tensor.dtype.itemsize
        content = source.read(
            tensor.file, tensor.offset + (size - count) // 2 * width, count * width
        )
        arrays.append(np.frombuffer(content, tensor.dtype))
    return arrays
