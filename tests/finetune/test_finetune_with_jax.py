"""Fine-tuning and prediction with JAX give the numbers of TensorFlow, up to rounding."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.prediction_file import read_file
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_checks import find_all
from multiberts.evaluate.prediction_files.run_file import read_run
from multiberts.evaluate.scoring import scores_of
from multiberts.runs.environment import ENGINE, ENGINES
from multiberts.tests.finetune.conftest import Make
from multiberts.tests.finetune.squad.test_task import squad_content
from multiberts.tests.tools.patience import PATIENCE

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs JAX: the extra jax"
)

# Imports of the other engine fail.
COMMAND = """
import sys
sys.modules[{other!r}] = None
from multiberts.runs.command_line.command import main
main(sys.argv[1:])
"""


@pytest.fixture
def runs_of_both(tmp_path: Path, make_checkpoint: Make) -> Callable[..., list[Path]]:
    """Fine-tunes one checkpoint with each engine; returns the run directories, TensorFlow's first."""

    def run(task: str, data_dir: Path, **flags: object) -> list[Path]:
        checkpoint = make_checkpoint()
        given = {"checkpoint": checkpoint, "task": task, "data_dir": data_dir, **flags}
        runs = [tmp_path / "runs" / engine for engine in ENGINES]
        for engine, other, run_dir in zip(ENGINES, ENGINES[::-1], runs, strict=True):
            arguments = [
                f"--{name}={value}" for name, value in {"run_dir": run_dir, **given}.items()
            ]
            done = subprocess.run(
                [sys.executable, "-c", COMMAND.format(other=other), "finetune", *arguments],
                env={**os.environ, ENGINE: engine},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, done.stderr[-3000:]
        return runs

    return run


@pytest.mark.slow
def test_both_engines_predict_alike(
    runs_of_both: Callable[..., list[Path]], pair_data: Path
) -> None:
    """Dropout is on, a batch has parts of two lengths, and five epochs learn something."""
    runs = runs_of_both(
        "pair", pair_data, learning_rate=0.002, batch_size=16, sequence_length=32, num_epochs=5
    )
    scores = [read_predictions([run], "dev")["scores"].values for run in runs]
    assert np.abs(scores[0] - scores[1]).max() < 1e-3
    assert np.ptp(scores[0]) > 0.1, "nothing was learned"
    contents = [(run, read_run(run)) for run in runs]
    assert [content["engine"] for _, content in contents] == list(ENGINES)
    assert [finding.check for finding in find_all(contents)] == ["repeated run", "mixed engines"]


@pytest.mark.slow
def test_both_engines_resolve_pronouns_alike(
    runs_of_both: Callable[..., list[Path]], coreference_data: Path
) -> None:
    """The encoder is frozen: its states, too, are those of each engine."""
    flags = {"learning_rate": 0.003, "sequence_length": 48, "options": "{'num_hidden_units': 32}"}
    runs = runs_of_both("coreference", coreference_data, batch_size=16, num_epochs=10, **flags)
    scores = [read_predictions([run], "dev")["scores"].values for run in runs]
    assert np.abs(scores[0] - scores[1]).max() < 1e-3
    assert np.ptp(scores[0]) > 0.1, "nothing was learned"


@pytest.mark.slow
def test_both_engines_find_the_same_answers(
    runs_of_both: Callable[..., list[Path]], tmp_path: Path
) -> None:
    folder = tmp_path / "squad"
    folder.mkdir()
    for split, number in (("train", 96), ("dev", 30)):
        content = squad_content(split, number, unanswerable=False)
        (folder / f"{split}-v1.1.json").write_text(json.dumps(content))
    options = "{'max_query_length': 4, 'doc_stride': 6, 'n_best_size': 8}"
    flags = {"learning_rate": 0.002, "sequence_length": 24, "options": options}
    runs = runs_of_both("squad-v1.1", folder, batch_size=16, num_epochs=10, **flags)
    found = [read_file(run / "predictions" / "dev.tfrecord").outputs for run in runs]
    for name in ("start", "end"):
        assert found[0][name].tolist() == found[1][name].tolist()
    assert scores_of(runs[1], "dev")["squad_f1"] > 0.9
