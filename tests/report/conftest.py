"""Figures are sketches; predictions of the made-up paper."""

from multiberts.tests.made_up_paper import datasets, prediction_sets  # noqa: F401
from multiberts.tests.sketches import drawn_where_marked, sketched  # noqa: F401
