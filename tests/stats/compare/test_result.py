"""Results that readers see: words, tables, JSON, equality; seeds left out and how they are paired."""

import dataclasses
import json
import pickle
import re

import numpy as np
import pytest
import xarray

from multiberts.runs.errors import UserError
from multiberts.stats import TaskData, compare, compare_arms, compare_tasks, one_seed
from multiberts.stats.compare import comparison_spec
from multiberts.stats.errors import DataError

RANDOM = np.random.default_rng(0)
BASE, EXPERIMENT = (
    1 * (RANDOM.random((seeds, 40)) < skill) for seeds, skill in ((5, 0.6), (6, 0.9))
)


def labelled(values, first=0, **runs):
    coordinates = {"pretrain_seed": ("run", range(first, first + len(values)))}
    coordinates |= {name: ("run", list(column)) for name, column in runs.items()}
    return xarray.DataArray(values, coordinates, ("run", "example"))


def make(**options):
    return compare(labelled(BASE), labelled(EXPERIMENT), **({"n_resamples": 60} | options))


def test_print_gives_the_finding_and_a_table():
    result = make(clusters=np.arange(40) // 4).named("old", "new")
    text = str(result)
    assert re.search("new is better than old: .*40 .*examples in 10 clusters, ", text)
    assert re.search(r"Left out, .*: seed 5 of new\.", text)
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    assert rows[2:] == ["old", "new", "difference"]
    page = result._repr_html_()
    assert page.startswith("<p>new is better than old: ") and "<table>" in page
    assert "\\toprule" in result.latex() and "\\midrule" in result.latex()
    assert "Sellam" in result.methods() and "10 clusters" in result.methods()
    assert result.plot().axes


def test_a_result_is_drawn_into_axes_that_are_given():
    from matplotlib.figure import Figure

    figure = Figure()
    first, second, third = figure.subplots(1, 3)
    result, alone = make(), compare(BASE, n_resamples=60)
    assert result.plot(ax=first) is first and figure.axes == [first, second, third]
    (low, high), *_ = (line.get_xdata() for line in first.lines if line.get_linewidth() == 2)
    assert (low, high) == pytest.approx(tuple(result.ci))
    tasks = {name: TaskData(BASE[:5], EXPERIMENT[:5]) for name in "ab"}
    compare_tasks(tasks, n_resamples=60).plot(ax=second)
    assert [text.get_text() for text in second.get_yticklabels()] == ["a", "b", "macro-average"]
    assert alone.plot(ax=third).get_xlabel() == "mean (%): base"
    assert first.get_legend() and not figure.legends and not figure.get_suptitle()
    assert len(alone.plot().axes) == 1  # one arm has no panel of a difference
    arms = compare_arms({"a": BASE, "b": EXPERIMENT[:5], "c": BASE}, n_resamples=60)
    with pytest.raises(UserError, match="2 panels, .*leave ax out"):
        arms.plot(ax=first)


def test_a_result_is_written_as_the_page_of_the_command(tmp_path):
    result = compare({"RoBERTa": BASE, "Ours <b>": EXPERIMENT[:5]}, n_resamples=60)
    page = tmp_path / "page.html"
    result.to_html(page)
    text = page.read_text()
    assert [*tmp_path.iterdir()] == [page] and '<h1 id="top">Ours &lt;b&gt; against RoBERTa' in text
    ends = f"{100 * result.ci.low:.1f} to {100 * result.ci.high:.1f}"
    assert text.count("<svg") == 2 and ends in text
    assert "Comparison.to_html, in Python" in text and "SHA-256" not in text
    files = [tmp_path / "old.csv", tmp_path / "new.csv"]
    for file, values in zip(files, (BASE, EXPERIMENT), strict=True):
        rows = [f"{seed},{place},{values[seed, place]}" for seed, place in np.ndindex(values.shape)]
        file.write_text("\n".join(["seed,id,score", *rows]))
    compare(*files, n_resamples=60).to_html(str(page))
    assert "new against old" in page.read_text() and "files compared (2)" in page.read_text()
    tasks = {name: TaskData(BASE[:5], EXPERIMENT[:5]) for name in ("RTE", "CoLA")}
    family = compare_tasks(tasks, n_resamples=60)
    family.to_html(page)
    text = page.read_text()
    assert all(name in text for name in ("RTE", "CoLA"))
    assert '<p class="answer">experiment is better than base: ' in text and "Across 2 tasks" in text
    assert f"{family.adjusted['holm'][0]:.2g}" in text
    arms = compare_arms({"a": BASE, "b": EXPERIMENT[:5], "c": BASE}, n_resamples=60)
    with pytest.raises(DataError, match="ArmComparisons, which has no page; .*--html=PAGE"):
        arms.to_html(page)


def test_clusters_are_called_by_their_name():
    named = labelled(BASE).assign_coords(template=("example", np.arange(40) // 8))
    text = str(compare(named, None, design="single", clusters="template", n_resamples=60))
    assert "40 examples in 5 clusters (template)" in text


def test_an_undefined_area_is_one_half():
    labels = np.array([1] + [0] * 39)
    result = compare(BASE + 0.0, None, "auc", design="single", labels=labels, n_resamples=60)
    assert result.degenerate_replicates and "taken as one half" in str(result)


def test_json_and_frames_hold_every_number():
    result = make()
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert found["ci"] == {
        "low": result.ci.low,
        "high": result.ci.high,
        "level": 0.95,
        "method": "t",
    }
    assert found["experiment"]["left_out"] == [5] and "samples" not in found
    assert dataclasses.asdict(result.named(name="n"))["name"] == "n"
    frame = result.to_frame()
    assert len(frame) == 1 and frame["base_ci_low"][0] == result.base.ci.low
    assert frame["p_value"][0] == result.p_value
    tasks = {name: TaskData(labelled(BASE), labelled(EXPERIMENT)) for name in "ab"}
    family = compare_tasks(tasks, n_resamples=60)
    assert list(family.to_frame()["name"]) == ["a", "b", "macro-average"]
    json.dumps(family.to_dict(), allow_nan=False)
    assert str(family).count("difference |") == 3 and family.plot().axes


def test_each_arm_has_the_interval_of_its_own_comparison():
    result = make(design="unpaired")
    for side, values in ((result.base, BASE), (result.experiment, EXPERIMENT)):
        alone = compare(values, None, design="single", n_resamples=60)
        assert side.ci == pytest.approx(alone.ci)
    held = make(design="fixed_baseline", resample="seeds")
    assert held.base.ci == (held.base.estimate, held.base.estimate)
    tasks = {name: TaskData(BASE, None, examples_of="set") for name in "ab"}
    average = compare_tasks(tasks, design="single", n_resamples=60).macro_average
    assert average.base.ci == pytest.approx(average.ci)


def test_seeds_paired_by_number_only_name_the_other_design_without_its_numbers():
    by_number = make()
    unpaired = compare(BASE, EXPERIMENT[:5], design="unpaired", n_resamples=60)
    assert by_number.pairing == "seed number"
    assert by_number.intervals["unpaired"] == pytest.approx(unpaired.ci)
    assert by_number.p_values["unpaired"] == pytest.approx(unpaired.p_values["t"])
    text = str(by_number)
    assert "paired by their numbers" in text and "use the unpaired design" in text
    assert text.count("95 % CI") == 1 and text.count("p = ") == 1
    parents = [f"seed_{number}" for number in range(6)]
    for name, base, experiment in (
        ("parent", parents[:5], parents),
        ("procedure", ["base"] * 5, ["base"] * 6),
    ):
        sides = labelled(BASE, **{name: base}), labelled(EXPERIMENT, **{name: experiment})
        known = compare(*sides, n_resamples=60)
        assert known.pairing == "parent" and "by their numbers" not in str(known)
        np.testing.assert_array_equal(known.samples, by_number.samples)
    # One seed whose runs come from elsewhere is enough.
    sides = labelled(BASE, parent=parents[:5]), labelled(EXPERIMENT, parent=["x", *parents[1:]])
    assert compare(*sides, n_resamples=60).pairing == "seed number"
    assert make(resample="examples").pairing is None


def test_too_few_replicates_for_the_ends_of_an_interval_are_refused():
    for confidence_level, least in ((0.95, 39), (0.9, 19), (0.99, 199)):
        make(confidence_level=confidence_level, n_resamples=least)
        with pytest.raises(ValueError, match=f"n_resamples {least - 1}, .*{least}"):
            make(confidence_level=confidence_level, n_resamples=least - 1)


def results_of(metric="mean", labels=None):
    """A result of every kind, of the same answers."""
    given = {"metric": metric, "labels": labels, "n_resamples": 60}
    arms = {"a": BASE, "b": EXPERIMENT[:5], "c": 1 - BASE}
    tasks = {name: TaskData(BASE, EXPERIMENT[:5], metric, labels) for name in ("x", "y")}
    return {
        "paired": compare(labelled(BASE), labelled(EXPERIMENT), **given),
        "unpaired": compare(BASE, EXPERIMENT, **given, design="unpaired"),
        "fixed": compare(BASE, EXPERIMENT, **given, design="fixed_baseline"),
        "single": compare(BASE, **given),
        "clusters": compare(BASE, **given, clusters=np.arange(40) // 7),
        "borrowed": one_seed(compare(BASE[:1], EXPERIMENT[:1], **given), "3/10").comparison,
        "tasks": compare_tasks(tasks, n_resamples=60),
        "arms": compare_arms(arms, **given),
    }


@pytest.fixture
def drawn(monkeypatch):
    """Counts the bootstraps."""
    calls = []

    def counted(*given):
        calls.append(given)
        return bootstrap(*given)

    bootstrap = comparison_spec.bootstrap
    monkeypatch.setattr(comparison_spec, "bootstrap", counted)
    return calls


def test_the_bootstrap_is_drawn_for_percentiles_alone(drawn):
    """A mean over all examples is always defined, so that no warning has to count replicates."""
    results = results_of()
    for result in results.values():
        assert str(result) and repr(result) and result._repr_html_()
    assert results["paired"].significant and not drawn
    paired, tasks = results["paired"], results["tasks"]
    assert {*paired.intervals} == {"percentile", "unpaired"} and paired.base.intervals
    assert paired.samples.shape == (60, 2) and len(drawn) == 1
    assert tasks.macro_average.bias != 0 and tasks.comparisons["x"].p_values["percentile"]
    assert len(drawn) == 2
    for result in results.values():
        assert result.to_dict()
    assert len(drawn) == len(results)


@pytest.mark.parametrize("design", ["paired", "unpaired", "single"])
def test_arrays_that_change_later_change_no_number(design):
    """What a comparison computes when it is asked is about the arrays that it was given."""

    def given():
        random, labels = np.random.default_rng(0), np.arange(60) % 2 + 0.0
        arms = [
            xarray.Dataset(
                {
                    "prediction": (("run", "example"), 1.0 * (random.random((4, 60)) < skill)),
                    "label": ("example", labels.copy()),
                },
                {"pretrain_seed": ("run", range(4))},
            )
            for skill in (0.4, 0.5, 0.6)
        ]
        base, experiment, _ = arms
        other = None if design == "single" else experiment
        results = [
            compare(base, other, design=design, clusters=np.arange(60) // 5, n_resamples=60),
            compare_tasks({"x": TaskData(base, other)}, design=design, n_resamples=60),
        ]
        if design != "single":
            by_name = dict(zip("abc", arms, strict=True))
            results.append(compare_arms(by_name, design=design, n_resamples=60))
        return results, arms

    expected, _ = given()
    found, arms = given()
    for arm in arms:
        for values in arm.data_vars.values():
            values.values[...] = 0
    assert [str(each) for each in found] == [str(each) for each in expected]
    assert [each.to_dict() for each in found] == [each.to_dict() for each in expected]


def test_scores_that_may_be_undefined_are_drawn_to_say_so(drawn):
    labels = np.arange(40) % 2
    result = compare(BASE + 0.0, EXPERIMENT[:5] + 0.0, "f1", labels=labels, n_resamples=60)
    assert not drawn
    assert str(result) and len(drawn) == 1
    compare(BASE, None, lambda labels, answers: 1.0, labels=labels, n_resamples=60)
    assert len(drawn) == 2


@pytest.mark.parametrize("metric", ["mean", "f1"])
def test_a_result_that_is_read_again_prints_the_same(metric):
    labels = None if metric == "mean" else np.arange(40) % 2
    for result in results_of(metric, labels).values():
        again = pickle.loads(pickle.dumps(result))
        assert again == result and hash(again) == hash(result)
        assert str(again) == str(result) and again._repr_html_() == result._repr_html_()
        assert again.latex() == result.latex() and again.methods() == result.methods()
        assert again.to_dict() == result.to_dict()
    renamed = pickle.loads(pickle.dumps(compare(BASE, n_resamples=60))).named("other")
    assert renamed.base.name == "other" and renamed.base.intervals
    with pytest.raises(DataError, match="unpickled"):
        renamed.computed_from()
