"""A report within an experiment: early answers, links, and where its data come from."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from multiberts.report.experiment import experiment_of
from multiberts.report.presentation.planning import needs_in_words
from multiberts.report.reporting import describe_report, report
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import read_plan
from multiberts.stats import compare
from multiberts.tests.report.test_reporting import COMPARISONS, SEEDS, write_world

pytestmark = pytest.mark.seconds

ROOT = Path(__file__).resolve().parents[2]


def write_plan(root: Path, seeds: range) -> None:
    """Plans the runs that `write_world` makes, of more seeds."""
    runs: list[dict[str, Any]] = []
    for procedure, step in (("base", 0), ("base", 600), ("cda_incr", 700)):
        for seed in seeds:
            path = f"pretrain/{procedure}/seed_{seed}"
            rest: dict[str, Any] = {"identity": "1", "parents": [], "estimate": None}
            runs.append({"path": path, "stage": "pretrain", "name": path, "facts": {}, **rest})
            facts = {"procedure": procedure, "checkpoint_step": step, "pretrain_seed": seed}
            for task, ends in (("pairs", ("0.0001", "0.0003")), ("coreference", ("",))):
                for finetune_seed in range(2):
                    for end in ends:
                        place = f"runs/{task}/{procedure}/{step}/{seed}/{finetune_seed}/{end}"
                        run = {"path": place.rstrip("/"), "stage": "finetune", "name": place}
                        runs.append(run | {"facts": {"task": task, **facts}} | rest)
    (root / "launch").mkdir(exist_ok=True)
    (root / "launch" / "plan.json").write_text(json.dumps({"version": 1, "runs": runs}))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of ten planned seeds, of which five are done."""
    root = tmp_path_factory.mktemp("experiment") / "all of it"
    write_world(root / "runs", learning_rates=())
    write_plan(root, range(10))
    for seed in SEEDS:
        (root / f"pretrain/base/seed_{seed}" / "tensorboard").mkdir(parents=True)
    (root / "logs").mkdir()
    (root / "logs" / "pretrain-base-seed_0.log").write_text("trained\n")
    return root


@pytest.fixture(scope="module")
def arguments(root: Path) -> dict[str, Any]:
    return {
        "predictions": str(root / "runs/coreference"),
        "title": "Early",
        "comparisons": COMPARISONS[:1],
        "n_resamples": 40,
    }


@pytest.fixture(scope="module")
def page(root: Path, arguments: dict[str, Any]) -> str:
    report(run_dir=str(root / "report"), **arguments)
    return (root / "report" / "index.html").read_text()


MISSING = (
    "Made from 30 of 60 planned fine-tuning runs, 5 of 10 planned seeds: numbers will change, and p is "
    "that of a single look."
)


def test_an_unfinished_report_begins_with_the_planned_seeds_and_that_p_is_of_a_single_look(
    root: Path, page: str
) -> None:
    """The first to have the report and its runs, which take longer than what is asked of them."""
    assert page[page.index("</h1>") :].startswith(f'</h1>\n<p class="warn">{MISSING}</p>')
    assert describe_report(str(root / "report")).split("\n\n")[1] == MISSING


def test_runs_that_are_planned_outside_of_what_the_report_reads_are_not_missing(
    tmp_path: Path,
) -> None:
    write_plan(tmp_path, range(2))
    pairs = [tmp_path / run.path for run in read_plan(tmp_path) if "/pairs/" in run.path]
    for folders, missing in (
        (["runs/pairs"], ""),
        (["runs/pairs", "runs/coreference/base"], "Made from 24 of 32 .* 0 of 2 planned seeds: "),
    ):
        experiment = experiment_of(tmp_path / "report", [str(tmp_path / name) for name in folders])
        assert experiment is not None
        assert re.fullmatch(f"{missing}.*" if missing else "", experiment.missing(pairs))


def test_the_primary_comparison_may_not_be_there_yet(root: Path, arguments: dict[str, Any]) -> None:
    """With runs missing the page opens with what is there, and says that runs are missing."""
    comparison = {**COMPARISONS[0], "primary": "later/accuracy"}
    given = {**arguments, "comparisons": [comparison]}
    report(run_dir=str(root / "without_primary"), **given)
    page = (root / "without_primary" / "index.html").read_text()
    assert MISSING in page and 'class="answer"' in page


def test_the_report_is_made_again_when_there_are_more_runs(
    root: Path, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """Alone it replaces an early report."""
    early = tmp_path / "experiment"
    shutil.copytree(root / "runs/coreference", early / "runs/coreference")
    for done in early.glob("runs/*/*/*/4/*/**/DONE"):
        done.unlink()
    write_plan(early, range(5))
    given = arguments | {"predictions": str(early / "runs/coreference")}
    report(run_dir=str(early / "report"), **given)
    assert ", 4 of 5 planned seeds: numbers" in (early / "report" / "index.html").read_text()
    for done in (root / "runs/coreference").rglob("DONE"):
        shutil.copy(done, early / done.relative_to(root))
    report(run_dir=str(early / "report"), **given)
    assert "planned" not in (early / "report" / "index.html").read_text()


def test_links_lead_to_status_runs_logs_and_tensorboard(root: Path, page: str) -> None:
    here = root / "report"
    links = [unquote(link) for link in re.findall(r'href="(\.\.[^"]*)"', page)]
    assert "../status.html" in links
    assert all((here / link).exists() for link in links if link != "../status.html")
    for wanted in (
        "pretrain/base/seed_0",
        "logs/pretrain-base-seed_0.log",
        "runs/coreference/base/600/0/0",
    ):
        assert f"../{wanted}" in links
    assert len({link for link in links if link.endswith("/tensorboard")}) == len(SEEDS)


def test_the_same_data_give_the_same_bytes_at_any_time(
    root: Path, arguments: dict[str, Any], page: str
) -> None:
    time.sleep(1.1)
    report(run_dir=str(root / "again"), **arguments)
    assert (root / "again" / "index.html").read_text() == page


def test_the_page_says_where_its_numbers_come_from(root: Path, page: str) -> None:
    facts = dict(re.findall(r'<th scope="row">([^<]*)</th><td class="wraps">([^<]*)</td>', page))
    markers = list((root / "runs").rglob("DONE"))
    digests = sorted({hashlib.sha256(marker.read_bytes()).hexdigest() for marker in markers})
    assert hashlib.sha256("".join(digests).encode()).hexdigest() in facts["Data"]
    newest = max(os.stat(marker).st_mtime for marker in markers)
    assert facts["Date of the data"] == time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(newest))
    made_with = {"Python", "multiberts", "scipy", "xarray", "matplotlib"}
    assert {"Command", *made_with} <= facts.keys() and facts["numpy"] == np.__version__
    assert facts["Processor"] and int(facts["Processor cores"]) >= 1
    assert "depend on the processor" in page
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False)
    known = (
        commit.stdout.strip() if (ROOT / ".git").exists() and not commit.returncode else "not known"
    )
    assert facts["Commit"].startswith(known)


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    assert experiment_of(tmp_path / "report") is None
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "plan.json").write_text('{"version": 1, "runs": [{"path": 3}]}')
    with pytest.raises(UserError, match=r"plan\.json, .*path is 3"):
        experiment_of(tmp_path / "report")


def test_what_is_not_clear_among_all_is_not_said_to_be_found() -> None:
    random = np.random.default_rng(1)
    base = random.normal(0.0, 0.1, (6, 40))
    item = compare(base, base + random.normal(0.12, 0.03, (6, 1)), "mean", n_resamples=50)
    assert item.p_value is not None and item.p_value < 0.05
    alone, among = (" ".join(needs_in_words(item, p)) for p in (None, 0.2))
    assert "not after correcting" in among
    assert "correcting" not in alone and "Detecting a true difference" not in alone
