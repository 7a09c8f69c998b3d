"""What the analyses of papers refuse: each call with its line."""

from functools import partial

import numpy as np
import pytest

from multiberts.papers.b3.fit import profile, solve
from multiberts.papers.b3.leakage import binomial_matrix
from multiberts.papers.b3.model import B3Model, estimate
from multiberts.papers.multiberts.catalogue import group_scores
from multiberts.papers.multiberts.figures import (
    agreement_figure,
    power_figure,
    score_figure,
    seeds_figure,
    variance_figure,
)
from multiberts.papers.multiberts.run_agreement import agreement
from multiberts.papers.multiberts.tables import comparison_table
from multiberts.papers.zhong.analysis import analyse_sizes
from multiberts.papers.zhong.decomposition import decompose
from multiberts.papers.zhong.ensembles import ensemble
from multiberts.papers.zhong.instance_level import (
    decay_bound,
    fisher_tests,
    improvement_bound,
    relative_threshold_bias,
    threshold_bias,
)
from multiberts.papers.zhong.size_momentum import momentum
from multiberts.papers.zhong.variance_by_bias import conditional_variance, variance_curve
from multiberts.report.presentation.figures import sources_figure
from multiberts.runs.errors import UserError
from multiberts.stats.runs_table import make_runs
from multiberts.stats.variance.components import VarianceComponents
from multiberts.tests.papers.b3.test_model import HALVES, designed
from multiberts.tests.papers.multiberts.test_run_agreement import data

PARTS = VarianceComponents(seed=0.02, example=0.1, residual=0.3, run=0.01, run_residual=0.2)
RIGHT = np.ones((2, 2, 5), int)
ONE_EACH = RIGHT[:, 0]
TEN = np.ones((3, 10))


def runs_of_seeds(*numbers):
    keys = [(seed, run) for seed, number in enumerate(numbers) for run in range(number)]
    return make_runs(np.ones((len(keys), 2), int), keys)


NO_ESTIMATOR = type("E", (), {"fit": 0, "predict": 0})()
DESIGN = designed(HALVES, num_train=5, num_draws=2)
REFUSALS = [
    ("expected one loss per leakage", lambda: solve(5, [0.1, 0.5], [0.3])),
    ("found nan at level 1", lambda: solve(5, [0.1, 0.5], [0.3, np.nan])),
    ("found -0.1 at level 1, expected finite losses of 0 or more", lambda: solve(5, [0.1, 0.5], [0.3, -0.1])),
    ("found no candidates", lambda: profile(5, [0.0, 0.5], [0.3, 0.2], [])),
    ("probabilities", lambda: binomial_matrix(5, [0.5, 1.1])),
    (
        "X of shape .*a row of both per group",
        lambda: estimate(NO_ESTIMATOR, np.zeros((3, 1)), [0, 1, 1], HALVES, B3Model(0.1)),
    ),
    ("found level 11", lambda: DESIGN.draws(11)),
    ("1 run and 3 examples", lambda: agreement(data(np.zeros((1, 3)), [0]))),
    ("kind 'kappa'", lambda: agreement(data(np.zeros((2, 3)), [0, 1]), "kappa")),
    ("expected finite", lambda: agreement(data(np.array([[0.0, np.nan], [1, 0]]), [0, 1]))),
    ("0 comparisons", lambda: comparison_table([])),
    ("groups of no evaluation set", lambda: group_scores([])),
    ("nothing to draw", lambda: score_figure([])),
    ("no scores to draw", lambda: seeds_figure([], "score")),
    ("no comparisons to draw", lambda: sources_figure([])),
    ("no agreements to draw", lambda: agreement_figure({})),
    ("no variance components", lambda: variance_figure({}, {})),
    ("no effects or no numbers", lambda: power_figure([], [2], PARTS)),
    ("no task or no size", lambda: analyse_sizes({"NLI": {}})),
    (
        r"^NLI: set 1 has 10 .*\(set 1: small, set 2: large\)$",
        lambda: analyse_sizes({"NLI": {"small": TEN, "large": np.ones((2, 9))}}),
    ),
    ("finetune_seed alone", lambda: decompose(np.ones((3, 1, 4)))),
    ("pretrain_seed alone", lambda: decompose(np.ones((1, 3, 4)))),
    (r"a score of 0\.5", lambda: ensemble(np.full((1, 2, 3), 0.5))),
    ("expected one per seed", lambda: fisher_tests(RIGHT, RIGHT)),
    ("expected 0", lambda: decay_bound(0.5 * RIGHT, RIGHT)),
    ("below 0", lambda: decay_bound(RIGHT, RIGHT, threshold=0.2)),
    ("above 0", lambda: improvement_bound(RIGHT, RIGHT, threshold=-0.2)),
    ("ensemble the runs", lambda: decay_bound(runs_of_seeds(13, 11, 7), runs_of_seeds(19, 17, 30))),
    ("6 runs of 3", lambda: relative_threshold_bias(*np.ones((2, 3, 2, 20), int))),
    *(  # else it would be that of improvement
        (
            "direction 'worse', expected one of decay, improvement",
            partial(statistic, ONE_EACH, ONE_EACH, "worse"),
        )
        for statistic in (fisher_tests, threshold_bias, relative_threshold_bias)
    ),
    ("found level 5, expected a false discovery rate", lambda: fisher_tests(ONE_EACH, ONE_EACH, level=5)),
    ("confidence_level 95", lambda: decay_bound(ONE_EACH, ONE_EACH).lower_limit(95)),
    ("1 .*seed .*large size, .*2", lambda: momentum(TEN, TEN, TEN[:1])),
    ("confidence_level 95", lambda: momentum(TEN, TEN, TEN, confidence_level=95)),
    (r"expected \[examples\] twice", lambda: variance_curve(np.zeros(3), np.zeros(4))),
    ("not finite", lambda: variance_curve([0, 1, np.nan], [0, 1, 2])),
    ("2 groups", lambda: variance_curve([0, 0, 1, 1], [0, 1, 2, 3])),
    ("4 or more", lambda: conditional_variance(np.ones((3, 2, 5)))),
    ("no level checkpoint", lambda: conditional_variance(np.ones((4, 2, 5)), "checkpoint")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "call"), REFUSALS)
def test_a_call_is_refused_in_one_line(line, call):
    with pytest.raises(UserError, match=line) as refused:
        call()
    assert "\n" not in str(refused.value)
