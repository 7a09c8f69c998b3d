"""What the statistics refuse: each call with its one line."""

import dataclasses
import warnings
from functools import partial

import numpy as np
import pandas
import pytest
import scipy.sparse
import xarray

from multiberts.papers.zhong.ensembles import aligned, as_runs
from multiberts.stats import (
    TaskData,
    compare,
    compare_arms,
    compare_tasks,
    multibootstrap,
    read,
    report_ci,
    same,
    seed_sources,
)
from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import make_runs
from multiberts.stats.significance import adjusted_p_values
from multiberts.stats.variance.components import (
    VarianceComponents,
    nested_variance_components,
    variance_components,
)
from multiberts.stats.variance.score_tables import ScoreTable, clustered_table, deviations
from multiberts.tests.stats.bootstrap.test_published import example_data
from multiberts.tests.stats.compare import test_checks as checks
from multiberts.tests.stats.compare.test_arms import SIX
from multiberts.tests.stats.compare.test_designs import along, arm, tasks_of
from multiberts.tests.stats.crossings import crossing_of_tables
from multiberts.tests.stats.test_reading import BASE, BY_ID, EXPERIMENT, IDS, LABELS, long, with_ids

NAN = float("nan")


def open_file():
    with open(__file__, encoding="utf-8") as file:
        compare(file, file)


def with_value(values, place, value, dtype=float):
    """The same values, but for one."""
    copy = np.array(values, dtype)
    copy[place] = value
    return copy


# Forms of data: arrays, frames and what is joined by ids.
by_ids = partial(compare, with_ids(BASE), with_ids(EXPERIMENT), "accuracy")
by_place = partial(compare, BASE, EXPERIMENT, "accuracy", labels=LABELS)
ranking = partial(compare_arms, {"old": BASE, "new": EXPERIMENT}, "accuracy", labels=LABELS)
SHORT = BY_ID[:-2]
TEXTS = [values.astype(str).astype(object) for values in (BASE, EXPERIMENT)]
FRAME = long(BASE)
TWICE = pandas.concat([FRAME, FRAME[(FRAME.seed == 0) & (FRAME.example == "id 1")]])
DAYS = [0.5] * len(FRAME) + [1.5] * (len(TWICE) - len(FRAME))
THREE = pandas.concat([long(BASE, name) for name in "abc"])
TWO_SPELLINGS = FRAME.assign(seed=["2" if seed == 3 else seed for seed in FRAME["seed"]])
OF_DATA = [
    ("labels: 2 of 30 .*'id 28'", lambda: by_ids(labels=SHORT)),
    ("1 are .*'id 99'", lambda: by_ids(labels=pandas.Series([*LABELS, 1], [*IDS, "id 99"]))),
    ("example id appears twice", lambda: by_ids(labels=pandas.Series([*LABELS, 1], [*IDS, "id 3"]))),
    ("clusters: 2 of 30", lambda: by_ids(labels=BY_ID, clusters=SHORT)),
    ("base has example ids .*experiment", lambda: compare(with_ids(BASE), EXPERIMENT, "mean")),
    (r"dims \('x',\), .*\(example,\)", lambda: by_ids(labels=xarray.DataArray(LABELS, dims="x"))),
    ("3 arms .a, b, c.", lambda: compare(THREE, metric="accuracy")),
    ("experiment: found 3 arms", lambda: compare(BASE, THREE, metric="accuracy")),
    ("missing.csv does not exist", lambda: compare("missing.csv", "other.csv")),
    (
        "base: found no column .*score='COLUMN' .*stats.read",
        lambda: compare(FRAME.drop(columns="prediction"), BASE),
    ),
    ("base: .*no runs or no examples", lambda: compare(np.ones((0, 4)), np.ones((3, 4)))),
    ("base: .*no runs or no examples", lambda: compare(np.ones((3, 0)), np.ones((3, 4)))),
    ("labels .*numbers .*predictions .*texts", lambda: compare(*TEXTS, "accuracy", labels=LABELS)),
    (
        "base predictions: .*mixed",
        lambda: compare(with_value(BASE, (0, 0), "1", object), EXPERIMENT, "accuracy", labels=LABELS),
    ),
    ("labels: found nan", lambda: by_place(labels=np.where(LABELS == 1, np.nan, LABELS))),
    ("clusters: .*mixed", lambda: by_place(clusters=["a"] * 15 + [1] * 15)),
    ("missing 'drop', .*refuse, omit", lambda: by_place(missing="drop")),
    ("30 seeds x 4 examples", lambda: compare(BASE.T, EXPERIMENT.T)),
    (r"labels of shape \(29,\) for 30 examples", lambda: by_place(labels=LABELS[:-1])),
    ("rows of different lengths", lambda: compare([[1, 2], [1]], BASE)),
    ("found int", lambda: compare(3, BASE)),
    *(
        (f"found {said}, expected an xarray", partial(compare, data, data))
        for said, data in (
            ("list of object", [object()] * 2), ("set", {1, 2}), ("generator", (n for n in "ab")),
            ("ndarray of complex128", BASE * 1j), ("csr_array", scipy.sparse.csr_array(BASE)),
            ("bytes", b"0"), ("dict_values", {}.values()), ("function", compare),
            (r"ndarray of datetime64.D.", BASE.astype("M8[D]")),
        )
    ),
    (f"found TextIOWrapper.* give its path, '.*{__name__.split('.')[-1]}", open_file),
    ("labels: found set, expected one value per example", lambda: by_place(labels={1, 2})),
    ("clusters: found an array of shape", lambda: by_place(clusters=BASE)),
    ("levels a, b, none of seeds; .*rename_axis", lambda: compare(
        pandas.Series([0.1], pandas.MultiIndex.from_tuples([(0, 1)], names=["a", "b"])), BASE)),
    *(
        (rf"found {kind} as a condition.*ask result\.{where}p_value or", lambda make=make: bool(make()))
        for kind, where, make in (
            ("Comparison", "", by_place), ("ArmComparisons", r"differences\[0\]\.", ranking),
            ("Sameness", r"comparison\.", lambda: same(by_place(), 0.1)),
            ("TaskComparisons", r"macro_average\.", lambda: compare_tasks({"a": TaskData(BASE, EXPERIMENT)})),
        )
    ),
    (r"result\.plot\(\)\.savefig\('f\.png'\)", lambda: by_place().plot("f.png")),
    (r"result\.plot\(\)\.savefig", lambda: ranking().plot("f.png")),
    (
        r"seeds as columns.*frame\.T",
        lambda: compare(pandas.DataFrame(BASE.T, columns=pandas.Index(range(4), name="seed")), BASE),
    ),
    ("found the variables x", lambda: compare(xarray.Dataset({"x": ("example", LABELS)}), BASE)),
    ("no column 'guess' for score, only 'arm', 'seed'", lambda: read(FRAME, score="guess")),
    (
        "prediction='prediction' and score='label', .*one of",
        lambda: read(FRAME, score="label", prediction="prediction"),
    ),
    ("rows of seed 0, .*'id 1'; .*ids are repeated", lambda: read(TWICE)),
    ("'id 1'; .*ids are repeated", lambda: read(TWICE.assign(day=[0.5] * len(TWICE)))),
    ("'id 1'; .*'day' .*run='day' if .*, or arm='day'", lambda: read(TWICE.assign(day=DAYS))),
    ("column 'label': .*several values", lambda: read(FRAME.assign(label=[2, *FRAME["label"][1:]]))),
    ("column 'seed': .*1 row", lambda: read(FRAME.assign(seed=[NAN, *FRAME["seed"][1:]]))),
    ("no keyword exampel; did you mean example", lambda: read(FRAME, exampel="id")),
    ("found ndarray, expected a path or a table", lambda: read(BASE)),
    ("names no task; leave task out", lambda: read(FRAME, task="MNLI")),
    ("names no task; leave task out", lambda: read({"scores": BASE}, task="MNLI")),
    (
        "data: found the seeds .*2.* and .*2.*, .* same number",
        lambda: read(TWO_SPELLINGS.drop(columns="arm")),
    ),
    (
        "predictions of base .*scores of experiment",
        lambda: compare(
            checks.dataset(checks.answers(0.7)),
            checks.dataset(checks.answers(0.9) == checks.LABELS, "score"),
            "mean",
        ),
    ),
    *(
        (
            f"{side}label 0, .*prediction {shown}",
            partial(compare, base, new, "accuracy", labels=checks.LABELS),
        )
        for one, shown in ((1, "2"), (1.0, "2.0"))
        for side, base, new in (
            ("", checks.answers(0.7) + one, checks.answers(0.8) + one),
            ("experiment: .*", checks.answers(0.7), checks.answers(0.8) + one),
        )
    ),
    ("all 40 labels are -1", lambda: compare(checks.answers(0.7), None, "accuracy", labels=np.full(40, -1))),
    (
        "labels 'no', 'yes', .* predictions 'no.', 'yes.'",
        lambda: compare(
            *[np.char.add(checks.WORDS[checks.answers(0.8)], ".") for _ in range(2)],
            "accuracy",
            labels=checks.WORDS,
        ),
    ),
]  # fmt: skip

# Arms, designs and tasks.
arms = partial(compare, arm(), arm(key=1), "accuracy")
OTHER_LABELS = arm(key=1).assign(label=1 - arm()["label"])
INFINITE = arm().assign(prediction=(("run", "example"), np.full((10, 40), np.inf)))
EMPTY_RUN = arm().assign(
    prediction=(("run", "example"), with_value(arm()["prediction"], 3, np.nan))
)
NEVER_SHARED = TaskData(arm(first_seed=50), arm(first_seed=50, key=1), "accuracy")
SHORTER = TaskData(arm(), arm(key=1).isel(example=slice(5)), "accuracy")
ONES = np.ones((2, 30))


def without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(np.ones((3, 1)), np.zeros((3, 1)), resample="both")


def of_unlike_lengths():
    one, two = (
        TaskData(each, None, "accuracy", examples_of="dev")
        for each in (arm(), arm(num_examples=12))
    )
    compare_tasks({"one": one, "two": two}, design="single", n_resamples=200)


OF_DESIGNS = [
    ("base has 40 .*39, 1 of", lambda: compare(arm(), arm(key=1).isel(example=slice(1, None)))),
    ("different labels .*'9/0'", lambda: compare(arm(), OTHER_LABELS, "accuracy")),
    ("none in common", lambda: compare(arm(), arm(key=1, first_seed=10), "accuracy")),
    ("found design 'pair'", lambda: arms(design="pair")),
    ("single design", lambda: arms(design="single")),
    (
        "'9/3' appears twice",
        lambda: compare(arm().isel(example=[3, 3, 5]), None, "accuracy", design="single"),
    ),
    (
        "found no coordinate pretrain_seed",
        lambda: compare(arm().drop_vars("pretrain_seed"), None, "accuracy", design="single"),
    ),
    (r"inf at \(0, 0\)", lambda: compare(INFINITE, None, "accuracy", design="single")),
    ("'accuray'; did you mean accuracy", lambda: compare(arm(), arm(key=1), "accuray")),
    ("no coordinate 'template'", lambda: arms(clusters="template")),
    ("all examples are in", lambda: arms(clusters=along(arm(), np.zeros(40)))),
    ("each of 40 examples", lambda: arms(clusters=np.zeros(39))),
    (
        "has one seed.*fixed_baseline",
        lambda: compare(arm(seeds=1), arm(key=1), "accuracy", design="unpaired"),
    ),
    ("one example.*resample='seeds'", without_warnings),
    ("auc needs the scores", lambda: compare(arm(), arm(key=1), "auc")),
    ("found metric 3", lambda: compare(arm(), arm(key=1), 3)),
    ("run 3 has no prediction", lambda: compare(EMPTY_RUN, None, "mean", design="single", missing="omit")),
    ("task 'bad': .*40 examples .*5", lambda: compare_tasks({**tasks_of(), "bad": SHORTER}, n_resamples=200)),
    ("no seed .*in common", lambda: compare_tasks({**tasks_of(), "far": NEVER_SHARED}, n_resamples=200)),
    ("examples_of .*40 and 12", of_unlike_lengths),
    ("n_resamples 19, .*39", lambda: compare_tasks(tasks_of(), n_resamples=19)),
    ("n_resamples 1000000000000, .*at most 1,000,000", lambda: compare_tasks(tasks_of(), n_resamples=10**12)),
    ("has one seed.*resample='examples'", lambda: compare(*np.ones((2, 30)), resample="both")),
    (
        "has one example.*resample='seeds' and no seed_sd if these",
        lambda: compare(np.ones((3, 1)), np.ones((3, 1)), resample="both"),
    ),
    (
        "base has one seed .*to pair",
        lambda: compare(
            {"a": ONES[0], "b": ONES[1]}, {"a": ONES[0], "c": ONES[1]}, design="paired"
        ),
    ),
    (
        "Matthews' .*of broken",
        lambda: compare_arms({"old": BASE, "broken": 0 * BASE}, "matthews", labels=LABELS),
    ),
    (
        "precision of experiment",
        lambda: compare_tasks({"t": TaskData(BASE, 0 * BASE, "precision", LABELS)}, n_resamples=40),
    ),
    *(
        (f"found {name} .*expected", partial(compare, BASE, EXPERIMENT, **{name: value}))
        for name, values in {
            "n_resamples": (38, 100.5, "100", True), "rng": (-1, 1.5),
            "confidence_level": (95, "95", np.nan), "missing": ("drop",), "resample": ("seed",),
        }.items()
        for value in values
    ),
]  # fmt: skip

A = SIX["a"]
ranked = partial(compare_arms, design="unpaired", n_resamples=50)
by_seed, seven_on = (
    pandas.DataFrame(A, pandas.Index(range(n, n + 5), name="seed")) for n in (0, 7)
)
OF_ARMS = [
    ("found 1 arm .a.", lambda: ranked({"a": A})),
    ("no arm 'x' .*a, b, c, d, e, f", lambda: ranked(SIX, against="x")),
    ("design 'single', .*unpaired, paired", lambda: ranked(SIX, design="single")),
    ("found list", lambda: ranked([A, A])),
    ("DataFrame of columns model", lambda: ranked(pandas.DataFrame({"model": [1]}))),
    ("b has one seed .0.", lambda: ranked({"a": A, "b": A[:1]})),
    ("b .experiment. against a .base.: .*200 examples", lambda: ranked({"a": A, "b": A[:, :9]})),
    ("no seed .*a, b", lambda: ranked({"a": by_seed, "b": seven_on}, design="paired")),
    ("rows 'pairs'", lambda: ranked(SIX).to_frame("pairs")),
]

# The published functions.
RUNS, ANSWERS, GOLD = example_data()
published = partial(multibootstrap, score_fn="accuracy", verbose=False)
OF_THE_PUBLISHED = [
    ("axes are swapped", lambda: published(RUNS, ANSWERS.T, GOLD)),
    ("12 runs x 22 examples", lambda: published(RUNS, ANSWERS, GOLD[1:])),
    (r"found nan at \(2, 4\)", lambda: published(RUNS, with_value(ANSWERS, (2, 4), NAN), GOLD)),
    ("lacks the column 'intervention'", lambda: published(RUNS[["seed"]], ANSWERS, GOLD)),
    ("no row of .*intervention", lambda: published(RUNS.assign(intervention=False), ANSWERS, GOLD)),
    (
        "none in common",
        lambda: published(
            RUNS.assign(seed=RUNS["seed"] + 100 * RUNS["intervention"]),
            ANSWERS,
            GOLD,
            paired_seeds=True,
        ),
    ),
]

# Metrics and the published summary are of numbers alone, and raise `ValueError`.
OF_NUMBERS = [
    ("accuracy .*fraction 0.3", lambda: compare(0.3 * BASE, EXPERIMENT, "accuracy", labels=LABELS)),
    ("two classes 0 and 1", lambda: multibootstrap(RUNS, ANSWERS + 1, GOLD + 1, "f1", nboot=2)),
    (r"expected \[replicates, 2\]", lambda: report_ci([0.1, 0.2])),
    ("between 0 and 1", lambda: report_ci(np.zeros((5, 2)), c=95)),
]  # fmt: skip

# Tables of runs, variances and plans.
PARTS = VarianceComponents(0.01, 0.1, 0.05)
SEEDS_ONLY = VarianceComponents(1.0, 0.0, 0.0)
PLAN = PARTS.plan(5, num_examples=100)
HOLE = with_value(np.ones((3, 5)), (1, 2), NAN)
ABC = make_runs([[0, 1, 1]], [0], example_ids=["a", "b", "c"])
WITHOUT_IDS = make_runs([[0, 1, 1]], [0])
SHORT_BLOCKS = ScoreTable((2, 5), lambda: iter([np.zeros((2, 4))]))
CROSSED = {"a": [0, 1, 2] * 3, "b": [0, 0, 0, 1, 1, 1, 2, 2, 2]}
OF_VARIANCES = [
    (r"nan at \(0, 2\), run \(0, 0\)", lambda: as_runs(with_value(np.ones((3, 2, 4)), (0, 0, 2), NAN))),
    ("such as 'b'", lambda: aligned(ABC, make_runs([[5, 6, 7]], [0], example_ids=["c", "a", "x"]))),
    ("set 1 .*3 .*set 2 2", lambda: aligned(ABC, make_runs([[5, 6]], [0], example_ids=["a", "b"]))),
    ("set 2 has .*set 1", lambda: aligned(WITHOUT_IDS, ABC)),
    ("set 1 has .*set 2", lambda: aligned(ABC, WITHOUT_IDS)),
    ("set 1 has .*set 3", lambda: aligned(ABC, ABC, WITHOUT_IDS)),
    ("1 keys", lambda: make_runs([[1, 0], [0, 1]], [0])),
    ("two runs", lambda: make_runs([[1, 0], [0, 1]], [(0, 0), (0, 0)])),
    (r"\[1, 2\] parts", lambda: make_runs([[1, 0], [0, 1]], [(0, 0), (1,)])),
    (r"expected \[runs, examples\]", lambda: make_runs([1, 0], [0, 1])),
    ("expected numbers", lambda: make_runs([["x"]], [0])),
    *(
        ("numbers from 0 to 1", partial(adjusted_p_values, wrong, "bh"))
        for wrong in ([0.1, 1.2], [NAN], [-0.1])
    ),
    ("method 'fdr', .*bonferroni", lambda: adjusted_p_values([0.1], "fdr")),
    ("blocks of 4 examples .*5", lambda: deviations(SHORT_BLOCKS)),
    ("each of 4 examples", lambda: clustered_table(np.zeros((2, 4)), [0, 1, 1])),
    ("found one cluster", lambda: clustered_table(np.zeros((2, 4)), ["a"] * 4)),
    ("one seed", lambda: crossing_of_tables([np.ones((1, 4))]).unbiased_variance()),
    ("one example", lambda: crossing_of_tables([np.ones((4, 1))]).unbiased_variance()),
    (r"\[seeds, examples\]", lambda: crossing_of_tables([np.ones(4)]).bootstrap_variance()),
    (
        "expected the same",
        lambda: crossing_of_tables([np.ones((2, 3)), np.ones((2, 4))]).bootstrap_variance(),
    ),
    ("1 seed and 4 examples", lambda: variance_components(np.ones((1, 4)))),
    ("found one run per seed", lambda: nested_variance_components([np.zeros((1, 4))] * 2)),
    ("with the same examples", lambda: nested_variance_components([np.zeros((2, 4)), np.zeros((2, 5))])),
    ("NaN", lambda: variance_components(HOLE)),
    ("NaN", lambda: nested_variance_components([HOLE, np.ones((2, 5))])),
    *(
        (f"found {name} .*whole number", partial(PARTS.plan, **{"num_seeds": 5} | {name: wrong}))
        for name, wrongs in {
            "num_seeds": (NAN, 2.5, np.inf), "num_runs": (0,), "num_examples": (-5, NAN)
        }.items()
        for wrong in wrongs
    ),
    ("found component seed nan", lambda: VarianceComponents(NAN, 0.1, 0.1)),
    ("component seed -0.01", lambda: VarianceComponents(-0.01, 0.1, 0.1).plan(5)),
    ("nan", lambda: PLAN.power(NAN)),
    ("nan", lambda: PLAN.seeds_needed(NAN)),
    ("nan", lambda: dataclasses.replace(PLAN, target_power=NAN)),
    ("nan", lambda: PLAN.power_curve([0.1], [NAN])),
    ("no effect to plan for", lambda: PLAN.seeds_needed()),
    ("paired, unpaired, fixed_baseline, single", lambda: PARTS.plan(5, design="nested")),
    ("found 1 seed", lambda: SEEDS_ONLY.plan(1).power(0.1)),
    ("alpha 5 and 2 sides", lambda: SEEDS_ONLY.plan(5, alpha=5).power(0.1)),
    ("a power between alpha", lambda: PARTS.plan(5, target_power=0.01)),
    ("the test can find", lambda: SEEDS_ONLY.plan(2, sides=1).seeds_needed(0.0)),
    ("the test can find", lambda: SEEDS_ONLY.plan(2, sides=1).seeds_needed(-0.4)),
    ("draws no examples", lambda: SEEDS_ONLY.plan(5).examples_needed(0.1)),
    ("2 seeds of a source", lambda: seed_sources([1, 2, 3, 4], {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]})),
    ("the same seeds", lambda: seed_sources([1, 2, 3], {"a": [0, 1, 1], "b": [0, 1, 1]})),
    ("score 1 in all 9", lambda: seed_sources([1] * 9, CROSSED)),
    ("one source of randomness, a", lambda: seed_sources([1, 2, 3], {"a": [0, 1, 2]})),
    (
        "neither cross .*a, b nor vary",
        lambda: seed_sources(
            [*range(9)], {"a": [0, 0, 0, 1, 1, 1, 2, 2, 3], "b": [0, 1, 2, 0, 1, 2, 0, 1, 2]}
        ),
    ),
    ("expected a finite score", lambda: seed_sources([1.0, NAN, 2.0], {"a": [0, 1, 2]})),
]  # fmt: skip


ALL = OF_DATA + OF_DESIGNS + OF_ARMS + OF_THE_PUBLISHED + OF_VARIANCES


@pytest.mark.parametrize(
    ("error", "line", "call"),
    [(DataError, *row) for row in ALL] + [(ValueError, *row) for row in OF_NUMBERS],
)
def test_a_call_is_refused_in_one_line(error, line, call):
    with pytest.raises(error, match=line) as refused:
        call()
    assert "\n" not in str(refused.value)
