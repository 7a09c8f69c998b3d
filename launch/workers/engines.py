"""Where sweeps run: this machine, a Slurm cluster, Kubernetes. Options become a provider of Parsl.

A provider submits blocks (this machine, a Slurm job, a pod), reports whether they have ended, and cancels
them. The workers of a block stay until nothing is left to do.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from multiberts.launch.estimate.accelerators import visible_gpus
from multiberts.runs.errors import UserError

ENGINES = ("local", "slurm", "kubernetes", "tpu")

# Names and defaults of `engine_options`.
COMMON_OPTIONS: dict[str, Any] = {
    # Seconds between two looks at the blocks.
    "poll_seconds": 30,
    "max_blocks": 1,
    # Shell lines before the workers start, such as 'module load cuda'.
    "worker_init": "",
    # Of the nodes; absolute, or found in their PATH.
    "python": sys.executable,
    # The name or address of this machine for the nodes; None: they try all it has.
    "address": None,
    # Of a node.
    "gpus": 0,
    "cores": None,
}
SLURM_OPTIONS: dict[str, Any] = {
    **COMMON_OPTIONS,
    "partition": None,
    "account": None,
    "qos": None,
    "constraint": None,
    "nodes_per_block": 1,
    "memory_gb": None,
    "walltime": "24:00:00",
    "exclusive": False,
    # Further `#SBATCH` lines.
    "scheduler_options": "",
}
KUBERNETES_OPTIONS: dict[str, Any] = {
    **COMMON_OPTIONS,
    "image": None,
    "namespace": "default",
    # Pairs (claim, mount path): the root and this project must lie in one, at the same path as here.
    "volumes": (),
    "memory_gb": 16,
    "service_account": None,
    "secret": None,
}

_WALLTIME = re.compile(r"\d+:[0-5]\d:[0-5]\d")


@dataclass(frozen=True)
class Engine:
    """How to get workers.

    Attributes:
      name: one of `ENGINES`.
      workers_per_node: how many share a node.
      threads: each worker's share of the node's cores.
      nodes_per_block, max_blocks: how much is asked for at once, and at most.
      provider: makes Parsl's provider from the shell lines that come before the workers; None: this
        machine.
      worker_init: the user's own such lines.
      python: the nodes' interpreter.
      address: of this machine as the nodes reach it; None: they try all.
      poll_seconds: between two looks at the blocks.
    """

    name: str
    workers_per_node: int
    threads: int
    nodes_per_block: int
    max_blocks: int
    provider: Callable[[str], Any] | None
    worker_init: str
    python: str
    address: str | None
    poll_seconds: float

    @property
    def is_local(self) -> bool:
        """Returns whether the workers are processes of this machine, started by the launcher."""
        return self.name == "local"

    @property
    def workers(self) -> int:
        """Returns how many workers there can be in all."""
        return self.workers_per_node * self.nodes_per_block * self.max_blocks

    def for_at_most(self, runs: int) -> Engine:
        """Returns the same; on this machine without workers that would never have anything to do."""
        count = min(self.workers_per_node, max(1, runs))
        return dataclasses.replace(self, workers_per_node=count) if self.is_local else self


def make_engine(
    name: str,
    options: Mapping[str, Any],
    workers: int | None,
    workers_per_accelerator: int,
) -> Engine:
    """Checks what the user wants; starts nothing.

    Args:
      name: `local`, `slurm` or `kubernetes`.
      options: of the engine; see `SLURM_OPTIONS` and `KUBERNETES_OPTIONS`. The local one has none.
      workers: processes on a machine; None: one a GPU (times workers_per_accelerator), else one per core.
      workers_per_accelerator: how many share a GPU.

    Raises:
      UserError: an unknown engine or option, or a value out of range.
    """
    for given, value in (
        ("workers", workers),
        ("workers_per_accelerator", workers_per_accelerator),
    ):
        if value is not None and value < 1:
            raise UserError(
                f"run.{given} is {value}, expected 1 or more; correct it or leave it out"
            )
    if name == "local":
        _checked(name, options, {})
        return _local(workers, workers_per_accelerator)
    if name == "slurm":
        return _slurm(_checked(name, options, SLURM_OPTIONS), workers, workers_per_accelerator)
    if name == "kubernetes":
        known = KUBERNETES_OPTIONS
        return _kubernetes(_checked(name, options, known), workers, workers_per_accelerator)
    raise UserError(
        f"run.engine is {name!r}, expected one of {', '.join(ENGINES)}; name one of them"
    )


def _checked(name: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(options.keys() - known.keys())
    if unknown and unknown[0].startswith("heartbeat_"):
        raise UserError(
            f"run.engine_options has {unknown[0]!r}, which is now run.silent_seconds; set that instead"
        )
    if unknown:
        raise UserError(
            f"run.engine_options has {unknown[0]!r}, which engine {name!r} does not know, expected "
            f"{', '.join(sorted(known)) or 'none'}; correct the name"
        )
    complete = {**known, **options}
    for option in ("max_blocks", "nodes_per_block", "cores", "memory_gb"):
        value = complete.get(option)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UserError(
                f"run.engine_options[{option!r}] is {value!r}, expected a whole number, 1 or more; "
                "correct it"
            )
    return complete


def _local(workers: int | None, workers_per_accelerator: int) -> Engine:
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    count = workers or len(visible_gpus()) * workers_per_accelerator or cores

    return Engine(
        name="local",
        workers_per_node=count,
        threads=max(1, cores // count),
        nodes_per_block=1,
        max_blocks=1,
        provider=None,
        worker_init="",
        python=sys.executable,
        address="127.0.0.1",
        poll_seconds=1,
    )


def _slurm(options: dict[str, Any], workers: int | None, workers_per_accelerator: int) -> Engine:
    if shutil.which("sbatch") is None:
        raise UserError(
            "run.engine is 'slurm' but the command sbatch is not found; start where Slurm's commands "
            "are, such as a login node"
        )
    if not _WALLTIME.fullmatch(str(options["walltime"])):
        raise UserError(
            f"run.engine_options['walltime'] is {options['walltime']!r}, expected hours:minutes:seconds "
            "such as '24:00:00'; correct it"
        )

    def provider(worker_init: str) -> Any:
        from parsl.launchers import SingleNodeLauncher, SrunLauncher
        from parsl.providers import SlurmProvider

        launcher = SingleNodeLauncher if options["nodes_per_block"] == 1 else SrunLauncher
        return SlurmProvider(
            partition=options["partition"],
            account=options["account"],
            qos=options["qos"],
            constraint=options["constraint"],
            nodes_per_block=options["nodes_per_block"],
            cores_per_node=options["cores"],
            mem_per_node=options["memory_gb"],
            gpus_per_node=options["gpus"] or None,
            init_blocks=0,
            max_blocks=options["max_blocks"],
            walltime=options["walltime"],
            scheduler_options=options["scheduler_options"],
            worker_init=worker_init,
            exclusive=options["exclusive"],
            launcher=launcher(),
        )

    return _remote("slurm", options, workers, workers_per_accelerator, provider)


def _kubernetes(
    options: dict[str, Any], workers: int | None, workers_per_accelerator: int
) -> Engine:
    if options["image"] is None:
        raise UserError(
            "run.engine_options lacks 'image'; give the image that has this project's requirements"
        )
    gpus = {"nvidia.com/gpu": str(options["gpus"])} if options["gpus"] else {}

    def provider(worker_init: str) -> Any:
        from parsl.errors import OptionalModuleMissing
        from parsl.providers import KubernetesProvider

        memory = f"{options['memory_gb']}Gi"
        try:
            return KubernetesProvider(
                image=options["image"],
                namespace=options["namespace"],
                init_blocks=0,
                max_blocks=options["max_blocks"],
                max_cpu=options["cores"] or 1,
                init_cpu=options["cores"] or 1,
                max_mem=memory,
                init_mem=memory,
                extra_requests=gpus,
                extra_limits=gpus,
                worker_init=worker_init,
                secret=options["secret"],
                persistent_volumes=[tuple(volume) for volume in options["volumes"]],
                service_account_name=options["service_account"],
            )
        except OptionalModuleMissing as error:
            raise UserError(
                "run.engine is 'kubernetes' but the package kubernetes is not installed; "
                "install requirements-kubernetes.txt"
            ) from error

    return _remote("kubernetes", options, workers, workers_per_accelerator, provider)


def _remote(
    name: str,
    options: dict[str, Any],
    workers: int | None,
    workers_per_accelerator: int,
    provider: Callable[[str], Any],
) -> Engine:
    cores = options["cores"] or workers or 1
    count = workers or options["gpus"] * workers_per_accelerator or cores
    return Engine(
        name=name,
        workers_per_node=count,
        threads=max(1, cores // count),
        nodes_per_block=options.get("nodes_per_block", 1),
        max_blocks=options["max_blocks"],
        provider=provider,
        worker_init=options["worker_init"],
        python=options["python"],
        address=options["address"],
        poll_seconds=options["poll_seconds"],
    )


def shell_lines(engine: Engine, environment: Mapping[str, str]) -> str:
    """Returns what comes before a pool in its shell: the environment, then the user's own lines."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    return "\n".join([*exports, engine.worker_init])
