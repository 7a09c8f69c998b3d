"""Variance given bias: known curves, and the linear algebra of a Gaussian process."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from multiberts.papers.zhong.variance_by_bias import (
    conditional_variance,
    groups_by_bias,
    variance_curve,
)


def truth(bias_squared):
    """Variance of a right-or-wrong outcome with this squared bias."""
    bias = np.sqrt(bias_squared)
    return bias * (1 - bias)


@pytest.fixture(scope="module")
def known():
    random = np.random.default_rng(0)
    bias = random.random(8000) ** 2
    noise = 0.05 + 0.2 * bias  # other noise at other places
    return bias, truth(bias) + random.normal(scale=noise)


def test_a_known_curve_is_found(known):
    curve = variance_curve(*known)
    inside = (curve.grid > 0.01) & (curve.grid < 0.97)
    assert np.abs(curve.mean - truth(curve.grid))[inside].max() < 0.02
    covered = (curve.low <= truth(curve.grid)) & (truth(curve.grid) <= curve.high)
    assert covered[inside].mean() > 0.8
    # Without the curve's help a group's mean alone has a band of about .02 to .08.
    assert (curve.high - curve.low)[inside & (curve.grid < 0.9)].max() < 0.04


@pytest.mark.parametrize("straight", [False, True])
def test_the_kernel_is_that_of_scikit_learn(known, straight):
    """A curve, and a straight line, whose length scale is many times longer."""
    noise = np.random.default_rng(4).normal(scale=0.001, size=len(known[0]))
    variance = np.sqrt(known[0]) + noise if straight else known[1]
    curve = variance_curve(known[0], variance, num_bins=20)
    bias, means, errors = groups_by_bias(known[0], variance, 20)
    x, centre, spread = np.sqrt(bias), means.mean(), means.std()
    width = x[-1] - x[0]
    process = GaussianProcessRegressor(
        ConstantKernel(1.0, (1e-2, 1e3)) * RBF(width / 4, (width / 20, width * 10)),
        alpha=(errors / spread) ** 2,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(x[:, None], (means - centre) / spread)
    mean, deviation = process.predict(np.sqrt(curve.grid)[:, None], return_std=True)
    np.testing.assert_allclose(curve.mean, centre + spread * mean, rtol=1e-4)
    np.testing.assert_allclose(curve.high - curve.mean, 1.959964 * spread * deviation, rtol=1e-3)


def test_groups_have_the_errors_of_their_means(known):
    bias, means, errors = groups_by_bias(*known, num_bins=10)
    order = np.argsort(known[0])
    for rows, centre, mean, error in zip(
        np.array_split(order, 10), bias, means, errors, strict=True
    ):
        assert centre == pytest.approx(known[0][rows].mean())
        values = known[1][rows]
        assert mean == pytest.approx(values.mean())
        assert error == pytest.approx(values.std(ddof=1) / np.sqrt(len(rows)), rel=0.02)


def test_examples_of_equal_bias_share_a_group():
    bias = np.repeat([0.0, 0.25, 1.0], 100)
    variance = np.random.default_rng(2).random(300)
    groups, means, _ = groups_by_bias(bias, variance, num_bins=50)
    assert groups.tolist() == [0, 0.25, 1]
    assert means == pytest.approx(variance.reshape(3, 100).mean(axis=1))


def test_fine_tuning_variance_of_right_or_wrong_runs():
    """No pre-training noise: the variance is acc (1 - acc). Twenty runs of each of 20 seeds blur
    the bias little."""
    random = np.random.default_rng(3)
    accuracy = random.random(1500)
    runs = random.random((20, 20, 1500)) < accuracy
    curve = conditional_variance(runs, "finetune_seed")
    inside = (curve.grid > 0.05) & (curve.grid < 0.9)
    assert np.abs(curve.mean - truth(curve.grid))[inside].max() < 0.03
    between = conditional_variance(runs, "pretrain_seed")
    assert np.abs(between.mean)[inside].max() < 0.01
