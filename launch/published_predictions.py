"""The stage that imports published predictions: run directories inside the directory of one planned run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.evaluate.imports import importing
from multiberts.evaluate.imports.importing import PredictionImport
from multiberts.runs.directory import DONE, RunDirectory
from multiberts.runs.identity import Identity, Values, opened
from multiberts.runs.parameters import ordered_fields, takes_fields_of


def _find_files(
    _: Mapping[str, Any], parameters: Values, inputs: Values, __: Any
) -> tuple[Values, Values]:
    """Replaces the source by its files; their names count, as layouts read seeds and tasks from them."""
    if not isinstance(inputs["source"], str):
        return parameters, inputs
    source = Path(inputs["source"])
    below = sorted(filter(Path.is_file, source.rglob("*")))
    names = [
        os.path.relpath(file, source.parent) for file in (below if source.is_dir() else [source])
    ]
    names = [name for name in names if "/." not in name]  # no layout reads hidden files
    files = [source.parent / name for name in names]
    others = {name: each for name, each in inputs.items() if name != "source"}
    return {**parameters, "names": names}, {**others, "files": files}


IDENTITY = Identity({"source": opened, "questions": opened}, find_files=_find_files)


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
