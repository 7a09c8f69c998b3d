"""The part of a calibration error that is chance: against models that are calibrated in truth."""

import numpy as np
import pytest

from multiberts.evaluate.metrics.probability import calibrated_ece
from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats import compare, compare_arms


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("examples", [30, 300])
def test_a_calibrated_model_shows_what_is_expected_of_it(classes, examples):
    """Labels that are drawn from the model's own probabilities, 400 times."""
    random = np.random.default_rng([classes, examples])
    probabilities = random.dirichlet(np.ones(classes), examples)
    below = probabilities.cumsum(axis=1)[:, None, :-1] < random.random((examples, 400, 1))
    drawn = below.sum(axis=2).T  # [sets, examples]
    shown = [METRICS["ece"].score(labels, probabilities) for labels in drawn]
    error = np.std(shown) / np.sqrt(len(shown))
    expected = calibrated_ece(drawn[0], probabilities)
    assert expected == pytest.approx(np.mean(shown), abs=4 * error + 0.01 * np.mean(shown))
    if classes == 2:
        assert calibrated_ece(drawn[0], probabilities[:, 1]) == pytest.approx(expected)


def test_sure_answers_have_no_chance():
    assert calibrated_ece(np.ones(50), np.ones(50)) == 0


def test_every_result_says_what_calibrated_models_would_show():
    random = np.random.default_rng(0)
    logits = random.normal(0.5, 1.5, 500)
    labels = (random.random(500) < 1 / (1 + np.exp(-logits))).astype(int)
    calm, sure = (
        1 / (1 + np.exp(-factor * (logits + 0.05 * random.normal(size=(3, 500)))))
        for factor in (1, 3)
    )
    options = {"labels": labels, "n_resamples": 40}
    chance = {
        name: np.mean([calibrated_ece(labels, run) for run in table])
        for name, table in (("calm", calm), ("sure", sure))
    }
    alone = compare(calm, None, "ece", design="single", **options).named("calm")
    (note,) = alone.notes
    assert f"of calm would show {chance['calm']:.3f}" in note
    assert 0.0 < alone.ci.low < chance["calm"] < alone.ci.high  # all of it above the truth, 0
    both = compare(calm, sure, "ece", **options).named("calm", "sure")
    (note,) = both.notes
    assert f"would show {chance['calm']:.3f} and {chance['sure']:.3f} on average" in note
    assert f"of the difference {chance['sure'] - chance['calm']:.3f} is there" in note
    assert both.experiment.ci.low > chance["sure"]
    assert note in str(both)
    (note,) = compare_arms({"calm": calm, "sure": sure, "third": calm}, "ece", **options).notes
    assert f"would show {chance['calm']:.3f} and {chance['sure']:.3f} and" in note
    assert "of the difference" not in note
    assert not compare(calm, sure, "brier", **options).notes
    missing = calm.copy()
    missing[0, :3] = np.nan
    assert compare(missing, None, "ece", design="single", missing="omit", **options).notes
