"""Settings of comparisons stand in one place: their names, types and defaults."""

import dataclasses
import inspect
import typing

import pytest

from multiberts.stats.paper.reproduction import paper
from multiberts.stats.report.own_predictions import compare_files
from multiberts.stats.report.reporting import report
from multiberts.stats.settings import ComparisonOptions, ComparisonSettings


@pytest.mark.parametrize("command", [report, paper, compare_files])
def test_commands_have_the_defaults_of_the_library(command):
    defaults = {field.name: field.default for field in dataclasses.fields(ComparisonSettings)}
    shared = {
        name: parameter.default
        for name, parameter in inspect.signature(command).parameters.items()
        if name in defaults
    }
    assert {"n_resamples", "rng", "confidence_level"} <= set(shared)
    assert shared == {name: defaults[name] for name in shared}


def test_keyword_arguments_are_the_settings_but_the_design():
    settings = typing.get_type_hints(ComparisonSettings)
    assert settings.pop("design")
    assert typing.get_type_hints(ComparisonOptions) == settings


def test_options_give_the_same_settings_again():
    settings = ComparisonSettings("unpaired", resample="seeds", n_resamples=100)
    assert ComparisonSettings("unpaired", **settings.options()) == settings
