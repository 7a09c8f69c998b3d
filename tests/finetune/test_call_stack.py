"""How many files a reader goes through from the command to the writing of predictions."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path
from typing import Any

import pytest

import multiberts
from multiberts.tests.finetune.conftest import Make
from multiberts.tests.tools import own_process

ROOT = Path(multiberts.__file__).parent


def files_at_predictions(*arguments: str) -> dict[str, list[str]]:
    """Our files on the stack where a command writes each file of predictions."""
    from multiberts.evaluate.prediction_files import prediction_file
    from multiberts.runs.command_line.command import main

    real, walks = prediction_file.write_atomically, {}

    def walking(path: Path, *given: Any) -> None:
        files = {frame.filename for frame in traceback.extract_stack()[:-1]}
        files.add(real.__code__.co_filename)
        ours = [Path(name).relative_to(ROOT) for name in files if Path(name).is_relative_to(ROOT)]
        walks[path.name] = [str(name) for name in ours if name.parts[0] not in ("tests", ".venv")]
        real(path, *given)

    prediction_file.write_atomically = walking
    with contextlib.suppress(SystemExit):
        main(arguments)
    return walks


@pytest.mark.slow
def test_a_prediction_file_is_six_files_from_the_command_line(
    tmp_path: Path, make_checkpoint: Make, pair_data: Path
) -> None:
    """Early predictions are made within the loop of training; those at the end, after it."""
    call = {
        "run_dir": tmp_path / "run", "checkpoint": make_checkpoint(), "task": "pair",
        "data_dir": pair_data, "prediction_epochs": [0.5], "num_epochs": 1, "max_train_examples": 64,
        "sequence_length": 16, "compile_step": False,
    }  # fmt: skip
    flags = [f"--{name}={value}" for name, value in call.items()]
    walks = own_process.call("finetune.test_call_stack:files_at_predictions", "finetune", *flags)
    assert set(walks) == {"dev@0.5.tfrecord", "dev.tfrecord"}
    for files in walks.values():
        assert {"runs/command_line/command.py", "finetune/finetuning.py", "runs/files.py"} <= {
            *files
        }
        assert len(files) <= 6, sorted(files)
