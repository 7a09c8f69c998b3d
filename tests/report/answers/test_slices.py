"""Slices of the examples: the comparison of each, and whether it differs from the rest."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import xarray

from multiberts import stats
from multiberts.report.compare_command import compare_files
from multiberts.runs.errors import UserError
from multiberts.stats.errors import DataError
from multiberts.stats.significance import adjusted_p_values

FEW = {"n_resamples": 40}
KINDS = np.repeat(["easy", "hard", "rare"], [150, 100, 20])


def arms(gain=0.15, seeds=5, key=0):
    """0/1 answers [seeds, examples] of two arms; the second gains on hard examples alone."""
    random = np.random.default_rng(key)
    chance = np.where(KINDS == "easy", 0.8, 0.55)
    shift = np.where(KINDS == "hard", gain, 0.0)
    return [
        (random.random((seeds, len(KINDS))) < c + random.normal(0, 0.03, (seeds, 1))).astype(float)
        for c in (chance, chance + shift)
    ]


@pytest.mark.parametrize("design", ["paired", "unpaired"])
def test_a_slice_is_the_comparison_on_its_examples(design):
    sides = arms()
    found = stats.slices(stats.compare(*sides, design=design, **FEW), KINDS)
    assert [(item.name, item.num_examples) for item in found.slices] == [
        ("easy", 150), ("hard", 100), ("rare", 20),
    ]  # fmt: skip
    for item in found.slices[:2]:
        alone = stats.compare(
            *(side[:, item.name == KINDS] for side in sides), design=design, **FEW
        )
        assert item.estimate == pytest.approx(alone.estimate)
        assert (item.base, item.experiment) == (alone.base.estimate, alone.experiment.estimate)
        assert tuple(item.ci) == pytest.approx(tuple(alone.ci)) and item.p_value == alone.p_value
    rare = found.slices[2]
    assert rare.estimate == pytest.approx(np.subtract(*(s[:, 250:].mean() for s in sides[::-1])))
    assert rare.ci is rare.p_value is rare.p_holm is rare.against_rest is None
    tested = found.slices[:2]
    for p, holm in (("p_value", "p_holm"), ("against_rest_p", "against_rest_p_holm")):
        expected = adjusted_p_values([getattr(item, p) for item in tested], "holm")
        assert [getattr(item, holm) for item in tested] == pytest.approx(expected.tolist())
    assert tested[0].p_holm > 0.05 > tested[1].p_holm
    assert tested[1].against_rest_ci.low > 0 and tested[1].against_rest_p_holm < 0.05


def test_values_may_be_sequences():
    """As spans of a sentence are."""
    spans = np.empty(len(KINDS), object)
    spans[:] = [(len(kind), place % 2) for place, kind in enumerate(KINDS)]
    coordinates = {"pretrain_seed": range(5), "span": ("example", spans)}
    base, experiment = (
        xarray.DataArray(side, coordinates, ("pretrain_seed", "example")) for side in arms()
    )
    found = stats.slices(stats.compare(base, experiment, **FEW), "span").slices
    assert [item.name for item in found] == ["(4, 0)", "(4, 1)"]
    assert sum(item.num_examples for item in found) == len(KINDS)


def test_against_the_rest_is_the_difference_of_differences_of_each_seed():
    base, experiment = arms()
    result = stats.compare(base, experiment, resample="seeds", **FEW)
    found = stats.slices(result, KINDS).slices[1]
    inside = KINDS == "hard"
    own, rest = ((experiment - base)[:, rows].mean(axis=1) for rows in (inside, ~inside))
    expected = scipy.stats.ttest_1samp(own - rest, 0)
    assert found.against_rest == pytest.approx((own - rest).mean())
    assert found.against_rest_p == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval()
    assert tuple(found.against_rest_ci) == pytest.approx((low, high))


def test_one_arm_has_scores_by_slice():
    base, _ = arms()
    found = stats.slices(stats.compare(base, design="single", **FEW), KINDS)
    alone = stats.compare(base[:, :150], design="single", **FEW)
    assert tuple(found.slices[0].ci) == pytest.approx(tuple(alone.ci))
    assert found.slices[0].experiment is found.slices[0].p_holm is None
    assert found.slices[0].against_rest_ci.low > 0  # the easy examples are easier


def test_clusters_are_kept_and_where_they_cross_none_is_set_against_the_rest():
    sides = arms()
    nested = np.arange(270) // 2
    found = stats.slices(stats.compare(*sides, clusters=nested, **FEW), KINDS)
    plain = stats.compare(*(side[:, 150:250] for side in sides), clusters=nested[150:250], **FEW)
    assert tuple(found.slices[1].ci) == pytest.approx(tuple(plain.ci))
    assert not found.clusters_cross and found.slices[1].against_rest is not None
    crossing = stats.compare(*sides, clusters=np.arange(270) % 60, **FEW)
    crossed = stats.slices(crossing, KINDS)
    assert crossed.clusters_cross and crossed.slices[0].ci is not None
    assert all(item.against_rest is None for item in crossed.slices)


def test_slices_come_from_columns_labels_lengths_and_numbers():
    base, experiment = arms()
    texts = ["a b c" if kind == "easy" else "a" for kind in KINDS]
    coordinates = {
        "pretrain_seed": range(5), "kind": ("example", KINDS), "text": ("example", texts),
        "size": ("example", np.arange(270.0)),
    }  # fmt: skip
    sides = [
        xarray.DataArray(side, coordinates, ("pretrain_seed", "example"))
        for side in (base, experiment)
    ]
    plain, labelled = stats.compare(base, experiment, **FEW), stats.compare(*sides, **FEW)
    by_name = stats.slices(labelled, "kind")
    assert by_name.by == "kind"
    assert by_name.slices == stats.slices(plain, KINDS).slices
    lengths = stats.slices(labelled, "length")
    assert [(item.name, item.num_examples) for item in lengths.slices] == [("1", 120), ("3", 150)]
    quarters = stats.slices(labelled, "size").slices
    assert [item.name for item in quarters] == ["0 to 67", "68 to 134", "135 to 201", "202 to 269"]
    labels = np.arange(270) % 2
    with_labels = stats.compare(base, experiment, "accuracy", labels=labels, **FEW)
    of_labels = stats.slices(with_labels, "label")
    assert [(item.name, item.num_examples) for item in of_labels.slices] == [("0", 135), ("1", 135)]
    with pytest.raises(DataError, match="found no coordinate 'topic'"):
        stats.slices(labelled, "topic")


def test_the_command_and_the_page_have_the_table(tmp_path):
    frame = pd.concat(
        pd.DataFrame({"model": name, "seed": seed, "id": range(270), "kind": KINDS, "correct": row})
        for name, side in zip(("old", "new"), arms(), strict=True)
        for seed, row in enumerate(side)
    )
    path, page = tmp_path / "arms.csv", tmp_path / "page.html"
    frame.to_csv(path, index=False)
    (found,) = json.loads(compare_files(results=str(path), by="kind", json=True))
    expected = stats.slices(stats.compare(frame), "kind")
    assert found["slices"] == json.loads(json.dumps(expected.to_dict()))
    text = compare_files(results=str(path), by="kind", html=str(page))
    rows = [line.split() for line in text.splitlines()]
    assert [row[:2] for row in rows if row[:1] in (["easy"], ["hard"], ["rare"])] == [
        ["easy", "150"], ["hard", "100"], ["rare", "20"],
    ]  # fmt: skip
    assert "by = 'kind'" in text
    for shown in (text, page.read_text(), str(expected)):
        assert "Slices of fewer than 30 examples" in shown
    with pytest.raises(UserError, match="no column 'topic' for --by"):
        compare_files(results=str(path), by="topic")
