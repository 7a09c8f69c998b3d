"""What `make lint` says of pins that are stale."""

import pytest

from multiberts.tests.lint.pins import HEADER, requirements_file, stale

PROJECT = """
[project]
name = "multiberts"
dependencies = ["numpy>=2.4", "tqdm>=4; sys_platform == 'win32'"]
optional-dependencies.engine = ["multiberts[further]", "jax>=0.10; python_version < '3.14'"]
optional-dependencies.further = []
"""
PINS = "numpy==2.4.6 ; python_full_version < '3.12'\nnumpy==2.5.5 ; python_full_version >= '3.12'\n"
REST = "tqdm==4.70.1 ; sys_platform == 'win32'\njax==0.10.2 ; python_full_version < '3.14'\n"


@pytest.mark.parametrize(
    ("constraints", "finding"),
    [
        (PINS + REST, None),
        (PINS + REST.replace("win32", "linux"), "Python 3.11 on win32: tqdm is not pinned"),
        (PINS + REST.replace("3.14", "3.13"), "Python 3.13 on linux: jax is not pinned"),
        (
            PINS.replace("2.5.5", "2.3.5") + REST,
            "Python 3.12 on linux: numpy 2.3.5, expected >=2.4",
        ),
    ],
)
def test_a_pin_must_hold_on_every_python_and_platform(
    constraints: str, finding: str | None
) -> None:
    found = list(stale(constraints, PROJECT))
    assert len(found) == (finding is not None)
    assert finding is None or finding in found[0]


STAGES = """
[project]
name = "multiberts"
dependencies = ["NumPy>=2.4"]
[project.optional-dependencies]
tensorflow = ["multiberts[pipeline]", "tensorflow>=2.20", "tensorflow-text>=2.20; sys_platform != 'win32'"]
pipeline = ["keras>=3.10"]
parquet = ["pyarrow>=17"]
test = ["pytest>=8"]
"""
RESOLVED = """
keras==3.15.1
namex==0.1.0
pyarrow==25.0.1
pytest==9.0.2
tensorflow==2.21.0 ; python_full_version < '3.14'
tensorflow-text==2.21.1 ; python_full_version < '3.14'
"""


def test_requirements_are_what_the_stages_ask_for_themselves() -> None:
    """pytest is of another extra, and namex of Keras, not of us."""
    assert requirements_file(PINS + RESOLVED, STAGES).removeprefix(HEADER) == (
        "numpy==2.4.6 ; python_full_version < '3.12'\nnumpy==2.5.5 ; python_full_version >= '3.12'\n"
        "keras==3.15.1\npyarrow==25.0.1\ntensorflow==2.21.0\n"
        'tensorflow-text==2.21.1 ; sys_platform != "win32"\n'
    )


def test_a_missing_wheel_for_the_newest_python_is_no_missing_pin() -> None:
    assert list(stale(PINS + RESOLVED, STAGES)) == []
