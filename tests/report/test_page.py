"""The page of a report in a real browser, also with hostile names and with many examples."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xarray

from multiberts.report.analysis import ReportContent
from multiberts.report.answers.slicing import slices
from multiberts.report.evidence import ComparedArms
from multiberts.report.examples_by_seed import example_grid
from multiberts.report.page import page_files, write_page
from multiberts.report.prediction_sets import PredictionSet
from multiberts.report.presentation import figures
from multiberts.report.presentation.reported import judged
from multiberts.report.presentation.sections import Report, ReportSection
from multiberts.report.presentation.sections import write_report as write_sections
from multiberts.report.presentation.table_writer import Table
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import COLOURS, canvas
from multiberts.stats.compare.two_arms import compare
from multiberts.stats.settings import ComparisonSettings
from multiberts.tests.tools.browser import CONTRASTS, Browser
from multiberts.tests.worlds import changed

pytestmark = [pytest.mark.slow, pytest.mark.figures]

HOSTILE = '</script><b onclick="x">{{ 7 * 7 }} & \N{RIGHT-TO-LEFT OVERRIDE}'

NAMES = [f"base {HOSTILE}", f"new {HOSTILE}"]
SKILLS = ((1, 0.4), (2, 0.9))  # seed and skill of each arm


def made_up(num_seeds: int, num_examples: int, skill: float, seed: int) -> xarray.Dataset:
    """Classes that are right with a chance of their own, and texts with a hostile word."""
    random = np.random.default_rng(seed)
    labels = np.arange(num_examples) % 3
    ease = np.random.default_rng(0).normal(skill, 1, num_examples)
    right = random.normal(ease, 1, (num_seeds, num_examples)) > 0
    spans = np.empty(num_examples, object)
    spans[:] = [(place % 5, place % 5 + 1) for place in range(num_examples)]
    texts = [f"Example {place} says {HOSTILE} of word{place % 7}" for place in range(num_examples)]
    return xarray.Dataset(
        {
            "prediction": (("run", "example"), np.where(right, labels, (labels + 1) % 3) * 1.0),
            "label": ("example", labels * 1.0),
        },
        coords={
            "pretrain_seed": ("run", np.arange(num_seeds)),
            "example_id": ("example", [f"set/{place}" for place in range(num_examples)]),
            "text": ("example", texts),
            "spans": ("example", spans),
            "template": ("example", [f"template {place % 4}" for place in range(num_examples)]),
        },
    )


def write_report(folder: Path, num_seeds: int, num_examples: int) -> Path:
    """A page with one comparison on one set."""
    sides = [made_up(num_seeds, num_examples, skill, seed) for seed, skill in SKILLS]
    names = NAMES
    prediction_sets = [
        PredictionSet(HOSTILE, HOSTILE, name, None, ("accuracy",), data)
        for name, data in zip(names, sides, strict=True)
    ]
    item = compare(
        *sides, "accuracy", n_resamples=50,
    ).named(*names, name=HOSTILE, evaluation_set=HOSTILE)  # fmt: skip
    pictures = [
        ReportSection("seeds", HOSTILE, partial(figures.seed_figure, item)),
        ReportSection("difference", HOSTILE, partial(figures.sources_figure, [item])),
    ]
    compared = ComparedArms(HOSTILE, "paired", judged([item], figures=[pictures]))
    grid = example_grid(prediction_sets, names, item.computed_from().spec)
    assert grid is not None
    compared.grids[HOSTILE, HOSTILE] = grid
    folder.mkdir()
    content = ReportContent([compared], [], [], [], [])
    bootstrap, made_by = ComparisonSettings(n_resamples=50), {"Command": HOSTILE}
    write_page(folder, page_files(HOSTILE, content, bootstrap, "dev", made_by))
    return folder / "index.html"


def status_of(chosen: range, num_seeds: int, num_examples: int) -> str:
    """The line above the grid: how many examples are shown, and the scores of the arms on them."""
    arms = [made_up(num_seeds, num_examples, skill, seed) for seed, skill in SKILLS]
    base, new = (
        100 * float((data["prediction"] == data["label"])[:, list(chosen)].mean()) for data in arms
    )
    return (
        f"{len(chosen)} of {num_examples} examples, {NAMES[0]} {base:.1f}, {NAMES[1]} {new:.1f}, "
        f"difference {new - base:.1f}" + ", no interval" * (len(chosen) < num_examples)
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(tmp_path_factory.mktemp("report") / "page", 5, 300)


def rows(browser: Browser) -> list[str]:
    return browser.run("[...document.querySelectorAll('.grid tbody tr')].map(r => r.innerText)")


def choose(browser: Browser, name: str, value: str) -> None:
    field = f"document.querySelector('[data-grid-controls] [name={name}]')"
    browser.run(
        f"{field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('input')); 0"
    )


def open_grid(browser: Browser) -> None:
    browser.run("document.querySelector('[data-grid]').open = true; 0")
    browser.wait_for("document.querySelector('[data-grid]').dataset.ready === 'yes'")


def test_hostile_names_stay_text_and_nothing_is_fetched(browser: Browser, page: Path) -> None:
    browser.open(page)
    open_grid(browser)
    assert browser.run("document.querySelector('h1').innerText").startswith("</script><b onclick")
    assert browser.run("document.querySelectorAll('main [onclick]').length") == 0
    assert browser.requests == [page.resolve().as_uri()]
    assert browser.complaints == []


def test_the_grid_is_sorted_searched_and_filtered(browser: Browser, page: Path) -> None:
    browser.open(page)
    open_grid(browser)
    shown = rows(browser)
    assert len(shown) == 10
    status = "document.querySelector('[data-grid-controls] [role=status]').innerText"
    assert browser.run(status) == status_of(range(300), 5, 300)
    choose(browser, "search", "word3 SAYS")
    assert browser.run(status) == status_of(range(3, 300, 7), 5, 300)
    choose(browser, "label", "1")
    both = [place for place in range(300) if place % 7 == 3 and place % 3 == 1]
    assert browser.run(status).startswith(f"{len(both)} of 300 examples")
    choose(browser, "group", '["template","template 2"]')
    assert len(rows(browser)) == len([place for place in both if place % 4 == 2])
    choose(browser, "search", "")
    choose(browser, "label", "")
    # What is filtered by one group has the interval that `by` gives.
    data = [made_up(5, 300, skill, seed) for seed, skill in SKILLS]
    (own,) = (
        each
        for each in slices(compare(*data, "accuracy", n_resamples=50), "template").slices
        if each.name == "template 2"
    )
    assert own.ci is not None
    low, high = (f"{100 * end:.1f}".replace("-", "\N{MINUS SIGN}") for end in own.ci)
    assert browser.run(status).endswith(
        f"difference {100 * own.estimate:.1f}, 95 % CI {low} to {high}"
    )
    choose(browser, "group", "")
    choose(browser, "order", "lost")
    losses = [int(row.split("\t")[-1].replace("\N{MINUS SIGN}", "-")) for row in rows(browser)]
    assert losses == sorted(losses) and losses[0] < 0
    browser.run("document.querySelector('[data-more]').click(); 0")
    assert len(rows(browser)) == 20


def test_circles_are_the_scores_of_seeds(browser: Browser, page: Path) -> None:
    browser.open(page)
    open_grid(browser)
    choose(browser, "order", "given")
    choose(browser, "search", "set/0")
    data = [made_up(5, 300, 0.4, 1), made_up(5, 300, 0.9, 2)]
    right = [(side["prediction"] == side["label"]).to_numpy()[:, 0] for side in data]
    circles = ["".join("○●"[one] for one in side.astype(int)) for side in right]
    cells = "[...document.querySelectorAll('.grid tbody tr')[0].cells].map(c => c.innerText)"
    first = browser.run(cells)
    assert [first[2], first[4]] == circles
    assert [int(first[3]), int(first[5])] == [round(100 * side.mean()) for side in right]


def test_an_address_opens_its_section(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert not browser.run("document.querySelector('[data-grid]').open")
    browser.run("document.querySelector(\"a[href='#examples-1-1']\").click(); 0")
    browser.wait_for("document.querySelector('[data-grid]').open")


def test_an_address_names_a_view_of_the_table(browser: Browser, tmp_path: Path) -> None:
    """Groups by unit, sorted each by itself; a group whose rows are hidden is hidden."""
    sides = [made_up(5, 60, skill, seed) for seed, skill in SKILLS]
    names = {"accuracy": "clear", "f1_macro": "small", "ece": "other"}
    items = [
        compare(*sides, "accuracy", n_resamples=50).named(name="all", evaluation_set=name)
        for name in names.values()
    ]
    items = [changed(item, metric=metric) for item, metric in zip(items, names, strict=True)]
    pictures = [[ReportSection("seeds", "x", partial(figures.seed_figure, items[0]))]] * 3
    content = ReportContent(
        [ComparedArms("all", "paired", judged(items, figures=pictures))], [], [], [], []
    )
    files = page_files("x", content, ComparisonSettings(n_resamples=50), "dev", {})
    write_page(tmp_path, files)
    browser.open(tmp_path / "index.html")
    shown = (
        "[...document.querySelectorAll('#comparisons-table tbody tr')].filter(r => !r.hidden)"
        ".map(r => r.cells[0].innerText.split(' ')[0])"
    )
    assert browser.run(shown) == ["all", "clear", "small", "all", "other"]
    browser.run("location.hash = '#comparisons-table?text=small&state=better'; 0")
    browser.wait_for(f"{shown}.join() === 'all,small'")
    status = "document.querySelector('[data-filters] [role=status]').innerText"
    assert browser.run(status) == "1 of 3 comparisons"
    field = "document.querySelector('[data-filters] input')"
    browser.run(f"{field}.value = 'ot r'; {field}.dispatchEvent(new Event('input')); 0")
    assert browser.run("location.hash") == "#comparisons-table?text=ot+r&state=better"
    browser.run("location.hash = '#comparisons-table?'; 0")
    browser.wait_for(f"{shown}.length === 5")
    browser.run("document.querySelector('#comparisons-table th button').click(); 0")
    browser.run("document.querySelector('#comparisons-table th button').click(); 0")
    assert browser.run(shown) == ["all", "small", "clear", "all", "other"]


def test_text_can_be_copied(browser: Browser, page: Path) -> None:
    browser.open(page)
    origin = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.call("Browser.grantPermissions", **origin)
    browser.run("document.querySelector('.copied').open = true; 0")
    browser.run("document.querySelector('.copied button').click(); 0")
    browser.wait_for("document.querySelector('.copied button').textContent === 'Copied'")


def test_all_sections_are_printed(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("window.dispatchEvent(new Event('beforeprint')); 0")
    folded = "document.querySelectorAll('details:not(.copied):not([open])').length"
    assert browser.run(folded) == 0
    browser.run("window.dispatchEvent(new Event('afterprint')); 0")
    assert browser.run("document.querySelector('[data-grid]').open") is False


def test_everything_can_be_read_without_scripts(browser: Browser, page: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert len(rows(browser)) == 10
        assert browser.run("document.querySelector('.filter').hidden")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_keeps_people_from_reading(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    browser.run(
        "for (const section of document.querySelectorAll('details')) section.open = true; 0"
    )
    browser.wait_for("document.querySelector('[data-grid]').dataset.ready === 'yes'")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert min(browser.run(CONTRASTS)) >= 4.5
    assert browser.violations() == []


def test_many_examples_are_in_the_page(browser: Browser, tmp_path: Path) -> None:
    page = write_report(tmp_path / "page", 25, 10_000)
    assert page.stat().st_size < 1_500_000
    browser.open(page)
    open_grid(browser)
    choose(browser, "order", "gained")
    gains = [int(row.split("\t")[-1].replace("\N{MINUS SIGN}", "-")) for row in rows(browser)]
    assert len(gains) == 10 and gains == sorted(gains, reverse=True)


def test_more_examples_have_a_page_of_their_own(browser: Browser, tmp_path: Path) -> None:
    """Linked, also from a folder that was moved."""
    write_report(tmp_path / "first", 25, 40_000).parent.rename(tmp_path / "moved")
    browser.open(tmp_path / "moved" / "index.html")
    link = browser.run("document.querySelector('#examples-1-1 a').href")
    own = tmp_path / "moved" / "index-examples-1.html"
    assert link == own.resolve().as_uri()
    browser.open(own)
    browser.wait_for("document.querySelector('[data-grid]').dataset.ready === 'yes'")
    choose(browser, "search", "word3")
    status = "document.querySelector('[data-grid-controls] [role=status]').innerText"
    assert browser.run(status) == status_of(range(3, 40_000, 7), 25, 40_000)


def test_seeds_disagree_by_the_mean_difference_of_two_of_them() -> None:
    data = made_up(3, 12, 0.5, 1).drop_vars("text")
    grid = example_grid(
        [PredictionSet("t", "dev", "a", None, ("accuracy",), data)],
        ["a"],
        compare(data, None, "accuracy", design="single", n_resamples=50).computed_from().spec,
    )
    assert grid is not None and grid.texts is None
    score = grid.scores[0]
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    expected = np.mean([np.abs(score[i] - score[j]) for i, j in pairs], axis=0)
    np.testing.assert_allclose(grid.disagreement, expected)


def test_kinds_of_examples_have_intervals_whatever_else_a_run_wrote() -> None:
    data = made_up(5, 100, 0.7, 1)
    data["scores"] = ("run", "example", "class"), np.ones((5, 100, 2))  # as finished runs have them
    result = compare(data, None, "accuracy", design="single", n_resamples=50)
    predictions = PredictionSet("t", "dev", "a", None, ("accuracy",), data)
    grid = example_grid([predictions], ["a"], result.computed_from().spec)
    assert grid is not None and grid.intervals["label"].keys() == {*(grid.labels or ())}


@pytest.fixture(scope="module")
def sections_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of `paper` and `instances`: a table of thirty examples, a figure, and what is left out."""
    folder = tmp_path_factory.mktemp("sections") / "report"
    rows = [(f"{HOSTILE} {place}", (place * 7 % 30 - 15) / 100, "why") for place in range(30)]
    table = Table(("Example", "Difference", "About it"), rows)
    item = compare(*(made_up(4, 60, 0.4, seed) for seed in (1, 2)), "accuracy")

    def fails() -> Table:
        raise UserError(HOSTILE)

    with canvas(4, 3) as (figure, axes):
        for place, name in enumerate(("old", HOSTILE)):
            axes.plot([0, 1000], [0.5, 0.25 + place], "-o", color=COLOURS[place], label=name)
            axes.plot(
                [0, 500], [0.1, 0.2], color=COLOURS[place]
            )  # belongs to the name by its colour
        axes.barh([0.5], [250], 0.1, color="#E69F00", label="bar")
        figure.legend(loc="outside lower left")

    sections = [
        ReportSection("decaying_examples", HOSTILE, lambda: table),
        ReportSection("figure_seeds", HOSTILE, partial(figures.seed_figure, item)),
        ReportSection("figure_curves", "Curves by step.", lambda: figure),
        ReportSection("absent", HOSTILE, fails),
    ]
    write_sections(folder, Report(HOSTILE, sections), {"Command": HOSTILE})
    return folder / "index.html"


def test_listed_examples_are_sorted_and_filtered(browser: Browser, sections_page: Path) -> None:
    browser.open(sections_page)
    browser.run("document.querySelectorAll('#table-decaying-examples th button')[1].click(); 0")
    column = "[...document.querySelectorAll('#table-decaying-examples tbody tr')]"
    cells = browser.run(
        f"{column}.map(row => row.cells[1].innerText.replace('\N{MINUS SIGN}', '-'))"
    )
    numbers = [float(cell) for cell in cells]
    assert len(numbers) == 30 and numbers == sorted(numbers) and numbers[0] == -0.15
    field = "document.querySelector('.filter input')"
    browser.run(f"{field}.value = '17'; {field}.dispatchEvent(new Event('input')); 0")
    assert (
        browser.run("document.querySelector('.filter [role=status]').innerText") == "1 of 30 rows"
    )
    browser.run(f"{field}.value = ''; {field}.dispatchEvent(new Event('input')); 0")
    assert browser.run("document.querySelectorAll('main [onclick]').length") == 0
    assert HOSTILE in browser.run("document.querySelector('#left-out + ul').innerText")
    assert browser.requests == [sections_page.resolve().as_uri()] and browser.complaints == []


def test_long_tables_are_turned_by_fifty_rows(browser: Browser, tmp_path: Path) -> None:
    rows = [(f"{place}m", place * 7 % 120) for place in range(120)]
    table = Table(("Example", "Rank"), rows)
    section = ReportSection("ranks", "Ranks of examples.", lambda: table)
    write_sections(tmp_path / "report", Report("Ranks", [section]))
    browser.open(tmp_path / "report/index.html")
    shown = (
        "[...document.querySelectorAll('#table-ranks tbody tr')].filter(row => !row.hidden)"
        ".map(row => Number(row.cells[1].innerText))"
    )
    status = "document.querySelector('.pages [role=status]').innerText"
    back, forth = (f"document.querySelectorAll('.pages button')[{place}]" for place in (0, 1))
    assert len(browser.run(shown)) == 50 and browser.run(status) == "Rows 1 to 50 of 120"
    assert browser.run(f"{back}.disabled")
    browser.run("document.querySelectorAll('#table-ranks th button')[1].click(); 0")
    browser.run(f"{forth}.click(); {forth}.click(); 0")
    assert browser.run(shown) == [*range(100, 120)]
    assert browser.run(status) == "Rows 101 to 120 of 120" and browser.run(f"{forth}.disabled")
    field = "document.querySelector('.filter input')"
    browser.run(f"{field}.value = '7m'; {field}.dispatchEvent(new Event('input')); 0")
    assert browser.run("document.querySelector('.pages').hidden")
    assert len(browser.run(shown)) == 12
    browser.run(f"{field}.value = ''; {field}.dispatchEvent(new Event('input')); 0")
    assert browser.run(shown) == [*range(50)]
    assert "tables/ranks.csv" in browser.run("document.querySelector('section').innerText")
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(tmp_path / "report/index.html")
        assert len(browser.run(shown)) == 120
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_points_show_values_and_the_legend_hides_its_parts(
    browser: Browser, sections_page: Path
) -> None:
    browser.open(sections_page)
    svg = "[...document.querySelectorAll('svg.figure')][1]"
    titles = browser.run(f"[...{svg}.querySelectorAll('use > title')].map(t => t.textContent)")
    assert titles[:2] == ["old: 0, 0.5", "old: 1,000, 0.25"] and f"{HOSTILE}: 0, 0.5" in titles
    bars = browser.run(f"[...{svg}.querySelectorAll('g > title')].map(t => t.textContent)")
    assert "bar: 250" in bars
    shown = (
        f"[...{svg}.querySelectorAll('[data-series=\"0\"]')]"
        ".map(part => getComputedStyle(part).display !== 'none')"
    )
    entry = f"{svg}.querySelector('[role=button]')"
    assert browser.run(shown) == [True, True] and browser.run(f"{svg}.role") == "group"
    browser.run(f"{entry}.focus(); 0")
    for kind in ("keyDown", "keyUp"):
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        browser.call("Input.dispatchKeyEvent", type=kind, **key)
    assert browser.run(shown) == [False, False]
    assert browser.run(f"{entry}.ariaPressed") == "false"
    browser.run(f"{entry}.dispatchEvent(new MouseEvent('click')); 0")
    assert browser.run(shown) == [True, True]
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(sections_page)
        assert browser.run(f"{svg}.role") == "img"
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_keeps_people_from_reading_sections(
    browser: Browser, sections_page: Path, width: int, dark: bool
) -> None:
    browser.open(sections_page, width, dark=dark)
    assert browser.violations() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert min(browser.run(CONTRASTS)) >= 4.5
    # Letters are ten units high, and no figure shows a unit as less than 0.8 pixels.
    scales = "[...document.querySelectorAll('svg.figure')].map(f => f.getScreenCTM().a)"
    assert min(browser.run(scales)) > 0.79
