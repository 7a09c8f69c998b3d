"""Few rows are answered in NumPy, as TensorFlow answers them, in a process that does not import it."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from multiberts.finetune.prediction import predict
from multiberts.runs.environment import ENGINE, is_engine_open
from multiberts.tests.tools import warm

_HEAVY = ("tensorflow", "keras", "jax", "torch")


def printed(model: str, files: list[str], **more: Any) -> list[dict[str, Any]]:
    """Returns the lines of `multiberts predict`."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        predict(model=model, files=files, **more)
    return [json.loads(line) for line in output.getvalue().splitlines()]


def printed_by_default(model: str, files: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the lines, and which libraries of arrays this process has imported."""
    return printed(model, files), [name for name in _HEAVY if name in sys.modules]


def check_few_rows(model: Path, *files: Path | str) -> None:
    """Compares the answers to few rows with those of TensorFlow, and looks at what was imported for them."""
    if not is_engine_open():
        pytest.skip("an engine is named, or there is an accelerator")
    call = str(model), list(map(str, files))
    lines, imported = warm.call("finetune.few_rows:printed_by_default", *call, **{ENGINE: ""})
    assert imported == []
    expected = printed(*call, compile_step=False)
    assert [list(line) for line in lines] == [list(line) for line in expected]
    for line, other in zip(lines, expected, strict=True):
        for name, value in other.items():
            parts = list(value.values()) if isinstance(value, dict) else value
            first = parts[0] if isinstance(parts, list) and parts else parts
            if isinstance(first, float):
                value = pytest.approx(value, rel=1e-5, abs=1e-5)
            assert line[name] == value
