"""`python -m finetune.sweep`: the same as `multiberts sweep`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["sweep", *sys.argv[1:]])
