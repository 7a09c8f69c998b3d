"""One seed and a borrowed spread of seeds: what it adds to the variance, and what is said of it."""

import math

import numpy as np
import pytest
import scipy.stats

from multiberts import stats
from multiberts.runs.errors import UserError
from multiberts.stats.borrowed import seed_spread
from multiberts.stats.errors import DataError
from multiberts.stats.report.own_predictions import compare_files

FEW = {"n_resamples": 40}


def scores(num_seeds, num_examples=200, key=0, spread=0.3):
    """Normal scores [seeds, examples]."""
    random = np.random.default_rng([key, num_seeds])
    seeds = spread * random.normal(size=(num_seeds, 1))
    return seeds + random.normal(size=num_examples) + random.normal(size=(num_seeds, num_examples))


def test_two_single_seeds_differ_by_twice_the_borrowed_variance_with_its_own_degrees_of_freedom():
    """Both arms have one number, whose error they share: its degrees of freedom are not doubled."""
    base, experiment = scores(1), scores(1, key=1)
    found = stats.compare(base, experiment, resample="seeds", seed_sd="0.2/6", **FEW)
    assert found.standard_error == pytest.approx(0.2 * math.sqrt(2))
    assert found.df == 6
    expected = scipy.stats.t(6, found.estimate, found.standard_error).interval(0.95)
    assert tuple(found.ci) == pytest.approx(expected)
    assert found.p_value == pytest.approx(2 * scipy.stats.t(6).sf(abs(found.statistic)))


def test_one_seed_against_many_is_welchs_test_with_the_borrowed_variance_on_one_side():
    base, experiment = scores(1), scores(5, key=1)
    found = stats.compare(
        base, experiment, resample="seeds", design="unpaired", seed_sd="0.2/4", **FEW
    )
    own = experiment.mean(axis=1).var(ddof=1) / 5
    assert found.standard_error == pytest.approx(math.sqrt(0.04 + own))
    assert found.df == pytest.approx((0.04 + own) ** 2 / (0.04**2 / 4 + own**2 / 4))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_examples_are_paired_and_known_noise_is_counted_once(noise):
    base, experiment = scores(1), scores(1, key=1)
    spread = stats.SeedSpread(0.2, 6, "", noise, 200)
    found = stats.compare(base, experiment, seed_sd=spread, **FEW)
    examples = (experiment - base).var(ddof=1) / 200
    assert found.standard_error**2 == pytest.approx(2 * (0.04 - noise**2) + examples)
    assert found.design == "unpaired"
    alone = stats.compare(base, design="single", seed_sd=spread, **FEW)
    assert alone.standard_error**2 == pytest.approx(0.04 - noise**2 + base.var(ddof=1) / 200)
    given = stats.compare(base, experiment, design="fixed_baseline", seed_sd=spread, **FEW)
    assert given.standard_error**2 == pytest.approx(0.04 - noise**2 + examples)


def test_on_a_larger_set_noise_is_smaller_and_models_differ_as_before():
    spread = stats.SeedSpread(0.5, 9, "", 0.4, 100).on(400, 1.0)
    assert spread.noise_sd == pytest.approx(0.2)
    assert spread.sd**2 == pytest.approx(0.3**2 + 0.2**2)
    assert stats.SeedSpread(0.5, 9, "").on(400, 0.01).sd == pytest.approx(0.005)


def test_the_error_of_many_seeds_is_found_from_one_of_them_and_the_row_of_all():
    """A row of 40 seeds, borrowed by each of them, gives the variance of one seed's score."""
    table = scores(40, 400)
    whole = stats.compare(table, design="single", **FEW)
    row = whole.atlas_row("task/size/recipe")
    assert float(row["seed_sd"]) == pytest.approx(table.mean(axis=1).std(ddof=1), rel=0.005)
    assert float(row["seed_sd_low"]) < 0.3 < float(row["seed_sd_high"])
    assert float(row["noise_sd"]) == pytest.approx(1 / math.sqrt(400), rel=0.05)
    assert float(row["example_sd_low"]) <= 1 / math.sqrt(400) <= float(row["example_sd_high"])
    spread = stats.SeedSpread(float(row["seed_sd"]), 39, "", float(row["noise_sd"]), 400)
    found = [stats.compare(one[None], design="single", seed_sd=spread, **FEW) for one in table]
    truth = 0.3**2 + 2 / 400
    assert np.mean([one.standard_error**2 for one in found]) == pytest.approx(truth, rel=0.3)


def test_a_number_is_in_the_unit_that_is_printed_and_has_four_degrees_of_freedom():
    answers = (scores(1) > -1).astype(int), (scores(1, key=1) > -1).astype(int)
    labels = np.ones(200, int)
    found = stats.compare(*answers, "accuracy", labels=labels, seed_sd=1.5, **FEW)
    assert (found.borrowed.sd, found.borrowed.df) == (pytest.approx(0.015), 4)
    text = str(found)
    assert (
        "base and experiment have one seed each, and the standard deviation between seeds" in text
    )
    assert "1.500 points (4 degrees of freedom, assumed as if from five seeds;" in text
    assert "not estimated but taken to be 1.500 points" in found.methods()
    assert "Bootstrap" not in found.methods()
    assert not found.intervals and {*found.p_values} == {"t"}
    assert found.to_dict()["borrowed"]["df"] == 4
    found.plot()
    shares = stats.compare(*(table.astype(float) for table in answers), seed_sd=0.015, **FEW)
    assert tuple(shares.ci) == pytest.approx(tuple(found.ci))
    with pytest.raises(DataError, match="borrowed spread of seeds, from which nothing is planned"):
        found.plan()


def test_the_shipped_atlas_is_read_and_of_several_recipes_has_the_one_with_most_seeds():
    """The published spread of 100 fine-tunings is .0024 (McCoy et al., accuracies by run)."""
    spread = seed_spread("atlas:MNLI/bert-base")
    assert (spread.sd, spread.df) == (0.242, 99) and "mccoy2020" in spread.source
    assert seed_spread("atlas:MNLI/bert-base/zhou2020").df == 9
    atlas = stats.seed_atlas()
    assert len(atlas) == len(atlas.drop_duplicates(["task", "size", "recipe"]))
    assert (atlas.seed_sd_low < atlas.seed_sd).all() and (atlas.seed_sd < atlas.seed_sd_high).all()
    assert (atlas.df == atlas.num_seeds - 1).all() and atlas.source.notna().all()
    assert not (atlas.noise_sd > atlas.seed_sd).any()


def test_a_perfect_seed_has_the_spread_of_others_or_what_its_examples_leave_open():
    labels = np.ones(400, int)
    for sd, reach in ((3.0, 0.03 * scipy.stats.t(24).ppf(0.975)), (0.01, 1 - 0.025 ** (1 / 400))):
        options = {"labels": labels, "seed_sd": f"{sd}/24", **FEW}
        found = stats.compare(labels[None], None, "accuracy", design="single", **options)
        assert found.ci.high == 1 and found.ci.low == pytest.approx(1 - reach, abs=0.0005)
        other = np.where(np.arange(400) < 4, 0, labels)[None]
        difference = stats.compare(labels[None], other, "accuracy", **options)
        assert difference.ci.low < -0.01 < difference.ci.high


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed_sd": "often"}, "found seed_sd 'often', expected a standard deviation above 0"),
        ({"seed_sd": -1}, "expected a standard deviation above 0"),
        ({"seed_sd": "1/0.5"}, "expected 1 degree of freedom or more"),
        (
            {"seed_sd": 60},
            "found seed_sd 60, half of the range of accuracy or more; it is in points",
        ),
        ({"seed_sd": "atlas:MNLI/bert-bas"}, "did you mean MNLI/bert-base"),
        ({"seed_sd": "none.csv:MNLI/bert"}, "none.csv: cannot be read as an atlas of seeds"),
        ({"seed_sd": 1, "resample": "examples"}, "seed_sd with resample='examples'"),
        ({"seed_sd": 1, "by": "label"}, r"seed_sd with slices \(by\)"),
        ({}, r"base has one seed \(0\) to pair.*borrow their spread \(seed_sd\)"),
    ],
)
def test_what_cannot_be_borrowed_is_refused(options, message):
    answers = (scores(1) > -1).astype(int), (scores(1, key=1) > -1).astype(int)
    with pytest.raises(DataError, match=message):
        stats.compare(*answers, "accuracy", labels=np.ones(200, int), **options)


def test_arms_with_spreads_of_their_own_and_other_metrics_borrow_nothing():
    with pytest.raises(DataError, match=r"more than one seed \(base 3 and experiment 3\)"):
        stats.compare(scores(3), scores(3, key=1), seed_sd=0.1)
    answers = (scores(1) > 0).astype(int)
    with pytest.raises(DataError, match="found the spread of accuracy .*, expected that of f1"):
        stats.compare(answers, 1 - answers, "f1", labels=answers[0], seed_sd="atlas:MNLI/bert-base")


def test_the_command_writes_an_atlas_and_borrows_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = np.ones(200, int)
    for name, number in (("many", 6), ("more", 6), ("one", 1), ("other", 1)):
        answers = (scores(number, key=len(name)) > -1).astype(int)
        np.savez(f"{name}.npz", predictions=answers, labels=labels)
    written = compare_files(base="many.npz", metric="accuracy", atlas="own.csv:facts/tiny/ours")
    assert written.endswith("Written: own.csv")
    compare_files(base="many.npz", metric="accuracy", atlas="own.csv:facts/tiny/ours")
    assert len(stats.seed_atlas("own.csv")) == 1  # the same name, the same row
    stats.seed_atlas("own.csv").assign(note="kept").to_csv("noted.csv", index=False)
    compare_files(base="more.npz", metric="accuracy", atlas="noted.csv:facts/tiny/more")
    assert stats.seed_atlas("noted.csv").note.fillna("").tolist() == ["kept", ""]
    np.savez("perfect.npz", predictions=[labels, labels], labels=labels)
    (tmp_path / "notes.csv").write_text("one,two\n")
    with pytest.raises(DataError, match="the same score for all 2 seeds"):
        compare_files(base="perfect.npz", atlas="b.csv:a/b/c")
    with pytest.raises(DataError, match="notes.csv: found no column task"):
        compare_files(base="many.npz", atlas="notes.csv:a/b/c")
    found = compare_files(
        base="one.npz", experiment=["other.npz"], metric="accuracy", seed_sd="own.csv:facts/tiny",
        html="page.html", csv="all.csv",
    )  # fmt: skip
    assert "5 degrees of freedom; facts/tiny/ours: 6 seeds, many.npz" in found
    assert "borrowed_sd" in (tmp_path / "all.csv").read_text()
    assert (tmp_path / "page.html").read_text().count("facts/tiny/ours: 6 seeds") >= 2
    with pytest.raises(UserError, match="expected FILE.csv:TASK/SIZE/RECIPE"):
        compare_files(base="many.npz", metric="accuracy", atlas="own.txt")
    with pytest.raises(UserError, match="found no arm by itself"):
        compare_files(
            base="many.npz", experiment=["more.npz"], metric="accuracy", atlas="b.csv:a/b/c"
        )
    assert not (tmp_path / "b.csv").exists()
