"""`stats shares` on made-up runs, whose answers depend on the seeds of some sources and not of others."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.runs.errors import UserError
from multiberts.stats.report.randomness_report import describe_shares, seed_shares
from multiberts.tests.stats.report.test_reporting import pair_columns, write_run

pytestmark = pytest.mark.seconds


def made_run(folder: Path, number: int, skill: float, key: int, facts: dict[str, Any]) -> None:
    columns = pair_columns(skill, key)
    known = {"task": "pairs", "procedure": "base", "step": 5, "learning_rate": 1e-4}
    facts = {**known, "pretrain_seed": number, "finetune_seed": 0, **facts}
    write_run(folder / str(number), facts, "dev", ["accuracy"], **columns)


def shares(folder: Path) -> dict[str, dict[str, str]]:
    seed_shares(run_dir=str(folder / "shares"), predictions=str(folder / "runs"))
    with open(folder / "shares/report/tables/shares.csv") as lines:
        return {row["Source"]: row for row in csv.DictReader(lines)}


@pytest.mark.figures
def test_a_source_that_is_switched_off_has_a_share_of_nothing(tmp_path: Path) -> None:
    skills = np.random.default_rng(0).uniform(0.5, 0.9, 4)
    cells = itertools.product(range(4), range(3))
    for number, (initialisation, dropout) in enumerate(cells):
        seeds = {"initialisation_seed": initialisation, "dropout_seed": dropout}
        facts = {"seeds": seeds, "data_seed": 0}
        made_run(tmp_path / "runs", number, skills[initialisation], initialisation, facts)
    found = shares(tmp_path)
    assert list(found) == ["pretrain.initialisation_seed", "pretrain.dropout_seed"]
    names = ("Others fixed", "Interval low", "Interval high", "Alone")
    numbers = {name: [float(row[column]) for column in names] for name, row in found.items()}
    assert numbers["pretrain.dropout_seed"] == [0.0] * 4
    assert numbers["pretrain.initialisation_seed"] == [1.0] * 4
    page = (tmp_path / "shares/report/index.html").read_text()
    assert "dropout in pre-training 0% (0% to 0%); 12 runs." in page
    limit = "where one seed in ten of a source fails, those of crossed seeds hold its true share in 59 to 85%"
    assert limit in page and limit in describe_shares(str(tmp_path / "shares"))


def test_runs_of_one_seed_for_all_have_two_sources(tmp_path: Path) -> None:
    """As in an ordinary sweep: seeds of pre-training crossed with those of fine-tuning."""
    for number, (pretrain_seed, finetune_seed) in enumerate(itertools.product(range(3), range(3))):
        facts = {"pretrain_seed": pretrain_seed, "finetune_seed": finetune_seed}
        made_run(tmp_path / "runs", number, 0.5 + 0.2 * pretrain_seed, number, facts)
    found = shares(tmp_path)
    assert list(found) == ["pretrain_seed", "finetune_seed"]
    assert float(found["pretrain_seed"]["Others fixed"]) > 0.9


def test_fine_tuning_seeds_are_averaged_where_single_sources_are_asked_about(
    tmp_path: Path,
) -> None:
    for number, (mask, dropout, finetune_seed) in enumerate(
        itertools.product(range(3), range(3), range(2))
    ):
        facts = {
            "pretrain_seed": 3 * mask + dropout,
            "data_seed": 0,
            "finetune_seed": finetune_seed,
        }
        facts["seeds"] = {"mask_seed": mask, "dropout_seed": dropout}
        made_run(tmp_path / "runs", number, 0.7, number, facts)
    found = shares(tmp_path)
    assert {name: row["Runs"] for name, row in found.items()} == {
        "pretrain.mask_seed": "9",
        "pretrain.dropout_seed": "9",
    }


def test_too_few_seeds_are_refused_in_a_line(tmp_path: Path) -> None:
    for number in range(4):
        facts = {"pretrain_seed": number // 2, "finetune_seed": number % 2}
        made_run(tmp_path / "runs", number, 0.7, number, facts)
    with pytest.raises(UserError, match="^pairs/dev, accuracy, base, .*2 seeds"):
        shares(tmp_path)
    for number in range(4):
        facts = {"task": "other", "pretrain_seed": number // 2, "finetune_seed": number % 2}
        made_run(tmp_path / "runs/other", number, 0.7, number, facts)
    with pytest.raises(UserError, match="^none of 2 sets shows its shares; .*, base, .*2 seeds"):
        shares(tmp_path)
    assert not (tmp_path / "shares").exists()
