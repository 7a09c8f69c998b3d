"""Designs beyond two arms on one set: each against a plain loop over the draws it says it makes,
and the exact standard error against the samples."""

import math
from dataclasses import replace

import numpy as np
import pandas
import pytest
import scipy.stats
import sklearn.metrics
import xarray

from multiberts.runs.errors import UserError
from multiberts.stats import TaskData, compare, compare_arms, compare_tasks, read
from multiberts.stats.bootstrap.replicates import KeyedDraws
from multiberts.stats.errors import DataError
from multiberts.tests.stats.crossings import crossing_of_tables

NUM_BOOTSTRAP = 300
FEW = 40  # where a loop calls another library for each of the first
NUM_LOOPED = 6


def arm(skill=0.7, seeds=5, runs=2, num_examples=40, key=0, first_seed=0, continuous=False):
    random = np.random.default_rng([key, 5])
    labels = np.random.default_rng(9).integers(0, 2, num_examples)
    number = seeds * runs
    seed_effect = np.repeat(random.normal(scale=0.05, size=seeds), runs)[:, None]
    right = random.random((number, num_examples)) < skill + seed_effect
    predictions = np.where(right, labels, 1 - labels)
    if continuous:
        predictions = predictions + random.normal(scale=0.5, size=predictions.shape)
    return xarray.Dataset(
        {"prediction": (("run", "example"), predictions), "label": ("example", labels)},
        coords={
            "pretrain_seed": ("run", first_seed + np.repeat(np.arange(seeds), runs)),
            "finetune_seed": ("run", np.tile(np.arange(runs), seeds)),
            "example_id": ("example", [f"9/{n}" for n in range(num_examples)]),
        },
    )


@pytest.mark.parametrize(
    ("base", "experiment", "line"),
    [
        (range(30), range(5), "30 and 5 .* 5 in .* leave out 25; .*unpaired.*paired.*5 common"),
        (range(5), range(3, 8), "5 and 5 .* with 2 in .* leave out 6; .*the 2 common"),
        (range(5), range(4, 8), "with 1 in common.* leave out 7; .*nothing$"),
    ],
)
def test_seeds_are_paired_unasked_only_where_most_have_a_partner(base, experiment, line):
    """30 runs against 5 were five pairs, p = .27; Welch's p was .0065."""
    random = np.random.default_rng(0)
    frames = {
        name: pandas.DataFrame({"model": name, "seed": seeds, "auc": random.random(len(seeds))})
        for name, seeds in (("old", base), ("new", experiment))
    }
    scores = [frame["auc"] for frame in frames.values()]
    arms = read(pandas.concat(frames.values()), score="auc")
    tasks = {"t": TaskData(*arms.values())}
    for function, data in ((compare, arms), (compare_arms, arms), (compare_tasks, tasks)):
        with pytest.raises(DataError, match=line):
            function(data)
    common = [*{*base} & {*experiment}]
    welch = compare(arms, design="unpaired")
    expected = scipy.stats.ttest_ind(*reversed(scores), equal_var=False).statistic
    assert welch.estimate / welch.standard_error == pytest.approx(expected)
    if len(common) > 1:
        assert compare(arms, design="paired").base.seeds == tuple(common)


def test_seeds_that_are_held_fixed_need_no_partner():
    ten, one, six = (random_scores(number) for number in (10, 1, 6))
    for few in (one, six):
        fixed = compare(ten, few, resample="examples")
        assert fixed.design == "unpaired" and fixed.base.left_out == ()
        assert fixed.estimate == pytest.approx(few.values.mean() - ten.values.mean())
    told = compare(ten, six, resample="examples", design="paired")
    assert told.base.left_out == (6, 7, 8, 9)
    assert compare(ten, six).design == "paired"


def random_scores(seeds, num_examples=30):
    values = np.random.default_rng(seeds).random((seeds, num_examples))
    return xarray.DataArray(values, {"pretrain_seed": range(seeds)}, ("pretrain_seed", "example"))


def along(data, values):
    return pandas.Series(values, data["example_id"])


def score_of_seeds(data, score, seeds, examples):
    """Mean over drawn seeds of the mean over their runs, on drawn examples."""
    labels, predictions = data["label"].to_numpy(), data["prediction"].to_numpy()
    of_run = data["pretrain_seed"].to_numpy()
    of_seeds = [np.flatnonzero(of_run == seed) for seed in np.unique(of_run)[seeds]]
    return np.mean(
        [np.mean([score(labels[examples], predictions[run, examples]) for run in runs]) for runs in of_seeds]
    )  # fmt: skip


def accuracy(labels, predictions):
    return np.mean(labels == predictions)


def plain_loop(sides, score, pools, sets, rng=42, number=NUM_BOOTSTRAP):
    """Draws as `KeyedDraws` names them, scores one at a time.

    `sets`: for each side the name of its draw and the members of its units.
    """
    draws = KeyedDraws(rng)
    samples = []
    for _ in range(number):
        seeds_of, units_of, row = {}, {}, []
        for data, pool, (name, members) in zip(sides, pools, sets, strict=True):
            num_seeds = len(np.unique(data["pretrain_seed"]))
            if pool is None:
                seeds = np.arange(num_seeds)
            else:
                if pool not in seeds_of:
                    seeds_of[pool] = draws("seeds", pool, num_seeds)
                seeds = seeds_of[pool]
            if name not in units_of:
                units_of[name] = draws("examples", name, len(members))
            examples = np.concatenate([members[unit] for unit in units_of[name]])
            row.append(score_of_seeds(data, score, seeds, examples))
        samples.append(row)
    return np.array(samples)


def singles(data):
    return [[n] for n in range(data.sizes["example"])]


def agrees_with_exact_error(item):
    measured = item.differences.std(ddof=1)
    return abs(measured / item.bootstrap_standard_error - 1) < 4 / math.sqrt(2 * NUM_BOOTSTRAP)


def test_fixed_baseline_holds_the_base_and_shares_examples():
    base, experiment = arm(0.6, seeds=1, runs=3), arm(0.75, key=1, first_seed=10)
    item = compare(base, experiment, "accuracy", design="fixed_baseline", n_resamples=NUM_BOOTSTRAP)
    examples = (" examples", singles(base))
    expected = plain_loop((base, experiment), accuracy, (None, "seeds"), (examples, examples))
    np.testing.assert_allclose(item.samples, expected, atol=1e-12)
    assert agrees_with_exact_error(item)
    # The base is a constant of each example, so the difference is one table.
    right = [(side["prediction"] == side["label"]).to_numpy() for side in (base, experiment)]
    table = right[1].reshape(5, 2, -1).mean(axis=1) - right[0].mean(axis=0)
    assert item.bootstrap_standard_error == pytest.approx(
        np.sqrt(crossing_of_tables([table]).bootstrap_variance())
    )
    assert item.standard_error == pytest.approx(
        np.sqrt(crossing_of_tables([table]).unbiased_variance().variance)
    )
    assert (
        item.seed_floor == 1 / 32
        and item.p_values.get("sign flip") is None
        and item.hedges_g is None
    )


@pytest.mark.seconds
def test_clusters_are_drawn_whole():
    base, experiment = arm(0.6), arm(0.75, key=1)
    template = np.array([f"t{n}" for n in np.repeat(np.arange(9), [1, 2, 3, 4, 5, 6, 7, 8, 4])])
    members = [np.flatnonzero(template == name) for name in np.unique(template)]
    by_values = compare(base, experiment, "f1", clusters=along(base, template), n_resamples=FEW)
    f1 = sklearn.metrics.f1_score
    examples = (" examples", members)
    expected = plain_loop(
        (base, experiment), f1, ("seeds",) * 2, (examples,) * 2, number=NUM_LOOPED
    )
    np.testing.assert_allclose(by_values.samples[:NUM_LOOPED], expected, atol=1e-12)
    assert by_values.base.num_clusters == 9
    sides = [side.assign_coords(template=("example", template)) for side in (base, experiment)]
    by_name = compare(*sides, "f1", clusters="template", n_resamples=FEW)
    np.testing.assert_array_equal(by_name.samples, by_values.samples)
    # Sentences of a template that go wrong together: clusters must widen the error.
    together = base.isel(example=np.repeat(np.arange(10), 4))
    together = together.assign_coords(example_id=("example", np.arange(40)))
    options = {"resample": "examples", "n_resamples": NUM_BOOTSTRAP}
    alone = compare(together, None, "accuracy", design="single", **options)
    whole = compare(
        together, None, "accuracy", design="single", clusters=np.repeat(np.arange(10), 4),
        **options,
    )  # fmt: skip
    # Four copies of ten examples: 40 x 39 pairs of examples stand for 4 x 10 x 9.
    ratio = np.sqrt(40 * 39 / (4 * 10 * 9))
    assert whole.standard_error == pytest.approx(ratio * alone.standard_error)
    assert agrees_with_exact_error(whole)
    # Equal clusters: the same as examples that are the clusters' means.
    right = (together["prediction"] == together["label"]).to_numpy()
    table = right.reshape(5, 2, 10, 4).mean(axis=(1, 3))
    variance = crossing_of_tables([table], "examples").unbiased_variance().variance
    assert whole.standard_error == pytest.approx(np.sqrt(variance))


@pytest.mark.seconds
@pytest.mark.parametrize("metric", ["auc", "average_precision", "spearman"])
def test_ranks_take_clusters_and_equal_the_libraries(metric):
    base, experiment = (arm(skill, key=key, continuous=True) for key, skill in ((0, 0.6), (1, 0.8)))
    area = sklearn.metrics.roc_auc_score
    functions = {
        "auc": lambda labels, scores: area(labels, scores) if len(set(labels)) == 2 else 0.5,
        "average_precision": sklearn.metrics.average_precision_score,
        "spearman": lambda labels, scores: scipy.stats.spearmanr(labels, scores)[0],
    }
    codes = np.arange(40) // 2
    members = [np.flatnonzero(codes == code) for code in range(20)]
    item = compare(
        base["prediction"], experiment["prediction"], metric, labels=base["label"],
        clusters=along(base, codes),        n_resamples=FEW, rng=3,
    )  # fmt: skip
    sets = ((" examples", members),) * 2
    expected = plain_loop(
        (base, experiment), functions[metric], ("seeds", "seeds"), sets, rng=3, number=NUM_LOOPED
    )
    np.testing.assert_allclose(item.samples[:NUM_LOOPED], expected, atol=1e-10)


@pytest.mark.seconds
def test_missing_cells_leave_only_their_run():
    data = arm(0.7, continuous=True)
    holes = np.random.default_rng(4).random(data["prediction"].shape) < 0.2
    holes[:, 0] = True  # an example that nobody answered
    broken = data.assign(prediction=data["prediction"].where(~holes))
    with pytest.raises(UserError, match="found nan"):
        compare(broken, None, "mse", design="single")
    for metric, function in (
        ("mse", sklearn.metrics.mean_squared_error),
        ("pearson", lambda labels, values: scipy.stats.pearsonr(labels, values)[0]),
        ("spearman", lambda labels, values: scipy.stats.spearmanr(labels, values)[0]),
    ):
        number = NUM_BOOTSTRAP if metric == "mse" else FEW
        item = compare(broken, None, metric, design="single", missing="omit", n_resamples=number)
        scores = [
            function(data["label"].to_numpy()[~gone], values[~gone])
            for values, gone in zip(data["prediction"].to_numpy(), holes, strict=True)
        ]
        assert item.estimate == pytest.approx(np.mean(scores))

        def observed(labels, values, function=function):
            seen = ~np.isnan(values)
            return function(labels[seen], values[seen])

        examples = ((" examples", singles(data)),)
        expected = plain_loop((broken,), observed, ("seeds",), examples, number=NUM_LOOPED)
        np.testing.assert_allclose(item.samples[:NUM_LOOPED], expected, atol=1e-10)
        if metric == "mse":
            assert agrees_with_exact_error(item)


def test_runs_are_averaged_level_by_level():
    """A fine-tuning run with three checkpoints weighs no more than one with a single checkpoint."""
    random = np.random.default_rng(0)
    values = random.normal(size=(2, 2, 3, 7))  # seed, fine-tuning run, checkpoint, example
    values[0, 0, 1:] = np.nan
    values[1, 1] = np.nan
    grid = xarray.DataArray(
        values,
        dims=("pretrain_seed", "finetune_seed", "checkpoint", "example"),
        coords={"pretrain_seed": [4, 9]},
    )
    ids = {"example_id": ("example", list("gfedcba"))}  # which the arm has not: the order counts
    labels = xarray.DataArray(np.zeros(7), ids, "example")
    expected = [np.mean([values[0, 0, 0].mean(), values[0, 1].mean()]), values[1, 0].mean()]
    for order in (("checkpoint", "example"), ("example", "checkpoint")):
        given = grid.transpose("finetune_seed", *order, "pretrain_seed")
        item = compare(given, None, "mean", design="single", labels=labels, n_resamples=40)
        np.testing.assert_allclose(item.base.seed_scores, expected)
        assert item.estimate == pytest.approx(np.mean(expected)) and item.base.num_runs == 7
    assert item.p_value is item.p_values.get("sign flip") is item.experiment is None
    assert not item.below_seed_floor


def test_probabilities_come_from_the_logits_of_a_dataset():
    data = arm(0.7, num_examples=30)
    logits = np.random.default_rng(1).normal(size=(10, 30, 2))
    data = data.assign(scores=(("run", "example", "class"), logits))
    item = compare(data, None, "log_loss", design="single", n_resamples=40)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    expected = np.mean([sklearn.metrics.log_loss(data["label"], p) for p in probabilities])
    assert item.estimate == pytest.approx(expected)
    ranked = compare(data, None, "auc", design="single", n_resamples=40)
    areas = [sklearn.metrics.roc_auc_score(data["label"], row[:, 1] - row[:, 0]) for row in logits]
    assert ranked.estimate == pytest.approx(np.mean(areas))


def tasks_of(**options):
    return {
        name: TaskData(arm(0.6, key=key, **options), arm(0.75, key=key + 1, **options), metric)
        for name, key, metric in (("one", 0, "accuracy"), ("two", 10, "f1"))
    }


def test_tasks_share_their_seeds_and_each_equals_its_own_comparison():
    tasks = tasks_of()
    family = compare_tasks(tasks, n_resamples=NUM_BOOTSTRAP)
    average = family.macro_average
    estimates = [item.estimate for item in family.comparisons.values()]
    assert average.estimate == pytest.approx(np.mean(estimates))
    stacked = np.mean([item.differences for item in family.comparisons.values()], axis=0)
    np.testing.assert_allclose(average.differences, stacked)
    # Seeds of one replicate are the same in both tasks, examples are not.
    seeds_only = compare_tasks(tasks, resample="seeds", n_resamples=NUM_BOOTSTRAP)
    draws = KeyedDraws(42)
    for replicate in range(5):
        drawn = draws("seeds", "seeds", 5)
        for item in seeds_only.comparisons.values():
            scores = item.experiment.seed_scores - item.base.seed_scores
            assert item.differences[replicate] == pytest.approx(scores[drawn].mean())
    mean_of_seeds = np.mean(
        [i.experiment.seed_scores - i.base.seed_scores for i in seeds_only.comparisons.values()],
        axis=0,
    )
    assert seeds_only.macro_average.standard_error == pytest.approx(
        mean_of_seeds.std(ddof=1) / np.sqrt(5)
    )


def test_macro_average_of_one_task_twice_is_that_task():
    """Examples in common are drawn once, and residuals with them: doubling wins nothing."""
    task = tasks_of()["one"]
    twice = {
        name: TaskData(task.base, task.experiment, "accuracy", examples_of="set") for name in "ab"
    }
    family = compare_tasks(twice, n_resamples=NUM_BOOTSTRAP)
    average, one = family.macro_average, family.comparisons["a"]
    np.testing.assert_allclose(average.samples, one.samples)
    assert average.standard_error == pytest.approx(one.standard_error)
    assert average.df == pytest.approx(one.df)
    apart = compare_tasks(
        {name: TaskData(task.base, task.experiment, "accuracy") for name in "ab"}, n_resamples=100
    )
    assert apart.macro_average.bootstrap_standard_error < 0.9 * one.bootstrap_standard_error


@pytest.mark.parametrize("design", ["paired", "unpaired", "fixed_baseline", "single"])
def test_macro_average_has_the_exact_error_of_its_samples(design):
    tasks = tasks_of(runs=1)
    if design == "single":
        tasks = {name: TaskData(task.base, None, "accuracy") for name, task in tasks.items()}
    else:
        tasks = {name: TaskData(t.base, t.experiment, "accuracy") for name, t in tasks.items()}
    family = compare_tasks(tasks, design=design, n_resamples=NUM_BOOTSTRAP, rng=5)
    assert agrees_with_exact_error(family.macro_average)
    assert bool(family.adjusted) == (design != "single")


def test_as_many_tasks_as_there_are_have_corrected_p_values():
    """MMLU has 57: the t's p-value has no floor that replicates would have to reach."""
    labels, seeds = np.ones(40), np.arange(5)[:, None]
    right = np.arange(40) % 10 < 5 + (seeds + np.arange(40)) % 2
    others = [(right + (np.arange(40) + number) % 3) > 0 for number in range(57)]
    tasks = {f"task {n}": TaskData(right, own, "accuracy", labels) for n, own in enumerate(others)}
    family = compare_tasks(tasks, n_resamples=40)
    raw = np.array([item.p_value for item in family.comparisons.values()])
    np.testing.assert_allclose(family.adjusted["bonferroni"], np.minimum(1, 57 * raw))
    assert set(family.adjusted) == {"bonferroni", "holm", "bh", "by"}
    assert (family.adjusted["holm"] < 0.05).any()


def test_the_mean_leaves_out_seeds_that_a_task_lacks_and_names_them():
    tasks = tasks_of()
    tasks["three"] = TaskData(
        arm(0.6, seeds=3, first_seed=1), arm(0.7, seeds=3, first_seed=1, key=1), "accuracy"
    )
    family = compare_tasks(tasks, n_resamples=200)
    assert family.macro_average.base.seeds == (1, 2, 3)
    assert family.left_out["one"] == (0, 4)
    assert "three" not in family.left_out
    # A task's own result does not depend on other tasks.
    alone = compare(tasks["one"].base, tasks["one"].experiment, "accuracy", n_resamples=200)
    assert family.comparisons["one"].ci == alone.ci


def test_a_task_with_two_metrics_counts_as_their_mean():
    """As MRPC does in GLUE: its accuracy and F1 have a half each of the task's weight."""
    tasks = tasks_of()
    first, second = tasks.values()
    family = compare_tasks(
        {"one": replace(first, metric=("accuracy", "f1")), "two": second}, n_resamples=NUM_BOOTSTRAP
    )
    parts = [item.differences for item in family.comparisons.values()]
    assert [*family.comparisons] == ["one, accuracy", "one, F1", "two"]
    average = family.macro_average
    np.testing.assert_allclose(average.differences, np.array([0.25, 0.25, 0.5]) @ parts)
    assert agrees_with_exact_error(average) and average.tasks == ("one", "two")
    of_tasks = [family.comparisons[name].base.num_examples for name in ("one, F1", "two")]
    assert average.base.num_examples == sum(of_tasks)
