"""Headings, methods paragraphs and sentences name what was computed, whatever was asked for."""

import re

import numpy as np
import pandas as pd
import pytest
import xarray

from multiberts import stats
from multiberts.report import printing
from multiberts.report.compare_command import compare_files

FEW = {"n_resamples": 39}


def answers(skill, key=0, num_seeds=5, num_examples=100):
    random = np.random.default_rng([8, key])
    return (random.random((num_seeds, num_examples)) < skill).astype(float)


def hardly_different():
    right = np.tile(answers(0.8)[:1], (5, 1))
    other = right.copy()
    other[:, :2] = 1 - other[:, :2]
    return right, other


def correlated(slope):
    random = np.random.default_rng(3)
    labels = random.normal(size=80)
    return labels, slope * labels + random.normal(size=(4, 80)) + random.normal(size=80)


NEAR = answers(0.99, 1)
LABELS, CLOSE = correlated(3.0)
RESULTS = {
    "t": lambda: stats.compare(answers(0.7, 1), answers(0.75, 2), **FEW),
    "Newcombe": lambda: stats.compare(*hardly_different(), **FEW),
    "Wilson": lambda: stats.compare(NEAR, design="single", **FEW),
    "Clopper-Pearson": lambda: stats.compare(np.ones((3, 50)), design="single", **FEW),
    "Fisher z": lambda: stats.compare(
        CLOSE, None, "pearson", design="single", labels=LABELS, **FEW
    ),
}
IN_METHODS = {
    "t": "the difference are Student's t",
    "Newcombe": "the difference are Newcombe's (1998), from score intervals",
    "Wilson": "Intervals of scores are Wilson's (1927) score interval",
    "Clopper-Pearson": "Intervals of scores are Clopper and Pearson's (1934)",
    "Fisher z": "Intervals of scores are Student's t on Fisher's (1921) z",
}


@pytest.mark.parametrize("method", RESULTS)
def test_methods_and_headings_name_what_was_computed(method):
    result = RESULTS[method]()
    assert result.ci.method == method
    assert IN_METHODS[method] in result.methods()
    columns = printing.table(result).columns
    heading = columns[2]
    assert heading.startswith("95% CI (") and method in heading
    assert method in result.latex() and method in result.table().markdown()
    if method == "Newcombe":
        assert "p (Newcombe)" in columns
        assert "Newcombe's interval over seeds and examples" in str(result)
        assert "Newcombe, R. G. (1998)" in result.methods()
    elif method != "t":
        assert "the difference" not in result.methods()


def test_many_arms_claim_no_more_of_seeds_than_the_data_say():
    result = stats.compare_arms({name: answers(0.7, key) for key, name in enumerate("abc")}, **FEW)
    text = result.methods()
    assert "pre-training" not in text and "fine-tuning" not in text
    assert "by mean, averaged over 5 seeds" in text
    assert "tests of differences are Student's t." in text


def test_missing_predictions_are_in_the_methods():
    base, experiment = answers(0.7, 1), answers(0.75, 2)
    base[0, :3] = np.nan
    result = stats.compare(base, experiment, missing="omit", **FEW)
    assert result.base.num_missing == 3 and result.experiment.num_missing == 0
    assert "Missing predictions (3 of base)" in result.methods()
    assert "Missing" not in stats.compare(answers(0.7, 1), experiment, **FEW).methods()


def test_what_is_too_few_to_plan_from_is_named():
    two = [
        xarray.DataArray(table, {"pretrain_seed": range(5)}, ("pretrain_seed", "example"))
        for table in np.random.default_rng(0).normal(size=(2, 5, 2))
    ]
    assert "planned from 2 examples" in str(stats.compare(*two, "mean", **FEW))
    clusters = np.arange(100) // 50
    text = str(stats.compare(answers(0.7, 1), answers(0.8, 2), clusters=clusters, **FEW))
    assert "planned from 2 clusters" in text


@pytest.mark.parametrize("rise", [0.0, 0.02])
def test_many_arms_have_who_leads_first_and_few_sentences(tmp_path, rise):
    frames = [
        pd.DataFrame({"arm": f"m{arm:02}", "seed": seed, "example": range(100), "score": row})
        for arm in range(20)
        for seed, row in enumerate(answers(0.55 + rise * arm, arm, 8))
    ]
    path = tmp_path / "arms.csv"
    pd.concat(frames).to_csv(path, index=False)
    alone = compare_files(results=str(path), **FEW)
    assert "m00 against" not in alone and alone.startswith("m19 " if rise else "m15 ")
    text = compare_files(results=str(path), base="m00", **FEW)
    assert text.startswith(alone.partition(".")[0])
    sentences = re.findall(r"^m\d+ is better than m00: ", text, re.MULTILINE)
    if rise:
        assert len(sentences) == 5
        assert "of 19 comparisons are clear; the 5" in text
    else:
        assert not sentences and "None of 19 comparisons is clear." in text
