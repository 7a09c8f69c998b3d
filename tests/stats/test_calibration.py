"""Coverage of intervals and levels of tests in made-up data; the short form of `make calibrate`."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray

from multiberts.benchmarks.calibration import (
    REAL_ANSWERS,
    as_lines,
    calibrate,
    gathered,
    read_lines,
    real_answers,
)
from multiberts.benchmarks.calibration_page import CLOSE, appendix, figures, held, page
from multiberts.benchmarks.calibration_trials import (
    LEVELS,
    Outcome,
    joined,
    monte_carlo_error,
    questions_of,
    recommended,
    simulate,
)
from multiberts.benchmarks.crossed_model import (
    BETWEEN_SIDES,
    POSITIVES,
    REAL,
    SHARES,
    Condition,
    all_conditions,
)
from multiberts.benchmarks.neighbours import neighbour_intervals
from multiberts.runs.errors import UserError
from multiberts.stats import compare
from multiberts.stats.compare.conclude import Names
from multiberts.stats.compare.question import compare_specs
from multiberts.stats.presentation.wording import warnings

pytestmark = pytest.mark.seconds

TRIALS, REPLICATES = 1000, 400
DOCS = Path(__file__).parents[2] / "docs"


def near(count: int, expected: float, trials: int = TRIALS) -> bool:
    """Within four Monte Carlo errors."""
    return abs(count / trials - expected) < 4 * np.sqrt(expected * (1 - expected) / trials)


def dataset(arm):
    coords = {"pretrain_seed": ("run", list(arm.run_seeds))}
    if arm.clusters is not None:
        coords["group"] = ("example", arm.clusters)
    return xarray.Dataset(
        {"prediction": (("run", "example"), arm.predictions), "label": ("example", arm.labels)},
        coords=coords,
    )


@pytest.mark.parametrize(
    "condition",
    [
        Condition("mean", "paired", "seeds", 5),
        Condition("mean", "unpaired", "none", 3),
        Condition("pearson", "paired", "examples", 3),
        Condition("pearson", "single", "residual", 5),
        Condition("accuracy", "paired", "clustered", 3),
        Condition("accuracy", "unpaired", "unbalanced", 4),
        Condition("f1", "single", "rare_class", 2),
        Condition("accuracy", "paired", "saturated", 2),
        Condition("accuracy", "single", "failed", 10),
        Condition("accuracy", "unpaired", "failed", 5),
    ],
    ids=lambda condition: condition.name,
)
def test_a_trial_is_what_compare_says(condition):
    questions, settings = questions_of(condition, 7, [40, 41, 42], 60)
    found, *_ = compare_specs(questions, settings, [Names()] * 3)
    for trial, ours in zip((40, 41, 42), found, strict=True):
        sides = [dataset(arm) for arm in condition.arms(7, trial)]
        theirs = compare(
            sides[0], sides[1] if len(sides) > 1 else None, condition.metric, design=condition.design,
            clusters="group" if condition.data == "clustered" else None,
            n_resamples=60, rng=settings.rng,
        )  # fmt: skip
        np.testing.assert_array_equal(ours.samples, theirs.samples)
        for field in ("estimate", "standard_error", "df", "ci", "intervals", "p_values"):
            assert getattr(ours, field) == getattr(theirs, field), field


@pytest.mark.parametrize(
    ("metric", "data", "num_seeds"),
    [
        ("mean", "seeds", 2), ("pearson", "seeds", 3), ("accuracy", "saturated", 2),
        ("accuracy", "failed", 10), ("f1", "rare_class", 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("design", ["single", "paired", "unpaired"])
def test_what_needs_no_bootstrap_is_what_compare_recommends(metric, data, num_seeds, design):
    condition = Condition(metric, design, data, num_seeds)
    questions, settings = questions_of(condition, 3, range(15), 40)
    found, *_ = compare_specs(questions, settings, [Names()] * 15)
    for question, theirs in zip(questions, found, strict=True):
        ours = recommended(question, settings)
        assert (ours.estimate, ours.interval) == (theirs.estimate, theirs.ci)
        assert ours.p == theirs.p_values.get("t")
        assert ours.unpaired == theirs.intervals.get("unpaired")
        rest = theirs.without_failed
        assert ours.without_failed == (theirs.ci if rest is None else rest.ci)
        assert ours.flags["any"] == bool(warnings(theirs))
        sides = [side for side in (theirs.base, theirs.experiment) if side]
        assert ours.flags["failed seeds"] == any(side.failed_seeds for side in sides)
        assert ours.flags["data"] == (len(warnings(theirs)) > theirs.below_seed_floor)


def test_trials_are_their_own_and_the_same_in_any_order():
    condition = Condition("mean", "unpaired", "none", 3)
    tables = [condition.arms(1, trial)[1].predictions for trial in range(30)]
    assert len({float(table[0, 0]) for table in tables}) == 30
    np.testing.assert_array_equal(tables[17], condition.arms(1, 17)[1].predictions)
    other = Condition("mean", "unpaired", "none", 5)
    assert other.arms(1, 17)[1].predictions[0, 0] != tables[17][0, 0]
    assert condition.arms(2, 17)[1].predictions[0, 0] != tables[17][0, 0]


@pytest.mark.parametrize("dominant", list(SHARES))
def test_the_variance_of_the_mean_is_one_and_its_shares_are_those_named(dominant):
    condition = Condition("mean", "paired", dominant, 4)
    tables = np.array([condition.arms(3, trial)[1].predictions for trial in range(3000)])
    assert tables.mean(axis=(1, 2)).var() == pytest.approx(1, abs=4 * np.sqrt(2 / 3000))
    outcome = simulate(condition, 3, range(60), 40)
    assert sum(outcome.shares) == pytest.approx(1)
    assert outcome.shares == pytest.approx(SHARES[dominant], abs=0.13)


@pytest.mark.parametrize("dominant", ["seeds", "examples", "residual"])
def test_the_true_correlation_is_the_mean_over_new_seeds_and_examples(dominant):
    condition = Condition("pearson", "single", dominant, 25)
    scores = []
    for trial in range(1500):
        arm = condition.arms(5, trial)[0]
        scores.append(np.mean([np.corrcoef(arm.labels, row)[0, 1] for row in arm.predictions]))
    error = np.std(scores) / np.sqrt(len(scores))
    # Of 100 examples r expects less, by at most 0.385 / 200.
    assert -0.002 - 4 * error < np.mean(scores) - condition.truth() < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize(("num_seeds", "percentile"), [(5, 0.846), (10, 0.904)])
def test_where_seeds_dominate_t_covers_and_the_percentile_interval_does_not(num_seeds, percentile):
    found = simulate(Condition("mean", "paired", "seeds", num_seeds), 11, range(TRIALS), REPLICATES)
    assert near(found.covered["t"], 0.95)
    assert near(found.covered["percentile"], percentile)
    for sides in ("one-sided", "two-sided"):
        for level in LEVELS:
            assert near(found.rejected["t"][f"{sides} {level}"], level)
            assert found.rejected["published"][f"{sides} {level}"] / TRIALS > level
    # Of 2**R patterns these many lie in the tail.
    exact = np.floor(0.05 * 2**num_seeds) / 2**num_seeds
    assert near(found.rejected["sign_flip"]["one-sided 0.05"], exact)


@pytest.mark.slow
def test_permutations_of_unpaired_seeds_keep_their_level():
    found = simulate(Condition("mean", "unpaired", "seeds", 5), 12, range(TRIALS), REPLICATES)
    # Of 252 deals 12 are within .05, and 2 within .01.
    assert near(found.rejected["permutation"]["one-sided 0.05"], 12 / 252)
    assert near(found.rejected["permutation"]["one-sided 0.01"], 2 / 252)
    assert 0.93 <= found.covered["t"] / TRIALS <= 0.98


@pytest.mark.slow
def test_of_a_correlation_t_covers_and_keeps_its_level():
    found = simulate(Condition("pearson", "paired", "seeds", 5), 13, range(TRIALS), REPLICATES)
    assert near(found.covered["t"], 0.95)
    assert near(found.rejected["t"]["two-sided 0.05"], 0.05)
    assert found.covered["percentile"] / TRIALS < 0.9


def test_tests_of_seeds_say_nothing_about_new_examples():
    """With examples that dominate the order of the seeds shows a difference that others have not."""
    found = simulate(Condition("mean", "paired", "examples", 10), 14, range(300), 100)
    assert found.rejected["sign_flip"]["two-sided 0.05"] / 300 > 0.5
    assert near(found.covered["t"], 0.95, 300)


def test_the_monte_carlo_error_is_never_nothing():
    assert monte_carlo_error(50, 1000) == pytest.approx(np.sqrt(0.05 * 0.95 / 1000))
    assert monte_carlo_error(0, 1000) == pytest.approx(np.sqrt(0.0005 * 0.9995 / 1000))
    assert monte_carlo_error(1000, 1000) == pytest.approx(monte_carlo_error(0, 1000))


# F1 of few positives expects less than over endlessly many examples, as Pearson's r does.
KINDS = {
    (c.metric, c.data): None
    for c in all_conditions()
    if c.data not in SHARES
    and c.metric != "pearson"
    and not (c.metric == "f1" and c.data in POSITIVES)
}


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "data"), KINDS)
def test_the_truth_is_the_mean_over_new_seeds_and_examples(metric, data):
    designs = ("unpaired",) if data in BETWEEN_SIDES else ("single", "paired")
    for design in designs:
        condition = Condition(metric, design, data, 5)
        trials = range(400)
        questions, _ = questions_of(condition, 9, trials, 40)
        sums = [
            sum(
                sign * job.plain[0][0].mean()
                for sign, job in zip((1,) if design == "single" else (-1, 1), q.jobs, strict=True)
            )
            for q in questions
        ]
        assert abs(np.mean(sums) - condition.truth()) < 4 * np.std(sums) / np.sqrt(len(trials))


def test_blocks_of_trials_add_up_to_all_of_them():
    condition = Condition("accuracy", "paired", "saturated", 3)
    whole = simulate(condition, 5, range(60), 40)
    parts = joined(
        [simulate(condition, 5, range(40), 40), simulate(condition, 5, range(40, 60), 40)]
    )
    assert parts.covered == whole.covered and parts.rejected == whole.rejected
    assert parts.flagged == whole.flagged and parts.flagged_misses == whole.flagged_misses
    light = joined([whole, simulate(condition, 5, range(60, 100))])
    assert light.covered["percentile"] == whole.covered["percentile"]
    assert (light.trials, light.count_of("t"), light.count_of("percentile")) == (100, 100, 60)
    assert light.errs("t") == light.rejected["t"]["two-sided 0.05"] / 100
    assert parts.terms == pytest.approx(whole.terms) and parts.trials == whole.trials == 60
    assert whole.flagged["any"] > 0


@pytest.mark.slow
def test_families_of_true_hypotheses_are_rejected_more_often_without_a_correction():
    found = simulate(Condition("mean", "family", "none", 3), 5, range(150))
    assert (
        found.rejected["holm"]["two-sided 0.05"] <= found.rejected["uncorrected"]["two-sided 0.05"]
    )
    assert found.rejected["uncorrected"]["two-sided 0.05"] / 150 > 0.08
    assert found.rejected["holm"]["two-sided 0.05"] / 150 < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 150)


# --- The neighbours -------------------------------------------------------------------------------


def tables(seed: int, *effects: float, sides: int = 1) -> list[np.ndarray]:
    """Tables [1, seeds 4, examples 12] with effects of seeds and examples."""
    random = np.random.default_rng(seed)
    return [
        effects[0] * random.normal(size=(1, 4, 1))
        + effects[1] * random.normal(size=(1, 1, 12))
        + random.normal(size=(1, 4, 12))
        for _ in range(sides)
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_mixed_model_is_that_of_statsmodels():
    from statsmodels.regression.mixed_linear_model import MixedLM

    (table,) = tables(1, 0.8, 0.7)
    seeds, examples = np.divmod(np.arange(48), 12)
    frame = pd.DataFrame({"y": table.ravel(), "seed": seeds, "example": examples, "all": 1})
    parts = {"seed": "0 + C(seed)", "example": "0 + C(example)"}
    theirs = MixedLM.from_formula(
        "y ~ 1", groups="all", vc_formula=parts, re_formula="0", data=frame
    ).fit(reml=True)
    low, high = neighbour_intervals([table], False, np.random.default_rng(0))["mixed"][0]
    assert (low, high) == pytest.approx(tuple(theirs.conf_int().loc["Intercept"]), abs=0.002)


@pytest.mark.parametrize("effects", [(0.0, 0.7), (0.8, 0.0), (0.0, 0.0), (0.5, 0.5)])
@pytest.mark.parametrize("sides", [1, 2])
def test_the_mixed_model_has_the_largest_restricted_likelihood(effects, sides):
    """Of mean squares with these expectations, none of which is below the residual's."""
    from scipy.optimize import minimize

    found = tables(4, *effects, sides=sides)
    low, high = neighbour_intervals(found, False, np.random.default_rng(0))["mixed"][0]
    ours = ((high - low) / 2 / 1.959964) ** 2
    by_seed = np.concatenate([t[0].mean(1) - t.mean() for t in found])
    cells = [t[0] - t[0].mean(0) - t[0].mean(1)[:, None] + t.mean() for t in found]
    means = (found[-1] - (found[0] if sides == 2 else 0))[0].mean(0)
    squares = np.array(
        [12 * (by_seed**2).sum(), 4 / sides * (means - means.mean()) @ (means - means.mean()),
         sum((cell**2).sum() for cell in cells)]
    )  # fmt: skip
    freedoms = np.array([sides * 3, 11, sides * 33])

    def deviance(parameters):
        residual = np.exp(parameters[2])
        expected = np.array([*(residual + np.exp(parameters[:2])), residual])
        return (freedoms * np.log(expected) + squares / expected).sum()

    best = min((minimize(deviance, start, method="Nelder-Mead",
                         options={"maxiter": 4000, "xatol": 1e-7, "fatol": 1e-10})
                for start in ([0, 0, 0], [-9, 0, 0], [0, -9, 0], [-9, -9, 0])),
               key=lambda result: result.fun)  # fmt: skip
    seeds, examples, residual = np.exp(best.x)
    assert ours == pytest.approx(sides * (seeds + examples + residual) / 48, rel=0.01)


def test_millers_errors_are_those_of_his_formulas():
    first, second = tables(2, 0.5, 1.0, sides=2)
    for size in (1, 3):
        values = (second - first)[0].mean(axis=0)
        centred = values - values.mean()
        square = centred @ centred / (11 * 12)
        if size > 1:  # clustered: pairs within a cluster added to the squares
            square = sum(np.outer(c, c).sum() for c in centred.reshape(-1, size)) / 12**2
        found = neighbour_intervals(
            [first, second], False, np.random.default_rng(0), cluster_size=size
        )["miller"][0]
        reach = 1.959964 * np.sqrt(square)
        assert found == pytest.approx([values.mean() - reach, values.mean() + reach])


def test_the_stratified_bootstrap_is_archs_over_seeds():
    from arch.bootstrap import IIDBootstrap

    (table,) = tables(3, 1.0, 0.2)
    ours = neighbour_intervals([table], False, np.random.default_rng(0))["rliable"][0]
    theirs = IIDBootstrap(table[0].mean(axis=1), seed=1).conf_int(
        np.mean, 4000, method="percentile"
    )
    assert ours == pytest.approx(theirs.ravel(), abs=0.1 * np.ptp(theirs))


def test_seeds_alone_are_scipys_t_tests():
    from scipy.stats import ttest_ind, ttest_rel

    first, second = tables(5, 0.7, 0.3, sides=2)
    scores = [side[0].mean(axis=1) for side in (second, first)]
    for paired, test in (
        (True, ttest_rel(*scores)),
        (False, ttest_ind(*scores, equal_var=False)),
    ):
        found = neighbour_intervals([first, second], paired, np.random.default_rng(0))["seeds"][0]
        assert found == pytest.approx(tuple(test.confidence_interval(0.95)))


def test_posteriors_have_the_quantiles_of_beta_and_dirichlet():
    random = np.random.default_rng(6)
    first, second = ((random.random((1, 5, 40)) < p).astype(float) for p in (0.6, 0.75))
    one = neighbour_intervals([first], False, random, [first])["bayes"][0]
    from scipy.stats import beta

    good = first.sum()
    assert one == pytest.approx(beta(1 + good, 201 - good).ppf([0.025, 0.975]))
    for paired in (True, False):
        low, high = neighbour_intervals([first, second], paired, random, [first, second])["bayes"][
            0
        ]
        # By the moments of the posterior: normal with as many answers.
        both = np.array(
            [[1.0 + ((first == a) & (second == b)).sum() for b in (0, 1)] for a in (0, 1)]
        )
        total = both.sum()
        mean, spread = (both[0, 1] - both[1, 0]) / total, (both[0, 1] + both[1, 0]) / total
        variance = (spread - mean**2) / (total + 1)
        if not paired:
            shares = [(1 + side.sum()) / 202 for side in (first, second)]
            mean = shares[1] - shares[0]
            variance = sum(share * (1 - share) / 203 for share in shares)
        reach = 1.959964 * np.sqrt(variance)
        assert (low, high) == pytest.approx((mean - reach, mean + reach), abs=0.15 * reach)


# --- The study and its page -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_study_that_was_cut_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    few = [c for c in all_conditions() if c.num_seeds == 3 and c.design in ("paired", "family")]
    few += [Condition("mean", "paired", "seeds", 10), Condition("accuracy", "single", "failed", 3)]
    monkeypatch.setattr("multiberts.benchmarks.calibration.all_conditions", lambda real: few)
    options = {
        "num_trials": 3, "num_ordinary_trials": 4, "num_close_trials": 5, "num_open_trials": 6,
        "num_bootstrap_trials": 2,
        "n_resamples": 40, "simulation_seed": 4,
    }  # fmt: skip
    calibrate(run_dir=str(tmp_path / "whole"), **options)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    names = {path.name for path in (tmp_path / "whole").glob("calibration*")}
    assert len(names) == 11  # the counts, the page, its appendix, and four figures in two formats
    blocks = sorted((tmp_path / "cut" / "blocks").iterdir())
    # As a kill leaves it: no marker, no tables, some blocks missing, one half written.
    (tmp_path / "cut" / "DONE").unlink()
    for name in names:
        (tmp_path / "cut" / name).unlink()
    kept, *missing = blocks
    for path in missing[::2]:
        path.unlink()
    (tmp_path / "cut" / "blocks" / "half.json.unfinished").write_text("{")
    before = kept.stat().st_mtime_ns
    calibrate(run_dir=str(tmp_path / "cut"), **options)
    assert kept.stat().st_mtime_ns == before and all(path.exists() for path in missing)
    for name in names:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert json.loads((tmp_path / "cut" / "DONE").read_text())["stage"] == "calibrate"
    outcomes = gathered(tmp_path / "cut", few)
    for condition, found in outcomes.items():
        three, four, five = (
            gathered(tmp_path / "cut", [condition], most)[condition] for most in (3, 4, 5)
        )
        close = three.share() < CLOSE
        undecided = (close and held(five) == "no?") or (condition.ordinary and held(four) == "no?")
        wanted = 6 if undecided else 5 if close else 4 if condition.ordinary else 3
        assert found.trials == wanted
    assert {found.trials for found in outcomes.values()} >= {4, 6}
    (tmp_path / "again.jsonl").write_text(as_lines(outcomes))
    again = read_lines(tmp_path / "again.jsonl")
    assert [asdict(c) for c in again] == [asdict(c) for c in few]
    with pytest.raises(UserError, match="num_trials"):
        calibrate(run_dir=str(tmp_path / "cut"), **{**options, "num_trials": 4})


def test_real_answers_are_drawn_again_and_others_refused(tmp_path):
    random = np.random.default_rng(0)
    file = tmp_path / "data" / REAL_ANSWERS
    file.parent.mkdir(parents=True)
    published = {
        "label_names": ["contradiction", "entailment", "neutral"],
        "preds_mnli": random.integers(0, 3, (10, 500)),
        "gold_mnli": random.integers(0, 3, 500),
        "preds_hans": random.integers(0, 3, (10, 400)),
        "hans_subcase_names": ["ln_passive", "le_passive", "sn_NP/S", "ln_conjunction"],
        "hans_subcase_id": np.arange(400) % 4,
    }
    np.savez(file, **published)
    real = real_answers(str(tmp_path / "data"))
    assert real["mnli"].shape == (10, 500) and real["hans"].shape == (10, 200)
    assert (real["hans"][:, 1] == (published["preds_hans"][:, 3] != 1)).all()
    conditions = [c for c in all_conditions(True) if c.data in REAL]
    assert {c.data for c in conditions} == set(REAL) and max(c.num_seeds for c in conditions) == 10
    condition = Condition("accuracy", "single", "hans", 5)
    assert condition.truth(real) == pytest.approx(2 / 3, abs=0.05)
    found = simulate(condition, 2, range(40), real=real)
    assert found.covered["t"] >= 34 and "bayes" in found.covered
    np.savez(file, **{name: published[name] for name in published if name != "gold_mnli"})
    real_answers.cache_clear()
    with pytest.raises(UserError, match="gold_mnli.*give the folder of published data"):
        real_answers(str(tmp_path / "data"))
    with pytest.raises(UserError, match="No such file"):
        calibrate(run_dir=str(tmp_path / "run"), data=str(tmp_path))
    assert not (tmp_path / "run").exists()


def test_the_real_answers_are_the_published_ones(shared_data):
    real = real_answers(str(shared_data))
    with np.load(shared_data / REAL_ANSWERS) as found:
        np.testing.assert_allclose(real["mnli"].mean(axis=1), found["reported_acc_mnli"])
    assert real["hans"].shape == (10, 5000)
    # A committed count of these answers, again: two blocks of the study.
    committed = read_lines(DOCS / "calibration.jsonl")
    condition = Condition("accuracy", "single", "hans", 2)
    found = simulate(condition, 2023, range(committed[condition].trials), real=real)
    assert found.covered["t"] == committed[condition].covered["t"]


def test_misses_without_a_failed_seed_are_counted():
    """Of five seeds none fails in three of five trials, which look as if none could."""
    found = simulate(Condition("accuracy", "single", "failed", 5), 2, range(100))
    misses = found.trials - found.covered["t"]
    assert misses == found.unseen_misses + found.flagged_misses["failed seeds"] > 10
    assert simulate(Condition("accuracy", "single", "binary", 5), 2, range(20)).unseen_misses == 0
    parts = [simulate(Condition("accuracy", "single", "failed", 5), 2, r)
             for r in (range(40), range(40, 100))]  # fmt: skip
    assert joined(parts).unseen_misses == found.unseen_misses


def test_the_page_is_made_from_the_counts_beside_it():
    outcomes = read_lines(DOCS / "calibration.jsonl")
    assert page(outcomes) == (DOCS / "calibration.md").read_text()
    assert appendix(outcomes) == (DOCS / "calibration_appendix.md").read_text()
    assert set(outcomes) == set(all_conditions(real=True))
    assert all((DOCS / f"{name}.png").exists() for name in figures(outcomes))


def test_what_readme_promises_holds_in_the_counts():
    """On ordinary data the recommended interval covers, or is within two Monte Carlo errors of it."""
    outcomes = read_lines(DOCS / "calibration.jsonl")
    ordinary = [found for c, found in outcomes.items() if c.ordinary and c.design != "family"]
    assert len(ordinary) > 80
    assert "no" not in {held(found) for found in ordinary}


def test_a_condition_is_judged_by_coverage_then_by_flags_where_it_misses():
    def outcome(covered: int, flagged: int) -> Outcome:
        return Outcome(1000, covered={"t": covered}, flagged_misses={"any": flagged})

    assert held(outcome(930, 0)) == "yes"
    assert held(outcome(900, 90)) == "flag"
    assert held(outcome(900, 89)) == "no"
    assert held(outcome(920, 0)) == "no?"
