"""`multibootstrap` against an independent plain loop over the published stream of draws."""

import numpy as np
import pandas
import pytest
import scipy.stats
import sklearn.metrics

from multiberts import stats as multibootstrap_module
from multiberts.stats import multibootstrap

pytestmark = pytest.mark.seconds


def plain_loop(
    run_info, preds, labels, score, *, paired, sample_seeds=True, sample_examples=True, nboot, rng
):
    """The definition, one score at a time: choose seeds (base, then intervention), then
    examples."""
    stream = np.random.RandomState(rng)
    rows = {}
    for row, (seed, intervention) in enumerate(
        zip(run_info["seed"], run_info["intervention"], strict=True)
    ):
        rows.setdefault((bool(intervention), seed), []).append(row)
    seeds = {arm: sorted(seed for side, seed in rows if side is arm) for arm in (False, True)}
    if paired:
        common = [seed for seed in seeds[False] if seed in seeds[True]]
        seeds = {False: common, True: common}
    samples = []
    for _ in range(nboot):
        drawn = {}
        for arm in (False, True):
            if not sample_seeds:
                drawn[arm] = seeds[arm]
            elif paired and arm:
                drawn[arm] = drawn[False]
            else:
                drawn[arm] = stream.choice(seeds[arm], size=len(seeds[arm]), replace=True).tolist()
        examples = np.arange(len(labels))
        if sample_examples:
            examples = stream.choice(len(labels), size=len(labels), replace=True)
        replicate = []
        for arm in (False, True):
            of_seeds = [
                np.mean([score(labels[examples], preds[row, examples]) for row in rows[arm, seed]])
                for seed in drawn[arm]
            ]
            replicate.append(np.mean(of_seeds))
        samples.append(replicate)
    return np.array(samples)


def example_data(num_examples=23, binary=True, text_seeds=False):
    """Unbalanced runs, seeds that only one arm has, rows in no order."""
    random = np.random.default_rng(7)
    seeds = [3, 0, 3, 7, 1, 0, 7, 3, 9, 1, 1, 12]
    arms = [False] * 5 + [True] * 7
    if text_seeds:
        seeds = [f"seed {seed:02d}" for seed in seeds]
    run_info = pandas.DataFrame({"seed": seeds, "intervention": arms, "other": 1})
    run_info = run_info.sample(frac=1, random_state=3)
    labels = random.integers(0, 2, num_examples) if binary else random.normal(size=num_examples)
    noise = random.normal(size=(12, num_examples))
    predictions = ((labels + noise) > 0.5).astype(int) if binary else labels + noise
    return run_info, predictions, labels


def pearson_r(labels, predictions):
    return scipy.stats.pearsonr(labels, predictions)[0]


CASES = [
    ("accuracy", sklearn.metrics.accuracy_score, True),
    ("matthews", sklearn.metrics.matthews_corrcoef, True),
    ("f1", sklearn.metrics.f1_score, True),
    ("mse", sklearn.metrics.mean_squared_error, False),
    ("pearson", pearson_r, False),
]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("seeds", "examples"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("name", "function", "binary"), CASES)
def test_equals_the_plain_loop_replicate_by_replicate(
    name, function, binary, seeds, examples, paired
):
    data = example_data(binary=binary)
    resampling = {"sample_seeds": seeds, "sample_examples": examples}
    expected = plain_loop(*data, function, paired=paired, **resampling, nboot=6, rng=42)
    options = {"paired_seeds": paired, "nboot": 6, "rng": 42, "verbose": False, **resampling}
    for score_fn in (name, function):  # the second by the fast way or by our own loop
        ours = multibootstrap(*data, score_fn=score_fn, **options)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)


def test_text_seeds_are_reproducible_and_an_unknown_function_is_called():
    data = example_data(text_seeds=True)

    def hits(labels, predictions):
        return float((labels == predictions).sum())

    expected = plain_loop(*data, hits, paired=True, nboot=20, rng=5)
    ours = multibootstrap(*data, score_fn=hits, paired_seeds=True, nboot=20, rng=5, verbose=False)
    np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_other_random_states_and_progress():
    data = example_data()
    seen = []

    def progress(replicates):
        for replicate in replicates:
            seen.append(replicate)
            yield replicate

    by_int = multibootstrap(*data, score_fn="accuracy", nboot=9, rng=1, verbose=False)
    by_state = multibootstrap(
        *data, score_fn="accuracy", nboot=9, rng=np.random.RandomState(1), verbose=False,
        progress_indicator=progress,
    )  # fmt: skip
    assert by_int == by_state
    assert seen == list(range(9))
    by_generator = multibootstrap(
        *data, score_fn="accuracy", nboot=9, rng=np.random.default_rng(1), verbose=False
    )
    assert by_generator != by_int


def test_sklearn_f1_of_other_classes_keeps_its_meaning():
    """scikit-learn takes class 1 of 1 and 2 as positive; our metric knows 0 and 1 alone."""
    run_info, predictions, labels = example_data()
    data = run_info, predictions + 1, labels + 1
    f1_score = sklearn.metrics.f1_score
    expected = plain_loop(*data, f1_score, paired=False, nboot=5, rng=0)
    ours = multibootstrap(*data, f1_score, nboot=5, rng=0, verbose=False)
    np.testing.assert_allclose(ours, expected, atol=1e-12)


@pytest.mark.parametrize("metric", ["accuracy", "auc", "mse"])
def test_an_example_may_be_drawn_thousands_of_times(metric):
    class OneInTwo:
        def choice(self, number, size, replace):
            assert replace
            return np.arange(size) % 2 * (number - 1)

    run_info, predictions, labels = example_data(num_examples=3000)
    ends = [0, 2999]
    labels[ends] = [0, 1]
    drawn = multibootstrap(
        run_info, predictions, labels, metric, sample_seeds=False, nboot=2, rng=OneInTwo(),
        verbose=False,
    )  # fmt: skip
    of_two = multibootstrap(
        run_info, predictions[:, ends], labels[ends], metric, sample_seeds=False,
        sample_examples=False, nboot=2, verbose=False,
    )  # fmt: skip
    assert drawn == of_two


@pytest.mark.parametrize("metric", ["accuracy", "matthews", "auc"])
def test_chunks_and_blocks_do_not_change_the_samples(metric, monkeypatch):
    data = example_data(num_examples=3000)
    whole = multibootstrap(*data, score_fn=metric, nboot=30, rng=2, verbose=False)
    monkeypatch.setattr("multiberts.stats.bootstrap.replicates._CHUNK_BYTES", 10_000)
    monkeypatch.setattr("multiberts.stats.bootstrap.replicates._BLOCK_ELEMENTS", 2000)
    monkeypatch.setattr("multiberts.stats.bootstrap.replicates._BYTES_IN_MEMORY", 0)
    monkeypatch.setattr("multiberts.stats.bootstrap.replicates._EXACT_BLOCK", 700)
    in_pieces = multibootstrap(*data, score_fn=metric, nboot=30, rng=2, verbose=False)
    np.testing.assert_array_equal(in_pieces, whole)


def test_one_seed_is_resampled_with_a_warning():
    """The published notebook's table 4 does so: the samples are those of the examples alone."""
    run_info = pandas.DataFrame({"seed": [0, 0], "intervention": [False, True]})
    predictions, labels = np.array([[0, 1, 1], [0, 0, 1]]), np.array([0, 1, 0])
    for paired in (True, False):
        with pytest.warns(UserWarning, match="the intervention has one seed"):
            one = multibootstrap(
                run_info, predictions, labels, "accuracy", paired, nboot=400, rng=1, verbose=False
            )
        right = (predictions == labels).mean(axis=1)
        assert np.mean(one, axis=0) == pytest.approx(right, abs=4 * np.sqrt(0.25 / 3 / 400))
    samples = multibootstrap(
        run_info, predictions, labels, "accuracy", sample_seeds=False, nboot=4, verbose=False
    )
    assert len(samples) == 4
    against_one = pandas.DataFrame({"seed": [0, 0, 1], "intervention": [False, True, True]})
    with pytest.warns(UserWarning, match="base has one seed") as warned:
        multibootstrap(against_one, predictions[[0, 1, 0]], labels, "accuracy", verbose=False)
    assert warned[0].filename == __file__


@pytest.fixture(scope="module")
def coreference_runs():
    """Runs as the published notebooks hold them: groups, several runs per seed, rows picked later."""
    random = np.random.default_rng(17)
    answers = pandas.Series(random.integers(0, 2, 48), name="answer")
    rows = [
        {"pretrain_seed": seed, "finetune_seed": run, "group_name": group}
        for group in ("base", "base_extra_seeds", "intervention", "from_scratch")
        for seed in range(3)
        for run in range(2)
    ]
    runs = pandas.DataFrame(rows)
    right = random.random((len(runs), 48)) < 0.65
    runs["coref_preds"] = list(np.where(right, answers, 1 - answers).astype(float))
    runs["bias_scores"] = list(random.normal(size=(len(runs), 12)))
    return runs, answers, random.random(12)


def notebook_accuracy(answers, predictions):
    return np.mean(answers == predictions)


def notebook_bias(share, scores):
    return scipy.stats.linregress(share, scores).rvalue


def picked(runs, base, experiment, column):
    """Picks two groups, as the notebooks do: index and further columns stay as they are."""
    chosen = runs[runs.group_name.isin([base, experiment])].copy()
    chosen["seed"] = chosen["pretrain_seed"]
    chosen["intervention"] = chosen["group_name"] == experiment
    return chosen, np.stack(chosen[column])


@pytest.mark.parametrize(
    ("base", "experiment", "paired", "options"),
    [
        ("base", "intervention", True, {}),
        ("intervention", "from_scratch", False, {}),
        ("intervention", "from_scratch", False, {"sample_examples": False}),
        ("intervention", "from_scratch", False, {"sample_seeds": False}),
    ],
)
def test_calls_of_the_published_notebook_run_after_changing_the_import(
    coreference_runs, base, experiment, paired, options, capsys
):
    """Tables 1 and 2 and the analyses of seeds and examples alone of the notebook on coreference."""
    runs, answers, share = coreference_runs
    for column, labels, metric in (
        ("coref_preds", answers, notebook_accuracy),
        ("bias_scores", share, notebook_bias),
    ):
        chosen, preds = picked(runs, base, experiment, column)
        samples = multibootstrap_module.multibootstrap(
            chosen, preds, labels, metric, nboot=12, rng=42, paired_seeds=paired,
            progress_indicator=iter, **options,
        )  # fmt: skip
        expected = plain_loop(
            chosen, preds, np.asarray(labels), metric, paired=paired, nboot=12, rng=42, **options
        )
        np.testing.assert_allclose(samples, expected, atol=1e-12)
        frame = pandas.DataFrame(samples, columns=["base", "expt"])
        found = multibootstrap_module.report_ci(samples, c=0.95, expect_negative_effect=True)
        assert found["expt"]["mean"] == pytest.approx(frame.expt.mean())
        deltas = frame.expt - frame.base
        assert found["delta"]["p"] == (max((deltas >= 0).mean(), 1 / 12))
        low = pandas.DataFrame(found).transpose().loc["delta", "low"]
        assert low == pytest.approx(deltas.quantile(0.025))
    assert "12 bootstrap samples, 95%" in capsys.readouterr().out


def test_tables_of_single_checkpoints_run_too(coreference_runs, capsys):
    """Table 4 (one seed per side, whose fine-tuning runs are averaged) and table 3 of the notebooks."""
    runs, answers, share = coreference_runs
    extra = runs[(runs.group_name == "base_extra_seeds") & runs.pretrain_seed.isin([0, 1])].copy()
    extra["seed"], extra["intervention"] = extra["pretrain_seed"], extra["pretrain_seed"] == 1
    preds = np.stack(extra["bias_scores"])
    with pytest.warns(UserWarning, match="has one seed"):
        samples = multibootstrap_module.multibootstrap(
            extra, preds, share, notebook_bias, nboot=12, rng=42, paired_seeds=False
        )
    expected = plain_loop(extra, preds, share, notebook_bias, paired=False, nboot=12, rng=42)
    np.testing.assert_allclose(samples, expected, atol=1e-12)
    # Scores of examples with labels that mean nothing, against one public checkpoint.
    scores = np.stack(runs["coref_preds"]) == answers.to_numpy()
    public = runs[["pretrain_seed"]].assign(release=["public"] * 2 + ["multiberts"] * 22)
    public["seed"] = public["pretrain_seed"]
    public["intervention"] = public["release"] == "multiberts"
    nothing = np.zeros_like(scores[0])
    with pytest.warns(UserWarning, match="the base has one seed"):
        samples = multibootstrap_module.multibootstrap(
            public, scores.astype(float), nothing, lambda y_true, y_pred: np.mean(y_pred),
            nboot=12, paired_seeds=False, rng=1,
        )  # fmt: skip
    found = multibootstrap_module.report_ci(samples, abs_threshold=0.01, rel_threshold=0.01)
    assert set(found["delta"]) == {"mean", "low", "high", "p"}
    assert "above base by 0.01" in capsys.readouterr().out
