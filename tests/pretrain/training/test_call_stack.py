"""How many files a reader goes through from the command line to the innermost work."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import multiberts
from multiberts.runs.environment import ENGINE, JAX, TENSORFLOW
from multiberts.tests.tools import own_process

Arguments = Callable[..., dict[str, Any]]
ROOT = Path(multiberts.__file__).parent


def files_at_the_update(*arguments: str) -> list[str]:
    """Our files on the stack where a command's optimiser computes its update."""
    from multiberts.bert.training import trainer
    from multiberts.runs.command_line.command import main

    real, files = trainer.adam_updates, set()

    def walking(*given: Any) -> Any:
        # The optimiser's own file is the last.
        walked = [frame.filename for frame in traceback.extract_stack()[:-1]]
        files.update([*walked, real.__code__.co_filename])
        return real(*given)

    trainer.adam_updates = walking
    with contextlib.suppress(SystemExit):
        main(arguments)
    ours = [Path(name).relative_to(ROOT) for name in files if Path(name).is_relative_to(ROOT)]
    return [str(name) for name in ours if name.parts[0] not in ("tests", ".venv")]


@pytest.mark.slow
@pytest.mark.parametrize("engine", [TENSORFLOW, pytest.param(JAX, marks=pytest.mark.slow)])
def test_the_optimiser_is_six_files_from_the_command_line_and_the_loop_is_one_of_them(
    arguments: Arguments, tmp_path: Path, engine: str
) -> None:
    pytest.importorskip(engine, reason=f"needs {engine}")
    call = arguments(tmp_path / "run", compile_step=False, num_steps=1)
    flags = [f"--gin_param=pretrain.{name} = {value!r}" for name, value in call.items()]
    files = own_process.call(
        "pretrain.training.test_call_stack:files_at_the_update",
        "pretrain",
        *flags,
        **{ENGINE: engine},
    )
    assert {
        "runs/command_line/command.py",
        "bert/training/training_loop.py",
        "bert/model/optimization.py",
    } <= {*files}
    assert len(files) <= 6, sorted(files)
