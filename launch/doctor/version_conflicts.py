"""Finds libraries whose versions do not work together.

Most conflicts are declared: each installed package is compared with its own requirements. The table
`KNOWN` holds those that are not declared; each entry names its date and source.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
# Requirements files whose packages a working installation has.
_FILES = ("", "-core", "-gpu", "-jax-tpu", "-cloud")


@dataclass(frozen=True)
class Conflict:
    """Two packages that pip installs together but that do not work together.

    Attributes:
      first, second: names and versions as in requirements files.
      effect: what happens.
      cure: what to do.
      known: date (year and month) and source.
    """

    first: str
    second: str
    effect: str
    cure: str
    known: str


KNOWN = (
    Conflict(
        "tensorflow>=2.18",
        "nvidia-cudnn-cu12<9.3",
        "the GPU's first operation fails: it was compiled with cuDNN 9.3.0",
        "pip install -r requirements-gpu.txt",
        "2025-02, tensorflow/tensorflow issue 60913",
    ),
    Conflict(
        "tensorflow<2.16",
        "keras>=3",
        "not tried here: TensorFlow goes with Keras 3 from 2.16 on",
        "pip install -r requirements.txt",
        "2026-11, keras.io/getting_started",
    ),
    Conflict(
        "tensorflow<2.18",
        "numpy>=2",
        "importing TensorFlow fails: it was compiled against NumPy 1",
        "pip install -r requirements.txt",
        "2024-10, release notes of TensorFlow 2.18, the first that supports NumPy 2",
    ),
)


def check_versions() -> list[CheckResult]:
    """Checks the versions of Python and of all installed packages; imports none of them."""
    installed = installed_versions()
    version = ".".join(map(str, sys.version_info[:3]))
    python = CheckResult(OK, "Python", f"{version} in {sys.prefix}")
    if sys.version_info < OLDEST_PYTHON:
        cure = f"make an environment with Python {'.'.join(map(str, OLDEST_PYTHON))} or later"
        python = CheckResult(PROBLEM, "Python", version, cure)
    conflicts = known_conflicts(installed) or declared_conflicts(installed)
    return [python, _check_pins(installed), *_check_tensorflow(installed), *conflicts]


def installed_versions() -> dict[str, str]:
    """Returns the versions of all installed packages, by canonical name."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # The first on the path counts, as on import.
        found.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution.version)
    return found


def known_conflicts(installed: Mapping[str, str]) -> list[CheckResult]:
    """Returns the entries of `KNOWN` that hold for versions by canonical name."""
    findings = []
    for conflict in KNOWN:
        first, second = (
            _present(wanted, installed) for wanted in (conflict.first, conflict.second)
        )
        if first and second:
            found = f"{first} with {second}: {conflict.effect} ({conflict.known})"
            findings.append(CheckResult(PROBLEM, "versions", found, conflict.cure))
    return findings


def declared_conflicts(installed: Mapping[str, str]) -> list[CheckResult]:
    """Returns the declared requirements of our packages that are not met."""
    unmet = set()
    ours = {canonicalize_name(name) for name, _ in _pins(*_FILES)}
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
    cure = "install one of the requirements files into a fresh environment"
    return [CheckResult(WARNING, "versions", _first_four(sorted(unmet), "; "), cure)]


def _applicable(texts: Iterable[str]) -> Iterator[Requirement]:
    """Yields the requirements that hold here, without extras."""
    for text in texts:
        with contextlib.suppress(InvalidRequirement, UndefinedEnvironmentName):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield requirement


def _names(requirement: Requirement) -> Sequence[str]:
    """Returns the packages that meet a requirement, by canonical name."""
    name = canonicalize_name(requirement.name)
    return _TENSORFLOWS if name == "tensorflow" else (name,)


def _present(wanted: str, installed: Mapping[str, str]) -> str | None:
    """Returns `name version` of an installed package that meets a requirement, or None."""
    requirement = Requirement(wanted)
    for name in _names(requirement):
        if name in installed and requirement.specifier.contains(installed[name], prereleases=True):
            return f"{name} {installed[name]}"
    return None


def _check_pins(installed: Mapping[str, str]) -> CheckResult:
    """Compares the installed versions with those of the core requirements."""
    shown = ", ".join(f"{name} {installed[name]}" for name in _SHOWN if name in installed)
    pins = {name: (installed.get(canonicalize_name(name)), pin) for name, pin in _pins("-core")}
    off = {name: found for name, (found, pin) in pins.items() if found != pin}
    if not off:
        return CheckResult(OK, "versions", f"{shown or 'none installed'}; all as pinned")
    words = [
        f"{name} {found or 'missing'} (pinned: {pins[name][1]})" for name, found in off.items()
    ]
    return CheckResult(
        PROBLEM if None in off.values() else WARNING,
        "versions",
        f"{shown}; other than pinned: {_first_four(words, ', ')}",
        "pip install -r requirements.txt (-gpu, -jax-tpu); the tests ran with the pinned versions",
    )


def _first_four(words: Sequence[str], separator: str) -> str:
    more = f"{separator}and {len(words) - 4} more" if len(words) > 4 else ""
    return separator.join(words[:4]) + more


def _pins(*files: str) -> Iterator[tuple[str, str]]:
    """Yields the names and versions that requirements files pin here, by the ends of their names."""
    for file in files:
        path = _PROJECT / f"requirements{file}.txt"
        lines = path.read_text().splitlines() if path.is_file() else []
        for requirement in _applicable(line.partition("#")[0].strip() for line in lines):
            yield requirement.name, str(requirement.specifier).removeprefix("==")


def _check_tensorflow(installed: Mapping[str, str]) -> list[CheckResult]:
    """Reports a missing TensorFlow where JAX is missing, too, and several that overwrite each other."""
    present = [name for name in _TENSORFLOWS if name in installed]
    if len(present) == 1 or (not present and "jax" in installed):
        return []
    if not present:
        cure = "pip install -r requirements.txt (-gpu for NVIDIA, -jax-tpu for Cloud TPU)"
        return [CheckResult(PROBLEM, "versions", "TensorFlow is not installed", cure)]
    found = f"{' and '.join(present)} are both installed and overwrite each other's files"
    cure = f"pip uninstall {' '.join(present)}, then install the one requirements file you need"
    return [CheckResult(PROBLEM, "versions", found, cure)]
