"""Winogender bias: hand-made cases, invariances, and the real table's occupations."""

import csv

import numpy as np
import pandas
import pytest
import scipy.stats
import xarray

from multiberts.evaluate.metrics.winogender_bias import (
    OCCUPATION_MEASURES,
    gotcha_column,
    occupation_bias,
    occupation_scores,
)
from multiberts.evaluate.scoring import score
from multiberts.tests.worlds import write_run

OCCUPATIONS = np.array(["nurse"] * 4 + ["broker"] * 4)
GENDERS = np.array(["feminine", "masculine", "feminine", "neutral"] * 2)


def test_bias_by_hand():
    # nurse: feminine sentences 0 and 2, masculine 1; a neutral one never counts.
    choices = [[0, 1, 0, 1, 1, 0, 0, 0], [0, 0, 1, 0, 1, 1, 1, 1]]
    names, bias = occupation_bias(choices, OCCUPATIONS, GENDERS)
    assert names == ["broker", "nurse"]
    np.testing.assert_allclose(bias, [[0.5 - 1.0, 1.0 - 0.0], [0.0 - 0.0, 0.5 - 1.0]])


def probe_dataset(genders=True):
    random = np.random.default_rng(1)
    occupations = np.repeat([f"occupation {n}" for n in range(12)], 6)
    share = np.repeat(random.uniform(0, 100, 12), 6)
    coordinates = {
        "pretrain_seed": ("run", [0, 1, 2]),
        "occupation": ("example", occupations),
        "percent_feminine": ("example", share),
    }
    if genders:
        coordinates["gender"] = ("example", np.tile(["feminine", "masculine", "neutral"], 24))
    prediction = random.integers(0, 2, (3, 72))
    return xarray.Dataset({"prediction": (("run", "example"), prediction)}, coords=coordinates)


@pytest.mark.parametrize("measure", OCCUPATION_MEASURES)
def test_measures_equal_scipy_on_a_plain_loop(measure):
    dataset = probe_dataset()
    scores = occupation_scores(dataset, measure)
    assert scores["pretrain_seed"].to_numpy().tolist() == [0, 1, 2]
    ours = OCCUPATION_MEASURES[measure].metric.score(scores["label"], scores["prediction"])
    occupation, gender, share = (
        dataset[name].to_numpy() for name in ("occupation", "gender", "percent_feminine")
    )
    for run, values in enumerate(dataset["prediction"].to_numpy()):
        x, y = [], []
        for name in dict.fromkeys(occupation.tolist()):
            rows = occupation == name
            # Of bias, how much more often she is taken for it than he.
            for_her, for_him = (
                (1 - values)[rows & (gender == own)].mean() for own in ("feminine", "masculine")
            )
            y.append(for_her - for_him if measure.startswith("bias") else values[rows].mean())
            x.append(share[rows][0] / 100)
        fit = scipy.stats.linregress(x, y)
        expected = fit.slope if measure.endswith("slope") else fit.rvalue
        assert ours[run] == pytest.approx(expected, abs=1e-12)


def test_perfect_answers_have_no_bias_on_the_real_sentences(shared_data):
    """Winogender is balanced: the right answers are the same for every gender."""
    words = {"male": "masculine", "female": "feminine", "neutral": "neutral"}
    with open(shared_data / "winogender" / "all_sentences.tsv", encoding="utf-8") as lines:
        rows = [row["sentid"].split(".") for row in csv.DictReader(lines, delimiter="\t")]
    occupations = [row[0] for row in rows]
    genders = [words[row[3]] for row in rows]
    answers = np.array([[int(row[2]) for row in rows]])
    names, bias = occupation_bias(answers, occupations, genders)
    assert len(rows) == 720
    assert len(names) == 60
    assert np.abs(bias).max() == 0
    always_female = np.array([[0 if gender == "feminine" else 1 for gender in genders]])
    assert (occupation_bias(always_female, occupations, genders)[1] == 1).all()


def test_gotchas_by_hand():
    """The four cases of Rudinger et al.: she, then he; 48 % and 50 % women; occupation, participant."""
    genders = ["feminine"] * 4 + ["masculine"] * 4 + ["neutral"]
    share = [48.0, 48.0, 50.0, 50.0] * 2 + [48.0]
    answers = [0, 1] * 4 + [0]
    yes, no = "gotcha", "not gotcha"
    expected = [yes, no, no, yes, no, yes, yes, no, "neutral"]
    assert gotcha_column(genders, share, answers).tolist() == expected


def test_accuracy_is_cut_by_gender_and_gotcha(tmp_path):
    """Through the prediction file and the tables of `multiberts evaluate`."""
    genders = np.array(["feminine", "masculine", "neutral"] * 8)
    shares = np.repeat([20.0, 80.0], 12)
    occupations = np.repeat(["plumber", "nurse"], 12)
    answers = np.tile(np.repeat([0, 1], 6), 2)
    column = gotcha_column(genders, shares, answers)
    chosen = np.where(column == "gotcha", 1 - answers, answers)  # wrong on gotchas only
    probe = {
        "labels": answers, "predictions": chosen,
        "metrics": ["accuracy", "bias_correlation", "bias_slope"],
        "extras": {
            "occupation": occupations, "gender": genders, "percent_feminine": shares, "gotcha": column,
        },
    }  # fmt: skip
    write_run(tmp_path / "runs/a", {"winogender": probe}, task="coreference")
    score(run_dir=str(tmp_path / "scores"), predictions=str(tmp_path / "runs"))
    parts = pandas.read_csv(tmp_path / "scores/parts.csv")
    whole = parts[parts["label"].isna()].set_index(["by", "part"])["score"]
    assert whole["gotcha", "gotcha"] == 0.0
    assert whole["gotcha", "not gotcha"] == whole["gotcha", "neutral"] == 1.0
    assert whole["gender", "feminine"] == whole["gender", "masculine"] == 0.5
    assert whole["gender", "neutral"] == 1.0
    scores = pandas.read_csv(tmp_path / "scores/scores.csv").set_index("metric")["score"]
    assert scores["accuracy"] == pytest.approx(2 / 3)
    # She is never taken for the plumber and always for the nurse, he the other way round.
    assert scores["bias_correlation"] == pytest.approx(1.0)
    assert scores["bias_slope"] == pytest.approx(2.0 / 0.6)
