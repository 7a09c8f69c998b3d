"""Where sweeps run: this machine, a Slurm cluster, Kubernetes. Options become a provider of Parsl.

A provider submits blocks (a Slurm job, a pod), reports whether they have ended, and cancels them. The
workers of a block stay until nothing is left to do.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from multiberts.launch.estimate.accelerators import visible_gpus
from multiberts.runs.environment import check_engine
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

_WALLTIME = re.compile(r"\d+:[0-5]\d:[0-5]\d")
_Options = TypeVar("_Options")


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """Options of this machine's workers; `run.engine_options` in Gin.

    Attributes:
      compute: the library that trains and predicts, `tensorflow` or `jax`; None: that of the launcher's
        environment (`MULTIBERTS_ENGINE`), else what suits each worker's machine.
    """

    compute: Literal["tensorflow", "jax"] | None = None


@dataclass(frozen=True, kw_only=True)
class EngineOptions(LocalOptions):
    """Options of every engine with blocks; `run.engine_options` in Gin.

    Attributes: as `LocalOptions`, and
      poll_seconds: between two looks at the blocks.
      max_blocks: how many there are at most.
      worker_init: shell lines before the workers start, such as 'module load cuda'.
      python: the nodes' interpreter; absolute, or found in their PATH.
      address: name or address of this machine for the nodes; None: they try all it has.
      gpus: of a node.
      cores: of a node.
    """

    poll_seconds: PositiveFloat = 30
    max_blocks: PositiveInt = 1
    worker_init: str = ""
    python: str = sys.executable
    address: str | None = None
    gpus: NonNegativeInt = 0
    cores: PositiveInt | None = None

    def check(self) -> None:
        """Raises UserError where blocks could not work."""

    def provider(self, worker_init: str) -> Any:
        """Returns Parsl's provider, or None for processes of this machine.

        Args:
          worker_init: shell lines that come before the workers.
        """


@dataclass(frozen=True, kw_only=True)
class SlurmOptions(EngineOptions):
    """Options of Slurm, most of them those of `sbatch`.

    Attributes:
      scheduler_options: further `#SBATCH` lines.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    nodes_per_block: PositiveInt = 1
    memory_gb: PositiveInt | None = None
    walltime: str = "24:00:00"
    exclusive: bool = False
    scheduler_options: str = ""

    def check(self) -> None:
        """Raises UserError where Slurm is missing, or would refuse the walltime."""
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

    def provider(self, worker_init: str) -> Any:
        """Returns a provider that submits jobs."""
        from parsl.launchers import SingleNodeLauncher, SrunLauncher
        from parsl.providers import SlurmProvider

        launcher = SingleNodeLauncher if self.nodes_per_block == 1 else SrunLauncher
        return SlurmProvider(
            partition=self.partition,
            account=self.account,
            qos=self.qos,
            constraint=self.constraint,
            nodes_per_block=self.nodes_per_block,
            cores_per_node=self.cores,
            mem_per_node=self.memory_gb,
            gpus_per_node=self.gpus or None,
            init_blocks=0,
            max_blocks=self.max_blocks,
            walltime=self.walltime,
            scheduler_options=self.scheduler_options,
            worker_init=worker_init,
            exclusive=self.exclusive,
            launcher=launcher(),
        )


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions(EngineOptions):
    """Options of Kubernetes.

    Attributes:
      image: has this project's requirements.
      volumes: pairs (claim, mount path); the root and this project must lie in one, at the same path
        as here.
      memory_gb: of a pod.
    """

    image: str = ""
    namespace: str = "default"
    volumes: Sequence[tuple[str, str]] = ()
    memory_gb: PositiveInt = 16
    service_account: str | None = None
    secret: str | None = None

    def check(self) -> None:
        """Raises UserError without an image."""
        if not self.image:
            raise UserError(
                "run.engine_options lacks 'image'; give the image that has this project's requirements"
            )

    def provider(self, worker_init: str) -> Any:
        """Returns a provider that starts pods."""
        from parsl.errors import OptionalModuleMissing
        from parsl.providers import KubernetesProvider

        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        memory, cores = f"{self.memory_gb}Gi", self.cores or 1
        try:
            return KubernetesProvider(
                image=self.image,
                namespace=self.namespace,
                init_blocks=0,
                max_blocks=self.max_blocks,
                max_cpu=cores,
                init_cpu=cores,
                max_mem=memory,
                init_mem=memory,
                extra_requests=gpus,
                extra_limits=gpus,
                worker_init=worker_init,
                secret=self.secret,
                persistent_volumes=[(claim, path) for claim, path in self.volumes],
                service_account_name=self.service_account,
            )
        except OptionalModuleMissing as error:
            raise UserError(
                "run.engine is 'kubernetes' but the package kubernetes is not installed; "
                "install requirements-kubernetes.txt"
            ) from error


@dataclass(frozen=True)
class Engine:
    """How to get workers.

    Attributes:
      name: `local`, `slurm` or `kubernetes`.
      options: of the engine.
      workers_per_node: how many share a node.
      threads: each worker's share of the node's cores.
    """

    name: str
    options: EngineOptions
    workers_per_node: int
    threads: int

    @property
    def is_local(self) -> bool:
        """Returns whether the workers are processes of this machine, started by the launcher."""
        return self.name == "local"

    @property
    def workers_per_block(self) -> int:
        """Returns how many workers a block has."""
        return self.workers_per_node * getattr(self.options, "nodes_per_block", 1)

    @property
    def workers(self) -> int:
        """Returns how many workers there can be in all."""
        return self.workers_per_block * self.options.max_blocks

    def for_at_most(self, runs: int) -> Engine:
        """Returns the same engine; on this machine, with no more workers than runs."""
        count = min(self.workers_per_node, max(1, runs))
        return dataclasses.replace(self, workers_per_node=count) if self.is_local else self

    def shell_lines(self, environment: Mapping[str, str]) -> str:
        """Returns what a block's shell runs before the workers: the environment, then the user's lines."""
        exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        return "\n".join([*exports, self.options.worker_init])


def make_engine(
    name: str,
    options: Mapping[str, Any],
    workers: int | None,
    workers_per_accelerator: int,
) -> Engine:
    """Checks what the user wants; starts nothing.

    Args:
      name: `local`, `slurm` or `kubernetes`.
      options: fields of `LocalOptions`, `SlurmOptions` or `KubernetesOptions`.
      workers: processes per machine; None: one per GPU (times workers_per_accelerator), else per core.
      workers_per_accelerator: how many share a GPU.

    Raises:
      UserError: an unknown option, a value out of range, or, on this machine, a library that is not
        installed.
    """
    chosen: EngineOptions
    if name == "local":
        compute = options_of(LocalOptions, name, options).compute
        if compute:
            check_engine(compute, "run.engine_options['compute']")
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        chosen = EngineOptions(
            compute=compute,
            poll_seconds=1,
            address="127.0.0.1",
            cores=cores,
            gpus=len(visible_gpus()),
        )
    else:
        kinds = {"slurm": SlurmOptions, "kubernetes": KubernetesOptions}
        chosen = options_of(kinds[name], name, options)
        chosen.check()
        cores = chosen.cores or workers or 1
    count = workers or chosen.gpus * workers_per_accelerator or cores
    return Engine(name, chosen, count, max(1, cores // count))


def options_of(kind: type[_Options], engine: str, given: Mapping[str, Any]) -> _Options:
    """Returns the options of an engine, checked against their annotations.

    Args:
      kind: a dataclass.
      engine: its name.
      given: `run.engine_options`.

    Raises:
      UserError: an option is unknown, missing, of another type or out of range.
    """
    annotations = annotations_of(kind)
    for name, value in given.items():
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
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in given
    )
    if missing:
        raise UserError(
            f"run.engine_options lacks {', '.join(missing)}; engine {engine!r} needs them"
        )
    return kind(**given)
