"""What `make lint` says of pins that are stale."""

import pytest

from multiberts.tests.lint.pins import stale

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
        (
            PINS + REST + "tensorflow-text==2.20.1\ntensorflow-cpu==2.21.0\n",
            "expected one series of TensorFlow",
        ),
    ],
)
def test_a_pin_must_hold_on_every_python_and_platform(
    constraints: str, finding: str | None
) -> None:
    found = list(stale(constraints, PROJECT))
    assert len(found) == (finding is not None)
    assert finding is None or finding in found[0]
