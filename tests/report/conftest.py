"""Fixtures of these tests."""

from multiberts.tests.made_up_paper import (  # noqa: F401
    analysis,
    datasets,
    drawn_where_marked,
    prediction_sets,
    sizes,
    sketched,
)
