"""Paraphrase pairs for models of MRPC and QQP: the Twitter URL corpus (TwitterPPDB) and PAWS.

Class 1 is a paraphrase, class 0 none.

References: Lan et al. 2017; Zhang et al. 2019.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from multiberts.finetune.text_examples import TextExamples
from multiberts.finetune.tsv_table import read_tsv
from multiberts.runs.errors import UserError
from multiberts.runs.files import read_lines

_NUM_JUDGES = 6
_JUDGEMENT = re.compile(rf"\((\d+), *{_NUM_JUDGES}\)")
_TWITTER_COLUMNS = ("sentence1", "sentence2", "(n, 6)", "url")
_PAWS_COLUMNS = ("id", "sentence1", "sentence2", "label")


@dataclasses.dataclass(frozen=True)
class TwitterReader:
    """Reads a file of the Twitter URL corpus; ids are `<set>/<row>`, all rows counted from 0.

    A line holds two sentences, how many of six judges called them a paraphrase, and a link. Four and
    more make a paraphrase, two and fewer none; pairs with three are left out, and said to be.
    """

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        (path,) = files
        rows: list[int] = []
        texts: tuple[list[str], list[str]] = ([], [])
        labels: list[bool] = []
        lines = read_lines(path)
        for row, line in enumerate(lines):
            fields = line.split("\t")
            if len(fields) != len(_TWITTER_COLUMNS):
                raise UserError(
                    f"{path} line {row + 1}: found {len(fields)} columns, expected "
                    f"{len(_TWITTER_COLUMNS)} ({', '.join(_TWITTER_COLUMNS)}); correct the line"
                )
            judgement = _JUDGEMENT.fullmatch(fields[2].strip())
            votes = int(judgement[1]) if judgement else _NUM_JUDGES + 1
            if votes > _NUM_JUDGES:
                raise UserError(
                    f"{path} line {row + 1}: found judgement {fields[2]!r}, expected (0, 6) to "
                    "(6, 6); correct the line"
                )
            if 2 * votes == _NUM_JUDGES:
                continue
            rows.append(row)
            texts[0].append(fields[0])
            texts[1].append(fields[1])
            labels.append(2 * votes > _NUM_JUDGES)
        if not rows:
            raise UserError(f"{path} has no pairs that the judges agree on; give a file with some")
        left_out = len(lines) - len(rows)
        remark = f"{path}: left out {left_out} of {len(lines)} pairs, judged 3 against 3"
        return TextExamples(
            example_ids=[f"{name}/{row}" for row in rows],
            first_texts=texts[0],
            second_texts=texts[1],
            labels=np.array(labels, np.float32),
            remarks=(remark,) if left_out else (),
        )


@dataclasses.dataclass(frozen=True)
class PawsReader:
    """Reads a TSV file of PAWS; ids are `<set>/<id>`."""

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        (path,) = files
        line_of_id: dict[str, int] = {}
        texts: tuple[list[str], list[str]] = ([], [])
        labels: list[int] = []
        for number, (identity, first, second, label) in read_tsv(path, _PAWS_COLUMNS, "PAWS"):
            if label not in ("0", "1"):
                raise UserError(
                    f"{path} line {number}: found label {label!r}, expected 0 or 1; correct the line"
                )
            if identity in line_of_id:
                raise UserError(
                    f"{path} line {number}: id {identity!r} stands in line {line_of_id[identity]} "
                    "already, expected each once; remove one of them"
                )
            line_of_id[identity] = number
            texts[0].append(first)
            texts[1].append(second)
            labels.append(int(label))
        if not labels:
            raise UserError(f"{path} has a header and no pairs; give a file with pairs")
        return TextExamples(
            example_ids=[f"{name}/{identity}" for identity in line_of_id],
            first_texts=texts[0],
            second_texts=texts[1],
            labels=np.array(labels, np.float32),
        )
