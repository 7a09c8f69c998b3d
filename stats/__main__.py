"""`python -m stats --gin_file=...`: tables, figures and a report of finished fine-tuning runs."""

from runs.command import run_command
from stats.report import report

if __name__ == "__main__":
    run_command(report)
