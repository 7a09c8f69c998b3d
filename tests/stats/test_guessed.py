"""Guessed names get a line, and the code in that line runs."""

import copy
import inspect
import pickle
import re

import numpy as np
import pytest

from multiberts import stats
from multiberts.launch.plan.experiment import Experiment
from multiberts.runs.command_line.commands import COMMANDS, load
from multiberts.runs.errors import GUESSES, nearest
from multiberts.stats.errors import DataError

RANDOM = np.random.default_rng(0)
BASE, EXPERIMENT = ((RANDOM.random((5, 60)) < share).astype(float) for share in (0.6, 0.8))
RESULT = stats.compare(BASE, EXPERIMENT, n_resamples=100)
# What the code of a cure speaks of: the data, and the value of each guessed keyword.
NAMES = {
    "stats": stats, "result": RESULT, "base": BASE, "experiment": EXPERIMENT, "alpha": 0.1, "ci": 0.9,
    "seed": 3, "random_state": 3, "n_boot": 200, "groups": np.arange(60) // 2, "y_true": np.ones(60),
    "statistic": "accuracy",
}  # fmt: skip
KEYWORDS = inspect.signature(stats.compare).parameters
LABELLED = {"metric": "accuracy", "labels": np.ones(60), "n_resamples": 100}
FLAGS = [
    {*inspect.signature(function).parameters}
    for function in [Experiment, *(load(each.target) for each in COMMANDS.values())]
]


@pytest.mark.parametrize("guess", GUESSES)
def test_a_guess_is_told_what_to_write(guess):
    for meant in GUESSES[guess].split(" or "):
        name = re.split(r"\W", meant)[0]
        line = re.escape(f"{guess}; did you mean {meant}?")
        if name in KEYWORDS:
            with pytest.raises(DataError, match=f"compare has no keyword {line}") as error:
                stats.compare(BASE, EXPERIMENT, **{guess: 0})
            assert isinstance(error.value, TypeError)
            code = meant if "=" in meant else f"{meant}={guess}"
            stats.compare(BASE, EXPERIMENT, **LABELLED | eval(f"dict({code})", NAMES))
        elif name in [*dir(RESULT), *stats.__all__]:
            owner = "stats" if name in stats.__all__ else "result"
            with pytest.raises(AttributeError, match=f"no attribute {line}"):
                eval(f"{owner}.{guess}", NAMES)
            assert eval(f"{owner}.{meant}", NAMES) is not None
        else:
            cures = [nearest(guess, flags) for flags in FLAGS if name in flags]
            assert f"did you mean {meant}?" in cures


def test_other_names_get_the_nearest_one():
    with pytest.raises(DataError, match="compare has no keyword label; did you mean labels"):
        stats.compare(BASE, EXPERIMENT, **{"label": 0.1})
    many = stats.compare_arms({"a": BASE, "b": EXPERIMENT}, n_resamples=100)
    for owner, name, line in (
        (RESULT, "estimat", "Comparison has no attribute estimat; did you mean estimate?"),
        (many, "pvalue", r"no attribute pvalue; to_dict\(\) has every number"),
        (stats.b3, "search", r"stats.b3 has no attribute search; dir\(stats.b3\) lists"),
        (stats, "compar", "stats has no attribute compar; did you mean compare"),
        (stats, "decompose", "did you mean zhong.decompose"),
    ):
        with pytest.raises(AttributeError, match=line):
            getattr(owner, name)


def test_functions_and_results_are_what_they_were():
    assert list(inspect.signature(stats.compare).parameters)[:3] == ["base", "experiment", "metric"]
    assert pickle.loads(pickle.dumps(stats.compare)) is stats.compare
    assert pickle.loads(pickle.dumps(RESULT)) == copy.deepcopy(RESULT) == RESULT
    assert not hasattr(RESULT, "pvalue") and not hasattr(RESULT, "_ipython_display_")
