"""Figures are sketches; the made-up paper."""

from multiberts.tests.made_up_paper import analysis, datasets, prediction_sets, sizes  # noqa: F401
from multiberts.tests.sketches import drawn_where_marked, sketched  # noqa: F401
