"""Intervals and p-values against SciPy and against values worked out by hand."""

import numpy as np
import pytest
import scipy.stats

from stats import report_ci
from stats.intervals import (
    bootstrap_p_values,
    percentile_interval,
    sign_flip_p_values,
    t_interval,
    t_p_values,
)


def test_report_ci_by_hand():
    base = np.arange(101) / 100
    samples = list(zip(base, base + np.linspace(-0.1, 0.9, 101), strict=True))
    result = report_ci(samples, c=0.9, verbose=False)
    assert result["base"] == pytest.approx({"mean": 0.5, "low": 0.05, "high": 0.95})
    assert result["delta"]["mean"] == pytest.approx(0.4)
    assert result["delta"]["low"] == pytest.approx(-0.05)
    assert result["delta"]["p"] == pytest.approx(11 / 101, abs=1 / 101)  # -.1 to 0 of -.1 to .9
    negative = report_ci(samples, expect_negative_effect=True, verbose=False)
    assert negative["delta"]["p"] == pytest.approx(91 / 101, abs=1 / 101)


def test_report_ci_has_a_floor_and_prints(capsys):
    samples = [(0.2, 0.5), (0.3, 0.5), (0.25, 0.5), (0.2, 0.4)]
    result = report_ci(samples, abs_threshold=0.25, rel_threshold=1.2)
    assert result["delta"]["p"] == 0.25
    printed = capsys.readouterr().out
    assert "expt: 0.475 (" in printed
    assert "0.50 of samples are above base by 0.25 or more" in printed
    assert "0.25 of samples are above base by 1.2 of base or more" in printed
    report_ci(samples, abs_threshold=0.0, expect_negative_effect=True)
    assert "0.00 of samples are below base by 0 or more" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"expected \[replicates, 2\]"):
        report_ci([0.1, 0.2])
    with pytest.raises(ValueError, match="between 0 and 1"):
        report_ci(samples, c=95)


def test_t_equals_scipy():
    values = np.random.default_rng(0).normal(0.4, 1, size=9)
    error = values.std(ddof=1) / 3
    theirs = scipy.stats.ttest_1samp(values, 0)
    assert t_p_values(values.mean(), error, 8).two_sided == pytest.approx(theirs.pvalue)
    greater = scipy.stats.ttest_1samp(values, 0, alternative="greater").pvalue
    assert t_p_values(values.mean(), error, 8).greater == pytest.approx(greater)
    low, high = theirs.confidence_interval(0.9)
    assert t_interval(values.mean(), error, 8, 0.9) == pytest.approx((low, high))


def test_t_without_spread():
    assert t_p_values(0.0, 0.0, 4) == (1.0, 1.0, 1.0)
    assert t_p_values(0.1, 0.0, 4) == (0.0, 1.0, 0.0)


def test_bootstrap_p_is_never_zero():
    assert bootstrap_p_values(np.ones(999)) == pytest.approx((0.001, 1.0, 0.002))
    assert bootstrap_p_values(np.array([-1.0, 0.0, 1.0])) == pytest.approx((0.75, 0.75, 1.0))


def test_percentile_interval_is_the_quantile():
    samples = np.random.default_rng(1).normal(size=500)
    expected = np.quantile(samples, [0.025, 0.975])
    assert percentile_interval(samples, 0.95) == pytest.approx(expected)


@pytest.mark.parametrize("number", [2, 3, 5, 10])
def test_sign_flip_equals_scipy_and_has_the_floor(number):
    differences = np.random.default_rng(number).normal(0.5, 1, size=number)
    ours = sign_flip_p_values(differences)
    for alternative in ("greater", "less"):
        theirs = scipy.stats.permutation_test(
            (differences, np.zeros(number)),
            lambda x, y: (x - y).mean(),
            permutation_type="samples",
            alternative=alternative,
            n_resamples=np.inf,
        )
        assert getattr(ours, alternative) == pytest.approx(theirs.pvalue, abs=1e-12)
    one_sign = sign_flip_p_values(np.abs(differences) + 0.1)
    assert one_sign.greater == 2.0**-number
    assert one_sign.two_sided == 2.0 ** (1 - number)


def test_sign_flip_of_many_seeds_is_near_the_t_test():
    differences = np.random.default_rng(2).normal(0.35, 1, size=30)
    ours = sign_flip_p_values(differences)
    theirs = scipy.stats.ttest_1samp(differences, 0)
    assert ours.two_sided == pytest.approx(theirs.pvalue, abs=0.01)
    assert ours == sign_flip_p_values(differences)
