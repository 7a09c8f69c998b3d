"""Readable names on the page of a report for names in code."""

from __future__ import annotations

from collections.abc import Mapping

# Separators of procedure and step, and of task and evaluation set, with their readable forms.
_PARTS = ((", step ", ", step "), ("/", ", "))
_STAGES = {"pretrain": "pre-training", "finetune": "fine-tuning"}  # of seeds of one source


def readable(name: str, names: Mapping[str, str]) -> str:
    """Returns the readable name from `names`, or composed of those of its parts, without underscores.

    Args:
      name: procedure, task or evaluation set, possibly followed by a step or preceded by a task.
      names: readable name by name in code.

    Examples:
      >>> readable("cda_incr, step 250", {"cda_incr": "After CDA"})
      'After CDA, step 250'
      >>> readable("pronoun_probe/dev", {})
      'pronoun probe, dev'
      >>> readable("pretrain.dropout_seed", {})
      'dropout in pre-training'
    """
    if name in names:
        return names[name]
    for mark, joint in _PARTS:
        first, separator, ending = name.partition(mark)
        if separator:
            return f"{readable(first, names)}{joint}{readable(ending, names)}"
    stage, _, source = name.partition(".")
    if stage in _STAGES and source:
        name = f"{source.removesuffix('_seed')} in {_STAGES[stage]}"
    return name.replace("_", " ")
