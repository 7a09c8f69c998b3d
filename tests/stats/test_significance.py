"""Corrected p-values against statsmodels."""

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
    assert adjusted_p_values([], ours).shape == (0,)
