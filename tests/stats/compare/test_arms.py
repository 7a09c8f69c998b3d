"""`stats.compare_arms`: differences that agree with `compare`, ranks, ties, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
import xarray
from numpy.typing import NDArray
from scipy.special import ndtri, polygamma

from multiberts import stats
from multiberts.stats.compare.arms import seed_prior
from multiberts.stats.compare.ranking import ranked
from multiberts.stats.interval_rule import clopper_pearson_interval, t_interval
from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.results import ArmDifference, ArmSummary
from multiberts.tests.stats.crossings import crossing_of_tables

Tables = dict[str, NDArray[np.float64]]
FEW = {"n_resamples": 50}


def leaderboard(skills: dict[str, float], seeds: int = 5, examples: int = 200) -> Tables:
    """Right and wrong answers [seeds, examples] of each arm."""
    random = np.random.default_rng(len(skills))
    difficulty = random.normal(size=examples)
    return {
        name: (random.normal(skill, 0.1, (seeds, 1)) + random.normal(size=(seeds, examples)) > difficulty)
        .astype(float)
        for name, skill in skills.items()
    }  # fmt: skip


SIX = leaderboard({"a": -1.5, "b": -0.2, "c": 0.0, "d": 0.0, "e": 1.2, "f": 1.3})


@pytest.mark.parametrize("resample", ["both", "seeds", "examples"])
@pytest.mark.parametrize("design", ["paired", "unpaired"])
@pytest.mark.parametrize("metric", ["accuracy", "matthews"])
def test_two_arms_agree_with_compare(design, resample, metric):
    arms = {name: SIX[name].astype(int) for name in ("a", "c")}
    labels = (np.arange(200) % 2).astype(int)
    options = {"labels": labels, "resample": resample, **FEW}
    pair = stats.compare(arms["a"], arms["c"], metric, design=design, **options)
    found = stats.compare_arms(arms, metric, design=design, against="a", **options)
    (difference,) = found.differences
    assert difference.estimate == pair.estimate
    assert difference.ci == pytest.approx(pair.ci, rel=1e-12)
    assert (
        difference.p_value == difference.p_values["holm"] == pytest.approx(pair.p_value, rel=1e-9)
    )
    assert {arm.name: arm.ci for arm in found.arms} == {"a": pair.base.ci, "c": pair.experiment.ci}


@pytest.mark.parametrize("design", ["paired", "unpaired"])
def test_names_and_order_of_arms_change_nothing(design):
    found = stats.compare_arms(SIX, design=design, **FEW)
    renamed = {f"model {name}": SIX[name] for name in "fdbeca"}
    again = stats.compare_arms(renamed, design=design, **FEW)
    ranks = [(f"model {a.name}", a.rank, a.rank_low, a.rank_high, a.groups) for a in found.arms]
    assert ranks == [(a.name, a.rank, a.rank_low, a.rank_high, a.groups) for a in again.arms]
    for first, second in zip(found.differences, again.differences, strict=True):
        assert f"model {first.base}" == second.base
        assert first.ci == pytest.approx(second.ci, rel=1e-9)
        assert first.p_values == pytest.approx(second.p_values, rel=1e-6)


def test_ranks_and_ties_of_arms_far_apart():
    found = stats.compare_arms(SIX, design="unpaired", **FEW)
    places = {arm.name: (arm.rank_low, arm.rank_high) for arm in found.arms}
    assert places == {
        "e": (1, 2), "f": (1, 2), "b": (3, 5), "c": (3, 5), "d": (3, 5), "a": (6, 6),
    }  # fmt: skip
    assert [set(group) for group in found.groups] == [{"e", "f"}, {"b", "c", "d"}, {"a"}]
    clear = {frozenset((item.base, item.experiment)) for item in found.differences if item.clear}
    assert len(clear) == 15 - 1 - 3


def test_equal_scores_share_their_rank():
    copies = {"one": SIX["c"], "two": SIX["c"], "three": SIX["e"]}
    found = stats.compare_arms(copies, design="paired", **FEW)
    assert {arm.name: arm.rank for arm in found.arms} == {"three": 1, "one": 2, "two": 2}
    same = next(item for item in found.differences if "three" not in (item.base, item.experiment))
    reach = clopper_pearson_interval(0, 200, 1 - 0.05 / 3).high  # no example differs
    assert (same.estimate, same.p_values["holm"]) == (0.0, 1.0)
    assert same.ci == pytest.approx((-reach, reach))
    assert not same.clear


def test_against_one_arm_corrects_for_fewer_differences():
    every, against = (
        stats.compare_arms(SIX, design="unpaired", **FEW),
        stats.compare_arms(SIX, against="c", design="unpaired", **FEW),
    )
    assert {item.base for item in against.differences} == {"c"} and len(against.differences) == 5
    widths = {
        frozenset((item.base, item.experiment)): item.ci.high - item.ci.low
        for item in every.differences
    }
    for item in against.differences:
        width = item.ci.high - item.ci.low
        assert width < widths[frozenset((item.base, item.experiment))]
    assert against.groups == () and not against.arms[0].groups
    places = {arm.name: (arm.rank_low, arm.rank_high) for arm in against.arms}
    # Nothing is known of pairs without c, so that the best are only known to be better than c.
    assert places["c"] == (3, 5) and places["e"] == (1, 5) and places["a"] == (2, 6)


@pytest.mark.parametrize("seed", range(20))
def test_letters_are_the_largest_sets_of_tied_arms(seed):
    random = np.random.default_rng(seed)
    names = list("uvwxyz")
    plain = stats.compare_arms(
        dict.fromkeys(names, SIX["a"]), resample="seeds", design="unpaired", **FEW
    ).arms
    tied = {pair: random.random() < 0.5 for pair in itertools.combinations(names, 2)}
    differences = [
        ArmDifference(
            worse, better, 1.0, 1.0, 9.0, ConfidenceInterval(-1.0 if same else 0.5, 3.0), 1, {}
        )
        for (better, worse), same in tied.items()
    ]
    fields = [field.name for field in dataclasses.fields(ArmSummary)]
    summaries = [ArmSummary(**{key: getattr(arm, key) for key in fields}) for arm in plain]
    found = ranked(summaries, differences, True)
    for (better, worse), same in tied.items():
        groups = [set(arm.groups) for arm in found if arm.name in (better, worse)]
        assert bool(groups[0] & groups[1]) == same
    cliques = {
        frozenset(chosen)
        for size in range(1, 7)
        for chosen in itertools.combinations(names, size)
        if all(tied[pair] for pair in itertools.combinations(chosen, 2))
    }
    largest = {clique for clique in cliques if not any(clique < other for other in cliques)}
    letters = {letter for arm in found for letter in arm.groups}
    sets = {frozenset(a.name for a in found if letter in a.groups) for letter in letters}
    assert sets == largest and len(letters) == len(largest)
    for arm in found:
        better = sum(not tied[pair] for pair in tied if pair[1] == arm.name)
        worse = sum(not tied[pair] for pair in tied if pair[0] == arm.name)
        assert (arm.rank_low, arm.rank_high) == (1 + better, 6 - worse)


def test_variances_that_are_alike_are_shared_at_most_half():
    alike = np.random.default_rng(0).normal(0, 2, (10, 5)).var(axis=1, ddof=1)
    freedoms = np.full(10, 4)
    variance, weight = seed_prior(alike, freedoms)
    assert (variance, weight) == (pytest.approx(alike.mean()), 4)
    unlike = alike * np.exp(np.linspace(-12, 12, 10))
    _, weight = seed_prior(unlike, freedoms)
    assert 0 < weight < 0.5
    spread = np.log(unlike).var(ddof=1) - polygamma(1, 2)
    assert polygamma(1, weight / 2) == pytest.approx(spread)
    assert seed_prior([*alike, 0.0], np.full(11, 4)) == (0.0, 0.0)


def test_intervals_are_moderated_and_bonferronis():
    found = stats.compare_arms(SIX, resample="seeds", design="unpaired", **FEW)
    variances = {name: table.mean(axis=1).var(ddof=1) for name, table in SIX.items()}
    assert found.shared_degrees_of_freedom == 4
    mean = np.mean(list(variances.values()))
    moderated = {name: (variance + mean) / 2 for name, variance in variances.items()}
    for item in found.differences:
        pair = [moderated[item.base] / 5, moderated[item.experiment] / 5]
        freedom = sum(pair) ** 2 / sum(share**2 / 8 for share in pair)
        expected = t_interval(item.estimate, math.sqrt(sum(pair)), freedom, 1 - 0.05 / 15)
        assert item.ci == pytest.approx(expected, rel=1e-9)
        assert item.p_value == min(1.0, 15 * item.p_values["uncorrected"])
        assert item.clear == (item.p_value < 0.05)


def test_three_arms_share_no_variances():
    three = {name: SIX[name] for name in "abc"}
    found = stats.compare_arms(three, design="unpaired", **FEW)
    assert found.shared_degrees_of_freedom == 0
    for item in found.differences:
        variance = crossing_of_tables(
            [three[item.base], three[item.experiment]]
        ).unbiased_variance()
        assert item.standard_error == pytest.approx(math.sqrt(variance.variance))


def test_arms_whose_answers_are_all_right_have_no_interval_of_one_point():
    perfect = {"one": np.ones((5, 50)), "two": np.ones((5, 50)), "three": np.zeros((5, 50))}
    found = stats.compare_arms(perfect, "accuracy", labels=np.ones(50), design="unpaired", **FEW)
    for item in found.differences:
        assert item.ci.low < item.estimate < item.ci.high or abs(item.estimate) == 1
        assert item.ci.high - item.ci.low > 0.05


def test_clusters_and_ids_are_those_of_compare():
    frame = pd.concat(
        pd.DataFrame(
            {
                "arm": name, "seed": seed, "example": [f"q{i}" for i in range(200)],
                "score": table[seed], "family": np.arange(200) // 4,
            }
        ).sample(frac=1, random_state=seed)
        for name, table in list(SIX.items())[:3]
        for seed in range(5)
    )  # fmt: skip
    arms = stats.read(frame, cluster="family")
    found = stats.compare_arms(arms, design="paired", against="a", **FEW)
    for item in found.differences:
        pair = stats.compare(arms["a"], arms[item.experiment], **FEW)
        assert item.estimate == pytest.approx(pair.estimate)
        assert item.standard_error == pytest.approx(pair.standard_error)
    long = stats.compare_arms(frame.drop(columns="family"), design="unpaired", **FEW)
    assert [arm.estimate for arm in long.arms] == pytest.approx([a.estimate for a in found.arms])


def test_paired_arms_keep_the_seeds_that_all_have():
    seeds = pd.Index(range(5), name="seed")
    named = {name: pd.DataFrame(table, index=seeds) for name, table in SIX.items()}
    short = {**named, "c": named["c"][:3]}
    found = stats.compare_arms(short, design="paired", **FEW)
    assert {arm.name: arm.seeds for arm in found.arms} == dict.fromkeys(SIX, (0, 1, 2))
    assert found.arms[0].left_out == (3, 4) and "Left out of e" in str(found)
    assert found.pairing == "seed number" and "use the unpaired design" in str(found)
    every = stats.compare_arms(short, design="unpaired", **FEW)
    assert {arm.name: len(arm.seeds) for arm in every.arms} == {**dict.fromkeys(SIX, 5), "c": 3}


def test_trainings_of_one_name_and_other_weights_pair_no_seeds():
    """One rule for a ranking and for each comparison in it: both say whether the seeds have a parent."""

    def arm(name, weights):
        lineage = np.empty(5, object)
        lineage[:] = [(("base", seed, 100, f"{weights} of {seed}"),) for seed in range(5)]
        coords = {"pretrain_seed": range(5), "lineage": ("pretrain_seed", lineage)}
        return xarray.DataArray(SIX[name], coords, ("pretrain_seed", "example"))

    for weights, pairing in (("first", "parent"), ("second", "seed number")):
        arms = {"b": arm("b", "first"), "c": arm("c", "first"), "d": arm("d", weights)}
        assert stats.compare_arms(arms, design="paired", **FEW).pairing == pairing
        one = stats.compare(arms["c"], arms["d"], "mean", design="paired", **FEW)
        assert one.pairing == pairing
        fixed = stats.compare_arms(arms, design="paired", resample="examples", **FEW)
        assert fixed.pairing is None  # as of a comparison: no seeds are drawn


def test_readers_get_words_tables_figures_and_json():
    found = stats.compare_arms(SIX, name="six", design="unpaired", **FEW)
    text = str(found)
    assert re.match("f comes first by .* Among 6 arms .*5 seeds .*200 shared", text)
    assert "cannot be distinguished" in text and "11 of 15 differences" in text
    assert re.search(r"\| 6    \| a .*\| 6  ", text)
    assert "<table>" in found._repr_html_() and "\\toprule" in found.latex()
    assert "Mogstad" in found.methods() and "Smyth" in found.methods()
    assert len(found.to_frame()) == 15 and len(found.to_frame("arms")) == 6
    values = json.loads(json.dumps(found.to_dict()))
    assert values["arms"][-1]["rank_low"] == 6
    labels = [text.get_text() for text in found.plot().axes[0].get_yticklabels()]
    assert labels == [arm.name for arm in found.arms]
    against = stats.compare_arms(SIX, against="c", design="unpaired", **FEW)
    assert "Worse than c: a." in str(against)
    assert len(against.plot().axes[0].lines) == 2 * 5 + 1
    same = stats.compare_arms(SIX, name="six", design="unpaired", **FEW)
    assert same == found and hash(same) == hash(found) and against != found


TEN = np.repeat(np.linspace(0.65, 0.85, 5), 2)  # accuracies of ten models


def ten_models(random: np.random.Generator) -> NDArray[np.float64]:
    """Right and wrong answers [models, seeds, examples] from a probit model, whose means are `TEN`."""
    spreads = 0.3 * np.tile(np.linspace(0.5, 1.5, 5), 2)
    skill = ndtri(TEN) * np.sqrt(2.01 + spreads**2)
    seeds = spreads[:, None] * random.standard_normal((10, 5))
    examples = 0.1 * random.standard_normal((10, 500)) + random.standard_normal(500)
    latent = (skill[:, None] + seeds)[:, :, None] + examples[:, None]
    return (latent + random.standard_normal(latent.shape) > 0).astype(np.float64)


def test_ten_models_of_five_seeds_are_judged_rightly():
    """All differences at once, and all ranks; intervals from each pair's own variance are wider."""
    differences = ranks = clear = 0
    widths, own_widths = [], []
    for trial in range(25):
        tables = ten_models(np.random.default_rng(trial))
        arms = {str(number): table for number, table in enumerate(tables)}
        found = stats.compare_arms(arms, "mean", design="unpaired", n_resamples=39)
        pairs = [(int(item.base), int(item.experiment)) for item in found.differences]
        truths = [TEN[second] - TEN[first] for first, second in pairs]
        ends = np.array([item.ci for item in found.differences])
        differences += ((ends[:, 0] <= truths) & (truths <= ends[:, 1])).all()
        ranks += all(
            arm.rank_low <= 1 + (TEN[int(arm.name)] < TEN).sum()
            and arm.rank_high >= 10 - (TEN[int(arm.name)] > TEN).sum()
            for arm in found.arms
        )
        clear += sum(item.clear for item in found.differences)
        widths.append(np.ptp(ends, axis=1).mean())
        for first, second in pairs:
            variance = crossing_of_tables([tables[first], tables[second]]).unbiased_variance()
            error, freedom = math.sqrt(variance.variance), variance.cautious_degrees_of_freedom
            own_widths.append(np.ptp(t_interval(0.0, error, freedom, 1 - 0.05 / 45)))
    # Of 25 trials at .95 and above, 20 or fewer are right in fewer than 1 of 100 studies.
    assert ranks >= differences > 20
    assert np.mean(widths) < np.mean(own_widths)
    assert 0 < clear < 25 * 40
