"""The paper's tables: their numbers are the comparisons', and every notation parses back."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from multiberts.papers.multiberts.catalogue import (
    PUBLISHED,
    Catalogue,
    compare_family,
    compare_pair,
)
from multiberts.papers.multiberts.run_agreement import agreement
from multiberts.papers.multiberts.tables import (
    agreement_table,
    comparison_table,
    component_table,
    family_table,
    score_table,
)
from multiberts.report.selection import (
    FinishedRun,
    LearningRateChoice,
    RunGroup,
    learning_rate_table,
)
from multiberts.stats import compare
from multiberts.stats.errors import DataError
from multiberts.stats.intervals import ConfidenceInterval
from multiberts.tests.papers.conftest import chosen
from multiberts.tests.worlds import changed

SETTINGS = replace(PUBLISHED, n_resamples=40)


@pytest.fixture(scope="module")
def bias(prediction_sets):
    paper = Catalogue(prediction_sets, settings=SETTINGS)
    return [paper.unpaired[0], *paper.sources]


@pytest.fixture(scope="module")
def pairs(prediction_sets):
    late_and_early = [chosen(prediction_sets, task, "base")[:2] for task in ("RTE", "STS-B")]
    return [(early, late) for late, early in late_and_early]


def read(table):
    return list(csv.DictReader(io.StringIO(table.csv())))


def check_notations(table):
    """As many cells in every row of Markdown, LaTeX and CSV, and the same texts."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table.markdown().splitlines()
        if line.startswith("| ")
    ]
    assert rows[0] == list(table.columns)
    assert [tuple(row) for row in rows[1:]] == table.texts()
    lines = [line for line in table.latex().splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in lines} == {len(table.columns) - 1}
    assert len(lines) == len(table.rows) + 1 == len(read(table)) + 1


def test_comparisons_are_written_in_full(bias):
    table = comparison_table(bias, "Table 2", "less")
    check_notations(table)
    assert table.title == "Table 2, coreference/winogender, experiment: cda_full, base: cda_incr"
    assert [row["Resampled"] for row in read(table)] == [
        "seeds and examples", "seeds and examples", "seeds only", "examples only",
    ]  # fmt: skip
    for row, item in zip(read(table), bias, strict=True):
        assert float(row["Difference"]) == item.estimate
        assert float(row["Difference (95% CI, t) low"]) == item.ci.low
        assert float(row["p (t)"]) == item.p_value
        assert float(row["Base score, published"]) == item.samples[:, 0].mean()
        assert float(row["Difference, published"]) == item.bootstrap_mean
        assert (
            float(row["Difference (95% percentile, published) high"])
            == item.intervals["percentile"].high
        )
        assert float(row["p (less, published)"]) == item.p_values["published"].less
    # Where seeds are held fixed there is no floor.
    assert [row["p relies on normal seeds"] for row in read(table)][-1] == ""


def test_columns_that_differ_are_kept(prediction_sets, pairs):
    table = comparison_table(
        [compare_pair(base, other, base.measures[0], settings=SETTINGS) for base, other in pairs]
    )
    assert [row["Set"] for row in read(table)] == ["RTE/dev", "STS-B/dev"]
    assert table.title == "experiment: 2M steps, base: 1M steps"
    check_notations(table)


def test_a_family_with_its_corrections(pairs):
    family = compare_family(pairs, settings=SETTINGS)
    table = family_table(family)
    check_notations(table)
    rows = read(table)
    assert [row["Task"] for row in rows] == ["RTE/dev", "STS-B/dev", "macro-average"]
    assert [float(row["p (Holm)"]) for row in rows[:2]] == list(family.adjusted["holm"])
    assert float(rows[2]["Difference"]) == family.macro_average.estimate
    assert rows[2]["p (Holm)"] == ""


def test_agreement_in_per_cent(prediction_sets):
    found = {
        predictions.set_name: agreement(predictions.data)
        for task in ("RTE", "STS-B")
        for predictions in chosen(prediction_sets, task, "base")[:1]
    } | {"alone": agreement(chosen(prediction_sets, "RTE", "original")[0].data)}
    table = agreement_table(found)
    check_notations(table)
    rows = read(table)
    assert [row["Measure"] for row in rows] == ["equal answers", "correlation", "equal answers"]
    for row, item in zip(rows, found.values(), strict=True):
        assert float(row["Same seed (%)"]) == 100 * item.same_seed.value
        assert float(row["Same seed (95% CI) low"]) == 100 * item.same_seed.interval.low
    assert rows[2]["Different seeds (%)"] == rows[2]["Different seeds (95% CI) high"] == ""


def test_scores_and_components(prediction_sets):
    late, _, original = chosen(prediction_sets, "RTE")
    scores = late.run_scores("accuracy"), original.run_scores("accuracy")
    table = score_table({("RTE/dev", "accuracy"): scores})
    check_notations(table)
    first, second = read(table)
    single = compare(late.data, None, "accuracy", design="single", n_resamples=40)
    assert float(first["Mean"]) == pytest.approx(single.estimate)
    assert float(first["SD over seeds"]) == scores[0].seed_scores.std(ddof=1)
    within = sum(float(run.var(ddof=1)) for run in scores[0].by_seed.values()) / 6
    assert float(first["SD over runs of a seed"]) == pytest.approx(within**0.5)
    runs = np.concatenate(list(scores[0].by_seed.values()))
    size = len(runs) // len(scores[0].by_seed)
    drawn = np.random.default_rng(0).choice(runs, (100_000, size)).mean(axis=1).std()
    assert float(first["SD if seeds did not matter"]) == pytest.approx(drawn, rel=0.02)
    assert second["SD over seeds"] == ""
    found = late.components("accuracy")
    table = component_table({("RTE/dev", "accuracy"): found})
    check_notations(table)
    (row,) = read(table)
    assert float(row["Example"]) == found.example
    assert float(row["Total"]) == found.total


def test_learning_rates():
    run = FinishedRun(Path("run"), {"pretrain_seed": 0, "learning_rate": 2e-5})
    group = RunGroup("RTE", "base", 600, (run,))
    choice = LearningRateChoice(group, 2e-5, "dev", "accuracy", {2e-5: 0.75, 3e-5: 0.5})
    table = learning_rate_table([choice])
    check_notations(table)
    assert [(row["Learning rate"], row["Chosen"]) for row in read(table)] == [
        ("2e-05", "True"), ("3e-05", "False"),
    ]  # fmt: skip


def test_refusals(bias, prediction_sets):
    with pytest.raises(DataError, match="direction 'down'"):
        comparison_table(bias, direction="down")
    low, high = bias[0].ci
    narrower = changed(bias[0], ci=ConfidenceInterval(low, high, 0.9, "t"))
    with pytest.raises(DataError, match=r"comparisons of confidence \[0.9, 0.95\]"):
        comparison_table([bias[0], narrower])
    with pytest.raises(DataError, match="single design"):
        comparison_table([changed(bias[0], experiment=None)])
