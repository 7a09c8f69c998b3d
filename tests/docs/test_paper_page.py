"""The numbers of docs/paper.md: published predictions imported and scored again."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "paper.md"


@pytest.fixture(scope="module")
def scores(shared_data, tmp_path_factory):
    """Scores in full by (task, evaluation set, metric, procedure, fine-tuning seed)."""
    root = tmp_path_factory.mktemp("published")
    [recipe] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    subprocess.run(
        [sys.executable, "-c", recipe],
        cwd=root,
        env={**os.environ, "DATA": str(shared_data)},
        check=True,
    )
    subprocess.run(
        [sys.executable, "-m", "launch", "run", f"--root={root}",
         "--gin_file=configs/launch/published_predictions.gin",
         f"--gin_param=DATA = {str(shared_data)!r}",
         f"--gin_param=TEN_SEEDS = {str(root / 'ten_seeds.csv.gz')!r}"],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    names = ("task", "evaluation_set", "metric", "procedure", "finetune_seed")
    return {
        tuple(row[name] for name in names): float(row["score"])
        for row in csv.DictReader((root / "scores" / "scores.csv").open())
    }


def rows(first_cell):
    """Cells of the page's table rows whose first cell fits a pattern."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(first_cell, cells[0]):
            found.append(cells)
    return found


def test_ten_runs_of_the_original_bert(shared_data):
    reported = np.load(shared_data / "multiseed" / "instability_bert_base_10seeds.npz")
    entailed = reported["preds_hans"] == reported["label_names"].tolist().index("entailment")
    right = {
        "mnli": reported["preds_mnli"] == reported["gold_mnli"],
        "hans": entailed == reported["gold_hans_entailment"],
    }
    table = rows(r"\d+")
    assert [int(cells[0]) for cells in table] == reported["seeds"].tolist()
    for place, cells in enumerate(table):
        for name, (published, ours, same) in zip(right, (cells[1:4], cells[4:7]), strict=True):
            assert published == f"{reported[f'reported_acc_{name}'][place]:.6f}"
            assert ours == f"{right[name][place].mean():.6f}"
            assert same == "yes" and published == ours


@pytest.mark.slow
def test_ten_runs_imported_and_scored(scores):
    for cells in rows(r"\d+"):
        for name, ours in (("dev", cells[2]), ("hans", cells[5])):
            assert ours == f"{scores['MNLI', name, 'accuracy', 'original', cells[0]]:.6f}"


@pytest.mark.slow
def test_squad_systems(scores):
    table = rows(r"v[12]\.\w+")
    assert len(table) == 9
    for name, exact, our_exact, f1, our_f1, same in table:
        task = f"squad-{name[:4]}"
        for text, metric in ((our_exact, "squad_exact_match"), (our_f1, "squad_f1")):
            assert text == f"{100 * scores[task, 'dev', metric, name, '0']:.3f}"
        assert same == "yes" and (exact, f1) == (our_exact, our_f1)


def test_the_page_names_tables_that_the_report_has():
    source = "".join((ROOT / "papers" / "multiberts" / "reproduction.py").read_text().split())
    named = {
        cells[2].strip("`") for cells in rows(r"(Table|Appendix|agreement|learning|means of).*")
    }
    assert {"winogender_paired", "steps", "original", "agreement"} <= named
    assert all(f'"{name}",' in source for name in named), named
