"""The examples in the docstrings of the public names run and print what they show."""

import doctest

import pytest

from multiberts import stats


@pytest.mark.parametrize("name", stats.__all__)
def test_the_example_of(name):
    found = doctest.DocTestFinder(recurse=False).find(getattr(stats, name), name)
    examples = [test for test in found if test.examples]
    assert examples, f"stats.{name} has no example"
    results = [doctest.DocTestRunner().run(test) for test in examples]
    assert sum(result.failed for result in results) == 0
