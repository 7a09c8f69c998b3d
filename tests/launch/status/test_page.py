"""The status page in a real browser."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from multiberts.launch.status.page import render_status_page, write_status_page
from multiberts.launch.status.snapshot import collect_status
from multiberts.tests.launch.made_up import MadeUp, make_sweep
from multiberts.tests.tools.browser import CONTRASTS, Browser
from multiberts.tests.tools.patience import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the made-up experiment, whose root has a name that HTML must not take for its own."""
    folder = tmp_path_factory.mktemp("page")
    root = folder / "<b>multiberts & co"
    make_sweep(root, time.time())
    write_status_page(collect_status(root), folder / "status.html")
    return folder / "status.html"


def cells(browser: Browser, column: int) -> list[str]:
    """A column of the table; 0 is the name of the row."""
    rows = "[...document.querySelectorAll('#stage-table tbody tr')]"
    return browser.run(f"{rows}.map(row => row.cells[{column}].innerText.trim())")


def test_the_page_holds_the_experiment_and_nothing_is_fetched(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.run("document.querySelector('h1').innerText").endswith("<b>multiberts & co")
    text = browser.run("document.body.innerText")
    assert "813 of 2,528 runs done (32 %), 19 running, 1 retrying, 1 lost, 3 failed" in text
    assert cells(browser, 2)[:4] == ["1 of 1", "9 of 25", "1.98M of 2M", "1.83M of 2M"]
    assert cells(browser, 3)[1] == "9 running, 1 retrying, 4 waiting, 1 lost, 1 failed"
    running = (
        "running, 8.00 steps/s, 42 min left, attempt 2, skypilot · tpu-v4-8 · mb-0a1b2c3d-seed"
    )
    assert cells(browser, 3)[2] == running
    assert cells(browser, 4)[1] == "50.1 d"
    assert browser.run("document.querySelectorAll('.failure').length") == 4
    assert (
        "OOM when allocating <tensor>" in text and "process" in text.split("launch run --reap")[1]
    )
    assert browser.requests == [page.resolve().as_uri()]
    assert browser.complaints == []


def test_bars_are_as_long_as_the_shares(browser: Browser, page: Path) -> None:
    browser.open(page, width=1200)
    parts = (
        "[...document.querySelectorAll('#stage-table tbody tr')].map(row => "
        "[...row.querySelectorAll('.bar i')].map(part => "
        "[part.className, part.offsetWidth / part.parentElement.offsetWidth]))"
    )
    bars = [dict(bar) for bar in browser.run(parts)]
    assert bars[0] == {"is-done": 1}
    assert bars[1] == pytest.approx(
        {"is-done": 9 / 25, "is-running": 9 / 25}
        | dict.fromkeys(("is-retrying", "is-lost", "is-failed"), 1 / 25),
        abs=0.01,
    )
    assert bars[2] == pytest.approx({"is-running": 0.99}, abs=0.01)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 400, 1200])
def test_nothing_sticks_out_and_text_can_be_read(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    assert browser.violations() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    contrasts = browser.run(CONTRASTS)
    assert len(contrasts) > 50
    assert min(contrasts) >= 4.5
    # Wide tables scroll within the page, with keys as well.
    place = ".scroll[tabindex='0'][aria-label]"
    tables = "[...document.querySelectorAll('table')]"
    assert browser.run(f'{tables}.every(table => table.closest("{place}"))')
    assert browser.run("document.body.getBoundingClientRect().width") <= width
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert width < 1200 or browser.run(f"{cut}.map(e => e.getAttribute('aria-label'))") == []


def test_links_work_after_the_experiment_has_moved(browser: Browser, tmp_path: Path) -> None:
    made = make_sweep(tmp_path / "first place" / "multiberts #1", time.time())
    (report,) = [run for run in made.plan if run.stage == "report"]
    made.finish(report)
    (made.root / report.path / "index.html").write_text("<title>the report</title>")
    write_status_page(collect_status(made.root), made.root / "status.html")
    moved = (tmp_path / "first place").rename(tmp_path / "second place") / "multiberts #1"
    browser.open(moved / "status.html")
    links = browser.run("[...document.querySelectorAll('main a')].map(a => a.href)")
    places = {Path(unquote(urlsplit(link).path)) for link in links}
    assert all(place.exists() and place.is_relative_to(moved.resolve()) for place in places)
    wanted = [report.path + "/index.html", made.plan[10].path, "logs/seed_19.log"]
    assert {moved.resolve() / place for place in wanted} <= places


def test_a_page_that_is_being_written_anew_reads_itself_again(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    root = page.parent / "<b>multiberts & co"
    text = render_status_page(collect_status(root), refreshes=True)
    quick = tmp_path / "quick.html"
    anew = '<meta http-equiv="refresh" content="30">'
    assert anew in text
    quick.write_text(text.replace(anew, anew.replace("30", "1")))
    browser.open(quick)
    quick.write_text(quick.read_text().replace("<h1>", "<h1>anew: "))
    end = time.monotonic() + PATIENCE
    # While it reads itself again, there may be no page to ask.
    while time.monotonic() < end:
        time.sleep(0.1)
        if browser.run("document.querySelector('h1')?.innerText?.startsWith('anew')"):
            break
    assert browser.run("document.querySelector('h1').innerText").startswith("anew")
    assert anew not in page.read_text()


def test_an_experiment_that_has_just_begun(browser: Browser, tmp_path: Path) -> None:
    made = MadeUp(tmp_path / "new", time.time())
    made.add("make_world", "world", "world")
    made.write_plan()
    page = tmp_path / "new.html"
    write_status_page(collect_status(made.root), page)
    browser.open(page)
    assert browser.complaints == []
    assert cells(browser, 0) == ["world"]
    assert not re.search("Failed|Attempts", browser.run("document.body.innerText"))
