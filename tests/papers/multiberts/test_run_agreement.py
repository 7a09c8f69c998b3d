"""Agreement of runs: the definition gone through pair by pair, identities, and what is refused."""

import itertools

import numpy as np
import pytest
import xarray

from multiberts.papers.multiberts.run_agreement import agreement

# Unequal numbers of runs; seed 3 has one.
SEEDS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3]


def data(predictions, seeds=SEEDS):
    return xarray.Dataset(
        {
            "prediction": (("run", "example"), predictions),
            "label": ("example", np.zeros(np.shape(predictions)[1])),
        },
        coords={"pretrain_seed": ("run", np.array(seeds))},
    )


def by_pairs(predictions, alike, seeds=SEEDS):
    """Mean over seeds (pairs of seeds) of the mean over pairs of their runs."""
    places = {seed: [row for row, own in enumerate(seeds) if own == seed] for seed in set(seeds)}
    same = [
        np.mean([alike(predictions[a], predictions[b]) for a, b in itertools.combinations(rows, 2)])
        for rows in places.values()
        if len(rows) > 1
    ]
    different = [
        np.mean([alike(predictions[a], predictions[b]) for a in places[i] for b in places[j]])
        for i, j in itertools.combinations(places, 2)
    ]
    return np.mean(same), np.mean(different)


def test_classes_pair_by_pair():
    predictions = np.random.default_rng(0).integers(0, 3, (10, 200)).astype(float)
    found = agreement(data(predictions))
    expected = by_pairs(predictions, lambda first, second: (first == second).mean())
    assert found.kind == "classes"
    assert (found.num_seeds, found.num_runs, found.num_examples) == (4, 10, 200)
    np.testing.assert_allclose(
        [found.same_seed.value, found.different_seeds.value], expected, rtol=1e-12
    )
    assert found.difference.value == pytest.approx(expected[0] - expected[1], abs=1e-12)


def test_interval_is_that_of_a_mean_over_examples():
    predictions = np.random.default_rng(1).integers(0, 2, (2, 50)).astype(float)
    found = agreement(data(predictions, [7, 7]), confidence_level=0.9)
    equal = (predictions[0] == predictions[1]).astype(float)
    assert found.same_seed.value == equal.mean()
    assert found.same_seed.standard_error == pytest.approx(equal.std(ddof=1) / np.sqrt(50))
    from scipy.stats import t

    expected = t.interval(0.9, 49, equal.mean(), equal.std(ddof=1) / np.sqrt(50))
    np.testing.assert_allclose(found.same_seed.interval, expected)
    assert found.different_seeds is found.difference is None


def test_texts_and_their_codes_agree_alike():
    codes = np.random.default_rng(2).integers(0, 40, (10, 60))
    texts = np.char.add("answer ", codes.astype(str))
    assert agreement(data(texts)) == agreement(data(codes.astype(float)))


def test_correlation_is_the_mean_over_pairs_and_its_error_the_jackknifes():
    random = np.random.default_rng(3)
    predictions = random.normal(size=200) + random.normal(size=(10, 200))
    found = agreement(data(predictions))
    expected = by_pairs(predictions, lambda a, b: np.corrcoef(a, b)[0, 1])
    assert found.kind == "correlation"
    np.testing.assert_allclose(
        [found.same_seed.value, found.different_seeds.value], expected, rtol=1e-12
    )
    without = [
        by_pairs(np.delete(predictions, place, axis=1), lambda a, b: np.corrcoef(a, b)[0, 1])[0]
        for place in range(200)
    ]
    jackknife = np.sqrt(199 / 200 * np.sum((without - np.mean(without)) ** 2))
    assert found.same_seed.standard_error == pytest.approx(jackknife, rel=0.02)


def test_a_constant_run_correlates_zero():
    predictions = np.array([[0.1, 0.5, 0.9, 0.2], [0.3] * 4])
    assert agreement(data(predictions, [0, 0])).same_seed.value == 0


def test_blocks_change_nothing(monkeypatch):
    predictions = np.random.default_rng(4).integers(0, 3, (10, 77)).astype(float)
    whole = agreement(data(predictions))
    monkeypatch.setattr("multiberts.papers.multiberts.run_agreement._BLOCK_CELLS", 50)
    assert agreement(data(predictions)) == whole
