"""The printed choice of learning rates, from prediction files on disk."""

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.prediction_file import write_predictions
from multiberts.evaluate.prediction_files.run_file import evaluation_entry, write_run
from multiberts.report.selection import learning_rates
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError


def write(root, rate, right, fold=None):
    """A finished run with so many of ten right, on every set it has."""
    path = root / f"{rate}-{fold}"
    parameters = {"learning_rate": rate} | ({} if fold is None else {"held_out_fold": fold})
    with RunDirectory(path, stage="finetune", parameters=parameters) as run:
        entries = {}
        for name in ["dev"] if fold is None else ["dev", "held_out"]:
            file = f"predictions/{name}.tfrecord"
            write_predictions(
                path / file,
                example_ids=[f"{name}/{n}" for n in range(10)],
                labels=np.ones(10),
                predictions=(np.arange(10) < right[name]).astype(float),
            )
            entries[name] = evaluation_entry(path, file, examples=10, metrics=["accuracy"])
        facts = {"procedure": "base", "pretrain_seed": 0, "data_seed": 0, "step": 5}
        content = {"task": "t", "evaluation_sets": entries, "parameters": parameters, **facts}
        write_run(path, {**content, "learning_rate": rate, "finetune_seed": 0})
        run.finish(["run.json", *(entry["file"] for entry in entries.values())])


def test_the_table_marks_the_best_by_the_rule_asked_for(tmp_path, capsys):
    write(tmp_path, 1e-3, {"dev": 7})
    write(tmp_path, 2e-3, {"dev": 5})
    write(tmp_path, 1e-3, {"dev": 7, "held_out": 4}, fold=0)
    write(tmp_path, 2e-3, {"dev": 5, "held_out": 6}, fold=0)
    learning_rates(predictions=str(tmp_path), rule="dev")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "t, base, step 5: accuracy on dev",
        "  0.001    0.7000  <- best",
        "  0.002    0.5000",
    ]
    learning_rates(predictions=[str(tmp_path)], rule="held_out")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("held_out: ")
    assert lines[2:] == ["  0.001    0.4000", "  0.002    0.6000  <- best"]
    with pytest.raises(UserError, match="found no finished run"):
        learning_rates(predictions=str(tmp_path / "0.001-None/predictions"), rule="dev")
