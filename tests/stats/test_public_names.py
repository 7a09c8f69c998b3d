"""Public names are imported when they are used, and are those that editors and mypy see."""

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
    rooms = {name.split(".")[1] for name in names if name.startswith("multiberts.")}
    assert "stats" in rooms and not rooms & {"report", "papers"}
    assert not names & {"matplotlib", "pandas", "scipy.optimize", "scipy.stats", "xarray"}


@pytest.mark.processes
def test_the_package_has_the_functions_that_most_people_need():
    assert not loaded("import multiberts\nassert multiberts.__version__") & {"numpy", "ast"}
    names = loaded(
        "import multiberts\nassert multiberts.compare([[1, 0], [1, 1]]).design == 'single'\n"
        "assert multiberts.read is multiberts.stats.read\nassert not hasattr(multiberts, 'no_name')"
    )
    assert not names & {"matplotlib", "pandas", "tensorflow"}


@pytest.mark.processes
def test_files_are_compared_without_labelled_arrays(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("id,old_seed0,old_seed1,new_seed0,new_seed1\na,0,1,1,1\nb,1,0,1,1\nc,1,1,1,0\n")
    names = loaded(f"from multiberts import stats\nprint(str(stats.compare({str(file)!r}))[:0])")
    assert "pandas" in names and not names & {"dask", "matplotlib", "xarray"}


@pytest.mark.processes
def test_a_folder_does_not_hide_the_function_of_its_name():
    loaded("import multiberts.stats.compare.two_arms\nassert callable(multiberts.stats.compare)")
    loaded("from multiberts.stats import compare\nassert callable(compare)")


@pytest.mark.parametrize("package", [stats, stats.b3, stats.zhong])
def test_editors_and_mypy_see_the_names_that_there_are(package):
    assert set(modules_of(package.__name__)) == set(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert not hasattr(package, "nothing")
