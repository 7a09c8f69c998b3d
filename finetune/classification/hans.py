"""HANS: inference pairs on which shallow syntactic heuristics go wrong (McCoy et al. 2019).

The official file has 11 tab-separated columns; 30 subcases of three heuristics, 1000 pairs each. Class
1 is entailment, class 0 non-entailment.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from multiberts.finetune.classification.nli_labels import TWO_WAY
from multiberts.finetune.text_examples import TextExamples
from multiberts.finetune.tsv_table import read_tsv
from multiberts.runs.errors import UserError

EXTRAS = ("heuristic", "subcase", "template")
_COLUMNS = ("pairID", "gold_label", "sentence1", "sentence2", *EXTRAS)


@dataclasses.dataclass(frozen=True)
class HansReader:
    """Reads `heuristics_evaluation_set.txt`, plain or `.gz`; ids are `<set>/<pairID>`."""

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        (path,) = files
        line_of_pair: dict[str, int] = {}
        texts: tuple[list[str], list[str]] = ([], [])
        labels: list[int] = []
        extras: dict[str, list[str]] = {column: [] for column in EXTRAS}
        for number, values in read_tsv(path, _COLUMNS, "HANS"):
            pair, label, first, second, *described = values
            if label not in TWO_WAY:
                raise UserError(
                    f"{path} line {number}: found label {label!r}, expected "
                    f"{' or '.join(TWO_WAY)}; fetch the file again as HANS has it"
                )
            if pair in line_of_pair:
                raise UserError(
                    f"{path} line {number}: pairID {pair!r} stands in line {line_of_pair[pair]} "
                    "already, expected each once; remove one of them"
                )
            line_of_pair[pair] = number
            texts[0].append(first)
            texts[1].append(second)
            labels.append(TWO_WAY[label])
            for column, value in zip(EXTRAS, described, strict=True):
                extras[column].append(value)
        if not labels:
            raise UserError(f"{path} has a header and no pairs; give a file with pairs")
        return TextExamples(
            example_ids=[f"{name}/{pair}" for pair in line_of_pair],
            first_texts=texts[0],
            second_texts=texts[1],
            labels=np.array(labels, np.float32),
            extras=extras,
        )
