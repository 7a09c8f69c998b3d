"""`python -m finetune`: the same as `multiberts finetune`."""

import sys

from multiberts.runs.command_line.command import main

if __name__ == "__main__":
    main(["finetune", *sys.argv[1:]])
