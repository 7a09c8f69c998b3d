"""The accelerators of this machine, seen without importing TensorFlow."""

from __future__ import annotations

import os
import subprocess

SECONDS_TO_ANSWER = 20


def visible_gpus() -> list[str]:
    """Returns the GPUs that a process started here may use, as `CUDA_VISIBLE_DEVICES` names them.

    Returns:
      What that variable says where it is set (nothing if it is empty or -1), else the indices that
      `nvidia-smi` lists, else nothing.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = [name.strip() for name in named.split(",")]
        # As CUDA has it: what follows an invalid name is not seen.
        names = names[: names.index("-1")] if "-1" in names else names
        return [name for name in names if name]
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=SECONDS_TO_ANSWER,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in found.stdout.splitlines() if line.strip().isdigit()]


def gpu_of_worker(rank: int, gpus: list[str], workers_per_accelerator: int) -> str | None:
    """Returns which GPU a worker has to itself, or shares with its neighbours.

    Args:
      rank: the worker's number on its machine, from 0.
      gpus: as `visible_gpus` gives them.
      workers_per_accelerator: how many share one.

    Returns:
      The GPU's name; None where there is none.
    """
    return gpus[rank // workers_per_accelerator % len(gpus)] if gpus else None
