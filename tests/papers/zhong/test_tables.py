"""Tables of a small world: the numbers found, and notations that parse."""

import csv
import io

import numpy as np
import pytest

from multiberts.papers.zhong.analysis import analyse_sizes
from multiberts.papers.zhong.ensembles import ensemble
from multiberts.papers.zhong.instance_level import (
    decay_bound,
    improvement_bound,
    relative_threshold_bias,
)
from multiberts.papers.zhong.tables import all_tables

PAIR = ("NLI", "mini", "large")


def test_tables_hold_the_results(analysis):
    tables = all_tables(analysis)
    assert list(tables) == [
        "accuracy", "decay", "bounds", "relative_bias", "thresholds", "seeds", "improvement",
        "decomposition", "disagreement", "momentum", "momentum_index",
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(tables["decay"].csv())))
    assert len(rows) == 6
    for row, pair in zip(rows, analysis.pairs, strict=True):
        assert float(row["Decay, ensembled"]) == pair.decay.bound
        assert float(row["Corrected (95% CI) low"]) == pair.decay_bias.low
    assert rows[3]["Decay, one pre-training seed"] == ""
    loss = list(csv.DictReader(io.StringIO(tables["decomposition"].csv())))
    for row in loss:
        parts = [float(row[name] or 0) for name in ("Bias squared", "Pre-training", "Fine-tuning")]
        assert sum(parts) == pytest.approx(float(row["Mean loss"]))
    row = next(csv.DictReader(io.StringIO(tables["momentum"].csv())))
    found = analysis.momenta["NLI"]["mini", "medium", "large"]
    assert float(row["r (95% CI) low"]) == found.low < float(row["r"]) == found.r
    index = list(csv.DictReader(io.StringIO(tables["momentum_index"].csv())))
    assert not [name for name in index[0] if "CI" in name]
    names = [row["Accuracy of the middle"] for row in index[:11]]
    assert names == [*(f"{10 * low} to {10 * low + 10} %" for low in range(10)), "all"]
    assert index[11]["Accuracy of the middle"] == "not held equal"
    for table in tables.values():
        assert len({line.count(" & ") for line in table.latex().splitlines() if " & " in line}) == 1
        assert len(table.markdown().splitlines()) == len(table.rows) + 4


def test_improving_stands_above_the_diagonal_and_decaying_below(sizes, analysis):
    bounds, bias = (
        {(row["Task"], row["From"]): row for row in csv.DictReader(io.StringIO(table.csv()))}
        for table in map(all_tables(analysis).get, ("bounds", "relative_bias"))
    )
    small, large = sizes["mini"], sizes["large"]
    up, down = bounds["NLI", "mini"]["To large"], bounds["NLI", "large"]["To mini"]
    assert float(up) == improvement_bound(small, large).bound > float(down) > 0
    assert float(down) == decay_bound(small, large).bound
    rows = csv.DictReader(io.StringIO(all_tables(analysis)["decay"].csv()))
    (row,) = (row for row in rows if (row["Task"], row["Smaller"], row["Larger"]) == PAIR)
    assert row["Decay, all runs"] == down
    assert bounds["NLI", "mini"]["To mini"] == ""
    votes = ensemble(small), ensemble(large)
    found = relative_threshold_bias(*votes, "improvement", 40)
    assert float(bias["NLI", "mini"]["To large"]) == found
    assert float(bias["NLI", "large"]["To mini"]) == relative_threshold_bias(*votes, "decay", 40)


def test_disagreement_is_twice_the_variances_in_the_table(analysis):
    table = all_tables(analysis)["disagreement"]
    parts = analysis.decompositions["NLI", "0/1"]["large"].parts
    row = next(row for row in table.rows if row[:3] == ("NLI", "0/1", "large"))
    assert row[3] == pytest.approx(2 * parts["finetune_seed"].mean)
    assert row[4] == pytest.approx(2 * (parts["finetune_seed"].mean + parts["pretrain_seed"].mean))


def test_standard_errors_follow_the_answers(analysis):
    """So that the ratios of section 6 are on the screen without scrolling."""
    columns = all_tables(analysis)["decomposition"].columns
    errors = [column.startswith("SE ") for column in columns]
    assert errors == sorted(errors) and "Fine-tuning / pre-training" in columns


def test_a_bound_of_zero_has_no_threshold():
    sizes = {"small": np.zeros((2, 10), int), "large": np.ones((2, 10), int)}
    found = analyse_sizes({"NLI": sizes}, n_resamples=40, with_curves=False)
    table = all_tables(found)["decay"]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["Decay, ensembled"], row["Threshold"]) == (0, None)
