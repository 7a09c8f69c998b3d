"""Brings faults of launches about, with real processes, and prints what a user then sees.

    python -m multiberts.tests.tools.faults [NAME ...] [--list]

Each is a function of a module of this folder. What it needs and this machine lacks (Slurm, say) it says. To
see an earlier commit, copy this folder into its checkout: only what users call is used here.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

Fault = Callable[[Path], str]


def faults() -> dict[str, Fault]:
    """The faults by name: the public functions that the modules beside this one define."""
    by_name = {}
    for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        module = importlib.import_module(f"{__package__}.{file.stem}")
        for name, value in vars(module).items():
            is_fault = callable(value) and getattr(value, "__module__", "") == module.__name__
            if is_fault and not name.startswith("_"):
                by_name[name] = value
    return by_name


def main() -> None:
    """Prints each fault: its name, what happens, and what is seen."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    known = faults()
    for name in given.names or known:
        fault = known[name]
        print(f"{name}: {' '.join((fault.__doc__ or '').split())}", flush=True)
        if given.list:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            seen = fault(Path(scratch))
        lines = [f"    {line}" for line in seen.strip().splitlines()]
        print("\n".join([*lines, f"    ({time.monotonic() - started:.0f} s in all)"]), flush=True)


if __name__ == "__main__":
    main()
