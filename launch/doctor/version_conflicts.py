"""Compares the installed packages with the pinned versions, and with what they require of each other."""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from multiberts.launch.doctor.findings import OK, PROBLEM, WARNING, CheckResult

OLDEST_PYTHON = (3, 11)
# Reported with their versions where installed.
_SHOWN = (
    *("tensorflow", "tensorflow-cpu", "keras", "jax", "numpy"),
    *("protobuf", "distributed", "dask-jobqueue", "google-cloud-tpu", "gcsfs"),
)
# All of them install the package `tensorflow` and overwrite each other's files.
_TENSORFLOWS = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tensorflow-gpu", "tensorflow-rocm"),
    *("tensorflow-cpu-aws", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu", "intel-tensorflow"),
)
_PROJECT = Path(__file__).resolve().parents[2]
# Extras that every stage needs, whichever engine computes.
_EXTRAS = ("pipeline", "launch")


def check_versions() -> list[CheckResult]:
    """Checks the versions of Python and of all installed packages; imports none of them."""
    installed = installed_versions()
    version = ".".join(map(str, sys.version_info[:3]))
    python = CheckResult(OK, "Python", f"{version} in {sys.prefix}")
    if sys.version_info < OLDEST_PYTHON:
        cure = f"make an environment with Python {'.'.join(map(str, OLDEST_PYTHON))} or later"
        python = CheckResult(PROBLEM, "Python", version, cure)
    checks = (_check_pins(installed), *_check_tensorflow(installed))
    return [python, *checks, *declared_conflicts(installed)]


def installed_versions() -> dict[str, str]:
    """Returns the versions of all installed packages, by canonical name."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # The first on the path counts, as on import.
        found.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution.version)
    return found


def declared_conflicts(installed: Mapping[str, str]) -> list[CheckResult]:
    """Returns the declared requirements of our packages that are not met."""
    unmet = set()
    ours = _pins()
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.metadata["Name"])
        for requirement in _applicable((distribution.requires or ()) if name in ours else ()):
            versions = [installed[one] for one in _names(requirement) if one in installed]
            if not versions:
                unmet.add(f"{name} needs {requirement.name}, which is missing")
            elif not requirement.specifier.contains(versions[0], prereleases=True):
                wanted = f"{requirement.name}{requirement.specifier}"
                unmet.add(f"{name} needs {wanted}, not {versions[0]}")
    if not unmet:
        return []
    cure = (
        "pip install -c constraints.txt '.[tensorflow]' into a fresh environment, or another extra"
    )
    return [CheckResult(WARNING, "versions", _first_four(sorted(unmet), "; "), cure)]


def _applicable(texts: Iterable[str]) -> Iterator[Requirement]:
    for text in texts:
        with contextlib.suppress(InvalidRequirement, UndefinedEnvironmentName):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield requirement


def _names(requirement: Requirement) -> Sequence[str]:
    name = canonicalize_name(requirement.name)
    return _TENSORFLOWS if name == "tensorflow" else (name,)


def _check_pins(installed: Mapping[str, str]) -> CheckResult:
    """Reports packages that every stage needs and that are missing, then those that are not as pinned."""
    shown = ", ".join(f"{name} {installed[name]}" for name in _SHOWN if name in installed)
    pins = _pins()
    missing = [f"{name} missing (pinned: {pins[name]})" for name in _needed() - installed.keys()]
    off = [
        f"{name} {installed[name]} (pinned: {pin})"
        for name, pin in pins.items()
        if installed.get(name, pin) != pin
    ]
    if not missing and not off:
        return CheckResult(OK, "versions", f"{shown or 'none installed'}; all as pinned")
    return CheckResult(
        PROBLEM if missing else WARNING,
        "versions",
        f"{shown}; other than pinned: {_first_four([*sorted(missing), *off], ', ')}",
        "pip install -c constraints.txt '.[tensorflow]' (gpu, jax-cuda12, jax-tpu, ...); the tests ran with "
        "the pinned versions",
    )


def _first_four(words: Sequence[str], separator: str) -> str:
    more = f"{separator}and {len(words) - 4} more" if len(words) > 4 else ""
    return separator.join(words[:4]) + more


def _pins() -> dict[str, str]:
    """Returns the version that constraints.txt pins for this Python, by canonical name."""
    lines = (_PROJECT / "constraints.txt").read_text().splitlines()
    applicable = _applicable(line.partition("#")[0].strip() for line in lines)
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in applicable
    }


def _needed() -> set[str]:
    project = tomllib.loads((_PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for extra in _EXTRAS for text in extras[extra])]
    return {str(canonicalize_name(each.name)) for each in _applicable(texts)} - {"multiberts"}


def _check_tensorflow(installed: Mapping[str, str]) -> list[CheckResult]:
    """Reports a missing TensorFlow where JAX is missing, too, and several that overwrite each other."""
    present = [name for name in _TENSORFLOWS if name in installed]
    if len(present) == 1 or (not present and "jax" in installed):
        return []
    if not present:
        cure = "pip install '.[tensorflow]' ([gpu] for NVIDIA, [jax-tpu] for Cloud TPU)"
        return [CheckResult(PROBLEM, "versions", "TensorFlow is not installed", cure)]
    found = f"{' and '.join(present)} are both installed and overwrite each other's files"
    cure = f"pip uninstall {' '.join(present)}, then install the one extra you need"
    return [CheckResult(PROBLEM, "versions", found, cure)]
