"""Fine-tuning and prediction with JAX give the numbers of TensorFlow, up to rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.dumps.predictions import read_predictions
from multiberts.evaluate.dumps.run_checks import find_all
from multiberts.evaluate.dumps.run_file import read_run
from multiberts.runs.environment import ENGINE, ENGINES
from multiberts.tests.patience import PATIENCE

pytest.importorskip("jax", reason="needs JAX: pip install -r requirements-jax.txt")

# Imports of the other engine fail.
COMMAND = """
import sys
sys.modules[{other!r}] = None
from multiberts.runs.command import main
main(sys.argv[1:])
"""


def test_both_engines_predict_alike(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    """Dropout is on, a batch has parts of two lengths, and five epochs learn something."""
    checkpoint = make_checkpoint()
    for engine, other in (ENGINES, ENGINES[::-1]):
        flags = [
            f"--run_dir={tmp_path / 'runs' / engine}",
            f"--checkpoint={checkpoint}",
            "--task=pair",
            f"--data_dir={pair_data}",
            "--learning_rate=0.002",
            "--batch_size=16",
            "--sequence_length=32",
            "--num_epochs=5",
        ]
        done = subprocess.run(
            [sys.executable, "-c", COMMAND.format(other=other), "finetune", *flags],
            env={**os.environ, ENGINE: engine},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    runs = [tmp_path / "runs" / engine for engine in ENGINES]
    scores = [read_predictions([run], "dev")["scores"].values for run in runs]
    assert np.abs(scores[0] - scores[1]).max() < 1e-3
    assert np.ptp(scores[0]) > 0.1, "nothing was learned"
    contents = [(run, read_run(run)) for run in runs]
    assert [content["engine"] for _, content in contents] == list(ENGINES)
    assert [finding.check for finding in find_all(contents)] == ["repeated run", "mixed engines"]
