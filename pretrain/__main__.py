"""`python -m pretrain --gin_file=...`: pre-train one seed. Exits with 75 when asked to stop."""

from pretrain.pretraining import pretrain
from runs.command import run_command
from runs.preemption import exit_when_preempted

if __name__ == "__main__":
    with exit_when_preempted():
        run_command(pretrain)
