"""Fine-tuning of checkpoints on tasks; every run ends in per-example predictions.

One routine (`finetune.finetune.finetune`), one file a family of tasks: classification and
regression on GLUE, gold-mention coreference on a frozen encoder, and a masked-LM pronoun probe.
"""

from multiberts.runs import environment as environment
