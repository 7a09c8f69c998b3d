"""Runs `python -m stats`, the same as `multiberts stats`."""

import sys

from multiberts.runs.command_line.command import main

if __name__ == "__main__":
    main(["stats", *sys.argv[1:]])
