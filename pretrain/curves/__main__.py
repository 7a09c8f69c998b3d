"""`python -m pretrain.curves`: the same as `multiberts curves`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["curves", *sys.argv[1:]])
