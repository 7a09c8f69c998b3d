"""`python -m finetune --gin_file=... --gin_param=...`: fine-tunes one checkpoint on one task."""

from finetune.finetuning import finetune
from runs.command import run_command

if __name__ == "__main__":
    run_command(finetune)
