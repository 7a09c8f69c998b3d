"""How many files a reader goes through from the command to the writing of predictions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import multiberts

ROOT = Path(multiberts.__file__).parent
# Prints the files on the stack, from the outermost, wherever a file of predictions is written.
PROGRAM = """
import json, sys, traceback
from multiberts.evaluate.dumps import prediction_file
write, walks = prediction_file.write_atomically, []
def walking(path, content):
    stack = [frame.filename for frame in traceback.extract_stack()[:-1]]
    walks.append([path.name, *stack, write.__code__.co_filename])
    return write(path, content)
prediction_file.write_atomically = walking
from multiberts.runs.command import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(walks))
"""


def test_a_prediction_file_is_six_files_from_the_command_line(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    """Early predictions are made within the loop of training; those at the end, after it."""
    call = {
        "run_dir": tmp_path / "run", "checkpoint": make_checkpoint(), "task": "pair",
        "data_dir": pair_data, "prediction_epochs": [0.5], "num_epochs": 1, "max_steps": 2,
        "max_train_examples": 64, "sequence_length": 16, "compile_step": False,
    }  # fmt: skip
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, "finetune", "-q", *(f"--{k}={v}" for k, v in call.items())],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    walks = {name: stack for name, *stack in json.loads(found.stdout.splitlines()[-1])}
    assert set(walks) == {"dev@0.5.tfrecord", "dev.tfrecord"}
    for stack in walks.values():
        ours = [Path(name).relative_to(ROOT) for name in stack if Path(name).is_relative_to(ROOT)]
        files = {str(path) for path in ours if path.parts[0] != ".venv"}
        assert {"runs/command.py", "finetune/finetune.py"} <= files
        assert len(files) <= 6, sorted(files)
