"""`python -m stats.paper`: the same as `multiberts paper`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["paper", *sys.argv[1:]])
