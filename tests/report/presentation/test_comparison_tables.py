"""Tables: what they say of a comparison that is known, and that they parse."""

import csv
import io

import numpy as np
import pytest
import xarray

from multiberts.report.presentation.comparison_tables import FULL_COLUMNS, full_table, summary_table
from multiberts.report.presentation.reported import judged
from multiberts.stats import compare
from multiberts.tests.worlds import changed


def side(shift):
    values = shift + np.random.default_rng(0).normal(size=(4, 10))
    values += 1e-6 * np.arange(10) * shift  # differences hardly vary
    return xarray.DataArray(
        values, dims=("pretrain_seed", "example"), coords={"pretrain_seed": range(4)}
    )


@pytest.fixture(scope="module")
def comparison():
    return compare(
        side(0.0), side(-0.25), "mean", labels=xarray.DataArray(np.zeros(10), dims="example"),
        n_resamples=99,
    ).named("old", "new", name="a|b", evaluation_set="x_y & z")  # fmt: skip


def test_csv_holds_every_interval_test_and_effect(comparison):
    (row,) = csv.DictReader(io.StringIO(full_table([comparison]).csv()))
    assert tuple(row) == FULL_COLUMNS and row["name"] == "a|b"
    assert (float(row["estimate"]), float(row["ci_low"])) == (
        comparison.estimate,
        comparison.ci.low,
    )
    ends = tuple(float(row[f"intervals_percentile_{end}"]) for end in ("low", "high"))
    assert ends == comparison.intervals["percentile"]
    for test in ("t", "percentile", "published", "sign flip"):
        column = f"p_values_{test.replace(' ', '_')}"
        sides = [float(row[f"{column}_{side}"]) for side in ("greater", "less", "two_sided")]
        assert tuple(sides) == comparison.p_values[test]
    assert row["p_values_permutation_two_sided"] == ""  # the design is paired
    assert float(row["bias"]) == comparison.bias
    assert float(row["experiment_bootstrap_mean"]) == comparison.samples[:, 1].mean()
    sized = changed(comparison, hedges_g=0.25)
    (row,) = csv.DictReader(io.StringIO(full_table([sized]).csv()))
    assert row["hedges_g"] == "0.25"
    single = changed(comparison, experiment=None, p_values={})
    (row,) = csv.DictReader(io.StringIO(full_table([single]).csv()))
    assert row["p_value"] == row["experiment_estimate"] == ""
    plain = changed(comparison, hedges_g=None, intervals={})
    (row,) = csv.DictReader(io.StringIO(full_table([plain]).csv()))
    assert row["hedges_g"] == row["intervals_percentile_high"] == ""


def test_markdown_has_as_many_cells_in_every_row(comparison):
    lines = summary_table(judged([comparison, comparison])).markdown().splitlines()
    assert len(lines) == 4
    assert {line.replace("\\|", "").count("|") for line in lines} == {9}
    assert "a\\|b" in lines[2]
    assert "-0.250 (-0.250 to -0.250)" in lines[2]
    assert "Difference (95% CI)" in lines[0]


def test_latex_is_escaped(comparison):
    text = summary_table(judged([comparison])).latex()
    assert r"x\_y \& z" in text
    assert "$-$0.250 ($-$0.250 to $-$0.250)" in text
    assert text.count("&") == 2 * 7 + 1
    assert r"95\% CI" in text
