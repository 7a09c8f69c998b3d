"""`learned` on made-up runs: examples of a known time, one that is forgotten, and steps that do not fit."""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from multiberts.runs.errors import UserError
from multiberts.stats.report.learning_report import learned
from multiberts.stats.report.page_run import describe
from multiberts.tests.stats.report.test_reporting import write_run

pytestmark = pytest.mark.seconds

STEPS = (0, 10, 20, 30)
DUE = {"often": 10, "seldom": 30, "never": 99, "lost": 0}


def made_run(folder: Path, seed: int, step: int) -> None:
    """`lost` is right at first and wrong at step 20; the rest are right once they are due."""
    right = np.array([step >= due and (name, step) != ("lost", 20) for name, due in DUE.items()])
    facts = {
        "task": "facts", "procedure": "base", "step": step, "pretrain_seed": seed, "finetune_seed": 0,
        "learning_rate": 0.0,
    }  # fmt: skip
    columns = {
        "example_ids": list(DUE),
        "labels": np.ones(len(DUE)),
        "predictions": right.astype(float),
        "outputs": {"loss": np.where(right, 0.0, 2.0)},
    }
    write_run(folder / f"{seed}-{step}", facts, "masked", ["accuracy"], **columns)


@pytest.mark.figures
def test_examples_are_learned_when_the_world_has_it(tmp_path: Path) -> None:
    for seed in range(3):
        for step in STEPS:
            made_run(tmp_path / "runs", seed, step)
    run = tmp_path / "learned"
    learned(run_dir=str(run), predictions=str(tmp_path / "runs"))
    with open(run / "report/tables/facts-masked-examples.csv") as lines:
        found = {row["Example"]: row for row in csv.DictReader(lines)}
    assert [found[name]["Learned by half"] for name in DUE] == ["10", "30", "", "30"]
    assert [float(found[name]["Forgotten"]) for name in DUE] == [0, 0, 0, 1]
    assert list(found) == ["often", "seldom", "lost", "never"]
    chances = [1.0, *[np.exp(-2.0)] * 3]
    assert float(found["seldom"]["Confidence"]) == pytest.approx(np.mean(chances))
    said = describe(str(run))
    assert "base has learned 75% of 4 examples by step 30." in said
    with open(run / "report/tables/learned.csv") as lines:
        [row] = csv.DictReader(lines)
    numbers = {name: float(row[name]) for name in list(row)[4:]}
    by_step = {"Learned by step 0": 0, "Learned by step 10": 0.25, "Learned by step 20": 0.25}
    assert numbers == by_step | {
        "Learned by step 30": 0.75, "Right in all runs": 0.75, "Right in none": 0.25, "Forgotten": 0.25
    }  # fmt: skip


def test_the_page_says_what_guesses_would_show(tmp_path: Path) -> None:
    """Two classes, of which one has three in four examples; three runs."""
    for seed in range(3):
        for step in (0, 10):
            facts = {
                "task": "facts", "procedure": "base", "step": step, "pretrain_seed": seed,
                "finetune_seed": 0, "learning_rate": 0.0,
            }  # fmt: skip
            columns = {
                "example_ids": list("abcd"),
                "labels": np.array([0, 1, 1, 1]),
                "predictions": np.array([0, 1, 0, seed]) % 2,
            }
            write_run(tmp_path / f"runs/{seed}-{step}", facts, "dev", ["accuracy"], **columns)
    run = tmp_path / "learned"
    learned(run_dir=str(run), predictions=str(tmp_path / "runs"))
    said = describe(str(run))
    assert re.search("by chance: .*2 classes .*learned on 50% .*most frequent .*75%", said)


@pytest.mark.figures
def test_procedures_share_one_chart(tmp_path: Path) -> None:
    for procedure, step, seed in itertools.product(("base", "cda_full"), (0, 10), range(2)):
        facts = {
            "task": "facts", "procedure": procedure, "step": step, "pretrain_seed": seed,
            "finetune_seed": 0, "learning_rate": 0.0,
        }  # fmt: skip
        columns = {"example_ids": ["a", "b"], "labels": np.ones(2), "predictions": np.ones(2)}
        write_run(
            tmp_path / f"runs/{procedure}{seed}-{step}", facts, "dev", ["accuracy"], **columns
        )
    learned(run_dir=str(tmp_path / "learned"), predictions=str(tmp_path / "runs"))
    report = tmp_path / "learned/report"
    assert {path.name for path in (report / "figures").iterdir()} == {
        "facts-dev-curves.svg", "facts-dev-map.svg"
    }  # fmt: skip
    drawn = (report / "figures/facts-dev-curves.svg").read_text()
    assert ">base<" in drawn and ">cda full<" in drawn


@pytest.mark.figures
def test_examples_at_one_place_of_the_map_make_its_dot_larger(tmp_path: Path) -> None:
    for step in (0, 10):
        facts = {
            "task": "facts", "procedure": "base", "step": step, "pretrain_seed": 0,
            "finetune_seed": 0, "learning_rate": 0.0,
        }  # fmt: skip
        columns = {
            "example_ids": list("abcde"), "labels": np.ones(5),
            "predictions": np.array([1, 1, 1, 1, 0 if step else 1]),
        }  # fmt: skip
        write_run(tmp_path / f"runs/{step}", facts, "dev", ["accuracy"], **columns)
    run = tmp_path / "learned"
    learned(run_dir=str(run), predictions=str(tmp_path / "runs"))
    drawn = (run / "report/figures/facts-dev-map.svg").read_text()
    dots = drawn[: drawn.index("legend_1")].split('clip-path="url')[1:]
    paths = re.findall(r'<path id="(m\w+)" d="M 0 ([\d.]+)', drawn)
    radius = {name: float(size) for name, size in paths}
    used = [
        radius[name]
        for dot in dots
        for name in re.findall(r'href="#(m\w+)"', dot)
        if name in radius
    ]
    assert len(used) >= 2 and max(used) == pytest.approx(2 * min(used))
    assert "several at the same place" in (run / "report/index.html").read_text()


def test_steps_with_other_seeds_are_refused(tmp_path: Path) -> None:
    made_run(tmp_path / "runs", 0, 0)
    with pytest.raises(UserError, match="no evaluation set .*two steps"):
        learned(run_dir=str(tmp_path / "learned"), predictions=str(tmp_path / "runs"))
    made_run(tmp_path / "runs", 1, 10)
    with pytest.raises(UserError, match="step 10 .*step 0"):
        learned(run_dir=str(tmp_path / "learned"), predictions=str(tmp_path / "runs"))
    assert not (tmp_path / "learned").exists()
