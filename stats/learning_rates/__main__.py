"""`python -m stats.learning_rates`: the same as `multiberts learning-rates`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["learning-rates", *sys.argv[1:]])
