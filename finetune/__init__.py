"""Fine-tuning of checkpoints on tasks; every run ends in per-example predictions.

One routine (`finetune.finetuning`), one folder per kind of task: `text` (GLUE, and texts of the user's own),
`squad`, and `coreference` on a frozen encoder, with a masked-LM pronoun probe.

    from multiberts.finetune import Predictor

loads a fine-tuned model to be asked from Python.
"""

from typing import TYPE_CHECKING, Any

from multiberts.runs import environment as environment

if TYPE_CHECKING:
    from multiberts.finetune.predictor import Predictor as Predictor


def __getattr__(name: str) -> Any:
    # Late: the register of tasks is asked by commands that predict nothing.
    if name == "Predictor":
        from multiberts.finetune.predictor import Predictor

        return Predictor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
