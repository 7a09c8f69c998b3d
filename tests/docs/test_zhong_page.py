"""The table of docs/zhong.md has the numbers of docs/zhong_world.csv, which its program makes."""

import csv
import itertools
import re
from pathlib import Path

import numpy as np

from multiberts.benchmarks.instances_world import one_world

DOCS = Path(__file__).resolve().parents[2] / "docs"


def data() -> list[list[str]]:
    with (DOCS / "zhong_world.csv").open(encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def test_the_page_has_the_numbers_of_the_data() -> None:
    page = (DOCS / "zhong.md").read_text().partition("| table, quantity |")[2]
    shown = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    rows = []
    for _, members in itertools.groupby(data(), lambda row: re.sub(r" at [\d.]+ ", " ", row[0])):
        names, *columns = zip(*members, strict=True)
        buckets = " at 0.1 to 1.0 " if len(names) == 10 else None
        name = re.sub(r" at [\d.]+ ", buckets, names[0]) if buckets else names[0]
        cells = [", ".join(f"{float(cell):.3f}" for cell in column) for column in columns]
        rows.append([name, *cells])
    assert rows == shown


def test_the_program_still_makes_the_rows_of_the_data() -> None:
    names = [name for name, _, _ in one_world(np.random.default_rng(0), 200)]
    assert names == [row[0] for row in data()]
