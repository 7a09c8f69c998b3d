"""constraints.txt: `make lock` writes it from pyproject.toml, `make lint` says when it is stale.

One resolution per Python of all extras at once, so that any of them can be installed together.

python tests/lint/pins.py            # compares, without a network
python tests/lint/pins.py --write    # resolves anew; versions that still fit are kept
python tests/lint/pins.py --upgrade  # resolves anew with the newest versions
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FILE = "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("linux", "darwin", "win32")
# uv repeats it in the file's header. Newer Pythons get newer versions of what gave up older ones.
COMMAND = [
    *("uv", "pip", "compile", "--universal", "--python-version", PYTHONS[0]),
    *("--fork-strategy", "requires-python", "--no-annotate"),
    *("--all-extras", "pyproject.toml", "--output-file", FILE),
]


def stale(constraints: str, project: str) -> Iterator[str]:
    """Yields a line for each requirement that is not pinned as it asks, on any Python and platform.

    Args:
      constraints: text of constraints.txt.
      project: text of pyproject.toml.
    """
    parsed = tomllib.loads(project)["project"]
    requirements = [
        requirement
        for texts in (parsed["dependencies"], *parsed["optional-dependencies"].values())
        for requirement in map(Requirement, texts)
        if requirement.name != parsed["name"]
    ]
    findings = {}
    for python in PYTHONS:
        for platform in PLATFORMS:
            pins = pinned(constraints, python, platform)
            for requirement in requirements:
                if not _applies(requirement, python, platform):
                    continue
                version = pins.get(canonicalize_name(requirement.name))
                found = f"{requirement.name} {version or 'is not pinned'}, expected {requirement.specifier}"
                if version is None or not requirement.specifier.contains(version, prereleases=True):
                    findings.setdefault(found, f"{FILE}: Python {python} on {platform}: {found}")
            # tensorflow-text is built for one series, and no resolver compares it with tensorflow-cpu.
            names = (f"tensorflow{end}" for end in ("", "-cpu", "-text"))
            versions = {name: pins[name] for name in names if name in pins}
            if len({version.rpartition(".")[0] for version in versions.values()}) > 1:
                findings["series"] = f"{FILE}: {versions}, expected one series of TensorFlow"
    yield from findings.values()


def pinned(text: str, python: str, platform: str) -> dict[str, str]:
    """Returns the versions that a file pins for a Python on a platform, by canonical name."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in map(Requirement, filter(None, lines))
        if _applies(pin, python, platform)
    }


def _applies(requirement: Requirement, python: str, platform: str) -> bool:
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": platform,
        "extra": "",
    }
    return requirement.marker is None or requirement.marker.evaluate(environment)


def main(arguments: list[str]) -> None:
    """Compares the file with pyproject.toml, or writes it."""
    if {"--write", "--upgrade"} & set(arguments):
        upgrade = ["--upgrade"] if "--upgrade" in arguments else []
        print(*COMMAND)
        subprocess.run([sys.executable, "-m", *COMMAND, "--quiet", *upgrade], cwd=ROOT, check=True)
        return
    findings = list(stale((ROOT / FILE).read_text(), (ROOT / "pyproject.toml").read_text()))
    if findings:
        sys.exit("\n".join([*findings, f"Run `make lock` and commit {FILE}."]))


if __name__ == "__main__":
    main(sys.argv[1:])
