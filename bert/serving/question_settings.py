"""Settings that graphs for questions share with training and `multiberts predict`."""

from __future__ import annotations

import dataclasses

from multiberts.runs.parameters import PositiveInt

# The original separates words at these; Unicode's other spaces are part of words.
WORD_SEPARATORS = " \t\r\n\u202f"

# Weight of a window's length in word pieces, in the comparison of contexts.
LENGTH_BONUS = 0.01

# The original's answer where no candidate is left.
NO_CANDIDATE = "empty"

# The null score of a question without any window.
LARGE = 1000000.0


@dataclasses.dataclass(frozen=True)
class QuestionOptions:
    """Settings for cutting questions and finding answers.

    Attributes:
      doc_stride: tokens from the begin of one window of a long paragraph to that of the next.
      max_query_length: word pieces that a question is cut to.
      n_best_size: starts and ends that an answer is chosen from.
      max_answer_length: word pieces of the longest answer.

    Example:
      >>> QuestionOptions(doc_stride=64).max_query_length
      64
    """

    doc_stride: PositiveInt = 128
    max_query_length: PositiveInt = 64
    n_best_size: PositiveInt = 20
    max_answer_length: PositiveInt = 30
