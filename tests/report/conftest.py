"""Figures are sketches; the prediction sets of the made-up paper."""

import pytest

from multiberts.tests.sketches import drawn_where_marked, sketched  # noqa: F401
from multiberts.tests.worlds import paper_datasets, sets_of


@pytest.fixture(scope="session")
def prediction_sets():
    return sets_of(paper_datasets().values())
