"""Reads TFRecords of the original's layout into a directory that can be trained on.

    python -m pretrain.import_records --gin_param='import_records.sources = ["records/*.tfrecord"]' \\
        --gin_param='import_records.vocabulary = "vocab.txt"' \\
        --gin_param='import_records.run_dir = "corpus"'
"""

from __future__ import annotations

import json
from pathlib import Path

from bert.tokenization import read_vocabulary
from pretrain.corpus import expand_sources
from pretrain.original_format import (
    DESCRIPTION,
    KIND,
    STORED,
    VOCABULARY,
    feature_file,
    record_widths,
    write_imported,
)
from runs.directory import RunDirectory
from runs.errors import UserError
from runs.files import remove, sha256_of_file, write_atomically


def import_records(*, run_dir: str, sources: list[str], vocabulary: str) -> None:
    """Imports instances with the masks they have; a second run touches nothing.

    Args:
        run_dir: directory of the outputs: a NumPy file a feature, `vocab.txt`, `corpus.json`.
        sources: TFRecord files (`.gz` too) and patterns, in the order of the instances.
        vocabulary: the `vocab.txt` that they were made with.

    Raises:
        UserError: a file is missing, damaged or of another layout, or does not go with the
            vocabulary; nothing is written.
    """
    files = expand_sources(sources)
    if not files:
        raise UserError("import_records.sources is empty; give TFRecord files")
    run = RunDirectory(
        run_dir,
        stage="import_records",
        parameters={},
        inputs={"sources": files, "vocabulary": vocabulary},
    )
    if run.done:
        return
    size = len(read_vocabulary(vocabulary))
    widths = [record_widths(file) for file in files]
    for file, found in zip(files, widths, strict=True):
        if found != widths[0]:
            raise UserError(
                f"{file} has {found[0]} tokens and {found[1]} predictions, {files[0]} {widths[0][0]} "
                f"and {widths[0][1]}; import files of one kind"
            )
    with run:
        try:
            counts = write_imported(run.path, files, *widths[0], size)
        except UserError:
            remove(run.path)  # records are looked at as they are read; nothing half imported stays
            raise
        write_atomically(run.path / VOCABULARY, Path(vocabulary).read_bytes())
        outputs = [VOCABULARY, *map(feature_file, STORED)]
        description = {
            "kind": KIND,
            "sequence_length": widths[0][0],
            "max_predictions_per_sequence": widths[0][1],
            "fresh_masks": False,
            "counts": {"pieces": size, **counts},
            "sources": [
                {"file": Path(file).name, "sha256": sha256_of_file(file)} for file in files
            ],
            "sha256": {name: sha256_of_file(run.path / name) for name in outputs},
        }
        write_atomically(run.path / DESCRIPTION, json.dumps(description, indent=1) + "\n")
        run.finish([*outputs, DESCRIPTION])


if __name__ == "__main__":
    from runs.command import run_command

    run_command(import_records)
