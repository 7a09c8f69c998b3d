"""The status page in a real browser."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from multiberts.launch.plan.planned_run import Output
from multiberts.launch.status.page import render_status_page, write_status_page
from multiberts.launch.status.snapshot import collect_status
from multiberts.runs.command_line.command import COMMANDS
from multiberts.tests.browser import CONTRASTS, Browser
from multiberts.tests.launch.made_up import MadeUp, make_sweep
from multiberts.tests.patience import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the made-up experiment, whose root has a name that HTML must not take for its own."""
    folder = tmp_path_factory.mktemp("page")
    root = folder / "<b>multiberts & co"
    make_sweep(root, time.time())
    write_status_page(collect_status(root), folder / "status.html")
    return folder / "status.html"


def rows_shown(browser: Browser, table: str) -> int:
    return browser.run(
        f"[...document.querySelectorAll('#{table} tbody tr')].filter(r => !r.hidden).length"
    )


def first_cells(browser: Browser, table: str, column: int) -> list[str]:
    rows = f"[...document.querySelectorAll('#{table} tbody tr')]"
    return browser.run(f"{rows}.map(r => r.cells[{column}].innerText.trim())")


def type_into(browser: Browser, table: str, text: str) -> None:
    field = f"document.querySelector('[data-filters={table}] input')"
    browser.run(f"{field}.value = {json.dumps(text)}; {field}.dispatchEvent(new Event('input')); 0")


def test_tables_hold_the_experiment_and_nothing_is_fetched(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.run("document.querySelector('h1').innerText").endswith("<b>multiberts & co")
    assert rows_shown(browser, "stage-table") == 5
    assert rows_shown(browser, "pretraining-table") == 25
    assert rows_shown(browser, "sweep-table") == 25
    assert first_cells(browser, "pretraining-table", 1)[8:10] == ["done", "running"]
    assert browser.run("document.querySelectorAll('#failure-list details').length") == 3
    assert "<tensor>" in browser.run("document.querySelector('#failure-list').innerText")
    assert rows_shown(browser, "orphan-table") == 1
    assert browser.requests == [page.resolve().as_uri()]
    assert browser.complaints == []


def test_rows_are_filtered_by_words_and_by_state(browser: Browser, page: Path) -> None:
    browser.open(page)
    type_into(browser, "pretraining-table", "seed_1")
    assert rows_shown(browser, "pretraining-table") == 11
    type_into(browser, "pretraining-table", "RUNNING slurm")
    assert rows_shown(browser, "pretraining-table") == 1
    told = "document.querySelector('[data-filters=pretraining-table] [role=status]').innerText"
    assert browser.run(told) == "1 of 25 pre-training runs"
    type_into(browser, "pretraining-table", "")
    select = "document.querySelector('[data-filters=pretraining-table] select')"
    browser.run(f"{select}.value = 'done'; {select}.dispatchEvent(new Event('change')); 0")
    assert rows_shown(browser, "pretraining-table") == 9
    type_into(browser, "failure-list", "OOM")
    shown = "[...document.querySelectorAll('#failure-list details')].filter(r => !r.hidden).length"
    assert browser.run(shown) == 2
    # Read again, the page keeps what was chosen.
    browser.open(page)
    assert rows_shown(browser, "pretraining-table") == 9
    browser.run(f"{select}.value = ''; {select}.dispatchEvent(new Event('change')); 0")
    type_into(browser, "failure-list", "")
    assert browser.complaints == []


def test_columns_are_sorted_as_numbers_and_empty_cells_come_last(
    browser: Browser, page: Path
) -> None:
    browser.open(page)
    press = "document.querySelectorAll('#pretraining-table th button')[6].click(); 0"
    browser.run(press)
    assert first_cells(browser, "pretraining-table", 6)[:3] == ["42 min", "5.9 h", "11.1 h"]
    browser.run(press)
    times = first_cells(browser, "pretraining-table", 6)
    assert times[:2] == ["45.1 h", "37.2 h"] and set(times[9:]) == {"–"}
    order = "document.querySelectorAll('#pretraining-table th')[6].getAttribute('aria-sort')"
    assert browser.run(order) == "descending"
    browser.run("document.querySelectorAll('#pretraining-table th button')[0].click(); 0")
    assert first_cells(browser, "pretraining-table", 0)[:3] == [
        f"base seed {number}" for number in range(3)
    ]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 400, 1400])
def test_nothing_sticks_out_and_text_can_be_read(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    assert browser.violations() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    contrasts = browser.run(CONTRASTS)
    assert len(contrasts) > 100
    assert min(contrasts) >= 4.5
    # Wide tables scroll within the page, with keys as well.
    place = ".scroll[tabindex='0'][aria-labelledby]"
    tables = "[...document.querySelectorAll('table')]"
    assert browser.run(f'{tables}.every(table => table.closest("{place}"))')
    assert browser.run("document.body.getBoundingClientRect().width") <= width


def test_curves_have_one_scale_and_their_numbers_in_words(browser: Browser, page: Path) -> None:
    browser.open(page)
    curves = "[...document.querySelectorAll('#pretraining-table .spark')]"
    words = browser.run(f"{curves}.map(c => c.getAttribute('aria-label'))")
    assert "loss from 9.5 at step 20,000 to 1.58 at step 1,980,000" in words
    accuracy = "held-out accuracy from 0.5 at step 100,000 to 0.689 at step 1,900,000"
    assert accuracy in words
    ends = browser.run(
        f"{curves}.filter(c => !c.matches('.accuracy'))"
        ".map(c => c.querySelector('polyline').getAttribute('points').split(' ').at(-1))"
        ".map(point => Number(point.split(',')[0]))"
    )
    assert ends[0] == 95 and min(ends) < 10  # of 1,980,000 and of 118,000 steps


def test_links_work_after_the_experiment_has_moved(browser: Browser, tmp_path: Path) -> None:
    made = make_sweep(tmp_path / "first place" / "multiberts #1", time.time())
    (report,) = [run for run in made.plan if run.stage == "report"]
    made.finish(report)
    (made.root / report.path / "index.html").write_text("<title>the report</title>")
    board = made.root / made.plan[10].path / "tensorboard"
    board.mkdir()
    write_status_page(collect_status(made.root), made.root / "status.html")
    moved = (tmp_path / "first place").rename(tmp_path / "second place") / "multiberts #1"
    browser.open(moved / "status.html")
    links = browser.run("[...document.querySelectorAll('main a')].map(a => a.href)")
    links = [link for link in links if "#" not in link]
    places = {Path(unquote(urlsplit(link).path)) for link in links}
    assert all(place.exists() and place.is_relative_to(moved.resolve()) for place in places)
    wanted = [report.path + "/index.html", made.plan[10].path + "/tensorboard", made.plan[10].path]
    wanted += ["logs/seed_19.log"]
    assert {moved.resolve() / place for place in wanted} <= places


def test_a_page_that_is_being_written_anew_reads_itself_again(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    root = page.parent / "<b>multiberts & co"
    text = render_status_page(collect_status(root), refreshes=True)
    quick = tmp_path / "quick.html"
    quick.write_text(text.replace("location.reload(); }, 30000", "location.reload(); }, 300"))
    browser.open(quick)
    browser.run("window.isFirst = true; 0")
    quick.write_text(quick.read_text().replace("<h1>", "<h1>anew: "))
    end = time.monotonic() + PATIENCE
    # While it reads itself again, there may be no page to ask.
    while time.monotonic() < end:
        time.sleep(0.1)
        if browser.run("document.querySelector('h1')?.innerText?.startsWith('anew')"):
            break
    assert browser.run("document.querySelector('h1').innerText").startswith("anew")
    assert "location.reload" not in page.read_text()


def test_an_experiment_that_has_just_begun(browser: Browser, tmp_path: Path) -> None:
    made = MadeUp(tmp_path / "new", time.time())
    made.add("make_world", "world", "world")
    made.write_plan()
    page = tmp_path / "new.html"
    write_status_page(collect_status(made.root), page)
    browser.open(page)
    assert browser.complaints == []
    assert rows_shown(browser, "stage-table") == 1
    assert not re.search(
        "Pre-training|Fine-tuning|Failures", browser.run("document.body.innerText")
    )


def test_checkpoints_that_some_tasks_leave_out(tmp_path: Path) -> None:
    """Such as the demo, whose questions are asked at some steps only."""
    made = MadeUp(tmp_path / "sparse", time.time())
    seed = made.add_seed(0)
    for step, tasks in ((0, ("RTE", "CoLA")), (2_000_000, ("RTE",))):
        for task in tasks:
            checkpoint = Output(seed, f"checkpoints/step_{step}")
            place = f"finetune/{task}/base-seed_0-step_{step}/lr_1e-05-ft_seed_0"
            made.add("finetune", place, task, (seed,), task=task, checkpoint=checkpoint)
    made.write_plan()
    page = tmp_path / "sparse.html"
    write_status_page(collect_status(made.root), page)
    cells = re.findall(r'<td class="(?:cell|c soft)"[^>]*>([^<]+)', page.read_text())
    assert [cell.strip() for cell in cells] == ["0/1", "0/1", "0/1", "–"]


def test_at_a_laptop_s_width_no_column_is_cut(browser: Browser, page: Path) -> None:
    browser.open(page, width=1400)
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert browser.run(f"{cut}.map(e => e.getAttribute('aria-labelledby'))") == []


def test_stages_have_the_names_of_their_commands(browser: Browser, page: Path) -> None:
    browser.open(page)
    names = first_cells(browser, "stage-table", 0)
    assert names == ["prepare", "pretrain", "finetune", "evaluate", "stats"]
    assert set(names) <= set(COMMANDS)
