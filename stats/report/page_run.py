"""Run directories of pages about finished runs, such as those of `paper` and `instances`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.runs.command_line.commands import command_of
from multiberts.runs.directory import CONFIG, DONE, RunDirectory
from multiberts.runs.figure_style import FigureKind
from multiberts.stats.presentation.provenance import data_facts
from multiberts.stats.presentation.sections import Report, write_report
from multiberts.stats.report.selection import FinishedRun

REPORT = "report"  # the page's folder in the run directory


def write_page_of_runs(
    stage: str,
    run_dir: str,
    parameters: Mapping[str, Any],
    runs: Sequence[FinishedRun],
    make: Callable[[], Report],
    kind: FigureKind = "svg",
) -> None:
    """Writes `run_dir/report/`, unless a finished report of the same runs and parameters exists.

    Args:
      stage: name of the command's function.
      make: function that computes the page; called before anything is written.
      kind: see `write_report`.
    """
    inputs = {"predictions": [str(run.directory) for run in runs]}
    directory = RunDirectory(run_dir, stage=stage, parameters=parameters, inputs=inputs)
    if directory.done:
        return
    report = make()
    made_by = {
        "Command": command_again(stage, "above this page's folder"),
        **data_facts([run.directory / DONE for run in runs], "the markers of the finished runs"),
    }
    with directory:
        write_report(directory.path / REPORT, report, made_by, kind)
        directory.finish_folder(REPORT)


def command_again(stage: str, where: str) -> str:
    """Returns what makes a page again: paths in its configuration are relative to where it was first made.

    Args:
      where: where the folder of the configuration lies.
    """
    return (
        f"multiberts {command_of(stage)} --gin_file=FOLDER/{CONFIG} --run_dir=again, from the folder where "
        f"this page was made; FOLDER is the one {where}"
    )


def describe(run_dir: str) -> str:
    """Returns the path of a page, its findings (or its size) and the sections left out."""
    folder = Path(run_dir, REPORT)
    text = (folder / "index.md").read_text(encoding="utf-8")
    content, _, left_out = text.rstrip().partition("\n## Left out\n")
    opening, *sections = content.split("\n## ")
    findings = "\n".join(filter(None, opening.splitlines()[1:]))
    shown = f"\n\n{findings}" if findings else f": {len(sections)} tables and figures"
    return f"{folder / 'index.html'}{shown}" + left_out.replace("\n- ", "\n  left out ")
