"""Reads the pairs of challenge sets in the layouts they are published in: one reader, and a table.

References: McCoy et al. 2019 (HANS); Bowman et al. 2015, section 2.3 (SNLI; the label `-` means that
annotators did not agree); Williams et al. 2018 (MultiNLI); Naik et al. 2018 (stress tests); Lan et al.
2017 (Twitter URL corpus, TwitterPPDB); Zhang et al. 2019 (PAWS).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from multiberts.finetune.text_examples import TextExamples
from multiberts.runs.errors import UserError
from multiberts.runs.tables import read_rows

# Class numbers of sets that distinguish entailment from the rest only.
TWO_WAY = {"non-entailment": 0, "entailment": 1}


@dataclasses.dataclass(frozen=True)
class PairReader:
    """Reads one file of pairs; ids are `<set>/<id>`, or `<set>/<row>` counted from 0.

    Attributes:
      published_as: the data set's name, for messages.
      classes: the class number of each label; pairs with a label of class None are left out.
      id_column: holds an id that no two pairs share; None: pairs are numbered, also those left out.
      label_column: holds the label; spaces in it do not matter.
      header: the columns of a file without a line that names them; None: the first line does.
      extras: further columns that describe the pairs.
      left_out: why pairs are left out, for the user to see.
    """

    published_as: str
    classes: tuple[tuple[str, int | None], ...]
    id_column: str | None = None
    label_column: str = "gold_label"
    header: tuple[str, ...] | None = None
    extras: tuple[str, ...] = ()
    left_out: str = ""

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        """Reads the file of the set `name`."""
        (path,) = files
        classes = dict(self.classes)
        ids = [self.id_column] if self.id_column else []
        rows = list(
            read_rows(
                path,
                [*ids, self.label_column, "sentence1", "sentence2", *self.extras],
                header=self.header,
                unique=ids,
                cure=f"fetch the file again as published for {self.published_as}",
            )
        )
        for row in rows:
            row[self.label_column] = row[self.label_column].replace(" ", "")
            row.one_of(self.label_column, classes)
        labels = [classes[row[self.label_column]] for row in rows]
        kept = [number for number, label in enumerate(labels) if label is not None]
        remark = f"left out {len(rows) - len(kept)} of {len(rows)} pairs, {self.left_out}"
        if not kept:
            raise UserError(f"{path}: {remark}; give a file with others")
        pairs = [rows[number] for number in kept]
        return TextExamples(
            example_ids=[
                f"{name}/{row[self.id_column] if self.id_column else number}"
                for number, row in zip(kept, pairs, strict=True)
            ],
            first_texts=[row["sentence1"] for row in pairs],
            second_texts=[row["sentence2"] for row in pairs],
            labels=np.array([labels[number] for number in kept], np.float32),
            extras={column: [row[column] for row in pairs] for column in self.extras},
            remarks=(f"{path}: {remark}",) if len(kept) < len(rows) else (),
        )


HANS = PairReader(
    "HANS",
    tuple(TWO_WAY.items()),
    id_column="pairID",
    extras=("heuristic", "subcase", "template"),
)
PAWS = PairReader("PAWS", (("0", 0), ("1", 1)), id_column="id", label_column="label")
# Six judges each; four votes and more make a paraphrase, two and fewer none.
TWITTER_PPDB = PairReader(
    "the Twitter URL corpus",
    tuple((f"({votes},6)", None if votes == 3 else int(votes > 3)) for votes in range(7)),
    label_column="judgement",
    header=("sentence1", "sentence2", "judgement", "url"),
    left_out="judged 3 against 3",
)


def inference_reader(classes: Mapping[str, int]) -> PairReader:
    """Returns the reader of SNLI, MultiNLI and the stress tests, in TSV or JSON lines.

    Args:
      classes: the class number of each label.
    """
    return PairReader(
        "SNLI, MultiNLI or the stress tests",
        (*classes.items(), ("-", None)),
        left_out="which have no gold label",
    )
