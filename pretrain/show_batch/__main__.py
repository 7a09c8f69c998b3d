"""`python -m pretrain.show_batch`: the same as `multiberts show-batch`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["show-batch", *sys.argv[1:]])
