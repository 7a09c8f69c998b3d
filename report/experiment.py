"""The experiment of a report, read from its plan: planned runs and the locations of their files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from multiberts.runs.files import PathLike
from multiberts.runs.plan_marker import FILE, MarkedRun, read_plan

STATUS_PAGE = "status.html"


@dataclass(frozen=True)
class LinkedRun:
    """A run of the experiment with the URLs of its files relative to the page (empty if missing)."""

    name: str
    stage: str
    directory: str
    log: str
    tensorboard: str


@dataclass(frozen=True)
class ReportedExperiment:
    """The experiment that a report belongs to.

    Attributes:
      up: relative path from the page to the experiment's directory.
      folders: what the report reads; runs that are planned elsewhere are not missing.
    """

    root: Path
    up: str
    plan: Sequence[MarkedRun]
    folders: Sequence[Path]

    @property
    def status(self) -> str:
        return self._address(STATUS_PAGE)

    def missing(self, directories: Iterable[Path]) -> str:
        """Returns a sentence on a report with planned runs missing; empty if all are finished."""
        root, folders = self.root.resolve(), {folder.resolve() for folder in self.folders}
        there = {path.resolve() for path in directories}
        planned = [
            run
            for run in self.plan
            if run.stage == "finetune" and folders & {root / run.path, *(root / run.path).parents}
        ]
        left = [run for run in planned if root / run.path not in there]
        if not left:
            return ""
        seeds, incomplete = (
            {run.facts.get("pretrain_seed") for run in runs} - {None} for runs in (planned, left)
        )
        of_seeds = f", {len(seeds - incomplete):,} of {len(seeds):,} planned seeds" if seeds else ""
        return (
            f"Made from {len(planned) - len(left):,} of {len(planned):,} planned fine-tuning runs{of_seeds}: "
            "numbers will change, and p is that of a single look."
        )

    def linked(self) -> list[LinkedRun]:
        return [
            LinkedRun(
                run.name,
                run.stage,
                self._address(run.path),
                self._existing(f"logs/{run.path.replace('/', '-')}.log"),
                self._existing(f"{run.path}/tensorboard"),
            )
            for run in self.plan
            if run.stage in ("pretrain", "finetune") and (self.root / run.path).is_dir()
        ]

    def _existing(self, path: str) -> str:
        return self._address(path) if (self.root / path).exists() else ""

    def _address(self, path: str) -> str:
        return quote(f"{self.up}/{path}")


def experiment_of(run_dir: PathLike, predictions: Sequence[str] = ()) -> ReportedExperiment | None:
    """Returns the experiment whose root contains the report's directory, or None.

    Args:
      predictions: folders with the runs of the report.

    Examples:
      >>> experiment_of("report") is None
      True
    """
    here = Path(run_dir).absolute()
    if not (here.parent / FILE).is_file():
        return None
    up = os.path.relpath(here.parent, here)
    return ReportedExperiment(here.parent, up, read_plan(here.parent), [*map(Path, predictions)])
