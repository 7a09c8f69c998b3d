"""`python -m launch`: the same as `multiberts launch`."""

import sys

from multiberts.runs.command_line.command import main

if __name__ == "__main__":
    main(["launch", *sys.argv[1:]])
