"""One checkpoint that is there already, as the run that would have made it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Literal, get_args

from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, replaced, sha256_of_file

Placing = Literal["link", "symlink", "copy"]


def import_checkpoint(
    *,
    run_dir: str,
    checkpoint: str,
    procedure: str,
    pretrain_seed: int,
    step: int | None = None,
    placing: Placing = "link",
) -> None:
    """Writes `run_dir/checkpoints/step_<n>/` (0 where the step is not known), whole or not at all.

    Its `checkpoint.json` says whose it is and holds the size and SHA-256 of every file. All weights
    are read before: what cannot be read is refused.

    Args:
      run_dir: the run's directory.
      checkpoint: a checkpoint directory, ours or a released one.
      procedure: whose it is.
      pretrain_seed: likewise.
      step: finished updates; None: as the checkpoint records.
      placing: `link` (hard links: no disk space, and they last when the source is removed), `symlink`
        (no disk space, from another file system too), or `copy`.

    Raises:
      UserError: the checkpoint is not whole, or cannot be linked.
    """
    check_placing(placing)
    record = record_of(checkpoint, procedure, pretrain_seed, step)
    write_run(run_dir, checkpoint, record, placing)


def check_placing(placing: str) -> None:
    """Refuses a way that there is not."""
    if placing not in get_args(Placing):
        raise UserError(
            f"placing is {placing!r}, expected one of {', '.join(get_args(Placing))}; correct it"
        )


def record_of(
    checkpoint: PathLike, procedure: str, pretrain_seed: int, step: int | None
) -> dict[str, Any]:
    """Returns the `checkpoint.json` of an imported checkpoint, after reading all of its weights.

    What its own record says besides (`data_seed`, facts of the training) is kept.

    Raises:
      UserError: a file or variable is missing, truncated or damaged.
    """
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint

    directory = Path(checkpoint)
    known = read_checkpoint(directory).provenance
    if step is None and known["step"] is not None:
        step = known["step"]
    facts = {
        "procedure": procedure,
        "pretrain_seed": pretrain_seed,
        "data_seed": known["data_seed"],
        "step": step,
    }
    # How its weights were read this time is not a fact of the checkpoint.
    left_out = {*facts, "files", "converted_from_hidden_act"}
    more = {name: value for name, value in known.items() if name not in left_out}
    return {**facts, **more, "files": _files(directory)}


def content_of(record: dict[str, Any]) -> str:
    """SHA-256 of a record, and so of all that it describes."""
    return hashlib.sha256(_text(record).encode()).hexdigest()


def write_run(
    run_dir: PathLike, checkpoint: PathLike, record: dict[str, Any], placing: Placing
) -> bool:
    """Writes the run of a checkpoint whose record is known.

    Returns:
      Whether there was something to write.

    Raises:
      UserError: another run lies there, or the files cannot be placed.
    """
    run = RunDirectory(
        run_dir,
        stage="import_checkpoint",
        parameters={
            **{name: record[name] for name in ("procedure", "pretrain_seed", "step")},
            "content": content_of(record),
        },
        call={
            **{name: record[name] for name in ("procedure", "pretrain_seed", "step")},
            "checkpoint": str(checkpoint),
            "placing": placing,
        },
    )
    if run.done:
        return False
    inside = f"checkpoints/step_{record['step'] or 0}"
    with run:
        with replaced(run.path / inside) as unfinished:
            unfinished.mkdir()
            for name in record["files"]:
                _place(Path(checkpoint) / name, unfinished / name, placing)
            (unfinished / "checkpoint.json").write_text(_text(record))
        _check_placed(run.path / inside, record)
        run.finish([f"{inside}/{name}" for name in (*record["files"], "checkpoint.json")])
    return True


def _files(directory: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of all files of a checkpoint but its record and card."""
    from multiberts.bert.checkpoint import hugging_face, tensorflow_format
    from multiberts.bert.checkpoint.checkpoint import TENSORFLOW, layout_of

    if layout_of(directory) == TENSORFLOW:
        prefix = tensorflow_format.find_prefix(directory).name
        names = {path.name for path in directory.glob(f"{prefix}.data-*-of-*")}
        names |= {f"{prefix}.index", tensorflow_format.CONFIG}
    else:
        names = {name for name in hugging_face.FILES if (directory / name).is_file()}
        names.add(hugging_face.check_weights(directory).name)
    names.add(tensorflow_format.VOCABULARY)
    return {
        name: {
            "bytes": (directory / name).stat().st_size,
            "sha256": sha256_of_file(directory / name),
        }
        for name in sorted(names)
    }


def _place(source: Path, target: Path, placing: Placing) -> None:
    source = source.resolve()  # the hub's cache links to its files by their hashes
    if placing == "copy":
        shutil.copyfile(source, target)
    elif placing == "symlink":
        target.symlink_to(source)
    else:
        try:
            os.link(source, target)
        except OSError as error:
            raise UserError(
                f"{source} cannot be linked into {target.parent.parent} ({error.strerror}); import with "
                "placing = 'symlink' or 'copy'"
            ) from error


def _check_placed(directory: Path, record: dict[str, Any]) -> None:
    for name, entry in record["files"].items():
        if (directory / name).stat().st_size != entry["bytes"]:
            raise UserError(
                f"{directory / name} changed while it was imported; wait until nobody writes it and "
                "import again"
            )


def _text(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1) + "\n"
