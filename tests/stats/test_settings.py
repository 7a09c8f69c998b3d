"""Settings of comparisons stand in one place: their names, types and defaults."""

import dataclasses
import inspect

import numpy as np
import pytest

from multiberts import stats
from multiberts.papers.multiberts.reproduction import paper
from multiberts.report.compare_command import compare_files
from multiberts.report.reporting import report
from multiberts.stats.settings import ComparisonSettings


@pytest.mark.parametrize("command", [report, paper, compare_files])
def test_commands_have_the_defaults_of_the_library(command):
    defaults = {field.name: field.default for field in dataclasses.fields(ComparisonSettings)}
    shared = {
        name: parameter.default
        for name, parameter in inspect.signature(command).parameters.items()
        if name in defaults
    }
    own = {"confidence_level"} if command is not paper else set()  # the paper's is 95 %
    assert {"n_resamples", "rng", *own} <= set(shared)
    assert shared == {name: defaults[name] for name in shared}


@pytest.mark.parametrize("function", [stats.compare, stats.compare_arms, stats.compare_tasks])
def test_functions_show_their_options_with_the_settings_defaults(function):
    """No option is passed on unseen, only data count by position, and one default is the same everywhere."""
    parameters = inspect.signature(function).parameters
    assert all(item.kind is not item.VAR_KEYWORD for item in parameters.values())
    defaults = {field.name: field.default for field in dataclasses.fields(ComparisonSettings)}
    shared = {name: item for name, item in parameters.items() if name in defaults}
    lacking = {*defaults} - {*shared}
    if function is stats.compare:
        assert lacking == {"draws"}
    assert lacking <= {"draws"}
    assert all(item.kind is item.KEYWORD_ONLY for item in shared.values())
    assert all(item.default == defaults[name] for name, item in shared.items())


def test_a_generator_gives_the_number_of_the_draws():
    scores = np.random.default_rng(0).random((2, 4, 30))
    first = stats.compare(*scores, rng=np.random.default_rng(5), n_resamples=50)
    again = stats.compare(*scores, rng=first.rng, n_resamples=50)
    assert first == again and first.rng != 42
    other = np.random.default_rng(5)
    pair = [stats.compare(*scores, rng=other, n_resamples=50) for _ in range(2)]
    assert pair[0] == first != pair[1] != "text" and (pair[1].samples != first.samples).any()
