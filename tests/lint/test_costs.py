"""A folder whose tests cost more than a fifth above its budget is named, and fails a whole run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from multiberts.tests.tools.costs import over_budget

ROOT = Path(__file__).parents[2]
BUDGETS = {"tests/bert": 10.0, "rest": 1.0}


def test_a_folder_above_its_budget_is_named_with_its_costliest_tests() -> None:
    seconds = {f"tests/bert/test_a.py::test_{number}": 6.0 + number for number in range(4)}
    [line], fails = over_budget(seconds | {"tests/lint/test_b.py::test": 2.0}, 2.0, BUDGETS)
    assert (
        line.startswith("tests/bert takes 15.0 units of 2.0 CPU seconds, its budget in ") and fails
    )
    assert re.findall(r"(test_\d) \((.*?)\)", line) == [
        ("test_3", "4.5"),
        ("test_2", "4.0"),
        ("test_1", "3.5"),
    ]


def test_a_machine_of_half_the_speed_does_not_matter_and_a_fifth_is_allowed() -> None:
    seconds = {"tests/bert/test_a.py::test": 23.9, "tests/test_b.py::test": 2.3}
    doubled = {name: 2 * value for name, value in seconds.items()}
    for one_unit, given in ((2.0, seconds), (4.0, doubled)):
        lines, fails = over_budget(given, one_unit, BUDGETS)
        assert len(lines) == 2 and not fails
    assert over_budget(doubled, 2.0, BUDGETS)[1]


def test_a_folder_may_take_what_another_one_saves() -> None:
    """As on a machine where TensorFlow is fast and NumPy slow."""
    seconds = {"tests/bert/test_a.py::test": 16.0, "tests/test_b.py::test": 5.0}
    lines, fails = over_budget(seconds, 2.0, BUDGETS)
    assert len(lines) == 1 and lines[0].startswith("rest ") and not fails


def test_every_folder_with_a_budget_is_there() -> None:
    units = tomllib.loads((ROOT / "tests/lint/budget.toml").read_text())["units"]
    assert all((ROOT / folder).exists() for folder in units.keys() - {"rest"})


@pytest.mark.slow
def test_a_run_above_its_budget_fails_and_says_so(tmp_path: Path) -> None:
    """With pytest-xdist, whose workers alone know the units."""
    start = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2"]
    for most, status in ((100, 0), (1e-6, 1)):
        (tmp_path / "budget.toml").write_text(f"[units]\nrest = {most}\n")
        flags = [f"--units={tmp_path / 'budget.toml'}", "tests/lint/test_budget.py"]
        done = subprocess.run([*start, *flags], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        assert ("error: rest takes" in done.stdout) == bool(status)
        assert "A unit of this machine: " in done.stdout


def test_tests_see_what_a_login_gives_and_no_settings_of_ones_own() -> None:
    """PYTHONDONTWRITEBYTECODE doubled their time; KERAS_BACKEND or CDPATH would change what they find."""
    own = {
        "CDPATH": "/",
        "KERAS_BACKEND": "jax",
        "MULTIBERTS_ENGINE": "jax",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    code = (
        "import json, os, sys\nfrom multiberts.tests import conftest\n"
        "print(json.dumps([sys.dont_write_bytecode, dict(os.environ)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **own}, capture_output=True, text=True
    )
    writes_none, environment = json.loads(done.stdout)
    assert not writes_none and environment["HOME"] == os.environ["HOME"]
    assert own.items().isdisjoint(environment.items())
    assert {"CDPATH", "MULTIBERTS_ENGINE", "PYTHONDONTWRITEBYTECODE"}.isdisjoint(environment)
