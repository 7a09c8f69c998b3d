"""`python -m evaluate`: the same as `multiberts evaluate`."""

import sys

from multiberts.runs.command_line.command import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])
