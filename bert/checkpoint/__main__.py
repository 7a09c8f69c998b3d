"""`python -m bert.checkpoint`: the same as `multiberts checkpoint`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["checkpoint", *sys.argv[1:]])
