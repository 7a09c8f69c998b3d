"""Bias and nested variances: identities, hand computation, ANOVA, simulation."""

import numpy as np
import pandas
import pytest

from multiberts.papers.zhong.decomposition import decompose
from multiberts.papers.zhong.ensembles import as_runs
from multiberts.stats.runs_table import make_runs

UNBALANCED = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_parts_add_up_to_the_loss():
    random = np.random.default_rng(0)
    runs = make_runs(random.random((9, 50)), UNBALANCED)
    found = decompose(runs, target=random.random(50))
    np.testing.assert_allclose(
        found.bias_squared + sum(found.variances.values()), found.loss, atol=1e-15
    )
    parts = found.parts
    assert parts["loss"].mean == pytest.approx(sum(p.mean for n, p in parts.items() if n != "loss"))
    assert parts["loss"].standard_error == pytest.approx(found.loss.std(ddof=1) / np.sqrt(50))


def test_two_balanced_levels_follow_the_definitions():
    scores = np.random.default_rng(1).random((4, 3, 20))
    found = decompose(scores)
    fine = scores.var(axis=1, ddof=1).mean(axis=0)
    pretrain = scores.mean(axis=1).var(axis=0, ddof=1) - fine / 3
    loss = ((1 - scores) ** 2).mean(axis=(0, 1))
    np.testing.assert_allclose(found.variances["finetune_seed"], fine)
    np.testing.assert_allclose(found.variances["pretrain_seed"], pretrain)
    np.testing.assert_allclose(found.bias_squared, loss - fine - pretrain)
    # The same bias from the mean: its square, less what randomness adds to it.
    direct = (1 - scores.mean(axis=(0, 1))) ** 2 - scores.mean(axis=1).var(axis=0, ddof=1) / 4
    np.testing.assert_allclose(found.bias_squared, direct)


def test_balanced_levels_equal_nested_anova():
    import statsmodels.formula.api
    from statsmodels.stats.anova import anova_lm

    scores = np.random.default_rng(2).normal(size=(5, 4, 3, 1))
    frame = pandas.DataFrame(
        [{"p": str(p), "f": f"{p}-{f}", "y": scores[p, f, c, 0]} for p, f, c in np.ndindex(5, 4, 3)]
    )
    # Squares of the nested term are those of its cells beyond the seeds'.
    cells = anova_lm(statsmodels.formula.api.ols("y ~ C(f)", frame).fit())
    seeds = anova_lm(statsmodels.formula.api.ols("y ~ C(p)", frame).fit())
    mean_checkpoint = cells.loc["Residual", "mean_sq"]
    mean_fine = (cells.loc["C(f)", "sum_sq"] - seeds.loc["C(p)", "sum_sq"]) / 15
    mean_pretrain = seeds.loc["C(p)", "mean_sq"]
    found = decompose(scores)
    expected = {
        "pretrain_seed": (mean_pretrain - mean_fine) / 12,
        "finetune_seed": (mean_fine - mean_checkpoint) / 3,
        "checkpoint": mean_checkpoint,
    }
    for level, value in expected.items():
        assert found.variances[level][0] == pytest.approx(value)


def test_unbalanced_by_hand():
    """Seed a has runs 1, 0, 0; seed b runs 1, 1; seed c one run, 0."""
    runs = make_runs(
        [[1], [0], [0], [1], [1], [0]], [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]
    )
    found = decompose(runs)
    fine = (1 / 3 + 0) / 2  # c says nothing of it
    means = np.array([1 / 3, 1, 0])
    # What fine-tuning leaves in the means: a third of 1/3, nothing, and for c the others' variance.
    left = (1 / 9 + 0 + fine) / 3
    loss = (2 / 3 + 0 + 1) / 3
    assert found.variances["finetune_seed"][0] == pytest.approx(fine)
    assert found.variances["pretrain_seed"][0] == pytest.approx(means.var(ddof=1) - left)
    assert found.loss[0] == pytest.approx(loss)
    assert found.bias_squared[0] == pytest.approx(loss - fine - means.var(ddof=1) + left)


def simulated(random, keys, sizes, examples, mean):
    """Scores with the given variances, by level, around a mean."""
    scores = np.full((len(keys), examples), mean, dtype=float)
    for depth, variance in enumerate(sizes, start=1):
        effects: dict[tuple, np.ndarray] = {}
        for row, key in enumerate(keys):
            if key[:depth] not in effects:
                effects[key[:depth]] = random.normal(scale=np.sqrt(variance), size=examples)
            scores[row] += effects[key[:depth]]
    return make_runs(scores, keys)


@pytest.mark.parametrize("balanced", [True, False])
def test_known_components_are_recovered(balanced):
    """Three levels with variances 0.5, 0.3, 0.2 and a bias of 0.4: unbiased, lone runs included."""
    keys = [(p, f, c) for p in range(4) for f in range(3) for c in range(2)]
    if not balanced:
        keys = [(p, f, c) for p, f, c in keys if f <= p and c <= (p + f) % 2]
    runs = simulated(np.random.default_rng(3), keys, (0.5, 0.3, 0.2), 60_000, 0.6)
    found = decompose(runs, target=1.0)
    expected = {
        "pretrain_seed": 0.5, "finetune_seed": 0.3, "checkpoint": 0.2, "bias_squared": 0.16,
        "loss": 1.16,
    }  # fmt: skip
    for name, value in expected.items():
        part = found.parts[name]
        assert abs(part.mean - value) < 4 * part.standard_error
        assert part.standard_error < 0.01


def pair_disagreement(scores, keys, shared):
    """Share of disagreeing pairs of runs whose keys differ first at position `shared`; seeds, and
    runs within, counted alike."""
    weights: dict[tuple, list[float]] = {}
    for one, first in enumerate(keys):
        for other, second in enumerate(keys):
            if first[:shared] == second[:shared] and first[shared] != second[shared]:
                group = (first[: shared + 1], second[: shared + 1])
                weights.setdefault(group, []).append(float(scores[one] != scores[other]))
    nodes: dict[tuple, list[float]] = {}
    for (first, _), values in weights.items():
        nodes.setdefault(first[:shared], []).append(float(np.mean(values)))
    return np.mean([np.mean(values) for values in nodes.values()])


@pytest.mark.parametrize("keys", [UNBALANCED, list(np.ndindex(3, 2, 3))])
def test_disagreement_is_the_share_of_pairs_and_twice_the_variances(keys):
    scores = np.random.default_rng(5).integers(0, 2, (len(keys), 50))
    found = decompose(make_runs(scores, keys))
    levels = ("pretrain_seed", "finetune_seed", "checkpoint")[: len(keys[0])]
    for depth, level in enumerate(levels):
        pairs = [pair_disagreement(column, keys, depth) for column in scores.T]
        twice = 2 * sum(found.variances[inner] for inner in levels[depth:])
        for expected in (pairs, twice):
            np.testing.assert_allclose(found.disagreements[level], expected, atol=1e-12)


def test_blocks_change_nothing(monkeypatch):
    scores = np.random.default_rng(8).random((3, 2, 25))
    whole = decompose(scores)
    monkeypatch.setattr("multiberts.papers.zhong.decomposition._BLOCK_CELLS", 24)
    parted = decompose(scores)
    np.testing.assert_array_equal(whole.bias_squared, parted.bias_squared)
    np.testing.assert_array_equal(whole.loss, parted.loss)


def test_a_level_alone_has_no_variance():
    assert decompose(as_runs(np.ones((3, 4)))).parts["loss"].mean == 0


def test_a_ratio_needs_variances_that_are_not_negative():
    """The checkpoints of two runs differ more than the runs: an estimate below 0."""
    runs = np.array([[[1], [1]], [[0], [1]], [[0], [0]]])
    assert decompose(runs).ratios[0] == pytest.approx(1)
    checkpoints = [[[[1], [1]], [[1], [1]]], [[[1], [0]], [[0], [1]]], [[[0], [0]], [[0], [0]]]]
    found = decompose(np.array(checkpoints))
    assert found.parts["finetune_seed"].mean < 0 < found.parts["pretrain_seed"].mean
    assert np.isnan(found.ratios[0])
