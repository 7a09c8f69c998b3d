"""Which classes an inference set has for a model: label names are matched by meaning.

Models tell entailment, neutral and contradiction apart (MNLI), or entailment from the rest (RTE);
sets do the one or the other, and some call the rest non-entailment.
"""

from __future__ import annotations

from collections.abc import Mapping

from multiberts.finetune.classification.glue import ENTAILMENT_LABELS, NLI_LABELS, GlueTask
from multiberts.finetune.text_examples import Merge
from multiberts.runs.errors import UserError

ENTAILMENT = "entailment"
# Class numbers of sets that know entailment and the rest only.
TWO_WAY = {"non-entailment": 0, ENTAILMENT: 1}


def three_way_classes(task: GlueTask, set_name: str) -> Mapping[str, int]:
    """The model's class for each label of a three-way set.

    For a model of entailment against the rest, neutral and contradiction are the rest.

    Raises:
      UserError: the model is none of inference.
    """
    labels = _inference_labels(task, set_name)
    if set(labels) == set(NLI_LABELS):
        return {name: labels.index(name) for name in NLI_LABELS}
    entailment = labels.index(ENTAILMENT)
    return {name: entailment if name == ENTAILMENT else 1 - entailment for name in NLI_LABELS}


def two_way_merge(task: GlueTask, set_name: str) -> Merge:
    """The model's outputs that stand for non-entailment and for entailment.

    Raises:
      UserError: the model is none of inference.
    """
    labels = _inference_labels(task, set_name)
    rest = tuple(number for number, name in enumerate(labels) if name != ENTAILMENT)
    return rest, (labels.index(ENTAILMENT),)


def _inference_labels(task: GlueTask, set_name: str) -> tuple[str, ...]:
    labels = task.labels or ()
    if set(labels) not in (set(NLI_LABELS), set(ENTAILMENT_LABELS)):
        raise UserError(
            f"evaluation set {set_name} is for models of inference, with the labels "
            f"{', '.join(NLI_LABELS)} or {', '.join(ENTAILMENT_LABELS)}, but task {task.name} has "
            f"{', '.join(labels) or 'numbers'}; leave it out of finetune.evaluation_files"
        )
    return labels
