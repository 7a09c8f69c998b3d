"""Requirements files: `make lock` writes them from pyproject.toml, `make lint` says when they are stale.

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

# The extra of pyproject.toml that each file pins. The first one decides the versions of them all,
# so that any of them can be installed together.
FILES = {
    "requirements-test.txt": "test",
    "requirements.txt": "serving",
    "requirements-core.txt": "pipeline",
    "requirements-gpu.txt": "gpu",
    "requirements-jax.txt": "jax",
    "requirements-jax-cuda12.txt": "jax-cuda12",
    "requirements-jax-cuda13.txt": "jax-cuda13",
    "requirements-jax-tpu.txt": "jax-tpu",
    "requirements-compile.txt": "compile",
    "requirements-cloud.txt": "cloud",
    "requirements-dashboard.txt": "dashboard",
    "requirements-parquet.txt": "parquet",
    "requirements-docs.txt": "docs",
}
_FIRST = next(iter(FILES))
# tensorflow-text asks for `tensorflow`, which would come in beside tensorflow-cpu: the override drops it.
_OVERRIDE = "requirements-no-second-tensorflow.txt"
_OVERRIDDEN = (_FIRST, "requirements.txt")
# Extras that have no file: another's file holds all of it.
_CONTAINED = {"launch", "tensorflow"}


def command(file: str) -> list[str]:
    """Returns the command that writes a requirements file; uv repeats it in the file's header."""
    return [
        *("uv", "pip", "compile", "--universal", "--python-version", "3.11"),
        *("--fork-strategy", "fewest", "--no-annotate"),
        *("--extra", FILES[file]),
        *(() if file == _FIRST else ("--constraint", _FIRST)),
        *(("--override", _OVERRIDE) if file in _OVERRIDDEN else ()),
        *("pyproject.toml", "--output-file", file),
    ]


def stale() -> Iterator[str]:
    """Yields a line for each requirement of pyproject.toml that a file does not pin as it asks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for file, extra in FILES.items():
        if not (ROOT / file).is_file():
            yield f"{file}: missing"
            continue
        pins = pinned((ROOT / file).read_text())
        for requirement in _expanded([*project["dependencies"], *extras[extra]], extras):
            version = pins.get(canonicalize_name(requirement.name))
            if version is None:
                yield f"{file}: {requirement.name} is not pinned"
            elif not requirement.specifier.contains(version, prereleases=True):
                yield f"{file}: {requirement.name} {version}, expected {requirement.specifier}"
        # Nothing else compares them, as the override drops what tensorflow-text asks for.
        text, own = (
            pins.get("tensorflow-text"),
            pins.get("tensorflow-cpu", pins.get("tensorflow", "")),
        )
        if text and text.split(".")[:2] != own.split(".")[:2]:
            yield f"{file}: tensorflow-text {text}, expected that of tensorflow {own}"
    for extra in set(extras) - set(FILES.values()) - _CONTAINED:
        yield f"tests/lint/pins.py: no file pins the extra {extra!r} of pyproject.toml"


def pinned(text: str) -> dict[str, str]:
    """Returns the version of each package in the text of a requirements file, by canonical name."""
    pins = {}
    for line in text.splitlines():
        name, mark, version = line.partition("#")[0].partition(";")[0].strip().partition("==")
        if mark:
            pins[canonicalize_name(name.partition("[")[0])] = version.strip()
    return pins


def _expanded(texts: list[str], extras: dict[str, list[str]]) -> Iterator[Requirement]:
    """Yields requirements; `multiberts[a,b]` stands for those of its extras."""
    for requirement in map(Requirement, texts):
        if requirement.name != "multiberts":
            yield requirement
        for extra in requirement.extras if requirement.name == "multiberts" else ():
            yield from _expanded(extras[extra], extras)


def main(arguments: list[str]) -> None:
    """Compares the files with pyproject.toml, or writes them."""
    if {"--write", "--upgrade"} & set(arguments):
        upgrade = ["--upgrade"] if "--upgrade" in arguments else []
        for file in FILES:
            print(*command(file))
            uv = [sys.executable, "-m", *command(file), "--quiet", *upgrade]
            subprocess.run(uv, cwd=ROOT, check=True)
        return
    findings = list(stale())
    if findings:
        sys.exit("\n".join([*findings, "Run `make lock` and commit the requirements files."]))


if __name__ == "__main__":
    main(sys.argv[1:])
