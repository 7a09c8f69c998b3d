"""`python -m pretrain.export_records`: the same as `multiberts export-records`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["export-records", *sys.argv[1:]])
