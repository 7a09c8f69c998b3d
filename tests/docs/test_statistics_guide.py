"""The blocks of docs/statistics.md run as they stand, in their order."""

import re
from pathlib import Path

import pytest

from multiberts.evaluate.metrics.register import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"


@pytest.mark.seconds
def test_every_block_runs_and_finds_what_was_put_in():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    result = names["result"]
    assert result.ci.low < 0.08 < result.ci.high  # the difference in skill, .78 - .70
    assert set(names["family"].comparisons) == {"one", "two"}
    # Ten times ten folds, and ten random splits that test 30 of 150 examples.
    assert names["difference"] == pytest.approx(0.0266, abs=5e-5)
    assert names["p_of_folds"] == pytest.approx(0.0757, abs=5e-5)
    # B3's estimates on a known curve are those of the table below the block.
    rows = re.findall(r"^\| (0\.\d+) \| (0\.550 .*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(rows) == len(names["estimates"])
    for p_0, cells in rows:
        printed = [float(cell) for cell in cells.split(" | ")]
        assert printed == pytest.approx(names["estimates"][float(p_0)], abs=6e-4)


def test_every_metric_is_named():
    line = re.search(r"Metrics by name: (.*?)\.", PAGE.read_text(), flags=re.DOTALL).group(1)
    assert {name.strip() for name in line.split(",")} == set(METRICS)
