"""Public names are imported when they are used, and are those that editors and mypy see."""

import inspect
import json
import subprocess
import sys

import pytest

from multiberts import stats
from multiberts.stats.public_names import modules_of


def loaded(code: str) -> set[str]:
    """Returns the modules that a fresh Python has after it ran some code."""
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.processes
def test_a_name_imports_what_it_needs_and_no_more():
    package = {name for name in loaded("import multiberts.stats") if "multiberts" in name}
    assert {name for name in package if not name.startswith("_")} == {
        "multiberts", "multiberts.stats", "multiberts.stats.public_names"
    }  # fmt: skip
    arrays = "[[0, 1, 1], [1, 0, 1]], [[1, 1, 1], [1, 0, 1]]"
    names = loaded(f"from multiberts import stats\nstats.compare({arrays})")
    rooms = {name.split(".")[2] for name in names if name.startswith("multiberts.stats.")}
    assert "compare" in rooms and not rooms & {"b3", "instances", "paper", "report"}
    assert not names & {"matplotlib", "scipy.optimize", "scipy.stats"}


@pytest.mark.processes
def test_a_folder_does_not_hide_the_function_of_its_name():
    loaded("import multiberts.stats.compare.question\nassert callable(multiberts.stats.compare)")
    loaded("from multiberts.stats import compare\nassert callable(compare)")


def test_editors_and_mypy_see_the_names_that_there_are():
    folders = {name for name in stats.__all__ if inspect.ismodule(getattr(stats, name))}
    assert {*modules_of("multiberts.stats")} == {*stats.__all__} - folders
    assert set(stats.__all__) <= set(dir(stats))
    assert all(getattr(stats, name) is not None for name in stats.__all__)
    assert not hasattr(stats, "nothing")
