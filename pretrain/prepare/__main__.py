"""`python -m pretrain.prepare`: the same as `multiberts prepare`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["prepare", *sys.argv[1:]])
