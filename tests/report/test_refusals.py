"""What questions about a comparison, and tables, refuse: each call with its line."""

import math
from functools import partial

import numpy as np
import pytest
import xarray

from multiberts import stats
from multiberts.report.presentation.table_writer import Table
from multiberts.stats.errors import DataError
from multiberts.tests.report.answers import test_one_seed as of_one_seed
from multiberts.tests.report.answers import test_slices as of_slices
from multiberts.tests.report.answers.test_published_number import RUNS, reproduce
from multiberts.tests.report.answers.test_sameness import answers, same

FEW = {"n_resamples": 40}
scores = of_one_seed.scores
CLASSES = [(scores(1, key=key) > -1).astype(int) for key in (0, 1)]
borrowed = partial(of_one_seed.one_seed, *CLASSES, "accuracy", labels=np.ones(200, int))


def sliced(values):
    return stats.slices(stats.compare(*of_slices.arms(), **FEW), values)


def same_by_matthews():
    arms = [table.astype(float) for table in answers((0.7, 0.7))]
    stats.same(stats.compare(*arms, "matthews", labels=np.arange(1000) % 2, **FEW), 1)


def with_seeds_left_out():
    runs = [
        xarray.DataArray(
            scores(2, key=first),
            {"pretrain_seed": [first, first + 1]},
            ("pretrain_seed", "example"),
        )
        for first in (0, 1)
    ]
    of_one_seed.one_seed(*runs, seed_sd=0.1, design="paired")


REFUSALS = [
    ("margin 50, .*accuracy .*is in points", lambda: same((0.7, 0.7), 50)),
    ("margin 1, .*matthews .*not in points", same_by_matthews),
    *(("margin .*above 0", partial(same, (0.7, 0.7), bad)) for bad in (0, -1, math.inf, "1")),
    ("margin in a single design", lambda: stats.same(stats.compare(scores(3), design="single", **FEW), 0.02)),
    *(
        ("found ndarray, expected a finished comparison", partial(ask, scores(3), 1))
        for ask in (stats.same, stats.slices, stats.one_seed)
    ),
    ("270 slices .*2 to 50", lambda: sliced([f"id {n}" for n in range(270)])),
    ("1 example of 270", lambda: sliced([np.nan, *range(269)])),
    ("no texts", lambda: sliced("length")),
    ("seed_sd 'often'", lambda: borrowed(seed_sd="often")),
    ("seed_sd -1", lambda: borrowed(seed_sd=-1)),
    ("1 degree of freedom", lambda: borrowed(seed_sd="1/0.5")),
    ("seed_sd 60, .*accuracy .*in points", lambda: borrowed(seed_sd=60)),
    ("borrowed spread", lambda: borrowed(seed_sd=1.5).comparison.plan()),
    (
        r"base has one seed \(0\) .*seed_sd",
        lambda: stats.compare(*CLASSES, "accuracy", labels=np.ones(200), resample="both", **FEW),
    ),
    (
        "resample='both', expected resample='examples'",
        lambda: stats.one_seed(stats.compare(scores(3), scores(3, key=1), **FEW), 0.1),
    ),
    (r"seed_sd with slices \(by\)", lambda: stats.slices(borrowed(seed_sd=1).comparison, np.ones(200, int))),
    ("pairing left out, .*design='unpaired'", with_seeds_left_out),
    (
        "more than one .*base 3 and experiment 3",
        lambda: of_one_seed.one_seed(scores(3), scores(3, key=1), seed_sd=0.1),
    ),
    ("one seed.*seed_sd", lambda: reproduce(RUNS[:1], published=0.85)),
    ("found of='worst'", lambda: reproduce(RUNS, published=0.8, of="worst")),
    ("found of='best:0'", lambda: reproduce(RUNS, published=0.8, of="best:0")),
    ("seed_sd, but 4 seeds", lambda: reproduce(RUNS, published=0.8, seed_sd=0.1)),
    ("found published nan", lambda: reproduce(RUNS, published=math.nan)),
    ("two arms, expected one", lambda: stats.reproduce(stats.compare(RUNS, RUNS, **FEW), 0.8)),
    ("same score for all 2", lambda: reproduce(RUNS[[0, 0]], published=0.8)),
    (
        "0 to 1 .*accuracy; .*0.874",
        lambda: reproduce(
            np.array([[0, 1, 1], [1, 1, 1]]), "accuracy", labels=np.ones(3, int), published=87.4
        ),
    ),
]  # fmt: skip
OF_TABLES = [
    ("row 1 has 1 cells, .*2", lambda: Table(("a", "b"), [(1, 2), (1,)])),
    ("same name", lambda: Table(("a", "a"), [])),
    ("expected columns: a", lambda: Table(("a",), [], {"b": ".2f"})),
]


@pytest.mark.parametrize(
    ("error", "line", "call"),
    [(DataError, *row) for row in REFUSALS] + [(ValueError, *row) for row in OF_TABLES],
)
def test_a_call_is_refused_in_one_line(error, line, call):
    with pytest.raises(error, match=line) as refused:
        call()
    assert "\n" not in str(refused.value)
