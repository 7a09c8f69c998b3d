"""`python -m evaluate --gin_file=... --gin_param=...`: scores of all runs below a folder."""

from evaluate.scoring import score
from runs.command import run_command

if __name__ == "__main__":
    run_command(score)
