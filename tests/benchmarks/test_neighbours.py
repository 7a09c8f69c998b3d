"""The neighbours' intervals against the programs and formulas they come from."""

import numpy as np
import pandas as pd
import pytest

from multiberts.benchmarks.neighbours import neighbour_intervals

pytestmark = pytest.mark.seconds


def tables(seed: int, *effects: float, sides: int = 1) -> list[np.ndarray]:
    """Tables [1, seeds 4, examples 12] with effects of seeds and examples."""
    random = np.random.default_rng(seed)
    return [
        effects[0] * random.normal(size=(1, 4, 1))
        + effects[1] * random.normal(size=(1, 1, 12))
        + random.normal(size=(1, 4, 12))
        for _ in range(sides)
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_mixed_model_is_that_of_statsmodels():
    from statsmodels.regression.mixed_linear_model import MixedLM

    (table,) = tables(1, 0.8, 0.7)
    seeds, examples = np.divmod(np.arange(48), 12)
    frame = pd.DataFrame({"y": table.ravel(), "seed": seeds, "example": examples, "all": 1})
    parts = {"seed": "0 + C(seed)", "example": "0 + C(example)"}
    theirs = MixedLM.from_formula(
        "y ~ 1", groups="all", vc_formula=parts, re_formula="0", data=frame
    ).fit(reml=True)
    low, high = neighbour_intervals([table], False, np.random.default_rng(0))["mixed"][0]
    assert (low, high) == pytest.approx(tuple(theirs.conf_int().loc["Intercept"]), abs=0.002)


@pytest.mark.parametrize("effects", [(0.0, 0.7), (0.8, 0.0), (0.0, 0.0), (0.5, 0.5)])
@pytest.mark.parametrize("sides", [1, 2])
def test_the_mixed_model_has_the_largest_restricted_likelihood(effects, sides):
    """Of mean squares with these expectations, none of which is below the residual's."""
    from scipy.optimize import minimize

    found = tables(4, *effects, sides=sides)
    low, high = neighbour_intervals(found, False, np.random.default_rng(0))["mixed"][0]
    ours = ((high - low) / 2 / 1.959964) ** 2
    by_seed = np.concatenate([t[0].mean(1) - t.mean() for t in found])
    cells = [t[0] - t[0].mean(0) - t[0].mean(1)[:, None] + t.mean() for t in found]
    means = (found[-1] - (found[0] if sides == 2 else 0))[0].mean(0)
    squares = np.array(
        [12 * (by_seed**2).sum(), 4 / sides * (means - means.mean()) @ (means - means.mean()),
         sum((cell**2).sum() for cell in cells)]
    )  # fmt: skip
    freedoms = np.array([sides * 3, 11, sides * 33])

    def deviance(parameters):
        residual = np.exp(parameters[2])
        expected = np.array([*(residual + np.exp(parameters[:2])), residual])
        return (freedoms * np.log(expected) + squares / expected).sum()

    best = min((minimize(deviance, start, method="Nelder-Mead",
                         options={"maxiter": 4000, "xatol": 1e-7, "fatol": 1e-10})
                for start in ([0, 0, 0], [-9, 0, 0], [0, -9, 0], [-9, -9, 0])),
               key=lambda result: result.fun)  # fmt: skip
    seeds, examples, residual = np.exp(best.x)
    assert ours == pytest.approx(sides * (seeds + examples + residual) / 48, rel=0.01)


def test_millers_errors_are_those_of_his_formulas():
    first, second = tables(2, 0.5, 1.0, sides=2)
    for size in (1, 3):
        values = (second - first)[0].mean(axis=0)
        centred = values - values.mean()
        square = centred @ centred / (11 * 12)
        if size > 1:  # clustered: pairs within a cluster added to the squares
            square = sum(np.outer(c, c).sum() for c in centred.reshape(-1, size)) / 12**2
        found = neighbour_intervals(
            [first, second], False, np.random.default_rng(0), cluster_size=size
        )["miller"][0]
        reach = 1.959964 * np.sqrt(square)
        assert found == pytest.approx([values.mean() - reach, values.mean() + reach])


def test_the_stratified_bootstrap_is_archs_over_seeds():
    from arch.bootstrap import IIDBootstrap

    (table,) = tables(3, 1.0, 0.2)
    ours = neighbour_intervals([table], False, np.random.default_rng(0))["rliable"][0]
    theirs = IIDBootstrap(table[0].mean(axis=1), seed=1).conf_int(
        np.mean, 4000, method="percentile"
    )
    assert ours == pytest.approx(theirs.ravel(), abs=0.1 * np.ptp(theirs))


def test_seeds_alone_are_scipys_t_tests():
    from scipy.stats import ttest_ind, ttest_rel

    first, second = tables(5, 0.7, 0.3, sides=2)
    scores = [side[0].mean(axis=1) for side in (second, first)]
    for paired, test in (
        (True, ttest_rel(*scores)),
        (False, ttest_ind(*scores, equal_var=False)),
    ):
        found = neighbour_intervals([first, second], paired, np.random.default_rng(0))["seeds"][0]
        assert found == pytest.approx(tuple(test.confidence_interval(0.95)))


def test_posteriors_have_the_quantiles_of_beta_and_dirichlet():
    random = np.random.default_rng(6)
    first, second = ((random.random((1, 5, 40)) < p).astype(float) for p in (0.6, 0.75))
    one = neighbour_intervals([first], False, random, [first])["bayes"][0]
    from scipy.stats import beta

    good = first.sum()
    assert one == pytest.approx(beta(1 + good, 201 - good).ppf([0.025, 0.975]))
    for paired in (True, False):
        low, high = neighbour_intervals([first, second], paired, random, [first, second])["bayes"][
            0
        ]
        # By the moments of the posterior: normal with as many answers.
        both = np.array(
            [[1.0 + ((first == a) & (second == b)).sum() for b in (0, 1)] for a in (0, 1)]
        )
        total = both.sum()
        mean, spread = (both[0, 1] - both[1, 0]) / total, (both[0, 1] + both[1, 0]) / total
        variance = (spread - mean**2) / (total + 1)
        if not paired:
            shares = [(1 + side.sum()) / 202 for side in (first, second)]
            mean = shares[1] - shares[0]
            variance = sum(share * (1 - share) / 203 for share in shares)
        reach = 1.959964 * np.sqrt(variance)
        assert (low, high) == pytest.approx((mean - reach, mean + reach), abs=0.15 * reach)
