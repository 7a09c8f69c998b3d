"""Public names are imported when they are used, and are those that editors and mypy see."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import multiberts
from multiberts import stats


def loaded(*codes: str) -> list[set[str]]:
    """Returns the modules that a fresh Python has after each of some pieces of code."""
    note = "print(json.dumps(sorted(sys.modules)))"
    script = "\n".join(["import json, sys", *(f"{code}\n{note}" for code in codes)])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.processes
def test_a_name_imports_what_it_needs_and_no_more():
    arrays = "[[0, 1, 1], [1, 0, 1]], [[1, 1, 1], [1, 0, 1]]"
    root, package, names, both = loaded(
        "import multiberts\nassert multiberts.__version__",
        "from multiberts import stats",
        f"from multiberts.stats import compare\ncompare({arrays})",
        "assert multiberts.compare([[1, 0], [1, 1]]).design == 'single'\n"
        "assert multiberts.read is stats.read\nassert not hasattr(multiberts, 'no_name')",
    )
    assert not root & {"numpy", "ast"}
    ours = {name for name in package if "multiberts" in name and not name.startswith("_")}
    assert ours == {"multiberts", "multiberts.stats", "multiberts.stats.public_names"}
    rooms = {name.split(".")[1] for name in names if name.startswith("multiberts.")}
    assert "stats" in rooms and not rooms & {"report", "papers"}
    assert not names & {"matplotlib", "pandas", "scipy.optimize", "scipy.stats", "xarray"}
    assert not both & {"matplotlib", "pandas", "tensorflow"}


@pytest.mark.processes
def test_files_are_compared_without_labelled_arrays(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("id,old_seed0,old_seed1,new_seed0,new_seed1\na,0,1,1,1\nb,1,0,1,1\nc,1,1,1,0\n")
    [names] = loaded(f"from multiberts import stats\nstr(stats.compare({str(file)!r}))")
    assert "pandas" in names and not names & {"dask", "matplotlib", "xarray"}


@pytest.mark.processes
def test_a_folder_does_not_hide_the_function_of_its_name():
    loaded("import multiberts.stats.compare.two_arms\nassert callable(multiberts.stats.compare)")


def in_stub(package):
    """Returns the public names in the stub of a package, and its text."""
    text = Path(f"{package.__file__}i").read_text(encoding="utf-8")
    values = [each.value for each in ast.parse(text).body if isinstance(each, ast.Assign)]
    return ast.literal_eval(values[0]), text


def test_only_the_package_of_the_project_lists_names_of_rooms_above():
    seen, _ = in_stub(multiberts)
    assert {*seen} <= {*dir(multiberts)} and multiberts.stats is stats
    assert all(getattr(multiberts, name) is getattr(stats, name) for name in seen)
    assert not re.findall(r"multiberts\.(?:papers|report)", in_stub(stats)[1])


@pytest.mark.parametrize("package", [stats, stats.b3, stats.zhong])
def test_editors_and_mypy_see_the_names_that_there_are(package):
    seen, _ = in_stub(package)
    assert set(seen) == set(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert not hasattr(package, "nothing")
