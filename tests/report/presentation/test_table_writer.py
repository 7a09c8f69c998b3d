"""Tables in three notations: what stands in them, and that they parse."""

import csv
import io

import numpy as np
import pytest

from multiberts.report.presentation.formats import (
    PERCENT,
    POINTS,
    decimals_for,
    format_cell,
    with_decimals,
)
from multiberts.report.presentation.table_writer import Table
from multiberts.stats.intervals import Interval


@pytest.fixture
def table():
    return Table(
        ("Task", "Score", "CI", "n", "Note"),
        [("a_b", 0.12345678901, Interval(-0.5, 0.25), 12, "x|y"), ("50 %", None, None, 3, None)],
        {"Score": ".1%"},
        "Scores",
    )


def test_cells():
    cells = [0, 0.0, 1e-9, 0.0123, -0.5, 3.14159, 42.5, 1234.5, True, None, float("nan"), "-"]
    assert [format_cell(cell) for cell in cells] == [
        "0", "0", "1.0e-09", "0.0123", "-0.500", "3.142", "42.50", "1234.5", "yes", "-", "-", "-",
    ]  # fmt: skip
    assert format_cell(np.float64(0.5), ".2f") == "0.50"
    assert format_cell(-1e-9, ".1%") == "0.0%"
    assert format_cell(-0.01, ".1%") == "-1.0%"
    assert format_cell(Interval(-0.1, 0.2), ".0%") == "-10% to 20%"
    assert format_cell(Interval(-np.inf, np.inf)) == "no interval"
    p_values = [format_cell(cell, "p") for cell in (None, 0.00001, 0.0123)]
    assert p_values == ["-", "< 0.0001", "0.012"]


def test_markdown_columns_line_up(table):
    lines = table.markdown().splitlines()
    assert lines[:2] == ["**Scores**", ""]
    assert len({len(line) for line in lines[2:]}) == 1
    assert lines[2].split("|")[1].strip() == "Task"
    # Numbers stand to the right, text to the left.
    assert [cell[-1] for cell in lines[3].strip("|").split("|")] == ["-", ":", ":", ":", "-"]
    assert "x\\|y" in lines[4] and "12.3%" in lines[4] and "-0.500 to 0.250" in lines[4]


def test_latex_is_escaped_and_has_a_cell_a_column(table):
    text = table.latex()
    assert r"\begin{tabular}{lrrrl}" in text
    assert r"a\_b & 12.3\% & $-$0.500 to 0.250 & 12 & x|y \\" in text
    assert r"50 \% & -- & -- & 3 & -- \\" in text
    assert text.startswith("% Scores\n")


def test_csv_holds_numbers_in_full_and_intervals_in_two_columns(table):
    first, second = csv.DictReader(io.StringIO(table.csv()))
    assert float(first["Score"]) == 0.12345678901
    assert (float(first["CI low"]), float(first["CI high"])) == (-0.5, 0.25)
    assert first["Note"] == "x|y"
    assert (second["Score"], second["CI low"], second["n"]) == ("", "", "3")


def test_an_interval_and_its_estimate_have_the_decimals_of_its_width():
    """Two digits of half the interval; what is not 0 does not become it."""
    for low, high, decimals in ((0.92, 1.09, 3), (-4.0, 20.0, 0), (0.1, 0.9, 2)):
        assert decimals_for(Interval(low, high)) == decimals
    interval = Interval(-0.00004, 0.1238)
    shown = with_decimals(POINTS, decimals_for(interval, POINTS))
    assert [format_cell(cell, shown) for cell in (0.0619, interval)] == ["6.2", "-0.004 to 12.4"]
    assert decimals_for(Interval(0.5, 0.5)) is None
    assert with_decimals("", None) == ""


def test_what_rounding_leaves_of_zero_is_zero():
    assert format_cell(5.6e-16) == format_cell(-5.6e-16, PERCENT) == "0"
    assert format_cell(Interval(-5.6e-16, 0.25)) == "0 to 0.250"
    assert format_cell(3e-5) == "3.0e-05"
