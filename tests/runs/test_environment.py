"""The engine that is asked for and is not there."""

import sys

import pytest

from multiberts.runs import environment
from multiberts.runs.errors import UserError


@pytest.mark.parametrize(
    ("python", "engine", "message"),
    [
        ((3, 13, 1), "tensorflow", r"not installed; .*multiberts\[tensorflow\]"),
        ((3, 14, 0), "tensorflow", r"Python 3\.14; .*multiberts\[jax\]"),
        ((3, 14, 0), "jax", r"not installed; .*multiberts\[jax\]"),
    ],
)
def test_an_engine_that_is_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch, python: tuple[int, ...], engine: str, message: str
) -> None:
    monkeypatch.setattr(sys, "version_info", python)
    # Installed here, as all engines are where the tests run.
    monkeypatch.setattr(environment, "_is_installed", lambda module: False)
    with pytest.raises(UserError, match=f"--engine is '{engine}', .*{message}"):
        environment.check_engine(engine, "--engine")


def test_an_engine_that_nobody_chose_is_refused_as_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    default = environment.DEFAULTS["KERAS_BACKEND"]
    monkeypatch.delenv(environment.ENGINE, raising=False)
    monkeypatch.setenv("KERAS_BACKEND", default)
    monkeypatch.setattr(sys, "version_info", (3, 13, 1))
    monkeypatch.setattr(environment, "_is_installed", lambda module: False)
    with pytest.raises(
        UserError,
        match=f"the default engine is '{default}', .*set {environment.ENGINE}=(?!{default})",
    ):
        environment.engine()
