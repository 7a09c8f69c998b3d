"""The real run: its page holds the tables that its command wrote, and prose says what they say."""

import csv
import json
import re
from datetime import date
from pathlib import Path

import pytest

from multiberts.stats import adjusted_p_values

ROOT = Path(__file__).parents[2]
FOLDERS = ("seeds_0_to_2", "seeds_3_to_5")
TEXT = (ROOT / "docs/real_tasks.md").read_text(encoding="utf-8")


def table_of(folder: str) -> list[str]:
    """The lines that the command wrote, without those of one arm alone."""
    text = (ROOT / "docs/real_run" / folder / "comparisons.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("| Last step alone")]


def rows_of(folder: str) -> list[dict[str, str]]:
    """The numbers behind that table, with p-values corrected for their number."""
    path = ROOT / "docs/real_run" / folder / "comparisons.csv"
    with path.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["design"] == "paired"]
    holm = adjusted_p_values([float(row["p_value"]) for row in rows], "holm")
    return [{**row, "holm": str(p)} for row, p in zip(rows, holm, strict=True)]


def better(folder: str) -> set[str]:
    """The evaluation sets and metrics on which the last step is clearly better."""
    return {
        f"{row['evaluation_set']} {row['metric']}"
        for row in rows_of(folder)
        if float(row["holm"]) < 0.05 and (float(row["estimate"]) > 0) != (row["metric"] == "mse")
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_page_holds_the_table_that_the_command_wrote(folder: str) -> None:
    assert "\n".join(table_of(folder)) in TEXT


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_table_is_that_of_the_numbers(folder: str) -> None:
    rows = rows_of(folder)
    lines = [line for line in table_of(folder) if line.startswith("| Last step")]
    assert len(rows) == len(lines) == 14
    for row, line in zip(rows, lines, strict=True):
        shown = [cell.strip() for cell in line.strip("|").split(" | ")]
        holm = float(row["holm"])
        assert shown[-2].strip() == ("< 0.0001" if holm < 1e-4 else f"{holm:.2g}")
        scale = 100 if "(%)" in shown[2] else 1
        for cell, name in ((shown[3], "base_estimate"), (shown[4], "experiment_estimate")):
            decimals = len(cell.partition(".")[2])
            assert float(cell) == pytest.approx(scale * float(row[name]), abs=0.51 * 10**-decimals)


@pytest.mark.parametrize("folder", FOLDERS)
def test_three_tasks_are_clearly_better(folder: str) -> None:
    assert len({name.partition("/")[0] for name in better(folder)}) >= 3


def test_the_page_says_when_and_from_what_the_tables_are() -> None:
    for folder in FOLDERS:
        facts = json.loads((ROOT / "docs/real_run" / folder / "made_with.json").read_text())
        assert re.fullmatch("[0-9a-f]{40}", facts["Commit"])
        assert facts["Commit"][:7] in TEXT
        assert f"{date.fromisoformat(facts['Date of the data'][:10]):%d %B %Y}" in TEXT


def test_the_page_on_the_stages_quotes_the_table() -> None:
    text = " ".join((ROOT / "docs/stages.md").read_text(encoding="utf-8").split())
    found = {f"{row['evaluation_set']} {row['metric']}": row for row in rows_of(FOLDERS[0])}
    for name, words in {
        "coreference/gap f1": "({:.1f} points, 95 % interval {:.1f} to {:.1f})",
        "SST-2/dev accuracy": "SST-2 by {:.1f} points ({:.1f} to {:.1f})",
        "QNLI/held_out accuracy": "QNLI by {:.1f} ({:.1f} to {:.1f})",
    }.items():
        numbers = [100 * float(found[name][key]) for key in ("estimate", "ci_low", "ci_high")]
        assert words.format(*numbers) in text
        assert name in better(FOLDERS[0])
