"""Versions of libraries that do not go together: what they say themselves, and what they do not say.

Most conflicts are declared, and found by comparing every installed package with its own requirements. The
table `KNOWN` holds those that are not; each entry says when and from where it is known.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from multiberts.launch.doctor.findings import OK, PROBLEM, WARNING, CheckResult

OLDEST_PYTHON = (3, 11)
# Named in the line on versions, where installed.
_SHOWN = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "keras", "jax", "numpy"),
    *("protobuf", "apache-beam", "parsl", "google-cloud-tpu", "gcsfs"),
)
# All of them bring the package `tensorflow`, and overwrite each other's files.
_TENSORFLOWS = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tensorflow-gpu", "tensorflow-rocm"),
    *("tensorflow-cpu-aws", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu", "intel-tensorflow"),
)
_PROJECT = Path(__file__).resolve().parents[2]
# The files whose packages belong to a working installation; others may lack what they do not need.
_FILES = ("", "-core", "-gpu", "-tpu", "-beam", "-cloud")


@dataclass(frozen=True)
class Conflict:
    """Two packages that do not work together, though nothing stops one from installing both.

    Attributes:
      first, second: their names, and versions as in requirements files.
      effect: what happens.
      cure: what to do.
      known: since when (year and month) and from where.
    """

    first: str
    second: str
    effect: str
    cure: str
    known: str


KNOWN = (
    Conflict(
        "tensorflow-tpu==2.20.*",
        "libtpu>=0.0.36",
        "importing TensorFlow aborts",
        "pip install -r requirements-tpu.txt, which pins libtpu 0.0.21.1",
        "2026-11, tried: 0.0.20 to 0.0.30 import, 0.0.36 and later abort",
    ),
    Conflict(
        "tensorflow>=2.18",
        "nvidia-cudnn-cu12<9.3",
        "the GPU's first operation fails: it was compiled with cuDNN 9.3.0",
        "pip install -r requirements-gpu.txt",
        "2025-02, tensorflow/tensorflow issue 60913",
    ),
    Conflict(
        "apache-beam>=2.60",
        "protobuf>=7",
        "Beam does not support it, while TensorFlow's requirements let it in",
        "pip install -r requirements-core.txt, which pins protobuf 6",
        "2026-11, requirements of apache-beam 2.77 (protobuf<7)",
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
    """Looks at the versions of Python and of all installed packages; imports none of them."""
    installed = installed_versions()
    findings = [_python(), _shown(installed)]
    findings += _tensorflows(installed)
    conflicts = known_conflicts(installed)
    findings += conflicts
    findings += declared_conflicts(installed) if not conflicts else []
    return findings


def installed_versions() -> dict[str, str]:
    """Returns the versions of all installed packages, by canonical name."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # Of two on the path the first counts, as on import.
        found.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution.version)
    return found


def known_conflicts(installed: Mapping[str, str]) -> list[CheckResult]:
    """Returns the entries of `KNOWN` that hold for versions by canonical name."""
    findings = []
    for conflict in KNOWN:
        pair = (_present(conflict.first, installed), _present(conflict.second, installed))
        if pair[0] and pair[1]:
            found = f"{pair[0]} with {pair[1]}: {conflict.effect} ({conflict.known})"
            findings.append(CheckResult(PROBLEM, "versions", found, conflict.cure))
    return findings


def declared_conflicts(installed: Mapping[str, str]) -> list[CheckResult]:
    """Returns what installed packages of ours need and do not have, as they declare it."""
    unmet = []
    ours = {canonicalize_name(name) for name, _ in _pins(*_FILES)}
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.metadata["Name"])
        for text in (distribution.requires or ()) if name in ours else ():
            requirement = _applicable(text)
            if requirement is None:
                continue
            version = installed.get(canonicalize_name(requirement.name))
            if version is None:
                unmet.append(f"{name} needs {requirement.name}, which is missing")
            elif not requirement.specifier.contains(version, prereleases=True):
                unmet.append(
                    f"{name} needs {requirement.name}{requirement.specifier}, not {version}"
                )
    if not unmet:
        return []
    more = f"; and {len(unmet) - 4} more" if len(unmet) > 4 else ""
    cure = "install one of the requirements files into a fresh environment"
    return [CheckResult(WARNING, "versions", "; ".join(sorted(set(unmet))[:4]) + more, cure)]


def _applicable(text: str) -> Requirement | None:
    """Returns a requirement that holds here, without extras."""
    try:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            return None
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None
    return requirement


def _present(wanted: str, installed: Mapping[str, str]) -> str | None:
    """`name version` if it is installed in a version that is meant, else None."""
    requirement = Requirement(wanted)
    name = canonicalize_name(requirement.name)
    for one in _TENSORFLOWS if name == "tensorflow" else (name,):
        version = installed.get(one)
        if version is not None and SpecifierSet(str(requirement.specifier)).contains(
            version, prereleases=True
        ):
            return f"{one} {version}"
    return None


def _python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        cure = f"make an environment with Python {'.'.join(map(str, OLDEST_PYTHON))} or later"
        return CheckResult(PROBLEM, "Python", version, cure)
    return CheckResult(OK, "Python", f"{version} in {sys.prefix}")


def _shown(installed: Mapping[str, str]) -> CheckResult:
    shown = ", ".join(f"{name} {installed[name]}" for name in _SHOWN if name in installed)
    off = []
    for name, version in _pins("-core"):
        found = installed.get(canonicalize_name(name))
        if found != version:
            off.append(f"{name} {found or 'missing'} (pinned: {version})")
    if not off:
        return CheckResult(OK, "versions", f"{shown or 'none installed'}; all as pinned")
    missing = any("missing" in text for text in off)
    more = f" and {len(off) - 4} more" if len(off) > 4 else ""
    return CheckResult(
        PROBLEM if missing else WARNING,
        "versions",
        f"{shown}; other than pinned: {', '.join(off[:4])}{more}",
        "pip install -r requirements.txt (-gpu, -tpu); the tests ran with the pinned versions",
    )


def _pins(*files: str) -> Iterator[tuple[str, str]]:
    """Yields names and versions that requirements files pin here, by the ends of their names."""
    for file in files:
        path = _PROJECT / f"requirements{file}.txt"
        for line in path.read_text().splitlines() if path.is_file() else ():
            requirement = _applicable(line.partition("#")[0].strip())
            if requirement is not None:
                yield requirement.name, str(requirement.specifier).removeprefix("==")


def _tensorflows(installed: Mapping[str, str]) -> list[CheckResult]:
    present = [name for name in _TENSORFLOWS if name in installed]
    if len(present) == 1:
        return []
    if not present:
        cure = "pip install -r requirements.txt (-gpu for NVIDIA, -tpu for Cloud TPU)"
        return [CheckResult(PROBLEM, "versions", "TensorFlow is not installed", cure)]
    found = f"{' and '.join(present)} are both installed and overwrite each other's files"
    cure = f"pip uninstall {' '.join(present)}, then install the one requirements file you need"
    return [CheckResult(PROBLEM, "versions", found, cure)]
