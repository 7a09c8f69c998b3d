"""Measures the time to save the state of a preempted run of BERT-Base's size on this machine's disk.

    python -m benchmarks.preemption_saving

Starts `multiberts pretrain` with a run directory in a bucket (a folder, by its `file://` URL), on a model
whose state is as large as that of BERT-Base, and sends SIGTERM once it trains. Prints the seconds until the
state is on the disk and until the process has pushed it and left. Sequences are tiny, so a step is far
shorter than on real data: the step that runs when the notice comes is to be added.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from multiberts.bert.training.log import METRICS
from multiberts.bert.training.state import STATE
from multiberts.runs import console
from multiberts.runs.bucket.mirror import local_copy
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.tools.stress_resume import (
    ARGUMENTS,
    last_logged_step,
    make_corpora,
)

# The corpus has a vocabulary of 50 word pieces: four more layers weigh as much as the 30,522 of BERT-Base,
# whose state has 3 x 110 M float32 numbers.
_MODEL = {
    "hidden_size": 768,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 32,
}
_BYTES_OF_BASE = 3 * 4 * 110_106_428
_STEPS_BEFORE = 2


def main() -> int:
    """Runs the measurement; returns 1 if the state is smaller than BERT-Base's or was not saved."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["RUNS_MIRROR"] = str(folder / "mirror")
        bucket = Bucket(f"file://{folder}/bucket/run")
        arguments = {
            **ARGUMENTS,
            **make_corpora(folder),
            "model": _MODEL,
            "batch_size": 2,
            "save_state_every_steps": ARGUMENTS["num_steps"],
            "checkpoint_steps": [],
            "run_dir": f"file://{folder}/bucket/run",
        }
        command = [sys.executable, "-m", "multiberts.pretrain"]
        command += [f"--gin_param=pretrain.{name} = {value!r}" for name, value in arguments.items()]
        process = subprocess.Popen(command)
        local = local_copy(bucket)

        def wait(until: Callable[[], bool]) -> float:
            while not until() and process.poll() is None:
                time.sleep(0.01)
            return time.monotonic()

        wait(lambda: (local / METRICS).exists() and last_logged_step(local) >= _STEPS_BEFORE)
        noticed = time.monotonic()
        process.send_signal(signal.SIGTERM)
        saved = wait(lambda: any((local / STATE).glob("step_*.npz"))) - noticed
        status = process.wait()
        pushed = time.monotonic() - noticed
        states = {name: facts for name, facts in bucket.list().items() if STATE in name}
        size = sum(facts["size"] for facts in states.values())
    if status != EXIT_PREEMPTED or size < _BYTES_OF_BASE:
        console.report(f"exit code {status}, {size} bytes of state in the bucket")
        return 1
    console.report(
        f"{size / 1e9:.2f} GB of state: on the disk after {saved:.1f} s, pushed and left after {pushed:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
