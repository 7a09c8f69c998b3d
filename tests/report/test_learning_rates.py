"""The printed choice of learning rates, from prediction files on disk."""

import numpy as np
import pytest

from multiberts.report.selection import learning_rates
from multiberts.runs.errors import UserError
from multiberts.tests.worlds import write_run


def write(root, rate, right, fold=None):
    """A finished run with so many of ten right, on every set it has."""
    sets = {
        name: {"labels": np.ones(10), "predictions": (np.arange(10) < right[name]).astype(float)}
        for name in (["dev"] if fold is None else ["dev", "held_out"])
    }
    parameters = {"learning_rate": rate} | ({} if fold is None else {"held_out_fold": fold})
    facts = {"step": 5, "learning_rate": rate, "parameters": parameters}
    write_run(root / f"{rate}-{fold}", sets, **facts)


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
