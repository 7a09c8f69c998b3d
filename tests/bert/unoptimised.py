"""Calls with an engine whose compiler does not optimise, which takes half of its time."""

from __future__ import annotations

from typing import Any

from multiberts.runs.environment import ENGINE
from multiberts.tests.tools import warm


def call(engine: str, function: str, *arguments: Any) -> Any:
    """As `warm.call`; the values are those of the optimised program up to rounding."""
    flags = {ENGINE: engine, "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    return warm.call(function, *arguments, kind=engine, **flags)
