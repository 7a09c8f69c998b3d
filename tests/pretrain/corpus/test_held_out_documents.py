"""Whole documents set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from multiberts.pretrain.corpus.documents import Piece, read_documents
from multiberts.pretrain.corpus.held_out_documents import HELD_OUT, TRAINED, hold_out
from multiberts.runs.errors import UserError


@pytest.fixture
def text(tmp_path: Path) -> Path:
    documents = [f"Document {n} starts .\nIt has a second line .\n" for n in range(400)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(documents))
    return path


def _documents(path: Path) -> list[list[str]]:
    return list(read_documents([Piece(str(path), "sentences")]))


def _hold_out(text: Path, run_dir: Path, **changes: object) -> list[list[list[str]]]:
    arguments = {"share": 0.1, "hold_out_seed": 0, **changes}
    hold_out(run_dir=str(run_dir), sources=[str(text)], source_format="sentences", **arguments)
    return [_documents(run_dir / name) for name in (TRAINED, HELD_OUT)]


def test_every_document_is_on_one_side_which_the_seed_chooses(text: Path, tmp_path: Path) -> None:
    trained, held_out = one = _hold_out(text, tmp_path / "run")
    everything = _documents(text)
    assert sorted(trained + held_out) == sorted(everything)
    # In their order, and about the share: 40 expected, standard deviation 6.
    assert trained == [document for document in everything if document in trained]
    assert 22 <= len(held_out) <= 58
    assert one == _hold_out(text, tmp_path / "again")
    assert one != _hold_out(text, tmp_path / "other", hold_out_seed=1)


def test_a_share_of_which_nothing_is_held_out_is_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"hold_out.share 1e-09 of 400 documents holds out 0, expec"
    ):
        _hold_out(text, tmp_path / "run", share=1e-9)
    assert not (tmp_path / "run").exists()
