"""`python -m evaluate.import_predictions`: the same as `multiberts import-predictions`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["import-predictions", *sys.argv[1:]])
