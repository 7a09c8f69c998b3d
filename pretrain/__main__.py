"""`python -m pretrain`: the same as `multiberts pretrain`."""

import sys

from multiberts.runs.command_line.command import main

if __name__ == "__main__":
    main(["pretrain", *sys.argv[1:]])
