"""The accelerators of this machine, seen without importing TensorFlow."""

from __future__ import annotations

import os
import subprocess

SECONDS_TO_ANSWER = 15.0


def ask_driver(*fields: str) -> list[str]:
    """Asks `nvidia-smi` for these fields; returns one comma-separated line per GPU."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_TO_ANSWER, check=True
    )
    return done.stdout.strip().splitlines()


def visible_gpus() -> list[str]:
    """Returns the GPUs that a process on this machine may use.

    Returns:
      The names in `CUDA_VISIBLE_DEVICES` where it is set (none if it is empty or -1), else the
      indices that the driver lists, else none.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = [name.strip() for name in named.split(",")]
        # CUDA ignores the names after an invalid one.
        names = names[: names.index("-1")] if "-1" in names else names
        return [name for name in names if name]
    try:
        return [line.strip() for line in ask_driver("index") if line.strip().isdigit()]
    except (OSError, subprocess.SubprocessError):
        return []


def gpu_of_worker(rank: int, gpus: list[str], workers_per_accelerator: int) -> str | None:
    """Returns the GPU of a worker, which other workers may share; None if there is none.

    Args:
      rank: the worker's number on its machine, from 0.
      workers_per_accelerator: number of workers that share one GPU.
    """
    return gpus[rank // workers_per_accelerator % len(gpus)] if gpus else None
