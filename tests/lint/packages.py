"""Lists of packages and rooms in pyproject.toml: `make lint` compares, `make packages` writes the first."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from multiberts.runs import ROOMS

ROOT = Path(__file__).resolve().parents[2]
# Folders at the top that are not part of the distribution.
NOT_SHIPPED = {"benchmarks", "docs", "examples", "tests"}
_LIST = re.compile(r"(?<=\npackages = \[\n).*?(?=\])", re.DOTALL)


def packages() -> list[str]:
    """Returns the package of each folder that holds a Python, Gin or YAML file, sorted."""
    # Files that are not added yet count, too.
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing += ["*.py", "*.gin", "*.yaml"]
    output = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    folders = {Path(line).parent for line in output.splitlines() if (ROOT / line).is_file()}
    shipped = {
        Path(*folder.parts[:depth])
        for folder in folders
        if folder.parts[:1] not in {(name,) for name in NOT_SHIPPED}
        for depth in range(len(folder.parts) + 1)
    }
    return sorted(".".join(("multiberts", *folder.parts)) for folder in shipped)


def main(arguments: list[str]) -> None:
    """Compares the list with the folders, or writes it."""
    path = ROOT / "pyproject.toml"
    text = path.read_text()
    expected = "".join(f'  "{package}",\n' for package in packages())
    if "--write" in arguments:
        path.write_text(_LIST.sub(expected, text))
        return
    found = _LIST.search(text)
    if found is None or found[0] != expected:
        differing = set(expected.splitlines()) ^ set(found[0].splitlines() if found else ())
        names = ", ".join(sorted(name.strip(' ",') for name in differing)) or "the order"
        sys.exit(f"pyproject.toml: packages differ in {names}; run `make packages`")
    floors = tomllib.loads(text)["tool"]["importlinter"]["contracts"][0]["layers"]
    layered = [room for floor in reversed(floors) for room in floor.split(" | ")]
    if layered != [*ROOMS]:
        sys.exit(
            f"pyproject.toml: found the rooms {layered}, expected those of runs/__init__.py, {[*ROOMS]}; "
            "correct the one that is wrong"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
