"""`python -m finetune.submission`: the same as `multiberts submission`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["submission", *sys.argv[1:]])
