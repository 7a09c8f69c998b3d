"""The run directory of a page about finished runs, as `paper`, `instances` and others write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from multiberts.runs.directory import CONFIG, DONE, RunDirectory
from multiberts.stats.presentation.provenance import data_facts
from multiberts.stats.report.selection import FinishedRun

REPORT = "report"  # the page's folder in the run directory


def report_directory(
    run_dir: str, stage: str, parameters: Mapping[str, Any], runs: Sequence[FinishedRun]
) -> RunDirectory:
    """Returns the run directory of a page; it is done where the page is of these runs."""
    return RunDirectory(
        run_dir,
        stage=stage,
        parameters=parameters,
        inputs={"predictions": [str(run.directory) for run in runs]},
    )


def made_by_command(command: str, runs: Sequence[FinishedRun]) -> dict[str, str]:
    return {
        "Command": f"multiberts {command} --gin_file={CONFIG}, in the folder above this page",
        **data_facts([run.directory / DONE for run in runs], "the markers of the finished runs"),
    }
