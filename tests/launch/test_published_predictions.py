"""Predictions that others published, as runs of a plan."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.runs.errors import UserError
from multiberts.tests.tools import warm


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Two seeds on RTE, as the MultiBERTs' predictions are published."""
    folder = tmp_path / "GLUE"
    name = "release=multiberts,pretrain_id={},n_steps=2M,lr=2e-05,ft_seed=0.tsv"
    (folder / "RTE").mkdir(parents=True)
    rows = ["file\ttask\tpretrain_id\tn_steps\tlr\tft_seed\trelease"]
    for seed in (0, 1):
        table = np.random.default_rng(seed).random((6, 2))
        np.savetxt(folder / "RTE" / name.format(seed), table, delimiter="\t")
        rows.append(f"RTE/{name.format(seed)}\tRTE\t{seed}\t2M\t2e-05\t0\tmultiberts")
    (folder / "index.tsv").write_text("\n".join(rows) + "\n")
    (folder / "RTE_dev_labels").write_text("0\n1\n1\n0\n1\n0\n")
    return folder


def test_predictions_are_scored_by_the_same_command_that_imports_them(
    tmp_path: Path, release: Path
) -> None:
    """The only launch without training whose report is made by real workers."""
    root = tmp_path / "root"
    predictions = json.dumps([{"layout": "multiberts", "source": str(release)}])
    run = ["launch", "run", f"--root={root}", f"--predictions={predictions}", "--workers=1"]
    done = warm.run(run)
    assert done.returncode == 0, done.stderr
    scores = pd.read_csv(root / "scores" / "scores.csv")
    assert set(zip(scores["procedure"], scores["pretrain_seed"], strict=True)) == {
        ("base", 0), ("base", 1),
    }  # fmt: skip
    assert len(find_runs(root / "predictions")) == 2


def test_identity_is_what_predictions_hold_not_where_they_lie(release: Path) -> None:
    def path(folder: Path) -> str:
        given = {"layout": "multiberts", "source": str(folder)}
        return make_plan(Experiment(predictions=[given]))[0].path

    before = path(release)
    moved = release.rename(release.parent.parent / "GLUE")
    assert path(moved) == before
    (moved / "RTE_dev_labels").write_text("1\n1\n1\n0\n1\n0\n")
    assert path(moved) != before
    with pytest.raises(UserError, match="import GLUE lacks import_predictions.layout; give it in"):
        make_plan(Experiment(predictions=[{"source": str(moved)}]))
