"""One seed and a borrowed spread of seeds: what it adds to the variance, and what is said of it."""

import math

import numpy as np
import pytest
import scipy.stats

from multiberts import stats
from multiberts.report.compare_command import compare_files
from multiberts.report.presentation.methods_paragraph import methods

FEW = {"n_resamples": 40}


def one_seed(*arms, seed_sd, resample="both", **options):
    """Compares with the seeds held fixed, and lets one borrow a spread."""
    result = stats.compare(*arms, resample="examples", **{**FEW, **options})
    return stats.one_seed(result, seed_sd, resample)


def scores(num_seeds, num_examples=200, key=0, spread=0.3):
    """Normal scores [seeds, examples]."""
    random = np.random.default_rng([key, num_seeds])
    seeds = spread * random.normal(size=(num_seeds, 1))
    return seeds + random.normal(size=num_examples) + random.normal(size=(num_seeds, num_examples))


def test_two_single_seeds_differ_by_twice_the_borrowed_variance_with_its_own_degrees_of_freedom():
    """Both arms have one number, whose error they share: its degrees of freedom are not doubled."""
    base, experiment = scores(1), scores(1, key=1)
    found = one_seed(base, experiment, resample="seeds", seed_sd="0.2/6").comparison
    assert found.standard_error == pytest.approx(0.2 * math.sqrt(2))
    assert found.df == 6
    expected = scipy.stats.t(6, found.estimate, found.standard_error).interval(0.95)
    assert tuple(found.ci) == pytest.approx(expected)
    assert found.p_value == pytest.approx(2 * scipy.stats.t(6).sf(abs(found.statistic)))


def test_one_seed_against_many_is_welchs_test_with_the_borrowed_variance_on_one_side():
    base, experiment = scores(1), scores(5, key=1)
    found = one_seed(
        base, experiment, resample="seeds", design="unpaired", seed_sd="0.2/4"
    ).comparison
    own = experiment.mean(axis=1).var(ddof=1) / 5
    assert found.standard_error == pytest.approx(math.sqrt(0.04 + own))
    assert found.df == pytest.approx((0.04 + own) ** 2 / (0.04**2 / 4 + own**2 / 4))


def test_examples_are_paired_and_add_their_variance():
    base, experiment = scores(1), scores(1, key=1)
    spread = stats.SeedSpread(0.2, 6, "")
    found = one_seed(base, experiment, seed_sd=spread).comparison
    examples = (experiment - base).var(ddof=1) / 200
    assert found.standard_error**2 == pytest.approx(2 * 0.04 + examples)
    assert found.design == "unpaired"
    alone = one_seed(base, design="single", seed_sd=spread).comparison
    assert alone.standard_error**2 == pytest.approx(0.04 + base.var(ddof=1) / 200)
    given = one_seed(base, experiment, design="fixed_baseline", seed_sd=spread).comparison
    assert given.standard_error**2 == pytest.approx(0.04 + examples)


def test_a_number_is_in_the_unit_that_is_printed_and_has_four_degrees_of_freedom():
    answers = (scores(1) > -1).astype(int), (scores(1, key=1) > -1).astype(int)
    labels = np.ones(200, int)
    answer = one_seed(*answers, "accuracy", labels=labels, seed_sd=1.5)
    found = answer.comparison
    assert (answer.borrowed.sd, answer.borrowed.df) == (pytest.approx(0.015), 4)
    text = str(answer)
    assert "base and experiment have one seed each" in text
    assert "1.500 points (4 degrees of freedom, assumed" in text
    in_paper = methods([found], answers=[answer])
    assert "taken to be 1.500 points" in in_paper and "Bootstrap" not in in_paper
    assert not found.intervals and {*found.p_values} == {"t"}
    assert answer.record()["df"] == 4
    found.plot()
    shares = one_seed(*(table.astype(float) for table in answers), seed_sd=1.5)
    assert tuple(shares.comparison.ci) == pytest.approx(tuple(found.ci))


def test_a_perfect_seed_has_the_spread_of_others_or_what_its_examples_leave_open():
    labels = np.ones(400, int)
    for sd, reach in ((3.0, 0.03 * scipy.stats.t(24).ppf(0.975)), (0.01, 1 - 0.025 ** (1 / 400))):
        options = {"labels": labels, "seed_sd": f"{sd}/24"}
        found = one_seed(labels[None], None, "accuracy", design="single", **options).comparison
        assert found.ci.high == 1 and found.ci.low == pytest.approx(1 - reach, abs=0.0005)
        other = np.where(np.arange(400) < 4, 0, labels)[None]
        difference = one_seed(labels[None], other, "accuracy", **options).comparison
        assert difference.ci.low < -0.01 < difference.ci.high


def test_answers_take_a_finished_comparison_or_an_answer_about_one():
    answer = one_seed(scores(1), scores(1, key=1), seed_sd=0.1)
    assert stats.same(answer, 1) == stats.same(answer.comparison, 1)


def test_the_command_and_its_page_say_what_was_borrowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = np.ones(200, int)
    for name in ("one", "other"):
        np.savez(f"{name}.npz", predictions=scores(1, key=len(name)) > -1, labels=labels)
    found = compare_files(
        results="one.npz", experiment=["other.npz"], metric="accuracy", seed_sd="1.5/5", html="page.html",
        csv="all.csv",
    )  # fmt: skip
    assert "1.500 points (5 degrees of freedom;" in found
    assert "borrowed_sd" in (tmp_path / "all.csv").read_text()
    assert (tmp_path / "page.html").read_text().count("5 degrees of freedom; no source") >= 2
