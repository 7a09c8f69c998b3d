"""Reports made again: what was changed is found, and what was registered is compared."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.runs.errors import UserError
from multiberts.runs.files import sha256_of_file
from multiberts.runs.plan_marker import read_plan
from multiberts.runs.registration import plan_hash, register
from multiberts.stats.report.reporting import report
from multiberts.stats.report.verification import verify
from multiberts.tests.stats.report.test_reporting import pair_columns, write_run

pytestmark = pytest.mark.seconds

COMPARISON = {
    "name": "New against base",
    "base": {"procedure": "base"},
    "experiment": {"procedure": "new"},
}
SETTINGS: dict[str, Any] = {
    "title": "A <small> world",
    "comparisons": [COMPARISON],
    "n_resamples": 50,
}
SKILLS = {"base": 0.6, "new": 0.75}


def made_run(root: Path, procedure: str, seed: int) -> None:
    facts = {
        "task": "pairs", "procedure": procedure, "step": 5, "pretrain_seed": seed, "finetune_seed": 0,
        "learning_rate": 1e-4,
    }  # fmt: skip
    columns = pair_columns(SKILLS[procedure], seed, len(procedure))
    write_run(root / f"runs/{procedure}/{seed}", facts, "dev", ["accuracy", "f1"], **columns)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of four seeds, all done, with its report."""
    root = tmp_path_factory.mktemp("made") / "root"
    plan = []
    for procedure in SKILLS:
        for seed in range(4):
            made_run(root, procedure, seed)
            path = f"runs/{procedure}/{seed}"
            facts = {
                "task": "pairs",
                "procedure": procedure,
                "pretrain_seed": seed,
                "checkpoint_step": 5,
            }
            run = {"path": path, "stage": "finetune", "name": path, "identity": path, "parents": []}
            plan.append({**run, "facts": facts})
    (root / "launch").mkdir()
    (root / "launch/plan.json").write_text(json.dumps({"version": 1, "runs": plan}))
    report(run_dir=str(root / "report"), predictions=str(root / "runs"), **SETTINGS)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """The same, somewhere else."""
    shutil.copytree(made, tmp_path / "root")
    return tmp_path / "root"


def verified(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    capsys.readouterr()
    status = verify(page=str(root / "report/index.html"), runs=[str(root / "runs")])
    return status, capsys.readouterr().out.splitlines()


def held(line: str) -> tuple[int, int]:
    found = re.search(r"([\d,]+) of ([\d,]+) numbers hold", line)
    assert found is not None
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def test_every_number_of_an_honest_page_holds(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, (line,) = verified(root, capsys)
    right, total = held(line)
    assert status == 0 and right == total > 200 and line.endswith("from 8 runs")


def changed_digit(page: str) -> str:
    """The estimate of the summary, one more in its last place."""
    start = page.index('id="summary"')
    found = re.search(r'<td class="n"[^>]*>[^<]*(\d)</td>', page[start:])
    assert found is not None
    place = start + found.start(1)
    return f"{page[:place]}{(int(page[place]) + 1) % 10}{page[place + 1 :]}"


def changed_figure(page: str) -> str:
    path = re.search(r'<path d="M (\d+)', page)
    assert path is not None
    return page.replace(path[0], f'<path d="M {int(path[1]) + 1}', 1)


@pytest.mark.parametrize(
    ("change", "numbers", "said"),
    [
        (changed_digit, 1, "' on the page, '"),
        (changed_figure, 0, ": figure 1 is another"),
        (lambda page: page.replace("Across 4 paired", "Across 9 paired", 1), 1, "Across 9"),
        (lambda page: page.replace("is higher", "is lower", 1), 0, "is lower"),
    ],
    ids=["digit", "figure", "seeds", "word"],
)
def test_what_was_changed_in_the_page_is_found(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[str], str],
    numbers: int,
    said: str,
) -> None:
    page = root / "report/index.html"
    honest = page.read_text()
    page.write_text(change(honest))
    assert page.read_text() != honest
    status, (line, finding) = verified(root, capsys)
    right, total = held(line)
    assert (status, total - right) == (1, numbers) and said in finding


def test_a_changed_digit_of_a_table_is_found(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = root / "report/tables/comparisons.csv"
    text = table.read_text()
    table.write_text(re.sub(r"0\.(\d)", lambda found: f"0.{9 - int(found[1])}", text, count=1))
    status, (line, finding) = verified(root, capsys)
    right, total = held(line)
    assert (
        status == 1 and total - right == 1 and finding.startswith("- tables/comparisons.csv: '0.")
    )


def test_two_swapped_files_are_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Predictions of one seed in the place of another's, and each run.json says that it is so."""
    first, second = (root / f"runs/new/{seed}/predictions/dev.tfrecord" for seed in (0, 1))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    for seed in (0, 1):
        path = root / f"runs/new/{seed}/run.json"
        record = json.loads(path.read_text())
        entry = record["evaluation_sets"]["dev"]
        entry["sha256"] = sha256_of_file(path.parent / entry["file"])
        path.write_text(json.dumps(record))
    status, lines = verified(root, capsys)
    assert status == 1
    named = [
        line for line in lines if line.startswith("- another file than the page was made from")
    ]
    right, total = held(lines[0])
    assert right < total  # seeds are paired
    assert len(named) == 2 and "pretrain_seed 0" in named[0] and "pretrain_seed 1" in named[1]


def test_runs_that_were_left_out_or_are_gone_are_found(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_run(root, "new", 7)
    status, (line, finding) = verified(root, capsys)
    # The page's numbers are those of its own runs.
    assert status == 1 and len(set(held(line))) == 1
    assert re.match("- left out .*procedure new, pretrain_seed 7", finding)
    shutil.rmtree(root / "runs/new/7")
    shutil.rmtree(root / "runs/new/0")
    status, (line, finding, *rest) = verified(root, capsys)
    assert status == 1 and re.search("missing .*procedure new, pretrain_seed 0", finding)
    assert rest and len(set(held(line))) == 2


def test_pages_that_say_nothing_of_their_origin_are_refused(root: Path) -> None:
    page = root / "report/index.html"
    page.write_text(page.read_text().replace('id="made-from"', ""))
    with pytest.raises(UserError, match="does not say"):
        verify(page=str(page), runs=[str(root / "runs")])


def registered(root: Path, **changes: Any) -> None:
    content: dict[str, Any] = {
        "runs": 8,
        "plan": plan_hash(read_plan(root)),
        "hypothesis": "New is better.",
        "metric": "pairs/dev/accuracy",
        "stopping_rule": "all_seeds",
        "seeds": {"base": [0, 1, 2, 3], "new": [0, 1, 2, 3]},
        "analysis": {"comparisons": [COMPARISON], "n_resamples": 50, "confidence_level": 0.95},
    }
    register(root, content | changes, done=0)


def registration_on_page(root: Path) -> str:
    shutil.rmtree(root / "report")
    report(run_dir=str(root / "report"), predictions=str(root / "runs"), **SETTINGS)
    page = (root / "report/index.html").read_text()
    found = re.search(r'Registration</th><td class="wraps">([^<]*)<', page)
    assert found is not None
    return found[1]


def test_the_report_says_that_it_is_as_registered(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registered(root)
    said = registration_on_page(root)
    assert "0 of 8 runs" in said and "New is better." in said
    assert said.endswith("pairs/dev/accuracy. As registered.")
    assert verified(root, capsys)[0] == 0
    path = root / "registration.json"
    path.write_text(path.read_text().replace("New is better", "New is worse"))
    status, (_, finding) = verified(root, capsys)
    assert status == 1 and "is not the registration" in finding


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"plan": "0" * 64}, "Differs: the plan"),
        (
            {"metric": "pairs/dev/brier"},
            "Differs: pairs/dev/brier",
        ),
        ({"seeds": {"new": [0, 1]}}, "seeds [0, 1, 2, 3], registered [0, 1]"),
        (
            {"analysis": {"confidence_level": 0.9}},
            "confidence_level is 0.95, registered 0.9",
        ),
        (
            {"analysis": {"comparisons": [{**COMPARISON, "margin": 0.01}]}},
            "Differs: comparisons is",
        ),
    ],
    ids=["plan", "metric", "seeds", "level", "margin"],
)
def test_the_report_says_what_differs(root: Path, change: dict[str, Any], said: str) -> None:
    registered(root, **change)
    assert said in registration_on_page(root)


def test_an_early_look_differs_where_all_seeds_were_to_be_waited_for(root: Path) -> None:
    registered(root)
    shutil.rmtree(root / "runs/new/3")
    said = registration_on_page(root)
    assert "7 of 8 planned" in said and "registered to wait" in said


def test_a_margin_of_a_comparison_is_on_the_page(root: Path) -> None:
    settings = {**SETTINGS, "comparisons": [{**COMPARISON, "margin": 0.05}]}
    report(run_dir=str(root / "other"), predictions=str(root / "runs"), **settings)
    assert "margin" in (root / "other/index.html").read_text()
    wrong = {**SETTINGS, "comparisons": [{**COMPARISON, "margin": -1}]}
    with pytest.raises(UserError, match="margin -1"):
        report(run_dir=str(root / "wrong"), predictions=str(root / "runs"), **wrong)


def test_a_registration_is_written_once(root: Path) -> None:
    registered(root)
    before = (root / "registration.json").read_bytes()
    registered(root)
    with pytest.raises(UserError, match="registered .* metric, stopping_rule"):
        registered(root, metric="pairs/dev/f1", stopping_rule="sequential")
    assert (root / "registration.json").read_bytes() == before
