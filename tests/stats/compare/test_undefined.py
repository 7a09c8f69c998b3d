"""Where a score is 0/0 in every run of an arm nothing is compared, and it is said why."""

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest

from multiberts import stats
from multiberts.report.compare_command import compare_files
from multiberts.report.evidence import compare_all
from multiberts.stats.errors import DataError, UndefinedScore

FEW = {"n_resamples": 40}
LABELS = (np.arange(300) % 5 < 2) * 1


def finds(share, seeds=4, key=0):
    """Answers [seeds, examples] that find this share of the positives and nothing else."""
    return (np.random.default_rng(key).random((seeds, len(LABELS))) < share) * LABELS


def test_a_slice_without_a_score_is_not_tested():
    result = stats.compare(finds(0.6), finds(0.75, key=1), "f1", labels=LABELS, **FEW)
    found = stats.slices(result, "label")
    of_zero, of_one = found.slices
    assert of_zero.base is of_zero.experiment is of_zero.estimate is None
    assert of_zero.ci is of_zero.p_value is of_zero.p_holm is of_zero.against_rest is None
    # One slice is tested, so that Holm's correction changes nothing; and it has no rest to be set against.
    assert of_one.p_holm == of_one.p_value < 1
    assert of_one.against_rest is of_one.against_rest_p is of_one.against_rest_p_holm is None
    table = found.table()
    assert table.texts()[0][2:] == ("-",) * 8
    assert re.search("F1 .*label is 0: .*0/0 .*180 labels and all predictions are 0", table.note)
    assert "Where label is 1, nothing" in table.note
    assert found.plot().axes
    assert json.loads(json.dumps(found.to_dict()))["slices"][0]["estimate"] is None


def test_a_slice_without_positives_has_no_f1_whatever_is_predicted():
    random = np.random.default_rng(5)
    arms = [np.where(random.random((4, 300)) < 0.2, 1 - LABELS, LABELS) for _ in range(2)]
    found = stats.slices(stats.compare(*arms, "f1", labels=LABELS, **FEW), "label")
    of_zero, of_one = found.slices
    assert of_zero.estimate is of_zero.p_value is of_one.against_rest is None
    note = found.table().note
    assert re.search("F1 .*label is 0: .*0 whatever is predicted, .*180 labels", note)


def test_a_slice_names_the_arm_and_the_seeds_without_a_score():
    base, experiment = finds(0.6), finds(0.75, key=1)
    kinds = np.repeat(["a", "b"], 150)
    base[:, :150] = 0
    experiment[1, :150] = 0
    result = stats.compare(base, experiment, "precision", labels=LABELS, **FEW)
    found = stats.slices(result.named("old", "new"), kinds)
    first, second = found.slices
    assert first.base is None and first.experiment == 0.75 and first.estimate is None
    assert second.estimate == 0 and second.rest_undefined
    note = found.table().note
    assert re.search("Precision of old .*slice is a: .*0/0 .*predictions are 0", note)
    assert re.search("Precision of new .*0/0 in seed 1 .*slice is a and counts", note)


ONES, ZEROS = np.ones(300, int), np.zeros(300, int)
NUMBERS = np.arange(300.0)


@pytest.mark.parametrize(
    ("metric", "labels", "answers", "why"),
    [
        ("f1", ZEROS, [ZEROS] * 2, r"F1 of base .*300 labels and all predictions are 0"),
        ("recall", ZEROS, [LABELS] * 2, r"recall of base .*300 labels are 0"),
        ("precision", LABELS, [ZEROS] * 2, r"as all predictions are 0"),
        ("matthews", ONES, [LABELS] * 2, r"Matthews' .*300 labels are 1"),
        ("matthews", LABELS, [ZEROS, ONES], r"run predicts one value"),
        ("auc", ONES, [NUMBERS] * 2, r"AUC of base .*300 labels are 1"),
        ("average_precision", ZEROS, [NUMBERS] * 2, r"as all 300 labels are 0"),
        ("pearson", NUMBERS, [0 * NUMBERS] * 2, r"as all predictions are 0"),
        ("spearman", 0 * NUMBERS, [NUMBERS] * 2, r"as all 300 labels are 0"),
        ("span_f1", np.array(["O"] * 300), [np.array(["O"] * 300)] * 2, "all predictions are 'O'"),
    ],
)
def test_a_score_of_no_run_is_refused(metric, labels, answers, why):
    for design, other in (("paired", np.stack(answers)), ("single", None)):
        with pytest.raises(UndefinedScore, match=why) as error:
            stats.compare(np.stack(answers), other, metric, labels=labels, design=design, **FEW)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("metric", ["f1", "recall", "matthews", "pearson"])
def test_the_metric_that_is_offered_instead_has_a_score(metric):
    arms = 0 * finds(0.5), finds(0.7, key=1)
    with pytest.raises(UndefinedScore, match="0/0 in every seed") as error:
        stats.compare(*arms, metric, labels=ZEROS, **FEW)
    instead = str(error.value).rpartition("such as ")[2]
    assert stats.compare(*arms, instead, labels=ZEROS, **FEW).p_value < 1


def test_a_seed_without_a_score_counts_as_zero_and_is_named():
    base = finds(0.6)
    base[2] = 0
    found = stats.compare(base, finds(0.7, key=1), "precision", labels=LABELS, **FEW)
    assert found.base.estimate == 0.75
    assert re.search("Precision of base .*0/0 in seed 2 .*as 0 %", str(found))
    assert "0/0 in seed" not in str(stats.compare(base, finds(0.7), "f1", labels=LABELS, **FEW))
    scores = np.tile(NUMBERS, (3, 1))
    scores[1, LABELS == 0] = np.nan
    found = stats.compare(scores, None, "auc", labels=LABELS, missing="omit", **FEW)
    assert re.search("AUC of base .*0/0 in seed 1 .*as 0.5", str(found))


def write(path, answers):
    rows = [
        {"seed": seed, "id": row, "prediction": int(answer), "label": LABELS[row]}
        for seed, own in enumerate(answers)
        for row, answer in enumerate(own)
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return str(path)


def test_the_command_compares_the_others_and_says_who_is_left_out(tmp_path):
    old, new, third, broken = (
        write(tmp_path / f"{name}.csv", answers)
        for name, answers in (
            ("old", finds(0.5)), ("new", finds(0.6, key=1)), ("third", finds(0.7, key=2)),
            ("broken", 0 * finds(0.5)),
        )
    )  # fmt: skip
    few, page = {"metric": "precision", "n_resamples": 40}, tmp_path / "page.html"
    arms = {"results": old, "experiment": [new, broken, third], "base": "old"}
    text = compare_files(**arms, html=str(page), **few)
    said = "broken against old on all examples, precision: precision of experiment has no value: it is 0/0 in"
    assert f"Note: Left out: {said}" in text and "third" in text
    assert said in page.read_text()
    with pytest.raises(DataError, match="broken against old .*precision: .*0/0"):
        compare_files(results=old, experiment=[broken], **few)


def test_a_report_goes_on_without_a_request_of_which_nothing_is_left(tmp_path):
    from multiberts.report.arms_of_files import read
    from multiberts.report.evidence import Pair, Request
    from multiberts.report.prediction_sets import PredictionSet
    from multiberts.stats.settings import ComparisonSettings

    sets = {}
    for name, answers in (("old", finds(0.5)), ("new", finds(0.6)), ("broken", 0 * finds(0.5))):
        (data,) = read(write(tmp_path / f"{name}.csv", answers)).values()
        sets[name] = PredictionSet("", "set", name, None, ("matthews",), data)
    pairs = {
        name: Pair((sets["old"], sets[name]), "matthews", ("old", name), f"{name} against old", name)
        for name in ("broken", "new")
    }  # fmt: skip
    settings = ComparisonSettings(n_resamples=40)
    requests = [
        Request("first", settings, [pairs["broken"]], primary=0),
        Request("second", settings, [pairs["broken"], pairs["new"]], primary=1),
    ]
    (found,) = compare_all(requests)
    assert found.name == "second" and len(found.unranked) == 2 and found.primary == 0
    assert found.asked.comparison.experiment.name == "new"
    first_alone = dataclasses.replace(requests[1], pairs=[pairs["new"], pairs["broken"]])
    (found,) = compare_all([first_alone])
    assert found.primary is None and len(found.items) == 1
    with pytest.raises(UndefinedScore, match="broken against old on set"):
        compare_all(requests[:1])
