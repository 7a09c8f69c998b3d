"""Engines that carry out runs: this machine, jobs on Slurm, or any Dask cluster by its address."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from multiberts.launch.estimate.accelerators import visible_gpus
from multiberts.runs.environment import ENGINE, check_engine
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.parameters import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    annotations_of,
    described,
    fits,
    shortened,
)
from multiberts.runs.processes import available_cores

_WALLTIME = re.compile(r"\d+:[0-5]\d:[0-5]\d")
_Options = TypeVar("_Options")


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """Options of this machine's workers; `run.engine_options` in Gin.

    Attributes:
      compute: library that trains and predicts, `tensorflow` or `jax`; None: the launcher's environment
        decides (`MULTIBERTS_ENGINE`), or else each worker's machine.
    """

    compute: Literal["tensorflow", "jax"] | None = None

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def check(self) -> None:
        """Refuses options with which workers could not start."""
        if self.compute:
            check_engine(self.compute, "run.engine_options['compute']")


@dataclass(frozen=True, kw_only=True)
class DaskOptions(LocalOptions):
    """Options of a Dask cluster that somebody else started; see docs/clusters.md.

    Attributes: as `LocalOptions` (its workers must see the same library), and
      scheduler: the scheduler's address, such as `tls://10.0.0.7:8786`.
    """

    scheduler: str

    def check(self) -> None:
        """Refuses to leave the choice of the library to each worker."""
        if self.compute:
            raise UserError(
                "run.engine_options['compute'] is set, but the workers of engine 'dask' run already; start "
                f"them with {ENGINE}={self.compute} in their environment"
            )


@dataclass(frozen=True, kw_only=True)
class SlurmOptions(LocalOptions):
    """Options of Slurm, mostly those of `sbatch`.

    Attributes: as `LocalOptions`, and
      poll_seconds: seconds between two looks at the jobs.
      max_blocks: largest number of jobs, each on one node.
      worker_init: shell lines to run before the workers start, such as 'module load cuda'.
      python: Python on the nodes: an absolute path, or a name in their PATH.
      address: address at which nodes reach this machine; None: that of its default route.
      gpus, cores, memory_gb: resources of a job.
      scheduler_options: further `#SBATCH` lines.
    """

    poll_seconds: PositiveFloat = 30
    max_blocks: PositiveInt = 1
    worker_init: str = ""
    python: str = sys.executable
    address: str | None = None
    gpus: NonNegativeInt = 0
    cores: PositiveInt | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    memory_gb: PositiveInt | None = None
    walltime: str = "24:00:00"
    exclusive: bool = False
    scheduler_options: str = ""

    @property
    def host(self) -> str:
        return self.address or "0.0.0.0"

    def check(self) -> None:
        """Refuses a machine without Slurm, and a walltime that Slurm would refuse."""
        if shutil.which("sbatch") is None:
            raise UserError(
                "run.engine is 'slurm' but the command sbatch is not found; start where Slurm's commands "
                "are, such as a login node"
            )
        if not _WALLTIME.fullmatch(self.walltime):
            raise UserError(
                f"run.engine_options['walltime'] is {self.walltime!r}, expected hours:minutes:seconds "
                "such as '24:00:00'; correct it"
            )


@dataclass(frozen=True)
class Engine:
    """An engine and its workers.

    Attributes:
      name: `local`, `slurm` or `dask`.
      workers_per_node: number of workers on this machine or in a job; 1 for engine `dask`.
      threads: number of cores per worker.
    """

    name: str
    options: LocalOptions
    workers_per_node: int
    threads: int

    @property
    def is_local(self) -> bool:
        """Returns whether workers are processes on this machine that the launcher starts."""
        return self.name == "local"

    @property
    def workers(self) -> int:
        """Returns the largest number of workers; 1 for engine `dask`, where only the pool knows it."""
        return self.workers_per_node * getattr(self.options, "max_blocks", 1)

    def for_at_most(self, runs: int) -> Engine:
        """Returns the engine with no more workers than runs, if they are on this machine."""
        count = min(self.workers_per_node, max(1, runs))
        return dataclasses.replace(self, workers_per_node=count) if self.is_local else self


_OPTIONS: dict[str, type[LocalOptions]] = {
    "local": LocalOptions,
    "slurm": SlurmOptions,
    "dask": DaskOptions,
}


def make_engine(
    name: str,
    options: Mapping[str, Any],
    workers: int | None,
    workers_per_accelerator: int,
    *,
    is_planned: bool = False,
) -> Engine:
    """Checks the engine and its options; starts nothing. A planned engine may be that of another machine."""
    chosen: LocalOptions = options_of(_OPTIONS[name], name, options)
    if not is_planned:
        chosen.check()
    if isinstance(chosen, DaskOptions):
        if workers is not None or workers_per_accelerator > 1:
            raise UserError(
                "run.workers and run.workers_per_accelerator are for workers that the launcher starts, but "
                "run.engine is 'dask'; leave them out"
            )
        return Engine(name, chosen, 1, 1)
    if isinstance(chosen, SlurmOptions):
        gpus, cores = chosen.gpus, chosen.cores or workers or 1
    else:
        cores, gpus = available_cores(), len(visible_gpus())
    count = workers or gpus * workers_per_accelerator or cores
    return Engine(name, chosen, count, max(1, cores // count))


def options_of(kind: type[_Options], engine: str, arguments: Mapping[str, Any]) -> _Options:
    """Returns the options of an engine from `run.engine_options`, checked against their annotations."""
    annotations = annotations_of(kind)  # type: ignore[arg-type]
    for name, value in arguments.items():
        if name not in annotations:
            raise UserError(
                f"run.engine_options has {name!r}, which engine {engine!r} does not know; "
                f"{nearest(name, sorted(annotations))}"
            )
        if not fits(value, annotations[name]):
            raise UserError(
                f"run.engine_options[{name!r}] is {shortened(value)}, expected "
                f"{described(annotations[name])}; correct it"
            )
    missing = sorted(
        field.name
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.default is field.default_factory is dataclasses.MISSING
        and field.name not in arguments
    )
    if missing:
        raise UserError(
            f"run.engine_options lacks {', '.join(missing)}; engine {engine!r} needs them"
        )
    return kind(**arguments)
