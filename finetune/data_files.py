"""Files of a split in a folder of data, plain or compressed."""

from __future__ import annotations

from pathlib import Path

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike


def split_file(data_dir: PathLike, split: str, suffix: str = ".tsv") -> Path:
    """The file of a split in a folder: `<split><suffix>`, plain or with `.gz` behind it.

    Raises:
      UserError: neither is there.
    """
    found = existing_split_file(data_dir, split, suffix)
    if found is None:
        plain = Path(data_dir) / (split + suffix)
        raise UserError(
            f"{plain} does not exist, nor {plain.name}.gz; give the folder with the task's {suffix} "
            "files as data_dir"
        )
    return found


def existing_split_file(data_dir: PathLike, split: str, suffix: str = ".tsv") -> Path | None:
    """As `split_file`, but None where there is no such file."""
    plain = Path(data_dir) / (split + suffix)
    candidates = (plain, plain.with_name(plain.name + ".gz"))
    return next((path for path in candidates if path.is_file()), None)
