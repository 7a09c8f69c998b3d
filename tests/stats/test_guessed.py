"""Guessed names get a line, and the code in that line runs."""

import copy
import inspect
import pickle
import re
from typing import Any

import numpy as np
import pytest
import xarray

from multiberts import stats
from multiberts.stats.errors import DataError
from multiberts.stats.guessed import ATTRIBUTES, KEYWORDS, PUBLIC_NAMES, unknown_public_name

RANDOM = np.random.default_rng(0)
BASE, EXPERIMENT = ((RANDOM.random((5, 60)) < share).astype(float) for share in (0.6, 0.8))
RESULT = stats.compare(BASE, EXPERIMENT, n_resamples=100)
# What the code of a cure speaks of: the data, the result, and the value of each guessed keyword.
NAMES = {
    "stats": stats, "base": BASE, "experiment": EXPERIMENT, "result": RESULT, "scores": BASE,
    "alpha": 0.1, "level": 0.9, "confidence": 0.9, "ci": 0.9, "paired": False, "random_state": 3,
    "seed": 3, "n_boot": 200, "n_bootstrap": 200, "B": 200, "cluster": np.arange(60) // 2,
    "groups": np.arange(60) // 2, "y_true": np.ones(60), "statistic": "accuracy", "power": 0.9,
    "p_values": [0.01, 0.2],
    "margin": 10, "by": np.arange(60) % 2, "seed_sd": 2, "base_name": "old", "experiment_name": "new",
    "names": ("old", "new"), "name": "new against old", "evaluation_set": "dev",
    "data": {"seed": [0, 0, 1, 1], "id": [0, 1, 0, 1], "score": [0, 1, 1, 1]},
}  # fmt: skip


def rows(table):
    return list(table.items())


def carried_out(code, **names):
    return [eval(part, {**NAMES, **names}) for part in code.split(" or ")]


@pytest.mark.parametrize(("guess", "code"), rows(KEYWORDS))
def test_a_guessed_keyword_is_told_what_to_write(guess, code):
    of_plan = guess == "power"
    call = "result.plan({})" if of_plan else "stats.compare(base, experiment, {})"
    with pytest.raises(DataError, match=re.escape(f"no keyword {guess}; write {code}")) as error:
        eval(call.format(f"{guess}={guess}"), {**NAMES, "alternative": "greater"})
    assert isinstance(error.value, TypeError)
    if not code.partition("=")[0].isidentifier():
        one_seed = {"base": BASE[:1], "experiment": EXPERIMENT[:1]} if guess == "seed_sd" else {}
        assert None not in carried_out(code, **one_seed)
        return
    if guess in ("y_true", "statistic"):
        call = "stats.compare(base, experiment, metric='accuracy', labels=y_true)"
        call = call.replace("labels=y_true" if guess == "y_true" else "metric='accuracy'", code)
    found = eval(call.format(code), NAMES)
    assert isinstance(found, stats.Plan if of_plan else stats.Comparison)


@pytest.mark.parametrize(("guess", "code"), rows(ATTRIBUTES))
def test_a_guessed_attribute_is_told_what_to_write(guess, code):
    with pytest.raises(AttributeError, match=re.escape(f"no attribute {guess}; write {code}")):
        getattr(RESULT, guess)
    carried_out(code)


@pytest.mark.parametrize(("guess", "code"), rows(PUBLIC_NAMES))
def test_a_guessed_public_name_is_told_what_to_write(guess, code):
    assert unknown_public_name(guess, stats.__all__).endswith(f"no attribute {guess}; write {code}")
    variables = {"prediction": (("run", "example"), BASE), "label": ("example", np.ones(60))}
    data = xarray.Dataset(variables) if guess == "runs_from_dataset" else NAMES["data"]
    assert eval(code, {**NAMES, "data": data}) is not None


def test_a_plan_takes_seeds_and_examples_by_these_names_too():
    names: dict[str, Any] = {"seeds": 10, "examples": 200}
    plan = RESULT.plan(**names)
    assert (plan.num_seeds, plan.num_examples) == (10, 200)
    assert plan == RESULT.plan(num_seeds=10, num_examples=200) and plan.at(**names) == plan
    assert stats.same(RESULT, 10).plan(**names).num_seeds == 10
    with pytest.raises(DataError, match="plan has no keyword seeds"):
        RESULT.plan(num_seeds=10, **names)


def test_other_names_get_the_nearest_one():
    for function, name, line in (
        (stats.compare, "label", "compare has no keyword label; did you mean labels"),
        (RESULT.plan, "alpha", "plan has no keyword alpha; expected one of num_seeds, .*sides"),
    ):
        with pytest.raises(DataError, match=line):
            function(**{name: 0.1})
    many = stats.compare_arms({"a": BASE, "b": EXPERIMENT}, n_resamples=100)
    for owner, name, line in (
        (RESULT, "estimat", "Comparison has no attribute estimat; did you mean estimate?"),
        (many, "pvalue", r"no attribute pvalue; result.to_frame\(\) has every number"),
        (stats.b3, "search", r"stats.b3 has no attribute search; dir\(stats.b3\) lists"),
        (stats, "compar", "stats has no attribute compar; did you mean compare"),
        (stats, "decompose", "write stats.zhong.decompose"),
        (stats, "binomial_matrix", "write stats.b3.binomial_matrix"),
    ):
        with pytest.raises(AttributeError, match=line):
            getattr(owner, name)


def test_functions_and_results_are_what_they_were():
    assert list(inspect.signature(stats.compare).parameters)[:3] == ["base", "experiment", "metric"]
    assert pickle.loads(pickle.dumps(stats.compare)) is stats.compare
    assert pickle.loads(pickle.dumps(RESULT)) == copy.deepcopy(RESULT) == RESULT
    assert not hasattr(RESULT, "pvalue") and not hasattr(RESULT, "_ipython_display_")
