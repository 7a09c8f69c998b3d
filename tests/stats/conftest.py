"""Figures are sketches in these tests."""

from multiberts.tests.sketches import drawn_where_marked, sketched  # noqa: F401
