"""Additions of a fine-tuned model to a checkpoint: the head's variables, and a record of the task.

The record is the field `finetuned` of `checkpoint.json`:

    task             the task's name; null if another program trained the model
    head             {"kind", "labels", "num_texts", "variables": {name: shape}}, see `TaskHead`
    sequence_length  the largest number of tokens in a sequence
    do_lower_case    false for a cased model: text keeps its capitals and accents
    arguments        {"labels", "options", "task_modules"} of `finetune`, by which the task is found again
    learning_rate, finetune_seed, epochs    of the training

The checkpoint's `parent` is the one that fine-tuning started from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from multiberts.runs.errors import UserError
from multiberts.runs.parameters import Seed, described, fits, shortened

FINE_TUNED = "finetuned"

# transformers saves models with these heads without a pooler.
ON_TOKENS = {"question_answering", "token_classification"}
_FIELDS = {
    "task": str | None,
    "head": Mapping[str, Any],
    "sequence_length": int,
    "do_lower_case": bool,
    "arguments": Mapping[str, Any],
    "learning_rate": float | None,
    "finetune_seed": Seed | None,
    "epochs": float | None,
}
_FIELDS_OF_HEAD = {
    "kind": str,
    "labels": Sequence[str] | None,
    "num_texts": Literal[1, 2] | None,
    "variables": Mapping[str, Sequence[int]],
}
# All fields are optional.
_FIELDS_OF_ARGUMENTS = {
    "labels": Sequence[str] | None,
    "options": Mapping[str, Any] | None,
    "task_modules": Sequence[str] | None,
}


@dataclasses.dataclass(frozen=True)
class TaskHead:
    """The layers above the encoder.

    Attributes:
      kind: `classification`, `regression`, `multi_label_classification`, `token_classification`,
        `question_answering`, `coreference`, or a name of the task's own.
      labels: names of the outputs, in order; None: no names.
      num_texts: 1 for single texts, 2 for pairs; None for other inputs, or if unknown.

    Examples:
      >>> TaskHead("classification", ("entailment", "not_entailment"), num_texts=2).labels[0]
      'entailment'
    """

    kind: str = "own"
    labels: tuple[str, ...] | None = None
    num_texts: Literal[1, 2] | None = None

    def record(self) -> dict[str, Any]:
        """Returns the field `head` without its variables.

        Examples:
          >>> TaskHead("regression", num_texts=1).record()
          {'kind': 'regression', 'labels': None, 'num_texts': 1}
        """
        labels = self.labels and list(self.labels)
        return {"kind": self.kind, "labels": labels, "num_texts": self.num_texts}


def foreign_record(
    kind: str,
    labels: Sequence[str],
    hidden_size: int,
    sequence_length: int,
    task: str | None = None,
) -> dict[str, Any]:
    """Returns the record of a model that another program fine-tuned, without a value for `do_lower_case`.

    Args:
      labels: a name per output; ignored if heads of this kind have no labels.
    """
    label_names = None if kind in ("regression", "question_answering") else [*labels]
    shapes = {"output_bias": [len(labels)], "output_weights": [len(labels), hidden_size]}
    return {
        "task": task,
        "head": {"kind": kind, "labels": label_names, "num_texts": None, "variables": shapes},
        "sequence_length": sequence_length,
        "do_lower_case": None,
        "arguments": {},
        **dict.fromkeys(("learning_rate", "finetune_seed", "epochs")),
    }


def fine_tuned_line(record: Mapping[str, Any]) -> str:
    """Returns a description of the fine-tuning, for `checkpoint inspect` and the card.

    Examples:
      >>> head = {"kind": "classification", "labels": ["bad", "good"]}
      >>> fine_tuned_line({"task": "reviews", "epochs": 3, "head": head})
      'on reviews, 3 epochs: classification, bad, good'
    """
    head, epochs = record["head"], record["epochs"]
    parts = [f"on {record['task'] or 'an unknown task'}"]
    parts += [] if epochs is None else [f"{epochs:g} epochs"]
    return f"{', '.join(parts)}: {', '.join([head['kind'], *(head['labels'] or [])])}"


def check_fine_tuned(record: Any, where: str, cure: str) -> None:
    """Refuses a malformed record, or a record with parts of two models."""
    parts: Mapping[str, Any] = record if isinstance(record, Mapping) else {}
    head: Any = parts.get("head")
    for fields, values in (
        (_FIELDS, record),
        (_FIELDS_OF_HEAD, head),
        (_FIELDS_OF_ARGUMENTS, parts.get("arguments")),
    ):
        for name, kind in fields.items():
            absent = None if fields is _FIELDS_OF_ARGUMENTS else ...
            entry = values.get(name, absent) if isinstance(values, Mapping) else ...
            if entry is ... or not fits(entry, kind):
                shown = "nothing" if entry is ... else shortened(entry)
                raise UserError(
                    f"{where}: {FINE_TUNED} has {name} {shown}, expected {described(kind)}; {cure}"
                )
    labels, trained_labels = head["labels"], record["arguments"].get("labels")
    if labels is not None and trained_labels is not None and [*labels] != [*trained_labels]:
        raise UserError(
            f"{where}: the head has the labels {shortened([*labels])} and the arguments of its training "
            f"{shortened([*trained_labels])}, expected the same; {cure}"
        )
    number = {"regression": 1, "question_answering": 2}.get(head["kind"])
    if labels is not None and head["kind"] != "own":
        number = len(labels)
    width = next((shape[0] for shape in head["variables"].values() if len(shape) == 1), number)
    if number is not None and len(head["variables"]) == 2 and width != number:
        raise UserError(
            f"{where}: a head of {head['kind']}{f' with {number} labels' if labels else ''} has {number} "
            f"outputs, but its variables have {width}; {cure}"
        )
