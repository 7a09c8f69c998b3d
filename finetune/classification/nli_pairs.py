"""Inference pairs as SNLI, MultiNLI and the NLI stress tests are given out: JSON lines or TSV.

Both layouts name the fields gold_label, sentence1 and sentence2. The label `-` means that the
annotators did not agree; such pairs are left out, and said to be (Bowman et al. 2015, section 2.3).

References: Bowman et al. 2015 (SNLI); Williams et al. 2018 (MultiNLI); Naik et al. 2018 (stress tests).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from multiberts.finetune.text_examples import TextExamples
from multiberts.finetune.tsv_table import read_tsv
from multiberts.runs.errors import UserError
from multiberts.runs.files import read_lines

NO_GOLD_LABEL = "-"
_FIELDS = ("gold_label", "sentence1", "sentence2")
_LAYOUT = "SNLI, MultiNLI or the stress tests"


@dataclasses.dataclass(frozen=True)
class NliReader:
    """Reads one file; ids are `<set>/<row>`, rows counted from 0, those left out included.

    Attributes:
      classes: the class number of each label.
    """

    classes: tuple[tuple[str, int], ...]

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        (path,) = files
        classes = dict(self.classes)
        rows: list[int] = []
        texts: tuple[list[str], list[str]] = ([], [])
        labels: list[int] = []
        num_rows = 0
        for number, (label, first, second) in _pairs(path):
            num_rows += 1
            if label == NO_GOLD_LABEL:
                continue
            if label not in classes:
                raise UserError(
                    f"{path} line {number}: found gold_label {label!r}, expected one of "
                    f"{', '.join(classes)} or {NO_GOLD_LABEL}; correct the line"
                )
            rows.append(num_rows - 1)
            texts[0].append(first)
            texts[1].append(second)
            labels.append(classes[label])
        if not rows:
            raise UserError(f"{path} has no pairs with a gold label; give a file with some")
        left_out = num_rows - len(rows)
        remark = f"{path}: left out {left_out} of {num_rows} pairs, which have no gold label"
        return TextExamples(
            example_ids=[f"{name}/{row}" for row in rows],
            first_texts=texts[0],
            second_texts=texts[1],
            labels=np.array(labels, np.float32),
            remarks=(remark,) if left_out else (),
        )


def _pairs(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number of each line, and its label and sentences."""
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return _json_pairs(path)
    return read_tsv(path, _FIELDS, _LAYOUT)


def _json_pairs(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UserError(
                f"{path} line {number}: is no JSON ({error}); fetch the file again as {_LAYOUT} has it"
            ) from error
        fields = entry if isinstance(entry, dict) else {}
        values = [value for name in _FIELDS if isinstance(value := fields.get(name), str)]
        if len(values) != len(_FIELDS):
            raise UserError(
                f"{path} line {number}: expected an object with the texts {', '.join(_FIELDS)}, found "
                f"{', '.join(fields) or 'none'}; fetch the file again as {_LAYOUT} has it"
            )
        yield number, values
