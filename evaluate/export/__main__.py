"""`python -m evaluate.export`: the same as `multiberts export`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
