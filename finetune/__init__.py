"""Fine-tuning of checkpoints on tasks; every run ends in per-example predictions.

One routine (`finetune.finetuning`), one folder per kind of task: `text` (GLUE, and users' texts),
`squad`, and `coreference` on a frozen encoder, with a masked-LM pronoun probe.

    from multiberts.finetune.predictor import Predictor

loads a fine-tuned model for predictions from Python.
"""

from multiberts.runs import environment as environment
