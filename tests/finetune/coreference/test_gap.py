from __future__ import annotations

from pathlib import Path

import pytest

from multiberts.finetune.coreference.gap import COLUMNS, read_gap
from multiberts.runs.errors import UserError

HEADER = "\t".join(COLUMNS) + "\n"
ROW = "t-1\tAnn met Bea; she left.\tshe\t13\tAnn\t0\tTRUE\tBea\t8\tFALSE\thttp://x\n"


def test_offsets_point_at_the_mentions(tmp_path: Path) -> None:
    path = tmp_path / "gap.tsv"
    path.write_text(HEADER + ROW)
    (example,) = read_gap(path)
    spans = [example.pronoun, *example.names]
    assert [example.text[begin:end] for begin, end in spans] == ["she", "Ann", "Bea"]
    assert example.corefers == (True, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ID\tText\n", "line 1: found the columns ID, Text, expected ID, Text, Pronoun"),
        (HEADER, "has a header and no rows"),
        (HEADER + ROW.replace("\t13\t", "\t12\t"), "line 2: Pronoun-offset is '12'"),
        (HEADER + ROW.replace("\t8\t", "\tx\t"), "line 2: B-offset is 'x'"),
        (HEADER + ROW.replace("TRUE", "maybe"), "line 2: found A-coref 'MAYBE', expected TRUE or FALSE"),
        (HEADER + ROW + ROW, "line 3: ID 't-1' is in line 2 already"),
        (HEADER + "t-1\tshort\n", "line 2: found 2 columns, expected 11"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gap.tsv"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_gap(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("split", "count"), [("development", 2000), ("test", 2000), ("validation", 454)]
)
def test_gap_has_its_published_sizes(shared_data: Path, split: str, count: int) -> None:
    examples = read_gap(shared_data / f"coref/gap/gap-{split}.tsv.gz")
    assert len(examples) == count
    # A pronoun never means both names.
    assert not any(all(example.corefers) for example in examples)
