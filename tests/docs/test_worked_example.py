"""The worked example: its page is what its program prints, and its prose says what the numbers say."""

import dataclasses
import importlib.util
import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

from multiberts.docs.worked_example_parts.data import right
from multiberts.stats.variance.components import variance_components

pytestmark = pytest.mark.seconds

DOCS = Path(__file__).parents[2] / "docs"


def load_program():
    spec = importlib.util.spec_from_file_location("worked_example", DOCS / "worked_example.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["worked_example"] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    return module


program = load_program()


@pytest.fixture(scope="module")
def data(shared_data):
    return program.load(shared_data)


@pytest.fixture(scope="module")
def page(data):
    return program.page(data, program.TEMPLATE.read_text(encoding="utf-8"))


def table(page, section):
    """The table that a section prints, as rows of cells by column; numbers as numbers."""
    text = page.split(f"--section {section}` prints\n\n")[1]
    lines = list(itertools.takewhile(lambda line: line.startswith("|"), text.splitlines()))
    columns, _, *rows = (
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines
    )  # fmt: skip
    return [dict(zip(columns, map(number, row), strict=True)) for row in rows]


def number(cell):
    found = re.fullmatch(r"(-?[\d.]+(?:e-?\d+)?)(%?)", cell.replace(",", ""))
    return float(found[1]) if found else cell


@pytest.mark.slow
def test_the_committed_page_is_what_the_program_prints(page):
    assert program.PAGE.read_text(encoding="utf-8") == page


def test_every_section_and_figure_has_its_place_in_the_page():
    page = program.PAGE.read_text(encoding="utf-8")
    assert "{{" not in page
    assert re.findall(r"--section (\w+)` prints", page) == list(program.SECTIONS)
    images = re.findall(r"!\[[^\]]+\]\((\S+)\)", page)
    assert images == [f"worked_example_{name}.png" for name in program.FIGURES]
    for image in images:
        content = (DOCS / image).read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) < 100_000


def test_data_are_what_their_description_says(data):
    for name, runs in (("mnli", data.mnli), ("hans", data.hans)):
        np.testing.assert_array_equal(right(runs).mean(axis=1), data.reported[name])
    assert data.number_right.mean() / 100 == pytest.approx(0.8433928, abs=5e-8)
    assert data.hundred["MNLI dev acc."].mean() == pytest.approx(0.8433928, abs=5e-8)
    assert data.hundred.shape[0] == 100
    assert len(data.correct) == 12


@pytest.mark.slow
def test_agreement_is_that_of_all_pairs(data, page):
    answers = data.hans["prediction"].to_numpy()
    pairs = [np.mean(one == other) for one, other in itertools.combinations(answers, 2)]
    assert table(page, "agreement")[1]["Two seeds agree"] == round(100 * np.mean(pairs), 1)


def test_components_from_margins_equal_those_of_the_whole_table(data):
    random = np.random.default_rng(0)
    easy, good = random.normal(1, 1, 300), random.normal(0, 0.3, 100)
    scores = (easy + good[:, None] + random.normal(0, 1, (100, 300)) > 0).astype(float)
    known = dataclasses.replace(
        data,
        hundred=pandas.DataFrame({"MNLI dev acc.": scores.mean(axis=1)}),
        number_right=scores.sum(axis=0),
    )
    text = f"--section margins` prints\n\n{program.components_from_margins(known)}"
    row, parts = table(text, "margins")[1], variance_components(scores)
    for column, value in (
        ("Seed", parts.seed),
        ("Example", parts.example),
        ("Residual", parts.residual),
    ):
        assert row[column] == pytest.approx(value, rel=0.05)


@pytest.mark.slow
def test_prose_on_seeds_and_examples(page):
    spread = {row["Examples"]: row for row in table(page, "agreement")}
    assert 6 < spread["HANS"]["SD over seeds"] / spread["MNLI"]["SD over seeds"] < 7
    lexical = spread["HANS, lexical overlap, not entailed"]
    assert lexical["Best seed"] > 75 and lexical["Worst seed"] < 51
    for row in table(page, "published_agreement"):
        one, two = row["MultiBERTs, one checkpoint"], row["MultiBERTs, two checkpoints"]
        assert abs(row["These ten seeds"] - one) < 2 < one - two
    mnli, hans, _ = table(page, "components")
    assert mnli["examples"] > 90 and hans["Share in a mean of 10 seeds: seeds"] > 70
    ten, hundred = table(page, "components_from_margins")
    assert ten["Seed"] == hundred["Seed"]
    for row in table(page, "hundred_runs"):
        low, high = (float(end.strip("%")) for end in row["95% CI of it"].split(" to "))
        assert low <= row["SD of 100"] <= high
    mnli, premises, hans, templates, _ = (row["Width"] for row in table(page, "clusters"))
    assert premises < 1.1 * mnli and templates > 10 * hans


@pytest.mark.slow
def test_prose_on_coverage(page):
    rows = table(page, "coverage")
    *plain, skewed = (rows[start : start + 3] for start in (0, 3, 6, 9))
    for group in plain:
        assert all(92 <= row["t"] <= 95 for row in group)
        for row, (low, high) in zip(group, ((70, 75), (81, 86), (89, 92)), strict=True):
            assert low <= row["Percentile"] <= high
    assert all(row["t"] < 85 for row in skewed)


@pytest.mark.slow
def test_prose_on_groups(page):
    rows = {row["Test set"]: row for row in table(page, "groups")}
    tasks = [row for name, row in rows.items() if name != "macro-average"]
    assert len(tasks) == 12 and sum(row["1B - 100M"] > 0 for row in tasks) == 10
    clear = {row["Test set"] for row in tasks if row["p (t)"] < 0.05}
    assert clear == {"mnli", "commonsenseqa"}
    assert min(row["p (permutation)"] for row in tasks) == 0.1
    assert min(row["p (percentile)"] for row in tasks) == round(2 / 1001, 3)
    for row in table(page, "corrections"):
        assert row["Holm"] > 0.05 and row["Benjamini-Hochberg"] > 0.05
    assert rows["macro-average"]["p (t)"] > 0.05


@pytest.mark.slow
def test_prose_on_single_examples_and_plans(page):
    for row in table(page, "single_tests"):
        assert row["Smallest p"] == 0.05 and row["Found at level 0.2"] == 0
        assert row["Examples with it"] < row["Needed at level 0.2"] == 9824 / 4
    *_, large, bert = table(page, "loss")
    assert 0.45 < bert["Variance"] / large["Variance"] < 0.55
    assert all(row["Squared bias"] / row["Loss"] > 0.69 for row in table(page, "loss"))
    four, seven = table(page, "looks")
    assert four["Stop at"] < four["p"] < 0.01 and seven["p"] < seven["Stop at"]


@pytest.mark.slow
def test_a_section_prints_what_the_page_holds(shared_data, capsys, page):
    assert program.main(["--data", str(shared_data), "--section", "components"]) == 0
    assert capsys.readouterr().out.strip() in page


def test_missing_data_end_in_one_line(capsys):
    assert program.main(["--data", "nonexistent"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"error: nonexistent holds no multiseed/.*--data.*\n", said.err)


@pytest.mark.slow
def test_every_section_and_figure_works_without_the_folder(capsys):
    for name in program.SECTIONS:
        assert program.main(["--section", name]) == 0
        assert "|" in capsys.readouterr().out, name
    data = program.sample()
    assert all(make(data).axes for make in program.FIGURES.values())
    with pytest.raises(SystemExit):
        program.main(["--write"])
