"""Trains the seeds of a node in a process of its own: one, or several of one procedure together.

`python -m multiberts.launch.tpu.trainer runs.json outcomes.json SECONDS PIPE`, with heartbeats to the pipe.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from multiberts.launch.workers.heartbeats import write_heartbeats
from multiberts.launch.workers.worker import Call, asked_to_stop, call_stage
from multiberts.runs.environment import engine
from multiberts.runs.files import write_atomically


def train(runs: Path, outcomes: Path) -> None:
    """Carries out runs as a worker does, and writes the outcome and error of each.

    Args:
      runs: a JSON file with the fields of a `Call` for each.
      outcomes: the JSON file to write, with an `Outcome` for each.
    """
    engine()  # before anything imports Keras
    calls = [Call(**fields) for fields in json.loads(runs.read_text())]
    with asked_to_stop() as notice:
        found = call_stage(calls, notice)
    write_atomically(outcomes, json.dumps(found))


if __name__ == "__main__":
    _runs, _outcomes, _seconds, _pipe = sys.argv[1:]
    write_heartbeats(int(_pipe), float(_seconds))
    train(Path(_runs), Path(_outcomes))
