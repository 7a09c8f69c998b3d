"""What a report compares: each arm is read and bootstrapped once, whoever shares it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import xarray

from multiberts.report.evidence import Pair, Request, compare_all
from multiberts.report.prediction_sets import PredictionSet
from multiberts.stats import compare, compare_arms, reading
from multiberts.stats.bootstrap.replicates import Columns
from multiberts.stats.settings import ComparisonSettings

SETTINGS = ComparisonSettings(n_resamples=50)


def answers(skill: float, seeds: int = 4) -> xarray.Dataset:
    random = np.random.default_rng(int(100 * skill))
    labels = np.arange(60) % 2
    right = random.random((seeds, 60)) < skill
    predictions = ("run", "example"), np.where(right, labels, 1 - labels)
    variables = {"prediction": predictions, "label": ("example", labels)}
    return xarray.Dataset(variables, {"pretrain_seed": ("run", np.arange(seeds))})


def prediction_sets_of(**arms: xarray.Dataset) -> dict[str, PredictionSet]:
    return {
        name: PredictionSet("", "set", name, None, ("accuracy",), data)
        for name, data in arms.items()
    }


@pytest.fixture
def arms() -> dict[str, PredictionSet]:
    return prediction_sets_of(a=answers(0.6), b=answers(0.7), c=answers(0.8))


def against_first(
    arms: dict[str, PredictionSet], settings: ComparisonSettings = SETTINGS
) -> Request:
    base, *others = arms.values()
    pairs = [
        Pair((base, other), "accuracy", (base.name, other.name), other.name, other.name)
        for other in others
    ]
    return Request("all", settings, pairs)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Counts the arms that are read, and the bootstraps of an arm's score, as they happen."""
    done: Counter = Counter()
    make_arm, weighted_sums = reading.make_arm, Columns.weighted_sums

    def counted_arm(*values, **options):
        done["read"] += 1
        return make_arm(*values, **options)

    def counted_sums(self, counts):
        done["bootstrapped"] += 1
        return weighted_sums(self, counts)

    monkeypatch.setattr(reading, "make_arm", counted_arm)
    monkeypatch.setattr(Columns, "weighted_sums", counted_sums)
    return done


def test_three_paired_arms_are_read_and_bootstrapped_once_each(arms, work: Counter) -> None:
    (found,) = compare_all([against_first(arms)])
    assert len(found.items) == 2 and len(found.rankings) == 1 and len(found.grids) == 2
    assert work == {"read": 3, "bootstrapped": 3}


def test_three_unpaired_arms_are_read_once_and_ranked_by_draws_of_their_own(work: Counter) -> None:
    arms = prediction_sets_of(a=answers(0.6), b=answers(0.7, 5), c=answers(0.8))
    settings = ComparisonSettings("unpaired", n_resamples=50)
    (found,) = compare_all([against_first(arms, settings)])
    assert len(found.rankings) == 1
    assert work == {"read": 3, "bootstrapped": 3}
    assert all("percentile" in arm.intervals for arm in found.rankings[0].arms)
    assert work == {"read": 3, "bootstrapped": 6}


@pytest.mark.parametrize("design", ["paired", "unpaired"])
def test_shared_work_changes_no_number(design) -> None:
    data = {"a": answers(0.6), "b": answers(0.7), "c": answers(0.8)}
    settings = ComparisonSettings(design, n_resamples=50)
    (found,) = compare_all([against_first(prediction_sets_of(**data), settings)])
    for name, item in zip("bc", found.comparisons, strict=True):
        alone = compare(
            data["a"], data[name], "accuracy", design=design, n_resamples=50,
        ).named("a", name, name=name, evaluation_set="set")  # fmt: skip
        assert item == alone
    (ranking,) = found.rankings
    assert ranking == compare_arms(data, "accuracy", design=design, n_resamples=50, name="set")


def test_a_seed_that_one_experiment_lacks_stays_in_the_comparison_with_the_other() -> None:
    data = {"a": answers(0.6, 5), "b": answers(0.7, 4), "c": answers(0.8, 5)}
    (found,) = compare_all([against_first(prediction_sets_of(**data))])
    assert [len(item.base.seeds) for item in found.comparisons] == [4, 5]
    assert found.comparisons[0].base.left_out == (4,)
    assert len(found.rankings[0].arms[0].seeds) == 4


def test_p_values_are_corrected_for_the_length_of_a_request(arms) -> None:
    both, alone = compare_all([against_first(arms), against_first(dict(list(arms.items())[::2]))])
    assert alone.items[0].adjusted == alone.comparisons[0].p_value
    expected = sorted(item.p_value for item in both.comparisons)
    found = sorted(item.adjusted for item in both.items)
    assert found == pytest.approx([min(1, 2 * expected[0]), max(2 * expected[0], expected[1])])
    # The ranking of all that have this base stands with the last request.
    assert [section.name for section in both.overview] == ["all-accuracy"]
    assert [section.name for section in alone.overview] == ["ranking-set-accuracy"]


def test_figures_of_a_request_have_names_of_their_own(arms) -> None:
    (found,) = compare_all([against_first(arms)])
    names = [figure.name for item in found.items for figure in item.figures]
    names += [figure.name for figure in found.overview]
    assert len(set(names)) == len(names) == 6


def test_what_pages_alone_show_is_made_for_pages_alone(arms) -> None:
    (page,) = compare_all([against_first(arms)])
    (terminal,) = compare_all([against_first(arms)], for_page=False)
    assert page.grids and page.overview and all(item.figures for item in page.items)
    assert not terminal.grids and not terminal.overview
    assert not any(item.figures for item in terminal.items)
    assert terminal.comparisons == page.comparisons and terminal.rankings == page.rankings
