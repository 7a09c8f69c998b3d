"""constraints.txt and requirements.txt, from pyproject.toml: `make lock` writes them, `make lint` compares.

One resolution per Python of all extras at once, so that any of them can be installed together;
requirements.txt takes from it what every stage needs on a processor.

python tests/lint/pins.py            # compares, without a network
python tests/lint/pins.py --write    # resolves anew; versions that still fit are kept
python tests/lint/pins.py --upgrade  # resolves anew with the newest versions
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = "constraints.txt"
REQUIREMENTS = "requirements.txt"
EXTRAS = ("tensorflow", "parquet")  # of every stage and command on a processor
HEADER = f"""\
# Every stage and command on a processor: pip install -r {REQUIREMENTS}
# `make lock` writes it. The ranges and the reason for each package are in pyproject.toml.
--constraint {CONSTRAINTS}
--editable .
"""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("linux", "darwin", "win32")
# They have no wheel for the newest Python: pip refuses them there, and the resolution leaves them out.
NOT_ON_NEWEST = ("tensorflow", "tensorflow-text")
OVERRIDES = f"""\
tensorflow[and-cuda] ; python_version < '{PYTHONS[-1]}'
tensorflow-text ; python_version < '{PYTHONS[-1]}'
"""
# Newer Pythons get newer versions of what gave up older ones.
COMMAND = [
    *("uv", "pip", "compile", "--universal", "--python-version", PYTHONS[0]),
    *(
        "--fork-strategy",
        "requires-python",
        "--no-annotate",
        "--custom-compile-command",
        "make lock",
    ),
    *("--all-extras", "pyproject.toml", "--output-file", CONSTRAINTS),
]


def stale(constraints: str, project: str) -> Iterator[str]:
    """Yields a line for each requirement that is not pinned as it asks, on any Python and platform.

    Args:
      constraints: text of constraints.txt.
      project: text of pyproject.toml.
    """
    parsed = tomllib.loads(project)["project"]
    requirements = list(_asked_for(parsed, parsed["optional-dependencies"]))
    findings = {}
    for python in PYTHONS:
        for platform in PLATFORMS:
            pins = pinned(constraints, python, platform)
            for requirement in requirements:
                absent = python == PYTHONS[-1] and requirement.name in NOT_ON_NEWEST
                if absent or not _applies(requirement, python, platform):
                    continue
                version = pins.get(canonicalize_name(requirement.name))
                found = f"{requirement.name} {version or 'is not pinned'}, expected {requirement.specifier}"
                if version is None or not requirement.specifier.contains(version, prereleases=True):
                    findings.setdefault(
                        found, f"{CONSTRAINTS}: Python {python} on {platform}: {found}"
                    )
    yield from findings.values()


def requirements_file(constraints: str, project: str) -> str:
    """Returns the text of requirements.txt: a pin for each package that the stages ask for by name.

    Args:
      constraints: text of constraints.txt.
      project: text of pyproject.toml.
    """
    markers = {
        canonicalize_name(requirement.name): requirement.marker
        for requirement in _asked_for(tomllib.loads(project)["project"], EXTRAS)
    }
    lines = []
    for line in constraints.splitlines():
        pin, _, of_python = line.partition("#")[0].partition(" ; ")
        name = pin.partition("==")[0]
        if name in markers:
            # A package without a wheel for the newest Python is asked for there, so that pip refuses.
            marker = markers[name] if name in NOT_ON_NEWEST else of_python
            lines.append(f"{pin} ; {marker}\n" if marker else f"{pin}\n")
    return HEADER + "".join(lines)


def pinned(text: str, python: str, platform: str) -> dict[str, str]:
    """Returns the versions that a file pins for a Python on a platform, by canonical name."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in map(Requirement, (line for line in lines if line and not line.startswith("--")))
        if _applies(pin, python, platform)
    }


def _asked_for(project: dict[str, Any], extras: Iterable[str]) -> Iterator[Requirement]:
    """Yields the requirements of a project and of its extras, and of those that they bring."""
    texts = [*project["dependencies"]]
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    for requirement in map(Requirement, texts):
        if requirement.name != project["name"]:
            yield requirement
        else:
            yield from _asked_for({**project, "dependencies": []}, requirement.extras)


def _applies(requirement: Requirement, python: str, platform: str) -> bool:
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": platform,
        "extra": "",
    }
    return requirement.marker is None or requirement.marker.evaluate(environment)


def main(arguments: list[str]) -> None:
    """Compares the files with pyproject.toml, or writes them."""
    project = (ROOT / "pyproject.toml").read_text()
    if {"--write", "--upgrade"} & set(arguments):
        upgrade = ["--upgrade"] if "--upgrade" in arguments else []
        print(*COMMAND)
        with NamedTemporaryFile("w", suffix=".txt") as overrides:
            overrides.write(OVERRIDES)
            overrides.flush()
            command = [sys.executable, "-m", *COMMAND, "--overrides", overrides.name, "--quiet"]
            subprocess.run([*command, *upgrade], cwd=ROOT, check=True)
        constraints = (ROOT / CONSTRAINTS).read_text()
        (ROOT / REQUIREMENTS).write_text(requirements_file(constraints, project))
        return
    constraints = (ROOT / CONSTRAINTS).read_text()
    findings = list(stale(constraints, project))
    if (ROOT / REQUIREMENTS).read_text() != requirements_file(constraints, project):
        findings.append(f"{REQUIREMENTS} is not what {CONSTRAINTS} and pyproject.toml give")
    if findings:
        sys.exit(
            "\n".join([*findings, f"Run `make lock` and commit {CONSTRAINTS} and {REQUIREMENTS}."])
        )


if __name__ == "__main__":
    main(sys.argv[1:])
