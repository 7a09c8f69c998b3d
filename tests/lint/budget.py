"""The weight of each folder: `make lint` compares it with budget.toml, `make budget` lowers the budgets.

A folder's lines are rounded up to the next 50; its files, commands and their parameters are counted.
Only a folder above its budget fails. Raising a number is a commit of its own, whose message says what the
growth buys. What tests cost is measured and compared by tests/tools/costs.py, and changed by hand.
"""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from multiberts.launch.plan.experiment import Experiment
from multiberts.runs import ROOMS
from multiberts.runs.command_line.commands import COMMANDS, load

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_suffix(".toml")
FOLDERS = (*ROOMS, "benchmarks", "tests")
UNITS = "[units]"
STEP = 50


def weights() -> dict[str, dict[str, int]]:
    """Returns lines, files, commands and parameters of each folder."""
    sizes = {}
    for folder in FOLDERS:
        files = list((ROOT / folder).rglob("*.py"))
        lines = sum(file.read_text().count("\n") for file in files)
        rounded = -(-lines // STEP) * STEP
        sizes[folder] = {"lines": rounded, "files": len(files), "commands": 0, "parameters": 0}
    for command in COMMANDS.values():
        size = sizes[command.target.partition(".")[0]]
        size["commands"] += 1
        size["parameters"] += _num_parameters(load(command.target))
    sizes["launch"]["parameters"] += _num_parameters(Experiment)
    return sizes


def _num_parameters(function: Callable[..., object]) -> int:
    return len(inspect.signature(function).parameters.keys() - {"plan"})


def differences(
    sizes: dict[str, dict[str, int]], budgets: dict[str, dict[str, int]]
) -> tuple[list[str], list[str]]:
    """Returns a line for each number above its budget, and one for each number below it."""
    above, below = list[str](), list[str]()
    for folder, size in sizes.items():
        for name, value in size.items():
            budget = budgets[folder][name]
            most = "up to " if name == "lines" else ""
            line = f"{folder}/ has {most}{value:,} {name}, its budget is {budget:,}"
            if value > budget:
                above.append(
                    f"{line}; make it lighter, or raise the number in {FILE.relative_to(ROOT)} in a commit "
                    "of its own that says what it buys"
                )
            elif value < budget:
                below.append(f"{line}; `make budget` lowers it")
    return above, below


def lowered(sizes: dict[str, dict[str, int]], budgets: dict[str, dict[str, int]]) -> str:
    """Returns the budgets as TOML, each the smaller one of the number and its budget."""
    tables = []
    for folder, size in sizes.items():
        rows = [f"{name} = {min(value, budgets[folder][name])}\n" for name, value in size.items()]
        tables.append("".join([f"[{folder}]\n", *rows]))
    return "\n".join(tables)


def main(arguments: list[str]) -> None:
    """Compares the folders with their budgets, or lowers the budgets."""
    text = FILE.read_text()
    budgets, sizes = tomllib.loads(text), weights()
    if "--lower" in arguments:
        comment, units = text.partition("[")[0], text[text.index(f"\n{UNITS}") :]
        FILE.write_text(comment + lowered(sizes, budgets) + units)
        return
    above, below = differences(sizes, budgets)
    if below:
        print("\n".join(below))
    if above:
        sys.exit("\n".join(above))


if __name__ == "__main__":
    main(sys.argv[1:])
