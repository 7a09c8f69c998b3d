"""`python -m pretrain.import_records`: the same as `multiberts import-records`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["import-records", *sys.argv[1:]])
