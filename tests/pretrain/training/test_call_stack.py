"""How many files a reader goes through from the call of a stage to its innermost work."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import multiberts
from multiberts.pretrain.training.pretraining import pretrain
from multiberts.runs.environment import JAX, engine

Arguments = Callable[..., dict[str, Any]]
ROOT = Path(multiberts.__file__).parent


@pytest.mark.skipif(engine() == JAX, reason="the walk through TensorFlow's engine")
def test_the_optimiser_is_six_files_from_pretrain_and_the_loop_is_one_of_them(
    arguments: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from multiberts.bert.training import tensorflow_engine

    real, walks = tensorflow_engine.adam_updates, []

    def walking(*given: Any) -> Any:
        stack = [frame.filename for frame in traceback.extract_stack()[:-1]]
        # The optimiser's own file is the last.
        walks.append([*stack, real.__code__.co_filename])
        return real(*given)

    monkeypatch.setattr(tensorflow_engine, "adam_updates", walking)
    # A decay of its own: else a trainer of another test may be there, whose update has been traced.
    fields = {"weight_decay_rate": 0.0125, "compile_step": False, "num_steps": 1}
    pretrain(**arguments(tmp_path / "run", **fields))
    for walk in walks:
        ours = [Path(name).relative_to(ROOT) for name in walk if Path(name).is_relative_to(ROOT)]
        files = {str(name) for name in ours if name.parts[0] not in ("tests", ".venv")}
        assert "bert/training/loop.py" in files
        assert len(files) <= 6, sorted(files)
    assert walks
