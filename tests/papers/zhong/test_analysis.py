"""The whole analysis of one small world equals its parts, and leaves out what cannot be known."""

import numpy as np
import pytest

from multiberts.papers.zhong.analysis import analyse_sizes
from multiberts.papers.zhong.decomposition import decompose
from multiberts.papers.zhong.ensembles import ensemble, runs_of_seed
from multiberts.papers.zhong.figures import figure_sections, report_of_sizes
from multiberts.papers.zhong.instance_level import (
    decay_bound,
    fisher_tests,
    improvement_bound,
    threshold_bias,
)
from multiberts.papers.zhong.size_momentum import momentum, momentum_index
from multiberts.papers.zhong.tables import all_tables
from multiberts.report.presentation.sections import write_report
from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import make_runs

SIZES = ("mini", "medium", "large")


def test_results_are_those_of_the_functions(sizes, analysis):
    pair = next(item for item in analysis.pairs if item.large == "large")
    assert (pair.task, pair.small) == ("NLI", "mini")
    votes = [ensemble(sizes[name]) for name in ("mini", "large")]
    assert pair.decay.bound == decay_bound(*votes).bound > 0
    assert pair.gain == pytest.approx(sizes["large"].mean() - sizes["mini"].mean())
    assert pair.single.bound == decay_bound(sizes["mini"][:, 0], sizes["large"][:, 0]).bound
    of_each = [
        decay_bound(*(runs_of_seed(sizes[name], seed) for name in ("mini", "large"))).bound
        for seed in range(6)
    ]
    assert pair.of_one_seed == pytest.approx(np.mean(of_each))
    found = analysis.decompositions["NLI", "0/1"]["large"]
    np.testing.assert_array_equal(found.bias_squared, decompose(sizes["large"]).bias_squared)
    assert analysis.momenta["NLI"][SIZES] == momentum(*sizes.values())
    index = analysis.momentum_indices["NLI"][SIZES]
    assert index.pooled == momentum_index(*sizes.values()).pooled
    assert analysis.accuracies["NLI"]["mini"].mean == pytest.approx(sizes["mini"].mean())


def test_what_the_data_do_not_allow_is_left_out(sizes, analysis):
    single = next(pair for pair in analysis.pairs if pair.task == "one run")
    assert single.of_one_seed is None
    assert single.single.bound == single.decay.bound
    assert analysis.accuracies["one run"]["mini"].ensembled is None
    assert list(analysis.decompositions["one run", "0/1"]["mini"].variances) == ["pretrain_seed"]
    few = {size: runs[:2] for size, runs in sizes.items()}
    found = analyse_sizes({"NLI": few}, n_resamples=40, with_curves=True)
    assert found.curves["NLI", "0/1"] == {}
    lone = analyse_sizes({"NLI": {size: runs[:1, 0] for size, runs in sizes.items()}})
    assert lone.decompositions == {("NLI", "0/1"): {}} and lone.momenta == {"NLI": {}}
    assert "momentum" not in all_tables(lone)
    assert "figure_decomposition" not in {section.name for section in figure_sections(lone)}


def test_a_curve_that_cannot_be_fitted_does_not_stop_the_page(sizes, tmp_path):
    two = {size: sizes[size] for size in ("mini", "large")}
    alike = {size: np.tile(runs[..., :1] * 0 + [0, 1], 150) for size, runs in two.items()}
    result = analyse_sizes({"hard": two, "easy": alike}, n_resamples=40)
    assert {split for split, _, _ in result.refused_curves} == {("easy", "0/1")}
    assert {*result.curves["hard", "0/1"]} == {"pretrain_seed", "finetune_seed"}
    left_out = write_report(tmp_path / "report", report_of_sizes(result))
    reason = left_out["figure_variance_given_bias_easy_pretrain_seed_mini"]
    assert "groups of examples that differ in bias, expected 3" in reason
    page = (tmp_path / "report" / "index.html").read_text()
    assert "against its bias (easy: pre-training, mini)" in page


def test_given_votes_are_used(sizes):
    wrong = {size: np.zeros((6, 300), int) for size in SIZES}
    found = analyse_sizes({"NLI": sizes}, {"NLI": wrong}, n_resamples=40, with_curves=False)
    assert all(pair.decay.bound == 0 for pair in found.pairs)
    assert found.accuracies["NLI"]["mini"].ensembled == 0


@pytest.mark.parametrize(
    "compare",
    [
        decay_bound,
        improvement_bound,
        threshold_bias,
        fisher_tests,
        lambda small, large: momentum(small, small, large),
        lambda small, large: momentum_index(small, large, large),
        lambda small, large: analyse_sizes({"t": {"small": small, "large": large}}),
        lambda small, large: analyse_sizes(
            {"t": {"small": small, "large": small}}, {"t": {"small": large, "large": large}}
        ),
    ],
)
def test_two_orders_of_the_examples_are_not_taken_for_one(compare):
    """One model on both sides, in two orders: by position the bound finds decay that is not there."""
    scores = np.repeat(np.random.default_rng(0).integers(0, 2, 200)[None], 6, axis=0)
    ids, seeds = np.arange(200), range(6)
    same = make_runs(scores, seeds, example_ids=ids)
    assert decay_bound(same, make_runs(scores[:, ::-1], seeds, None, ids[::-1])).bound == 0
    without = make_runs(scores[:, ::-1], seeds)
    for sides in ((same, without), (without, same)):
        with pytest.raises(DataError, match="has example ids .*none"):
            compare(*sides)
