"""`corpus.json`: the description of a directory of pre-training instances.

`multiberts prepare` writes it. DONE lists the checksums of all files, this one included; its own checksum
identifies the corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.runs.console import ProgressBar
from multiberts.runs.directory import DONE, RecordedFile, read_done
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, parse_json_fields, read_bytes

DESCRIPTION = "corpus.json"

# Facts that other stages need.
_FACTS = {"sequence_length": int, "fresh_masks": bool, "counts": dict, "sha256": dict}

_BYTES_AT_ONCE = 1 << 22
_CURE = "prepare the corpus again into an empty run_dir, or copy it again"


def read_description(corpus: PathLike) -> dict[str, Any]:
    """Returns the description of a corpus after verifying its checksum; other files are not read."""
    path = Path(corpus) / DESCRIPTION
    cure = "give a directory that multiberts prepare has finished"
    for name in (DESCRIPTION, DONE):
        if not (Path(corpus) / name).is_file():
            fault = "does not exist" if not Path(corpus).exists() else f"has no {name}"
            raise UserError(f"{corpus} {fault}; {cure}")
    content = read_bytes(path)
    _check_checksum(path, read_done(corpus), hashlib.sha256(content).hexdigest())
    return parse_json_fields(content, str(path), _FACTS, cure)


def check_corpus(corpus: PathLike) -> dict[str, Any]:
    """Compares all files of a corpus with the checksums in its DONE marker.

    The files are read completely, because dates and sizes do not reveal a damaged copy. That is 20 GB in
    ten seconds of one core where the disk keeps up, and what has been read is then at hand for training.

    Returns:
      The content of `corpus.json`.
    """
    facts = read_description(corpus)
    outputs = read_done(corpus)
    paths = [Path(corpus) / name for name in outputs]
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path} is missing; {_CURE}")
    with ProgressBar(
        total=sum(path.stat().st_size for path in paths), desc=f"checking {Path(corpus).name}",
        unit="B", unit_scale=True, delay=2, leave=False,
    ) as bar:  # fmt: skip
        for path in paths:
            digest = hashlib.sha256()
            try:
                with open(path, "rb") as handle:
                    while block := handle.read(_BYTES_AT_ONCE):
                        digest.update(block)
                        bar.update(len(block))
            except OSError as error:
                raise UserError(
                    f"cannot read {path}: {error.strerror}; copy the corpus again"
                ) from error
            _check_checksum(path, outputs, digest.hexdigest())
    return facts


def _check_checksum(path: Path, outputs: Mapping[str, RecordedFile], checksum: str) -> None:
    if path.name not in outputs or outputs[path.name]["sha256"] != checksum:
        raise UserError(
            f"{path} does not have the checksum that {path.parent / DONE} states: it changed after "
            f"it was made; {_CURE}"
        )
