"""The demo's numbers in prose are those that `make demo` wrote, kept in docs/demo_run."""

import csv
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / "docs/demo_run"


def text_of(page: str) -> str:
    """Returns a page's text without line breaks and the comment signs of Gin."""
    return re.sub(r"\s*\n#?\s*", " ", (ROOT / page).read_text(encoding="utf-8"))


def slopes(file: str) -> dict[str, str]:
    """Returns the slope before and after, as prose quotes it."""
    with (RUN / file).open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["metric"] == "probe_slope"]
    assert all(row["holds"] == "True" for row in rows)
    return {
        row["procedure"].partition(",")[0]: "{:.2f} ({:.2f} to {:.2f})".format(
            *(float(row[name]) for name in ("estimate", "low", "high"))
        )
        for row in rows
    }


# The second was limited to older instructions, which round otherwise.
@pytest.mark.parametrize("file", ["truth.csv", "truth_avx2.csv"])
@pytest.mark.parametrize("page", ["README.md", "configs/demo.gin"])
def test_the_slopes_are_those_of_the_run(page: str, file: str) -> None:
    found = slopes(file)
    assert found.keys() == {"base", "cda_incr"}
    assert all(slope in text_of(page) for slope in found.values())


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "configs/demo.gin"])
def test_the_time_is_that_of_the_run(page: str) -> None:
    taken = json.loads((RUN / "time.json").read_text(encoding="utf-8"))
    assert taken["cores"] == 2
    cpu, wall = taken["cpu_seconds"] / 60, taken["wall_seconds"] / 60
    assert f"{cpu:.1f} CPU minutes, {wall:.1f} minutes on 2 free cores" in text_of(page)


def test_the_scores_are_those_of_the_run() -> None:
    with (RUN / "comparisons.csv").open(encoding="utf-8") as lines:
        rows = {
            row["metric"]: row for row in csv.DictReader(lines) if row["name"] == "Pre-training"
        }
    for metric, name in (("accuracy", "Facts: accuracy"), ("squad_f1", "Questions: F1")):
        before, after = (float(rows[metric][f"{arm}_estimate"]) for arm in ("base", "experiment"))
        expected = f"{name} {before:.2f} at step 0, {after:.2f} at the last step"
        assert expected in text_of("configs/demo.gin")
