"""What `compare` takes: the same numbers from every form, put in order by coordinates."""

import itertools
import json
from types import SimpleNamespace as Table

import numpy as np
import pandas
import pytest
import scipy.stats
import sklearn.metrics
import xarray

from multiberts.report.compare_command import compare_files
from multiberts.runs.errors import UserError
from multiberts.stats import TaskData, compare, compare_arms, compare_tasks, read, reproduce
from multiberts.stats.errors import DataError
from multiberts.stats.reading import opened

SEEDS, EXAMPLES = 4, 30
LABELS = np.random.default_rng(0).integers(0, 2, EXAMPLES)
IDS = [f"id {place}" for place in range(EXAMPLES)]
BY_ID = pandas.Series(LABELS, IDS)
OPTIONS = {"n_resamples": 50}


def predictions(skill, key, runs=None):
    random = np.random.default_rng([key, 1])
    shape = (SEEDS, EXAMPLES) if runs is None else (SEEDS, runs, EXAMPLES)
    return np.where(random.random(shape) < skill, LABELS, 1 - LABELS)


BASE, EXPERIMENT = predictions(0.6, 0), predictions(0.8, 1)


def with_ids(values, order=slice(None)):
    return xarray.DataArray(
        values[:, order],
        {"pretrain_seed": range(SEEDS), "example_id": ("example", np.array(IDS)[order])},
        ("pretrain_seed", "example"),
    )


def long(values, arm="", runs=1):
    rows = [
        (arm, seed, run, IDS[place], values.reshape(SEEDS, runs, EXAMPLES)[seed, run, place],
         LABELS[place], f"t{place // 3}")
        for seed, run, place in itertools.product(range(SEEDS), range(runs), range(EXAMPLES))
    ]  # fmt: skip
    frame = pandas.DataFrame(
        rows, columns=["arm", "seed", "run", "example", "prediction", "label", "template"]
    )
    return frame.sample(frac=1, random_state=3)


def same(one, other):
    np.testing.assert_allclose(one.differences, other.differences, atol=1e-12)
    assert one.ci == pytest.approx(other.ci) and one.estimate == pytest.approx(other.estimate)


@pytest.fixture(scope="module")
def expected():
    return compare(BASE, EXPERIMENT, "accuracy", labels=LABELS, **OPTIONS)


def test_every_form_gives_the_numbers_of_arrays(expected):
    assert expected.estimate == pytest.approx(
        (EXPERIMENT == LABELS).mean() - (BASE == LABELS).mean()
    )
    forms = [
        (lambda values: values.tolist(), LABELS.tolist()),
        (with_ids, BY_ID),
        (pandas.DataFrame, pandas.Series(LABELS)),
        (lambda values: pandas.DataFrame(values, columns=IDS), BY_ID),
        (lambda values: pandas.DataFrame(values).astype("Int64"), LABELS),
        (lambda values: values[:, None], LABELS),
    ]
    for make, labels in forms:
        same(compare(make(BASE), make(EXPERIMENT), "accuracy", labels=labels, **OPTIONS), expected)


@pytest.mark.parametrize(
    "variables", [{}, {"scores": (("run", "example", "class"), np.ones((4, 30, 2)))}]
)
def test_a_dataset_is_one_arm_and_no_dict_of_arms(variables, expected):
    data = {"prediction": (("run", "example"), BASE), "label": ("example", LABELS), **variables}
    base = xarray.Dataset(data, {"pretrain_seed": ("run", range(SEEDS))})
    alone = compare(base, metric="accuracy", **OPTIONS)
    assert alone.design == "single" and alone.estimate == expected.base.estimate
    with pytest.raises(DataError, match="found Dataset, expected arms by name"):
        compare_arms(base, "accuracy")


def test_what_people_have_gives_the_numbers_of_the_command(tmp_path):
    """Tables of usual names, one per arm or with both, in memory or in a file: one reader."""
    arrow, datasets = pytest.importorskip("pyarrow"), pytest.importorskip("datasets")
    renames = {"arm": "model", "seed": "random_seed", "example": "doc_id", "prediction": "pred",
               "label": "gold"}  # fmt: skip
    frames = [
        long(values, arm).rename(columns=renames)
        for arm, values in (("old", BASE), ("new", EXPERIMENT))
    ]
    both = pandas.concat(frames)
    path = tmp_path / "both.csv"
    both.to_csv(path, index=False)
    (printed,) = json.loads(
        compare_files(results=str(path), metric="accuracy", json=True, **OPTIONS)
    )
    named = both.rename(columns={"model": "kind", "random_seed": "s"})
    arms = read(named, arm="kind", seed="s", cluster="template")
    clusters = [f"t{place // 3}" for place in range(EXAMPLES)]
    given = {"labels": LABELS, "clusters": clusters, **OPTIONS}
    expected = compare(BASE, EXPERIMENT, "accuracy", **given)
    files = [tmp_path / f"{name}.csv" for name in arms]
    for file, frame in zip(files, frames, strict=True):
        frame.drop(columns="model").to_csv(file, index=False)
    columns = both.to_dict("list")
    forms = [
        (both,), frames, (path,), (str(path),), files, (columns,), (arms,),
        (arrow.Table.from_pandas(both),), (datasets.Dataset.from_dict(columns),),
    ]  # fmt: skip
    for form in forms:
        found = compare(*form, metric="accuracy", **OPTIONS)
        ends = printed["ci"]["low"], printed["ci"]["high"]
        assert found.ci == pytest.approx(expected.ci) == ends
        assert found.base.num_clusters == 10
        assert (found.base.name, found.experiment.name) == ("old", "new")


def _in_seeds(frame, *names):
    return frame.set_index(["seed", "example"]).rename_axis([*names])["correct"]


def _one_per_seed(frame):
    return [own.drop(columns="seed") for _, own in frame.groupby("seed")]


RIGHT = {"old": BASE == LABELS, "new": EXPERIMENT == LABELS}
MASK = np.eye(SEEDS, EXAMPLES) > 0
FORMS = {
    "masked, nothing hidden": lambda frame, right: np.ma.array(right),
    "Series": lambda frame, right: _in_seeds(frame, "seed", "item_name"),
    "Series by run": lambda frame, right: _in_seeds(frame, "run", "doc").rename("x"),
    "Series of each seed": lambda frame, right: [
        own.set_index("example")["correct"] for _, own in frame.groupby("seed")],
    "structured": lambda frame, right: frame.to_records(index=False),
    "objects": lambda frame, right: right.astype(int).astype(object),
    "frame of objects": lambda frame, right: pandas.DataFrame(right.astype(object)),
    "dims": lambda frame, right: xarray.DataArray(right, dims=("pretrain_seed", "example")),
    "a frame per seed": lambda frame, right: _one_per_seed(frame),
    # Tables of other libraries, with the methods of their protocols.
    "collect": lambda frame, right: Table(collect=lambda: Table(to_pandas=lambda: frame)),
    "compute": lambda frame, right: Table(compute=lambda: frame),
    "__dataframe__": lambda frame, right: Table(__dataframe__=frame.__dataframe__),
    "__arrow_c_stream__": lambda frame, right: Table(__arrow_c_stream__=pytest.importorskip(
        "pyarrow").Table.from_pandas(frame, preserve_index=False).__arrow_c_stream__),
    "dask": lambda frame, right: pytest.importorskip("dask.dataframe").from_pandas(frame, 2),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_data_of_any_library_are_opened_as_what_they_are(form):
    """A mask gave -16.6 for .037, an index (seed, item) p = .13 for .19; six forms were tracebacks."""
    frames = [
        long(values).assign(correct=lambda own: own["prediction"] == own["label"])
        .sort_values(["seed", "example"], key=lambda own: own.map(lambda cell: (len(str(cell)), cell)))
        [["seed", "example", "correct"]]
        for values in (BASE, EXPERIMENT)
    ]  # fmt: skip
    given = [FORMS[form](*each) for each in zip(frames, RIGHT.values(), strict=True)]
    found = compare(*given, **OPTIONS)
    same(found, compare(*RIGHT.values(), **OPTIONS))
    assert (found.design, found.base.num_examples) == ("paired", EXAMPLES)


def test_masked_cells_are_missing():
    masked = [np.ma.array(np.where(MASK, 999.0, own), mask=MASK) for own in RIGHT.values()]
    with pytest.raises(DataError, match="found nan .*missing='omit'"):
        compare(*masked)
    old, new = (own.mean(axis=1).mean() for own in masked)
    assert compare(*masked, missing="omit", **OPTIONS).estimate == pytest.approx(new - old)
    assert opened(np.ma.array(["a", "b"], mask=[False, True])).tolist() == ["a", None]


@pytest.mark.parametrize("form", [list, np.array, pandas.Series, lambda own: np.array(own, object)])
def test_scores_of_runs_in_a_list_are_runs_if_the_user_says_so(form):
    scores = [0.81, 0.82, 0.80], [0.83, 0.84, 0.85]
    old, new = map(form, scores)
    found = compare(old, new, resample="seeds", **OPTIONS)
    assert found.p_value == pytest.approx(scipy.stats.ttest_rel(*scores).pvalue)
    for options in ({}, {"resample": "examples"}):
        with pytest.raises(DataError, match=r"found 3 scores .*resample='seeds' .* or \[scores\]"):
            compare(old, new, **options)
    assert compare([old], [new], **OPTIONS).base.num_examples == 3
    index = pandas.Index(range(3), name="seed")
    whole = compare(*(pandas.Series([*own], index) for own in (old, new)), **OPTIONS)
    assert whole.p_value == found.p_value and whole.resample == "seeds"
    runs = compare([[own] for own in old], design="single")
    assert reproduce(old, 0.84).p_value == reproduce(runs, 0.84).p_value


def test_tables_in_memory_are_read_wherever_their_seeds_and_ids_are(expected):
    """Two columns of a frame indexed by (seed, id) were two examples, and 54 % became 51 %."""
    frames = {
        name: long(values).drop(columns=["arm", "run", "template"])
        for name, values in (("old", BASE), ("new", EXPERIMENT))
    }
    plain = compare(*frames.values(), **OPTIONS)
    assert (plain.base.name, plain.experiment.name) == ("base", "experiment")
    indexed = [frame.set_index(["seed", "example"]) for frame in frames.values()]
    right = [(frame["prediction"] == frame["label"]).rename("score") for frame in indexed]
    forms = [
        frames.values(), indexed, [own.set_index("seed") for own in frames.values()],
        [own.set_index("example") for own in frames.values()],
        [own.set_index("example", drop=False) for own in frames.values()], right,
        [own.to_dict("records") for own in frames.values()],
        [frames], [[*frames.values()]],
        [{name: own.to_dict("list") for name, own in frames.items()}],
        [{name: own.to_dict("records") for name, own in frames.items()}],
        [pandas.concat(dict(zip(frames, indexed, strict=True)), names=["model"])],
        [read([*frames.values()])[name] for name in ("base", "experiment")],
        [read(frames)],
        [own for one in indexed for own in read(
            one.rename_axis(["s", "nr"]), seed="s", example="nr").values()],
        [own for one in right for own in read(one.to_frame("points"), score="points").values()],
    ]  # fmt: skip
    for form in forms:
        found = compare(*form, **OPTIONS)
        assert found.ci == pytest.approx(expected.ci) and found.base.num_examples == EXAMPLES
    assert {*read(frames)} == {"old", "new"}
    named = [own.copy() for own in frames.values()]
    for own, name in zip(named, frames, strict=True):
        own.attrs["name"] = name
    for form in (named, [named], [frames]):
        found = compare(*form, **OPTIONS)
        assert (found.base.name, found.experiment.name) == ("old", "new")
    assert [arm.name for arm in compare_arms(named, **OPTIONS).arms] == ["new", "old"]
    with pytest.raises(DataError, match="no column of predictions or scores among 'seed', 'exam"):
        compare([{"seed": 0, "example": "a"}, {"seed": 1, "example": "a"}])


def test_tensors_and_dicts_by_seed_give_the_numbers_of_arrays(expected):
    """Alone it gives tensors of PyTorch, whose import is what takes long."""
    torch = pytest.importorskip("torch")
    forms = [
        (torch.from_numpy, torch.from_numpy(LABELS)),
        (lambda values: torch.tensor(values, dtype=torch.bfloat16, requires_grad=True), LABELS),
        (lambda values: [torch.from_numpy(row) for row in values], LABELS),
        (lambda values: dict(enumerate(values)), LABELS),
        (lambda values: {"predictions": values, "labels": LABELS}, None),
    ]
    for make, labels in forms:
        same(compare(make(BASE), make(EXPERIMENT), "accuracy", labels=labels, **OPTIONS), expected)


def test_runs_of_a_seed_are_averaged_in_every_form():
    values = predictions(0.7, 5, runs=3)
    frame = long(values, runs=3)
    index = pandas.MultiIndex.from_product([range(SEEDS), range(3)], names=["seed", "run"])
    wide = pandas.DataFrame(values.reshape(-1, EXAMPLES), index)
    for form, labels in ((values, LABELS), (frame, None), (wide, LABELS)):
        found = compare(form, None, "accuracy", design="single", labels=labels, **OPTIONS)
        np.testing.assert_allclose(found.base.seed_scores, (values == LABELS).mean(axis=(1, 2)))
        assert found.base.num_runs == 12


def test_scores_need_no_labels():
    right = [(values == LABELS).astype(float) for values in (BASE, EXPERIMENT)]
    expected = compare(BASE, EXPERIMENT, "accuracy", labels=LABELS, **OPTIONS)
    same(compare(*right, **OPTIONS), expected)
    same(compare(*map(with_ids, right), "mean", **OPTIONS), expected)
    frames = [
        long(values).drop(columns=["label", "template"]).rename(columns={"prediction": "score"})
        for values in right
    ]
    assert compare(*frames, **OPTIONS).ci == pytest.approx(expected.ci)
    family = compare_tasks({"one": TaskData(*right), "two": TaskData(*right)}, n_resamples=50)
    assert family.macro_average.estimate == pytest.approx(expected.estimate)
    with pytest.raises(UserError, match="no labels, .*f1"):
        compare(*right, "f1")
    same(compare(BASE, EXPERIMENT, labels=LABELS, **OPTIONS), expected)


def test_labels_and_clusters_are_put_in_order_by_their_coordinates(expected):
    """By position, accuracy .7 would become about .5 without a word."""
    order = np.random.default_rng(2).permutation(EXAMPLES)
    arms = with_ids(BASE), with_ids(EXPERIMENT, order)
    coordinates = {"example_id": ("example", np.array(IDS)[order])}
    for labels in (
        xarray.DataArray(LABELS[order], coordinates, "example"),
        pandas.Series(LABELS[order], np.array(IDS)[order]),
        dict(zip(np.array(IDS)[order], LABELS[order], strict=True)),
    ):
        same(compare(*arms, "accuracy", labels=labels, **OPTIONS), expected)
    template = np.arange(EXAMPLES) // 5
    for clusters in (
        xarray.DataArray(template[order], coordinates, "example"),
        pandas.Series(template[order], np.array(IDS)[order]),
    ):
        found = compare(*arms, "accuracy", labels=BY_ID, clusters=clusters, **OPTIONS)
        by_place = {"labels": LABELS, "clusters": template, **OPTIONS}
        assert found.ci == pytest.approx(compare(BASE, EXPERIMENT, "accuracy", **by_place).ci)
    numbers = pandas.Series(LABELS[order], order)
    arms = [values.assign_coords(example_id=("example", np.arange(EXAMPLES))) for values in
            (with_ids(BASE), with_ids(EXPERIMENT))]  # fmt: skip
    same(compare(*arms, "accuracy", labels=numbers, **OPTIONS), expected)


def test_labels_apart_are_joined_by_id_in_every_form(tmp_path, expected):
    order = np.random.default_rng(2).permutation(EXAMPLES)
    numbers = pandas.DataFrame({"idx": order, "gold": LABELS[order], "note": "n"})
    path = tmp_path / "gold.tsv"
    numbers.to_csv(path, sep="\t", index=False)
    for make in (int, str):  # ids as numbers, and as texts of them
        ids = ("example", np.array([make(place) for place in range(EXAMPLES)]))
        arms = [with_ids(values).assign_coords(example_id=ids) for values in (BASE, EXPERIMENT)]
        for labels in (path, str(path), numbers, numbers.set_index("idx")):
            same(compare(*arms, labels=labels, **OPTIONS), expected)
    found = compare_arms(dict(zip("ab", arms, strict=True)), labels=path, **OPTIONS)
    assert found.metric == "accuracy"
    assert abs(found.differences[0].estimate) == pytest.approx(abs(expected.estimate))
    frames = [long(values).drop(columns=["arm", "label"]) for values in (BASE, EXPERIMENT)]
    with pytest.raises(DataError, match="labels: 30 of 30 .*'id .*30 are of other"):
        compare(*frames, labels=path)
    named = pandas.DataFrame({"nr": IDS, "class": LABELS})
    with pytest.raises(DataError, match=r"no column of labels among 'nr', 'class'; .*set_index"):
        compare(*frames, labels=named)
    by_id = named.set_index("nr")["class"]
    assert compare(*frames, labels=by_id, **OPTIONS).estimate == pytest.approx(expected.estimate)
    with pytest.raises(DataError, match="scores .'right'., which are not compared with labels"):
        compare(*(own.rename(columns={"prediction": "right"}) for own in frames), labels=by_id)


def test_values_by_position_beside_ids_are_refused_unless_these_count():
    """Frames are read in the order of their rows: 30.5 % of three classes, and no word of it."""
    frames = [long(values).drop(columns=["arm", "label"]) for values in (BASE, EXPERIMENT)]
    labelled = xarray.DataArray(LABELS, dims="example")
    for values in (LABELS.tolist(), LABELS, pandas.Series(LABELS), labelled):
        with pytest.raises(DataError, match="labels are in an order .*'id .* by id"):
            compare(*frames, "accuracy", labels=values)
        with pytest.raises(DataError, match="clusters are in an order .*'id .* by id"):
            compare(*frames, "accuracy", labels=BY_ID, clusters=values)
    shuffled = with_ids(BASE).assign_coords(example_id=("example", np.arange(EXAMPLES)[::-1]))
    with pytest.raises(DataError, match="labels are in an order"):
        compare(shuffled, labels=LABELS)
    for first in (0, 1):
        counts = with_ids(BASE).assign_coords(example_id=("example", np.arange(EXAMPLES) + first))
        score = compare(counts, labels=LABELS, **OPTIONS).estimate
        assert score == pytest.approx((BASE == LABELS).mean())


def test_the_metric_is_inferred_as_the_command_infers_it(tmp_path):
    """Without labels, predictions were averaged; with labels, a metric had to be named."""
    frames = {"base": long(BASE), "new": long(EXPERIMENT)}
    runs = xarray.Dataset(
        {"prediction": (("run", "example"), BASE), "label": ("example", LABELS)},
        {"pretrain_seed": ("run", range(SEEDS))}, {"metrics": ["matthews", "accuracy"]},
    )  # fmt: skip
    files = []
    for name, frame in frames.items():
        frame = frame.drop(columns=["arm", "run"])
        files.append(str(tmp_path / f"{name}.csv"))
        frame.to_csv(files[-1], index=False)
    (printed,) = json.loads(compare_files(results=files[0], experiment=files[1:], json=True))
    for found in (compare(*frames.values()), compare(*files), compare_arms(frames)):
        assert found.metric == printed["metric"] == "accuracy"
    assert compare_tasks({"t": TaskData(*files)}).comparisons["t"].metric == "accuracy"
    assert compare(runs, **OPTIONS).metric == "matthews"
    unlabelled = [frame.drop(columns="label") for frame in frames.values()]
    with pytest.raises(DataError, match="no labels, which accuracy .*labels='FILE'"):
        compare(*unlabelled)
    with pytest.raises(DataError, match="fractions, .*metric='NAME'"):
        compare(BASE + 0.5, labels=LABELS)


def test_a_square_matrix_of_probabilities_is_not_taken_for_classes():
    random = np.random.default_rng(4)
    labels, values = np.arange(6) % 2, random.random((6, 6))
    found = compare(values, None, "log_loss", design="single", labels=labels, **OPTIONS)
    losses = [sklearn.metrics.log_loss(labels, row) for row in values]
    np.testing.assert_allclose(found.base.seed_scores, losses)


def test_a_table_of_unusual_names_is_told_from_one_of_seeds():
    table = pandas.DataFrame({"s": [0, 1, 0, 1], "q": [0, 0, 1, 1], "ok": [1, 0, 1, 1]})
    for frame in (table, table[:2].assign(who="a")):
        with pytest.raises(DataError, match=r"columns s, q, ok.*seed='COLUMN'.*rename_axis"):
            compare(frame)
    [arm] = read(table, seed="s", example="q", score="ok").values()
    assert compare(arm, resample="seeds").estimate == 0.75
    assert compare(table.rename_axis("seed"), resample="seeds").base.seeds == (0, 1, 2, 3)


def test_one_arm_alone_is_described():
    right = (BASE == LABELS).astype(float)
    single = compare(right, design="single", **OPTIONS)
    for alone in (right, right.tolist(), pandas.DataFrame(right)):
        assert compare(alone, **OPTIONS) == single
    labelled = compare(long(BASE, "old"), metric="accuracy", **OPTIONS)
    assert labelled.design == "single" and labelled.estimate == pytest.approx(single.estimate)
    with pytest.raises(DataError, match="design 'unpaired' without an experiment"):
        compare(right, design="unpaired")


def test_two_arrays_in_a_list_are_two_arms_and_a_nested_list_is_one(expected):
    compared = {"metric": "accuracy", "labels": LABELS, **OPTIONS}
    for make, labels in ((np.asarray, LABELS), (pandas.DataFrame, LABELS), (with_ids, BY_ID)):
        same(compare([make(BASE), make(EXPERIMENT)], **compared | {"labels": labels}), expected)
    same(compare((BASE, EXPERIMENT), **compared), expected)
    with pytest.raises(DataError, match="3 arms .arm 1, arm 2, arm 3.*compare_arms"):
        compare([BASE, EXPERIMENT, BASE], **compared)
    nested = compare([BASE.tolist(), EXPERIMENT.tolist()], **compared)  # [seeds, runs, examples]
    as_runs = compare([BASE, EXPERIMENT], design="single", **compared)
    assert nested == as_runs and len(nested.base.seeds) == 2 and nested.base.num_runs == 2 * SEEDS


def test_one_dimension_is_the_examples_of_one_seed():
    right = [(values == LABELS).astype(float) for values in (BASE, EXPERIMENT)]
    assert compare(right[0][0], right[1][0]).resample == "examples"
    rows, tables = (
        compare(*arms, resample="examples", **OPTIONS)
        for arms in ((values[0] for values in right), (values[:1] for values in right))
    )
    assert rows == tables
    assert rows == compare(
        *(values[0].tolist() for values in right), resample="examples", **OPTIONS
    )


@pytest.mark.parametrize("is_wide", [False, True])
def test_several_tasks_of_a_table_in_memory_are_not_pooled(is_wide):
    """Six tasks counted as one with six times the examples, where the command asked for one."""
    frame = long(BASE)
    if is_wide:
        frame = frame.pivot(index=["example", "label"], columns="seed", values="prediction")
        frame = frame.add_prefix("seed_").reset_index()
    other = frame.assign(label=1 - frame["label"])
    tasks = pandas.concat([frame.assign(task="rte"), other.assign(task="mrpc")])
    several = "2 tasks .rte, mrpc.; choose one, such as task='rte'"
    for refused in (
        lambda: read(tasks),
        lambda: compare(tasks, tasks, "accuracy"),
        lambda: compare_arms({"a": tasks, "b": tasks}, "accuracy"),
        lambda: compare_arms(tasks, "accuracy"),
    ):
        with pytest.raises(DataError, match=several):
            refused()
    assert read(tasks, task="mrpc")[""].equals(read(other)[""])


def test_rows_that_are_missing_are_missing_cells():
    frame = long(BASE)
    lacking = frame[~((frame.seed == 2) & (frame.example == "id 7"))]
    with pytest.raises(UserError, match="found nan.*missing='omit'"):
        compare(lacking, None, "accuracy", design="single")
    found = compare(lacking, None, "accuracy", design="single", missing="omit", **OPTIONS)
    right = BASE == LABELS
    assert found.base.seed_scores[2] == pytest.approx(np.delete(right[2], 7).mean())


def share_right(labels, values):
    return float((labels == values).mean())


def test_a_function_that_is_a_mean_has_the_error_of_the_mean():
    """Pseudo-values of a mean are the scores themselves, by examples, by clusters, with holes."""
    for clusters in (None, np.arange(EXAMPLES) // 4):
        for design in ("paired", "unpaired"):
            given = {"design": design, "labels": LABELS, "clusters": clusters, **OPTIONS}
            ours, exact = (
                compare(BASE, EXPERIMENT, metric, **given) for metric in (share_right, "accuracy")
            )
            same(ours, exact)
            assert ours.standard_error == pytest.approx(exact.standard_error)
            assert ours.metric == "share_right"
    holes = BASE.astype(float)
    holes[1, 3:9] = np.nan
    ours, exact = (
        compare(holes, None, metric, design="single", labels=LABELS, missing="omit", **OPTIONS)
        for metric in (share_right, "accuracy")
    )
    assert ours.standard_error == pytest.approx(exact.standard_error, rel=1e-9)


def test_a_function_of_another_library_is_our_metric():
    fast = compare(BASE, EXPERIMENT, sklearn.metrics.f1_score, labels=LABELS, **OPTIONS)
    same(fast, compare(BASE, EXPERIMENT, "f1", labels=LABELS, **OPTIONS))
    assert fast.metric == "f1"


def test_the_jackknife_of_a_correlation_is_near_its_delta_method():
    random = np.random.default_rng(6)
    labels = random.normal(size=400)
    values = 0.6 * labels + random.normal(size=(3, 400))
    given = {"labels": labels, "resample": "examples", **OPTIONS}
    ours, exact = (
        compare(values, None, metric, **given)
        for metric in (lambda x, y: np.corrcoef(x, y)[0, 1], "pearson")
    )
    assert ours.standard_error == pytest.approx(exact.standard_error, rel=0.02)


def test_many_examples_are_left_out_in_groups():
    random = np.random.default_rng(7)
    scores = random.normal(size=(3, 2500))
    given = {"labels": np.zeros(2500), "resample": "examples", **OPTIONS}
    ours, exact = (
        compare(scores, None, metric, **given)
        for metric in (lambda _labels, values: values.mean(), "mean")
    )
    assert ours.standard_error == pytest.approx(exact.standard_error, rel=4 / np.sqrt(2 * 1000))
    with pytest.raises(UserError, match="infinite scores|returned nan"):
        compare(scores[:, :9], None, lambda _x, _y: np.nan, labels=np.zeros(9), **OPTIONS)


@pytest.mark.parametrize(
    "spelling", ["{}", "{}.0", "0{}", "seed_{}", "Seed {}", "rng_seed-{}", "run{}"]
)
def test_seeds_that_are_one_number_pair_however_they_are_written(tmp_path, expected, spelling):
    """The unpaired design, which was the cure for 0 beside "0", gives another interval."""
    compared, path = {"metric": "accuracy", **OPTIONS}, tmp_path / "arm.jsonl"
    seeds = [spelling.format(seed) for seed in range(SEEDS)]
    base, frame = (
        long(values).drop(columns=["arm", "run", "template"]) for values in (BASE, EXPERIMENT)
    )
    frame["seed"] = [seeds[seed] for seed in frame["seed"]]
    frame.to_json(path, orient="records", lines=True)
    arrays = {"predictions": EXPERIMENT, "labels": LABELS}
    np.savez(tmp_path / "arm.npz", **arrays, seeds=seeds)
    by_number = dict(enumerate(BASE))
    pairs = [
        (base, frame), (base, path), (arrays | {"predictions": BASE}, tmp_path / "arm.npz"),
        (by_number, dict(zip(seeds, EXPERIMENT, strict=True))),
        (by_number, pandas.DataFrame(EXPERIMENT, pandas.Index(seeds))),
        (with_ids(BASE), with_ids(EXPERIMENT).assign_coords(pretrain_seed=seeds)),
    ]  # fmt: skip
    for place, (one, other) in enumerate(pairs):
        labels = None if place < 3 else BY_ID if place == 5 else LABELS
        found = compare(one, other, labels=labels, **compared)
        assert found.ci == pytest.approx(expected.ci) and found.base.seeds == (*range(SEEDS),)


@pytest.mark.parametrize("more", [[], ["tail"]])
def test_ids_that_were_rounded_are_named_as_the_cause(tmp_path, more):
    """As a spreadsheet saves long ids, among texts or not."""
    path, ids = tmp_path / "a.csv", [264_184_000_000_000_000 + 3 * place for place in range(4)]
    for number in ("{:.5E}", "{}"):
        rows = [f"{s},{i},1" for s in (0, 1) for i in [*map(number.format, ids), *more]]
        path.write_text("\n".join(["seed,id,score", *rows]) + "\n")
        if number != "{}":
            with pytest.raises(DataError, match=r"example '?2.64184E?.* rounded.*example='COLUMN'"):
                read(path)
    assert read(path)[""].sizes == {"run": 2, "example": len(ids) + len(more)}


TEXTS = np.array(["", "in May", "", "Ann", "a|b", ""] * 3, dtype=object)


def texts_of(right, wrong):
    """Predictions [seeds, examples] of texts, of which some are right."""
    random = np.random.default_rng(5)
    return np.where(random.random((3, len(TEXTS))) < right, TEXTS, wrong).astype(object)


def rows_of_texts(values, labels=TEXTS):
    seeds, examples = np.indices(values.shape)
    columns = {"prediction": values.ravel(), "label": np.tile(labels, len(values))}
    ids = [f"q{number}" for number in examples.ravel()]
    return pandas.DataFrame({"seed": seeds.ravel(), "id": ids, **columns})


@pytest.mark.parametrize("metric", ["squad_f1", "multilabel_f1_micro"])
def test_an_empty_cell_is_the_empty_text_where_that_is_an_answer(tmp_path, metric):
    """It was missing, so that SQuAD 2.0's questions without an answer had to be left out."""
    compared = {"metric": metric, **OPTIONS}
    values = texts_of(0.7, ""), texts_of(0.9, "Ann"), np.full((3, len(TEXTS)), "", object)
    base, *others = values
    for place, other in enumerate(others):
        expected = compare(base, other, labels=TEXTS, **compared)
        frames = [rows_of_texts(own) for own in (base, other)]
        files = [tmp_path / f"{name}{place}.csv" for name in ("base", "new")]
        for frame, file in zip(frames, files, strict=True):
            frame.to_csv(file, index=False)
        of_files = [read(file)[""] for file in files]
        in_memory = [frame.replace("", None) for frame in frames]
        for one, two in (files, frames, of_files, in_memory):
            found = compare(one, two, **compared)
            assert found.ci == pytest.approx(expected.ci)
    gone = rows_of_texts(base)[1:]
    gone.to_csv(files[0], index=False)  # a row that is missing is not an empty answer
    with pytest.raises(DataError, match="found None .*'q0' .1 in total.*missing='omit'"):
        compare(files[0], **compared)
    assert compare(files[0], missing="omit", **compared).base.num_runs == 3
    with pytest.raises(DataError, match="labels: found nan"):
        compare(files[1], **{**compared, "metric": "accuracy"})
    hidden = rows_of_texts(base, np.full(len(TEXTS), None))
    with pytest.raises(DataError, match="labels: found (nan|None)"):
        compare(hidden, **compared)


def test_lists_in_cells_are_sets_or_references(tmp_path):
    pytest.importorskip("pyarrow")
    names = np.array(["fear", "joy", "relief"])
    random = np.random.default_rng(0)
    truths = random.random((40, 3)) < 0.4
    guesses = truths[None] ^ (random.random((2, 3, 40, 3)) < 0.1)
    frames = []
    for own in guesses:
        lists = [[*random.permutation(names[row])] for row in own.reshape(-1, 3)]
        frame = pandas.DataFrame({"seed": np.repeat(range(3), 40), "id": [*range(40)] * 3})
        frame["prediction"] = lists
        frame["label"] = [[*random.permutation(names[row])] for _ in range(3) for row in truths]
        frames.append(frame)
    paths = [tmp_path / f"arm{number}" for number in range(2)]
    for form in ("frames", "jsonl", "parquet"):
        for frame, path in zip(frames, paths, strict=True):
            if form == "jsonl":
                frame.to_json(path, orient="records", lines=True)
            if form == "parquet":
                frame.to_parquet(path)
        given = frames if form == "frames" else paths
        for average in ("micro", "macro"):
            found = compare(*given, f"multilabel_f1_{average}", **OPTIONS)
            for arm, own in zip((found.base, found.experiment), guesses, strict=True):
                theirs = [
                    sklearn.metrics.f1_score(truths, run, average=average, zero_division=0)
                    for run in own
                ]
                np.testing.assert_allclose(arm.seed_scores, theirs)
        with pytest.raises(DataError, match="lists as predictions, .*metric='multilabel_f1_micro'"):
            compare(*given, "accuracy", **OPTIONS)
    apart = compare(*(frame.drop(columns="label") for frame in frames), "multilabel_f1_macro",
                    labels=[*frames[0]["label"][:40]], **OPTIONS)  # fmt: skip
    assert apart.ci == pytest.approx(found.ci)
    references = frames[0].assign(prediction="joy", label=[["joy", "a joy"], []] * 60)
    # As `datasets` has them.
    nested = references.assign(label=[{"text": texts} for texts in references["label"]])
    for frame in (references, nested):
        assert compare(frame, metric="squad_exact_match", **OPTIONS).estimate == 0.5
    tags = references.assign(prediction=[["B-PER", "O", "O"], ["O", "B-LOC", "I-LOC"]] * 60)
    tags["label"] = tags["prediction"]
    assert read(tags)[""]["prediction"].values[0, :2].tolist() == ["B-PER O O", "O B-LOC I-LOC"]
    assert compare(tags, metric="span_f1", **OPTIONS).estimate == 1
    for cell in ([0.1, 0.9], [["joy"]], [1, 2], ["joy", "joy"], (1, 2)):
        with pytest.raises(DataError, match="row 1, expected one text or number"):
            read(references.assign(prediction=[cell] * len(references)))


def test_truth_values_beside_missing_ones_are_one_and_zero(tmp_path):
    """As R writes them: three refusals in a row ended with "mean is for numbers, found True"."""
    right = (BASE == LABELS).astype(object)
    right[0, 3] = right[2, 5] = np.nan
    words = {True: "TRUE", False: "FALSE"}
    frame = long(BASE).drop(columns=["arm", "run", "prediction", "label", "template"])
    places = [
        (seed, IDS.index(name)) for seed, name in zip(frame["seed"], frame["example"], strict=True)
    ]
    cells = [right[place] for place in places]
    frame["correct"] = [words.get(cell, "NA") for cell in cells]
    frame.to_csv(tmp_path / "r.csv", index=False)
    frame["correct"] = [None if cell != cell else bool(cell) for cell in cells]
    frame.to_json(tmp_path / "r.jsonl", orient="records", lines=True)
    expected = compare(right.astype(float), missing="omit", **OPTIONS)
    paths = tmp_path / "r.csv", tmp_path / "r.jsonl"
    for data in (*paths, frame, frame.astype({"correct": "boolean"})):
        found = compare(data, missing="omit", **OPTIONS)
        assert found.base.seed_scores == pytest.approx(expected.base.seed_scores)
        with pytest.raises(DataError, match="found nan .*2 in total.*missing='omit'"):
            compare(data)
    labels = np.where(LABELS == 1, "TRUE", "FALSE")
    frame["label"] = [labels[example] for _, example in places]
    frame["correct"] = [words.get(cell == 1, "NA") for cell in cells]
    frame.rename(columns={"correct": "prediction"}).to_csv(tmp_path / "p.csv", index=False)
    classes = compare(tmp_path / "p.csv", metric="f1", **OPTIONS)
    plain = compare(np.equal(right, 1).astype(int), metric="f1", labels=LABELS, **OPTIONS)
    assert classes.base.seed_scores == pytest.approx(plain.base.seed_scores)
