"""`python -m pretrain.hold_out`: the same as `multiberts hold-out`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["hold-out", *sys.argv[1:]])
