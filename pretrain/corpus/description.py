"""`corpus.json`: what a directory of pre-training instances says of itself, checksums included.

`multiberts prepare` writes one, and `multiberts import-records` another kind.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from multiberts.runs.console import ProgressBar
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_bytes

DESCRIPTION = "corpus.json"
VOCABULARY = "vocab.txt"

# The `kind` of imported instances; what `prepare` makes states none.
IMPORTED = "original TFRecords"

# Facts that every kind states, besides its own.
_FACTS = {"sequence_length": int, "fresh_masks": bool, "counts": dict, "sha256": dict}

_BYTES_AT_ONCE = 1 << 22


def read_description(corpus: PathLike) -> dict[str, Any]:
    """Returns what a corpus says of itself; its other files are not looked at.

    Args:
      corpus: directory that `prepare` or `import_records` made.

    Raises:
      UserError: there is no such directory, or its description is not whole.
    """
    path = Path(corpus) / DESCRIPTION
    cure = "give a directory that multiberts prepare has finished"
    if not path.is_file():
        what = "does not exist" if not Path(corpus).exists() else f"has no {DESCRIPTION}"
        raise UserError(f"{corpus} {what}; {cure}")
    try:
        facts = json.loads(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path} is not what prepare writes ({error}); {cure}") from error
    for name, kind in _FACTS.items():
        if not isinstance(facts, dict) or not isinstance(facts.get(name), kind):
            raise UserError(f"{path} is not what prepare writes: no {name!r}; {cure}")
    return dict(facts)


def check_corpus(corpus: PathLike) -> dict[str, Any]:
    """Compares all files of a corpus with their checksums.

    They are read from end to end: no date or size shows that a copy was damaged. That is 20 GB in ten
    seconds of one core where the disk keeps up, and what has been read is then at hand for training.

    Args:
      corpus: directory that `prepare` or `import_records` made.

    Returns:
      What its `corpus.json` says.

    Raises:
      UserError: a file is missing or changed.
    """
    facts = read_description(corpus)
    directory = Path(corpus)
    cure = "prepare the corpus again into an empty run_dir, or copy it again"
    for name in facts["sha256"]:
        if not (directory / name).is_file():
            raise UserError(f"{directory / name} is missing; {cure}")
    size = sum((directory / name).stat().st_size for name in facts["sha256"])
    with ProgressBar(
        total=size, desc=f"checking {directory.name}", unit="B", unit_scale=True,
        delay=2, leave=False,
    ) as bar:  # fmt: skip
        for name, checksum in facts["sha256"].items():
            if _sha256(directory / name, bar) != checksum:
                raise UserError(
                    f"{directory / name} does not have the checksum that {directory / DESCRIPTION} "
                    f"states: it changed after it was made; {cure}"
                )
    return facts


def _sha256(path: Path, bar: ProgressBar) -> str:
    """Computes `sha256_of_file`, and shows progress."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as handle:
            while block := handle.read(_BYTES_AT_ONCE):
                digest.update(block)
                bar.update(len(block))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; copy the corpus again") from error
    return digest.hexdigest()
