"""`python -m pretrain.describe`: the same as `multiberts describe`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["describe", *sys.argv[1:]])
