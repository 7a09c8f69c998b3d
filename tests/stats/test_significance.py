"""Corrected p-values against statsmodels and examples by hand."""

import gc

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from multiberts.stats.significance import adjusted_p_values


@pytest.fixture
def cheap_collections():
    """Has garbage collections pass over what lives already: statsmodels makes a full one per Holm."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("cheap_collections")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("bonferroni", "bonferroni"), ("holm", "holm"), ("bh", "fdr_bh"), ("by", "fdr_by")],
)
def test_adjusted_equals_statsmodels(ours, theirs):
    random = np.random.default_rng(0)
    for number in (1, 2, 7, 50):
        for values in (random.random(number) ** 3, np.round(random.random(number), 1)):
            expected = multipletests(values, method=theirs)[1]
            np.testing.assert_allclose(adjusted_p_values(values, ours), expected, rtol=1e-12)


def test_examples_by_hand():
    values = [0.04, 0.01, 0.03]
    assert adjusted_p_values(values, "holm") == pytest.approx([0.06, 0.03, 0.06])
    assert adjusted_p_values(values, "bh") == pytest.approx([0.04, 0.03, 0.04])
    assert adjusted_p_values(values, "bonferroni") == pytest.approx([0.12, 0.03, 0.09])
    assert adjusted_p_values(values, "by") == pytest.approx(np.array([4, 3, 4]) * 11 / 600)
    assert adjusted_p_values([], "holm").shape == (0,)
