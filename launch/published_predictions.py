"""The stage that imports published predictions: run directories inside the directory of one planned run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.evaluate.imports import importing
from multiberts.evaluate.imports.importing import PredictionImport
from multiberts.runs.directory import DONE, RunDirectory
from multiberts.runs.identity import Identity, Values
from multiberts.runs.parameters import ordered_fields, takes_fields_of


def _find_files(_: Mapping[str, Any], inputs: Values) -> None:
    """Replaces a folder by its files, so that their content identifies the run."""
    if isinstance(inputs["source"], str) and Path(inputs["source"]).is_dir():
        inputs["files"] = [
            str(file) for file in sorted(Path(inputs.pop("source")).rglob("*")) if file.is_file()
        ]


IDENTITY = Identity(inputs=("source", "questions"), find_files=_find_files)


@takes_fields_of(PredictionImport)
def import_predictions(settings: PredictionImport) -> None:
    """Imports predictions once, as `multiberts import` does; a finished run is left alone.

    Args:
      settings: the fields of `PredictionImport`.
    """
    arguments = {name: getattr(settings, name) for name in ordered_fields(PredictionImport)}
    parameters, inputs = IDENTITY.on_disk(arguments)
    run = RunDirectory(
        settings.run_dir, stage="import_predictions", parameters=parameters, inputs=inputs
    )
    if run.done:
        return
    with run:
        directories = importing.import_predictions(**arguments)
        markers = [directory / DONE for directory in directories]
        run.finish([marker.relative_to(Path(settings.run_dir)).as_posix() for marker in markers])
