"""The papers' statements: no section is missing, every name exists, every citation has its row."""

import csv
import re
from functools import cache
from pathlib import Path

import pytest

from multiberts.runs import ROOMS

ROOT = Path(__file__).resolve().parents[2]
STATUSES = {"same", "departs", "published", "none"}

# The papers' own sections, and their numbers of tables and of figures.
PAPERS = {
    "multiberts": ("abstract 1 2 2.1 2.2 3 3.1 3.2 4 4.1 4.2 5 A B C D E E.1 E.2", 5, 8),
    "zhong": ("abstract 1 2 3 4 4.1 4.2 5 6 7 A B C D D.1 E F G H H.1 H.2 H.3 I J", 12, 10),
    "b3": ("abstract 1 2 3.1 3.2 3.3 3.4 4 5 6 A B", 0, 3),
}
# How the code names the papers.
NAMES = {
    "Sellam": "multiberts",
    "MultiBERTs paper": "multiberts",
    "Zhong": "zhong",
    "instance-level paper": "zhong",
    "Barnes": "b3",
}
SECTION = r"(?:[0-9]|[A-J]\b)(?:\.\d)*"
AUTHOR = r"[A-Z][a-z]\w*"  # not a conference, such as ACL
CITED = re.compile(
    rf"(?P<paper>{'|'.join(NAMES)})(?:(?:,| and| &) {AUTHOR})*(?:,? \(?(?:19|20)\d\d)?"
    # Another paper: its authors and year.
    rf"|(?P<other>\b{AUTHOR}(?:, {AUTHOR})*(?: et al\.| and {AUTHOR})?,? \(?(?:19|20)\d\d)"
    rf"|(?:[Ss]ections?|[Aa]ppendix|[Aa]ppendices) (?P<numbers>{SECTION}(?:(?:, | and | to ){SECTION})*)"
)


@cache
def rows_of(paper: str) -> list[dict[str, str]]:
    with (ROOT / "docs" / "statements" / f"{paper}.csv").open(
        encoding="utf-8", newline=""
    ) as handle:
        return list(csv.DictReader(handle))


def places(row: dict[str, str]) -> list[str]:
    return [place for place in row["where"].split("; ") if place]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_section_table_and_figure_has_a_row(paper):
    sections, tables, figures = PAPERS[paper]
    rows = rows_of(paper)
    numbers = sections.split()
    assert set(numbers) - {row["section"] for row in rows} == set()
    tops = {number.split(".")[0] for number in numbers}
    assert {row["section"].split(".")[0] for row in rows} <= tops
    text = " ".join(row["statement"] for row in rows)
    named = {
        (kind, int(number))
        for kind, listed in re.findall(r"\b([Tt]able|[Ff]igure)s? (\d[\da-c, and]*)", text)
        for number in re.findall(r"\d+", listed)
        for kind in [kind.lower()]
    }
    expected = {("table", n + 1) for n in range(tables)} | {
        ("figure", n + 1) for n in range(figures)
    }
    assert expected - named == set()


@pytest.mark.parametrize("paper", PAPERS)
def test_every_statement_says_where_it_is_or_why_not(paper):
    wrong = [
        row
        for row in rows_of(paper)
        if row["status"] not in STATUSES
        or not row["statement"]
        or (not row["note"] if row["status"] == "none" else not row["where"])
    ]
    assert wrong == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_named_place_exists(paper):
    lost = []
    for place in {place for row in rows_of(paper) for place in places(row)}:
        file, _, name = place.partition(":")
        path = ROOT / file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        name = re.escape(name)
        defined = rf"\b(?:def|class) {name}\b|^ *{name}[:( =]|[\"'`]{name}[\"'`]"
        if not text or (name and not re.search(defined, text, flags=re.MULTILINE)):
            lost.append(place)
    assert lost == []


def test_every_departure_has_its_row():
    page = (ROOT / "docs" / "departures.md").read_text(encoding="utf-8")
    first_cells = {
        line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")
    }
    lost = [
        (paper, row["note"])
        for paper in PAPERS
        for row in rows_of(paper)
        if row["status"] == "departs" and row["note"] not in first_cells
    ]
    assert lost == []


def citations() -> set[tuple[str, str, str]]:
    """Returns (paper, section, file) of each cited section of one of the papers."""
    cited = set()
    for room in (*ROOMS, "benchmarks", "configs", "docs"):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix not in {".py", ".gin", ".toml", ".md"} or path.name.startswith(
                "statements"
            ):
                continue
            text = re.sub(r"\s*\n\s*#?\s*", " ", path.read_text(encoding="utf-8"))
            paper, end = "", 0
            for match in CITED.finditer(text):
                if match["paper"]:
                    paper, end = NAMES[match["paper"]], match.end()
                elif match["other"]:
                    paper = ""
                elif paper and match.start() - end < 150:
                    end = match.end()
                    sections = re.findall(SECTION, match["numbers"])
                    cited |= {(paper, section, str(path.relative_to(ROOT))) for section in sections}
    return cited


def test_every_citation_of_a_section_has_a_row_that_names_its_file():
    without = [
        (paper, section, file)
        for paper, section, file in sorted(citations())
        if not any(
            row["section"] == section or row["section"].startswith(f"{section}.")
            for row in rows_of(paper)
            if any(place.partition(":")[0] == file for place in places(row))
        )
    ]
    assert len(citations()) > 20
    assert without == []
