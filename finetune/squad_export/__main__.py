"""`python -m finetune.squad_export`: the same as `multiberts squad-export`."""

import sys

from multiberts.runs.command import main

if __name__ == "__main__":
    main(["squad-export", *sys.argv[1:]])
