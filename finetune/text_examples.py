"""Texts with labels: what readers return, and how a model's logits become predictions on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

Merge = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class TextExamples:
    """The examples of one set.

    Attributes:
      example_ids: stable across runs, such as `<task>/<split>/<row>`.
      first_texts: the single text, or the first of the pair.
      second_texts: the second of the pair, or None.
      labels: float32 [examples]: class numbers, or the values of a regression; [examples, classes] of sets
        of labels, [examples, most words] of tags; None where they are not published, as in the test sets
        of a leaderboard.
      extras: further columns that describe the examples, as in evaluate.dumps.predictions.
      words: of each example, where words are tagged.
      remarks: one line each about what was left out, for the user to see.
    """

    example_ids: list[str]
    first_texts: list[str]
    second_texts: list[str] | None
    labels: np.ndarray | None
    extras: Mapping[str, list[str]] = dataclasses.field(default_factory=dict)
    words: list[list[str]] | None = None
    remarks: tuple[str, ...] = ()


class TextReader(Protocol):
    """Reads one set; two equal readers return the same examples from the same files."""

    def __call__(self, files: tuple[Path, ...], name: str, /) -> TextExamples:
        """Reads the files of the set `name`.

        Raises:
          UserError: bad data, with the file and the line.
        """
        ...

    def __hash__(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Where one set of texts lies and how it is read.

    Attributes:
      name: the set's name: `train`, `dev`, `dev_mismatched`, `test`, `hans`, ...
      files: all files that determine the examples.
      reader: reads them.
      metrics: names in evaluate.metrics.register, the main one first; they score it if it has labels.
      merge: for each class of the set the model's outputs that it combines; None where the classes are
        the model's own.
    """

    name: str
    files: tuple[Path, ...]
    reader: TextReader
    metrics: tuple[str, ...]
    merge: Merge | None = None

    def read(self) -> TextExamples:
        """Reads the set.

        Raises:
          UserError: bad data, with the file and the line.
        """
        return self.reader(self.files, self.name)


def outcome(
    logits: np.ndarray, *, regression: bool, merge: Merge | None
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Returns what a dump holds for a model's logits on a set.

    Where the set has other classes than the model, the most likely output decides, and the answer is
    the class it belongs to (McCoy et al. 2019, section 4.2: neutral and contradiction count as
    non-entailment). The scores are then logits of the summed probabilities, so their largest is not
    always the answer; the model's own logits are kept too.

    Args:
      logits: float32 [examples, outputs].
      regression: whether the only output is a number.
      merge: as in `TextSource`.

    Returns:
      predictions [examples]; scores float32 [examples, classes]; further columns float32 [examples]:
      `logit_0`, `logit_1`, ... where classes were merged.
    """
    if regression:
        return logits[:, 0], logits, {}
    chosen = logits.argmax(axis=1)
    if merge is None:
        return chosen, logits, {}
    class_of = np.empty(logits.shape[1], np.int64)
    for number, outputs in enumerate(merge):
        class_of[list(outputs)] = number
    scores = np.stack(
        [np.logaddexp.reduce(logits[:, list(outputs)], axis=1) for outputs in merge], axis=1
    )
    columns = {f"logit_{number}": logits[:, number] for number in range(logits.shape[1])}
    return class_of[chosen], scores.astype(np.float32), columns
